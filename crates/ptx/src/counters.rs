//! What a kernel did, in numbers.
//!
//! The definitions are those of Nsight Compute, so that what is counted here can be held against what a chip counts
//! (`bench/peers/ncu_counters.py` does). Both count what warps do, but ours are of PTX and a profiler's of machine code: where the
//! assembler removes a load, joins two or spills a register, the two differ by that. An instruction whose lanes are all
//! switched off by its predicate makes no request on either side.

use crate::isa::{Alu, Float, Memory, Op};

/// Kinds of instructions, by the unit that runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[repr(u8)]
pub enum InstructionClass {
    /// Integers, logic, moves, comparisons.
    Integer,
    /// 32-bit floating point.
    Float,
    /// 16-bit floating point.
    Half,
    /// 64-bit floating point.
    Double,
    /// Exponentials, roots, quotients.
    Special,
    /// Conversions.
    Convert,
    /// Branches, barriers, fences.
    Control,
    /// Shuffles and votes.
    Warp,
    /// Loads and stores of global memory, constants and arguments.
    Global,
    /// Loads and stores of shared memory.
    Shared,
    /// Loads and stores of local memory.
    Local,
    /// Loads of arguments and of constant memory.
    Constant,
    /// Atomics.
    Atomic,
    /// Copies that run beside the threads, and their barriers.
    Asynchronous,
    /// Matrix products.
    Matrix,
}

/// How many classes there are.
const CLASSES: usize = InstructionClass::Matrix as usize + 1;

impl InstructionClass {
    /// All of them.
    pub const ALL: [InstructionClass; CLASSES] = {
        use InstructionClass as C;
        [
            C::Integer,
            C::Float,
            C::Half,
            C::Double,
            C::Special,
            C::Convert,
            C::Control,
            C::Warp,
            C::Global,
            C::Shared,
            C::Local,
            C::Constant,
            C::Atomic,
            C::Asynchronous,
            C::Matrix,
        ]
    };

    /// Its name, as it stands in JSON.
    pub fn name(self) -> &'static str {
        use InstructionClass as C;
        match self {
            C::Integer => "integer",
            C::Float => "float",
            C::Half => "half",
            C::Double => "double",
            C::Special => "special",
            C::Convert => "convert",
            C::Control => "control",
            C::Warp => "warp",
            C::Global => "global",
            C::Shared => "shared",
            C::Local => "local",
            C::Constant => "constant",
            C::Atomic => "atomic",
            C::Asynchronous => "asynchronous",
            C::Matrix => "matrix",
        }
    }

    pub(crate) fn of(op: &Op) -> InstructionClass {
        use InstructionClass as C;
        match op {
            Op::Alu(alu) => match alu {
                Alu::Convert(_) => C::Convert,
                Alu::F32(op, _) | Alu::F64(op, _) | Alu::Half { op, .. } if special(*op) => C::Special,
                Alu::F32(..) => C::Float,
                Alu::F64(..) => C::Double,
                Alu::Half { .. } => C::Half,
                _ => C::Integer,
            },
            Op::Load(access) | Op::Store(access) => match access.memory {
                Memory::Shared | Memory::SharedCluster => C::Shared,
                Memory::Local => C::Local,
                Memory::Constant | Memory::Parameter => C::Constant,
                _ => C::Global,
            },
            Op::LoadMatrix { .. } | Op::StoreMatrix { .. } => C::Shared,
            Op::Atomic { .. } => C::Atomic,
            Op::Shuffle(_)
            | Op::Vote(_)
            | Op::MatchAny { .. }
            | Op::MatchAll { .. }
            | Op::ActiveMask
            | Op::Elect
            | Op::ReduceWarp { .. } => C::Warp,
            Op::Branch { .. }
            | Op::BranchIndexed { .. }
            | Op::Exit
            | Op::Trap
            | Op::Barrier { .. }
            | Op::WarpBarrier
            | Op::ClusterArrive { .. }
            | Op::ClusterWait
            | Op::Fence(_)
            | Op::SetRegisters { .. }
            | Op::Nothing => C::Control,
            Op::Mbarrier { .. }
            | Op::AsyncCopy { .. }
            | Op::AsyncCommit
            | Op::AsyncWait { .. }
            | Op::AsyncArrive { .. }
            | Op::BulkCopy { .. }
            | Op::TensorCopy(_)
            | Op::BulkCommit
            | Op::BulkWait { .. }
            | Op::Prefetch => C::Asynchronous,
            Op::Mma(_) | Op::Wgmma(_) | Op::WgmmaFence | Op::WgmmaCommit | Op::WgmmaWait { .. } => C::Matrix,
            _ => C::Integer,
        }
    }
}

fn by_class<S: serde::Serializer>(counts: &[u64; CLASSES], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(InstructionClass::ALL.iter().map(|class| (class.name(), counts[*class as usize])))
}

fn special(op: Float) -> bool {
    matches!(
        op,
        Float::Div
            | Float::Reciprocal
            | Float::SquareRoot
            | Float::ReciprocalSquareRoot
            | Float::Exp2
            | Float::Log2
            | Float::Sin
            | Float::Cos
            | Float::Tanh
    )
}

/// The bits of an address within a sector, and within a line of the first-level cache and shared memory.
pub(crate) const SECTOR_BITS: u32 = 5;
pub(crate) const LINE_BITS: u32 = 7;

/// Accesses to a level of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Instructions of warps with at least one lane at work: `l1tex__t_requests_pipe_lsu_mem_global_op_*`, and
    /// `sass__inst_executed_shared_*`.
    pub requests: u64,
    /// Of global memory the sectors, aligned pieces of 32 bytes, that a request touches, each once however many lanes touch it:
    /// `l1tex__t_sectors_pipe_lsu_mem_global_op_*`. Of shared memory the rounds through the 32 banks of 4 bytes:
    /// `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_*`.
    ///
    /// A round serves 32 lanes of 4 bytes or less, 16 of 8, or 8 of 16; a round for each further word that a bank has to
    /// give comes on top, while one word serves any number of lanes. A load of 8 or 16 bytes whose lanes are equal in pairs, each
    /// with its neighbour or each with the next but one, takes half the rounds. The rows of a matrix of `ldmatrix` and `stmatrix` are
    /// eight lanes of 16 bytes.
    pub transactions: u64,
    /// The fewest transactions that would have carried the same bytes: of those that several lanes ask for, no more than there were.
    pub ideal_transactions: u64,
    /// Of shared memory the rounds that bank conflicts add, beyond one for each group of lanes that has any at work:
    /// `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_*`.
    pub conflicts: u64,
    /// Bytes that threads asked for.
    pub bytes: u64,
}

impl Traffic {
    fn add(&mut self, other: &Traffic) {
        self.requests += other.requests;
        self.transactions += other.transactions;
        self.ideal_transactions += other.ideal_transactions;
        self.conflicts += other.conflicts;
        self.bytes += other.bytes;
    }

    /// Counts a request to global memory.
    pub(crate) fn add_global(&mut self, addresses: &[u64; 32], mask: u32, bytes: usize) {
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        let sectors = sectors(addresses, mask, bytes as u64);
        self.requests += 1;
        self.transactions += sectors;
        self.ideal_transactions += asked.div_ceil(1 << SECTOR_BITS).min(sectors);
        self.bytes += asked;
    }

    /// Counts a request that copies from global to shared memory. A sector is taken once for each aligned piece of shared memory, of
    /// so many bits of an address, that parts of it go to.
    pub(crate) fn add_copies(
        &mut self,
        sources: &[u64; 32],
        targets: &[u64; 32],
        mask: u32,
        bytes: usize,
        piece_bits: u32,
    ) {
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        let lanes = (0..32).filter(|lane| mask >> lane & 1 == 1);
        let mut pairs = [(u64::MAX, u64::MAX); 32];
        let mut count = 0;
        let mut sorted = true;
        for pair in lanes.map(|lane| (sources[lane] >> SECTOR_BITS, targets[lane] >> piece_bits)) {
            // Mostly neighbours have the same, or each lane the next.
            let newest = pairs[..count].last();
            if newest == Some(&pair) {
                continue;
            }
            let next = sorted && newest.is_none_or(|newest| *newest < pair);
            if !next && pairs[..count].contains(&pair) {
                continue;
            }
            sorted = next;
            pairs[count] = pair;
            count += 1;
        }
        self.requests += 1;
        self.transactions += count as u64;
        self.ideal_transactions += asked.div_ceil(1 << SECTOR_BITS).min(count as u64);
        self.bytes += asked;
    }

    /// Counts a request to shared memory, of which equal pairs of lanes are served together or not. Gives its rounds.
    pub(crate) fn add_shared(&mut self, addresses: &[u64; 32], mask: u32, bytes: usize, pairs: bool) -> u64 {
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        let (rounds, groups) = bank_rounds(addresses, mask, bytes as u64, pairs);
        self.requests += 1;
        self.transactions += rounds;
        self.conflicts += rounds - groups;
        self.ideal_transactions += asked.div_ceil(128).min(rounds);
        self.bytes += asked;
        rounds
    }

    /// Counts a request of atomics on shared memory, whose lanes at one address go one after the other. Gives its rounds.
    pub(crate) fn add_shared_atomics(&mut self, addresses: &[u64; 32], mask: u32, bytes: usize) -> u64 {
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        let at_work = |lane: &usize| mask >> lane & 1 == 1;
        // The first lanes of every address, the second ones, and so on.
        let mut passes = [0u32; 32];
        for lane in (0..32).filter(at_work) {
            let earlier =
                (0..lane).filter(at_work).filter(|&other| addresses[other] == addresses[lane]).count();
            passes[earlier] |= 1 << lane;
        }
        let served = |lanes: u32| bank_rounds(addresses, lanes, bytes as u64, false);
        let rounds = passes.iter().take_while(|&&pass| pass != 0).map(|&pass| served(pass).0).sum::<u64>();
        let (_, groups) = served(mask);
        self.requests += 1;
        self.transactions += rounds;
        self.conflicts += rounds - groups;
        self.ideal_transactions += asked.div_ceil(128).min(rounds);
        self.bytes += asked;
        rounds
    }

    /// The fewest transactions that each request would do with, by its bytes, over those that there were.
    pub fn efficiency(&self) -> f64 {
        if self.transactions == 0 { 1.0 } else { self.ideal_transactions as f64 / self.transactions as f64 }
    }
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Instructions of warps, by [`InstructionClass`].
    #[serde(serialize_with = "by_class")]
    pub instructions: [u64; CLASSES],
    /// Instructions of threads: those of warps times the lanes that ran them.
    pub thread_instructions: u64,
    /// Branches that parted a warp.
    pub divergent_branches: u64,
    /// All branches with a condition.
    pub branches: u64,
    /// Reads of global memory: `ld` and `cp.async`. Constants and arguments come another way and are not among them, nor is what
    /// the bulk copy engine reads. A sector that `cp.async` puts into two lines of shared memory, of 128 bytes, counts twice.
    pub global_loads: Traffic,
    /// Those of them that are `cp.async`, as the profiler attributes them to instructions: a sector counts once for each 32 bytes of
    /// shared memory that parts of it go to, `sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_*`.
    pub async_loads: Traffic,
    /// Writes to global memory.
    pub global_stores: Traffic,
    /// Atomics and reductions on global memory.
    pub global_atomics: Traffic,
    /// Reads of shared memory by threads: `ld` and `ldmatrix`.
    pub shared_loads: Traffic,
    /// Writes to shared memory by threads: `st` and `stmatrix`, not what copies beside them write.
    pub shared_stores: Traffic,
    /// Atomics and reductions on shared memory. A round serves one lane of each address: `n` lanes that change one word take `n`.
    pub shared_atomics: Traffic,
    /// Bytes that threads read of local memory: arrays and structs that the compiler could not keep in registers. Registers that the
    /// assembler spills are not in PTX, and not among them.
    pub local_load_bytes: u64,
    /// Bytes that threads write to it.
    pub local_store_bytes: u64,
    /// Bytes brought into shared memory by copies beside the threads.
    pub copied_bytes: u64,
    /// Copies that the bulk copy engine was given, either way.
    pub bulk_copies: u64,
    /// Atomic operations of threads.
    pub atomics: u64,
    /// Waits at barriers of blocks.
    pub barriers: u64,
    /// Matrix products that warps started: `mma` once, `wgmma` once by each of its four warps, as
    /// `sm__inst_executed_pipe_tensor_op_*` count them.
    pub matrix_instructions: u64,
    /// Floating-point operations of matrix products: two for each multiply-add.
    pub matrix_flops: u64,
    /// Floating-point operations of threads: two for each fused multiply-add.
    pub thread_flops: u64,
}

impl Counters {
    /// Instructions of warps, all classes.
    pub fn warp_instructions(&self) -> u64 {
        self.instructions.iter().sum()
    }

    /// Instructions of warps of a class.
    pub fn class(&self, class: InstructionClass) -> u64 {
        self.instructions[class as usize]
    }

    /// The mean share of a warp's lanes that ran its instructions.
    pub fn lane_efficiency(&self) -> f64 {
        match self.warp_instructions() {
            0 => 1.0,
            warp => self.thread_instructions as f64 / (32 * warp) as f64,
        }
    }

    /// So many times as much of everything: what a whole grid does, by some of its blocks.
    pub(crate) fn scaled(&self, factor: f64) -> Counters {
        let scale = |count: u64| (count as f64 * factor).round() as u64;
        let traffic = |traffic: &Traffic| Traffic {
            requests: scale(traffic.requests),
            transactions: scale(traffic.transactions),
            ideal_transactions: scale(traffic.ideal_transactions),
            conflicts: scale(traffic.conflicts),
            bytes: scale(traffic.bytes),
        };
        Counters {
            instructions: self.instructions.map(scale),
            thread_instructions: scale(self.thread_instructions),
            divergent_branches: scale(self.divergent_branches),
            branches: scale(self.branches),
            global_loads: traffic(&self.global_loads),
            async_loads: traffic(&self.async_loads),
            global_stores: traffic(&self.global_stores),
            global_atomics: traffic(&self.global_atomics),
            shared_loads: traffic(&self.shared_loads),
            shared_stores: traffic(&self.shared_stores),
            shared_atomics: traffic(&self.shared_atomics),
            local_load_bytes: scale(self.local_load_bytes),
            local_store_bytes: scale(self.local_store_bytes),
            copied_bytes: scale(self.copied_bytes),
            bulk_copies: scale(self.bulk_copies),
            atomics: scale(self.atomics),
            barriers: scale(self.barriers),
            matrix_instructions: scale(self.matrix_instructions),
            matrix_flops: scale(self.matrix_flops),
            thread_flops: scale(self.thread_flops),
        }
    }

    pub(crate) fn merge(&mut self, other: &Counters) {
        for (mine, theirs) in self.instructions.iter_mut().zip(other.instructions) {
            *mine += theirs;
        }
        self.thread_instructions += other.thread_instructions;
        self.divergent_branches += other.divergent_branches;
        self.branches += other.branches;
        self.global_loads.add(&other.global_loads);
        self.async_loads.add(&other.async_loads);
        self.global_stores.add(&other.global_stores);
        self.global_atomics.add(&other.global_atomics);
        self.shared_loads.add(&other.shared_loads);
        self.shared_stores.add(&other.shared_stores);
        self.shared_atomics.add(&other.shared_atomics);
        self.local_load_bytes += other.local_load_bytes;
        self.local_store_bytes += other.local_store_bytes;
        self.copied_bytes += other.copied_bytes;
        self.bulk_copies += other.bulk_copies;
        self.atomics += other.atomics;
        self.barriers += other.barriers;
        self.matrix_instructions += other.matrix_instructions;
        self.matrix_flops += other.matrix_flops;
        self.thread_flops += other.thread_flops;
    }
}

/// Pieces of 32 bytes under accesses of `bytes` at these addresses.
fn sectors(addresses: &[u64; 32], mask: u32, bytes: u64) -> u64 {
    let mut pieces = [u64::MAX; 64];
    let mut count = 0;
    let mut sorted = true;
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let (first, last) =
            (addresses[lane] >> SECTOR_BITS, addresses[lane].wrapping_add(bytes - 1) >> SECTOR_BITS);
        for piece in [first, last] {
            let newest = if count == 0 { None } else { Some(pieces[count - 1]) };
            if newest == Some(piece) {
                continue;
            }
            sorted &= newest.is_none_or(|newest| newest < piece);
            pieces[count] = piece;
            count += 1;
        }
    }
    if sorted {
        return count as u64;
    }
    pieces[..count].sort_unstable();
    1 + pieces[..count].windows(2).filter(|pair| pair[0] != pair[1]).count() as u64
}

/// Rounds through the 32 banks of shared memory, and how many there would be without conflicts. Wide accesses go 128 bytes at a
/// time: lanes in groups of `128 / bytes`, or of twice as many where pairs are served together, all are equal and it helps.
fn bank_rounds(addresses: &[u64; 32], mask: u32, bytes: u64, pairs: bool) -> (u64, u64) {
    if bytes <= 4 {
        return rounds_by(addresses, mask, bytes, 32);
    }
    let group = (128 / bytes).max(1) as usize;
    let alone = rounds_by(addresses, mask, bytes, group);
    if pairs && group <= 16 && in_pairs(addresses, mask) {
        let paired = rounds_by(addresses, mask, bytes, 2 * group);
        return if paired.0 < alone.0 { paired } else { alone };
    }
    alone
}

/// As [`bank_rounds`], in groups of so many lanes.
fn rounds_by(addresses: &[u64; 32], mask: u32, bytes: u64, group: usize) -> (u64, u64) {
    let (mut rounds, mut groups) = (0, 0);
    for first in (0..32).step_by(group) {
        let lanes = mask >> first & if group == 32 { u32::MAX } else { (1 << group) - 1 };
        if lanes != 0 {
            rounds += rounds_of(&addresses[first..first + group], lanes, bytes);
            groups += 1;
        }
    }
    (rounds, groups)
}

/// Whether the lanes at work have their neighbours' addresses, or those of the next but one.
fn in_pairs(addresses: &[u64; 32], mask: u32) -> bool {
    let paired = |by: usize| {
        (0..32).all(|lane| {
            let other = lane ^ by;
            mask >> lane & mask >> other & 1 == 0 || addresses[lane] == addresses[other]
        })
    };
    paired(1) || paired(2)
}

fn rounds_of(addresses: &[u64], mask: u32, bytes: u64) -> u64 {
    let words = bytes.div_ceil(4);
    // Mostly no two lanes come to one bank.
    let banks = u32::MAX >> (32 - words.clamp(1, 32));
    let (mut used, mut shared) = (0, 0);
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let lanes_banks = banks.rotate_left((addresses[lane] >> 2) as u32 % 32);
        shared |= used & lanes_banks;
        used |= lanes_banks;
    }
    if shared == 0 {
        return 1;
    }
    let mut owner = [u64::MAX; 32];
    let mut conflict = false;
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let word = addresses[lane] >> 2;
        for word in word..word + words {
            let bank = (word % 32) as usize;
            conflict |= owner[bank] != u64::MAX && owner[bank] != word;
            owner[bank] = word;
        }
    }
    if !conflict {
        return 1;
    }
    let mut all = Vec::with_capacity(64);
    for (_, address) in addresses.iter().enumerate().filter(|(lane, _)| mask >> lane & 1 == 1) {
        all.extend((address >> 2)..(address >> 2) + words);
    }
    all.sort_unstable();
    all.dedup();
    let mut banks = [0u64; 32];
    for word in all {
        banks[(word % 32) as usize] += 1;
    }
    banks.into_iter().max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(f: impl Fn(u64) -> u64) -> [u64; 32] {
        std::array::from_fn(|lane| f(lane as u64))
    }

    #[test]
    fn sectors_of_known_patterns() {
        assert_eq!(sectors(&addresses(|i| 4 * i), u32::MAX, 4), 4);
        assert_eq!(sectors(&addresses(|i| 16 * i), u32::MAX, 16), 16);
        assert_eq!(sectors(&addresses(|i| 128 * i), u32::MAX, 4), 32);
        assert_eq!(sectors(&addresses(|i| 4 * (31 - i)), u32::MAX, 4), 4);
        assert_eq!(sectors(&addresses(|_| 64), u32::MAX, 4), 1);
        // Moved by one element: one more.
        assert_eq!(sectors(&addresses(|i| 4 * i + 4), u32::MAX, 4), 5);
        assert_eq!(sectors(&addresses(|i| 4 * i), 1, 4), 1);
    }

    /// As an H200 counts four rows of 128 bytes that become rows of 144 bytes, and of 128.
    #[test]
    fn copies_of_known_patterns() {
        let copied = |pitch: u64, piece_bits| {
            let mut traffic = Traffic::default();
            let targets = addresses(|i| i / 8 * pitch + i % 8 * 16);
            traffic.add_copies(&addresses(|i| 16 * i), &targets, u32::MAX, 16, piece_bits);
            assert_eq!((traffic.requests, traffic.ideal_transactions, traffic.bytes), (1, 16, 512));
            traffic.transactions
        };
        assert_eq!((copied(128, LINE_BITS), copied(128, SECTOR_BITS)), (16, 16));
        assert_eq!((copied(144, LINE_BITS), copied(144, SECTOR_BITS)), (18, 24));
    }

    #[test]
    fn rounds_of_known_patterns() {
        let load = |f: &dyn Fn(u64) -> u64, bytes| bank_rounds(&addresses(f), u32::MAX, bytes, true);
        assert_eq!(load(&|i| 4 * i, 4), (1, 1));
        assert_eq!(load(&|_| 4, 4), (1, 1));
        assert_eq!(load(&|i| 8 * i, 4), (2, 1));
        assert_eq!(load(&|i| 128 * i, 4), (32, 1));
        assert_eq!(load(&|i| 132 * i, 4), (1, 1));
        // Halves of a word share its bank.
        assert_eq!(load(&|i| 2 * i, 2), (1, 1));
        // Wide accesses need as many rounds as they have times 128 bytes; only what comes on top is a conflict.
        assert_eq!(load(&|i| 8 * i, 8), (2, 2));
        assert_eq!(load(&|i| 16 * i, 16), (4, 4));
        assert_eq!(load(&|i| 128 * i, 16), (32, 4));
        assert_eq!(load(&|i| 144 * i, 16), (4, 4));
    }

    #[test]
    fn equal_pairs_of_wide_loads_take_half_the_rounds() {
        let rounds = |f: &dyn Fn(u64) -> u64, mask, pairs| bank_rounds(&addresses(f), mask, 16, pairs);
        assert_eq!(rounds(&|i| 16 * (i / 2), u32::MAX, true), (2, 2));
        assert_eq!(rounds(&|i| 16 * (i % 2 + i / 4 * 2), u32::MAX, true), (2, 2));
        assert_eq!(rounds(&|_| 0, u32::MAX, true), (2, 2));
        // Neither pattern, and a store.
        assert_eq!(rounds(&|i| 16 * (i % 8), u32::MAX, true), (4, 4));
        assert_eq!(rounds(&|i| 16 * (i / 2), u32::MAX, false), (4, 4));
        // Lanes that are switched off match any.
        assert_eq!(rounds(&|i| 16 * (i / 2), 0x5555_5555, true), (2, 2));
        assert_eq!(rounds(&|i| 16 * i, 0x5555_5555, true), (4, 4));
    }
}

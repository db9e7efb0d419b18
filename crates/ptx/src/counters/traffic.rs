//! Requests of warps to global and shared memory, and the sectors and wavefronts that they take.

use super::wavefronts::wavefronts;

/// Address bits within a sector of 32 bytes.
pub(crate) const SECTOR_BITS: u32 = 5;
/// Address bits within a 128-byte line of L1 or shared memory.
pub(crate) const LINE_BITS: u32 = 7;

/// Accesses to global or shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Warp instructions with at least one active lane: `l1tex__t_requests_pipe_lsu_mem_global_op_*` and
    /// `sass__inst_executed_shared_*`.
    pub requests: u64,
    /// Global memory: the sectors (aligned 32 bytes) of each request, counted once however many lanes access them,
    /// `l1tex__t_sectors_pipe_lsu_mem_global_op_*`. Shared memory: the wavefronts through the 32 banks of 4 bytes,
    /// `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_*`.
    ///
    /// A wavefront serves 32 lanes of up to 4 bytes, 16 lanes of 8 bytes or 8 lanes of 16 bytes. Each further word that one bank
    /// has to deliver adds a wavefront; one word serves any number of lanes. A load of 8 or 16 bytes whose addresses are equal in
    /// pairs, every lane with its neighbour or every lane with the one two away, takes half the wavefronts. The rows of a matrix of
    /// `ldmatrix` and `stmatrix` count as eight lanes of 16 bytes.
    pub transactions: u64,
    /// The fewest sectors or wavefronts that could have carried the requested bytes, never more than there were.
    pub ideal_transactions: u64,
    /// Shared memory: the wavefronts that bank conflicts add, beyond one for each group of lanes with an active lane,
    /// `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_*`.
    pub conflicts: u64,
    /// Bytes that threads requested.
    pub bytes: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, other: &Traffic) {
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

    /// Counts a request to local memory at these offsets in each lane's own memory.
    pub(crate) fn add_local(&mut self, offsets: &[u64; 32], mask: u32, bytes: usize) {
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        let sectors = local_sectors(offsets, mask, bytes as u64);
        self.requests += 1;
        self.transactions += sectors;
        self.ideal_transactions += asked.div_ceil(1 << SECTOR_BITS).min(sectors);
        self.bytes += asked;
    }

    /// Counts a request for texels of `bytes`, all in no more than one sector.
    pub(crate) fn add_fetches(&mut self, addresses: &mut [u64], bytes: u64) {
        let asked = addresses.len() as u64 * bytes;
        addresses.iter_mut().for_each(|address| *address >>= SECTOR_BITS);
        addresses.sort_unstable();
        let sectors = addresses.chunk_by(|a, b| a == b).count() as u64;
        self.requests += 1;
        self.transactions += sectors;
        self.ideal_transactions += asked.div_ceil(1 << SECTOR_BITS).min(sectors);
        self.bytes += asked;
    }

    /// Counts a `cp.async` request. A sector counts once for each aligned `1 << piece_bits` bytes of shared memory that it is
    /// written to.
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
            // The common case: neighbours share a sector, or each lane has the next one.
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

    /// Counts a request to shared memory and returns its wavefronts. `pairs`: lanes with equal addresses can be served in pairs.
    pub(crate) fn add_shared(&mut self, addresses: &[u64; 32], mask: u32, bytes: usize, pairs: bool) -> u64 {
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        let (taken, groups) = wavefronts(addresses, mask, bytes as u64, pairs);
        self.add_wavefronts(taken, groups, asked)
    }

    /// Counts a request of atomics on shared memory and returns its wavefronts. Lanes with the same address are served one after
    /// the other, unless each adds a constant 1: `ATOMS.POPC.INC` counts the lanes of an address. (Measured on an H200: two clocks a
    /// request, whatever the addresses.)
    pub(crate) fn add_shared_atomics(
        &mut self,
        addresses: &[u64; 32],
        mask: u32,
        bytes: usize,
        counts: bool,
    ) -> u64 {
        if counts {
            return self.add_shared(addresses, mask, bytes, false);
        }
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        let active = |lane: &usize| mask >> lane & 1 == 1;
        // The first lane of every address, then the second of every address, and so on.
        let mut passes = [0u32; 32];
        for lane in (0..32).filter(active) {
            let earlier =
                (0..lane).filter(active).filter(|&other| addresses[other] == addresses[lane]).count();
            passes[earlier] |= 1 << lane;
        }
        let served = |lanes: u32| wavefronts(addresses, lanes, bytes as u64, false);
        let taken = passes.iter().take_while(|&&pass| pass != 0).map(|&pass| served(pass).0).sum();
        let (_, groups) = served(mask);
        self.add_wavefronts(taken, groups, asked)
    }

    fn add_wavefronts(&mut self, taken: u64, groups: u64, asked: u64) -> u64 {
        self.requests += 1;
        self.transactions += taken;
        self.conflicts += taken - groups;
        self.ideal_transactions += asked.div_ceil(128).min(taken);
        self.bytes += asked;
        taken
    }

    /// The ideal number of sectors or wavefronts, divided by the actual one.
    pub fn efficiency(&self) -> f64 {
        if self.transactions == 0 { 1.0 } else { self.ideal_transactions as f64 / self.transactions as f64 }
    }
}

/// How many sectors accesses of `bytes` at these offsets in local memory touch. "Local memory is organized such that consecutive
/// 32-bit words are accessed by consecutive thread IDs" (CUDA C++ Programming Guide): a word of all lanes is 128 bytes, of which eight
/// neighbours share a sector.
pub(crate) fn local_sectors(offsets: &[u64; 32], mask: u32, bytes: u64) -> u64 {
    let mut count = 0;
    for first in (0..32).step_by(8) {
        let mut words = [u64::MAX; 8 * 4];
        let mut known = 0;
        for lane in (first..first + 8).filter(|lane| mask >> lane & 1 == 1) {
            let last = offsets[lane].saturating_add(bytes.max(1) - 1) >> 2;
            for word in (offsets[lane] >> 2..=last).take(4) {
                if !words[..known].contains(&word) {
                    words[known] = word;
                    known += 1;
                }
            }
        }
        count += known as u64;
    }
    count
}

/// The passes of an atomic, each with at most one lane for an address: as many as lanes update the most contended address.
pub(crate) fn atomic_passes(addresses: &[u64; 32], mask: u32) -> u64 {
    let mut sorted = [u64::MAX; 32];
    let mut count = 0;
    for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
        sorted[count] = addresses[lane];
        count += 1;
    }
    sorted[..count].sort_unstable();
    let runs = sorted[..count].chunk_by(|a, b| a == b);
    runs.map(|run| run.len() as u64).max().unwrap_or(0)
}

/// How many sectors accesses of `bytes` at these addresses touch.
fn sectors(addresses: &[u64; 32], mask: u32, bytes: u64) -> u64 {
    let mut touched = [u64::MAX; 64];
    let mut count = 0;
    let mut sorted = true;
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let (first, last) =
            (addresses[lane] >> SECTOR_BITS, addresses[lane].wrapping_add(bytes - 1) >> SECTOR_BITS);
        for sector in [first, last] {
            let newest = if count == 0 { None } else { Some(touched[count - 1]) };
            if newest == Some(sector) {
                continue;
            }
            sorted &= newest.is_none_or(|newest| newest < sector);
            touched[count] = sector;
            count += 1;
        }
    }
    if sorted {
        return count as u64;
    }
    touched[..count].sort_unstable();
    1 + touched[..count].windows(2).filter(|pair| pair[0] != pair[1]).count() as u64
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
        // Shifted by one element: one sector more.
        assert_eq!(sectors(&addresses(|i| 4 * i + 4), u32::MAX, 4), 5);
        assert_eq!(sectors(&addresses(|i| 4 * i), 1, 4), 1);
    }

    #[test]
    fn local_memory_is_interleaved_by_words() {
        assert_eq!(local_sectors(&addresses(|_| 8), u32::MAX, 4), 4);
        assert_eq!(local_sectors(&addresses(|_| 8), u32::MAX, 16), 16);
        assert_eq!(local_sectors(&addresses(|_| 8), u32::MAX, 1), 4);
        // Every lane another element: nothing is shared.
        assert_eq!(local_sectors(&addresses(|i| 4 * i), u32::MAX, 4), 32);
        assert_eq!(local_sectors(&addresses(|i| 4 * (i / 8)), u32::MAX, 4), 4);
        assert_eq!(local_sectors(&addresses(|i| 4 * i), 0b11, 4), 2);
    }

    #[test]
    fn atomics_on_one_address_take_a_pass_each() {
        assert_eq!(atomic_passes(&addresses(|i| 4 * i), u32::MAX), 1);
        assert_eq!(atomic_passes(&addresses(|_| 4), u32::MAX), 32);
        assert_eq!(atomic_passes(&addresses(|i| i % 4), 0xffff), 4);
        assert_eq!(atomic_passes(&addresses(|_| 4), 0), 0);
    }

    /// What an H200 counts for four rows of 128 bytes that become rows of 144 and of 128 bytes.
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
}

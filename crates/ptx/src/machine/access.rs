//! Loads and stores.

use super::{alu::lanes, shared_access::SharedRequest, step::Step, unit::Unit, warp::Warp};
use crate::{
    check::FindingKind,
    isa::{Access, Class, Instruction, Memory, Op, Operand, Path, Type},
    memory::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW_BYTES},
};

/// Expands the expression with the value's size as a constant, so that the loop over lanes does not branch on it.
macro_rules! with_size {
    ($bytes:expr, $size:ident => $then:expr) => {
        match $bytes {
            2 => {
                const $size: usize = 2;
                $then
            }
            4 => {
                const $size: usize = 4;
                $then
            }
            8 => {
                const $size: usize = 8;
                $then
            }
            #[allow(non_snake_case)]
            $size => $then,
        }
    };
}

pub(super) use with_size;

/// What an access does, for the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessKind {
    Read,
    Write,
    /// An atomic read-modify-write.
    Atomic,
    /// An atomic exchange whose result is not used.
    AtomicWrite,
    /// A strong load (volatile, relaxed, acquire): it may run concurrently with stores.
    StrongRead,
    /// A strong store (volatile, relaxed, release).
    StrongWrite,
}

impl AccessKind {
    pub(super) fn reads(self) -> bool {
        !matches!(self, AccessKind::Write | AccessKind::StrongWrite | AccessKind::AtomicWrite)
    }

    /// What a finding says that the thread does.
    pub(super) fn verb(self) -> &'static str {
        match self {
            AccessKind::Read | AccessKind::StrongRead => "reads",
            AccessKind::Write | AccessKind::StrongWrite => "writes",
            AccessKind::Atomic | AccessKind::AtomicWrite => "atomically updates",
        }
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, AccessKind::Atomic | AccessKind::AtomicWrite)
    }
}

/// The access of some lanes of a warp to one state space.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarpAccess<'a> {
    pub pc: u32,
    pub addresses: &'a [u64; 32],
    /// The lanes that access memory.
    pub mask: u32,
    /// Bytes per lane.
    pub bytes: usize,
    pub kind: AccessKind,
}

impl WarpAccess<'_> {
    /// One lane's part of it.
    #[inline(always)]
    pub(super) fn lane(&self, lane: usize) -> LaneAccess {
        let WarpAccess { pc, addresses, bytes, kind, .. } = *self;
        LaneAccess { pc, lane, address: addresses[lane], bytes, kind }
    }
}

/// The access of one lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneAccess {
    pub pc: u32,
    pub lane: usize,
    pub address: u64,
    pub bytes: usize,
    pub kind: AccessKind,
}

/// A place in shared memory: the block's rank in the cluster, and the offset in its memory.
pub(super) type SharedPlace = (usize, usize);

impl Unit<'_> {
    /// The lanes' addresses.
    pub(super) fn addresses(&self, warp: &Warp, base: Operand, offset: i64) -> [u64; 32] {
        let constants = &self.launched.constants;
        match base.class() {
            Class::Long => {
                warp.registers.long(constants, base).map(|address| address.wrapping_add(offset as u64))
            }
            _ => warp
                .registers
                .word(constants, base)
                .map(|a| u64::from(a).wrapping_add(offset as u64) & 0xffff_ffff),
        }
    }

    /// Resolves generic addresses: calls `each` once per state space, with the lanes that access it and their addresses in it.
    pub(super) fn by_space(
        &mut self,
        warp: &mut Warp,
        memory: Memory,
        addresses: &[u64; 32],
        mask: u32,
        mut each: impl FnMut(&mut Self, &mut Warp, Memory, &[u64; 32], u32),
    ) {
        if memory != Memory::Generic {
            return each(self, warp, memory, addresses, mask);
        }
        let space = |address: u64| match address {
            _ if address.wrapping_sub(SHARED_WINDOW) < WINDOW_BYTES => (Memory::SharedCluster, SHARED_WINDOW),
            _ if address.wrapping_sub(LOCAL_WINDOW) < WINDOW_BYTES => (Memory::Local, LOCAL_WINDOW),
            _ if address.wrapping_sub(PARAMETER_WINDOW) < WINDOW_BYTES => {
                (Memory::Parameter, PARAMETER_WINDOW)
            }
            _ => (Memory::Global, 0),
        };
        let mut rest = mask;
        while rest != 0 {
            let (memory, window) = space(addresses[rest.trailing_zeros() as usize]);
            let group = (0..32).filter(|&lane| rest >> lane & 1 == 1 && space(addresses[lane]).0 == memory);
            let group = group.fold(0u32, |all, lane| all | 1 << lane);
            let inner = addresses.map(|address| address.wrapping_sub(window));
            each(self, warp, memory, &inner, group);
            rest &= !group;
        }
    }

    pub(super) fn load(&mut self, warp: &mut Warp, step: Step<'_>, access: Access) {
        let (results, address) = step.operands.split_at(access.lanes as usize);
        self.forget_undefined(warp, step.pc, step.mask);
        if access.memory == Memory::Parameter && address[0].is_constant() {
            return self.load_argument(warp, step, access, address[0]);
        }
        let addresses = self.addresses(warp, address[0], access.offset);
        let kind = if access.strong { AccessKind::StrongRead } else { AccessKind::Read };
        let bytes = access.kind.bytes() * access.lanes as usize;
        self.by_space(warp, access.memory, &addresses, step.mask, |unit, warp, memory, addresses, mask| {
            let lanes = WarpAccess { pc: step.pc, addresses, mask, bytes, kind };
            match memory {
                Memory::Global | Memory::Constant | Memory::Generic => {
                    if memory != Memory::Constant {
                        unit.counters.global_loads.add_global(addresses, mask, bytes);
                    }
                    unit.load_global(warp, &lanes, access.kind, results);
                    if access.strong {
                        unit.acquire_global(warp, &lanes, access.semantics);
                    }
                }
                Memory::Shared | Memory::SharedCluster => {
                    unit.load_shared(warp, &lanes, access, results);
                }
                Memory::Local => {
                    unit.count_local(warp, step.instruction, &lanes);
                    if !unit.launched.timed {
                        unit.check_local_written(warp, &lanes);
                    }
                    unit.load_each(warp, &lanes, access.kind, results, |unit, warp, lane| {
                        unit.local(warp, lane, None)
                    });
                }
                Memory::Parameter => {
                    unit.load_each(warp, &lanes, access.kind, results, |unit, warp, lane| {
                        unit.argument(warp, lane)
                    });
                }
            }
        });
    }

    fn load_global(&mut self, warp: &mut Warp, access: &WarpAccess<'_>, kind: Type, results: &[Operand]) {
        let bytes = kind.bytes();
        self.global_groups(warp, access, |unit, warp, view, group| {
            let allocation = unit.launched.views[view].allocation;
            for (i, &result) in used(results) {
                let mut values = [0; 32];
                with_size!(bytes.min(8), SIZE => for_lanes(group, |lane| {
                    let offset = (access.addresses[lane] - allocation.base) as usize + i * bytes;
                    values[lane] = allocation.load(offset, SIZE);
                }));
                set_lanes(warp, result, group, kind, &values);
            }
        });
    }

    fn load_shared(
        &mut self,
        warp: &mut Warp,
        access: &WarpAccess<'_>,
        Access { kind, strong, semantics, .. }: Access,
        results: &[Operand],
    ) {
        let bytes = kind.bytes();
        let mut places = [(0, 0); 32];
        let ok = self.shared_places(warp, access, &mut places);
        self.count_shared(access, SharedRequest::Load);
        for (i, &result) in used(results) {
            let mut values = [0; 32];
            with_size!(bytes, SIZE => for_lanes(ok, |lane| {
                let (block, offset) = places[lane];
                values[lane] = self.blocks[block].shared.load(offset + i * bytes, SIZE);
            }));
            set_lanes(warp, result, ok, kind, &values);
        }
        if strong {
            self.acquire_shared(warp, ok, &places, semantics);
        }
    }

    /// Loads from local memory or the kernel's arguments, one lane and element at a time.
    fn load_each(
        &mut self,
        warp: &mut Warp,
        access: &WarpAccess<'_>,
        kind: Type,
        results: &[Operand],
        load: impl Fn(&mut Self, &mut Warp, LaneAccess) -> u64,
    ) {
        let bytes = kind.bytes();
        for_lanes(access.mask, |lane| {
            for (i, &result) in used(results) {
                let address = access.addresses[lane].wrapping_add((i * bytes) as u64);
                let value = load(self, warp, LaneAccess { address, bytes, ..access.lane(lane) });
                set_lane(warp, result, lane, kind, value);
            }
        });
    }

    /// Loads an argument at a constant address, which is the same for all lanes.
    fn load_argument(&mut self, warp: &mut Warp, step: Step<'_>, access: Access, address: Operand) {
        let bytes = access.kind.bytes();
        let first =
            warp.registers.long(&self.launched.constants, address)[0].wrapping_add(access.offset as u64);
        for i in 0..access.lanes as usize {
            let result = step.operands[i];
            if result.is_none() {
                continue;
            }
            let address = first.wrapping_add((i * bytes) as u64);
            let kind = AccessKind::Read;
            let value = self.argument(warp, LaneAccess { pc: step.pc, lane: 0, address, bytes, kind });
            let value = widened(access.kind, value);
            match result.class() {
                Class::Long => warp.registers.set_long(result, &[value; 32], step.mask),
                _ => warp.registers.set_word(result, &[value as u32; 32], step.mask),
            }
        }
    }

    fn argument(&mut self, warp: &Warp, access: LaneAccess) -> u64 {
        let LaneAccess { address, bytes, .. } = access;
        let there = usize::try_from(address)
            .ok()
            .and_then(|at| self.launched.parameters.get(at..at.checked_add(bytes)?));
        match there {
            Some(value) => value.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
            None => {
                let size = self.launched.parameters.len();
                self.report_access(warp, FindingKind::OutOfBounds, access, || {
                    format!("reads {bytes} bytes at offset {address} of the {size}-byte kernel arguments")
                });
                0
            }
        }
    }

    /// Counts an access to local memory, and its cost if time is kept.
    fn count_local(&mut self, warp: &Warp, instruction: &Instruction, access: &WarpAccess<'_>) {
        if instruction.path == Path::CallParameter {
            return;
        }
        let WarpAccess { addresses, mask, bytes, kind, .. } = *access;
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        let counters = &mut self.counters;
        let (traffic, all) = if kind.reads() {
            (&mut counters.local_loads, &mut counters.local_load_bytes)
        } else {
            (&mut counters.local_stores, &mut counters.local_store_bytes)
        };
        traffic.add_local(addresses, mask, bytes);
        *all += asked;
        if self.launched.timed {
            self.time_local(warp, access);
        }
    }

    /// Reads local memory, or writes `value` to it.
    fn local(&mut self, warp: &mut Warp, access: LaneAccess, value: Option<u64>) -> u64 {
        let LaneAccess { lane, address, bytes, .. } = access;
        let size = warp.stack.end(lane);
        if address.checked_add(bytes as u64).is_none_or(|end| end > u64::from(size)) {
            self.report_access(warp, FindingKind::OutOfBounds, access, || {
                format!("accesses {bytes} bytes at offset {address} of the {size}-byte local memory")
            });
            return 0;
        }
        let at = lane * warp.stack.stride + address as usize;
        let place = &mut warp.local[at..at + bytes];
        match value {
            Some(value) => {
                place.copy_from_slice(&value.to_le_bytes()[..bytes]);
                warp.local_written[at..at + bytes].fill(1);
                value
            }
            None => place.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
        }
    }

    pub(super) fn store(&mut self, warp: &mut Warp, step: Step<'_>, access: Access) {
        let (address, values) = step.operands.split_at(1);
        let addresses = self.addresses(warp, address[0], access.offset);
        let kind = if access.strong { AccessKind::StrongWrite } else { AccessKind::Write };
        let bytes = access.kind.bytes() * access.lanes as usize;
        self.changes += 1;
        self.by_space(warp, access.memory, &addresses, step.mask, |unit, warp, memory, addresses, mask| {
            let lanes = WarpAccess { pc: step.pc, addresses, mask, bytes, kind };
            match memory {
                Memory::Global | Memory::Generic | Memory::Constant => {
                    unit.counters.global_stores.add_global(addresses, mask, bytes);
                    unit.store_global(warp, &lanes, access.kind, values);
                    if access.strong {
                        unit.release_global(warp, &lanes, access.semantics);
                    }
                }
                Memory::Shared | Memory::SharedCluster => {
                    unit.store_shared(warp, &lanes, access, values);
                }
                Memory::Local => {
                    unit.count_local(warp, step.instruction, &lanes);
                    unit.store_local(warp, &lanes, access.kind, values);
                }
                Memory::Parameter => {
                    let lane = lanes.lane(mask.trailing_zeros() as usize);
                    unit.report_access(warp, FindingKind::OutOfBounds, lane, || {
                        "writes to the kernel's arguments, which are read-only".to_owned()
                    });
                }
            }
        });
    }

    fn store_global(&mut self, warp: &mut Warp, access: &WarpAccess<'_>, kind: Type, values: &[Operand]) {
        let bytes = kind.bytes();
        self.global_groups(warp, access, |unit, warp, view, group| {
            let allocation = unit.launched.views[view].allocation;
            let base = allocation.base;
            for (i, &value) in values.iter().enumerate() {
                let values = unit.lanes(warp, value);
                with_size!(bytes.min(8), SIZE => for_lanes(group, |lane| {
                    let offset = (access.addresses[lane] - base) as usize + i * bytes;
                    allocation.store(offset, SIZE, values[lane]);
                }));
            }
            for_lanes(group, |lane| {
                allocation.mark_written((access.addresses[lane] - base) as usize, access.bytes)
            });
            if unit.may_copy_undefined(warp, access.pc) {
                for_lanes(group, |lane| {
                    let undefined = unit.copied_undefined(warp, access.pc, lane);
                    let offset = (access.addresses[lane] - base) as usize;
                    for_lanes(undefined, |byte| allocation.mark_unwritten(offset + byte));
                });
            }
        });
    }

    fn store_shared(
        &mut self,
        warp: &mut Warp,
        access: &WarpAccess<'_>,
        Access { kind, strong, semantics, .. }: Access,
        values: &[Operand],
    ) {
        let bytes = kind.bytes();
        let mut places = [(0, 0); 32];
        let ok = self.shared_places(warp, access, &mut places);
        self.count_shared(access, SharedRequest::Store);
        for (i, &value) in values.iter().enumerate() {
            let values = self.lanes(warp, value);
            with_size!(bytes, SIZE => for_lanes(ok, |lane| {
                let (block, offset) = places[lane];
                self.blocks[block].shared.store(offset + i * bytes, SIZE, values[lane]);
            }));
        }
        if strong {
            self.release_shared(warp, ok, &places, semantics);
        }
        if self.may_copy_undefined(warp, access.pc) {
            for_lanes(ok, |lane| {
                let (block, offset) = places[lane];
                let undefined = self.copied_undefined(warp, access.pc, lane);
                for_lanes(undefined, |byte| self.blocks[block].shared.mark_without_value(offset + byte));
            });
        }
        if self.launched.program.instructions[access.pc as usize].watched {
            self.store_without_value(warp, access, bytes, ok, &places);
        }
    }

    fn store_local(&mut self, warp: &mut Warp, access: &WarpAccess<'_>, kind: Type, values: &[Operand]) {
        let bytes = kind.bytes();
        for_lanes(access.mask, |lane| {
            for (i, &value) in values.iter().enumerate() {
                let value = self.lane(warp, value, lane);
                let address = access.addresses[lane].wrapping_add((i * bytes) as u64);
                self.local(warp, LaneAccess { address, bytes, ..access.lane(lane) }, Some(value));
            }
        });
        if self.may_copy_undefined(warp, access.pc) {
            let stride = warp.stack.stride;
            for_lanes(access.mask, |lane| {
                let undefined = self.copied_undefined(warp, access.pc, lane);
                for_lanes(undefined, |byte| {
                    let at = usize::try_from(access.addresses[lane]).ok().and_then(|at| at.checked_add(byte));
                    if let Some(at) = at.filter(|&at| at < warp.stack.end(lane) as usize) {
                        warp.local_written[lane * stride + at] = 0;
                    }
                });
            });
        }
    }

    /// Whether a lane stores what an earlier lane of the same instruction stores to the same place, or, without one, what memory `holds`
    /// there, given an offset and a size.
    pub(super) fn stores_same_value(
        &self,
        warp: &Warp,
        access: &WarpAccess<'_>,
        lane: usize,
        earlier: Option<usize>,
        holds: impl Fn(usize, usize) -> u64,
    ) -> bool {
        let program = self.launched.program;
        let instruction = &program.instructions[access.pc as usize];
        let Op::Store(Access { kind, .. }) = instruction.op else { return false };
        let bytes = kind.bytes().min(8);
        let low = u64::MAX >> (64 - 8 * bytes);
        program.operands_of(instruction)[1..].iter().enumerate().all(|(i, &value)| {
            let mine = self.lane(warp, value, lane) & low;
            let theirs = match earlier {
                Some(earlier) => self.lane(warp, value, earlier),
                None => holds(i * bytes, bytes),
            };
            mine == theirs & low
        })
    }

    /// All lanes of an operand.
    #[inline(always)]
    pub(super) fn lanes(&self, warp: &Warp, operand: Operand) -> [u64; 32] {
        match operand.class() {
            Class::Long => *warp.registers.long(&self.launched.constants, operand),
            _ => {
                lanes!(u64; word in warp.registers.word(&self.launched.constants, operand) => u64::from(word))
            }
        }
    }

    /// One lane of an operand.
    #[inline(always)]
    pub(super) fn lane(&self, warp: &Warp, operand: Operand, lane: usize) -> u64 {
        match operand.class() {
            Class::Long => warp.registers.long(&self.launched.constants, operand)[lane],
            _ => u64::from(warp.registers.word(&self.launched.constants, operand)[lane]),
        }
    }
}

/// The results that are not `_`, with their position in the vector.
fn used(results: &[Operand]) -> impl Iterator<Item = (usize, &Operand)> {
    results.iter().enumerate().filter(|(_, result)| !result.is_none())
}

/// Calls `each` for every lane of a mask.
#[inline(always)]
pub(super) fn for_lanes(mask: u32, mut each: impl FnMut(usize)) {
    // One call site, so that `each` is inlined there.
    let mut rest = mask;
    while rest != 0 {
        each(rest.trailing_zeros() as usize);
        rest &= rest - 1;
    }
}

/// A loaded value, extended to a register.
#[inline(always)]
fn widened(kind: Type, value: u64) -> u64 {
    match kind {
        Type::S8 => i64::from(value as i8) as u64,
        Type::S16 => i64::from(value as i16) as u64,
        Type::S32 => i64::from(value as i32) as u64,
        _ => value,
    }
}

/// Puts loaded values into the lanes of a register.
#[inline(always)]
fn set_lanes(warp: &mut Warp, result: Operand, mask: u32, kind: Type, values: &[u64; 32]) {
    let values = match kind {
        Type::S8 => lanes!(u64; value in values => widened(Type::S8, value)),
        Type::S16 => lanes!(u64; value in values => widened(Type::S16, value)),
        Type::S32 => lanes!(u64; value in values => widened(Type::S32, value)),
        _ => *values,
    };
    match result.class() {
        Class::Long => warp.registers.set_long(result, &values, mask),
        _ => warp.registers.set_word(result, &lanes!(u32; value in values => value as u32), mask),
    }
}

#[inline(always)]
pub(super) fn set_lane(warp: &mut Warp, result: Operand, lane: usize, kind: Type, value: u64) {
    let value = widened(kind, value);
    match result.class() {
        Class::Long => warp.registers.long_mut(result)[lane] = value,
        _ => warp.registers.word_mut(result)[lane] = value as u32,
    }
}

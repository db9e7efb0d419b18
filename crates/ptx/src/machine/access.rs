//! Loads and stores.

use super::{alu::lanes, shared_access::SharedRequest, step::Step, unit::Unit, warp::Warp};
use crate::{
    check::FindingKind,
    isa::{Access, Class, Memory, Operand, Type},
    memory::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW_BYTES},
};

/// Does something with the size of a value as a constant, so that lanes do not choose by it one after the other.
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

/// What an access does to memory, for the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Write,
    /// Reads and writes at once; others may do the same.
    Atomic,
    /// An exchange whose old value nobody takes.
    AtomicWrite,
    /// A read or write that others are expected beside.
    StrongRead,
    StrongWrite,
}

impl Touch {
    pub(super) fn reads(self) -> bool {
        !matches!(self, Touch::Write | Touch::StrongWrite | Touch::AtomicWrite)
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Touch::Atomic | Touch::AtomicWrite)
    }
}

/// A place in shared memory: the block of the cluster and the offset in its memory.
pub(super) type SharedPlace = (usize, usize);

impl Unit<'_> {
    /// The addresses of an access.
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

    /// Which space generic addresses are of, and the addresses in it. Lanes are handed on in groups of one space.
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
        if access.memory == Memory::Parameter && address[0].is_constant() {
            return self.load_argument(warp, step, access, address[0]);
        }
        let addresses = self.addresses(warp, address[0], access.offset);
        let touch = if access.strong { Touch::StrongRead } else { Touch::Read };
        let bytes = access.kind.bytes();
        let total = bytes * access.lanes as usize;
        if access.strong {
            self.hear(warp, step.mask);
        }
        self.by_space(warp, access.memory, &addresses, step.mask, |unit, warp, memory, addresses, mask| {
            match memory {
                Memory::Global | Memory::Constant | Memory::Generic => {
                    unit.blocks[warp.block].acquired |= access.strong;
                    if memory != Memory::Constant {
                        unit.counters.global_loads.add_global(addresses, mask, total);
                    }
                    unit.global_groups(
                        warp,
                        step.pc,
                        addresses,
                        mask,
                        total,
                        touch,
                        |unit, warp, view, group| {
                            let allocation = unit.launched.views[view].allocation;
                            let base = allocation.base;
                            for (i, &result) in
                                results.iter().enumerate().filter(|(_, result)| !result.is_none())
                            {
                                let mut values = [0; 32];
                                with_size!(bytes.min(8), SIZE => for_lanes(group, |lane| {
                                    let offset = (addresses[lane] - base) as usize + i * bytes;
                                    values[lane] = allocation.load(offset, SIZE);
                                }));
                                set_lanes(warp, result, group, access.kind, &values);
                            }
                        },
                    );
                }
                Memory::Shared | Memory::SharedCluster => {
                    let mut places = [(0, 0); 32];
                    let ok = unit.shared_places(warp, step.pc, addresses, mask, total, touch, &mut places);
                    unit.count_shared(addresses, mask, total, SharedRequest::Load);
                    for (i, &result) in results.iter().enumerate().filter(|(_, result)| !result.is_none()) {
                        let mut values = [0; 32];
                        with_size!(bytes, SIZE => for_lanes(ok, |lane| {
                            let (block, offset) = places[lane];
                            values[lane] = unit.blocks[block].shared.load(offset + i * bytes, SIZE);
                        }));
                        set_lanes(warp, result, ok, access.kind, &values);
                    }
                }
                Memory::Local | Memory::Parameter => {
                    if memory == Memory::Local {
                        unit.counters.local_load_bytes += u64::from(mask.count_ones()) * total as u64;
                    }
                    for_lanes(mask, |lane| {
                        for (i, &result) in results.iter().enumerate().filter(|(_, result)| !result.is_none())
                        {
                            let at = addresses[lane].wrapping_add((i * bytes) as u64);
                            let value = if memory == Memory::Local {
                                unit.local(warp, step.pc, lane, at, bytes, None)
                            } else {
                                unit.argument(warp, step.pc, lane, at, bytes)
                            };
                            set_lane(warp, result, lane, access.kind, value);
                        }
                    });
                }
            }
        });
    }

    /// Arguments are the same for all lanes.
    fn load_argument(&mut self, warp: &mut Warp, step: Step<'_>, access: Access, address: Operand) {
        let bytes = access.kind.bytes();
        let first =
            warp.registers.long(&self.launched.constants, address)[0].wrapping_add(access.offset as u64);
        for i in 0..access.lanes as usize {
            let result = step.operands[i];
            if result.is_none() {
                continue;
            }
            let value = self.argument(warp, step.pc, 0, first.wrapping_add((i * bytes) as u64), bytes);
            let value = widened(access.kind, value);
            match result.class() {
                Class::Long => warp.registers.set_long(result, &[value; 32], step.mask),
                _ => warp.registers.set_word(result, &[value as u32; 32], step.mask),
            }
        }
    }

    fn argument(&mut self, warp: &Warp, pc: u32, lane: usize, address: u64, bytes: usize) -> u64 {
        let there = usize::try_from(address)
            .ok()
            .and_then(|at| self.launched.parameters.get(at..at.checked_add(bytes)?));
        match there {
            Some(value) => value.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
            None => {
                let size = self.launched.parameters.len();
                self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(address), || {
                    format!("{bytes} bytes are read at {address} of the arguments, which have {size}")
                });
                0
            }
        }
    }

    /// Reads local memory, or writes it.
    fn local(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        value: Option<u64>,
    ) -> u64 {
        let size = self.launched.program.local_bytes;
        if address.checked_add(bytes as u64).is_none_or(|end| end > size as u64) {
            self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(address), || {
                format!("{bytes} bytes are accessed at {address} of local memory, which has {size}")
            });
            return 0;
        }
        let at = lane * size + address as usize;
        let place = &mut warp.local[at..at + bytes];
        match value {
            Some(value) => {
                place.copy_from_slice(&value.to_le_bytes()[..bytes]);
                value
            }
            None => place.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
        }
    }

    pub(super) fn store(&mut self, warp: &mut Warp, step: Step<'_>, access: Access) {
        let (address, values) = step.operands.split_at(1);
        let addresses = self.addresses(warp, address[0], access.offset);
        let touch = if access.strong { Touch::StrongWrite } else { Touch::Write };
        let bytes = access.kind.bytes();
        let total = bytes * access.lanes as usize;
        if access.strong {
            self.tell(warp);
        }
        self.by_space(warp, access.memory, &addresses, step.mask, |unit, warp, memory, addresses, mask| {
            match memory {
                Memory::Global | Memory::Generic | Memory::Constant => {
                    unit.counters.global_stores.add_global(addresses, mask, total);
                    unit.global_groups(
                        warp,
                        step.pc,
                        addresses,
                        mask,
                        total,
                        touch,
                        |unit, warp, view, group| {
                            let allocation = unit.launched.views[view].allocation;
                            let base = allocation.base;
                            for (i, &value) in values.iter().enumerate() {
                                let values = unit.lanes(warp, value);
                                with_size!(bytes.min(8), SIZE => for_lanes(group, |lane| {
                                    let offset = (addresses[lane] - base) as usize + i * bytes;
                                    allocation.store(offset, SIZE, values[lane]);
                                }));
                            }
                            for_lanes(group, |lane| {
                                allocation.mark_written((addresses[lane] - base) as usize, total)
                            });
                        },
                    );
                }
                Memory::Shared | Memory::SharedCluster => {
                    let mut places = [(0, 0); 32];
                    let ok = unit.shared_places(warp, step.pc, addresses, mask, total, touch, &mut places);
                    unit.count_shared(addresses, mask, total, SharedRequest::Store);
                    for (i, &value) in values.iter().enumerate() {
                        let values = unit.lanes(warp, value);
                        with_size!(bytes, SIZE => for_lanes(ok, |lane| {
                            let (block, offset) = places[lane];
                            unit.blocks[block].shared.store(offset + i * bytes, SIZE, values[lane]);
                        }));
                    }
                }
                Memory::Local => {
                    unit.counters.local_store_bytes += u64::from(mask.count_ones()) * total as u64;
                    for_lanes(mask, |lane| {
                        for (i, &value) in values.iter().enumerate() {
                            let value = unit.lane(warp, value, lane);
                            let at = addresses[lane].wrapping_add((i * bytes) as u64);
                            unit.local(warp, step.pc, lane, at, bytes, Some(value));
                        }
                    });
                }
                Memory::Parameter => {
                    let lane = mask.trailing_zeros();
                    let address = addresses[lane as usize];
                    unit.report(warp, FindingKind::OutOfBounds, step.pc, lane, Some(address), || {
                        "the kernel writes to its arguments".to_owned()
                    });
                }
            }
        });
    }

    /// All lanes of an operand.
    #[inline(always)]
    fn lanes(&self, warp: &Warp, operand: Operand) -> [u64; 32] {
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

/// Calls for every lane of a mask.
#[inline(always)]
pub(super) fn for_lanes(mask: u32, mut each: impl FnMut(usize)) {
    // One place that calls, so that it is written out there.
    let mut rest = mask;
    while rest != 0 {
        each(rest.trailing_zeros() as usize);
        rest &= rest - 1;
    }
}

/// A loaded value as its type has it in a register.
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

//! Atomic operations on global and shared memory.

use super::{
    access::{AccessKind, WarpAccess, for_lanes, set_lane},
    step::{Next, Step},
    unit::Unit,
    warp::Warp,
};
use crate::{
    counters::atomic_passes,
    isa::{Atomic, Memory, Op, Operand, Semantics, Type},
    numeric,
};

impl Unit<'_> {
    pub(super) fn atomic(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        let Op::Atomic { memory, op, kind, offset, reduction, semantics } = step.instruction.op else {
            return Next::On;
        };
        let at = usize::from(!reduction);
        let operands = &step.operands[at..];
        let result = if reduction { Operand::NONE } else { step.operands[0] };
        let addresses = self.addresses(warp, operands[0], offset);
        let bytes = kind.bytes();
        self.counters.atomics += u64::from(step.mask.count_ones());
        let exchange = result.is_none() && op == Atomic::Exchange;
        let access = if exchange { AccessKind::AtomicWrite } else { AccessKind::Atomic };
        let uses = (!result.is_none()).then_some(Semantics { acquire: true, ..semantics });
        let mut changed = false;
        self.by_space(warp, memory, &addresses, step.mask, |unit, warp, memory, addresses, mask| {
            let lanes = WarpAccess { pc: step.pc, addresses, mask, bytes, kind: access };
            let operand = |unit: &Self, warp: &Warp, lane: usize| {
                let other = operands.get(2).map_or(0, |&other| unit.lane(warp, other, lane));
                (unit.lane(warp, operands[1], lane), other)
            };
            if matches!(memory, Memory::Shared | Memory::SharedCluster) {
                let lane = mask.trailing_zeros() as usize % 32;
                let counts = op == Atomic::Add
                    && matches!(kind, Type::U32 | Type::S32)
                    && operands[1].is_constant()
                    && operand(unit, warp, lane).0 as u32 == 1;
                unit.count_shared_atomics(&lanes, counts);
                let mut places = [(0, 0); 32];
                let ok = unit.shared_places(warp, &lanes, &mut places);
                for_lanes(ok, |lane| {
                    let (block, offset) = places[lane];
                    let (value, other) = operand(unit, warp, lane);
                    let old = unit.blocks[block].shared.load(offset, bytes);
                    let new = combine(op, kind, old, value, other);
                    changed |= new != old;
                    unit.blocks[block].shared.store(offset, bytes, new);
                    if !result.is_none() {
                        set_lane(warp, result, lane, kind, old);
                    }
                });
                if let Some(semantics) = uses {
                    unit.acquire_shared(warp, ok, &places, semantics);
                }
                unit.release_shared(warp, ok, &places, semantics);
                return;
            }
            unit.counters.global_atomics.add_global(addresses, mask, bytes);
            unit.counters.global_atomic_passes += atomic_passes(addresses, mask);
            unit.global_groups(warp, &lanes, |unit, warp, view, group| {
                let allocation = unit.launched.views[view].allocation;
                for_lanes(group, |lane| {
                    let offset = (addresses[lane] - allocation.base) as usize;
                    let (value, other) = operand(unit, warp, lane);
                    let old = allocation.update(offset, bytes, |old| combine(op, kind, old, value, other));
                    changed |= combine(op, kind, old, value, other) != old;
                    allocation.mark_written(offset, bytes);
                    if !result.is_none() {
                        set_lane(warp, result, lane, kind, old);
                    }
                });
            });
            if let Some(semantics) = uses {
                unit.acquire_global(warp, &lanes, semantics);
            }
            unit.release_global(warp, &lanes, semantics);
        });
        self.changes += u64::from(changed);
        // One that changes nothing polls: it waits for a thread that changes the word.
        if changed || result.is_none() { Next::On } else { self.polled(warp, step, offset) }
    }
}

/// The value that an atomic leaves in memory.
pub(super) fn combine(op: Atomic, kind: Type, old: u64, value: u64, other: u64) -> u64 {
    let (single, double) = (|x: u64| f32::from_bits(x as u32), f64::from_bits);
    let pair = |f: &dyn Fn(u32, u32) -> u32| {
        let (a, b) = (old as u32, value as u32);
        u64::from(f(a & 0xffff, b & 0xffff) | f(a >> 16, b >> 16) << 16)
    };
    let f16 = |a, b| numeric::f16_bits(numeric::from_f16(a) + numeric::from_f16(b));
    let bf16 = |a, b| numeric::bf16_bits(numeric::from_bf16(a) + numeric::from_bf16(b));
    match (op, kind) {
        (Atomic::Add, Type::F32) => u64::from((single(old) + single(value)).to_bits()),
        (Atomic::Add, Type::F64) => (double(old) + double(value)).to_bits(),
        (Atomic::Add, Type::F16x2) => pair(&f16),
        (Atomic::Add, Type::Bf16x2) => pair(&bf16),
        (Atomic::Add, Type::F16) => u64::from(f16(old as u32 & 0xffff, value as u32 & 0xffff)),
        (Atomic::Add, Type::Bf16) => u64::from(bf16(old as u32 & 0xffff, value as u32 & 0xffff)),
        (Atomic::Add, _) => old.wrapping_add(value),
        (Atomic::Min, Type::S32) => (old as i32).min(value as i32) as u32 as u64,
        (Atomic::Max, Type::S32) => (old as i32).max(value as i32) as u32 as u64,
        (Atomic::Min, Type::S64) => (old as i64).min(value as i64) as u64,
        (Atomic::Max, Type::S64) => (old as i64).max(value as i64) as u64,
        (Atomic::Min, _) => old.min(value),
        (Atomic::Max, _) => old.max(value),
        (Atomic::And, _) => old & value,
        (Atomic::Or, _) => old | value,
        (Atomic::Xor, _) => old ^ value,
        (Atomic::Exchange, _) => value,
        (Atomic::CompareAndSwap, _) => {
            if old == value {
                other
            } else {
                old
            }
        }
        (Atomic::Increment, _) => {
            if old >= value {
                0
            } else {
                old + 1
            }
        }
        (Atomic::Decrement, _) => {
            if old == 0 || old > value {
                value
            } else {
                old - 1
            }
        }
    }
}

//! Atomic operations on global and shared memory.

use super::{
    access::{AccessKind, WarpAccess, for_lanes, set_lane},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::join,
    counters::atomic_passes,
    isa::{Atomic, Memory, Op, Operand, Type},
    numeric,
};

impl Unit<'_> {
    pub(super) fn atomic(&mut self, warp: &mut Warp, step: Step<'_>) {
        let Op::Atomic { memory, op, kind, offset, reduction } = step.instruction.op else { return };
        let at = usize::from(!reduction);
        let operands = &step.operands[at..];
        let result = if reduction { Operand::NONE } else { step.operands[0] };
        let addresses = self.addresses(warp, operands[0], offset);
        let bytes = kind.bytes();
        self.counters.atomics += u64::from(step.mask.count_ones());
        let exchange = result.is_none() && op == Atomic::Exchange;
        let access = if exchange { AccessKind::AtomicWrite } else { AccessKind::Atomic };
        self.by_space(warp, memory, &addresses, step.mask, |unit, warp, memory, addresses, mask| {
            let lanes = WarpAccess { pc: step.pc, addresses, mask, bytes, kind: access };
            let operand = |unit: &Self, warp: &Warp, lane: usize| {
                let other = operands.get(2).map_or(0, |&other| unit.lane(warp, other, lane));
                (unit.lane(warp, operands[1], lane), other)
            };
            if matches!(memory, Memory::Shared | Memory::SharedCluster) {
                unit.count_shared_atomics(&lanes);
                let mut places = [(0, 0); 32];
                let ok = unit.shared_places(warp, &lanes, &mut places);
                for_lanes(ok, |lane| {
                    let (block, offset) = places[lane];
                    let (value, other) = operand(unit, warp, lane);
                    let old = unit.blocks[block].shared.load(offset, bytes);
                    unit.blocks[block].shared.store(offset, bytes, combine(op, kind, old, value, other));
                    if !result.is_none() {
                        set_lane(warp, result, lane, kind, old);
                    }
                });
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
                    allocation.mark_written(offset, bytes);
                    if !result.is_none() {
                        set_lane(warp, result, lane, kind, old);
                    }
                });
            });
            unit.blocks[warp.block].acquired |= !result.is_none();
        });
        if !result.is_none() {
            self.atomic_acquire(warp, step.mask);
        }
        self.atomic_release(warp);
    }

    /// A warp executes an atomic or a strong store, which releases everything that it did before.
    ///
    /// Locks, tickets and flags order what they protect, together with fences that may be anywhere in between. Which of them
    /// protects what is not known here, so every one counts as a release of everything: what it may order is not reported.
    pub(super) fn atomic_release(&mut self, warp: &Warp) {
        if self.launched.races {
            let row = self.clocks.release(warp.id);
            join(&mut self.atomic_published, &row);
        }
    }

    /// A warp uses the result of an atomic or executes a strong load, which acquires everything that was released.
    pub(super) fn atomic_acquire(&mut self, warp: &mut Warp, mask: u32) {
        if self.launched.races {
            self.clocks.acquire(warp.id, &self.atomic_published);
            // Diverged lanes may hold a lock one after the other; lanes that execute together may not.
            if mask != warp.splits.live {
                self.clocks.advance();
                warp.last_sync = self.clocks.now();
            }
            self.update_floor(warp);
        }
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

//! Conversions between generic addresses and those of a state space.

use super::{
    access::{for_lanes, set_lane},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    isa::{Memory, Type},
    memory::{CLUSTER_SHIFT, LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW_BYTES},
};

impl Unit<'_> {
    pub(super) fn make_generic(&mut self, warp: &mut Warp, step: Step<'_>, memory: Memory) {
        self.map_addresses(warp, step, |address| address.wrapping_add(window(memory)));
    }

    pub(super) fn make_specific(&mut self, warp: &mut Warp, step: Step<'_>, memory: Memory) {
        self.map_addresses(warp, step, |address| address.wrapping_sub(window(memory)));
    }

    fn map_addresses(&mut self, warp: &mut Warp, step: Step<'_>, map: impl Fn(u64) -> u64) {
        let out = warp.registers.long(&self.launched.constants, step.operands[1]).map(map);
        warp.registers.set_long(step.operands[0], &out, step.mask);
    }

    pub(super) fn is_space(&mut self, warp: &mut Warp, step: Step<'_>, memory: Memory) {
        let addresses = warp.registers.long(&self.launched.constants, step.operands[1]);
        let within = |address: u64, memory| address.wrapping_sub(window(memory)) < WINDOW_BYTES;
        let holds = |&address: &u64| match memory {
            Memory::Global => ![Memory::Shared, Memory::Local, Memory::Parameter]
                .iter()
                .any(|&other| within(address, other)),
            Memory::Constant => false,
            _ => within(address, memory),
        };
        let mask = addresses
            .iter()
            .enumerate()
            .fold(0, |all, (lane, address)| all | u32::from(holds(address)) << lane);
        warp.registers.set_predicate(step.operands[0], mask, step.mask);
    }

    /// The same offset in the shared memory of another block.
    pub(super) fn map_shared(&mut self, warp: &mut Warp, step: Step<'_>, generic: bool) {
        let window = if generic { SHARED_WINDOW } else { 0 };
        let ranks = *warp.registers.word(&self.launched.constants, step.operands[2]);
        let d = step.operands[0];
        for_lanes(step.mask, |lane| {
            let own =
                self.lane(warp, step.operands[1], lane).wrapping_sub(window) & ((1 << CLUSTER_SHIFT) - 1);
            let mapped = (u64::from(ranks[lane]) + 1) << CLUSTER_SHIFT | own;
            set_lane(warp, d, lane, Type::B64, mapped.wrapping_add(window));
        });
    }

    pub(super) fn cluster_rank_of(&mut self, warp: &mut Warp, step: Step<'_>, generic: bool) {
        let window = if generic { SHARED_WINDOW } else { 0 };
        for_lanes(step.mask, |lane| {
            let rank = self.lane(warp, step.operands[1], lane).wrapping_sub(window) >> CLUSTER_SHIFT;
            let rank = if rank == 0 { warp.block as u64 } else { rank - 1 };
            set_lane(warp, step.operands[0], lane, Type::B32, rank);
        });
    }
}

/// Where a state space starts in the generic address space.
fn window(memory: Memory) -> u64 {
    match memory {
        Memory::Shared | Memory::SharedCluster => SHARED_WINDOW,
        Memory::Local => LOCAL_WINDOW,
        Memory::Parameter => PARAMETER_WINDOW,
        Memory::Global | Memory::Constant | Memory::Generic => 0,
    }
}

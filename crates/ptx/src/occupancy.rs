//! Occupancy: how many blocks of a kernel a multiprocessor holds at a time, and what limits that.

use serde::Serialize;

use crate::chip::ChipSpec;

/// The allocation granularity of a warp's registers.
const REGISTER_GRANULE: u32 = 256;

/// The allocation granularity of a block's warps: one per scheduler.
const WARP_GRANULE: u32 = 4;

/// What a block needs of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BlockResources {
    /// Threads.
    pub threads: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: usize,
}

/// What keeps a multiprocessor from holding one more block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OccupancyLimit {
    /// Warp slots.
    Warps,
    /// Block slots.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
}

/// How full a multiprocessor is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Occupancy {
    /// Blocks that it holds at a time; 0 if it cannot hold even one.
    pub blocks: u32,
    /// The warps of these blocks.
    pub warps: u32,
    /// The share of warp slots that are used.
    pub share: f64,
    /// What limits it.
    pub limit: OccupancyLimit,
}

impl ChipSpec {
    /// How many blocks a multiprocessor would hold if only its slots for warps limited them.
    pub fn full_occupancy(&self, block: &BlockResources) -> Occupancy {
        let warps = block.threads.max(1).div_ceil(32);
        let blocks = self.limits.warps / warps;
        let share = f64::from(blocks * warps) / f64::from(self.limits.warps.max(1));
        Occupancy { blocks, warps: blocks * warps, share, limit: OccupancyLimit::Warps }
    }

    /// How many blocks a multiprocessor holds.
    pub fn occupancy(&self, block: &BlockResources) -> Occupancy {
        let limits = &self.limits;
        let warps = block.threads.max(1).div_ceil(32);
        let by_registers = if block.registers == 0 {
            u32::MAX
        } else {
            let per_warp = (block.registers * 32).next_multiple_of(REGISTER_GRANULE);
            let warps_that_fit = limits.registers / per_warp / WARP_GRANULE * WARP_GRANULE;
            warps_that_fit / warps
        };
        let shared = block.shared_bytes.next_multiple_of(limits.shared_granule)
            + limits.reserved_shared_bytes.next_multiple_of(limits.shared_granule);
        let by_shared = limits.shared_bytes.checked_div(shared).map_or(u32::MAX, |blocks| blocks as u32);
        let candidates = [
            (limits.warps / warps, OccupancyLimit::Warps),
            (by_registers, OccupancyLimit::Registers),
            (by_shared, OccupancyLimit::Shared),
            (limits.blocks, OccupancyLimit::Blocks),
        ];
        let (blocks, limit) =
            candidates.into_iter().min_by_key(|candidate| candidate.0).unwrap_or((0, OccupancyLimit::Blocks));
        let share = f64::from(blocks * warps) / f64::from(limits.warps.max(1));
        Occupancy { blocks, warps: blocks * warps, share, limit }
    }
}

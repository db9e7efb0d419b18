//! How many blocks of a kernel a multiprocessor holds at a time, and what keeps it from holding more.

use serde::Serialize;

use crate::chip::ChipSpec;

/// Registers are given to a warp in multiples of this.
const REGISTER_GRANULE: u32 = 256;

/// Warps of a block are given registers in multiples of this: one for each scheduler.
const WARP_GRANULE: u32 = 4;

/// What a block takes of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BlockResources {
    /// Its threads.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: usize,
}

/// What keeps a multiprocessor from holding one more block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OccupancyLimit {
    /// Its places for warps are taken.
    Warps,
    /// Its places for blocks are taken.
    Blocks,
    /// Its registers are given out.
    Registers,
    /// Its shared memory is.
    Shared,
}

/// How full a multiprocessor is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Occupancy {
    /// Blocks that it holds at a time; 0 where it cannot hold one.
    pub blocks: u32,
    /// Warps of them.
    pub warps: u32,
    /// The share of its places for warps that are taken.
    pub share: f64,
    /// Why it holds no more.
    pub limit: OccupancyLimit,
}

impl ChipSpec {
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

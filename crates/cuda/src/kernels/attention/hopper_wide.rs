//! FlashAttention on Hopper for wide heads: two warpgroups share the channels of the sums.

use std::sync::Arc;

use super::{
    hopper::{can_map, tensor_map},
    problem::Problem,
};
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, Source, names::type_name},
    launch::arguments,
};

const SOURCE: Source = Source { path: "attention/hopper_wide.cu", text: include_str!("hopper_wide.cu") };

/// The heads whose halves fit a warpgroup's registers and that do not fit whole.
const HEADS: std::ops::RangeInclusive<usize> = 257..=512;
/// Queries of a block, and keys at a time.
const TILE: usize = 64;
/// Slots for halves of tiles: two halves of keys and two of values at least, and more than two tiles would wait for nothing.
const STAGES: std::ops::RangeInclusive<usize> = 4..=8;

/// An attention, and how its work is cut.
#[derive(Clone, Debug)]
pub(super) struct HopperWide {
    problem: Arc<Problem>,
    /// Slots for halves of tiles of keys and values.
    stages: usize,
    /// Blocks that load keys and values for each other.
    cluster: usize,
}

impl HopperWide {
    /// The cut for a problem, if there is one. A single tile of keys leaves the second warpgroup nothing to make.
    pub(super) fn offered(problem: &Arc<Problem>, chip: &Chip) -> Option<HopperWide> {
        let (head_dim, extents) = (problem.op.head_dim, &problem.extents);
        if !can_map(problem, chip) || !HEADS.contains(&head_dim) || extents.keys <= TILE {
            return None;
        }
        let stages =
            STAGES.rev().find(|&stages| shared_bytes(head_dim, stages) <= chip.shared_bytes as usize)?;
        let cluster = if extents.queries > TILE { 2 } else { 1 };
        Some(HopperWide { problem: problem.clone(), stages, cluster })
    }
}

/// Shared memory of a block: queries, slots, two tiles of weights, two numbers of each row by both warpgroups, and mbarriers.
fn shared_bytes(head_dim: usize, stages: usize) -> usize {
    let half = head_dim.div_ceil(128) * 128;
    half * (2 * TILE + stages * TILE) + 2 * (TILE * TILE * 2 + TILE * 2 * 4) + 8 * (2 * stages + 1)
}

// SAFETY: the arguments are those of `hopper_wide`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for HopperWide {
    fn name(&self) -> String {
        format!("hopper wide {TILE}x{TILE}")
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        let mut kernel = problem
            .specialised(Kernel::new(SOURCE, "hopper_wide"))
            .with("ELEMENT", type_name(problem.dtype(0)))
            .with("CLUSTER", self.cluster)
            .with("STAGES", self.stages);
        kernel.hot = true;
        let tiles = problem.extents.queries.div_ceil(TILE * self.cluster) * self.cluster;
        let grid = problem.grid(problem.sequences().saturating_mul(tiles))?;
        // Each block of a cluster loads its share of a tile's rows.
        let share = TILE / self.cluster;
        let arguments = arguments![
            tensor_map(problem, places, 0, TILE),
            tensor_map(problem, places, 1, share),
            tensor_map(problem, places, 2, share),
            places.outputs[0],
            problem.argument()?,
        ];
        let mut launch = Launch::new(kernel, grid, 3 * 128, arguments);
        launch.shared_bytes = shared_bytes(problem.op.head_dim, self.stages) as u32;
        launch.cluster = self.cluster as u32;
        Ok(vec![launch])
    }
}

//! Attention over few frames: a warp for each position and head.

use std::sync::Arc;

use super::problem::Problem;
use crate::{
    Architecture, Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, Source, names::type_name},
};
use kinora_graph::DType;

const SOURCE: Source = Source { path: "attention/temporal.cu", text: include_str!("temporal.cu") };

/// Warps of a block.
const WARPS: u32 = 4;

/// An attention, and how its work is cut.
#[derive(Clone, Debug)]
pub(super) struct Temporal {
    problem: Arc<Problem>,
    /// Tiles of 16 queries.
    query_tiles: usize,
    /// Tiles of 16 keys.
    key_tiles: usize,
}

impl Temporal {
    /// The way to run a problem whose sequences fit the registers of a warp.
    pub(super) fn offered(problem: &Arc<Problem>, chip: &Chip) -> Option<Temporal> {
        let query_tiles = problem.extents.queries.div_ceil(16).max(1);
        let key_tiles = problem.extents.keys.div_ceil(16).max(1);
        // Turing has no matrix instructions for bf16.
        let typed = problem.dtype(0) == DType::F16 || chip.architecture >= Architecture::AMPERE;
        // A thread holds half a word of each tile for every channel, and of keys, values and queries.
        let registers = (query_tiles + 2 * key_tiles) * problem.op.head_dim.next_multiple_of(64) / 4;
        let fits = query_tiles <= 2 && key_tiles <= 2 && registers <= 128;
        (problem.is_half() && problem.is_wide() && problem.scale_can_wait() && typed && fits)
            .then(|| Temporal { problem: problem.clone(), query_tiles, key_tiles })
    }
}

// SAFETY: the arguments are those of `temporal`, which stays within the tensors whose extents the problem gives.
unsafe impl Implementation for Temporal {
    fn name(&self) -> String {
        "temporal".into()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        let mut kernel = problem
            .specialised(Kernel::new(SOURCE, "temporal"))
            .with("ELEMENT", type_name(problem.dtype(0)))
            .with("QUERY_TILES", self.query_tiles)
            .with("KEY_TILES", self.key_tiles)
            .with("WARPS", WARPS);
        kernel.hot = problem.shows_every_key();
        // The kernel counts warps in 32 bits.
        problem.grid(problem.sequences())?;
        let grid = problem.grid(problem.sequences().div_ceil(WARPS as usize))?;
        Ok(vec![Launch::new(kernel, grid, 32 * WARPS, problem.arguments(places)?)])
    }
}

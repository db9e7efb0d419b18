//! FlashAttention on the tensor cores of every generation.

use std::sync::Arc;

use super::problem::Problem;
use crate::{
    Architecture, Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, Source, names::type_name},
};
use kinora_graph::DType;

const SOURCE: Source = Source { path: "attention/flash.cu", text: include_str!("flash.cu") };

/// The widest head. A wider one leaves no room for its keys beside its queries in shared memory.
const WIDEST: usize = 512;
/// The same for f32, whose parts leave no registers for the sums of a wider one.
const WIDEST_IN_PARTS: usize = 160;
/// The most channels of the values that a warp sums: 128 registers of each thread.
const WIDEST_SLICE: usize = 256;

/// An attention, and how its work is cut.
#[derive(Clone, Debug)]
pub(super) struct Flash {
    problem: Arc<Problem>,
    /// Queries of a block.
    query_tile: usize,
    /// Queries of a warp.
    warp_rows: usize,
    /// Keys at a time.
    key_tile: usize,
    /// Buffers for them.
    stages: usize,
    /// Channels of the values that a block sums.
    slice: usize,
}

impl Flash {
    /// Every cut that fits the chip, the one for this problem first.
    pub(super) fn offered(problem: &Arc<Problem>, chip: &Chip) -> Vec<Flash> {
        let turing = chip.architecture < Architecture::AMPERE;
        let depth = problem.op.head_dim.next_multiple_of(16);
        // Turing has matrix instructions for f16 alone.
        let typed = !turing || problem.dtype(0) == DType::F16;
        let in_parts = !problem.is_half();
        let widest = if in_parts { WIDEST_IN_PARTS } else { WIDEST };
        if !problem.is_wide() || !problem.scale_can_wait() || !typed || depth > widest {
            return Vec::new();
        }
        let slice = depth.div_ceil(depth.div_ceil(WIDEST_SLICE)).next_multiple_of(16);
        // A copy on Turing is over before the next instruction: a second buffer would hold it for nothing. Its products of
        // half the depth need more registers, too, and leave none for the scores of many keys beside wide sums.
        // Nor do two parts of each weight.
        let buffers: &[(usize, usize)] = match (turing, slice) {
            (true, 193..) => &[(16, 1)],
            (true, _) => &[(64, 1), (32, 1), (16, 1)],
            (false, ..=80) if in_parts => &[(32, 2), (32, 1), (16, 1)],
            (false, _) if in_parts => &[(16, 2), (16, 1)],
            (false, _) => &[(64, 2), (32, 2), (32, 1), (16, 1)],
        };
        // Warps of 32 rows read each key for twice the products, if their sums fit the registers; masks take some too.
        let large = if depth <= 64 && problem.shows_every_key() { (128, 32) } else { (128, 16) };
        let cuts = [large, (64, 16), (32, 16)].into_iter().filter_map(|(query_tile, warp_rows)| {
            buffers
                .iter()
                .map(|&(key_tile, stages)| Flash {
                    problem: problem.clone(),
                    query_tile,
                    warp_rows,
                    key_tile,
                    stages,
                    slice,
                })
                .find(|cut| cut.shared_bytes() <= chip.shared_bytes as usize)
        });
        let mut cuts: Vec<Flash> = cuts.collect();
        // The largest tile that gives every multiprocessor a block, and two of the largest.
        let room = chip.multiprocessors as usize;
        let wanted = |cut: &Flash| cut.blocks() >= if cut.query_tile == 128 { 2 * room } else { room };
        let first = cuts.iter().position(wanted).unwrap_or(cuts.len().saturating_sub(1));
        if let Some(before) = cuts.get_mut(..=first) {
            before.rotate_right(1);
        }
        cuts
    }

    /// Shared memory of a block: rows are padded by 16 bytes, against conflicts of banks.
    fn shared_bytes(&self) -> usize {
        let size = self.problem.dtype(0).size();
        let row = self.depth() + 16 / size;
        let stage = self.key_tile * (row + self.slice + 16 / size);
        size * (self.query_tile * row + self.stages * stage)
    }

    /// Channels of a head in shared memory.
    fn depth(&self) -> usize {
        self.problem.op.head_dim.next_multiple_of(16)
    }

    fn blocks(&self) -> usize {
        let (queries, slices) = (self.problem.extents.queries, self.depth().div_ceil(self.slice));
        self.problem.sequences().saturating_mul(queries.div_ceil(self.query_tile) * slices)
    }
}

// SAFETY: the arguments are those of `flash`, which stays within the tensors whose extents the problem gives.
unsafe impl Implementation for Flash {
    fn name(&self) -> String {
        format!("flash {}x{}", self.query_tile, self.key_tile)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        let mut kernel = problem
            .specialised(Kernel::new(SOURCE, "flash"))
            .with("ELEMENT", type_name(problem.dtype(0)))
            .with("QUERY_TILE", self.query_tile)
            .with("WARP_ROWS", self.warp_rows)
            .with("KEY_TILE", self.key_tile)
            .with("STAGES", self.stages)
            .with("VALUE_SLICE", self.slice);
        kernel.hot = problem.shows_every_key();
        let threads = 32 * self.query_tile / self.warp_rows;
        let grid = problem.grid(self.blocks())?;
        let mut launch = Launch::new(kernel, grid, threads as u32, problem.arguments(places)?);
        launch.shared_bytes = self.shared_bytes() as u32;
        Ok(vec![launch])
    }
}

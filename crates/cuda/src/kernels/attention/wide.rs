//! Attention in f32 for wide heads, whose warps share the scores.

use std::sync::Arc;

use super::problem::Problem;
use crate::{
    Architecture, Chip, CudaError,
    kernels::{DevicePointer, Implementation, Kernel, Launch, Places, Source},
};
use kinora_graph::DType;

const SOURCE: Source = Source { path: "attention/wide.cu", text: include_str!("wide.cu") };
const SOURCE_MERGE: Source = Source { path: "attention/merge.cu", text: include_str!("merge.cu") };

/// Heads of this size and less leave a warp few channels of the values. Their sums fit the registers of a warp that has queries
/// of its own.
const NARROW: usize = 160;
/// The widest head. A wider one leaves no room for sums in registers.
const WIDEST: usize = 512;
/// Warps of a block, and keys at a time.
const WARPS: usize = 8;
const KEY_TILE: usize = 64;
/// The most parts of the keys, and the fewest tiles that are worth a part.
const MOST_SPLITS: usize = 6;
const LEAST_TILES: usize = 8;

/// An attention, and how its work is cut.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    problem: Arc<Problem>,
    /// Queries of a block.
    query_tile: usize,
    /// Channels of the keys in a chunk.
    key_depth: usize,
    /// Channels of the values that a block sums.
    slice: usize,
    /// Slots for chunks.
    stages: usize,
    /// Parts of the keys, each a block's.
    splits: usize,
}

impl Wide {
    /// Every cut that fits the chip, the one for this problem first.
    pub(super) fn offered(problem: &Arc<Problem>, chip: &Chip) -> Vec<Wide> {
        let head = problem.op.head_dim;
        let typed = problem.dtype(0) == DType::F32 && chip.architecture >= Architecture::AMPERE;
        if !typed || !problem.is_wide() || !problem.scale_can_wait() || !(NARROW + 1..=WIDEST).contains(&head)
        {
            return Vec::new();
        }
        // Each warp sums a multiple of 16 channels.
        let whole = head.next_multiple_of(16 * WARPS);
        let half = (whole / 2).next_multiple_of(16 * WARPS);
        let rings =
            [(whole, 64, 4), (whole, 64, 3), (whole, 64, 2), (whole, 32, 2), (half, 32, 3), (half, 32, 2)];
        let mut cuts: Vec<Wide> = [64, 32]
            .into_iter()
            .filter_map(|query_tile| {
                rings
                    .iter()
                    .map(|&(slice, key_depth, stages)| Wide {
                        problem: problem.clone(),
                        query_tile,
                        key_depth,
                        slice,
                        stages,
                        splits: 1,
                    })
                    .find(|cut| cut.shared_bytes() <= chip.shared_bytes as usize)
            })
            .collect();
        let tiles = problem.extents.keys.div_ceil(KEY_TILE);
        let split: Vec<Wide> = cuts
            .iter()
            .filter_map(|whole| {
                (2..=MOST_SPLITS.min(tiles / LEAST_TILES))
                    .map(|splits| Wide { splits, ..whole.clone() })
                    .min_by(|left, right| left.expected_time(chip).total_cmp(&right.expected_time(chip)))
            })
            .collect();
        cuts.extend(split);
        cuts.sort_by(|left, right| left.expected_time(chip).total_cmp(&right.expected_time(chip)));
        cuts
    }

    /// A rough estimate in tiles of keys: whole waves of blocks, each with its start and end. Fewer queries share the reads of keys
    /// and values. A part's sums are written and read again.
    fn expected_time(&self, chip: &Chip) -> f64 {
        let waves = self.blocks().div_ceil(chip.multiprocessors as usize);
        let tiles = self.problem.extents.keys.div_ceil(KEY_TILE).div_ceil(self.splits) + 1;
        let tile = if self.query_tile == 64 { 1.0 } else { 0.6 };
        let merging = if self.splits > 1 { self.workspace() as f64 / 5e6 + 1.0 } else { 0.0 };
        (waves * tiles) as f64 * tile + merging
    }

    /// Shared memory of a block: the queries, the scores and a factor for each query, and the ring. Rows are padded, against
    /// conflicts of banks.
    fn shared_bytes(&self) -> usize {
        let depth = self.problem.op.head_dim.next_multiple_of(8);
        let queries = self.query_tile * (depth + 4 + KEY_TILE + 4 + 1);
        let slot = (KEY_TILE * (self.key_depth + 4)).max(8 * (self.slice + 8));
        4 * (queries + self.stages * slot)
    }

    fn blocks(&self) -> usize {
        let (queries, slices) = (self.problem.extents.queries, self.problem.op.head_dim.div_ceil(self.slice));
        self.problem.sequences().saturating_mul(queries.div_ceil(self.query_tile) * slices * self.splits)
    }
}

// SAFETY: the arguments are those of `wide` and `merge`, which stay within the tensors whose extents the problem gives; the
// workspace holds the sums of all parts, then two numbers for each query and part.
unsafe impl Implementation for Wide {
    fn name(&self) -> String {
        match self.splits {
            1 => format!("wide {}x{KEY_TILE}", self.query_tile),
            splits => format!("wide {}x{KEY_TILE} split {splits}", self.query_tile),
        }
    }

    fn workspace(&self) -> usize {
        let rows = self.problem.sequences().saturating_mul(self.problem.extents.queries);
        let row = if self.splits > 1 { self.splits * (self.problem.op.head_dim + 2) * 4 } else { 0 };
        rows.saturating_mul(row)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        let split = self.splits > 1;
        let mut arguments = problem.arguments(places)?;
        let partial = if split { places.workspace } else { DevicePointer::NULL };
        arguments.insert(arguments.len() - 1, partial.into());
        let specialised = |kernel: Kernel| {
            let mut kernel = problem.specialised(kernel).with("SPLITS", self.splits);
            kernel.hot = problem.shows_every_key();
            kernel
        };
        let kernel = specialised(Kernel::new(SOURCE, "wide"))
            .with("QUERY_TILE", self.query_tile)
            .with("KEY_TILE", KEY_TILE)
            .with("KEY_DEPTH", self.key_depth)
            .with("VALUE_SLICE", self.slice)
            .with("STAGES", self.stages);
        let blocks = problem.grid(self.blocks())?;
        let mut launch = Launch::new(kernel, blocks, 32 * WARPS as u32, arguments.clone());
        launch.shared_bytes = self.shared_bytes() as u32;
        if !split {
            return Ok(vec![launch]);
        }
        let kernel = specialised(Kernel::new(SOURCE_MERGE, "merge")).with("WARPS", WARPS);
        let rows = problem.sequences().saturating_mul(problem.extents.queries);
        let blocks = problem.grid(rows.div_ceil(WARPS))?;
        Ok(vec![launch, Launch::new(kernel, blocks, 32 * WARPS as u32, arguments)])
    }
}

//! FlashAttention with Hopper's wgmma and TMA, warp-specialised, without masks.

use std::sync::Arc;

use super::problem::Problem;
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, Source, TensorMap, names::type_name},
    launch::arguments,
};
use kinora_graph::op::{Mask, SequenceAxis};

const SOURCE: Source = Source { path: "attention/hopper.cu", text: include_str!("hopper.cu") };

/// The widest head whose sums fit a warpgroup's registers.
const WIDEST: usize = 256;
/// The most buffers for keys and values: more would wait for nothing.
const MOST_STAGES: usize = 4;

/// An attention, and how its work is cut.
#[derive(Clone, Debug)]
pub(super) struct Hopper {
    problem: Arc<Problem>,
    /// Warpgroups of 64 queries.
    warpgroups: usize,
    /// Keys at a time.
    key_tile: usize,
    /// Buffers for them.
    stages: usize,
    /// Whether warpgroups start their products in turns.
    turns: bool,
}

impl Hopper {
    /// Every cut for a problem, the one to choose first.
    pub(super) fn offered(problem: &Arc<Problem>, chip: &Chip) -> Vec<Hopper> {
        let head_dim = problem.op.head_dim;
        if !can_map(problem, chip) || head_dim > WIDEST {
            return Vec::new();
        }
        // What a thread holds: half a channel's sums, and half a key's score and a quarter's weight.
        let cuts: &[(usize, usize)] = match head_dim {
            ..=64 => &[(3, 128), (2, 128), (2, 192)],
            65..=128 => &[(2, 128), (3, 64)],
            129..=192 => &[(2, 96)],
            _ => &[(2, 64)],
        };
        let cut = |&(warpgroups, key_tile): &(usize, usize)| {
            let stages = (2..=MOST_STAGES).rev().find(|&stages| {
                shared_bytes(head_dim, warpgroups, key_tile, stages) <= chip.shared_bytes as usize
            })?;
            Some([true, false].map(|turns| Hopper {
                problem: problem.clone(),
                warpgroups,
                key_tile,
                stages,
                turns,
            }))
        };
        let mut cuts: Vec<Hopper> = cuts.iter().filter_map(cut).flatten().collect();
        // By whole waves of tiles, each as long as its tile is high; of equals the largest tile, which reads keys the least often.
        cuts.sort_by_key(|cut| {
            let tiles = problem.sequences() * problem.extents.queries.div_ceil(64 * cut.warpgroups);
            tiles.div_ceil(chip.multiprocessors as usize) * cut.warpgroups
        });
        cuts
    }

    /// Queries of a block.
    fn query_tile(&self) -> usize {
        64 * self.warpgroups
    }
}

/// Shared memory of a block: rows of whole blocks of 64 channels, and their barriers.
fn shared_bytes(head_dim: usize, warpgroups: usize, key_tile: usize, stages: usize) -> usize {
    head_dim.div_ceil(64) * 128 * (64 * warpgroups + 2 * stages * key_tile) + 8 * (1 + 4 * stages)
}

/// Whether TMA can read the operands of a problem as [`tensor_map`] says, and the kernels without masks can compute it.
pub(super) fn can_map(problem: &Problem, chip: &Chip) -> bool {
    let plain = problem.op.mask == Mask::None
        && !problem.op.key_lengths
        && problem.op.axis == SequenceAxis::Positions
        && problem.extents.queries > 0
        && problem.extents.keys > 0;
    // Every stride of a map is a multiple of the one before it.
    let mappable = (0..3).all(|i| problem.channels(i).is_multiple_of(problem.op.head_dim));
    chip.architecture.is_hopper()
        && plain
        && mappable
        && problem.is_half()
        && problem.is_wide()
        && problem.scale_can_wait()
}

/// The map of an operand: channels of a head, heads, the sequence, the batch. A box is `rows` rows of 64 channels.
pub(super) fn tensor_map(problem: &Problem, places: &Places, operand: usize, rows: usize) -> TensorMap {
    let shape = &problem.inputs[operand].shape;
    let element = problem.dtype(operand).size();
    let (heads, head_dim) = (problem.op.heads, problem.op.head_dim);
    let row = shape[2] * element;
    TensorMap {
        address: problem.address(places, operand),
        dtype: problem.dtype(operand),
        rank: 4,
        extents: [head_dim as u64, heads as u64, shape[1] as u64, shape[0] as u64, 1],
        strides: [(head_dim * element) as u64, row as u64, (shape[1] * row) as u64, 0],
        tile: [64, 1, rows as u32, 1, 1],
        swizzle: 128,
    }
}

// SAFETY: the arguments are those of `hopper`; the tensor maps and the extents are those of the call's tensors.
unsafe impl Implementation for Hopper {
    fn name(&self) -> String {
        let turns = if self.turns { " in turns" } else { "" };
        format!("hopper {}x{}{turns}", self.query_tile(), self.key_tile)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        let mut kernel = problem
            .specialised(Kernel::new(SOURCE, "hopper"))
            .with("ELEMENT", type_name(problem.dtype(0)))
            .with("WARPGROUPS", self.warpgroups)
            .with("KEY_TILE", self.key_tile)
            .with("STAGES", self.stages)
            .with("TURNS", u8::from(self.turns));
        kernel.hot = true;
        let tiles = problem.extents.queries.div_ceil(self.query_tile());
        let grid = problem.grid(problem.sequences().saturating_mul(tiles))?;
        let arguments = arguments![
            tensor_map(problem, places, 0, self.query_tile()),
            tensor_map(problem, places, 1, self.key_tile),
            tensor_map(problem, places, 2, self.key_tile),
            places.outputs[0],
            problem.argument()?,
        ];
        let mut launch = Launch::new(kernel, grid, 128 * (self.warpgroups as u32 + 1), arguments);
        launch.shared_bytes =
            shared_bytes(problem.op.head_dim, self.warpgroups, self.key_tile, self.stages) as u32;
        Ok(vec![launch])
    }
}

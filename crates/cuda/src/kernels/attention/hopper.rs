//! FlashAttention with Hopper's wgmma and TMA, warp-specialised.

use std::sync::Arc;

use super::problem::Problem;
use crate::{
    Chip, CudaError,
    kernels::{Implementation, Kernel, Launch, Places, Source, TensorMap, names::type_name},
    launch::arguments,
};
use kinora_graph::op::SequenceAxis;

const SOURCE: Source = Source { path: "attention/hopper.cu", text: include_str!("hopper.cu") };

/// The widest head whose sums fit a warpgroup's registers.
const WIDEST: usize = 256;
/// The most buffers for keys and values: more would wait for nothing.
const MOST_STAGES: usize = 4;

/// How scores become weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Softmax {
    /// Whether the wait for the sums is kept behind it.
    overlapped: bool,
    /// Whether sums are rescaled only if a maximum has grown by much.
    skipping: bool,
    /// Of so many exponentials the FMA units take one; of 0 none.
    polynomial: usize,
}

/// How the work is cut, and in which order it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Warpgroups of 64 queries.
    warpgroups: usize,
    /// Keys at a time.
    key_tile: usize,
    /// Whether warpgroups start their products in turns.
    turns: bool,
    softmax: Softmax,
    /// Whether a block takes tile after tile of queries, so that there is one for each multiprocessor.
    persistent: bool,
}

impl Cut {
    /// One whose warpgroups take turns, with weights as the first kernel made them.
    fn in_turns((warpgroups, key_tile): (usize, usize)) -> Cut {
        Cut { warpgroups, key_tile, turns: warpgroups > 1, softmax: Softmax::default(), persistent: false }
    }

    /// Queries of a block's tile.
    fn query_tile(&self) -> usize {
        64 * self.warpgroups
    }

    /// The tiles of all queries.
    fn tiles(&self, problem: &Problem) -> usize {
        problem.sequences().saturating_mul(problem.extents.queries.div_ceil(self.query_tile()))
    }

    /// The shared memory of a block with so many buffers: rows of whole blocks of 64 channels, and their barriers.
    fn shared_bytes(&self, head_dim: usize, stages: usize) -> usize {
        let query_buffers = 1 + usize::from(self.persistent);
        let rows = query_buffers * self.query_tile() + 2 * stages * self.key_tile;
        head_dim.div_ceil(64) * 128 * rows + 8 * (2 * query_buffers + 4 * stages)
    }
}

/// An attention, and how its work is cut.
#[derive(Clone, Debug)]
pub(super) struct Hopper {
    problem: Arc<Problem>,
    cut: Cut,
    /// Buffers for keys and for values.
    stages: usize,
    multiprocessors: u32,
}

impl Hopper {
    /// Every cut for a problem, the one to choose first.
    pub(super) fn offered(problem: &Arc<Problem>, chip: &Chip) -> Vec<Hopper> {
        let head_dim = problem.op.head_dim;
        if !can_map(problem, chip) || head_dim > WIDEST {
            return Vec::new();
        }
        // What a thread holds: half a channel's sums, and half a key's score and a quarter's weight. Half of what a mask adds, too.
        let sizes: &[(usize, usize)] = match (head_dim, problem.op.mask_operand()) {
            (..=64, None) => &[(3, 128), (2, 128), (2, 192)],
            (65..=128, None) => &[(2, 128), (3, 64)],
            (129..=192, None) => &[(2, 96)],
            (193.., None) => &[(2, 64)],
            (..=64, Some(_)) => &[(2, 128), (3, 64)],
            (65..=192, Some(_)) => &[(2, 64)],
            (193.., Some(_)) => &[(2, 32)],
        };
        let multiprocessors = chip.multiprocessors as usize;
        let mut cuts: Vec<Cut> = Vec::new();
        for &size in sizes {
            let cut = Cut::in_turns(size);
            cuts.extend([cut, Cut { turns: false, ..cut }]);
        }
        // By whole waves of tiles, each as long as its tile is high; of equals the largest tile, which reads keys the least often.
        cuts.sort_by_key(|cut| cut.tiles(problem).div_ceil(multiprocessors) * cut.warpgroups);
        let ways = variants(problem, sizes, multiprocessors);
        // The others are for a tuner.
        if let Some(fastest) = fastest(problem, multiprocessors) {
            cuts.retain(|cut| *cut != fastest);
            cuts.insert(0, fastest);
            cuts.extend(ways.into_iter().filter(|cut| *cut != fastest));
        } else {
            cuts.extend(ways);
        }
        let offer = |cut: Cut| {
            let fits = |stages: &usize| cut.shared_bytes(head_dim, *stages) <= chip.shared_bytes as usize;
            let stages = (2..=MOST_STAGES).rev().find(fits)?;
            let multiprocessors = chip.multiprocessors;
            Some(Hopper { problem: problem.clone(), cut, stages, multiprocessors })
        };
        cuts.into_iter().filter_map(offer).collect()
    }
}

/// Where the wait for the sums stays behind the softmax.
const OVERLAPPED: Softmax = Softmax { overlapped: true, skipping: false, polynomial: 0 };
/// The same, and sums are rescaled only where that is needed.
const SKIPPING: Softmax = Softmax { skipping: true, ..OVERLAPPED };

/// One whose warpgroups take turns and rescale only where that is needed.
fn skipping(&size: &(usize, usize)) -> Cut {
    Cut { softmax: SKIPPING, ..Cut::in_turns(size) }
}

/// Keys of a tile that the keys of a head of up to 64 fill.
fn fitting_tile(keys: usize) -> usize {
    match keys {
        ..=128 => keys.next_multiple_of(16),
        _ if !keys.is_multiple_of(128) && keys.is_multiple_of(96) => 96,
        _ => 128,
    }
}

/// Whether there are so few tiles of 64 queries that blocks of one warpgroup pay.
fn is_low(problem: &Problem, key_tile: usize, multiprocessors: usize) -> bool {
    skipping(&(1, key_tile)).tiles(problem) <= 2 * multiprocessors
}

/// The cut that was the fastest in ten measurements on an H200, or 2 % from it: where every key is seen, and heads are up to 64.
fn fastest(problem: &Problem, multiprocessors: usize) -> Option<Cut> {
    if problem.op.head_dim > 64 || !problem.shows_every_key() || problem.op.key_lengths {
        return None;
    }
    let key_tile = fitting_tile(problem.extents.keys);
    // What a wave of tiles takes by warpgroups: three share the loads of keys, one alone overlaps nothing with others.
    let mut sizes = vec![(3, 6), (2, 5)];
    sizes.extend(is_low(problem, key_tile, multiprocessors).then_some((1, 3)));
    let waves = |cut: &Cut| cut.tiles(problem).div_ceil(multiprocessors);
    let cuts = sizes.into_iter().map(|(warpgroups, wave)| (skipping(&(warpgroups, key_tile)), wave));
    let (cut, _) = cuts.min_by_key(|(cut, wave)| waves(cut) * wave)?;
    Some(Cut { persistent: waves(&cut) > 1, ..cut })
}

/// Other ways to do the same, where they were written: for heads up to 128 without a mask operand.
fn variants(problem: &Problem, sizes: &[(usize, usize)], multiprocessors: usize) -> Vec<Cut> {
    let head_dim = problem.op.head_dim;
    if head_dim > 128 || problem.op.mask_operand().is_some() {
        return Vec::new();
    }
    let mut cuts = Vec::new();
    for size in sizes {
        cuts.extend([Cut { softmax: OVERLAPPED, ..skipping(size) }, skipping(size)]);
    }
    cuts.extend(sizes[..1].iter().flat_map(|size| {
        let polynomial = |polynomial| Softmax { polynomial, ..SKIPPING };
        let [eighth, quarter] = [8, 4].map(|share| Cut { softmax: polynomial(share), ..skipping(size) });
        [Cut { turns: false, ..skipping(size) }, eighth, quarter]
    }));
    // Tiles that the keys fill, and lower ones if there are few.
    let mut fitting: Vec<(usize, usize)> = Vec::new();
    if head_dim <= 64 {
        let key_tile = fitting_tile(problem.extents.keys);
        fitting.extend(is_low(problem, key_tile, multiprocessors).then_some((1, key_tile)));
        fitting.extend([(2, key_tile), (3, key_tile)].into_iter().filter(|size| !sizes.contains(size)));
        cuts.extend(fitting.iter().map(skipping));
    }
    if problem.shows_every_key() && !problem.op.key_lengths {
        let often = sizes[..2].iter().chain(&fitting);
        cuts.extend(often.map(|size| Cut { persistent: true, ..skipping(size) }));
    }
    cuts
}

/// Whether TMA can read the operands of a problem as [`tensor_map`] says.
pub(super) fn can_map(problem: &Problem, chip: &Chip) -> bool {
    let whole =
        problem.op.axis == SequenceAxis::Positions && problem.extents.queries > 0 && problem.extents.keys > 0;
    // Every stride of a map is a multiple of the one before it.
    let mappable = (0..3).all(|i| problem.channels(i).is_multiple_of(problem.op.head_dim));
    chip.architecture.is_hopper()
        && whole
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
        let Cut { key_tile, turns, softmax, persistent, .. } = self.cut;
        let mut name = format!("hopper {}x{key_tile}", self.cut.query_tile());
        let said = [
            (turns, " in turns"),
            (persistent, " persistent"),
            (softmax.overlapped && !softmax.skipping, " overlapped"),
            (softmax.skipping, " skipping"),
        ];
        name.extend(said.into_iter().filter(|(is, _)| *is).map(|(_, word)| word));
        if softmax.polynomial > 0 {
            name += &format!(" polynomial {}", softmax.polynomial);
        }
        name
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let (problem, cut) = (&self.problem, &self.cut);
        let mut kernel = problem
            .specialised(Kernel::new(SOURCE, "hopper"))
            .with("ELEMENT", type_name(problem.dtype(0)))
            .with("WARPGROUPS", cut.warpgroups)
            .with("KEY_TILE", cut.key_tile)
            .with("STAGES", self.stages)
            // The rows of a mask begin at multiples of two elements.
            .with("MASK_PAIRS", u8::from(problem.extents.keys.is_multiple_of(2)))
            .with("TURNS", u8::from(cut.turns))
            .with("OVERLAPPED", u8::from(cut.softmax.overlapped))
            .with("SKIPPING", u8::from(cut.softmax.skipping))
            .with("POLYNOMIAL", cut.softmax.polynomial)
            .with("PERSISTENT", u8::from(cut.persistent));
        kernel.hot = true;
        // A kernel whose blocks stay counts all tiles as well.
        let tiles = problem.grid(cut.tiles(problem))?;
        let grid = if cut.persistent { tiles.min(self.multiprocessors) } else { tiles };
        let mut arguments = arguments![
            tensor_map(problem, places, 0, cut.query_tile()),
            tensor_map(problem, places, 1, cut.key_tile),
            tensor_map(problem, places, 2, cut.key_tile),
        ];
        arguments.extend(problem.arguments(places)?);
        let mut launch = Launch::new(kernel, grid, 128 * (cut.warpgroups as u32 + 1), arguments);
        launch.shared_bytes = cut.shared_bytes(problem.op.head_dim, self.stages) as u32;
        Ok(vec![launch])
    }
}

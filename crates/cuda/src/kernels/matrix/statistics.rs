//! Statistics of a product's result, for the group norm after it: on the way, in parts that the epilogue leaves, or apart.

use kinora_graph::{DType, TensorType, op::Statistics};

use super::{SOURCE_STATISTICS, boxes::Boxes, problem::Problem};
use crate::{
    Chip, CudaError,
    kernels::{DevicePointer, Implementation, Kernel, Launch, Places, Work, names::type_name},
    launch::{
        arguments,
        limits::{grid, int, long},
    },
};

/// Neighbouring channels whose statistics a part has: as many as divide the groups of most networks.
const FOUR: usize = 4;

/// Bytes of the statistics of four channels in a part, and of a group in a chunk of parts.
const FOUR_BYTES: usize = 8;
const CHUNK_BYTES: usize = 16;

/// Scratch memory is divided at multiples of this.
const ALIGNMENT: usize = 256;

/// Threads of a block that combines parts, unless a part has more fours.
const THREADS: usize = 256;

/// The most threads of such a block.
const MOST_THREADS: usize = 512;

/// Blocks that combine parts, for each multiprocessor.
const BLOCKS: usize = 4;

/// Threads of a block of the kernel that measures a group, as its source has them.
const APART_THREADS: u32 = 256;

/// Rows that a warp has of each 64 of a tile.
const WARP_ROWS: usize = 16;

/// The columns of a tile whose statistics an epilogue can hold.
const TILE_COLUMNS: [usize; 2] = [64, 128];

/// The statistics that a kernel's epilogues leave in parts: each warp those of its rows of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InParts {
    slabs: usize,
    groups: usize,
    /// Fours of channels of a row.
    fours: usize,
    /// Parts of a slab, and the elements of a four in each.
    parts: usize,
    elements: usize,
    /// Parts of a chunk, and chunks of a slab.
    chunk_parts: usize,
    chunks: usize,
}

impl InParts {
    /// The parts of a problem's result, if it is to be measured and has tiles of so many columns, in which a warp has 16 rows of so many
    /// blocks of 64. `None` if a part would not belong to one slab, or would not be full.
    pub fn of(
        problem: &Problem,
        boxes: &Boxes,
        [columns, row_blocks]: [usize; 2],
        chip: &Chip,
    ) -> Option<InParts> {
        let Statistics { groups, frames } = problem.statistics?;
        let shape = &problem.result.shape;
        let channels = shape.channels();
        let slabs = shape[0] / frames;
        let rows = shape.rows().checked_div(slabs)?;
        let part_rows = WARP_ROWS * row_blocks;
        let fits = matches!(problem.result.dtype, DType::F16 | DType::BF16)
            && problem.gate.is_none()
            && TILE_COLUMNS.contains(&columns)
            && problem.y_row.is_multiple_of(columns)
            && (channels / groups).is_multiple_of(FOUR)
            && boxes.are_full()
            && has_whole_boxes(problem, boxes, frames, rows);
        let fours = channels / FOUR;
        if !fits || rows == 0 || fours == 0 || fours > MOST_THREADS {
            return None;
        }
        let parts = rows / part_rows;
        let lanes = (THREADS / fours).max(1);
        let wanted = (BLOCKS * chip.multiprocessors as usize).div_ceil(slabs).max(1);
        let chunk_parts = parts.div_ceil(wanted).max(4 * lanes).min(parts);
        let chunks = parts.div_ceil(chunk_parts);
        Some(InParts { slabs, groups, fours, parts, elements: part_rows * FOUR, chunk_parts, chunks })
    }

    /// Bytes of the parts.
    fn part_bytes(&self) -> usize {
        let all = self.slabs.saturating_mul(self.parts).saturating_mul(self.fours);
        all.saturating_mul(FOUR_BYTES).next_multiple_of(ALIGNMENT)
    }

    /// Scratch memory for the parts, which come first, and their chunks.
    pub fn workspace(&self) -> usize {
        self.part_bytes().saturating_add(self.slabs * self.groups * self.chunks * CHUNK_BYTES)
    }

    /// The launches that combine the parts.
    pub fn combination(&self, places: &Places) -> Result<[Launch; 2], CudaError> {
        let threads = THREADS.max(self.fours).next_multiple_of(32);
        let chunks = places.workspace.offset(self.part_bytes());
        let kernel = |entry| {
            Kernel::new(SOURCE_STATISTICS, entry)
                .with("APART", 0)
                .with("THREADS", threads)
                .with("FOURS", self.fours)
                .with("FOURS_OF_GROUP", self.fours / self.groups)
        };
        let fours = arguments![
            chunks,
            places.workspace,
            long(self.parts),
            long(self.chunk_parts),
            long(self.chunks),
            self.elements as f32,
        ];
        let all = arguments![places.outputs[1], chunks, int(self.chunks, "chunks")?];
        Ok([
            Launch::new(kernel("combine_fours"), grid(self.slabs * self.chunks)?, threads as u32, fours),
            Launch::new(kernel("combine_chunks"), grid(self.slabs * self.groups)?, 32, all),
        ])
    }
}

/// Whether each slab of so many images and rows has boxes of its own, one after another.
fn has_whole_boxes(problem: &Problem, boxes: &Boxes, frames: usize, rows: usize) -> bool {
    let [width, _, long, many] = boxes.shift;
    match problem.window {
        None => rows.is_multiple_of(1 << width),
        Some(window) => many == 0 && (long == 0 || frames.is_multiple_of(window.out_extents[0])),
    }
}

/// Where an epilogue leaves its parts.
pub(super) fn parts_at(parts: Option<InParts>, places: &Places) -> DevicePointer {
    parts.map_or(DevicePointer::NULL, |_| places.workspace)
}

/// A product that measures nothing, and then a kernel that measures its result: for any product.
#[derive(Debug)]
pub(super) struct Apart {
    product: Box<dyn Implementation>,
    statistics: Statistics,
    result: TensorType,
}

impl Apart {
    pub fn new(product: Box<dyn Implementation>, statistics: Statistics, result: &TensorType) -> Apart {
        Apart { product, statistics, result: result.clone() }
    }
}

// SAFETY: the product keeps the contract; what follows reads its result, and writes a pair for each group.
unsafe impl Implementation for Apart {
    fn name(&self) -> String {
        format!("{}, statistics apart", self.product.name())
    }

    fn is_vendors(&self) -> bool {
        self.product.is_vendors()
    }

    fn workspace(&self) -> usize {
        self.product.workspace()
    }

    fn work(&self, places: &Places) -> Result<Vec<Work>, CudaError> {
        let Statistics { groups, frames } = self.statistics;
        let shape = &self.result.shape;
        let slabs = shape[0] / frames;
        let kernel = Kernel::new(SOURCE_STATISTICS, "measure")
            .with("APART", 1)
            .with("TYPE", type_name(self.result.dtype));
        let arguments = arguments![
            places.outputs[1],
            places.outputs[0],
            long(shape.rows().checked_div(slabs).unwrap_or(0)),
            long(shape.channels()),
            long(groups),
        ];
        // Nothing to multiply may still have groups, of nothing.
        let mut work = if self.result.elements() > 0 { self.product.work(places)? } else { Vec::new() };
        let measure = Launch::new(kernel, grid(slabs * groups)?, APART_THREADS, arguments);
        work.push(Work::Launch(measure));
        Ok(work)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kinora_graph::{Op, op::Conv};

    use super::*;
    use crate::{
        Architecture,
        kernels::{Call, testing},
    };

    /// The parts of a convolution's result in tiles of 256×128.
    fn parts(conv: Conv, x: [usize; 4], out: usize, statistics: Statistics) -> Option<InParts> {
        let [kt, kh, kw] = conv.kernel;
        let filters = out * conv.pixels();
        let op = Op::Conv(Conv { statistics: Some(statistics), ..conv });
        let f16 = |shape: &[usize]| TensorType::new(DType::F16, shape);
        let inputs = [f16(&x), f16(&[filters, kt, kh, kw, x[3]])];
        let inputs: Vec<&TensorType> = inputs.iter().collect();
        let results = op.infer(&inputs).unwrap();
        let outputs: Vec<&TensorType> = results.iter().collect();
        let problem = Problem::of(&Call { layer: "", op: &op, inputs: &inputs, outputs: &outputs }).unwrap();
        let problem = Arc::new(problem);
        let boxes = Boxes::of(&problem, 256);
        InParts::of(&problem, &boxes, [128, 2], &Chip::typical(Architecture::HOPPER))
    }

    #[test]
    fn parts_are_of_one_slab_and_full() {
        let same = || Conv::spatial([3, 3], 1, 1);
        for (conv, x, out, groups, frames, expected) in [
            (same(), [14, 576, 1024, 128], 128, 32, 1, Some(18432)),
            (same(), [14, 576, 1024, 128], 128, 32, 14, Some(14 * 18432)),
            (Conv::temporal(3, 14), [28, 72, 128, 512], 512, 32, 14, Some(14 * 288)),
            (Conv::subpixel(), [2, 16, 16, 64], 128, 16, 1, Some(32)),
            // An image is less than a box; ten channels; columns and lines that fill no tile.
            (same(), [4, 8, 8, 64], 128, 32, 1, None),
            (same(), [2, 16, 16, 64], 640, 64, 1, None),
            (same(), [2, 16, 16, 64], 192, 32, 1, None),
            (same(), [2, 9, 17, 64], 128, 32, 1, None),
        ] {
            let found = parts(conv, x, out, Statistics { groups, frames });
            assert_eq!(found.map(|found| found.parts), expected, "{x:?}");
            let Some(InParts { parts, chunk_parts, chunks, .. }) = found else { continue };
            assert!(chunk_parts * chunks >= parts && chunk_parts * (chunks - 1) < parts, "{found:?}");
        }
    }

    #[test]
    fn the_launches_hand_on_what_they_combine() {
        let statistics = Statistics { groups: 32, frames: 14 };
        let found = parts(Conv::spatial([3, 3], 1, 1), [14, 288, 512, 256], 256, statistics).unwrap();
        let places = testing::places(2, 2);
        let [fours, chunks] = found.combination(&places).unwrap();
        assert_eq!(fours.arguments[1], testing::WORKSPACE.into());
        assert_eq!(fours.arguments[0], chunks.arguments[1]);
        assert_eq!(chunks.arguments[0], testing::place(3).into());
        assert_eq!(chunks.grid[0], 32);
        // A pair of floats for each four of each part, and four for each group of each chunk.
        let parts = 14 * 288 * 512 / 32 * 64 * 8;
        assert_eq!(found.workspace(), parts + 32 * found.chunks * 16);
    }
}

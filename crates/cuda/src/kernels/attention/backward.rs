//! The gradients of attention.

use std::sync::Arc;

use super::{
    hopper::{can_map, tensor_map},
    problem::{Problem, argument},
};
use crate::{
    Architecture, Chip, CudaError,
    kernels::{
        Argument, Call, DevicePointer, Implementation, Kernel, KernelSet, Launch, Places, Source, TensorMap,
        names::type_name,
    },
    launch::{
        arguments,
        limits::{long, summed},
    },
};
use kinora_graph::{
    DType, Op,
    op::{Attention, AttentionBackward, Mask},
};

const SOURCE_ROWS: Source =
    Source { path: "attention/backward_rows.cu", text: include_str!("backward_rows.cu") };
const SOURCE_PLAIN: Source =
    Source { path: "attention/backward_plain.cu", text: include_str!("backward_plain.cu") };
const SOURCE_QUERIES: Source =
    Source { path: "attention/backward_queries.cu", text: include_str!("backward_queries.cu") };
const SOURCE_KEYS: Source =
    Source { path: "attention/backward_keys.cu", text: include_str!("backward_keys.cu") };

const SOURCE_HOPPER: Source =
    Source { path: "attention/backward_hopper.cu", text: include_str!("backward_hopper.cu") };

/// Threads of a block that looks at rows, and warps of one of the plain kernel.
const ROW_THREADS: usize = 256;
const WARPS: usize = 8;
/// The widest head of the tensor cores' kernels, and of f32, whose parts leave no registers for the sums of a wider one.
const WIDEST: usize = 256;
const WIDEST_IN_PARTS: usize = 160;
/// The most channels of keys and values that a warp sums: 128 registers of each thread.
const WIDEST_SLICE: usize = 128;
/// Bytes of what is known of a query: `QueryRow` of `common/attention_backward.cuh`.
const ROW_BYTES: usize = 16;

/// Every way to compute the gradients, the one to choose first; none for another op.
pub(super) fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let Some(problem) = Backward::of(call).map(Arc::new) else { return Vec::new() };
    let mut offered: Vec<Box<dyn Implementation>> = Vec::new();
    if set == KernelSet::Fused {
        offered.extend(Hopper::offered(&problem, chip).map(|hopper| Box::new(hopper) as _));
        offered.extend(Tiles::offered(&problem, chip).into_iter().map(|tiles| Box::new(tiles) as _));
    }
    offered.push(Box::new(Plain { problem }));
    offered
}

/// The gradients of an attention.
#[derive(Debug)]
struct Backward {
    forward: Problem,
    /// The operand that is the attention's result; its logarithms and the gradient of the result follow.
    first_result: usize,
}

impl Backward {
    /// The problem of a call; `None` if it is another op.
    fn of(call: &Call<'_>) -> Option<Self> {
        let Op::AttentionBackward(AttentionBackward { forward }) = call.op else { return None };
        let problem = Problem::of_operands(forward, call.inputs)?;
        Some(Backward { forward: problem, first_result: forward.operands() })
    }

    fn op(&self) -> &Attention {
        &self.forward.op
    }

    /// Queries of all sequences and heads.
    fn queries(&self) -> usize {
        self.forward.sequences().saturating_mul(self.forward.extents.queries)
    }

    /// Sequences of keys: of all batch elements, positions and heads.
    fn key_sequences(&self) -> usize {
        let extents = self.forward.extents;
        extents.key_batch.saturating_mul(extents.positions).saturating_mul(self.op().heads)
    }

    /// What is known of each query.
    fn workspace(&self) -> usize {
        self.queries().saturating_mul(ROW_BYTES)
    }

    /// Whether a logarithm and the scale are subtracted and multiplied at once, which elements of 16 bits take.
    fn is_folded(&self) -> bool {
        self.forward.is_half() && self.op().mask != Mask::Additive
    }

    fn specialised(&self, kernel: Kernel, folded: bool) -> Kernel {
        self.forward.specialised(kernel).with("FOLDED", u8::from(folded))
    }

    /// The extents; unlike in the attention's own kernels there may be no queries.
    fn argument(&self) -> Result<argument::Problem, CudaError> {
        let extents = self.forward.extents;
        let share = extents.batch.checked_div(extents.key_batch).unwrap_or(0);
        Ok(argument::Problem {
            queries: summed(extents.queries)?,
            share: summed(share)?,
            ..self.forward.argument()?
        })
    }

    /// Where the gradients of keys and values lie.
    fn of_keys(&self) -> argument::Strides {
        let (channels, extents) = (self.op().heads * self.op().head_dim, self.forward.extents);
        argument::Strides {
            step: long(extents.positions * channels),
            position: long(channels),
            batch: long(extents.keys * extents.positions * channels),
        }
    }

    /// The launch that gathers what is known of the queries.
    fn rows(&self, places: &Places, folded: bool) -> Result<Launch, CudaError> {
        let kernel = self
            .specialised(Kernel::new(SOURCE_ROWS, "backward_rows"), folded)
            .with("QUERY_TYPE", type_name(self.forward.dtype(0)))
            .with("THREADS", ROW_THREADS);
        let dtype = self.forward.dtype(0);
        let pack = 16 / dtype.size();
        let head = self.op().head_dim;
        let packs = if head.is_multiple_of(pack) { head / pack } else { head };
        let rows = ROW_THREADS / packs.next_power_of_two().min(32);
        let [y, log_sum_exp, dy] = [0, 1, 2].map(|i| places.inputs[self.first_result + i]);
        let arguments = arguments![
            y,
            dy,
            log_sum_exp,
            self.forward.optional(places, self.op().key_lengths_operand()),
            self.forward.optional(places, self.op().boundary_operands().map(|[queries, _]| queries)),
            self.forward.optional(places, self.op().boundary_operands().map(|[_, keys]| keys)),
            places.workspace,
            self.argument()?,
        ];
        let grid = self.forward.grid(self.queries().div_ceil(rows))?;
        Ok(Launch::new(kernel, grid, ROW_THREADS as u32, arguments))
    }

    /// The first arguments of the other kernels: `q, k, v, mask, dy, rows`.
    fn operands(&self, places: &Places) -> Vec<Argument> {
        arguments![
            self.forward.address(places, 0),
            self.forward.address(places, 1),
            self.forward.address(places, 2),
            self.forward.optional(places, self.op().mask_operand()),
            places.inputs[self.first_result + 2],
            places.workspace,
        ]
    }
}

/// A warp for each query and each key: runs every attention's gradients.
#[derive(Debug)]
struct Plain {
    problem: Arc<Backward>,
}

// SAFETY: the arguments are those of the kernels, which stay within the tensors whose extents the problem gives; the workspace holds a
// row for each query of each head.
unsafe impl Implementation for Plain {
    fn name(&self) -> String {
        "backward plain".into()
    }

    fn workspace(&self) -> usize {
        self.problem.workspace()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        let kernel = problem
            .specialised(Kernel::new(SOURCE_PLAIN, "backward_plain"), false)
            .with("QUERY_TYPE", type_name(problem.forward.dtype(0)))
            .with("KEY_TYPE", type_name(problem.forward.dtype(1)))
            .with("VALUE_TYPE", type_name(problem.forward.dtype(2)))
            .with("WARPS", WARPS);
        let keys = problem.key_sequences().saturating_mul(problem.forward.extents.keys);
        let blocks = [problem.queries(), keys].map(|rows| rows.div_ceil(WARPS));
        let mut arguments = problem.operands(places);
        arguments.extend(arguments![
            places.outputs[0],
            places.outputs[1],
            places.outputs[2],
            problem.of_keys(),
            summed(blocks[0])?,
            summed(problem.forward.extents.key_batch)?,
            problem.argument()?,
        ]);
        let grid = problem.forward.grid(blocks[0].saturating_add(blocks[1]))?;
        let plain = Launch::new(kernel, grid, 32 * WARPS as u32, arguments);
        let mut launches = Vec::new();
        if problem.queries() > 0 {
            launches.push(problem.rows(places, false)?);
        }
        launches.push(plain);
        Ok(launches)
    }
}

/// How a kernel's work is cut: rows of a block, 16 for each warp, and rows of the tiles that it walks, in so many buffers.
#[derive(Clone, Copy, Debug)]
struct Cut {
    rows: usize,
    others: usize,
    stages: usize,
}

impl Cut {
    /// Shared memory of a block: two operands of its rows, and two of each tile with so many bytes more for each of its rows. Rows are
    /// padded by 16 bytes, against conflicts of banks.
    fn shared_bytes(self, depth: usize, size: usize, more: usize) -> usize {
        let row = depth * size + 16;
        2 * self.rows * row + self.stages * self.others * (2 * row + more)
    }
}

/// On the tensor cores of every generation: one kernel with tiles of keys, one with tiles of queries.
#[derive(Debug)]
struct Tiles {
    problem: Arc<Backward>,
    of_queries: Cut,
    of_keys: Cut,
    /// Channels that a block with keys sums, and how many such slices a head has.
    slice: usize,
    slices: usize,
}

impl Tiles {
    /// Every cut that fits the chip, the one for this problem first.
    fn offered(problem: &Arc<Backward>, chip: &Chip) -> Vec<Tiles> {
        let forward = &problem.forward;
        let turing = chip.architecture < Architecture::AMPERE;
        // Turing has matrix instructions for f16 alone.
        let typed = !turing || forward.dtype(0) == DType::F16;
        let in_parts = !forward.is_half();
        let depth = problem.op().head_dim.next_multiple_of(16);
        if !typed || !forward.is_wide() || depth > if in_parts { WIDEST_IN_PARTS } else { WIDEST } {
            return Vec::new();
        }
        let most = if in_parts { WIDEST_SLICE / 2 } else { WIDEST_SLICE };
        let slice = depth.div_ceil(depth.div_ceil(most)).next_multiple_of(16);
        let slices = depth.div_ceil(slice);
        let size = forward.dtype(0).size();
        // Rows of a tile beside the channels that a warp sums, and buffers for it.
        let by_operand = problem.op().mask_operand().is_some();
        let tiles = |sums: usize| -> &[(usize, usize)] {
            match sums {
                _ if turing => &[(32, 1), (16, 1)],
                ..=64 if in_parts => &[(32, 2), (16, 2), (16, 1)],
                _ if in_parts => &[(16, 2), (16, 1)],
                193.. if by_operand => &[(16, 2), (16, 1)],
                97.. if by_operand => &[(32, 2), (32, 1), (16, 1)],
                193.. => &[(32, 2), (32, 1), (16, 1)],
                _ => &[(64, 2), (32, 2), (32, 1), (16, 1)],
            }
        };
        let cut = |rows: usize, depth: usize, tiles: &[(usize, usize)], more: usize| {
            let cuts = tiles.iter().map(|&(others, stages)| Cut { rows, others, stages });
            let mut fitting =
                cuts.filter(|cut| cut.shared_bytes(depth, size, more) <= chip.shared_bytes as usize);
            fitting.next()
        };
        let mut offered: Vec<Tiles> = [128, 64, 32]
            .into_iter()
            .filter_map(|rows| {
                Some(Tiles {
                    problem: problem.clone(),
                    of_queries: cut(rows, depth, tiles(depth), 0)?,
                    of_keys: cut(rows, slice * slices, tiles(2 * slice), ROW_BYTES)?,
                    slice,
                    slices,
                })
            })
            .collect();
        // The largest tiles that give every multiprocessor a block.
        let room = chip.multiprocessors as usize;
        let wanted = |tiles: &Tiles| tiles.key_blocks().min(tiles.query_blocks()) >= room;
        let first = offered.iter().position(wanted).unwrap_or(offered.len().saturating_sub(1));
        if let Some(before) = offered.get_mut(..=first) {
            before.rotate_right(1);
        }
        offered
    }

    fn query_blocks(&self) -> usize {
        let tiles = self.problem.forward.extents.queries.div_ceil(self.of_queries.rows);
        self.problem.forward.sequences().saturating_mul(tiles)
    }

    fn key_blocks(&self) -> usize {
        let tiles = self.problem.forward.extents.keys.div_ceil(self.of_keys.rows);
        self.problem.key_sequences().saturating_mul(tiles * self.slices)
    }
}

// SAFETY: the arguments are those of the kernels, which stay within the tensors whose extents the problem gives; the workspace holds a
// row for each query of each head.
unsafe impl Implementation for Tiles {
    fn name(&self) -> String {
        format!("backward {}x{}", self.of_keys.rows, self.of_keys.others)
    }

    fn workspace(&self) -> usize {
        self.problem.workspace()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let problem = &self.problem;
        let folded = problem.is_folded();
        let size = problem.forward.dtype(0).size();
        let specialised = |kernel: Kernel| {
            let mut kernel =
                problem.specialised(kernel, folded).with("ELEMENT", type_name(problem.forward.dtype(0)));
            kernel.hot = problem.forward.shows_every_key();
            kernel
        };
        let mut launches = Vec::new();
        if self.query_blocks() > 0 {
            launches.push(problem.rows(places, folded)?);
            let cut = self.of_queries;
            let kernel = specialised(Kernel::new(SOURCE_QUERIES, "backward_queries"))
                .with("QUERY_TILE", cut.rows)
                .with("KEY_TILE", cut.others)
                .with("STAGES", cut.stages);
            let mut arguments = problem.operands(places);
            arguments.extend(arguments![places.outputs[0], problem.argument()?]);
            let grid = problem.forward.grid(self.query_blocks())?;
            let mut launch = Launch::new(kernel, grid, 2 * cut.rows as u32, arguments);
            let depth = problem.op().head_dim.next_multiple_of(16);
            launch.shared_bytes = cut.shared_bytes(depth, size, 0) as u32;
            launches.push(launch);
        }
        if self.key_blocks() > 0 {
            let cut = self.of_keys;
            let kernel = specialised(Kernel::new(SOURCE_KEYS, "backward_keys"))
                .with("KEY_TILE", cut.rows)
                .with("QUERY_TILE", cut.others)
                .with("STAGES", cut.stages)
                .with("SLICE", self.slice)
                .with("SLICES", self.slices);
            let mut arguments = problem.operands(places);
            arguments.extend(arguments![
                places.outputs[1],
                places.outputs[2],
                problem.of_keys(),
                problem.argument()?
            ]);
            let grid = problem.forward.grid(self.key_blocks())?;
            let mut launch = Launch::new(kernel, grid, 2 * cut.rows as u32, arguments);
            launch.shared_bytes = cut.shared_bytes(self.slice * self.slices, size, ROW_BYTES) as u32;
            launches.push(launch);
        }
        Ok(launches)
    }
}

/// Warpgroups of 64 rows of a block on Hopper, the widest head whose sums of keys and values fit their registers, and the most
/// buffers for tiles: more would wait for nothing.
const WARPGROUPS: usize = 2;
const WIDEST_ON_HOPPER: usize = 128;
const MOST_STAGES: usize = 4;

/// With Hopper's wgmma and TMA, warp-specialised.
#[derive(Debug)]
struct Hopper {
    problem: Arc<Backward>,
    of_queries: Cut,
    of_keys: Cut,
}

impl Hopper {
    /// The cut for a problem, if TMA and the registers take it.
    fn offered(problem: &Arc<Backward>, chip: &Chip) -> Option<Hopper> {
        let head_dim = problem.op().head_dim;
        let works = problem.queries() > 0 && problem.key_sequences() > 0;
        if !works
            || !can_map(&problem.forward, chip)
            || head_dim > WIDEST_ON_HOPPER
            || problem.op().mask_operand().is_some()
        {
            return None;
        }
        // Half a channel's sums of a thread, twice for keys, and half a row's weight and gradient.
        // What is known of boundaries takes registers, too.
        let [queries, keys] = match (head_dim, problem.op().boundaries) {
            (..=64, false) => [128, 64],
            (..=64, true) => [128, 32],
            _ => [64, 32],
        };
        let cut = |others: usize, keys: bool| {
            let cuts = (2..=MOST_STAGES).rev().map(|stages| Cut { rows: 64 * WARPGROUPS, others, stages });
            let mut fitting =
                cuts.filter(|&cut| Hopper::shared_bytes(head_dim, cut, keys) <= chip.shared_bytes as usize);
            fitting.next()
        };
        Some(Hopper { problem: problem.clone(), of_queries: cut(queries, false)?, of_keys: cut(keys, true)? })
    }

    /// Shared memory of a block: rows of whole blocks of 64 channels, what is known of queries if they are the others, and barriers.
    fn shared_bytes(head_dim: usize, cut: Cut, keys: bool) -> usize {
        let columns = if keys { cut.others * ROW_BYTES } else { 0 };
        let tile = head_dim.div_ceil(64) * 128 * 2 * cut.others + columns;
        head_dim.div_ceil(64) * 128 * 2 * cut.rows + cut.stages * tile + 8 * (1 + 2 * cut.stages)
    }

    /// The map of the gradient of the attention's result.
    fn map_of_dy(&self, places: &Places, rows: usize) -> TensorMap {
        let operand = self.problem.first_result + 2;
        let forward = &self.problem.forward;
        let shape = &forward.inputs[operand].shape;
        let element = forward.dtype(operand).size();
        let (heads, head_dim, row) =
            (self.problem.op().heads, self.problem.op().head_dim, shape[2] * element);
        TensorMap {
            address: places.inputs[operand],
            dtype: forward.dtype(operand),
            rank: 4,
            extents: [head_dim as u64, heads as u64, shape[1] as u64, shape[0] as u64, 1],
            strides: [(head_dim * element) as u64, row as u64, (shape[1] * row) as u64, 0],
            tile: [64, 1, rows as u32, 1, 1],
            swizzle: 128,
        }
    }

    fn launch(&self, places: &Places, cut: Cut, keys: bool) -> Result<Launch, CudaError> {
        let problem = &self.problem;
        let forward = &problem.forward;
        let mut kernel = problem
            .specialised(Kernel::new(SOURCE_HOPPER, "backward_hopper"), problem.is_folded())
            .with("ELEMENT", type_name(forward.dtype(0)))
            .with("KEYS", u8::from(keys))
            .with("WARPGROUPS", WARPGROUPS)
            .with("OTHERS", cut.others)
            .with("STAGES", cut.stages);
        kernel.hot = true;
        let map = |operand: usize, rows: usize| tensor_map(forward, places, operand, rows);
        let of_queries = |rows: usize| [map(0, rows), self.map_of_dy(places, rows)];
        let of_keys = |rows: usize| [map(1, rows), map(2, rows)];
        let (maps, sequences, length) = if keys {
            ([of_keys(cut.rows), of_queries(cut.others)], problem.key_sequences(), forward.extents.keys)
        } else {
            ([of_queries(cut.rows), of_keys(cut.others)], forward.sequences(), forward.extents.queries)
        };
        let mut arguments: Vec<Argument> = maps.into_iter().flatten().map(Argument::from).collect();
        arguments.extend(problem.operands(places));
        let gradients = if keys {
            [places.outputs[1], places.outputs[2]]
        } else {
            [places.outputs[0], DevicePointer::NULL]
        };
        arguments.extend(arguments![gradients[0], gradients[1], problem.of_keys(), problem.argument()?]);
        let grid = forward.grid(sequences.saturating_mul(length.div_ceil(cut.rows)))?;
        let mut launch = Launch::new(kernel, grid, 128 * (WARPGROUPS as u32 + 1), arguments);
        launch.shared_bytes = Hopper::shared_bytes(problem.op().head_dim, cut, keys) as u32;
        Ok(launch)
    }
}

// SAFETY: the arguments are those of the kernels; the tensor maps and the extents are those of the call's tensors; the workspace holds a
// row for each query of each head.
unsafe impl Implementation for Hopper {
    fn name(&self) -> String {
        format!("backward hopper {}x{}", self.of_keys.rows, self.of_keys.others)
    }

    fn workspace(&self) -> usize {
        self.problem.workspace()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        Ok(vec![
            self.problem.rows(places, self.problem.is_folded())?,
            self.launch(places, self.of_queries, false)?,
            self.launch(places, self.of_keys, true)?,
        ])
    }
}

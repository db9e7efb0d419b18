//! An attention, as its kernels see it.

use kinora_graph::{
    DType, Op, TensorType,
    op::{Attention, AttentionExtents, Mask},
};

use crate::{
    CudaError,
    kernels::{Argument, Call, DevicePointer, Kernel, Places, names::type_name},
    launch::{
        arguments,
        limits::{SUMMED_EXTENT, grid, long, summed},
    },
};

/// The structs that kernels take, under the names that they have in `common/attention.cuh`.
pub(super) mod argument {
    use crate::launch::c_struct;

    c_struct! {
        /// Elements from one thing to the next in an operand's rows.
        pub(crate) struct Strides {
            /// From one element of a sequence to the next.
            step: i64,
            /// From the sequence at one position to the one at the next.
            position: i64,
            /// From one batch element to the next.
            batch: i64,
        }
    }

    c_struct! {
        /// The extents of an attention.
        pub(crate) struct Problem {
            q: Strides,
            k: Strides,
            v: Strides,
            y: Strides,
            mask_batch: i64,
            mask_head: i64,
            /// With a sliding window, query i does not see key j if j <= i + window_diagonal.
            window_diagonal: i64,
            /// The sequences of a batch element, if there are boundaries between them.
            parts: i64,
            batches: i32,
            queries: i32,
            keys: i32,
            heads: i32,
            positions: i32,
            /// Batch elements of queries that share one of keys.
            share: i32,
            /// With a causal mask or a sliding window, query i does not see key j if j > i + diagonal.
            diagonal: i32,
            scale: f32,
        }
    }
}

/// An attention and its extents.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) op: Attention,
    pub(super) extents: AttentionExtents,
    pub(super) inputs: Vec<TensorType>,
}

impl Problem {
    /// The problem of a call; `None` if it is not an attention.
    pub(super) fn of(call: &Call<'_>) -> Option<Self> {
        let Op::Attention(op) = call.op else { return None };
        Problem::of_operands(op, call.inputs)
    }

    /// The problem of an attention with these operands, which may have others behind them.
    pub(super) fn of_operands(op: &Attention, inputs: &[&TensorType]) -> Option<Self> {
        let [q, k, _, ..] = inputs else { return None };
        let extents = op.extents(q, k);
        Some(Problem { op: op.clone(), extents, inputs: inputs.iter().copied().cloned().collect() })
    }

    /// The type of an operand's elements.
    pub(super) fn dtype(&self, operand: usize) -> DType {
        self.inputs[operand].dtype
    }

    /// The channels of a row of an operand.
    pub(super) fn channels(&self, operand: usize) -> usize {
        self.inputs[operand].shape[2]
    }

    /// Sequences of queries: of all batch elements, positions and heads.
    pub(super) fn sequences(&self) -> usize {
        self.extents.batch * self.extents.positions * self.op.heads
    }

    /// Whether elements of the queries have 16 bits.
    pub(super) fn is_half(&self) -> bool {
        matches!(self.dtype(0), DType::F16 | DType::BF16)
    }

    /// Whether q, k and v have one type, and every head of every row begins at a multiple of 16 bytes.
    pub(super) fn is_wide(&self) -> bool {
        let dtype = self.dtype(0);
        let whole = |channels: usize| channels.is_multiple_of(16 / dtype.size());
        (self.is_half() || dtype == DType::F32)
            && whole(self.op.head_dim)
            && (0..3).all(|i| self.dtype(i) == dtype && whole(self.channels(i)) && whole(self.op.offsets[i]))
    }

    /// Whether neither a mask nor boundaries hide keys. What hides them may cost a few spilled registers.
    pub(super) fn shows_every_key(&self) -> bool {
        self.op.mask == Mask::None && !self.op.boundaries
    }

    /// Whether the scale can be applied after the maximum was found: it is positive, and no denormal.
    pub(super) fn scale_can_wait(&self) -> bool {
        self.op.scale >= f32::MIN_POSITIVE
    }

    /// A kernel with what every attention kernel is specialised with.
    pub(super) fn specialised(&self, kernel: Kernel) -> Kernel {
        let mask = match self.op.mask {
            Mask::None => 0,
            Mask::Causal { .. } => 1,
            Mask::Boolean => 2,
            Mask::Additive => 3,
            Mask::SlidingWindow { .. } => 4,
        };
        let mask_type = self.op.mask_operand().map_or(DType::U8, |i| self.dtype(i));
        kernel
            .with("HEAD_DIM", self.op.head_dim)
            .with("MASK", mask)
            .with("MASK_TYPE", type_name(mask_type))
            .with("KEY_LENGTHS", u8::from(self.op.key_lengths))
            .with("BOUNDARIES", u8::from(self.op.boundaries))
            .with("LOG_SUM_EXP", u8::from(self.op.log_sum_exp))
    }

    /// The first head's first channel of an operand.
    pub(super) fn address(&self, places: &Places, operand: usize) -> DevicePointer {
        places.inputs[operand].offset(self.op.offsets[operand] * self.dtype(operand).size())
    }

    /// Where an operand lies, if there is one.
    pub(super) fn optional(&self, places: &Places, operand: Option<usize>) -> DevicePointer {
        operand.map_or(DevicePointer::NULL, |i| places.inputs[i])
    }

    /// The arguments of every kernel, after tensor maps: `q, k, v, mask, key_lengths, query_boundaries, key_boundaries, y,
    /// log_sum_exp, problem`.
    pub(super) fn arguments(&self, places: &Places) -> Result<Vec<Argument>, CudaError> {
        let optional = |operand: Option<usize>| self.optional(places, operand);
        Ok(arguments![
            self.address(places, 0),
            self.address(places, 1),
            self.address(places, 2),
            optional(self.op.mask_operand()),
            optional(self.op.key_lengths_operand()),
            optional(self.op.boundary_operands().map(|[queries, _]| queries)),
            optional(self.op.boundary_operands().map(|[_, keys]| keys)),
            places.outputs[0],
            places.outputs.get(1).copied().unwrap_or(DevicePointer::NULL),
            self.argument()?,
        ])
    }

    /// The extents, as the kernels take them.
    pub(super) fn argument(&self) -> Result<argument::Problem, CudaError> {
        let AttentionExtents { batch, key_batch, queries, keys, positions } = self.extents;
        let strides = |length: usize, channels: usize| argument::Strides {
            step: long(positions * channels),
            position: long(channels),
            batch: long(length * positions * channels),
        };
        let parts = match self.op.boundary_operands() {
            Some([queries, _]) => summed(self.inputs[queries].shape[0])? - 1,
            None => 1,
        };
        let mask = self.op.mask_operand().map(|i| &self.inputs[i].shape);
        let mask_stride = |axis: usize, elements: usize| match mask {
            Some(shape) if shape[axis] > 1 => long(elements),
            _ => 0,
        };
        let mask_heads = mask.map_or(1, |shape| shape[1]);
        // Beyond the furthest diagonal every key is on one side.
        let furthest = SUMMED_EXTENT as i128;
        let within = |diagonal: i128| diagonal.clamp(-furthest, furthest) as i32;
        let (diagonal, window_diagonal) = match self.op.mask {
            Mask::Causal { diagonal } => (within(diagonal.into()), 0),
            Mask::SlidingWindow { diagonal, window } => {
                (within(diagonal.into()), within(i128::from(diagonal) - window as i128))
            }
            Mask::None | Mask::Boolean | Mask::Additive => (0, 0),
        };
        Ok(argument::Problem {
            q: strides(queries, self.channels(0)),
            k: strides(keys, self.channels(1)),
            v: strides(keys, self.channels(2)),
            y: strides(queries, self.op.heads * self.op.head_dim),
            mask_batch: mask_stride(0, mask_heads * queries * keys),
            mask_head: mask_stride(1, queries * keys),
            window_diagonal: window_diagonal.into(),
            parts: parts.into(),
            batches: summed(batch)?,
            queries: summed(queries.max(1))?,
            keys: summed(keys)?,
            heads: summed(self.op.heads)?,
            positions: summed(positions.max(1))?,
            share: summed(batch.checked_div(key_batch).unwrap_or(1).max(1))?,
            diagonal,
            scale: self.op.scale,
        })
    }

    /// A grid of so many blocks, or of one.
    pub(super) fn grid(&self, blocks: usize) -> Result<u32, CudaError> {
        grid(blocks.max(1))
    }
}

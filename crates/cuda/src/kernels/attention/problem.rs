//! An attention, as its kernels are told of it.

use kinora_graph::{
    DType, Op,
    op::{Attention, AttentionExtents, Mask},
};

use crate::{
    CudaError,
    kernels::{Argument, Call, DevicePointer, Kernel, Places, names::type_name},
};

/// The most elements that a sequence may have: a key's number and a diagonal then add up within 32 bits.
const LONGEST: usize = 1 << 29;

/// An attention and its extents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) op: &'a Attention,
    pub(super) extents: AttentionExtents,
}

impl<'a> Problem<'a> {
    /// The problem of a call, or `None` where it is no attention.
    pub(super) fn of(call: &'a Call<'a>) -> Option<Self> {
        let (Op::Attention(op), [q, k, _, ..]) = (call.op, call.inputs) else { return None };
        Some(Problem { call, op, extents: op.extents(q, k) })
    }

    /// The problem of a call that an implementation was offered for.
    pub(super) fn offered(call: &'a Call<'a>) -> Result<Self, CudaError> {
        Problem::of(call)
            .ok_or_else(|| CudaError::Internal(format!("{} is {}, no attention", call.layer, call.op)))
    }

    /// The type of an operand's elements.
    pub(super) fn dtype(&self, operand: usize) -> DType {
        self.call.inputs[operand].dtype
    }

    /// The channels of a row of an operand.
    pub(super) fn channels(&self, operand: usize) -> usize {
        self.call.inputs[operand].shape[2]
    }

    /// Sequences of queries: of all batch elements, positions and heads.
    pub(super) fn sequences(&self) -> usize {
        self.extents.batch * self.extents.positions * self.op.heads
    }

    /// Whether q, k and v have one 16-bit type, and every head of every row begins at a multiple of 16 bytes.
    pub(super) fn is_wide(&self) -> bool {
        let dtype = self.dtype(0);
        let whole = |channels: usize| channels.is_multiple_of(8);
        matches!(dtype, DType::F16 | DType::BF16)
            && whole(self.op.head_dim)
            && (0..3).all(|i| self.dtype(i) == dtype && whole(self.channels(i)) && whole(self.op.offsets[i]))
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
        };
        let mask_type = self.op.mask_operand().map_or(DType::U8, |i| self.dtype(i));
        kernel
            .with("HEAD_DIM", self.op.head_dim)
            .with("MASK", mask)
            .with("MASK_TYPE", type_name(mask_type))
            .with("KEY_LENGTHS", u8::from(self.op.key_lengths))
    }

    /// The first head's first channel of an operand.
    pub(super) fn address(&self, places: &Places, operand: usize) -> DevicePointer {
        places.inputs[operand] + (self.op.offsets[operand] * self.dtype(operand).size()) as u64
    }

    /// The arguments of every kernel but Hopper's: `q, k, v, mask, key_lengths, y, problem`.
    pub(super) fn arguments(&self, places: &Places) -> Result<Vec<Argument>, CudaError> {
        let optional = |operand: Option<usize>| Argument::Pointer(operand.map_or(0, |i| places.inputs[i]));
        Ok(vec![
            Argument::Pointer(self.address(places, 0)),
            Argument::Pointer(self.address(places, 1)),
            Argument::Pointer(self.address(places, 2)),
            optional(self.op.mask_operand()),
            optional(self.op.key_lengths_operand()),
            Argument::Pointer(places.outputs[0]),
            self.bytes()?,
        ])
    }

    /// The struct `Problem` of `common/attention.cuh`.
    pub(super) fn bytes(&self) -> Result<Argument, CudaError> {
        let AttentionExtents { batch, key_batch, queries, keys, positions } = self.extents;
        let width = self.op.heads * self.op.head_dim;
        let mut bytes = Bytes::default();
        for (length, channels) in [
            (queries, self.channels(0)),
            (keys, self.channels(1)),
            (keys, self.channels(2)),
            (queries, width),
        ] {
            bytes.i64(positions * channels);
            bytes.i64(channels);
            bytes.i64(length * positions * channels);
        }
        let mask = self.op.mask_operand().map(|i| &self.call.inputs[i].shape);
        let stride = |axis: usize, elements: usize| match mask {
            Some(shape) if shape[axis] > 1 => elements,
            _ => 0,
        };
        let mask_heads = mask.map_or(1, |shape| shape[1]);
        bytes.i64(stride(0, mask_heads * queries * keys));
        bytes.i64(stride(1, queries * keys));
        for extent in [batch, queries.max(1), keys, self.op.heads, positions.max(1)] {
            bytes.i32(self.counted(extent)?);
        }
        bytes.i32(self.counted(batch.checked_div(key_batch).unwrap_or(1).max(1))?);
        let diagonal = match self.op.mask {
            Mask::Causal { diagonal } => diagonal,
            _ => 0,
        };
        let longest = LONGEST as i64;
        bytes.i32(diagonal.clamp(-longest, longest) as i32);
        bytes.0.extend(self.op.scale.to_le_bytes());
        Ok(Argument::Bytes(bytes.0))
    }

    fn counted(&self, extent: usize) -> Result<i32, CudaError> {
        if extent > LONGEST {
            return Err(CudaError::TooLarge(format!("{}: an extent of {extent}", self.call.layer)));
        }
        Ok(extent as i32)
    }

    /// A number of blocks, where a launch can have so many.
    pub(super) fn blocks(&self, count: usize) -> Result<u32, CudaError> {
        match i32::try_from(count) {
            Ok(count) => Ok(count.max(1) as u32),
            Err(_) => Err(CudaError::TooLarge(format!("{}: a launch of {count} blocks", self.call.layer))),
        }
    }
}

/// A struct as the GPU reads it.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn i64(&mut self, value: usize) {
        self.0.extend((value as i64).to_le_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.0.extend(value.to_le_bytes());
    }
}

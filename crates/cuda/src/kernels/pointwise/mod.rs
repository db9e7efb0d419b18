//! Ops on single elements: activations, gates, sums, products, blends and casts.

mod elementwise;

use kinora_graph::{
    DType, Op,
    op::{Gate, Scale, TemporalBlend},
};

pub(crate) use elementwise::{Elementwise, Operand};

use super::{
    Argument, Call, Implementation, Kernel, KernelSet, Launch, Places, Source,
    geometry::{WIDEST_ACCESS, grid, long, unroll},
    names::{activation_name, type_name},
};
use crate::{Chip, CudaError};

const CAST: Source = Source { path: "pointwise/cast.cu", text: include_str!("cast.cu") };
const MOVED: Source = Source { path: "pointwise/moved.cu", text: include_str!("moved.cu") };

/// Threads of a block, as the sources have them.
const THREADS: usize = 256;

/// The implementations of an op of this family, the one to choose first; none for another op.
pub fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    match call.op {
        Op::Activate(_)
        | Op::Gate(_)
        | Op::Add
        | Op::Mul
        | Op::Scale(_)
        | Op::Blend
        | Op::TemporalBlend(_)
        | Op::Cast(_) => vec![Box::new(Pointwise { plain: set == KernelSet::Baseline, chip: chip.clone() })],
        _ => Vec::new(),
    }
}

/// Whether an op's result may lie over one of its operands. Each thread reads all that it needs of an element before it
/// writes it, and no other thread reads it.
pub fn in_place(op: &Op, operand: usize) -> bool {
    match op {
        Op::Activate(_) | Op::Scale(_) | Op::Cast(_) => operand == 0,
        Op::Add | Op::Mul | Op::Blend | Op::TemporalBlend(_) => operand <= 1,
        _ => false,
    }
}

/// One thread for some elements of the result.
#[derive(Debug)]
struct Pointwise {
    /// One element a thread.
    plain: bool,
    chip: Chip,
}

impl Implementation for Pointwise {
    fn name(&self) -> String {
        if self.plain { "elementwise-plain" } else { "elementwise" }.to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let launch = match call.op {
            Op::Activate(activation) => {
                let function = activation_name(Some(*activation));
                self.broadcast(call, places, format!("{function}(x[0])"), [0.0; 2])?
            }
            Op::Add => self.broadcast(call, places, "x[0] + x[1]".into(), [0.0; 2])?,
            Op::Mul => self.broadcast(call, places, "x[0] * x[1]".into(), [0.0; 2])?,
            Op::Scale(Scale { factor, offset }) => {
                self.broadcast(call, places, "p * x[0] + q".into(), [*factor, *offset])?
            }
            Op::Blend => self.blend(call, places)?,
            Op::TemporalBlend(TemporalBlend { threshold: None }) => {
                self.broadcast(call, places, "x[0] + x[2] * (x[1] - x[0])".into(), [0.0; 2])?
            }
            Op::TemporalBlend(TemporalBlend { threshold: Some(threshold) }) => {
                blend_unless_moved(call, places, *threshold, self.plain)?
            }
            Op::Gate(op) => self.gate(*op, call, places)?,
            Op::Cast(_) => self.cast(call, places)?,
            op => return Err(CudaError::Internal(format!("{op} is no pointwise op"))),
        };
        Ok(vec![launch])
    }
}

impl Pointwise {
    /// A function of operands that broadcast to the result.
    fn broadcast(
        &self,
        call: &Call<'_>,
        places: &Places,
        expression: String,
        numbers: [f32; 2],
    ) -> Result<Launch, CudaError> {
        let result = call.outputs[0];
        let operands = call.inputs.iter().zip(&places.inputs);
        let call = Elementwise {
            expression,
            numbers,
            extents: result.shape.to_vec(),
            operands: operands.map(|(ty, &at)| Operand::broadcast(ty, at, &result.shape)).collect(),
            result: (result.dtype, places.outputs[0]),
        };
        call.launch(self.plain, &self.chip)
    }

    /// `α·a + (1−α)·b`: α is one number, or one for each coordinate of the first axis.
    fn blend(&self, call: &Call<'_>, places: &Places) -> Result<Launch, CudaError> {
        let result = call.outputs[0];
        let operand = |i: usize| Operand::broadcast(call.inputs[i], places.inputs[i], &result.shape);
        let alphas = call.inputs[2];
        let mut strides = vec![0; result.shape.len()];
        strides[0] = usize::from(alphas.shape[0] > 1);
        let alpha = Operand { at: places.inputs[2], dtype: alphas.dtype, strides };
        let call = Elementwise {
            expression: "x[2] * x[0] + (1.0f - x[2]) * x[1]".into(),
            numbers: [0.0; 2],
            extents: result.shape.to_vec(),
            operands: vec![operand(0), operand(1), alpha],
            result: (result.dtype, places.outputs[0]),
        };
        call.launch(self.plain, &self.chip)
    }

    /// The first half of the channels times an activation of the second: one operand, read at two places.
    fn gate(&self, op: Gate, call: &Call<'_>, places: &Places) -> Result<Launch, CudaError> {
        let (x, result) = (call.inputs[0], call.outputs[0]);
        let half = result.shape.channels();
        let operand = |at| Operand { at, dtype: x.dtype, strides: vec![2 * half, 1] };
        let first = places.inputs[0];
        let second = first + (half * x.dtype.size()) as u64;
        let call = Elementwise {
            expression: format!("x[0] * {}(x[1])", activation_name(Some(op.activation))),
            numbers: [0.0; 2],
            extents: vec![result.shape.rows(), half],
            operands: vec![operand(first), operand(second)],
            result: (result.dtype, places.outputs[0]),
        };
        call.launch(self.plain, &self.chip)
    }

    fn cast(&self, call: &Call<'_>, places: &Places) -> Result<Launch, CudaError> {
        let (x, result) = (call.inputs[0], call.outputs[0]);
        let narrowest = x.dtype.size().min(result.dtype.size());
        let width = if self.plain { 1 } else { (WIDEST_ACCESS / narrowest).min(8) };
        let vectors = x.elements().div_ceil(width);
        let unroll = if self.plain { 1 } else { unroll(vectors, THREADS, self.chip.multiprocessors, 4) };
        let mut kernel = Kernel::new(CAST, "cast")
            .with("TYPE", type_name(x.dtype))
            .with("RESULT", type_name(result.dtype))
            .with("VECTOR", width)
            .with("UNROLL", unroll);
        kernel.hot = true;
        let arguments = vec![
            Argument::Pointer(places.outputs[0]),
            Argument::Pointer(places.inputs[0]),
            long(x.elements()),
        ];
        Ok(Launch::new(kernel, grid(vectors.div_ceil(THREADS * unroll))?, THREADS as u32, arguments))
    }
}

/// A blend with the frame before, by how much each pixel has changed.
fn blend_unless_moved(
    call: &Call<'_>,
    places: &Places,
    threshold: f32,
    plain: bool,
) -> Result<Launch, CudaError> {
    let (current, previous) = (call.inputs[0], call.inputs[1]);
    if call.inputs[2].dtype != DType::F32 {
        return Err(CudaError::Internal("the blend's strength is no f32".into()));
    }
    let (pixels, channels) = (current.shape.rows(), current.shape.channels());
    // A pixel of three or four channels takes one thread, one of many channels a warp.
    let lanes = if plain { 1 } else { channels.div_ceil(4).next_power_of_two().min(32) };
    let kernel = Kernel::new(MOVED, "blend_unless_moved")
        .with("CURRENT", type_name(current.dtype))
        .with("PREVIOUS", type_name(previous.dtype))
        .with("LANES", lanes);
    let arguments = vec![
        Argument::Pointer(places.outputs[0]),
        Argument::Pointer(places.inputs[0]),
        Argument::Pointer(places.inputs[1]),
        Argument::Pointer(places.inputs[2]),
        Argument::F32(threshold),
        long(pixels),
        long(channels),
    ];
    Ok(Launch::new(kernel, grid(pixels.div_ceil(THREADS / lanes))?, THREADS as u32, arguments))
}

#[cfg(test)]
mod tests {
    use kinora_graph::{TensorType, op::Activation};

    use super::*;
    use crate::{Architecture, kernels::testing};

    #[test]
    fn a_gate_reads_its_operand_at_two_places() {
        let x = TensorType::new(DType::F16, [3, 64]);
        let op = Op::Gate(Gate { activation: Activation::Gelu });
        let launches = testing::launches(implementations, &op, &[&x]).unwrap();
        let [Argument::Pointer(_), Argument::Bytes(layout), Argument::I64(96), ..] =
            &launches[0].arguments[..]
        else {
            panic!("{:?}", launches[0].arguments)
        };
        let words: Vec<u64> =
            layout.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        let at = testing::place(0);
        assert_eq!(words, [at, at + 64, 64, 8, 64, 8, 3, 4]);
    }

    #[test]
    fn every_op_of_the_family_has_launches_in_both_sets() {
        let x = TensorType::new(DType::BF16, [2, 3, 5, 6]);
        let (one, alphas) = (TensorType::new(DType::F32, [1]), TensorType::new(DType::F16, [2]));
        let cases: [(Op, Vec<&TensorType>); 7] = [
            (Op::Activate(Activation::Silu), vec![&x]),
            (Op::Gate(Gate { activation: Activation::Gelu }), vec![&x]),
            (Op::Add, vec![&x, &one]),
            (Op::Blend, vec![&x, &x, &alphas]),
            (Op::TemporalBlend(TemporalBlend { threshold: None }), vec![&x, &x, &one]),
            (Op::TemporalBlend(TemporalBlend { threshold: Some(0.5) }), vec![&x, &x, &one]),
            (Op::Cast(DType::U8), vec![&x]),
        ];
        for (op, inputs) in &cases {
            testing::launches(implementations, op, inputs).unwrap();
        }
    }

    #[test]
    fn other_ops_are_left_to_other_families() {
        let x = TensorType::new(DType::F16, [3, 64]);
        let call = Call { layer: "x", op: &Op::Softmax, inputs: &[&x], outputs: &[&x] };
        let chip = Chip::typical(Architecture::AMPERE);
        assert!(implementations(&call, &chip, KernelSet::Fused).is_empty());
    }
}

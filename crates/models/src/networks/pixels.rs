//! Pixels as bytes and as numbers.

use kinora_graph::{DType, GraphBuilder, GraphError, ValueId};

/// What the pixels that a network reads or gives are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// Numbers from about −1 to 1, stored as the activations are.
    Signed,
    /// Bytes from 0 to 255.
    Bytes,
}

impl Pixels {
    /// The element type of pixels beside activations of the given type.
    pub(crate) fn dtype(self, activations: DType) -> DType {
        match self {
            Pixels::Signed => activations,
            Pixels::Bytes => DType::U8,
        }
    }
}

/// `factor · x + offset`, rounded to bytes, what is outside brought to the nearer end. In f32: above 128, f16 has eight
/// steps to a whole number and bf16 but one, and a value would be rounded twice.
pub(crate) fn bytes(
    g: &mut GraphBuilder,
    x: ValueId,
    factor: f32,
    offset: f32,
) -> Result<ValueId, GraphError> {
    let x = g.cast("frames.f32", x, DType::F32)?;
    let x = g.scale("frames.range", x, factor, offset)?;
    g.cast("frames.bytes", x, DType::U8)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs};

    use kinora_cpu::{Options, Program};
    use kinora_graph::{Phase, Tensor, TensorType};
    use safetensors::SafeTensors;

    use super::*;
    use crate::synthetic::Synthetic;

    /// `postprocess_video` on values at and between the edges of bytes, from `golden/make_images.py`.
    #[test]
    fn frames_become_diffusers_bytes() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/images/images.safetensors");
        let file = fs::read(file).unwrap();
        let tensors = SafeTensors::deserialize(&file).unwrap();
        let values = tensors.tensor("frames/values").unwrap();
        let values: Vec<f32> =
            values.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let run = |values: &[f32]| {
            let mut g = GraphBuilder::new("bytes");
            let x = g.input("x", TensorType::new(DType::F32, [values.len()]), Phase::Step).unwrap();
            let y = bytes(&mut g, x, 127.5, 127.5).unwrap();
            g.output("y", y).unwrap();
            let mut program = Program::new(&g.finish(), &Synthetic, Options::default()).unwrap();
            let inputs =
                HashMap::from([("x".to_owned(), Tensor::from_slice([values.len()], values).unwrap())]);
            program.run(&inputs.into_iter().collect()).unwrap().remove("y").unwrap()
        };
        assert_eq!(run(&values).bytes(), tensors.tensor("frames/bytes").unwrap().data());
        assert_eq!(run(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]).bytes(), [0, 255, 0]);
    }
}

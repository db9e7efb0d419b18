//! Weights made from their names alone: networks run, are compared and are timed without a download.
//!
//! `golden/synthetic.py` computes the very same numbers, so that a fixture made with PyTorch need not hold its weights.

mod folder;
mod image;
mod video;

pub use folder::SyntheticError;
pub use image::SyntheticImageModel;
pub use video::SyntheticModel;

use kinora_graph::{ParameterError, Parameters, Tensor, TensorType};

use crate::weights::{channels_last, file_shape};

/// A source that has every weight it is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Synthetic;

impl Parameters for Synthetic {
    fn parameter(&self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, ParameterError> {
        let file = tensor(name, &file_shape(&ty.shape, &[]));
        let values = match *ty.shape {
            [_, frames, height, width, channels] => {
                let taps = frames * height * width;
                let mut moved = vec![0.0; file.len()];
                channels_last(&file, channels * taps, taps, &mut moved);
                moved
            }
            _ => file,
        };
        let tensor = Tensor::from_f32(ty.dtype, ty.shape.clone(), &values).map_err(ParameterError::new)?;
        Ok(Some(tensor))
    }
}

/// The values of a tensor of a weights file, in the file's order: products keep the variance of what they multiply, norms
/// scale by about one.
pub fn tensor(name: &str, shape: &[usize]) -> Vec<f32> {
    let fan_in: usize = shape.iter().skip(1).product();
    let value = |u: f64| match shape.len() {
        0 | 1 if name.ends_with(".weight") => 1.0 + 0.2 * u,
        0 | 1 => 0.2 * u,
        _ => u * (3.0 / fan_in as f64).sqrt(),
    };
    uniform(name).map(|u| value(u) as f32).take(shape.iter().product()).collect()
}

/// Numbers in [-1, 1) with 24 random bits each: SplitMix64, started from the name's FNV-1a hash.
pub fn uniform(name: &str) -> impl Iterator<Item = f64> + use<> {
    let hash = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let mut state = name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let z = z ^ (z >> 31);
        (z >> 40) as f64 / f64::from(1 << 23) - 1.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinora_graph::DType;

    /// The values that `golden/synthetic.py` gives.
    #[test]
    fn the_numbers_are_those_of_the_script() {
        assert_eq!(
            tensor("conv_in.weight", &[2, 3, 1, 1]),
            [0.14250004, 0.7665291, -0.819942, -0.3953755, -0.34525788, -0.6831502]
        );
        assert_eq!(tensor("norm.weight", &[3]), [0.9051791, 0.8107659, 1.0282092]);
        assert_eq!(tensor("norm.bias", &[3]), [0.13883813, 0.065735795, 0.1738435]);
    }

    #[test]
    fn a_convolution_is_turned_to_the_graphs_layout() {
        let ty = TensorType::new(DType::F32, [2, 1, 2, 3, 4]);
        let file = tensor("w", &[2, 4, 2, 3]);
        let graph = Synthetic.parameter("w", &ty).ok().flatten().map(|t| t.to_f32()).unwrap_or_default();
        let mut expected = vec![0.0; file.len()];
        for (i, value) in file.iter().enumerate() {
            let (out, channel, row, column) = (i / 24, i / 6 % 4, i / 3 % 2, i % 3);
            expected[((out * 2 + row) * 3 + column) * 4 + channel] = *value;
        }
        assert_eq!(graph, expected);
    }
}

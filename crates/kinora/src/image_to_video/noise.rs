//! The noise of a clip, drawn in the order and layout in which diffusers draws it.

use kinora_graph::DType;
use kinora_models::{noise::TorchGenerator, weights::channels_last};

/// All noise of a clip, from one generator: first for the photo, then for the initial latents, then for the steps.
pub(crate) struct Noise {
    generator: TorchGenerator,
}

impl Noise {
    pub fn new(seed: u64) -> Self {
        Noise { generator: TorchGenerator::new(seed) }
    }

    /// Noise for images: `torch.randn(images, channels, height, width)`, as `[images, height, width, channels]`. PyTorch's
    /// numbers depend on the element type.
    pub fn draw(&mut self, dtype: DType, [images, height, width, channels]: [usize; 4]) -> Vec<f32> {
        let count = images * height * width * channels;
        let numbers = match dtype {
            DType::F16 => self.generator.normal_f16(count).into_iter().map(f32::from).collect(),
            DType::BF16 => self.generator.normal_bf16(count).into_iter().map(f32::from).collect(),
            _ => self.generator.normal(count),
        };
        let pixels = height * width;
        let mut last = vec![0.0; count];
        channels_last(&numbers, channels * pixels, pixels, &mut last);
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_last() {
        let [images, height, width, channels] = [2, 1, 3, 2];
        let planes = TorchGenerator::new(7).normal(images * channels * height * width);
        let drawn = Noise::new(7).draw(DType::F32, [images, height, width, channels]);
        let expected = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11].map(|place| planes[place]);
        assert_eq!(drawn, expected);
    }
}

//! The noise of a clip, drawn in the order and layout in which diffusers draws it.

use kinora_graph::DType;
use kinora_models::noise::TorchGenerator;

/// All noise of a clip, from one generator: first that of the photo, then the first latents, then that of the steps.
pub(super) struct Noise {
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
        channels_last(&numbers, channels, height * width)
    }
}

/// Images with one channel after the other become images with one pixel after the other.
fn channels_last(planes: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    let images = planes.chunks_exact((channels * pixels).max(1));
    images
        .flat_map(|image| (0..pixels).flat_map(move |p| (0..channels).map(move |c| image[c * pixels + p])))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_last() {
        let planes = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 30.0, 31.0];
        assert_eq!(channels_last(&planes, 2, 2), [0.0, 10.0, 1.0, 11.0, 20.0, 30.0, 21.0, 31.0]);
    }
}

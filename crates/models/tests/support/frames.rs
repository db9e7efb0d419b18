//! Frames of bytes, and the noise that they are drawn from.

use kinora_graph::Tensor;
use kinora_models::noise::TorchGenerator;

/// Normal numbers for latents of a height, width and channels, in that order. PyTorch draws them with the channels first.
pub fn latents_of(generator: &mut TorchGenerator, [height, width, channels]: [usize; 3]) -> Vec<f32> {
    let drawn = generator.normal(channels * height * width);
    (0..drawn.len()).map(|i| drawn[i % channels * height * width + i / channels]).collect()
}

/// Panics unless bytes are at most 1 off and 99.9 % equal.
pub fn assert_frame(label: &str, expected: &Tensor, got: &Tensor) {
    assert_eq!(expected.shape(), got.shape(), "{label}");
    let pairs = expected.bytes().iter().zip(got.bytes());
    let differences: Vec<u8> = pairs.map(|(a, b)| a.abs_diff(*b)).collect();
    let worst = differences.iter().max().copied().unwrap();
    let unequal = differences.iter().filter(|&&difference| difference > 0).count();
    println!("{label}: {unequal} of {} bytes differ, by at most {worst}", differences.len());
    assert!(worst <= 1, "{label}: a byte is {worst} off");
    assert!(unequal * 1000 <= differences.len(), "{label}: {unequal} bytes differ");
}

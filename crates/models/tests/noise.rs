//! Noise against PyTorch's CPU generator (`golden/make_noise.py`): equal to the last bit.
#![allow(clippy::unwrap_used)]

mod support;

use kinora_models::noise::TorchGenerator;
use support::fixtures;

const SEEDS: [u64; 7] = [0, 1, 42, 1_234_567, u32::MAX as u64, (1 << 32) + 5, u64::MAX];
const CONTINUED: [usize; 10] = [3, 20, 1, 16, 5, 17, 2, 100, 15, 33];
const LARGE: usize = 100_000;
const STRIDE: usize = 251;

/// Compares the bytes of everything drawn in one type.
fn check<T: Copy>(name: &str, draw: fn(&mut TorchGenerator, usize) -> Vec<T>, bytes: fn(T) -> Vec<u8>) {
    let golden = fixtures::results("noise");
    let mut compared = 0;
    for seed in SEEDS {
        let fresh = |count| draw(&mut TorchGenerator::new(seed), count);
        let mut one = TorchGenerator::new(seed);
        let cases: [(&str, Vec<T>); 4] = [
            ("each", (1..=40).chain([64]).flat_map(fresh).collect()),
            ("continued", CONTINUED.iter().flat_map(|&count| draw(&mut one, count)).collect()),
            ("thousand", fresh(1000).into_iter().step_by(3).collect()),
            ("large", fresh(LARGE).into_iter().step_by(STRIDE).collect()),
        ];
        for (case, numbers) in cases {
            let key = format!("{name}/{seed}/{case}");
            let expected = golden[&key].bytes();
            let got: Vec<Vec<u8>> = numbers.into_iter().map(bytes).collect();
            let size = size_of::<T>();
            assert_eq!(got.len() * size, expected.len(), "{key}");
            let wrong = got.iter().zip(expected.chunks_exact(size)).filter(|(a, b)| a != b).count();
            assert_eq!(wrong, 0, "{key}: {wrong} of {} numbers differ", got.len());
            compared += got.len();
        }
    }
    assert!(compared > 10_000, "only {compared} numbers were compared");
}

#[test]
fn f32_noise_is_torchs() {
    check("f32", TorchGenerator::normal, |x: f32| x.to_le_bytes().to_vec());
}

#[test]
fn f16_noise_is_torchs() {
    check("f16", TorchGenerator::normal_f16, |x: half::f16| x.to_le_bytes().to_vec());
}

#[test]
fn bf16_noise_is_torchs() {
    check("bf16", TorchGenerator::normal_bf16, |x: half::bf16| x.to_le_bytes().to_vec());
}

#[test]
fn nothing_is_drawn_for_nothing() {
    let mut generator = TorchGenerator::new(7);
    assert!(generator.normal(0).is_empty());
    assert_eq!(generator.normal(16), TorchGenerator::new(7).normal(16));
}

//! What the tests of several modules share: numbers that a seed determines, and storage types by name.

use half::{bf16, f16};
use kinora_graph::{DType, Shape, Tensor};

use crate::{gemm::Values, simd::Float};

/// Numbers that a seed determines (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// In -1..1.
    pub(crate) fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Close to normal: the sum of four uniform numbers, scaled.
    pub(crate) fn normal(&mut self) -> f32 {
        let uniform = |bits: u64| bits as f64 / u64::MAX as f64 - 0.5;
        ((0..4).map(|_| uniform(self.next())).sum::<f64>() * 3f64.sqrt()) as f32
    }

    /// A tensor of [`Random::normal`] numbers.
    pub(crate) fn floats(&mut self, dtype: DType, shape: &[usize], mean: f32, deviation: f32) -> Tensor {
        let count = Shape::from(shape).elements();
        let values: Vec<f32> = (0..count).map(|_| mean + deviation * self.normal()).collect();
        Tensor::from_f32(dtype, shape, &values).unwrap()
    }

    /// A tensor of [`Random::uniform`] numbers, times a magnitude.
    pub(crate) fn tensor(&mut self, dtype: DType, shape: &[usize], magnitude: f32) -> Tensor {
        let values: Vec<f32> = self.vector(Shape::from(shape).elements());
        let scaled: Vec<f32> = values.iter().map(|x| x * magnitude).collect();
        Tensor::from_f32(dtype, shape, &scaled).unwrap()
    }

    /// [`Random::uniform`] numbers.
    pub(crate) fn vector<E: Float>(&mut self, length: usize) -> Vec<E> {
        (0..length).map(|_| E::from_f32(self.uniform())).collect()
    }
}

/// A storage type with its variant of [`Values`].
pub(crate) trait Storage: Float {
    /// The relative rounding of a stored result.
    const ROUNDING: f64;
    fn values(values: &[Self]) -> Values<'_>;
}

macro_rules! storage {
    ($type:ty, $variant:ident, $rounding:expr) => {
        impl Storage for $type {
            const ROUNDING: f64 = $rounding;
            fn values(values: &[Self]) -> Values<'_> {
                Values::$variant(values)
            }
        }
    };
}

storage!(f32, F32, 6e-8);
storage!(f16, F16, 5e-4);
storage!(bf16, BF16, 4e-3);

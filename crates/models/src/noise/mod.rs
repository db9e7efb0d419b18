//! Normal noise equal to PyTorch's CPU generator, so that a seed means the same clip here and there.
//!
//! PyTorch has two ways to make normal numbers, and which one runs depends on how many are asked for in one call:
//!
//! - fewer than [`BLOCK`]: Box–Muller in f64, one number at a time, where the second of a pair is kept for the next
//!   such call;
//! - otherwise: uniforms for the whole tensor first, then Box–Muller over blocks of [`BLOCK`] in the tensor's type.
//!   If the count is not a multiple of the block, the last block is drawn again over the end of the one before.
//!
//! So the sizes of the calls are part of the result, and a caller must ask for the tensors that PyTorch's code asks for,
//! in its order and in its layout.

mod mersenne_twister;
mod transform;

use half::{bf16, f16};

use mersenne_twister::MersenneTwister;
use transform::{HALF_BLOCK, fill_block};

/// How many numbers the vectorised form makes at a time, and how many must be asked for before it is used.
pub const BLOCK: usize = 2 * HALF_BLOCK;

/// `torch.Generator` on the CPU: the Mersenne Twister and the normal number it holds back.
#[derive(Clone, Debug)]
pub struct TorchGenerator {
    engine: MersenneTwister,
    /// The second of the last pair made one at a time.
    held_back: Option<f64>,
}

impl TorchGenerator {
    /// `torch.Generator().manual_seed(seed)`. As in PyTorch, only the low 32 bits of the seed count.
    pub fn new(seed: u64) -> Self {
        TorchGenerator { engine: MersenneTwister::new(seed as u32), held_back: None }
    }

    /// `torch.randn(count, dtype=torch.float32)`.
    pub fn normal(&mut self, count: usize) -> Vec<f32> {
        if count < BLOCK {
            return (0..count).map(|_| self.one_at_a_time() as f32).collect();
        }
        self.blocks::<f32>(count)
    }

    /// `torch.randn(count, dtype=torch.float16)`: other numbers than in f32, not those rounded.
    pub fn normal_f16(&mut self, count: usize) -> Vec<f16> {
        if count < BLOCK {
            return (0..count).map(|_| f16::from_f32(self.one_at_a_time() as f32)).collect();
        }
        self.blocks::<f16>(count).into_iter().map(f16::from_f32).collect()
    }

    /// `torch.randn(count, dtype=torch.bfloat16)`: other numbers than in f32, not those rounded.
    pub fn normal_bf16(&mut self, count: usize) -> Vec<bf16> {
        if count < BLOCK {
            return (0..count).map(|_| bf16::from_f32(self.one_at_a_time() as f32)).collect();
        }
        self.blocks::<bf16>(count).into_iter().map(bf16::from_f32).collect()
    }

    fn one_at_a_time(&mut self) -> f64 {
        if let Some(number) = self.held_back.take() {
            return number;
        }
        let angle = std::f64::consts::TAU * self.uniform_f64();
        let radius = (-2.0 * (-self.uniform_f64()).ln_1p()).sqrt();
        self.held_back = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// Uniform in [0, 1) with 53 bits; the first word drawn is the high one.
    fn uniform_f64(&mut self) -> f64 {
        let high = u64::from(self.engine.draw());
        let word = high << 32 | u64::from(self.engine.draw());
        (word & ((1 << f64::MANTISSA_DIGITS) - 1)) as f64 / (1u64 << f64::MANTISSA_DIGITS) as f64
    }

    /// `count` numbers, at least a block of them, as f32 values of the type.
    fn blocks<T: transform::Element>(&mut self, count: usize) -> Vec<f32> {
        let mut uniform = || {
            let bits = self.engine.draw() & ((1 << T::DIGITS) - 1);
            bits as f32 / (1u32 << T::DIGITS) as f32
        };
        let mut numbers: Vec<f32> = (0..count).map(|_| uniform()).collect();
        for block in numbers.as_chunks_mut().0 {
            fill_block::<T>(block);
        }
        if let (false, Some(last)) = (count.is_multiple_of(BLOCK), numbers.last_chunk_mut()) {
            last.fill_with(uniform);
            fill_block::<T>(last);
        }
        numbers
    }
}

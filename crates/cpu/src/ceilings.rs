//! The best this CPU can do, measured by loops that do nothing else.

use std::{hint::black_box, time::Instant};

use kinora_graph::{DType, Op, Tensor, TensorType, tensor::AlignedBytes};
use kinora_profile::Ceilings;
use rayon::prelude::*;

use crate::{
    fast::run_on_tensors,
    simd::{Isa, Kernel, Simd},
};

/// The minimum number of runs of each loop; the best time counts, since any disturbance makes a run slower.
const ROUNDS: usize = 5;

/// How long all cores are tried: a core that was asleep or busy may take a few tenths of a second to become available.
const SECONDS: f64 = 0.5;

/// Independent sums: enough to hide the latency of a multiply-add on two units.
const CHAINS: usize = 10;

/// Multiply-adds of each sum.
const LENGTH: usize = 200_000;

/// Bytes that are read: several times what the caches of a large machine hold.
const BYTES: usize = 512 << 20;

struct MultiplyAdds;

impl Kernel for MultiplyAdds {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let (factor, addend) = (simd.splat(black_box(0.999)), simd.splat(black_box(0.001)));
        let mut sums = [simd.splat(black_box(1.0)); CHAINS];
        for _ in 0..LENGTH {
            for sum in &mut sums {
                *sum = simd.mul_add(*sum, factor, addend);
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum(sum)).sum()
    }
}

struct Lanes;

impl Kernel for Lanes {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> usize {
        S::LANES
    }
}

/// Measures all cores together, and how long a layer with next to nothing to do takes. Takes about a second, and needs
/// half a gigabyte of memory meanwhile; `None` if that cannot be allocated.
pub fn measure(isa: Isa) -> Option<Ceilings> {
    let threads = rayon::current_num_threads();
    let flops_per_second = arithmetic(isa);
    let mut buffer = AlignedBytes::try_zeroed(BYTES)?;
    buffer.fill(1);
    let buffer: &[u64] = bytemuck::cast_slice(&buffer);
    // Several streams per thread keep more memory requests in flight than one does.
    let share = buffer.len().div_ceil(4 * threads);
    let reading = best(SECONDS, || {
        let sum = |part: &[u64]| part.iter().fold(0u64, |sum, &number| sum.wrapping_add(number));
        let sums: u64 = buffer.par_chunks(share).map(sum).reduce(|| 0, u64::wrapping_add);
        black_box(sums);
    });
    let number = Tensor::zeros(TensorType::new(DType::F32, [1]));
    let starting = best(0.0, || {
        black_box(run_on_tensors(isa, "sum", &Op::Add, &[&number, &number]).is_ok());
    });
    Some(Ceilings {
        flops_per_second,
        bytes_per_second: BYTES as f64 / reading,
        launch_nanoseconds: starting * 1e9,
    })
}

/// The floating-point operations per second of all cores together, measured for half a second. It also shows how fast
/// they are clocked now.
pub fn arithmetic(isa: Isa) -> f64 {
    let operations = 2 * CHAINS * LENGTH * isa.dispatch(Lanes) * rayon::current_num_threads();
    let seconds = best(SECONDS, || {
        let sums = rayon::broadcast(|_| isa.dispatch(MultiplyAdds));
        black_box(sums);
    });
    operations as f64 / seconds
}

/// The seconds of the fastest round. Rounds continue for at least the given time.
fn best(at_least: f64, mut work: impl FnMut()) -> f64 {
    let (mut best, begin, mut rounds) = (f64::INFINITY, Instant::now(), 0);
    while rounds < ROUNDS || begin.elapsed().as_secs_f64() < at_least {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
        rounds += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_computes_the_same_sums() {
        let sums: Vec<f32> = Isa::available()
            .iter()
            .map(|isa| isa.dispatch(MultiplyAdds) / isa.dispatch(Lanes) as f32)
            .collect();
        // x ← 0.999·x + 0.001 stays at 1, except for rounding.
        assert!(sums.iter().all(|sum| (sum - CHAINS as f32).abs() < 1e-2), "{sums:?}");
    }

    #[test]
    fn ceilings_are_numbers() {
        let Some(ceilings) = measure(Isa::detect()) else { return };
        let numbers = [ceilings.flops_per_second, ceilings.bytes_per_second, ceilings.launch_nanoseconds];
        assert!(numbers.iter().all(|number| number.is_finite() && *number > 0.0), "{ceilings:?}");
    }
}

//! What buffers hold before the first launch: fresh numbers by seed, or a file of NumPy's.

pub mod npy;
mod random;

use crate::Element;

pub use random::Random;

/// How the numbers of a buffer are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Evenly between two numbers.
    Uniform(f64, f64),
    /// Normally, with a mean and a deviation.
    Normal(f64, f64),
    /// Whole numbers from one to another, without the latter.
    Integers(f64, f64),
    /// All the same.
    Constant(f64),
    /// 0, 1, 2, …
    Index,
    /// Zeros of both signs, infinities, NaN, the smallest and largest numbers, among normal ones.
    Special,
    /// Ascending, between two numbers.
    Sorted(f64, f64),
    /// 0 to the last index, each once, in random order.
    Permutation,
}

/// The numbers of a buffer, as the bytes of its elements. Each seed gives others, unless the distribution leaves no choice.
pub fn numbers(
    distribution: Distribution,
    element: Element,
    count: usize,
    seed: u64,
    stream: u64,
) -> Vec<u8> {
    let mut random = Random::new(seed, stream);
    let mut bytes = Vec::with_capacity(count.saturating_mul(element.bytes()));
    let mut store = |number: f64| bytes.extend_from_slice(&element.store(number));
    match distribution {
        Distribution::Uniform(low, high) => {
            for _ in 0..count {
                let number = low + (high - low) * random.unit();
                store(if element.is_whole() { number.floor() } else { number });
            }
        }
        Distribution::Normal(mean, deviation) => {
            for _ in 0..count {
                let number = mean + deviation * random.normal();
                store(if element.is_whole() { number.round() } else { number });
            }
        }
        Distribution::Integers(low, high) => {
            let span = (high - low).ceil().max(1.0) as u64;
            (0..count).for_each(|_| store(low + random.below(span) as f64));
        }
        Distribution::Constant(number) => (0..count).for_each(|_| store(number)),
        Distribution::Index => (0..count).for_each(|at| store(at as f64)),
        Distribution::Special => {
            let special = special(element);
            for _ in 0..count {
                let number = match random.below(4) {
                    0 => special[random.below(special.len() as u64) as usize],
                    _ => random.normal(),
                };
                store(number);
            }
        }
        Distribution::Sorted(low, high) => {
            let mut numbers: Vec<f64> = (0..count).map(|_| low + (high - low) * random.unit()).collect();
            numbers.sort_by(f64::total_cmp);
            numbers
                .into_iter()
                .for_each(|number| store(if element.is_whole() { number.floor() } else { number }));
        }
        Distribution::Permutation => {
            let mut order: Vec<usize> = (0..count).collect();
            for last in (1..count).rev() {
                order.swap(last, random.below(last as u64 + 1) as usize);
            }
            order.into_iter().for_each(|at| store(at as f64));
        }
    }
    bytes
}

/// Numbers that kernels forget.
fn special(element: Element) -> Vec<f64> {
    match element {
        Element::I8 => vec![0.0, -1.0, 127.0, -128.0],
        Element::U8 => vec![0.0, 1.0, 255.0],
        Element::I16 => vec![0.0, -1.0, 32767.0, -32768.0],
        Element::U16 => vec![0.0, 1.0, 65535.0],
        Element::I32 => vec![0.0, -1.0, f64::from(i32::MAX), f64::from(i32::MIN)],
        Element::U32 => vec![0.0, 1.0, f64::from(u32::MAX)],
        // What f64 holds exactly, because results are compared in it.
        Element::I64 => vec![0.0, -1.0, 9_007_199_254_740_991.0, -9_007_199_254_740_991.0],
        Element::U64 => vec![0.0, 1.0, 9_007_199_254_740_991.0],
        Element::F16 | Element::Bf16 | Element::F32 | Element::F64 => {
            let (smallest, largest) = match element {
                Element::F16 => (5.960_464_477_539_063e-8, 65504.0),
                Element::Bf16 => (9.183_549_615_799_121e-41, 3.389_531_389_251_535e38),
                Element::F32 => (f64::from(f32::from_bits(1)), f64::from(f32::MAX)),
                _ => (f64::from_bits(1), f64::MAX),
            };
            vec![
                0.0,
                -0.0,
                1.0,
                -1.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                smallest,
                -smallest,
                largest,
                -largest,
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(distribution: Distribution, seed: u64) -> Vec<f64> {
        Element::F32.load(&numbers(distribution, Element::F32, 1000, seed, 0))
    }

    #[test]
    fn every_distribution_keeps_its_promise() {
        let within = |numbers: &[f64], low: f64, high: f64| numbers.iter().all(|x| (low..=high).contains(x));
        let uniform = f32s(Distribution::Uniform(-2.0, 3.0), 1);
        assert!(
            within(&uniform, -2.0, 3.0)
                && uniform.iter().any(|&x| x < -1.0)
                && uniform.iter().any(|&x| x > 2.0)
        );
        let whole = f32s(Distribution::Integers(-2.0, 3.0), 1);
        assert!(within(&whole, -2.0, 2.0) && whole.iter().all(|x| x.fract() == 0.0) && whole.contains(&2.0));
        assert!(f32s(Distribution::Constant(4.0), 1).iter().all(|&x| x == 4.0));
        assert!(f32s(Distribution::Index, 1).iter().enumerate().all(|(at, &x)| x == at as f64));
        let special = f32s(Distribution::Special, 1);
        assert!(special.iter().any(|x| x.is_nan()) && special.contains(&f64::INFINITY));
        assert!(special.iter().any(|x| *x == 0.0 && x.is_sign_negative()));
        assert!(f32s(Distribution::Sorted(0.0, 9.0), 1).is_sorted());
        let mut permuted = f32s(Distribution::Permutation, 1);
        assert!(!permuted.is_sorted());
        permuted.sort_by(f64::total_cmp);
        assert!(permuted.iter().enumerate().all(|(at, &x)| x == at as f64));
    }

    #[test]
    fn every_seed_gives_other_numbers() {
        for distribution in [
            Distribution::Uniform(0.0, 1.0),
            Distribution::Normal(0.0, 1.0),
            Distribution::Integers(0.0, 1e6),
            Distribution::Sorted(0.0, 1.0),
            Distribution::Permutation,
        ] {
            assert_ne!(f32s(distribution, 1), f32s(distribution, 2), "{distribution:?}");
            assert_eq!(f32s(distribution, 1), f32s(distribution, 1));
        }
        for (_, element, bytes) in Element::ALL {
            assert_eq!(numbers(Distribution::Special, element, 77, 1, 1).len(), 77 * bytes);
        }
    }
}

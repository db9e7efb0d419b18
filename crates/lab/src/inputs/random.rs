//! Pseudorandom numbers: the same on every machine.

/// SplitMix64: a counter whose bits are mixed. Any seed is as good as any other.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for a buffer: seeds and streams that differ give numbers that have nothing to do with each other.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ 0x6B69_6E6F_7261_6C61);
        let mixed = random.bits();
        Random(mixed ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound.max(1))) >> 64) as u64
    }

    /// A normally distributed number, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distributed_as_they_are_called() {
        let mut random = Random::new(1, 2);
        let count = 40_000;
        let uniform: Vec<f64> = (0..count).map(|_| random.unit()).collect();
        let mean = uniform.iter().sum::<f64>() / f64::from(count);
        assert!((mean - 0.5).abs() < 0.01 && uniform.iter().all(|x| (0.0..1.0).contains(x)), "{mean}");
        let normal: Vec<f64> = (0..count).map(|_| random.normal()).collect();
        let mean = normal.iter().sum::<f64>() / f64::from(count);
        let variance = normal.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(count);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        let dice: Vec<u64> = (0..6000).map(|_| random.below(6)).collect();
        assert!((0..6).all(|face| (800..1200).contains(&dice.iter().filter(|&&die| die == face).count())));
    }

    #[test]
    fn seeds_and_streams_differ() {
        let first = |seed, stream| Random::new(seed, stream).bits();
        let all: std::collections::HashSet<u64> =
            (0..10).flat_map(|s| (0..10).map(move |t| first(s, t))).collect();
        assert_eq!(all.len(), 100);
        assert_eq!(first(3, 4), first(3, 4));
    }
}

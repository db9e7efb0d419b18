//! The Mersenne Twister MT19937.

const WORDS: usize = 624;
/// How far ahead lies the word that a new one is mixed with.
const AHEAD: usize = 397;

/// The generator's state.
#[derive(Clone, Debug)]
pub(super) struct MersenneTwister {
    words: [u32; WORDS],
    /// The next word to give out; all are renewed when it reaches the end.
    next: usize,
}

impl MersenneTwister {
    pub(super) fn new(seed: u32) -> Self {
        let mut words = [seed; WORDS];
        for i in 1..WORDS {
            let before = words[i - 1];
            words[i] = (before ^ before >> 30).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        MersenneTwister { words, next: WORDS }
    }

    /// The next 32 bits.
    pub(super) fn draw(&mut self) -> u32 {
        if self.next == WORDS {
            self.renew();
        }
        let mut word = self.words[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    fn renew(&mut self) {
        for i in 0..WORDS {
            let joined = self.words[i] & 0x8000_0000 | self.words[(i + 1) % WORDS] & 0x7fff_ffff;
            let twist = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[i] = self.words[(i + AHEAD) % WORDS] ^ joined >> 1 ^ twist;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C++ standard gives the ten thousandth number of `std::mt19937` with its default seed.
    #[test]
    fn the_ten_thousandth_number_is_the_standards() {
        let mut engine = MersenneTwister::new(5489);
        let last = (0..10_000).map(|_| engine.draw()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}

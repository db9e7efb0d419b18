//! Numbers for the changes.

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u32) -> Random {
        Random(u64::from(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % (n.max(1) as u64)) as usize
    }

    /// One of several.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(self.below(choices.len()))
    }

    /// An integer that programs stumble over.
    pub fn hostile_integer(&mut self) -> u64 {
        match self.below(4) {
            // Next to a power of two.
            0 => (1u64 << self.below(64)).wrapping_add(self.next() % 3).wrapping_sub(1),
            1 => u64::MAX - self.next() % 2,
            2 => self.next() % 16,
            _ => self.next() >> self.below(64),
        }
    }
}

//! What the lanes of a warp have seen of each other, if only some of them synchronise.

/// For each lane, the time before which everything that each other lane did is ordered before it.
#[derive(Clone, Debug)]
pub(crate) struct LaneClocks {
    seen: [[u32; 32]; 32],
}

impl LaneClocks {
    /// All lanes synchronised at a time.
    pub fn new(last_sync: u32) -> LaneClocks {
        LaneClocks { seen: [[last_sync; 32]; 32] }
    }

    /// Lanes synchronise: each has now seen what all of them did and had seen.
    pub fn synchronise(&mut self, lanes: u32, now: u32) {
        let within = |lane: &usize| lanes >> lane & 1 == 1;
        let mut row = [0; 32];
        for lane in (0..32).filter(within) {
            for (seen, &theirs) in row.iter_mut().zip(&self.seen[lane]) {
                *seen = theirs.max(*seen);
            }
        }
        for lane in (0..32).filter(within) {
            row[lane] = now;
        }
        for lane in (0..32).filter(within) {
            self.seen[lane] = row;
        }
    }

    /// Whether what `other` did at a time is not ordered before what `lane` does now.
    pub fn misses(&self, lane: usize, other: usize, at: u32) -> bool {
        at >= self.seen[lane & 31][other & 31]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_handed_on() {
        let mut clocks = LaneClocks::new(3);
        clocks.synchronise(0b0011, 5);
        clocks.synchronise(0b0110, 7);
        // Lane 2 has seen lane 1 up to 7, and lane 0 only up to its barrier with lane 1.
        assert!(!clocks.misses(2, 1, 6) && clocks.misses(2, 1, 7));
        assert!(!clocks.misses(2, 0, 4) && clocks.misses(2, 0, 5));
        // Lane 0 has not seen lane 2, and nobody has seen lane 3 since all synchronised.
        assert!(clocks.misses(0, 2, 3) && !clocks.misses(0, 2, 2));
        assert!((0..3).all(|lane| clocks.misses(lane, 3, 3)));
    }
}

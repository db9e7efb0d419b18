//! Frames that are so much like the one before that they need not be drawn.

use kinora_models::image::RgbImage;

/// The most frames in a row that are left out.
const MOST_IN_A_ROW: usize = 10;

/// Says which frames are like the last one that was drawn. The same frames always give the same answers.
///
/// Two frames are compared by the cosine between their bytes. The nearer it is to 1, the larger is the share of frames that are left
/// out: none up to the threshold, all but one in eleven if nothing changes.
#[derive(Clone, Debug)]
pub struct SimilarFrames {
    threshold: f64,
    drawn: Option<RgbImage>,
    /// The share of a frame that could have been left out so far and was not.
    owed: f64,
    in_a_row: usize,
}

impl SimilarFrames {
    /// With the cosine above which frames are left out, such as 0.98. `None` unless it is above 0 and below 1.
    pub fn new(threshold: f64) -> Option<Self> {
        let fits = threshold > 0.0 && threshold < 1.0;
        fits.then_some(SimilarFrames { threshold, drawn: None, owed: 0.0, in_a_row: 0 })
    }

    /// Forgets the last frame, because the next result will differ whatever comes in.
    pub fn forget(&mut self) {
        *self = SimilarFrames { threshold: self.threshold, drawn: None, owed: 0.0, in_a_row: 0 };
    }

    /// Whether the frame may be left out, and the last result shown again. If not, it is remembered as drawn.
    pub fn skips(&mut self, frame: &RgbImage) -> bool {
        let like = match &self.drawn {
            Some(drawn) if drawn.size() == frame.size() => cosine(drawn.bytes(), frame.bytes()),
            _ => 0.0,
        };
        let share = (1.0 - (1.0 - like) / (1.0 - self.threshold)).max(0.0);
        // At most one frame: a long still would otherwise be made up for when it moves again.
        self.owed = if share > 0.0 { (self.owed + share).min(1.0) } else { 0.0 };
        // Equal frames may come out a rounding error short of 1.
        if self.owed > 1.0 - 1e-6 && self.in_a_row < MOST_IN_A_ROW {
            self.owed = (self.owed - 1.0).max(0.0);
            self.in_a_row += 1;
            return true;
        }
        self.in_a_row = 0;
        self.drawn = Some(frame.clone());
        false
    }
}

fn cosine(a: &[u8], b: &[u8]) -> f64 {
    let dot = |a: &[u8], b: &[u8]| -> f64 {
        // Sums of a row fit into 32 bits.
        let rows = a.chunks(1 << 15).zip(b.chunks(1 << 15));
        let row =
            |(a, b): (&[u8], &[u8])| a.iter().zip(b).map(|(&a, &b)| u32::from(a) * u32::from(b)).sum::<u32>();
        rows.map(|rows| f64::from(row(rows))).sum()
    };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { dot(a, b) / lengths } else { f64::from(u8::from(a == b)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(grey: u8, dot: u8) -> RgbImage {
        let mut pixels = vec![grey; 16 * 16 * 3];
        pixels[..96].fill(dot);
        RgbImage::new(16, 16, pixels).unwrap()
    }

    #[test]
    fn a_still_picture_is_drawn_once_in_eleven_frames() {
        let mut similar = SimilarFrames::new(0.98).unwrap();
        let skipped: Vec<bool> = (0..23).map(|_| similar.skips(&picture(100, 100))).collect();
        assert!(!skipped[0] && skipped[1..=10].iter().all(|skip| *skip));
        assert!(!skipped[11] && skipped[12..=21].iter().all(|skip| *skip));
        assert!(!skipped[22]);
    }

    #[test]
    fn what_changes_is_drawn() {
        let mut similar = SimilarFrames::new(0.98).unwrap();
        assert!(!similar.skips(&picture(100, 0)));
        assert!(!similar.skips(&picture(20, 255)));
        assert!(!similar.skips(&picture(100, 0)));
        assert!(!similar.skips(&RgbImage::new(1, 1, vec![1; 3]).unwrap()));
    }

    #[test]
    fn what_changes_a_little_is_drawn_less_often_and_always_in_the_same_places() {
        let run = || {
            let mut similar = SimilarFrames::new(0.98).unwrap();
            (0..100).map(|i| similar.skips(&picture(100, 100 + 40 * (i % 2)))).collect::<Vec<bool>>()
        };
        let skipped = run().into_iter().filter(|skip| *skip).count();
        assert!((20..90).contains(&skipped), "{skipped}");
        assert_eq!(run(), run());
    }

    #[test]
    fn a_long_still_is_not_made_up_for() {
        let mut similar = SimilarFrames::new(0.98).unwrap();
        let still = (0..500).filter(|_| similar.skips(&picture(100, 100))).count();
        assert!(still > 400, "{still}");
        let moving = (0..100).filter(|i| similar.skips(&picture(100, 100 + 55 * (i % 2) as u8))).count();
        assert!(moving < 60, "{moving}");
        similar.skips(&picture(100, 100));
        similar.forget();
        assert!(!similar.skips(&picture(100, 100)));
    }

    #[test]
    fn a_threshold_out_of_range_is_refused() {
        assert!(
            [0.0, 1.0, f64::NAN, -1.0].into_iter().all(|threshold| SimilarFrames::new(threshold).is_none())
        );
    }
}

//! Frames per second as an exact fraction.

use std::time::Duration;

use super::VideoError;

/// Frames per second, as the fraction that video files store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRate {
    numerator: u32,
    denominator: u32,
}

impl FrameRate {
    /// The rate of a video that says none: 25 frames per second, as in ffmpeg.
    pub const ASSUMED: FrameRate = FrameRate { numerator: 25, denominator: 1 };

    /// The nearest fraction to a number from 0.001 to 1000: 23.976, 29.97 and 59.94 are the broadcast rates
    /// 24000/1001, 30000/1001 and 60000/1001, everything else is a multiple of 1/1000.
    pub fn new(frames_per_second: f64) -> Result<Self, VideoError> {
        if !(0.001..=1000.0).contains(&frames_per_second) {
            return Err(VideoError::FrameRate { asked: frames_per_second.to_string() });
        }
        let nominal = (frames_per_second * 1.001).round();
        let broadcast = [24.0, 30.0, 48.0, 60.0, 120.0].contains(&nominal);
        // People write 29.97 and 23.976, which are off the fraction by up to 0.003.
        if broadcast && (frames_per_second - nominal / 1.001).abs() < 0.004 {
            return Ok(Self { numerator: nominal as u32 * 1000, denominator: 1001 });
        }
        let thousandths = (frames_per_second * 1000.0).round() as u32;
        Self::from_fraction(thousandths.into(), 1000)
    }

    /// So many frames in so many seconds, as a video's header says it.
    ///
    /// # Errors
    /// If that is not from 0.001 to 1000 frames per second, or does not fit the fields of a file.
    pub fn from_fraction(frames: u64, seconds: u64) -> Result<Self, VideoError> {
        let common = greatest_common_divisor(frames, seconds).max(1);
        let (numerator, denominator) = (frames / common, seconds / common);
        let in_range = denominator > 0
            && numerator.saturating_mul(1000) >= denominator
            && numerator <= denominator.saturating_mul(1000);
        match (u32::try_from(numerator), u32::try_from(denominator)) {
            (Ok(numerator), Ok(denominator)) if in_range => Ok(Self { numerator, denominator }),
            _ => Err(VideoError::FrameRate { asked: format!("{frames}/{seconds}") }),
        }
    }

    /// When a frame is shown, counted from 0.
    pub fn time_of(self, frame: u64) -> Duration {
        let nanoseconds = u128::from(frame) * 1_000_000_000 * u128::from(self.denominator)
            / u128::from(self.numerator.max(1));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Frames in [`FrameRate::denominator`] seconds.
    pub fn numerator(self) -> u32 {
        self.numerator
    }

    /// Seconds in which [`FrameRate::numerator`] frames are shown.
    pub fn denominator(self) -> u32 {
        self.denominator
    }

    /// Frames per second.
    pub fn as_f64(self) -> f64 {
        f64::from(self.numerator) / f64::from(self.denominator)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_fractions_people_mean() {
        for (asked, numerator, denominator) in [
            (7.0, 7, 1),
            (24.0, 24, 1),
            (12.5, 25, 2),
            (23.976, 24000, 1001),
            (29.97, 30000, 1001),
            (59.94, 60000, 1001),
            (0.001, 1, 1000),
            (1000.0, 1000, 1),
        ] {
            let rate = FrameRate::new(asked).unwrap();
            assert_eq!((rate.numerator(), rate.denominator()), (numerator, denominator), "{asked}");
        }
        for (frames, seconds) in [(0, 0), (1, 0), (0, 1), (1, 1001), (1001, 1), (u64::MAX, u64::MAX - 1)] {
            assert!(FrameRate::from_fraction(frames, seconds).is_err(), "{frames}/{seconds}");
        }
        let broadcast = FrameRate::from_fraction(60_000, 2002).unwrap();
        assert_eq!((broadcast.numerator(), broadcast.denominator()), (30_000, 1001));
        assert_eq!(broadcast.time_of(30_000), Duration::from_secs(1001));
        assert_eq!(broadcast.time_of(1), Duration::from_nanos(33_366_666));
        for asked in [0.0, -1.0, 0.0001, 1000.5, f64::NAN, f64::INFINITY] {
            let message = FrameRate::new(asked).unwrap_err().to_string();
            assert!(message.contains("not a frame rate"), "{message}");
        }
    }
}

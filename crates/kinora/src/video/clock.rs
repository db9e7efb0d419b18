//! When the frames of a video that is written are shown.

use std::time::Duration;

use super::{FrameRate, error::EncodeError};

/// A time that is as near as this to the one that the rate gives is that one: times come in whole nanoseconds, often rounded.
const ON_TIME: Duration = Duration::from_micros(1);

/// When the next frame is shown, unless it says so itself.
#[derive(Debug)]
pub(super) struct Clock {
    rate: FrameRate,
    /// The first frame's own time, from which all count.
    origin: Duration,
    /// The last time that was not on the rate's grid, and the frames since.
    since: Duration,
    frames: u64,
    /// When the last frame is shown.
    last: Option<Duration>,
}

impl Clock {
    pub(super) fn new(rate: FrameRate) -> Self {
        Self { rate, origin: Duration::ZERO, since: Duration::ZERO, frames: 0, last: None }
    }

    /// When the next frame is shown; at the end, how long the video is.
    pub(super) fn next(&self) -> Duration {
        self.since + self.rate.time_of(self.frames)
    }

    /// Takes a frame's own time, if it has one, and gives the time since the first frame. `number` is the frame's, from 1.
    pub(super) fn tick(&mut self, time: Option<Duration>, number: usize) -> Result<Duration, EncodeError> {
        if let Some(time) = time {
            if self.last.is_none() {
                self.origin = time;
            }
            let (time, last) = (time.checked_sub(self.origin), self.last);
            let Some(time) = time.filter(|time| last.is_none_or(|last| *time > last)) else {
                return Err(EncodeError::FrameTime { number });
            };
            if time.abs_diff(self.next()) > ON_TIME {
                (self.since, self.frames) = (time, 0);
            }
        }
        let shown = self.next();
        self.frames += 1;
        self.last = Some(shown);
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        Clock::new(FrameRate::new(30.0).unwrap())
    }

    #[test]
    fn frames_without_times_keep_the_rate() {
        let mut clock = clock();
        for number in 0..90 {
            assert_eq!(clock.tick(None, 1).unwrap(), FrameRate::new(30.0).unwrap().time_of(number));
        }
        assert_eq!(clock.next(), Duration::from_secs(3));
    }

    #[test]
    fn rounded_times_are_on_the_grid_and_others_keep_theirs() {
        let mut clock = clock();
        // From a camera that has been running for an hour.
        let at = |micros: u64| Some(Duration::from_secs(3600) + Duration::from_micros(micros));
        assert_eq!(clock.tick(at(0), 1).unwrap(), Duration::ZERO);
        assert_eq!(clock.tick(at(33_333), 2).unwrap(), Duration::from_nanos(33_333_333));
        assert_eq!(clock.tick(at(50_000), 3).unwrap(), Duration::from_millis(50));
        assert_eq!(clock.tick(None, 4).unwrap(), Duration::from_nanos(83_333_333));
        assert!(clock.tick(at(83_333), 5).is_err());
        assert!(clock.tick(Some(Duration::from_secs(9)), 5).is_err());
        assert_eq!(clock.tick(at(1_000_000), 5).unwrap(), Duration::from_secs(1));
        assert_eq!(clock.next(), Duration::from_nanos(1_033_333_333));
    }
}

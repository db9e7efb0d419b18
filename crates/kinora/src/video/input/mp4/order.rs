//! The order in which decoded pictures are shown.

use std::{collections::BTreeMap, time::Duration};

use kinora_models::image::RgbImage;

use super::{
    super::{Frame, Timing},
    table::Sample,
    track::Edit,
};
use crate::video::FrameRate;

/// The most pictures that wait for one before them: H.264 reorders no more than 16.
const MOST_WAITING: usize = 16;

/// Which of a track's samples are shown, and when.
#[derive(Debug)]
pub(super) struct Schedule {
    /// For each sample its place among those that are shown, `None` if it is not.
    places: Vec<Option<u32>>,
    /// When each place is shown, in ticks.
    times: Vec<i64>,
    /// How long the last one is shown.
    last_ticks: u32,
    timescale: u32,
}

impl Schedule {
    /// All samples by their times; of those that an edit leaves out, none is shown, unless that would be all of them.
    pub(super) fn new(samples: &[Sample], timescale: u32, edit: Edit, movie_timescale: u32) -> Self {
        let end = edit.duration.map_or(i64::MAX, |duration| {
            let ticks = u128::from(duration) * u128::from(timescale) / u128::from(movie_timescale.max(1));
            edit.start.saturating_add(i64::try_from(ticks).unwrap_or(i64::MAX))
        });
        let mut shown: Vec<u32> = (0..samples.len() as u32).collect();
        let inside = |sample: &u32| {
            let time = samples[*sample as usize].shown;
            edit.start <= time && time < end
        };
        if shown.iter().any(inside) {
            shown.retain(inside);
        }
        shown.sort_by_key(|sample| samples[*sample as usize].shown);
        let mut places = vec![None; samples.len()];
        let mut times: Vec<i64> = Vec::with_capacity(shown.len());
        for (place, sample) in shown.iter().enumerate() {
            places[*sample as usize] = Some(place as u32);
            let time = samples[*sample as usize].shown;
            // Two pictures at one time follow each other by a tick.
            times.push(times.last().map_or(time, |before| time.max(before.saturating_add(1))));
        }
        let last_ticks = shown.last().map_or(0, |sample| samples[*sample as usize].ticks);
        Self { places, times, last_ticks, timescale }
    }

    /// How many pictures are shown.
    pub(super) fn frames(&self) -> usize {
        self.times.len()
    }

    /// Where a sample's picture is shown among the others.
    pub(super) fn place(&self, sample: u64) -> Option<u32> {
        *self.places.get(usize::try_from(sample).ok()?)?
    }

    /// The first tick that is shown.
    pub(super) fn start(&self) -> i64 {
        self.times.first().copied().unwrap_or(0)
    }

    /// When a place is shown, from the first on.
    fn time(&self, place: u32) -> Duration {
        let ticks = self.times.get(place as usize).map_or(0, |time| time.abs_diff(self.start()));
        duration(ticks, self.timescale)
    }

    /// Whether all pictures are shown for as long as the others, and how many a second that are.
    pub(super) fn timing(&self) -> Timing {
        let mut periods = self.times.windows(2).map(|pair| pair[1].abs_diff(pair[0]));
        let first = periods.next().unwrap_or_else(|| self.last_ticks.into());
        let all = self.times.last().map_or(0, |last| last.abs_diff(self.start()));
        let constant = periods.all(|period| period == first);
        let (frames, ticks) = if constant {
            (1, first)
        } else {
            (self.times.len() as u64, all.saturating_add(self.last_ticks.into()))
        };
        let exact = FrameRate::from_fraction(frames.saturating_mul(self.timescale.into()), ticks);
        let near = || FrameRate::new(frames as f64 * f64::from(self.timescale) / ticks as f64);
        match exact.or_else(|_| near()) {
            Ok(rate) if constant => Timing::Constant(rate),
            Ok(mean) => Timing::Variable { mean },
            Err(_) => Timing::Unknown,
        }
    }
}

/// So many ticks as a time.
pub(super) fn duration(ticks: u64, timescale: u32) -> Duration {
    let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(timescale.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Pictures that wait until those before them are there.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pictures: BTreeMap<u32, RgbImage>,
    next: u32,
    /// When the next picture can be shown at the earliest.
    earliest: Duration,
}

impl Waiting {
    /// Adds a picture. One that comes after its time is over is left out.
    pub(super) fn push(&mut self, place: u32, image: RgbImage) {
        if place >= self.next {
            self.pictures.insert(place, image);
        }
    }

    /// The next picture to be shown: the one whose turn it is or, if `all` have come or too many wait, the first that there is.
    pub(super) fn pop(&mut self, schedule: &Schedule, all: bool) -> Option<Frame> {
        let (&place, _) = self.pictures.first_key_value()?;
        if place != self.next && !all && self.pictures.len() <= MOST_WAITING {
            return None;
        }
        let image = self.pictures.remove(&place)?;
        self.next = place + 1;
        // A file may count in ticks that are shorter than a nanosecond.
        let time = schedule.time(place).max(self.earliest);
        self.earliest = time + Duration::from_nanos(1);
        Some(Frame { image, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(shown: &[i64]) -> Vec<Sample> {
        let sample = |shown: &i64| Sample { offset: 0, length: 1, ticks: 10, shown: *shown, description: 0 };
        shown.iter().map(sample).collect()
    }

    fn schedule(shown: &[i64], edit: Edit) -> Schedule {
        Schedule::new(&samples(shown), 100, edit, 1000)
    }

    #[test]
    fn pictures_are_shown_by_their_times() {
        let order = schedule(&[10, 40, 20, 30], Edit::default());
        assert_eq!([0, 1, 2, 3].map(|sample| order.place(sample)), [Some(0), Some(3), Some(1), Some(2)]);
        assert_eq!(order.time(3), Duration::from_millis(300));
        assert_eq!(order.timing(), Timing::Constant(FrameRate::new(10.0).unwrap()));
        let variable = schedule(&[0, 10, 50], Edit::default());
        assert_eq!(variable.timing(), Timing::Variable { mean: FrameRate::new(5.0).unwrap() });
        let same = schedule(&[5, 5, 5], Edit::default());
        assert_eq!([0, 1, 2].map(|place| same.time(place).as_millis()), [0, 10, 20]);
    }

    #[test]
    fn times_increase_however_short_a_tick_is() {
        let order = Schedule::new(&samples(&[0, 1, 2]), u32::MAX, Edit::default(), 1000);
        let mut waiting = Waiting::default();
        (0..3).for_each(|place| waiting.push(place, RgbImage::new(1, 1, vec![0; 3]).unwrap()));
        let times: Vec<u128> =
            std::iter::from_fn(|| waiting.pop(&order, false)).map(|frame| frame.time.as_nanos()).collect();
        assert_eq!(times, [0, 1, 2]);
    }

    #[test]
    fn an_edit_leaves_pictures_out() {
        // From tick 20 on, for 200 of the movie's 1000 ticks a second: 20 of the track's.
        let edit = Edit { start: 20, duration: Some(200), ..Edit::default() };
        let order = schedule(&[0, 10, 20, 30, 40], edit);
        assert_eq!([0, 1, 2, 3, 4].map(|sample| order.place(sample)), [None, None, Some(0), Some(1), None]);
        assert_eq!((order.frames(), order.start()), (2, 20));
        let nothing = Edit { start: 900, ..Edit::default() };
        assert_eq!(schedule(&[0, 10], nothing).frames(), 2, "an edit that shows nothing is wrong");
    }

    #[test]
    fn a_picture_that_never_comes_is_not_waited_for_for_ever() {
        let order = schedule(&(0..40).map(|at| at * 10).collect::<Vec<i64>>(), Edit::default());
        let image = || RgbImage::new(1, 1, vec![0; 3]).unwrap();
        let mut waiting = Waiting::default();
        for place in 1..=16 {
            waiting.push(place, image());
            assert!(waiting.pop(&order, false).is_none(), "{place}");
        }
        waiting.push(17, image());
        assert_eq!(waiting.pop(&order, false).unwrap().time, Duration::from_millis(100));
        // Too late.
        waiting.push(0, image());
        assert_eq!(waiting.pop(&order, false).unwrap().time, Duration::from_millis(200));
        waiting.push(30, image());
        let rest: Vec<Frame> = std::iter::from_fn(|| waiting.pop(&order, true)).collect();
        assert_eq!(rest.len(), 16);
    }
}

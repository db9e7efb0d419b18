//! Whether a profile is consistent.

use std::collections::HashMap;

use crate::{Activity, Fault, Inconsistency, Profile, Span};

impl Profile {
    /// Checks that all references exist, that spans lie within their parents, and that they follow each other.
    ///
    /// # Errors
    /// Names the first place that contradicts another.
    pub fn check(&self) -> Result<(), Inconsistency> {
        self.check_spans()?;
        if self.memory.windows(2).any(|pair| pair[0].at > pair[1].at) {
            return Err(Inconsistency::MemoryOrder);
        }
        for (number, activity) in self.activity.iter().enumerate() {
            let wrong = |fault| Inconsistency::Activity { number, name: activity.name.clone(), fault };
            if activity.work.is_some_and(|work| work >= self.works.len()) {
                return Err(wrong(Fault::NoLayer));
            }
            if activity.end < activity.start {
                return Err(wrong(Fault::EndsBeforeItBegins));
            }
        }
        if self.activity.windows(2).any(|pair| pair[0].start > pair[1].start) {
            return Err(Inconsistency::ActivityOrder);
        }
        self.check_sums()
    }

    /// Tables and pictures add up times, bytes and launches, and subtract one sum from another.
    fn check_sums(&self) -> Result<(), Inconsistency> {
        fn adds_up(numbers: impl Iterator<Item = u64>) -> bool {
            numbers.map(i64::try_from).try_fold(0_i64, |sum, number| sum.checked_add(number.ok()?)).is_some()
        }
        let spans = self.spans.iter();
        let launches = self.works.iter().map(|work| work.launches);
        let copied = spans.clone().filter_map(|span| Some(span.copied.as_ref()?.bytes));
        let sums = [
            ("the times of its spans", adds_up(spans.map(Span::nanoseconds))),
            (
                "the times of the device's activities",
                adds_up(self.activity.iter().map(Activity::nanoseconds)),
            ),
            ("the bytes of its memory samples", adds_up(self.memory.iter().map(|sample| sample.bytes))),
            ("the bytes of its copies", adds_up(copied)),
            ("the launches of its layers", adds_up(launches)),
        ];
        match sums.into_iter().find(|(_, adds_up)| !adds_up) {
            Some((what, _)) => Err(Inconsistency::Sum { what }),
            None => Ok(()),
        }
    }

    fn check_spans(&self) -> Result<(), Inconsistency> {
        // The end of the last span of each lane and parent.
        let mut ended: HashMap<(usize, Option<usize>), u64> = HashMap::new();
        for (number, span) in self.spans.iter().enumerate() {
            let wrong = |fault| Inconsistency::Span { number, name: span.name.clone(), fault };
            if span.lane >= self.lanes.len() {
                return Err(wrong(Fault::NoLane(span.lane)));
            }
            if span.work.is_some_and(|work| work >= self.works.len()) {
                return Err(wrong(Fault::NoLayer));
            }
            if span.end < span.start {
                return Err(wrong(Fault::EndsBeforeItBegins));
            }
            let ended = ended.entry((span.lane, span.parent)).or_default();
            if span.start < *ended {
                return Err(wrong(Fault::Overlaps));
            }
            *ended = span.end;
            let Some(parent) = span.parent else { continue };
            match self.spans[..number].get(parent) {
                Some(parent) if parent.lane != span.lane => return Err(wrong(Fault::LaneOfParent)),
                Some(parent) if parent.start > span.start || parent.end < span.end => {
                    return Err(wrong(Fault::OutsideParent));
                }
                Some(_) => {}
                None => return Err(wrong(Fault::NoParent)),
            }
        }
        Ok(())
    }
}

//! Whether a profile is consistent.

use std::collections::HashMap;

use crate::{Fault, Inconsistency, Profile};

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
        Ok(())
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

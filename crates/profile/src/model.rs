//! A recorded run as plain data, and its file format.

use std::path::Path;

use kinora_outside::read_text;
use serde::{Deserialize, Serialize};

use crate::ProfileError;

/// The most bytes of a saved profile. One of a long clip with the device's trace has some ten million.
const MAX_BYTES: u64 = 256 << 20;

/// Incremented when a field changes its meaning; older files are refused.
pub const FORMAT: u32 = 1;

/// A recorded run. Times are nanoseconds since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: u32,
    /// What ran, for a heading.
    pub title: String,
    /// What it ran on.
    pub machine: Machine,
    /// The threads and queues that spans lie in.
    pub lanes: Vec<Lane>,
    /// Every span, a parent before its children, those of a lane in the order in which they began.
    pub spans: Vec<Span>,
    /// The layers that spans refer to.
    pub works: Vec<Work>,
    /// Who held how much memory, in the order of time.
    pub memory: Vec<MemorySample>,
    /// The largest peak memory that the plans predicted, in bytes.
    pub planned_peak_bytes: Option<u64>,
    /// What a device's own trace saw, in the order in which it began. Empty if the device was not traced.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub activity: Vec<Activity>,
    /// Notes for the reader on how it was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// What a run ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The device in words.
    pub device: String,
    /// Its measured ceilings.
    pub ceilings: Option<Ceilings>,
}

/// The best a device can do, measured on it by loops that do nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Floating-point operations per second; a multiply-add counts as two.
    pub flops_per_second: f64,
    /// Bytes of memory that are read or written per second.
    pub bytes_per_second: f64,
    /// The minimum cost of launching a layer, in nanoseconds.
    pub launch_nanoseconds: f64,
}

/// A thread, or a queue of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Whose time it shows.
    pub kind: LaneKind,
}

/// Whose time a lane shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneKind {
    /// A thread's.
    Host,
    /// A device's, by its own clock.
    Device,
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// What it was.
    pub name: String,
    /// The number of its lane.
    pub lane: usize,
    /// The number of the span that it was a part of, of the same lane.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<usize>,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// The number of the layer that ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub work: Option<usize>,
    /// What was copied between host and device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub copied: Option<Copied>,
}

/// A copy between host and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Where to.
    pub direction: Direction,
    /// How much, in bytes.
    pub bytes: u64,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    FromDevice,
}

impl Direction {
    /// The direction in words.
    pub fn name(self) -> &'static str {
        match self {
            Direction::ToDevice => "to the device",
            Direction::FromDevice => "from the device",
        }
    }
}

/// Something that a device ran, according to its own trace: from its first instruction to its last, without the wait
/// before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The kernel's name, or what was copied where.
    pub name: String,
    /// What it was.
    pub kind: ActivityKind,
    /// The number of the layer that it was launched for, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub work: Option<usize>,
    /// The bytes that a copy or a fill wrote.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

/// What a device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivityKind {
    /// A kernel.
    Kernel,
    /// A copy between host and device, or within the device.
    Copy,
    /// Memory set to one value.
    Fill,
}

impl Activity {
    /// How long it took.
    pub fn nanoseconds(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

impl Span {
    /// How long it took.
    pub fn nanoseconds(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A layer: what one run of it computes and moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The network.
    pub program: String,
    /// The layer's name.
    pub layer: String,
    /// The kind of op: `conv`, `attention` …
    pub op: String,
    /// The name of the kernel that runs it, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<String>,
    /// Floating-point operations of a run.
    pub flops: u64,
    /// Bytes of its operands and results: the minimum that has to move.
    pub bytes: u64,
    /// Launches on a device.
    pub launches: u64,
}

/// What an owner holds from a moment on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySample {
    /// The moment.
    pub at: u64,
    /// Who holds it.
    pub owner: String,
    /// How much, in bytes.
    pub bytes: u64,
}

impl Profile {
    /// The time from the first beginning to the last end, in nanoseconds.
    pub fn duration(&self) -> u64 {
        let first = self.spans.iter().map(|span| span.start).min().unwrap_or(0);
        self.spans.iter().map(|span| span.end).max().unwrap_or(0).saturating_sub(first)
    }

    /// The same with its first moment at 0: the time before the program recorded anything does not count.
    #[must_use]
    pub fn starting_at_zero(mut self) -> Profile {
        let spans = self.spans.iter().map(|span| span.start);
        let memory = self.memory.iter().map(|sample| sample.at);
        let first = spans.chain(memory).chain(self.activity.iter().map(|seen| seen.start)).min().unwrap_or(0);
        let spans = self.spans.iter_mut().flat_map(|span| [&mut span.start, &mut span.end]);
        let memory = self.memory.iter_mut().map(|sample| &mut sample.at);
        let activity = self.activity.iter_mut().flat_map(|seen| [&mut seen.start, &mut seen.end]);
        spans.chain(memory).chain(activity).for_each(|moment| *moment -= first);
        self
    }

    /// The most memory that all owners held together, and when.
    pub fn memory_peak(&self) -> Option<(u64, u64)> {
        let mut held: Vec<(&str, u64)> = Vec::new();
        let mut peak = None;
        for sample in &self.memory {
            match held.iter_mut().find(|(owner, _)| *owner == sample.owner) {
                Some((_, bytes)) => *bytes = sample.bytes,
                None => held.push((&sample.owner, sample.bytes)),
            }
            let sum = held.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
            if peak.is_none_or(|(_, most)| sum > most) {
                peak = Some((sample.at, sum));
            }
        }
        peak
    }

    /// The bytes of each owner at a moment, the largest first. Owners without memory are left out.
    pub fn memory_at(&self, moment: u64) -> Vec<(&str, u64)> {
        let mut held: Vec<(&str, u64)> = Vec::new();
        for sample in self.memory.iter().take_while(|sample| sample.at <= moment) {
            held.retain(|(owner, _)| *owner != sample.owner);
            held.push((&sample.owner, sample.bytes));
        }
        held.retain(|&(_, bytes)| bytes > 0);
        held.sort_by_key(|&(owner, bytes)| (std::cmp::Reverse(bytes), owner));
        held
    }

    /// The profile as text.
    pub fn to_json(&self) -> String {
        // Serialising cannot fail: the keys are strings, and floats are finite or null.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// A profile from its text. `path` is for errors.
    ///
    /// # Errors
    /// If it is not a profile, has another format, or refers to what it does not hold.
    pub fn from_json(path: &str, text: &str) -> Result<Profile, ProfileError> {
        let path = || path.to_owned();
        let profile: Profile =
            serde_json::from_str(text).map_err(|source| ProfileError::Json { path: path(), source })?;
        if profile.format != FORMAT {
            return Err(ProfileError::Format { path: path(), format: profile.format, reads: FORMAT });
        }
        profile.check().map_err(|source| ProfileError::Inconsistent { path: path(), source })?;
        Ok(profile)
    }

    /// Reads a saved profile.
    ///
    /// # Errors
    /// If the file cannot be read, or as [`Profile::from_json`].
    pub fn read(path: &Path) -> Result<Profile, ProfileError> {
        let name = path.display().to_string();
        let text =
            read_text(path, MAX_BYTES).map_err(|source| ProfileError::Io { path: name.clone(), source })?;
        Profile::from_json(&name, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, owner: &str, bytes: u64) -> MemorySample {
        MemorySample { at, owner: owner.to_owned(), bytes }
    }

    #[test]
    fn the_peak_is_of_all_owners_together() {
        let memory = vec![
            sample(0, "weights", 10),
            sample(1, "arena", 5),
            sample(2, "weights", 0),
            sample(3, "arena", 12),
            sample(4, "arena", 0),
        ];
        let profile = Profile { memory, ..Profile::default() };
        assert_eq!(profile.memory_peak(), Some((1, 15)));
        assert_eq!(profile.memory_at(1), [("weights", 10), ("arena", 5)]);
        assert_eq!(profile.memory_at(3), [("arena", 12)]);
        assert_eq!(profile.memory_at(9), []);
        assert_eq!(Profile::default().memory_peak(), None);
    }

    #[test]
    fn a_profile_may_begin_at_nothing() {
        let span = |start, end| Span {
            name: "s".into(),
            lane: 0,
            parent: None,
            start,
            end,
            work: None,
            copied: None,
        };
        let seen = |start, end| Activity {
            name: "k".into(),
            kind: ActivityKind::Kernel,
            work: None,
            bytes: None,
            start,
            end,
        };
        let profile = Profile {
            spans: vec![span(50, 80), span(80, 95)],
            memory: vec![sample(60, "weights", 7)],
            activity: vec![seen(45, 70)],
            ..Profile::default()
        }
        .starting_at_zero();
        assert_eq!(profile.spans, [span(5, 35), span(35, 50)]);
        assert_eq!((profile.memory_peak(), &profile.activity[..]), (Some((15, 7)), &[seen(0, 25)][..]));
        assert_eq!(profile.clone().starting_at_zero(), profile);
        assert_eq!(Profile::default().starting_at_zero(), Profile::default());
    }

    #[test]
    fn a_kept_profile_is_checked() {
        let span = |lane, parent, start, end| Span {
            name: "s".into(),
            lane,
            parent,
            start,
            end,
            work: None,
            copied: None,
        };
        let lanes = vec![
            Lane { name: "main".into(), kind: LaneKind::Host },
            Lane { name: "gpu".into(), kind: LaneKind::Device },
        ];
        let read = |spans: Vec<Span>| {
            let profile = Profile { format: FORMAT, lanes: lanes.clone(), spans, ..Profile::default() };
            Profile::from_json("p.json", &profile.to_json()).map_err(|error| error.to_string())
        };
        assert!(read(vec![span(0, None, 0, 9), span(0, Some(0), 1, 2), span(1, None, 3, 3)]).is_ok());
        for (spans, words) in [
            (vec![span(2, None, 0, 1)], "lane 2"),
            (vec![span(0, None, 2, 1)], "ends before"),
            (vec![span(0, Some(0), 2, 2)], "does not come before"),
            (vec![span(0, None, 0, 4), span(0, Some(0), 1, 5)], "not within"),
            (vec![span(0, None, 0, 4), span(1, Some(0), 1, 2)], "lane other than"),
            (vec![span(0, None, 0, 4), span(0, None, 3, 5)], "before the one before it"),
            (vec![Span { work: Some(3), ..span(0, None, 0, 1) }], "to a layer"),
            (vec![span(0, None, 0, 1 << 62), span(1, None, 0, 1 << 62)], "times of its spans add up to more"),
        ] {
            let error = read(spans).unwrap_err();
            assert!(error.contains("p.json is not a profile") && error.contains(words), "{error}");
        }
        let traced = |work, start, end| Activity {
            name: "k".into(),
            kind: ActivityKind::Kernel,
            work,
            bytes: None,
            start,
            end,
        };
        for (activity, words) in [
            (vec![traced(Some(0), 0, 1)], "to a layer"),
            (vec![traced(None, 2, 1)], "ends before"),
            (vec![traced(None, 2, 3), traced(None, 1, 4)], "chronological order"),
            (vec![traced(None, 0, u64::MAX)], "activities add up to more"),
        ] {
            let profile = Profile { format: FORMAT, activity, ..Profile::default() };
            let error = Profile::from_json("p", &profile.to_json()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let other = Profile { format: FORMAT + 1, ..Profile::default() };
        assert!(Profile::from_json("p", &other.to_json()).unwrap_err().to_string().contains("format"));
        assert!(Profile::from_json("p", "{").is_err());
    }

    #[test]
    fn what_was_not_traced_is_not_in_the_text() {
        let plain = Profile { format: FORMAT, ..Profile::default() };
        let text = plain.to_json();
        assert!(!text.contains("activity") && !text.contains("notes") && !text.contains("copied"), "{text}");
        assert_eq!(Profile::from_json("p", &text).unwrap(), plain);
        let copied = Some(Copied { direction: Direction::ToDevice, bytes: 12 });
        let span =
            Span { name: "weights".into(), lane: 0, parent: None, start: 0, end: 3, work: None, copied };
        let copy = Activity {
            name: "to the device".into(),
            kind: ActivityKind::Copy,
            work: None,
            bytes: Some(12),
            start: 1,
            end: 2,
        };
        let traced = Profile {
            lanes: vec![Lane { name: "gpu".into(), kind: LaneKind::Device }],
            spans: vec![span],
            activity: vec![copy],
            notes: vec!["a note".into()],
            ..plain
        };
        let text = traced.to_json();
        for part in [r#""direction":"to_device","bytes":12"#, r#""kind":"copy","bytes":12"#, r#"["a note"]"#]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(Profile::from_json("p", &text).unwrap(), traced);
    }
}

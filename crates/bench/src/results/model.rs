//! The results of a run, as they are saved.

use std::path::Path;

use kinora_outside::printable;
use kinora_profile::Ceilings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Estimate, Ratio, targets::Judgement};

/// The most bytes of saved results. Those of all suites have less than a million.
const MAX_BYTES: u64 = 64 << 20;

/// The version of the format.
pub const FORMAT: u32 = 1;

/// Thirty years.
const MAX_MILLISECONDS: f64 = 1e12;

/// A file of results that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It holds something else.
    #[error("{path} holds no results of `kinora bench`: {problem}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The version of this format.
    pub format: u32,
    /// The version that was measured.
    pub kinora: Version,
    /// When, in UTC: `2026-01-31T12:00:00Z`.
    pub date: String,
    /// The CPU, and the vector instructions used.
    pub processor: String,
    /// Threads of the CPU that computed.
    pub threads: usize,
    /// The GPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<Gpu>,
    /// PyTorch's versions, if it took part.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<Value>,
    /// Turns of every case, and seconds of a turn.
    pub method: Method,
    /// The suites.
    pub suites: Vec<SuiteResults>,
}

/// A version of Kinora.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Its version.
    pub version: String,
    /// The commit that it was built from; `unknown` if it was built outside a repository.
    pub commit: String,
    /// How it was built: `release`, or `debug`, whose times mean little.
    pub build: String,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Its architecture.
    pub architecture: String,
    /// The driver.
    pub driver: String,
    /// The vendor's libraries that were found.
    pub libraries: String,
}

/// How often each case ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Turns of every case.
    pub turns: usize,
    /// Seconds of a turn, at least.
    pub seconds: f64,
    /// Runs of a turn, at least; one is enough for a network.
    pub runs: usize,
    /// The most copies of a layer's operands that runs cycle through.
    pub copies: usize,
}

/// The device of a suite that the CPU ran.
pub const CPU: &str = "CPU";

/// A suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteResults {
    /// Its name.
    pub suite: String,
    /// What computed: a GPU's name, or [`CPU`].
    pub device: String,
    /// The element type of operands and results.
    pub precision: String,
    /// The size of the networks, or of layers that were reduced.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size: Option<String>,
    /// Why it was not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_run: Option<String>,
    /// Why it ended early, or could not begin.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
    /// What was unexpected: a peer that did not start, or stopped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// The most that the device reaches, measured before the cases.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ceilings: Option<Ceilings>,
    /// The speed of the device before and after.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock: Option<Clock>,
    /// The cases.
    pub cases: Vec<CaseResults>,
    /// The promised figures, as the cases show them; of the suite `targets` alone.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub targets: Vec<Judgement>,
}

/// The speed of a loop of arithmetic, before the cases and after them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Operations a second before.
    pub before: f64,
    /// Operations a second afterwards.
    pub after: f64,
}

impl Clock {
    /// The largest change with which a comparison still means something.
    const STEADY: f64 = 0.05;

    /// The change of the speed, as a share.
    pub fn change(&self) -> f64 {
        self.after / self.before - 1.0
    }

    /// Whether the clock was steady.
    pub fn is_steady(&self) -> bool {
        self.change().abs() <= Self::STEADY
    }
}

/// A case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResults {
    /// Its name.
    pub name: String,
    /// The kind of op, or `network`, `pipeline` or `stream`.
    pub family: String,
    /// Floating-point operations of a run.
    pub flops: u64,
    /// Bytes that a run must move at least; 0 if that is not known.
    pub bytes: u64,
    /// Who ran it: Kinora first.
    pub entries: Vec<Entry>,
}

/// One who ran a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Who: `kinora`, or a peer with one of its ways to run the case.
    pub by: String,
    /// The kernel, if one was chosen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<String>,
    /// Milliseconds of a run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub milliseconds: Option<Estimate>,
    /// Operations a second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flops_per_second: Option<f64>,
    /// Bytes a second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_second: Option<f64>,
    /// The least time that the device's ceilings allow, over the time that it took.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of_ceiling: Option<f64>,
    /// A peer's time over Kinora's, turn by turn.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Ratio>,
    /// How far its result is from Kinora's, as relative root mean square; `None` for Kinora itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub distance: Option<f64>,
    /// Why there is no time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
}

/// The name of our own entry.
pub const KINORA: &str = "kinora";

impl Entry {
    /// With the rates that follow from the time and the work.
    pub fn new(
        by: &str,
        time: Option<Estimate>,
        (flops, bytes): (u64, u64),
        ceilings: Option<&Ceilings>,
    ) -> Entry {
        let seconds = time.as_ref().map(|time| time.median / 1e3);
        let rate = |amount: u64| seconds.filter(|_| amount > 0).map(|seconds| amount as f64 / seconds);
        let of_ceiling = seconds.zip(ceilings).map(|(seconds, ceilings)| {
            let arithmetic = flops as f64 / ceilings.flops_per_second;
            arithmetic.max(bytes as f64 / ceilings.bytes_per_second) / seconds
        });
        Entry {
            by: by.to_owned(),
            kernel: None,
            flops_per_second: rate(flops),
            bytes_per_second: rate(bytes),
            of_ceiling,
            ratio: None,
            distance: None,
            failed: None,
            milliseconds: time,
        }
    }

    /// For one who could not run the case.
    pub fn failed(by: &str, why: &str) -> Entry {
        Entry { failed: Some(why.to_owned()), ..Entry::new(by, None, (0, 0), None) }
    }
}

impl CaseResults {
    /// Our own entry.
    pub fn ours(&self) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.by == KINORA)
    }

    /// The fastest of the peers.
    pub fn best_peer(&self) -> Option<(&Entry, &Estimate)> {
        let peers = self.entries.iter().filter(|entry| !entry.by.starts_with(KINORA));
        let timed = peers.filter_map(|entry| Some((entry, entry.milliseconds.as_ref()?)));
        timed.min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
    }

    /// The fastest peer's time over ours: of the turns side by side or, in older files, of the medians.
    pub fn ratio(&self) -> Option<f64> {
        let ours = self.ours()?.milliseconds.as_ref()?;
        let (peer, time) = self.best_peer()?;
        Some(peer.ratio.as_ref().map_or(time.median / ours.median, |ratio| ratio.median))
    }

    /// Whether the fastest peer is faster than we are, and the interval leaves no doubt.
    pub fn is_surely_behind(&self) -> bool {
        let ratio = self.best_peer().and_then(|(peer, _)| peer.ratio.as_ref());
        ratio.is_some_and(|ratio| ratio.interval[1] < 1.0)
    }
}

/// Escapes control characters in all texts: they would change the colours of a terminal, and break a plot.
fn escape_control_characters(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(escape_control_characters),
        Value::Object(values) => values.values_mut().for_each(escape_control_characters),
        _ => {}
    }
}

impl Results {
    /// Reads saved results.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Results, ResultsError> {
        let path_text = path.display().to_string();
        let text = kinora_outside::read(path, MAX_BYTES)
            .map_err(|source| ResultsError::Read { path: path_text.clone(), source })?;
        let problem = |problem: String| ResultsError::Format { path: path_text.clone(), problem };
        let mut value: Value = serde_json::from_slice(&text).map_err(|error| problem(error.to_string()))?;
        escape_control_characters(&mut value);
        // `--json` prints them beside a comparison.
        if let Some(results) = value.get_mut("results") {
            value = results.take();
        }
        let results: Results = serde_json::from_value(value).map_err(|error| problem(error.to_string()))?;
        if results.format != FORMAT {
            let other = format!("its format is {}, and this program reads {FORMAT}", results.format);
            return Err(problem(other));
        }
        match results.impossible_time() {
            Some(case) => Err(problem(format!("a time of {case} is not one: times are above 0 and finite"))),
            None => Ok(results),
        }
    }

    /// A case with a time that no run can have taken.
    fn impossible_time(&self) -> Option<&str> {
        let is_time = |time: f64| time > 0.0 && time <= MAX_MILLISECONDS;
        let is_sound = |entry: &Entry| {
            entry.milliseconds.as_ref().is_none_or(|time| {
                [time.median, time.interval[0], time.interval[1], time.best]
                    .into_iter()
                    .chain(time.p99)
                    .all(is_time)
            })
        };
        let mut cases = self.suites.iter().flat_map(|suite| &suite.cases);
        cases.find(|case| !case.entries.iter().all(is_sound)).map(|case| case.name.as_str())
    }

    /// What makes a run a failure: a suite or one of our own kernels that failed, or a result that differs.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.suites.iter().flat_map(|suite| {
            let whole = suite.failed.as_ref().map(|why| format!("{}: {why}", suite.suite));
            let entries = suite.cases.iter().flat_map(|case| {
                case.entries.iter().filter_map(|entry| {
                    let why = entry.failed.as_ref()?;
                    let counts = entry.by == KINORA || entry.distance.is_some();
                    counts.then(|| format!("{}, {}: {why}", case.name, entry.by))
                })
            });
            whole.into_iter().chain(entries)
        })
    }

    /// The text of a file, indented so that two can be compared line by line.
    pub fn to_json(&self) -> String {
        // Plain data can always be written.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }
}

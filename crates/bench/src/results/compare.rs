//! What became faster or slower between two runs.

use serde::Serialize;

use super::{CPU, Entry, KINORA, Results};
use crate::Estimate;

/// How a case changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Its interval lies entirely below the earlier one.
    Faster,
    /// Its interval lies entirely above the earlier one.
    Slower,
    /// The intervals overlap, so that no change is certain.
    Unchanged,
}

/// A case before and after.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The suite.
    pub suite: String,
    /// The case, and the kernel if it is not the chosen one.
    pub case: String,
    /// The earlier time.
    pub before: Estimate,
    /// The later time.
    pub after: Estimate,
    /// The change of the median, as a share of the earlier one.
    pub change: f64,
    /// What the intervals show.
    pub verdict: Verdict,
    /// Whether it is slower by more than the threshold.
    pub regression: bool,
}

/// Two runs side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The cases that both have.
    pub changes: Vec<Change>,
    /// Cases of the earlier run that the later one has no time for.
    pub gone: Vec<String>,
    /// Reasons to doubt the comparison.
    pub notes: Vec<String>,
    /// By how much a case may become slower, as a share.
    pub threshold: f64,
}

impl Comparison {
    /// The cases that became slower by more than the threshold.
    pub fn regressions(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.regression)
    }
}

/// Compares our own entries of two runs.
pub fn compare(before: &Results, after: &Results, threshold: f64) -> Comparison {
    let (old, new) = (entries(before), entries(after));
    let mut changes = Vec::new();
    let mut gone = Vec::new();
    // Suites that were not run this time are not missing.
    let asked = |suite: &str| after.suites.iter().any(|of| of.suite == suite && of.not_run.is_none());
    for (key, before) in &old {
        match new.iter().find(|(other, _)| other == key) {
            Some((_, after)) => changes.push(change(key, before, after, threshold)),
            None if asked(&key.suite) => gone.push(format!("{} {}", key.suite, key.case)),
            None => {}
        }
    }
    Comparison { changes, gone, notes: notes(before, after), threshold }
}

/// What has to be the same for two times to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    suite: String,
    /// Whether the CPU ran it, the precision, and the size. Two GPUs may be compared, with a note.
    kind: String,
    case: String,
}

fn entries(results: &Results) -> Vec<(Key, &Estimate)> {
    let mut entries = Vec::new();
    for suite in &results.suites {
        for case in &suite.cases {
            for entry in &case.entries {
                let Entry { by, milliseconds: Some(time), .. } = entry else { continue };
                let Some(kernel) = by.strip_prefix(KINORA) else { continue };
                let on = if suite.device == CPU { CPU } else { "GPU" };
                let kind = format!("{on} {} {}", suite.precision, suite.size.as_deref().unwrap_or_default());
                let case = format!("{}{kernel}", case.name);
                entries.push((Key { suite: suite.suite.clone(), kind, case }, time));
            }
        }
    }
    entries
}

fn change(key: &Key, before: &Estimate, after: &Estimate, threshold: f64) -> Change {
    let change = after.median / before.median - 1.0;
    let verdict = if after.interval[0] > before.interval[1] {
        Verdict::Slower
    } else if after.interval[1] < before.interval[0] {
        Verdict::Faster
    } else {
        Verdict::Unchanged
    };
    Change {
        suite: key.suite.clone(),
        case: key.case.clone(),
        before: before.clone(),
        after: after.clone(),
        change,
        verdict,
        regression: verdict == Verdict::Slower && change > threshold,
    }
}

fn notes(before: &Results, after: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    let gpu = |results: &Results| results.gpu.as_ref().map_or("none".to_owned(), |gpu| gpu.name.clone());
    let driver = |results: &Results| results.gpu.as_ref().map(|gpu| gpu.driver.clone());
    if before.processor != after.processor {
        notes.push(format!("different CPUs: {}, now {}", before.processor, after.processor));
    }
    if before.kinora.build != after.kinora.build {
        notes.push(format!("different builds: {}, now {}", before.kinora.build, after.kinora.build));
    }
    if before.threads != after.threads {
        notes.push(format!("different numbers of threads: {}, now {}", before.threads, after.threads));
    }
    if gpu(before) != gpu(after) {
        notes.push(format!("different GPUs: {}, now {}", gpu(before), gpu(after)));
    } else if driver(before) != driver(after) {
        notes.push("different drivers of the GPU".to_owned());
    }
    for (when, results) in [("before", before), ("now", after)] {
        for suite in &results.suites {
            if suite.clock.is_some_and(|clock| !clock.is_steady()) {
                notes.push(format!("the clock was not steady {when}, in {}", suite.suite));
            }
        }
    }
    notes
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::results::{CaseResults, FORMAT, Method, SuiteResults, Version};

    pub fn estimate(low: f64, median: f64, high: f64) -> Estimate {
        Estimate {
            median,
            interval: [low, high],
            confidence: 0.96,
            best: low,
            p99: None,
            turns: 12,
            runs: 120,
        }
    }

    pub fn results(cases: &[(&str, Estimate)]) -> Results {
        let case = |(name, time): &(&str, Estimate)| CaseResults {
            name: (*name).to_owned(),
            family: "conv".to_owned(),
            flops: 2_000_000,
            bytes: 1_000,
            entries: vec![
                Entry::new(KINORA, Some(time.clone()), (2_000_000, 1_000), None),
                Entry::new("PyTorch eager", Some(estimate(2.0, 2.1, 2.2)), (2_000_000, 1_000), None),
                Entry::failed("PyTorch SDPA flash", "RuntimeError: <no> & no"),
            ],
        };
        Results {
            format: FORMAT,
            kinora: Version { version: "0".into(), commit: "unknown".into(), build: "release".into() },
            date: "2026-01-01T00:00:00Z".into(),
            processor: "a CPU".into(),
            threads: 2,
            gpu: None,
            peer: None,
            method: Method { turns: 12, seconds: 0.1, runs: 3, copies: 8 },
            suites: vec![SuiteResults {
                suite: "cpu".into(),
                device: CPU.into(),
                precision: "f32".into(),
                size: None,
                not_run: None,
                failed: None,
                notes: Vec::new(),
                ceilings: None,
                clock: None,
                targets: Vec::new(),
                cases: cases.iter().map(case).collect(),
            }],
        }
    }

    #[test]
    fn intervals_and_the_threshold_decide() {
        let before = results(&[
            ("same", estimate(0.9, 1.0, 1.1)),
            ("surely slower", estimate(0.9, 1.0, 1.1)),
            ("slower within the threshold", estimate(0.99, 1.0, 1.01)),
            ("slower within the interval", estimate(0.5, 1.0, 1.5)),
            ("faster", estimate(0.9, 1.0, 1.1)),
            ("gone", estimate(0.9, 1.0, 1.1)),
        ]);
        let after = results(&[
            ("same", estimate(0.9, 1.02, 1.1)),
            ("surely slower", estimate(1.15, 1.2, 1.3)),
            ("slower within the threshold", estimate(1.02, 1.03, 1.04)),
            ("slower within the interval", estimate(1.2, 1.4, 1.6)),
            ("faster", estimate(0.4, 0.5, 0.6)),
            ("new", estimate(0.4, 0.5, 0.6)),
        ]);
        let compared = compare(&before, &after, 0.05);
        let verdicts: Vec<Verdict> = compared.changes.iter().map(|change| change.verdict).collect();
        use Verdict::{Faster, Slower, Unchanged};
        assert_eq!(verdicts, [Unchanged, Slower, Slower, Unchanged, Faster]);
        let regressions: Vec<&str> = compared.regressions().map(|change| change.case.as_str()).collect();
        assert_eq!(regressions, ["surely slower"]);
        assert_eq!(compared.gone, ["cpu gone"]);
        assert!(compared.notes.is_empty());
        assert!((compared.changes[1].change - 0.2).abs() < 1e-12);
    }

    #[test]
    fn reasons_to_doubt_are_noted() {
        let before = results(&[("same", estimate(0.9, 1.0, 1.1))]);
        let mut after = before.clone();
        after.threads = 4;
        after.suites[0].clock = Some(crate::results::Clock { before: 1.0, after: 0.9 });
        let compared = compare(&before, &after, 0.05);
        assert_eq!(compared.notes.len(), 2, "{:?}", compared.notes);
        // A different precision makes it a different case.
        after.suites[0].precision = "f16".into();
        let compared = compare(&before, &after, 0.05);
        assert!(compared.changes.is_empty() && compared.gone == ["cpu same"]);
        // So does a different kind of device, but not a different GPU.
        let on = |device: &str| {
            let mut results = before.clone();
            results.suites[0].device = device.to_owned();
            results
        };
        assert!(compare(&before, &on("a GPU"), 0.05).changes.is_empty());
        assert_eq!(compare(&on("a GPU"), &on("another"), 0.05).changes.len(), 1);
    }
}

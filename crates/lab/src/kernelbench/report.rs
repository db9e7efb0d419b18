//! What came of it: results of tasks, speed-ups, their means, and how they differ from an earlier report.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{KernelBenchError, Predicted, verdict::Compared};

/// The version of the format.
pub const FORMAT: u32 = 1;

/// The thresholds of `fast_p`: the share of tasks that are right and at least so many times as fast as the baseline.
pub const THRESHOLDS: [f64; 6] = [0.0, 0.8, 1.0, 1.05, 1.5, 2.0];

/// A task counts as slower than before if it takes this much longer.
const SLOWER: f64 = 1.05;

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its results are right, and nothing was done beside computing them.
    Right,
    /// Its results are not accepted.
    Refused,
    /// It could not be run.
    Failed,
    /// There is no solution.
    Missing,
}

impl Outcome {
    /// It in words.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Right => "right",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
            Outcome::Missing => "no solution",
        }
    }
}

/// Times of single runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Milliseconds, the median.
    pub median: f64,
    /// The run at one tenth.
    pub low: f64,
    /// The run at nine tenths.
    pub high: f64,
    /// How many runs.
    pub runs: u32,
    /// Milliseconds a run that the host sees beyond the events.
    #[serde(default)]
    pub hidden: f64,
    /// Clocks before and after, as the driver's tool tells them.
    #[serde(default)]
    pub clocks: Vec<serde_json::Value>,
    /// Seconds until the first result, compilation included.
    #[serde(default)]
    pub first_seconds: Option<f64>,
}

/// A check with one set of inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Where the inputs came from.
    pub distribution: String,
    /// The seed.
    pub seed: u64,
    /// The distance of each result.
    pub results: Vec<Compared>,
}

/// What came of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskResult {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The solution's name.
    pub solution: String,
    /// What the solution was made of.
    pub fingerprint: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was refused or could not be run.
    pub reasons: Vec<String>,
    /// The checks.
    pub rounds: Vec<Round>,
    /// How long it takes.
    pub timing: Option<Timing>,
    /// How long PyTorch takes, by way.
    pub baselines: BTreeMap<String, Timing>,
    /// Ways of PyTorch that did not run, with the reason.
    #[serde(default)]
    pub baselines_failed: BTreeMap<String, String>,
    /// What the simulator predicts at the task's own sizes.
    #[serde(default)]
    pub predicted: Option<Predicted>,
    /// The sizes that were overridden.
    #[serde(default)]
    pub shrunk: serde_json::Value,
}

impl TaskResult {
    /// How many times as fast as the fastest baseline it is.
    pub fn speedup(&self) -> Option<f64> {
        let best = self.baselines.values().map(|timing| timing.median).min_by(f64::total_cmp)?;
        self.over(best)
    }

    /// How many times as fast as one baseline it is.
    pub fn speedup_over(&self, way: &str) -> Option<f64> {
        self.over(self.baselines.get(way)?.median)
    }

    fn over(&self, milliseconds: f64) -> Option<f64> {
        let own = self.timing.as_ref().filter(|_| self.outcome == Outcome::Right)?.median;
        (own > 0.0).then(|| milliseconds / own)
    }
}

/// All that came of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of the format.
    pub kernelbench_report: u32,
    /// The level.
    pub level: u32,
    /// `cpu`, or the GPU's name.
    pub device: String,
    /// PyTorch's version.
    pub torch: String,
    /// The tasks by number.
    pub tasks: Vec<TaskResult>,
}

/// Means over tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Tasks.
    pub tasks: usize,
    /// Those that are right.
    pub right: usize,
    /// Against each baseline, and against the `best` of them.
    pub against: BTreeMap<String, Against>,
}

/// How solutions stand against a baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// The geometric mean of the speed-ups of the tasks that are right and timed.
    pub geometric_mean: f64,
    /// How many those are.
    pub timed: usize,
    /// The share of all tasks that are right and at least so many times as fast: threshold and share.
    pub fast: Vec<(f64, f64)>,
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    /// If it cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Report, KernelBenchError> {
        let text = fs::read_to_string(path).map_err(|source| KernelBenchError::file("read", path, source))?;
        let wrong = |reason: String| KernelBenchError::NotAReport { path: path.to_owned(), reason };
        let report: Report = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if report.kernelbench_report != FORMAT {
            return Err(wrong(format!("its format is {}, known is {FORMAT}", report.kernelbench_report)));
        }
        Ok(report)
    }

    /// Writes it, beside the file first, so that an interrupted run leaves the earlier state.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KernelBenchError> {
        let beside = path.with_extension("part");
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| KernelBenchError::Refused(error.to_string()))?;
        fs::write(&beside, text + "\n").map_err(|source| KernelBenchError::file("write", &beside, source))?;
        fs::rename(&beside, path).map_err(|source| KernelBenchError::file("write", path, source))
    }

    /// Means over its tasks.
    pub fn summary(&self) -> Summary {
        let mut ways: Vec<String> =
            self.tasks.iter().flat_map(|task| task.baselines.keys().cloned()).collect();
        ways.sort();
        ways.dedup();
        let mut against: BTreeMap<String, Against> =
            ways.iter().map(|way| (way.clone(), self.against(|task| task.speedup_over(way)))).collect();
        if !against.is_empty() {
            against.insert("best".to_owned(), self.against(TaskResult::speedup));
        }
        let right = self.tasks.iter().filter(|task| task.outcome == Outcome::Right).count();
        Summary { tasks: self.tasks.len(), right, against }
    }

    fn against(&self, speedup: impl Fn(&TaskResult) -> Option<f64>) -> Against {
        let speedups: Vec<f64> = self.tasks.iter().filter_map(speedup).collect();
        let logarithms: f64 = speedups.iter().map(|speedup| speedup.ln()).sum();
        let share = |threshold: f64| {
            let fast = speedups.iter().filter(|&&speedup| speedup >= threshold).count();
            (threshold, fast as f64 / self.tasks.len().max(1) as f64)
        };
        Against {
            geometric_mean: if speedups.is_empty() {
                0.0
            } else {
                (logarithms / speedups.len() as f64).exp()
            },
            timed: speedups.len(),
            fast: THRESHOLDS.into_iter().map(share).collect(),
        }
    }

    /// What became worse since an earlier report: tasks that were right and are not, and those that take longer.
    pub fn regressions(&self, earlier: &Report) -> Vec<String> {
        let mut found = Vec::new();
        for task in &self.tasks {
            let Some(before) = earlier.tasks.iter().find(|before| before.number == task.number) else {
                continue;
            };
            let place = format!("task {} ({})", task.number, task.name);
            if before.outcome == Outcome::Right && task.outcome != Outcome::Right {
                let why = task.reasons.first().map_or(String::new(), |reason| format!(": {reason}"));
                found.push(format!("{place} was right, and is not{why}"));
            }
            if let (Some(was), Some(is)) = (&before.timing, &task.timing)
                && is.median > SLOWER * was.median
                // What lies within the spread of either run is not a change.
                && is.low > was.high
            {
                found.push(format!("{place} took {:.4} ms, and takes {:.4} ms", was.median, is.median));
            }
        }
        found
    }
}

impl Report {
    /// The report for a person: a line for each task, and the means.
    pub fn text(&self) -> String {
        let mut out =
            format!("KernelBench, level {}, on {}, PyTorch {}\n\n", self.level, self.device, self.torch);
        let mut ways: Vec<&String> = self.tasks.iter().flat_map(|task| task.baselines.keys()).collect();
        ways.sort();
        ways.dedup();
        let timed = self.tasks.iter().any(|task| task.timing.is_some());
        let _ = write!(out, "{:>3}  {:<42} {:<11}", "#", "task", "results");
        if timed {
            let _ = write!(out, " {:>10}", "ms");
            ways.iter().for_each(|way| out += &format!(" {way:>12}"));
            out += &format!(" {:>9}", "speed-up");
        }
        if self.tasks.iter().any(|task| task.predicted.is_some()) {
            out += " predicted ms";
        }
        out.push('\n');
        for task in &self.tasks {
            let _ = write!(
                out,
                "{:>3}  {:<42.42} {:<11}",
                task.number,
                task.name.replace('_', " "),
                task.outcome.word()
            );
            if timed {
                let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
                let _ = write!(out, " {:>10}", number(task.timing.as_ref().map(|timing| timing.median)));
                for way in &ways {
                    let _ =
                        write!(out, " {:>12}", number(task.baselines.get(*way).map(|timing| timing.median)));
                }
                let speedup = task.speedup().map_or("-".to_owned(), |speedup| format!("{speedup:.2} ×"));
                let _ = write!(out, " {speedup:>9}");
            }
            if let Some(predicted) = &task.predicted {
                let _ = write!(out, " {:>12.4}", predicted.milliseconds);
            }
            let _ = writeln!(out);
            for reason in task.reasons.iter().take(3) {
                let _ = writeln!(out, "       {}", reason.lines().next().unwrap_or_default());
            }
        }
        let summary = self.summary();
        let _ = writeln!(out, "\n{} of {} are right", summary.right, summary.tasks);
        for (way, against) in summary.against.iter().filter(|(_, against)| against.timed > 0) {
            let fast = against.fast.iter().map(|(p, share)| format!("fast_{p} {:.0} %", 100.0 * share));
            let _ = writeln!(
                out,
                "against {way}: {:.2} × (geometric mean of {}), {}",
                against.geometric_mean,
                against.timed,
                fast.collect::<Vec<_>>().join(", ")
            );
        }
        out
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn timing(median: f64) -> Timing {
        Timing {
            median,
            low: median * 0.99,
            high: median * 1.01,
            runs: 100,
            hidden: 0.0,
            clocks: Vec::new(),
            first_seconds: None,
        }
    }

    pub fn task(number: u32, outcome: Outcome, own: f64, eager: f64, compile: f64) -> TaskResult {
        TaskResult {
            number,
            name: format!("Task_{number}"),
            solution: "elementwise".to_owned(),
            fingerprint: String::new(),
            outcome,
            reasons: Vec::new(),
            rounds: Vec::new(),
            timing: Some(timing(own)),
            baselines: [("eager".to_owned(), timing(eager)), ("compile".to_owned(), timing(compile))].into(),
            baselines_failed: BTreeMap::new(),
            predicted: None,
            shrunk: serde_json::Value::Null,
        }
    }

    pub fn report(tasks: Vec<TaskResult>) -> Report {
        Report {
            kernelbench_report: FORMAT,
            level: 1,
            device: "a GPU".to_owned(),
            torch: "2.11".to_owned(),
            tasks,
        }
    }

    #[test]
    fn means_and_shares() {
        let tasks = vec![
            task(1, Outcome::Right, 1.0, 2.0, 4.0),
            task(2, Outcome::Right, 1.0, 8.0, 0.5),
            // Fast and wrong counts as a task, and for nothing else.
            task(3, Outcome::Refused, 0.001, 1.0, 1.0),
            task(4, Outcome::Right, 2.0, 2.0, 2.0),
        ];
        let summary = report(tasks).summary();
        assert_eq!((summary.tasks, summary.right), (4, 3));
        let eager = &summary.against["eager"];
        // 2, 8 and 1.
        assert!((eager.geometric_mean - 16f64.powf(1.0 / 3.0)).abs() < 1e-12);
        assert_eq!(eager.timed, 3);
        assert_eq!(eager.fast, [(0.0, 0.75), (0.8, 0.75), (1.0, 0.75), (1.05, 0.5), (1.5, 0.5), (2.0, 0.5)]);
        // The best of both: 2, 0.5 and 1.
        assert!((summary.against["best"].geometric_mean - 1.0).abs() < 1e-12);
        assert_eq!(summary.against["best"].fast[3], (1.05, 0.25));
    }

    #[test]
    fn the_text_has_a_line_for_each_task() {
        let mut refused = task(2, Outcome::Refused, 1.0, 1.0, 1.0);
        refused.reasons.push("result 0 shares memory with input 0".to_owned());
        let text = report(vec![task(1, Outcome::Right, 1.0, 2.0, 4.0), refused]).text();
        assert!(text.contains("  1  Task 1                                     right           1.0000       4.0000       2.0000    2.00 ×"), "{text}");
        assert!(
            text.contains("refused") && text.contains("       result 0 shares memory with input 0\n"),
            "{text}"
        );
        assert!(text.contains("1 of 2 are right"), "{text}");
        assert!(
            text.contains("against best: 2.00 × (geometric mean of 1), fast_0 50 %, fast_0.8 50 %"),
            "{text}"
        );
    }

    #[test]
    fn what_became_worse_is_told() {
        let earlier = report(vec![
            task(1, Outcome::Right, 1.0, 1.0, 1.0),
            task(2, Outcome::Right, 1.0, 1.0, 1.0),
            task(3, Outcome::Right, 1.0, 1.0, 1.0),
        ]);
        let mut wrong = task(1, Outcome::Refused, 1.0, 1.0, 1.0);
        wrong.reasons.push("result 0 shares memory with input 0".to_owned());
        let later = report(vec![
            wrong,
            task(2, Outcome::Right, 1.2, 1.0, 1.0),
            task(3, Outcome::Right, 1.04, 1.0, 1.0),
        ]);
        assert_eq!(
            later.regressions(&earlier),
            [
                "task 1 (Task_1) was right, and is not: result 0 shares memory with input 0",
                "task 2 (Task_2) took 1.0000 ms, and takes 1.2000 ms",
            ]
        );
        assert!(earlier.regressions(&later).is_empty());
    }

    #[test]
    fn reports_are_kept_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        report(vec![task(1, Outcome::Right, 1.0, 2.0, 4.0)]).write(&file).unwrap();
        let read = Report::read(&file).unwrap();
        assert_eq!(read.tasks[0].speedup(), Some(2.0));
        fs::write(&file, "{}").unwrap();
        assert!(Report::read(&file).unwrap_err().to_string().contains("is not a report of KernelBench"));
    }
}

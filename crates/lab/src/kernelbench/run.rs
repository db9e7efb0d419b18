//! Runs tasks: what a solution has to show, in which order, in which process.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use kinora_ptx::ChipSpec;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    KernelBenchError, Outcome, Plan, Report, Round, Task, TaskResult, Timing, compile, predict,
    process::{self, Worker, described},
    report::FORMAT,
    simulate,
    solution::{self, Solution},
    verdict::{Compared, refusal},
};

/// What PyTorch's model runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The CPU; kernels run in the simulator.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// How PyTorch runs its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// As it is.
    Eager,
    /// `torch.compile`.
    Compile,
    /// `torch.compile` with `mode="max-autotune"`.
    MaxAutotune,
}

impl Baseline {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Eager => "eager",
            Baseline::Compile => "compile",
            Baseline::MaxAutotune => "max-autotune",
        }
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout of the benchmark.
    pub folder: PathBuf,
    /// The level.
    pub level: u32,
    /// Some of its tasks; all if empty.
    pub only: Vec<u32>,
    /// What PyTorch runs on.
    pub device: Device,
    /// A folder with solutions; ours if there is none.
    pub solutions: Option<PathBuf>,
    /// The ways of PyTorch that are timed.
    pub baselines: Vec<Baseline>,
    /// Whether tasks run with small sizes.
    pub shrink: bool,
    /// Whether kernels are also predicted at the task's own sizes.
    pub predict: bool,
    /// The chip that is simulated, and predicted.
    pub chip: ChipSpec,
    /// An interpreter that has PyTorch.
    pub python: PathBuf,
    /// Seconds that a worker may take for one answer.
    pub seconds: u64,
    /// What all seeds come from. Solutions do not see it.
    pub seed: u64,
}

/// Elements that the inputs of a task that was made small have at most, unless its solution says what sizes fit.
const SMALL: u64 = 20_000;

/// The most timed runs. Each has inputs of its own, so that a result which was kept from an earlier one is of no use.
const TIMED_RUNS: u64 = 100;

/// Runs before them, which are not timed.
const WARM_UP: u64 = 2;

/// The checks of a solution: inputs from where, in new memory or at the addresses of the call before. A result that is looked up by
/// an input's address is wrong in the second, one that was kept from an earlier call in all but the first.
const ROUNDS: [(&str, &str); 5] =
    [("own", "new"), ("own", "same"), ("own", "new"), ("shifted", "same"), ("scaled", "new")];

/// Of a kernel in the simulator: every call starts with memory of its own there.
const SIMULATED_ROUNDS: [(&str, &str); 2] = [("own", "new"), ("shifted", "new")];

/// Runs tasks.
#[derive(Debug)]
pub struct Runner {
    options: Options,
    tasks: Vec<Task>,
    solutions: PathBuf,
    /// The worker's files, our solutions, and what processes exchange.
    folder: TempDir,
    /// PyTorch's own worker. It runs nothing that is not trusted, so that one serves all tasks, and compiles with what it has loaded.
    reference: Option<Worker>,
    /// The worker of the next solution: it loads PyTorch while the one before is at work.
    next: Option<Seat>,
    /// What the first worker said of itself.
    torch: String,
    device: String,
}

/// A solution's worker, in a folder of its own.
#[derive(Debug)]
struct Seat {
    // Ended before its folder goes.
    worker: Worker,
    folder: TempDir,
}

impl Runner {
    /// Finds the tasks, and unpacks what the workers need.
    ///
    /// # Errors
    /// If there are no tasks, or files cannot be written.
    pub fn new(mut options: Options) -> Result<Runner, KernelBenchError> {
        // The workers have working folders of their own.
        for folder in [Some(&mut options.folder), options.solutions.as_mut()].into_iter().flatten() {
            *folder = std::path::absolute(&*folder)
                .map_err(|source| KernelBenchError::file("read", folder, source))?;
        }
        let tasks = super::tasks(&options.folder, options.level, &options.only)?;
        let folder = tempfile::Builder::new().prefix("kinora-kernelbench-").tempdir();
        let folder =
            folder.map_err(|source| KernelBenchError::file("write to", &std::env::temp_dir(), source))?;
        process::unpack(folder.path())?;
        let solutions = match &options.solutions {
            Some(own) => own.clone(),
            None => {
                let shipped = folder.path().join("solutions");
                fs::create_dir(&shipped)
                    .map_err(|source| KernelBenchError::file("write", &shipped, source))?;
                solution::unpack(&shipped)?;
                shipped
            }
        };
        Ok(Runner {
            options,
            tasks,
            solutions,
            folder,
            reference: None,
            next: None,
            torch: String::new(),
            device: "cpu".to_owned(),
        })
    }

    /// The tasks.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Runs all tasks. `kept` has the results of an earlier run, which are not computed again unless the solution has changed; `seen`
    /// gets the report after each task, to keep it.
    ///
    /// # Errors
    /// What `seen` returns. A task that cannot be run is a result as well.
    pub fn run(
        &mut self,
        kept: Option<&Report>,
        mut seen: impl FnMut(&Report, &TaskResult) -> Result<(), KernelBenchError>,
    ) -> Result<Report, KernelBenchError> {
        let mut report = Report {
            kernelbench_report: FORMAT,
            level: self.options.level,
            device: kept.map_or(String::new(), |kept| kept.device.clone()),
            torch: kept.map_or(String::new(), |kept| kept.torch.clone()),
            tasks: Vec::new(),
        };
        for task in self.tasks.clone() {
            let found = solution::solution(&self.solutions, self.options.level, task.number);
            let earlier =
                kept.and_then(|kept| kept.tasks.iter().find(|earlier| earlier.number == task.number));
            let unchanged = earlier.filter(|earlier| {
                let known = matches!(&found, Ok(Some(now)) if now.fingerprint == earlier.fingerprint);
                known && kept.is_some_and(|kept| self.answers(kept, earlier))
            });
            let result = match (unchanged, found) {
                (Some(unchanged), _) => unchanged.clone(),
                (None, Ok(Some(solution))) => self.task(&task, &solution),
                (None, Ok(None)) => blank(&task, None, Outcome::Missing, Vec::new()),
                (None, Err(error)) => blank(&task, None, Outcome::Failed, vec![described(&error)]),
            };
            if !self.torch.is_empty() {
                (report.torch, report.device) = (self.torch.clone(), self.device.clone());
            }
            report.tasks.push(result);
            if let Some(result) = report.tasks.last() {
                seen(&report, result)?;
            }
        }
        Ok(report)
    }

    /// Whether an earlier result is what would come out now. What could not be run may have had a reason that is gone.
    fn answers(&self, kept: &Report, earlier: &TaskResult) -> bool {
        let options = &self.options;
        let shrunk = earlier.shrunk.as_object().is_some_and(|sizes| !sizes.is_empty());
        let same = kept.level == options.level
            && (kept.device == "cpu") == (options.device == Device::Cpu)
            && shrunk == options.shrink;
        let complete = options.baselines.iter().all(|way| {
            let name = way.name();
            earlier.baselines.contains_key(name) || earlier.baselines_failed.contains_key(name)
        });
        same && match earlier.outcome {
            Outcome::Right => {
                // Kernels in the simulator have a prediction instead of times.
                (earlier.timing.is_none() || complete)
                    && (earlier.timing.is_some() || !options.predict || earlier.predicted.is_some())
            }
            Outcome::Refused => true,
            Outcome::Failed | Outcome::Missing => false,
        }
    }

    fn task(&mut self, task: &Task, solution: &Solution) -> TaskResult {
        let mut result = blank(task, Some(solution), Outcome::Right, Vec::new());
        let reference = self.reference.take().map_or_else(|| self.reference_worker(), Ok);
        let ran = reference.and_then(|mut reference| {
            self.checked(task, solution, &mut reference, &mut result)?;
            // One in whose task something went wrong is not used again.
            reference.ask(&json!({"do": "unload"}), self.limit(), |_| Ok(Value::Null))?;
            self.reference = Some(reference);
            Ok(())
        });
        if let Err(error) = ran {
            result.outcome = Outcome::Failed;
            result.reasons.push(described(&error));
        }
        if result.outcome == Outcome::Right && !result.reasons.is_empty() {
            result.outcome = Outcome::Refused;
        }
        result
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.options.seconds)
    }

    fn reference_worker(&self) -> Result<Worker, KernelBenchError> {
        Worker::start(&self.options.python, self.folder.path(), "reference", self.folder.path())
    }

    fn seat(&self) -> Result<Seat, KernelBenchError> {
        let folder = tempfile::tempdir_in(self.folder.path());
        let folder =
            folder.map_err(|source| KernelBenchError::file("write to", self.folder.path(), source))?;
        let worker = Worker::start(&self.options.python, self.folder.path(), "solution", folder.path())?;
        Ok(Seat { worker, folder })
    }

    /// Checks a solution and times it, in a process that ends with this.
    fn checked(
        &mut self,
        task: &Task,
        solution: &Solution,
        reference: &mut Worker,
        result: &mut TaskResult,
    ) -> Result<(), KernelBenchError> {
        let limit = self.limit();
        let Seat { worker: mut candidate, folder: exchange } =
            self.next.take().map_or_else(|| self.seat(), Ok)?;
        if self.tasks.last().is_some_and(|last| last.number != task.number) {
            self.next = Some(self.seat()?);
        }
        let chip = self.options.chip.clone();
        let serve = move |message: &Value| served(message, &chip);
        let cpu = self.options.device == Device::Cpu;
        let simulated = cpu && solution.is_cuda;

        let mut load = json!({
            "do": "load", "task": task.file, "device": if cpu { "cpu" } else { "cuda" }, "seed": self.seed(task, 0),
            "overrides": if self.options.shrink { solution.shrink.clone() } else { None },
            "shrink": if self.options.shrink { SMALL } else { 0 }, "threads": if cpu { 1 } else { 0 },
        });
        let loaded = reference.ask(&load, limit, &serve)?;
        self.torch = loaded["torch"].as_str().unwrap_or_default().to_owned();
        self.device = loaded["device"].as_str().unwrap_or_default().to_owned();
        result.shrunk = loaded["overrides"].clone();

        load["overrides"] = loaded["overrides"].clone();
        load["shrink"] = json!(0);
        load["solution"] = solution.request.clone();
        load["folder"] = json!(exchange.path());
        let trial = candidate.ask(&load, limit, &serve)?["trial"].take();
        let tried = reference.ask(&json!({"do": "tries", "trial": trial}), limit, &serve)?;
        let share = json!({"do": "share", "within_memory": tried["within_memory"]});
        candidate.ask(&share, limit, &serve)?;

        let rounds: &[(&str, &str)] = if simulated { &SIMULATED_ROUNDS } else { &ROUNDS };
        for (number, (distribution, placement)) in rounds.iter().enumerate() {
            let seed = self.seed(task, 1 + number as u64);
            let tf32 = simulated && solution.tf32;
            let round = json!({"do": "round", "seed": seed, "distribution": distribution, "tf32": tf32});
            let expected = reference.ask(&round, limit, &serve)?;
            if expected["finite"] == json!(false) && *distribution != "own" {
                // The logarithm of a number below zero, say: the task is not for such inputs.
                continue;
            }
            let call = json!({
                "do": "call", "seed": seed, "distribution": distribution, "placement": placement, "expected": expected["results"],
            });
            let called = candidate.ask(&call, limit, &serve)?;
            let place = format!("{distribution} inputs, call {}", number + 1);
            result.reasons.extend(texts(&called["wrong"]).map(|wrong| format!("{place}: {wrong}")));
            result.reasons.extend(
                texts(&called["findings"]).map(|found| format!("{place}: the simulator found {found}")),
            );
            let returned = called["results"].as_array().is_some_and(|results| !results.is_empty());
            // One that returns nothing and was accused of nothing is judged as well.
            if returned || result.reasons.is_empty() {
                let judged = judge(reference, &called["results"], limit, &serve)?;
                match judged {
                    Ok(results) => {
                        let wrong =
                            results.iter().enumerate().filter_map(|(number, one)| refusal(number, one));
                        result.reasons.extend(wrong.map(|wrong| format!("{place}: {wrong}")));
                        result.rounds.push(Round { distribution: (*distribution).to_owned(), seed, results });
                    }
                    Err(shapes) => result.reasons.push(format!("{place}: {shapes}")),
                }
            }
            if !result.reasons.is_empty() {
                return Ok(());
            }
        }

        let seeds: Vec<u64> = (0..TIMED_RUNS + WARM_UP).map(|run| self.seed(task, 1000 + run)).collect();
        // The simulator's own speed says nothing.
        if !simulated {
            reference.ask(&json!({"do": "forget"}), limit, &serve)?;
            let chosen = self.seed(task, 200) % TIMED_RUNS;
            let time = json!({"do": "time", "seeds": seeds, "judged": chosen});
            let timed = candidate.ask(&time, limit, &serve)?;
            result.reasons.extend(texts(&timed["wrong"]).map(|wrong| format!("while timed: {wrong}")));
            let timing = timing(&timed)?;
            if timing.hidden > 0.1 * timing.median + 0.05 {
                result.reasons.push(format!(
                    "while timed: the host waits {:.3} ms a run longer than events on the stream say: work is left on another stream",
                    timing.hidden
                ));
            }
            // A slow solution has fewer runs: then the last one is judged.
            let judged = chosen.min(TIMED_RUNS.min(u64::from(timing.runs)).saturating_sub(1));
            result.timing = Some(timing);
            let round =
                json!({"do": "round", "seed": seeds[judged as usize], "distribution": "own", "tf32": false});
            reference.ask(&round, limit, &serve)?;
            match judge(reference, &timed["results"], limit, &serve)? {
                Ok(results) => {
                    let wrong = results.iter().enumerate().filter_map(|(number, one)| refusal(number, one));
                    result.reasons.extend(wrong.map(|wrong| format!("while timed: {wrong}")));
                }
                Err(shapes) => result.reasons.push(format!("while timed: {shapes}")),
            }
            // What the solution holds is not PyTorch's to work around.
            drop(candidate);
            reference.ask(&json!({"do": "forget"}), limit, &serve)?;
            for baseline in &self.options.baselines {
                let request = json!({"do": "time", "way": baseline.name(), "seeds": seeds});
                match reference.ask(&request, limit, &serve).and_then(|timed| self::timing(&timed)) {
                    Ok(timing) => drop(result.baselines.insert(baseline.name().to_owned(), timing)),
                    Err(KernelBenchError::Refused(why)) => {
                        result.baselines_failed.insert(baseline.name().to_owned(), why);
                    }
                    Err(error) => return Err(error),
                }
            }
        } else if self.options.predict {
            let request = json!({"do": "predict", "task": task.file, "solution": solution.request});
            let predicted = candidate.ask(&request, limit, &serve)?;
            result.predicted = serde_json::from_value(predicted).ok();
        }
        Ok(())
    }

    /// A seed for a purpose. SplitMix64, so that seeds of neighbouring purposes have nothing in common.
    fn seed(&self, task: &Task, purpose: u64) -> u64 {
        let mut state = self.options.seed ^ (u64::from(task.number) << 32) ^ purpose;
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (state ^ (state >> 31)) >> 1
    }
}

fn blank(task: &Task, solution: Option<&Solution>, outcome: Outcome, reasons: Vec<String>) -> TaskResult {
    TaskResult {
        number: task.number,
        name: task.name.clone(),
        solution: solution.map_or(String::new(), |solution| solution.name.clone()),
        fingerprint: solution.map_or(String::new(), |solution| solution.fingerprint.clone()),
        outcome,
        reasons,
        rounds: Vec::new(),
        timing: None,
        baselines: std::collections::BTreeMap::new(),
        baselines_failed: std::collections::BTreeMap::new(),
        predicted: None,
        shrunk: Value::Null,
    }
}

/// Has the reference compare results; an error of the inner kind is about their shapes.
fn judge(
    reference: &mut Worker,
    results: &Value,
    limit: Duration,
    serve: impl FnMut(&Value) -> Result<Value, KernelBenchError>,
) -> Result<Result<Vec<Compared>, String>, KernelBenchError> {
    let judged = reference.ask(&json!({"do": "judge", "results": results}), limit, serve)?;
    if let Some(shapes) = judged["shapes"].as_str() {
        return Ok(Err(shapes.to_owned()));
    }
    let results = serde_json::from_value(judged["results"].clone());
    results.map(Ok).map_err(|error| {
        KernelBenchError::Refused(format!("the reference's answer is not understood: {error}"))
    })
}

fn timing(answer: &Value) -> Result<Timing, KernelBenchError> {
    serde_json::from_value(answer.clone())
        .map_err(|error| KernelBenchError::Refused(format!("the worker's times are not understood: {error}")))
}

fn texts(values: &Value) -> impl Iterator<Item = &str> {
    values.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// What a worker asks for: PTX, a run in the simulator, or a prediction.
fn served(message: &Value, chip: &ChipSpec) -> Result<Value, KernelBenchError> {
    let plan: Plan = serde_json::from_value(message["plan"].clone()).map_err(|error| {
        KernelBenchError::Refused(format!("the declaration's launches cannot be used: {error}"))
    })?;
    let refused = |error: serde_json::Error| KernelBenchError::Refused(error.to_string());
    match message["ask"].as_str() {
        Some("simulate") => serde_json::to_value(simulate(&plan, chip)?).map_err(refused),
        Some("predict") => serde_json::to_value(predict(&plan, chip)?).map_err(refused),
        Some("compile") => {
            let part =
                |at: usize| message["capability"][at].as_u64().and_then(|number| u32::try_from(number).ok());
            let capability = part(0).zip(part(1)).unwrap_or(chip.capability);
            Ok(json!({"ptx": compile(&plan, capability)?}))
        }
        _ => Err(KernelBenchError::Refused(format!(
            "a worker asks for {}, which is not known",
            message["ask"]
        ))),
    }
}

/// Whether a folder can be written to: asked before hours of work.
///
/// # Errors
/// If it cannot.
pub fn writable(file: &Path) -> Result<(), KernelBenchError> {
    let beside = file.with_extension("part");
    fs::write(&beside, "")
        .and_then(|()| fs::remove_file(&beside))
        .map_err(|source| KernelBenchError::file("write", file, source))
}

#[cfg(test)]
mod tests {
    use super::{
        super::report::tests::{report, task},
        *,
    };

    #[test]
    fn only_results_of_the_same_run_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let level = folder.path().join("level1");
        fs::create_dir(&level).unwrap();
        fs::write(level.join("1_Task.py"), "").unwrap();
        let runner = |change: fn(&mut Options)| {
            let mut options = Options {
                folder: folder.path().to_owned(),
                level: 1,
                only: Vec::new(),
                device: Device::Cuda,
                solutions: None,
                baselines: vec![Baseline::Eager],
                shrink: false,
                predict: false,
                chip: ChipSpec::h200(),
                python: PathBuf::from("python3"),
                seconds: 1,
                seed: 0,
            };
            change(&mut options);
            Runner::new(options).unwrap()
        };
        let kept = report(vec![
            task(1, Outcome::Right, 1.0, 2.0, 2.0),
            task(2, Outcome::Failed, 1.0, 2.0, 2.0),
            TaskResult { shrunk: json!({"n": 4}), ..task(3, Outcome::Right, 1.0, 2.0, 2.0) },
        ]);
        let answered =
            |runner: &Runner| kept.tasks.iter().map(|task| runner.answers(&kept, task)).collect::<Vec<_>>();
        assert_eq!(answered(&runner(|_| {})), [true, false, false]);
        assert_eq!(answered(&runner(|options| options.shrink = true)), [false, false, true]);
        assert_eq!(answered(&runner(|options| options.device = Device::Cpu)), [false; 3]);
        assert_eq!(answered(&runner(|options| options.baselines = vec![Baseline::MaxAutotune])), [false; 3]);
    }
}

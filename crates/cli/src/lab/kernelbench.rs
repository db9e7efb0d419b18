//! `kinora lab kernelbench`: a public benchmark's tasks, solved by kernels, beside PyTorch.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use kinora_lab::kernelbench::{
    Baseline, Device, KernelBenchError, Options, Outcome, Report, Runner, TaskResult, described, page,
    writable,
};
use kinora_ptx::ChipSpec;
use serde_json::json;

use crate::{answer, failure::Failure, print, sim::quantities::chip};

const EXAMPLES: &str = "\
Examples:
  kinora lab kernelbench ~/KernelBench --shrink --device cpu --only 19,23
      Our kernels for two tasks at small sizes, in the simulator with all
      checks.

  kinora lab kernelbench ~/KernelBench --baseline eager,compile \\
      --save now.json --html now.html --compare before.json
      Everything on a GPU, beside PyTorch; the exit code is 1 if something
      became slower or wrong since before.json.

  kinora lab kernelbench ~/KernelBench --solutions mine
      Solutions of your own: mine/19.py with a class ModelNew, or mine/19.cu
      with mine/19.toml, which says what the kernel needs and launches.";

/// Runs KernelBench: solutions in CUDA or Python, checked and timed beside PyTorch.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct KernelBenchArgs {
    /// A checkout of KernelBench
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// The level
    #[arg(long, default_value_t = 1, value_name = "N")]
    level: u32,
    /// Some of its tasks, by number: 19 or 1-18,97
    #[arg(long, value_delimiter = ',', value_parser = numbers, value_name = "TASKS")]
    only: Vec<std::ops::RangeInclusive<u32>>,
    /// What PyTorch runs on; on the CPU kernels run in the simulator
    #[arg(long, value_enum, default_value_t = On::Cuda)]
    device: On,
    /// A folder with solutions instead of ours
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    solutions: Option<PathBuf>,
    /// The ways of PyTorch to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "eager,compile", value_name = "WAYS")]
    baseline: Vec<Way>,
    /// Run the tasks with small sizes
    #[arg(long)]
    shrink: bool,
    /// Predict the times of kernels at the tasks' own sizes on this chip; needs --device cpu
    #[arg(long, value_name = "CHIP", value_parser = chip)]
    predict: Option<ChipSpec>,
    /// The Python that has PyTorch
    #[arg(long, env = "KINORA_LAB_PYTHON", default_value = "python3", value_hint = ValueHint::ExecutablePath)]
    python: PathBuf,
    /// Seconds that a solution may take for loading, a call or its timing
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    limit: u64,
    /// What inputs are drawn from
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Keep the results in this file after each task; with --resume go on where it ends
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    save: Option<PathBuf>,
    /// Take results from the file of --save for solutions that have not changed, if they were run in the same way
    #[arg(long, requires = "save")]
    resume: bool,
    /// Tell what became slower or wrong since an earlier report
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    compare: Option<PathBuf>,
    /// Write the report as a page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    Cpu,
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    Eager,
    Compile,
    MaxAutotune,
}

fn numbers(text: &str) -> Result<std::ops::RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number =
        |text: &str| text.trim().parse::<u32>().map_err(|_| format!("{text:?} is not a task's number"));
    let (first, last) = (number(first)?, number(last)?);
    // A level has a hundred tasks or so; an endless range is a mistake.
    if first > last || last > 10_000 {
        return Err(format!("{text} is not a range of tasks: write 19 or 1-18"));
    }
    Ok(first..=last)
}

fn not_run(error: &KernelBenchError) -> Failure {
    Failure::LabNotRun(described(error))
}

/// Runs the benchmark, and reports.
pub fn run(arguments: &KernelBenchArgs) -> Result<(), Failure> {
    let earlier =
        arguments.compare.as_deref().map(Report::read).transpose().map_err(|error| not_run(&error))?;
    for file in arguments.save.iter().chain(&arguments.html) {
        let resumed = arguments.resume && arguments.save.as_ref() == Some(file);
        if file.exists() && !arguments.force && !resumed {
            return Err(Failure::FileExists(file.clone()));
        }
        writable(file).map_err(|error| not_run(&error))?;
    }
    let kept = match &arguments.save {
        Some(file) if arguments.resume && file.exists() => {
            Some(Report::read(file).map_err(|error| not_run(&error))?)
        }
        _ => None,
    };
    let device = if arguments.device == On::Cpu { Device::Cpu } else { Device::Cuda };
    if arguments.predict.is_some() && device == Device::Cuda {
        return Err(Failure::Usage("--predict is for --device cpu: a GPU is measured".to_owned()));
    }
    let mut runner = Runner::new(Options {
        folder: arguments.folder.clone(),
        level: arguments.level,
        only: arguments.only.iter().cloned().flatten().collect(),
        device,
        solutions: arguments.solutions.clone(),
        baselines: arguments.baseline.iter().map(|way| baseline(*way)).collect(),
        shrink: arguments.shrink,
        predict: arguments.predict.is_some(),
        chip: arguments.predict.clone().unwrap_or_else(ChipSpec::h200),
        python: arguments.python.clone(),
        seconds: arguments.limit,
        seed: arguments.seed,
    })
    .map_err(|error| not_run(&error))?;
    let count = runner.tasks().len();
    let seen = |report: &Report, task: &TaskResult| {
        if !arguments.json {
            let reason = task.reasons.first().map_or(String::new(), |reason| format!(": {reason}"));
            // Progress is for whoever waits; the report follows.
            eprintln!(
                "{} of {count}: {} {}, {}{reason}",
                report.tasks.len(),
                task.number,
                task.name,
                task.outcome.word()
            );
        }
        arguments.save.as_deref().map_or(Ok(()), |file| report.write(file))
    };
    let report = runner.run(kept.as_ref(), seen).map_err(|error| not_run(&error))?;
    if let Some(file) = &arguments.html {
        write(file, &page(&report))?;
    }
    let regressions = earlier.map_or(Vec::new(), |earlier| report.regressions(&earlier));
    let wrong = report.tasks.iter().filter(|task| task.outcome == Outcome::Refused).count();
    let failed = report.tasks.iter().filter(|task| task.outcome == Outcome::Failed).count();
    let failure = if wrong + regressions.len() > 0 {
        Some(Failure::LabFound { count: wrong + regressions.len() })
    } else if failed > 0 {
        Some(Failure::LabNotRun(format!("{failed} of {count} tasks could not be run")))
    } else {
        None
    };
    if !arguments.json {
        print(&report.text())?;
        for regression in &regressions {
            print(&format!("worse than before: {regression}\n"))?;
        }
    }
    let answered = json!({"report": report, "summary": report.summary(), "regressions": regressions});
    answer(arguments.json, answered, failure)
}

fn baseline(way: Way) -> Baseline {
    match way {
        Way::Eager => Baseline::Eager,
        Way::Compile => Baseline::Compile,
        Way::MaxAutotune => Baseline::MaxAutotune,
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|error| Failure::LabNotRun(format!("cannot write {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_chosen_by_numbers_and_ranges() {
        assert_eq!(numbers("19"), Ok(19..=19));
        assert_eq!(numbers("1-18"), Ok(1..=18));
        assert!(numbers("18-1").is_err());
        assert!(numbers("x").is_err());
        assert!(numbers("1-4000000000").is_err());
    }
}

//! `kinora lab`: kernels of one's own, checked, timed and compared.

pub mod arguments;
mod compare;
mod new;
pub mod spmv;
mod watch;

use std::path::PathBuf;

use kinora::files::Inputs;
use kinora_lab::{
    Arrays, GpuChoice, Options, Outcome, Stage, Task, TaskError, Verdict, results, run as run_task,
};
use kinora_ptx::Calibration;

use self::arguments::{KernelArgs, LabArgs, LabCommand, MethodArgs, RunArgs};
use crate::{
    answer,
    display::{Display, Unit},
    failure::Failure,
    files,
    standard_output::print_styled,
};

/// Does what was asked for.
pub fn run(arguments: &LabArgs) -> Result<(), Failure> {
    match &arguments.command {
        LabCommand::Run(arguments) => run_one(arguments),
        LabCommand::New(arguments) => new::run(arguments),
        LabCommand::Compare(arguments) => compare::run(arguments),
        LabCommand::Watch(arguments) => watch::run(arguments),
        LabCommand::Spmv(arguments) => spmv::run(arguments),
    }
}

/// Runs a task and tells what came of it.
fn run_one(arguments: &RunArgs) -> Result<(), Failure> {
    let task = task(arguments)?;
    let options = options(&arguments.method)?;
    let outcome = observed(&task, &options, arguments.method.json);
    if !arguments.method.json {
        print_styled(&outcome.text())?;
    }
    if let Some(folder) = &arguments.results {
        write_results(&task, &options, folder, arguments.force)?;
    }
    let answered = serde_json::to_value(&outcome).unwrap_or_default();
    answer(arguments.method.json, answered, failure(&outcome))
}

/// The task that was asked for, or one that the options make of a kernel.
fn task(arguments: &RunArgs) -> Result<Task, Failure> {
    let kernel = &arguments.kernel;
    let extension = arguments.task.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    let is_source = matches!(extension.as_deref(), Some("cu" | "cuh" | "ptx"));
    if is_source {
        if kernel.grid.is_empty() || kernel.block.is_empty() || kernel.outputs.is_empty() {
            return Err(Failure::Usage(format!(
                "{} is a kernel without a task: say --grid, --block, --argument, --input and --output, or write a task file; \
                 `kinora lab new` makes one to start from",
                arguments.task.display()
            )));
        }
        return Task::from_arrays(&arrays(&arguments.task, kernel)?).map_err(of_task);
    }
    let given = kernel.entry.is_some()
        || !(kernel.grid.is_empty() && kernel.block.is_empty() && kernel.inputs.is_empty())
        || !(kernel.outputs.is_empty() && kernel.arguments.is_empty());
    if given {
        let text = "--entry, --grid, --block, --input, --output and --argument are for a kernel without a task (.cu or .ptx)";
        return Err(Failure::Usage(text.to_owned()));
    }
    Task::open(&arguments.task).map_err(of_task)
}

fn arrays(source: &std::path::Path, kernel: &KernelArgs) -> Result<Arrays, Failure> {
    let named = |texts: &[String], option: &str| -> Result<Vec<(String, PathBuf)>, Failure> {
        let pair = |text: &String| match text.split_once('=') {
            Some((name, file)) => Ok((name.to_owned(), PathBuf::from(file))),
            None => Err(Failure::Usage(format!("{option} {text}: expected NAME=FILE"))),
        };
        texts.iter().map(pair).collect()
    };
    Ok(Arrays {
        source: source.to_owned(),
        entry: kernel.entry.clone(),
        grid: kernel.grid.clone(),
        block: kernel.block.clone(),
        shared: kernel.shared,
        inputs: named(&kernel.inputs, "--input")?,
        outputs: named(&kernel.outputs, "--output")?,
        arguments: kernel.arguments.clone(),
    })
}

fn options(method: &MethodArgs) -> Result<Options, Failure> {
    let calibration = match &method.calibration {
        Some(path) => Calibration::read(path).map_err(|error| Failure::LabNotRun(error.to_string()))?,
        None => Calibration::default(),
    };
    Ok(Options {
        chip: method.device_profile.clone(),
        calibration,
        gpu: method.gpu.unwrap_or(GpuChoice::IfThere),
        seed: method.seed,
        races: !method.no_races,
        nonfinite: method.check_nan,
        steps: method.steps,
        time: !method.no_time,
        quick: false,
        compile: method.compile.clone(),
    })
}

/// Runs a task, with a bar on a terminal.
fn observed(task: &Task, options: &Options, quiet: bool) -> Outcome {
    let mut display = Display::new(quiet, false);
    let outcome = run_task(task, options, &mut |stage: &Stage| {
        let name = match &stage.sizes {
            Some(sizes) => format!("{} ({sizes})", stage.what),
            None => stage.what.to_owned(),
        };
        display.advance(&name, Unit::Parts, stage.done as u64, stage.total.max(1) as u64);
    });
    display.abandon_stage();
    outcome
}

/// Writes what the kernel leaves for the first size.
fn write_results(
    task: &Task,
    options: &Options,
    folder: &std::path::Path,
    force: bool,
) -> Result<(), Failure> {
    let inputs = Inputs::new(task.files());
    let contents = results(task, options).map_err(|problem| Failure::LabNotRun(problem.message))?;
    for (name, bytes) in contents {
        files::check(&folder.join(name), force, &inputs)?.write(&bytes)?;
    }
    Ok(())
}

/// Why the command fails, if it does: its exit code tells a wrong kernel from one that could not be run.
fn failure(outcome: &Outcome) -> Option<Failure> {
    match outcome.verdict {
        Verdict::Right | Verdict::Unchecked => None,
        Verdict::Wrong => Some(Failure::LabFound { count: outcome.problems() }),
        Verdict::NotRun => Some(Failure::LabNotRun(format!("{} could not be run", outcome.task))),
    }
}

fn of_task(error: TaskError) -> Failure {
    match error {
        TaskError::Unreadable { path, source } => Failure::Unreadable { path, source }.not_run(),
        error => Failure::LabNotRun(error.to_string()),
    }
}

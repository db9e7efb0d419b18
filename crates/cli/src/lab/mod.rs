//! `kinora lab`: kernels of one's own, checked, timed and compared.

pub mod arguments;
mod compare;
#[cfg(feature = "cuda")]
pub mod kernelbench;
mod new;
pub mod spmv;
mod tune;
mod watch;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use kinora::files::Inputs;
#[cfg(feature = "cuda")]
use kinora_lab::launch_once;
use kinora_lab::{
    Arrays, GpuChoice, Options, Outcome, Stage, Task, TaskError, Verdict, end_programs,
    results as run_for_results, run as run_task,
};
use kinora_ptx::Calibration;

use self::arguments::{KernelArgs, LabArgs, LabCommand, MethodArgs, RunArgs};
use crate::{
    answer,
    display::{Display, Unit},
    failure::Failure,
    files::{self, NewFile},
    interrupt,
    standard_output::print_styled,
};

/// Does what was asked for.
pub fn run(arguments: &LabArgs) -> Result<(), Failure> {
    // What the lab has started ends with the program, a reference or a compiler.
    interrupt::on_immediate_exit(end_programs);
    let ran = match &arguments.command {
        LabCommand::Run(arguments) => run_one(arguments),
        LabCommand::New(arguments) => new::run(arguments),
        LabCommand::Compare(arguments) => compare::run(arguments),
        LabCommand::Watch(arguments) => watch::run(arguments),
        LabCommand::Tune(arguments) => tune::run(arguments),
        #[cfg(feature = "cuda")]
        LabCommand::Kernelbench(arguments) => kernelbench::run(arguments),
        LabCommand::Spmv(arguments) => spmv::run(arguments),
    };
    end_programs();
    // A wrong kernel has an exit code of its own, which a file that exists must not have.
    ran.map_err(Failure::not_run)
}

/// Runs a task and tells what came of it.
fn run_one(arguments: &RunArgs) -> Result<(), Failure> {
    let task = task(arguments)?;
    let mut options = options(&arguments.method)?;
    #[cfg(feature = "cuda")]
    if arguments.launch_only {
        return launch_once(&task, &options).map_err(|problem| Failure::LabNotRun(problem.message));
    }
    options.torch_compile = arguments.torch_compile;
    options.again = again(arguments);
    let inputs = Inputs::new(task.files());
    let page =
        arguments.html.as_ref().map(|path| files::check(path, arguments.force, &inputs)).transpose()?;
    let results = match &arguments.results {
        Some(folder) => new_results(&task, folder, arguments.force, &inputs)?,
        None => Vec::new(),
    };
    let outcome = observed(&task, &options, arguments.method.json);
    if !arguments.method.json {
        print_styled(&outcome.text())?;
    }
    let failure = failure(&outcome);
    // What is wrong with the kernel matters more than a file that could not be written.
    let written = write(&task, &options, &outcome, page.as_ref(), &results);
    let failure = match (failure, written) {
        (Some(failure), Err(unwritten)) => {
            unwritten.tell();
            Some(failure)
        }
        (failure, written) => failure.or(written.map_err(Failure::not_run).err()),
    };
    let answered = serde_json::to_value(&outcome).unwrap_or_default();
    answer(arguments.method.json, answered, failure)
}

/// The command that launches the same kernels once, for a profiler.
fn again(arguments: &RunArgs) -> Option<Vec<OsString>> {
    // A kernel without a task has many options of its own, and is rarely what is tuned.
    let is_task = arguments.kernel.grid.is_empty();
    let mut words = vec![std::env::current_exe().ok().filter(|_| is_task)?.into_os_string()];
    words.extend(["lab", "run"].map(OsString::from));
    words.push(arguments.task.clone().into_os_string());
    words.extend(["--launch-only", "--seed"].map(OsString::from));
    words.push(arguments.method.seed.to_string().into());
    for option in &arguments.method.compile {
        words.push("--compile".into());
        words.push(option.into());
    }
    Some(words)
}

/// Writes what was asked for beside the answer.
fn write(
    task: &Task,
    options: &Options,
    outcome: &Outcome,
    page: Option<&NewFile>,
    results: &[(String, NewFile)],
) -> Result<(), Failure> {
    if let Some(page) = page {
        page.write(outcome.page().as_bytes())?;
    }
    if results.is_empty() || outcome.verdict == Verdict::NotRun {
        return Ok(());
    }
    let contents = run_for_results(task, options).map_err(|problem| Failure::LabNotRun(problem.message))?;
    for (name, bytes) in contents {
        if let Some((_, file)) = results.iter().find(|(known, _)| *known == name) {
            file.write(&bytes)?;
        }
    }
    Ok(())
}

/// The files of the results, none of which may be there. Their folder is made.
fn new_results(
    task: &Task,
    folder: &Path,
    force: bool,
    inputs: &Inputs,
) -> Result<Vec<(String, NewFile)>, Failure> {
    let failed = |source| Failure::File { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let results = task.buffers.iter().filter(|buffer| buffer.is_result());
    let file = |name: String| {
        let file = files::check(&folder.join(&name), force, inputs)?;
        Ok((name, file))
    };
    results.map(|buffer| file(format!("{}.npy", buffer.name))).collect()
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

fn arrays(source: &Path, kernel: &KernelArgs) -> Result<Arrays, Failure> {
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
        None => Calibration::of(&method.device_profile),
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
        explain: !method.no_time,
        quick: false,
        compile: method.compile.clone(),
        ..Options::default()
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

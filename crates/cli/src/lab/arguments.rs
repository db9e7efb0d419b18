//! The options of `kinora lab`.

use std::path::PathBuf;

use clap::{
    Args, Subcommand, ValueHint,
    builder::{NonEmptyStringValueParser, PossibleValuesParser},
};
use kinora_lab::GpuChoice;
use kinora_ptx::ChipSpec;

use super::spmv::SpmvArgs;
use crate::{quantities::whole_number, sim::quantities::chip};

const EXAMPLES: &str = "\
Examples:
  kinora lab new sum --like reduction
      Write sum/task.toml and sum/sum.cu, which pass as they are.

  kinora lab run sum
      Compile the kernel, run it on a simulated GPU with all checks, compare its
      results with the reference, and predict its time.

  kinora lab watch sum
      The same, in short, at every save.

  kinora lab compare sum/sum.cu faster.cu
      Two kernels for one task, side by side.

  kinora lab tune sum
      The fastest of the parameters that the kernel declares, in lines such as
      `// tune: TILE = 64, 128`.

  kinora lab kernelbench KernelBench --level 1
      A checkout of the benchmark, with kernels of ours, beside PyTorch.

  kinora lab spmv matrix.mtx
      Sparse matrix × vector, the worked example: every kernel on a matrix of
      yours.

crates/lab/README.md says what a task file may hold.

Exit codes: 0 right, 1 wrong or something was found, 2 the command line is
wrong, 3 it could not be run, 130 interrupted.";

/// Checks, times and compares CUDA kernels of your own.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora lab --help` has examples.")]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

impl LabArgs {
    /// Whether the output is a JSON object.
    pub fn json(&self) -> bool {
        match &self.command {
            LabCommand::Run(arguments) => arguments.method.json,
            LabCommand::Compare(arguments) => arguments.method.json,
            LabCommand::Tune(arguments) => arguments.method.json,
            #[cfg(feature = "cuda")]
            LabCommand::Kernelbench(arguments) => arguments.json,
            LabCommand::Spmv(arguments) => arguments.json,
            LabCommand::New(_) | LabCommand::Watch(_) => false,
        }
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum LabCommand {
    /// Compile a kernel, run it with all checks, compare it with its reference, and tell its time
    Run(Box<RunArgs>),
    /// Write a task and a kernel that pass as they are, to start from
    New(NewArgs),
    /// Run two kernels for one task, and show them side by side
    Compare(Box<CompareArgs>),
    /// Search the parameters that a kernel declares, such as `// tune: TILE = 64, 128`
    Tune(Box<TuneArgs>),
    /// Run a task again whenever one of its files is saved
    Watch(Box<WatchArgs>),
    /// Solve the tasks of KernelBench with kernels of ours or yours, beside PyTorch
    #[cfg(feature = "cuda")]
    Kernelbench(Box<super::kernelbench::KernelBenchArgs>),
    /// Multiply a sparse matrix by a vector, with every kernel: the worked example
    Spmv(Box<SpmvArgs>),
}

const RUN_EXAMPLES: &str = "\
Examples:
  kinora lab run sum
  kinora lab run sum/task.toml --device-profile a100 --json
      A task, by its folder or its file.

  kinora lab run reference.py
      A Python file with a function `reference` and a dictionary TASK, which
      holds what task.toml would.

  kinora lab run sum --html sum.html
      The same as a page, with the source beside its counters.

  kinora lab run scale.cu --grid 4 --block 256 --input x=x.npy \\
      --output y=expected.npy --argument x --argument y --argument i32:1000
      A kernel, with inputs and right results in files of NumPy's.

Exit codes: 0 right, 1 wrong or something was found, 2 the command line is
wrong, 3 it could not be run, 130 interrupted.";

/// Runs a task.
#[derive(Args, Debug)]
#[command(after_long_help = RUN_EXAMPLES, after_help = "`kinora lab run --help` has examples.")]
pub struct RunArgs {
    /// The task: task.toml, its folder, or a Python file that declares TASK. A kernel (.cu or .ptx) with the options below.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub task: PathBuf,

    /// Write the results of the first size into this folder, as files of NumPy's.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub results: Option<PathBuf>,

    /// Write a page with what was found, what to try, the roofline, and the source beside its counters.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Also time `torch.compile` of a reference in PyTorch, beside the kernel on a GPU.
    #[arg(long)]
    pub torch_compile: bool,

    /// Launch the kernels once on the GPU and do nothing else: for a profiler.
    #[cfg(feature = "cuda")]
    #[arg(long, hide = true)]
    pub launch_only: bool,

    /// Replace files that exist.
    #[arg(short, long)]
    pub force: bool,

    /// A kernel without a task.
    #[command(flatten, next_help_heading = "A kernel without a task")]
    pub kernel: KernelArgs,

    /// How it is run.
    #[command(flatten, next_help_heading = "How it is run")]
    pub method: MethodArgs,
}

/// A kernel without a task.
#[derive(Args, Debug)]
pub struct KernelArgs {
    /// The kernel's name, if the file has several.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub entry: Option<String>,

    /// Blocks on each axis: X, X,Y or X,Y,Z.
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',')]
    pub grid: Vec<String>,

    /// Threads of a block on each axis.
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',')]
    pub block: Vec<String>,

    /// Dynamic shared memory of a block, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = whole_number::<u64>)]
    pub shared: u64,

    /// An input from a file of NumPy's.
    #[arg(long = "input", value_name = "NAME=FILE")]
    pub inputs: Vec<String>,

    /// An output, and a file of NumPy's with what is right.
    #[arg(long = "output", value_name = "NAME=FILE")]
    pub outputs: Vec<String>,

    /// A kernel argument, in order: the name of an input or output, or a number such as i32:5.
    #[arg(long = "argument", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// How tasks are run.
#[derive(Args, Debug)]
pub struct MethodArgs {
    /// The chip to simulate and to predict the time on: t4, rtx3090, rtx4090, a100, h100, h200 or b200.
    #[arg(long, value_name = "NAME", default_value = "h200", value_parser = chip)]
    pub device_profile: ChipSpec,

    /// A calibration measured on a device, for the prediction. Without it: that of an H200 for h100 and h200, which comes with the
    /// program, and published figures for other chips.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub calibration: Option<PathBuf>,

    /// The GPU to run on as well: its number, or none. Without this option, the first there is.
    #[arg(long, value_name = "NUMBER", value_parser = gpu)]
    pub gpu: Option<GpuChoice>,

    /// The seed of random inputs.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole_number::<u64>)]
    pub seed: u64,

    /// A compiler option, such as -DTILE=64.
    #[arg(long = "compile", value_name = "OPTION", allow_hyphen_values = true)]
    pub compile: Vec<String>,

    /// Stop a launch after this many warp instructions [default: 100000000].
    #[arg(long, value_name = "COUNT", value_parser = whole_number::<u64>)]
    pub steps: Option<u64>,

    /// Do not look for races, which is faster.
    #[arg(long)]
    pub no_races: bool,

    /// Also find instructions that produce an infinity from finite operands, or a NaN from numbers.
    #[arg(long)]
    pub check_nan: bool,

    /// Neither predict nor measure the time.
    #[arg(long)]
    pub no_time: bool,

    /// Print one JSON object to standard output.
    #[arg(long)]
    pub json: bool,
}

/// Writes a task to start from.
#[derive(Args, Debug)]
pub struct NewArgs {
    /// The task's name, which its folder gets.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub name: String,

    /// What the kernel is like.
    #[arg(long, value_name = "KIND", default_value = "elementwise", value_parser = kinds())]
    pub like: String,
}

const COMPARE_EXAMPLES: &str = "\
Example:
  kinora lab compare sum/sum.cu faster.cu
      The task is sum/task.toml, which lies beside the first one. Both need the
      kernels that it names.

Exit codes: 0 both are right, 1 one is wrong, 2 the command line is wrong, 3 one
could not be run, 130 interrupted.";

/// Compares two kernels.
#[derive(Args, Debug)]
#[command(after_long_help = COMPARE_EXAMPLES)]
pub struct CompareArgs {
    /// The first kernel's source.
    #[arg(value_hint = ValueHint::FilePath)]
    pub first: PathBuf,

    /// The second kernel's source.
    #[arg(value_hint = ValueHint::FilePath)]
    pub second: PathBuf,

    /// The task that both are for [default: the task.toml beside the first one].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub task: Option<PathBuf>,

    /// How they are run.
    #[command(flatten)]
    pub method: MethodArgs,
}

const TUNE_EXAMPLES: &str = "\
Example:
  kinora lab tune sum
      The kernel declares what to try, in lines such as
      `// tune: TILE = 64, 128`. Each becomes a macro, -DTILE=64, and the value
      of the task's constant of that name, which the launch may depend on. Give
      the macro a default:
      #ifndef TILE, #define TILE 64, #endif.

Every combination is predicted first. The best are then run with all checks and,
if there is a GPU, measured. The search goes on where it was stopped.

Exit codes: 0 a variant is right, 1 none is, 2 the command line is wrong, 3 it
could not be run, 130 interrupted.";

/// Searches the parameters of a kernel.
#[derive(Args, Debug)]
#[command(after_long_help = TUNE_EXAMPLES)]
pub struct TuneArgs {
    /// The task: task.toml, its folder, or a Python file that declares TASK.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub task: PathBuf,

    /// How many of the best predictions are run with all checks.
    #[arg(long, value_name = "COUNT", default_value_t = kinora_lab::tune::CHECKED, value_parser = whole_number::<usize>)]
    pub check: usize,

    /// Where the search is kept [default: tune.json in the task's folder].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,

    /// How they are run.
    #[command(flatten)]
    pub method: MethodArgs,
}

/// Watches a task.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// The task: task.toml, its folder, or a Python file that declares TASK.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub task: PathBuf,

    /// Run every size with all checks, not the first alone, and explain the time.
    #[arg(long)]
    pub all: bool,

    /// Stop after so many runs.
    #[arg(long, value_name = "COUNT", hide = true, value_parser = whole_number::<usize>)]
    pub runs: Option<usize>,

    /// The chip to simulate and to predict the time on.
    #[arg(long, value_name = "NAME", default_value = "h200", value_parser = chip)]
    pub device_profile: ChipSpec,
}

fn kinds() -> PossibleValuesParser {
    PossibleValuesParser::new(kinora_lab::kinds())
}

fn gpu(text: &str) -> Result<GpuChoice, String> {
    match text {
        "none" => Ok(GpuChoice::Never),
        number => {
            let wrong = |_| format!("{number:?} is neither a GPU's number nor `none`");
            number.parse().map(GpuChoice::Number).map_err(wrong)
        }
    }
}

//! `kinora lab spmv`: sparse matrix × vector, the lab's worked example.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, ValueHint};
use kinora::files::Inputs;
use kinora_lab::spmv::{
    Csr, Index, Value,
    cpu::Scalars,
    examine::{Examination, Settings, examine, first_gpu},
    generate::Recipe,
    market::{self, Limits, MarketError},
    suite::{RECIPES, Suite},
};
use kinora_ptx::{Calibration, ChipSpec};
use serde_json::json;

use crate::{answer, failure::Failure, files, print, quantities::whole_number, sim::quantities::chip};

const EXAMPLES: &str = "\
Examples:
  kinora lab spmv matrix.mtx
      What the matrix is like, whether every kernel multiplies by it correctly,
      how long each takes, and which to use: measured on a GPU beside cuSPARSE,
      or predicted without one.

  kinora lab spmv --generate power-law:rows=100000,nonzeros=3000000,seed=1
      The same for a generated matrix. Kinds are diagonal, banded, uniform,
      power-law, block, empty-rows, dense-row, stencil-2d and stencil-3d; they
      take rows, columns, nonzeros and seed.

  kinora lab spmv --suite --save spmv.json
      Twenty generated matrices, for a machine with a GPU. `--only power-law`
      takes those whose recipe has these words.

Exit codes: 0 right, 1 a kernel is wrong, 2 the command line is wrong, 3 it
could not be run, 130 interrupted.";

/// Multiplies a sparse matrix by a vector, with every kernel.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora lab spmv --help` has examples.")]
pub struct SpmvArgs {
    /// A Matrix Market file (.mtx).
    #[arg(value_hint = ValueHint::FilePath, required_unless_present_any = ["generate", "suite"], conflicts_with_all = ["generate", "suite"])]
    pub matrix: Option<PathBuf>,

    /// Make a matrix: KIND:rows=N,columns=N,nonzeros=N,seed=N.
    #[arg(long, value_name = "RECIPE", conflicts_with = "suite")]
    pub generate: Option<Recipe>,

    /// Go through twenty generated matrices.
    #[arg(long)]
    pub suite: bool,

    /// Take only those of the twenty whose recipe contains this.
    #[arg(long, value_name = "WORDS", requires = "suite", conflicts_with_all = ["matrix", "generate"])]
    pub only: Option<String>,

    /// Seconds to try kernels on a matrix; those that have not begun by then are left out.
    #[arg(long, value_name = "SECONDS", value_parser = whole_number::<u64>)]
    pub limit: Option<u64>,

    /// The type of values.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub values: Values,

    /// The type of row offsets and columns.
    #[arg(long, value_name = "TYPE", default_value = "i32", conflicts_with = "suite")]
    pub indices: Indices,

    /// The factor of the product.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, allow_hyphen_values = true)]
    pub alpha: f64,

    /// The factor of what the result held before.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, allow_hyphen_values = true)]
    pub beta: f64,

    /// Products that the matrix is wanted for, which decides whether preparing tables pays.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = whole_number::<usize>)]
    pub products: usize,

    /// The chip to simulate and predict without a GPU: t4, rtx3090, rtx4090, a100, h100, h200 or b200.
    #[arg(long, value_name = "NAME", default_value = "h200", value_parser = chip)]
    pub device_profile: ChipSpec,

    /// A calibration measured on a device, for the prediction.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub calibration: Option<PathBuf>,

    /// The GPU to measure on, by number; otherwise the first, if there is one.
    #[arg(long, value_name = "NUMBER", value_parser = whole_number::<usize>)]
    pub gpu: Option<usize>,

    /// Simulate and predict even if there is a GPU.
    #[arg(long, conflicts_with = "gpu")]
    pub no_gpu: bool,

    /// Rows and non-zeros that are simulated with all checks; of a larger matrix the first rows are.
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = whole_number::<usize>)]
    pub checked: usize,

    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,

    /// Write the JSON object to a file as well.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,

    /// Replace a file that exists.
    #[arg(short, long)]
    pub force: bool,
}

/// Types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Values {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// Types of offsets and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Indices {
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
}

/// Examines what was asked for.
pub fn run(arguments: &SpmvArgs) -> Result<(), Failure> {
    let scalars = [arguments.alpha, arguments.beta];
    if scalars.iter().any(|scalar| !scalar.is_finite()) {
        return Err(Failure::Usage("--alpha and --beta must be finite numbers".to_owned()));
    }
    let inputs = Inputs::new(arguments.matrix.iter().map(PathBuf::as_path));
    let save =
        arguments.save.as_ref().map(|path| files::check(path, arguments.force, &inputs)).transpose()?;
    let settings = settings(arguments)?;
    let (text, found, wrong) = match (arguments.suite, arguments.values, arguments.indices) {
        (true, Values::F32, _) => suite::<f32>(arguments, &settings)?,
        (true, Values::F64, _) => suite::<f64>(arguments, &settings)?,
        (_, Values::F32, Indices::I32) => one::<f32, i32>(arguments, &settings)?,
        (_, Values::F32, Indices::I64) => one::<f32, i64>(arguments, &settings)?,
        (_, Values::F64, Indices::I32) => one::<f64, i32>(arguments, &settings)?,
        (_, Values::F64, Indices::I64) => one::<f64, i64>(arguments, &settings)?,
    };
    if let Some(file) = save {
        file.write(format!("{found}\n").as_bytes())?;
    }
    if !arguments.json {
        print(&text)?;
    }
    answer(arguments.json, found, (wrong > 0).then_some(Failure::LabFound { count: wrong }))
}

fn settings(arguments: &SpmvArgs) -> Result<Settings, Failure> {
    let simulated = Settings::simulated(arguments.device_profile.clone());
    let calibration = match &arguments.calibration {
        Some(path) => Calibration::read(path).map_err(|error| Failure::LabNotRun(error.to_string()))?,
        None => simulated.calibration.clone(),
    };
    let gpu = match arguments.gpu {
        _ if arguments.no_gpu => None,
        Some(number) => Some(number),
        None => first_gpu(),
    };
    Ok(Settings {
        calibration,
        scalars: Scalars { alpha: arguments.alpha, beta: arguments.beta },
        gpu,
        checked_nonzeros: arguments.checked,
        products: arguments.products,
        limit: arguments.limit.map(Duration::from_secs),
        ..simulated
    })
}

/// What is printed, what is saved, and how many kernels are wrong.
type Answer = (String, serde_json::Value, usize);

fn one<V: Value, I: Index>(arguments: &SpmvArgs, settings: &Settings) -> Result<Answer, Failure> {
    let (name, matrix) = match (&arguments.matrix, &arguments.generate) {
        (Some(path), _) => {
            let read = market::read_file::<V, I>(path, Limits::default());
            let matrix = read.map_err(|error| match error {
                MarketError::Io(source) => {
                    Failure::NotRun(Box::new(Failure::Unreadable { path: path.clone(), source }))
                }
                error => Failure::LabNotRun(format!("{}: {error}", path.display())),
            })?;
            (path.display().to_string(), matrix)
        }
        (None, Some(recipe)) => {
            let made: Csr<V, I> =
                recipe.generate().map_err(|error| Failure::Usage(format!("--generate {recipe}: {error}")))?;
            (recipe.to_string(), made)
        }
        (None, None) => return Err(Failure::Usage("name a matrix, or make one with --generate".to_owned())),
    };
    let found = examine(&name, &matrix, settings).map_err(|error| Failure::LabNotRun(error.to_string()))?;
    Ok((found.text(), json!(found), wrong(&found)))
}

fn suite<V: Value>(arguments: &SpmvArgs, settings: &Settings) -> Result<Answer, Failure> {
    let only = arguments.only.as_deref().unwrap_or_default();
    let recipes: Vec<&str> = RECIPES.into_iter().filter(|recipe| recipe.contains(only)).collect();
    if recipes.is_empty() {
        return Err(Failure::Usage(format!(
            "--only {only}: no recipe of the suite contains this; they are {}",
            RECIPES.join(" ")
        )));
    }
    let mut printed = Ok(());
    let mut show = |text: &str| {
        if !arguments.json && printed.is_ok() {
            printed = print(text);
        }
    };
    show(&Suite::head());
    // Each matrix has its line as soon as it is known.
    let found = Suite::run::<V>(&recipes, settings, |one| show(&Suite::line(one)));
    let found = found.map_err(|error| Failure::LabNotRun(error.to_string()))?;
    printed?;
    let wrong = found.matrices.iter().map(wrong).sum();
    Ok((found.conclusion(), json!(found), wrong))
}

/// Kernels that are wrong or did not run.
fn wrong(found: &Examination) -> usize {
    found.kernels.iter().filter(|kernel| !kernel.is_right()).count()
}

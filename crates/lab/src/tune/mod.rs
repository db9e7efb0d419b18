//! Searching a kernel's parameters: predictions first, then the best of them are checked and, on a GPU, measured.

mod parameters;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use parameters::{Choice, Parameter, choices, parameters};

#[cfg(feature = "cuda")]
use crate::execute::GpuDevice;
use crate::{
    report::{Outcome, Verdict},
    run::{GpuChoice, Observer, Options, Stage, predicted, run},
    task::{Task, TaskError},
};

/// How many of the best predictions are checked by default.
pub const CHECKED: usize = 8;

/// The most bytes of a header that are looked at.
const MAX_HEADER: u64 = 16 << 20;

/// Why there is nothing to search.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The source declares no parameters.
    #[error(
        "the kernel declares no parameters; write lines such as `// tune: TILE = 64, 128` and guard the macro's default with #ifndef"
    )]
    Nothing,
    /// A declaration is wrong.
    #[error("line {line} of the kernel: {what}")]
    Declaration {
        /// The line.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// There are too many combinations.
    #[error("the parameters have more than {most} combinations; give fewer values, or tune them in turns")]
    TooMany {
        /// The most there may be.
        most: usize,
    },
    /// The kernel's source cannot be read.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// A choice of parameters, and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// The values.
    pub choice: Choice,
    /// Predicted seconds.
    pub predicted: Option<f64>,
    /// Measured seconds.
    pub measured: Option<f64>,
    /// Whether its results are right; `None` if that was not checked.
    pub right: Option<bool>,
    /// Why it is out: it does not compile, cannot be launched, or is wrong.
    pub problem: Option<String>,
}

/// What a search has found so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// The task.
    pub task: String,
    /// The chip of the predictions.
    pub chip: String,
    /// Tells sources, tasks and options apart: what was found holds for no other.
    pub key: String,
    /// The variants, the best first once the search is over.
    pub variants: Vec<Variant>,
    /// Whether the search is over.
    pub done: bool,
}

impl Tuning {
    /// The fastest variant that is right: by measurement where there is one, otherwise by prediction.
    pub fn best(&self) -> Option<&Variant> {
        let right = || self.variants.iter().filter(|variant| variant.right == Some(true));
        let measured = right().filter(|variant| variant.measured.is_some());
        let by = |of: fn(&Variant) -> Option<f64>| {
            move |a: &&Variant, b: &&Variant| {
                of(a).unwrap_or(f64::INFINITY).total_cmp(&of(b).unwrap_or(f64::INFINITY))
            }
        };
        measured
            .min_by(by(|variant| variant.measured))
            .or_else(|| right().min_by(by(|variant| variant.predicted)))
    }
}

/// Searches the parameters of a task's kernel. What an earlier search found is taken over if it was for the same source and chip. After
/// each step, `keep` is given all that is known, so that a search can go on after it was stopped.
///
/// # Errors
/// If the kernel cannot be read or declares nothing to search.
pub fn tune(
    task: &Task,
    options: &Options,
    checked: usize,
    earlier: Option<Tuning>,
    observe: &mut Observer<'_>,
    keep: &mut dyn FnMut(&Tuning),
) -> Result<Tuning, TuneError> {
    let source = task.read_source()?;
    let all = choices(&parameters(&source.text)?);
    let key = key(task, options, &source.text);
    let mut tuning = match earlier {
        Some(earlier) if earlier.key == key => Tuning { done: false, ..earlier },
        _ => Tuning {
            task: task.name.clone(),
            chip: options.chip.name.clone(),
            key,
            variants: Vec::new(),
            done: false,
        },
    };
    let total = all.len() + checked.min(all.len());
    for (done, choice) in all.into_iter().enumerate() {
        if tuning.variants.iter().any(|known| known.choice == choice) {
            continue;
        }
        observe(&Stage { what: "predicting", sizes: None, done, total });
        let (task, options) = with_choice(task, options, &choice);
        let options = Options { explain: false, ..options };
        let (predicted, problem) = match predicted(&task, &options) {
            Ok(seconds) => (Some(seconds), None),
            Err(problem) => (None, Some(problem)),
        };
        tuning.variants.push(Variant { choice, predicted, measured: None, right: None, problem });
        keep(&tuning);
    }
    let by_prediction = |variant: &Variant| variant.predicted.unwrap_or(f64::INFINITY);
    tuning.variants.sort_by(|a, b| by_prediction(a).total_cmp(&by_prediction(b)));
    let gpu = options.time && there_is_a_gpu(options.gpu);
    let mut right = 0;
    for place in 0..tuning.variants.len() {
        if right >= checked {
            break;
        }
        let variant = &tuning.variants[place];
        // What was found right where there was no GPU is run again on one.
        let unmeasured = gpu && variant.right == Some(true) && variant.measured.is_none();
        if unmeasured || (variant.right.is_none() && variant.predicted.is_some()) {
            let done = tuning.variants.len() + right;
            observe(&Stage { what: "checking", sizes: None, done, total });
            let (task, options) = with_choice(task, options, &variant.choice);
            let outcome = run(&task, &Options { time: true, explain: false, ..options }, &mut |_| {});
            let variant = &mut tuning.variants[place];
            variant.right = Some(outcome.verdict <= Verdict::Unchecked);
            variant.problem = problem(&outcome);
            variant.measured = outcome.times.iter().find(|time| !time.predicted).map(|time| time.seconds);
            keep(&tuning);
        }
        right += usize::from(tuning.variants[place].right == Some(true));
    }
    let order = |variant: &Variant| {
        let worse = u8::from(variant.right != Some(true));
        (worse, variant.measured.or(variant.predicted).unwrap_or(f64::INFINITY))
    };
    tuning.variants.sort_by(|a, b| {
        let (a, b) = (order(a), order(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    tuning.done = true;
    keep(&tuning);
    Ok(tuning)
}

/// The task and the options for a choice: each parameter is a macro, and a constant of the task if that has one of the name.
fn with_choice(task: &Task, options: &Options, choice: &Choice) -> (Task, Options) {
    let (mut task, mut options) = (task.clone(), options.clone());
    for (name, value) in choice {
        task.set_constant(name, *value as f64);
        options.compile.push(format!("-D{name}={value}"));
    }
    (task, options)
}

/// Why a variant is out.
fn problem(outcome: &Outcome) -> Option<String> {
    let sizes = outcome.devices.iter().flat_map(|device| &device.sizes);
    let mut all = outcome.problems.iter().chain(sizes.flat_map(|size| &size.problems));
    all.next().map(|problem| problem.message.clone())
}

#[cfg(feature = "cuda")]
fn there_is_a_gpu(choice: GpuChoice) -> bool {
    match choice {
        GpuChoice::Never => false,
        GpuChoice::IfThere => GpuDevice::open(0).is_ok(),
        GpuChoice::Number(number) => GpuDevice::open(number).is_ok(),
    }
}

#[cfg(not(feature = "cuda"))]
fn there_is_a_gpu(_choice: GpuChoice) -> bool {
    false
}

/// The headers beside a kernel, which it may include.
fn headers(task: &Task) -> String {
    let is_header = |path: &PathBuf| {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        matches!(extension.as_deref(), Some("h" | "hpp" | "cuh"))
    };
    let beside = std::fs::read_dir(&task.folder).into_iter().flatten().flatten();
    let mut beside: Vec<PathBuf> = beside.map(|entry| entry.path()).filter(is_header).collect();
    beside.sort();
    let text = |path: &PathBuf| kinora_outside::read_text(path, MAX_HEADER).unwrap_or_default();
    beside.iter().map(|path| format!("{}\n{}\n", path.display(), text(path))).collect()
}

/// FNV-1a over everything that decides what a search finds.
fn key(task: &Task, options: &Options, source: &str) -> String {
    let Options { chip, compile, seed, calibration, .. } = options;
    let headers = headers(task);
    let text = format!("{task:?}\n{}\n{compile:?}\n{seed}\n{calibration:?}\n{headers}\n{source}", chip.name);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

impl Tuning {
    /// It as a table.
    pub fn text(&self) -> String {
        use std::fmt::Write;

        let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), crate::feedback::time);
        let shown = |variant: &Variant| {
            let parts = variant.choice.iter().map(|(name, value)| format!("{name}={value}"));
            parts.collect::<Vec<_>>().join(" ")
        };
        let width = self.variants.iter().map(|variant| shown(variant).len()).max().unwrap_or(0).max(10);
        let mut text = format!("{:<width$}  {:>11}  {:>11}\n", "parameters", "predicted", "measured");
        for variant in &self.variants {
            let verdict = match (variant.right, &variant.problem) {
                (Some(true), _) => "right".to_owned(),
                (_, Some(problem)) => {
                    let first = problem.lines().next().unwrap_or("").to_owned();
                    kinora_outside::printable(&first).into_owned()
                }
                (Some(false), None) => "wrong".to_owned(),
                (None, None) => "not checked".to_owned(),
            };
            let (predicted, measured) = (time(variant.predicted), time(variant.measured));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:<width$}  {predicted:>11}  {measured:>11}  {verdict}", shown(variant));
        }
        match self.best() {
            Some(best) => {
                // The GPU that was measured need not be the chip that predictions are for.
                let by = match best.measured {
                    Some(_) => "measured".to_owned(),
                    None => format!("predicted on {}", self.chip),
                };
                let _ = writeln!(text, "best, as {by}: {}", shown(best));
            }
            None => text += "no variant is right\n",
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_not_said_to_be_of_the_simulated_chip() {
        let variant = |measured| Variant {
            choice: [("TILE".to_owned(), 64)].into(),
            predicted: Some(2e-6),
            measured,
            right: Some(true),
            problem: None,
        };
        let text = |measured| {
            let (task, chip, key) = ("t".to_owned(), "H200".to_owned(), String::new());
            Tuning { task, chip, key, variants: vec![variant(measured)], done: true }.text()
        };
        assert!(text(Some(3e-6)).ends_with("\nbest, as measured: TILE=64\n"), "{}", text(Some(3e-6)));
        assert!(text(None).ends_with("\nbest, as predicted on H200: TILE=64\n"), "{}", text(None));
    }
}

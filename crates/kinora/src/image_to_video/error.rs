//! Why a clip could not be made.

use std::{error::Error, fmt, path::PathBuf};

use kinora_graph::{ParameterError, plan::PlanError, tensor::TensorError};
use kinora_models::{
    folder::FolderError, image::ImageError, json::JsonError, lora::LoraError, networks::NetworkError,
    schedulers::SchedulerError, weights::WeightsError,
};
use kinora_runtime::RunError;

use super::{Precision, Stage, Suggestion};
use crate::{device::OpenDeviceError, memory::MemoryLimit, quantisation::QuantisationError, quantity::bytes};

/// Why a clip could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A setting that no clip can be made with.
    #[error("{setting} is {value}, but {rule}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// A configuration of the model.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ConfigError>,
    },
    /// A configuration that was not read from a file.
    #[error(transparent)]
    ConfigInMemory(Box<ConfigError>),
    /// More memory is needed than may be used. Nothing has been read or allocated.
    #[error("{over}; {}", advice(suggestion.as_deref()))]
    OverBudget {
        /// The first network that does not fit the budget.
        over: Box<OverBudget>,
        /// What to ask for instead.
        suggestion: Option<Box<Suggestion>>,
    },
    /// A network of live video does not fit beside those that are there. It has not been loaded.
    #[error(transparent)]
    OverLimit(Box<OverLimit>),
    /// Memory could not be allocated, although the need is within the budget or there is no budget.
    #[error("{part}: {source}")]
    OutOfMemory {
        /// The network.
        part: &'static str,
        /// What could not be allocated.
        source: Box<RunError>,
    },
    /// The weights files lack what a network needs. Only their headers have been read.
    #[error("{source}{}", and_more(*more))]
    Weights {
        /// The first problem.
        source: Box<WeightsError>,
        /// How many more problems there are.
        more: usize,
    },
    /// A stage produced an infinity or a NaN: the clip would be black.
    #[error("{}: a result is not finite in {precision}; {}", stage.describe(), finite_advice(*precision))]
    NotFinite {
        /// The stage.
        stage: Stage,
        /// How weights and activations were stored.
        precision: Precision,
    },
    /// The observer stopped the clip.
    #[error("stopped before the clip was finished")]
    Cancelled,
    /// A thread could not be started.
    #[error(
        "a thread could not be started: {source}; close other programs, or raise the limit on threads (ulimit -u)"
    )]
    Thread {
        /// What the system says.
        source: std::io::Error,
    },
    /// A change of a stream could not be made ready. It has no effect, and the stream goes on as it was.
    #[error("a change is left out: {0}")]
    Change(#[source] Box<GenerateError>),
    /// A change of a stream failed in a way that it never should: a bug in this crate, which no input should cause.
    #[error("internal error: the thread that prepared a change panicked")]
    ChangePanicked,
    /// A LoRA file.
    #[error(transparent)]
    Lora(#[from] LoraError),
    /// What a LoRA file holds could not be read or merged: the cause is a [`LoraError`], which names the file.
    #[error(transparent)]
    LoraValues(ParameterError),
    /// The model's folder or weights.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A network's configuration.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The scheduler.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// The photo or its preprocessing.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A network could not be prepared or run.
    #[error("{part}: {source}")]
    Run {
        /// The network.
        part: &'static str,
        /// What is wrong.
        source: Box<RunError>,
    },
    /// Products in 8 bits.
    #[error(transparent)]
    Quantisation(#[from] QuantisationError),
    /// The device that was asked for cannot be used.
    #[error(transparent)]
    Device(#[from] OpenDeviceError),
    /// A tensor between two networks: a bug in this crate, which no input should cause.
    #[error("internal error: {0}")]
    Tensor(#[from] TensorError),
    /// A network did not produce a result that it should: a bug in this crate, which no input should cause.
    #[error("internal error: {part} produced no {name}")]
    NoResult {
        /// The network.
        part: &'static str,
        /// The result.
        name: &'static str,
    },
}

/// What is wrong with a configuration of a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text, or the kind of a value.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A network's configuration.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The scheduler's configuration.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// The image processor's configuration.
    #[error(transparent)]
    Preprocessor(#[from] ImageError),
    /// A setting of `defaults.json` that no clip can be made with.
    #[error("{setting} is {value}, but {rule}")]
    Setting {
        /// The setting.
        setting: String,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// The part does not fit another.
    #[error(transparent)]
    Parts(#[from] Mismatch),
}

/// Two parts of a model that do not fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's parts do not fit each other: {what} is {got}, but must be {expected}, {with}")]
pub struct Mismatch {
    /// The setting that does not fit.
    pub what: &'static str,
    /// Its value.
    pub got: usize,
    /// What it has to fit.
    pub with: &'static str,
    /// The value that would.
    pub expected: usize,
}

/// A network that needs more memory than may be used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// The network.
    pub part: &'static str,
    /// What it needs, with what the clip holds beside it.
    pub need: usize,
    /// What may be used.
    pub budget: usize,
    /// The weights' share of the need.
    pub weights: usize,
    /// The activations' share of the need.
    pub activations: usize,
    /// The share of everything else: the photo, the latents, the finished frames, and what the threads keep.
    pub working: usize,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |count: usize| bytes(count as u64);
        let (mut need, mut budget) = (shown(self.need), shown(self.budget));
        if need == budget {
            // "12.0 GB does not fit in 12.0 GB": only the exact figures tell the two apart.
            (need, budget) = (format!("{} bytes", self.need), format!("{} bytes", self.budget));
        }
        let (weights, activations) = (shown(self.weights), shown(self.activations));
        let part = self.part;
        write!(f, "the {part} needs {need} of memory (weights {weights}, activations {activations}")?;
        if self.working > 0 {
            write!(f, ", photo, frames and the rest {}", shown(self.working))?;
        }
        write!(f, "), but only {budget} may be used")
    }
}

/// A network of live video that does not fit beside what its model holds already, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// The network.
    pub part: &'static str,
    /// What it needs: the weights that are not there yet, its activations, and what it is given and leaves.
    pub need: usize,
    /// What is held: weights, the activations of all networks, pictures and prompts.
    pub held: usize,
    /// What may be used.
    pub limit: MemoryLimit,
}

impl Error for OverLimit {}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &OverLimit { part, need, held, limit } = self;
        let sum = need.saturating_add(held) as u64;
        // "12.0 GB of 12.0 GB": only the exact figures tell the two apart.
        let exact = bytes(sum) == bytes(limit.bytes);
        let shown = |count: u64| if exact { format!("{count} bytes") } else { bytes(count) };
        write!(f, "the {part} needs {} of memory", shown(need as u64))?;
        if held > 0 {
            write!(f, " beside the {} that are held", shown(held as u64))?;
        }
        write!(f, ", but only {} may be used ({})", shown(limit.bytes), limit.source)
    }
}

fn advice(suggestion: Option<&Suggestion>) -> String {
    match suggestion {
        Some(suggestion) => {
            format!("{suggestion} would fit in {}", bytes(suggestion.peak_bytes as u64))
        }
        None => "no smaller clip that was tried would fit".to_owned(),
    }
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", and {count} more problems") }
}

fn finite_advice(precision: Precision) -> &'static str {
    match precision {
        Precision::F16 | Precision::Fp8 => "try bf16 or f32, which hold larger numbers",
        Precision::BF16 => "try f32, which is more exact",
        Precision::F32 => "the weights or the settings are too large",
    }
}

/// Whether a weight could not be read because there was no memory for it.
fn is_weight_without_memory(error: &RunError) -> bool {
    let RunError::Parameter { source, .. } = error else { return false };
    let Some(cause) = source.source() else { return false };
    let of_lora = cause.downcast_ref::<LoraError>();
    matches!(cause.downcast_ref::<WeightsError>(), Some(WeightsError::Memory { .. }))
        || matches!(of_lora, Some(LoraError::Weights(WeightsError::Memory { .. })))
}

/// Whether a weight could not be made because of a LoRA file.
fn is_of_lora(error: &ParameterError) -> bool {
    error.source().is_some_and(|cause| cause.is::<LoraError>())
}

impl GenerateError {
    /// What a network's error means for the clip: a lack of memory is not the fault of the model's files.
    pub(crate) fn run(part: &'static str, source: RunError) -> Self {
        match source {
            RunError::Stopped => GenerateError::Cancelled,
            RunError::Plan(PlanError::OverBudget { need, budget, weights, arena, .. }) => {
                let over =
                    Box::new(OverBudget { part, need, budget, weights, activations: arena, working: 0 });
                GenerateError::OverBudget { over, suggestion: None }
            }
            source if source.is_out_of_memory() || is_weight_without_memory(&source) => {
                GenerateError::OutOfMemory { part, source: Box::new(source) }
            }
            // Neither the network nor the model's files are to blame.
            RunError::Parameter { source: values, .. } if is_of_lora(&values) => {
                GenerateError::LoraValues(values)
            }
            source => GenerateError::Run { part, source: Box::new(source) },
        }
    }

    /// The same of a network whose activations are measured, which takes more memory than the clip itself.
    pub(crate) fn while_measuring(self) -> GenerateError {
        match self {
            GenerateError::OverBudget { mut over, suggestion } if over.part == "UNet" => {
                over.part = "UNet, whose activations are measured in f16 first,";
                GenerateError::OverBudget { over, suggestion }
            }
            error => error,
        }
    }

    /// Whether memory was refused or ran out: with less of it in use, the same might work.
    pub(crate) fn lacks_memory(&self) -> bool {
        matches!(self, GenerateError::OverLimit(_) | GenerateError::OutOfMemory { .. })
    }

    /// The same with what the clip holds beside the network that does not fit, in the whole budget.
    pub(super) fn with_working(mut self, working: usize, budget: Option<usize>) -> Self {
        if let GenerateError::OverBudget { over, .. } = &mut self {
            over.need = over.need.saturating_add(working);
            over.budget = budget.unwrap_or(over.budget);
            over.working = working;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, TensorType};

    use super::*;

    #[test]
    fn a_lack_of_memory_is_not_the_fault_of_the_files() {
        let weight = WeightsError::Memory {
            part: "unet".to_owned(),
            tensor: "a.weight".to_owned(),
            ty: TensorType::new(DType::F32, [3]),
        };
        let weight = RunError::Parameter { name: "a.weight".to_owned(), source: ParameterError::new(weight) };
        for source in [RunError::OutOfMemory { bytes: 5 }, RunError::Plan(PlanError::TooLarge), weight] {
            let error = GenerateError::run("UNet", source);
            assert!(matches!(error, GenerateError::OutOfMemory { .. }), "{error}");
            assert!(error.to_string().starts_with("UNet: "), "{error}");
        }
        let lora = LoraError::NotFinite { path: "style.safetensors".into(), tensor: "a.lora_A".to_owned() };
        let lora = RunError::Parameter { name: "a.weight".to_owned(), source: ParameterError::new(lora) };
        let error = GenerateError::run("UNet", lora).to_string();
        assert!(error.starts_with("style.safetensors: a.lora_A has a value that is not finite"), "{error}");
        let error = GenerateError::run("UNet", RunError::ClipNotRun);
        assert!(matches!(error, GenerateError::Run { .. }), "{error}");
    }

    #[test]
    fn figures_that_look_alike_are_given_exactly() {
        let over = |need| OverBudget {
            part: "UNet",
            need,
            budget: 12_000_000_000,
            weights: 1,
            activations: 2,
            working: 0,
        };
        let text = over(13_000_000_000).to_string();
        assert!(text.starts_with("the UNet needs 13.0 GB of memory (weights 1 B"), "{text}");
        let text = over(12_000_000_001).to_string();
        assert!(text.contains("12000000001 bytes") && text.contains("but only 12000000000 bytes"), "{text}");
    }
}

//! What can be wrong with a LoRA, or between it and a model.

use std::path::PathBuf;

use kinora_graph::DType;

use crate::weights::WeightsError;

/// Why a LoRA could not be opened or merged.
#[derive(Debug, thiserror::Error)]
pub enum LoraError {
    /// The file could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A tensor that is no low-rank change of a layer.
    #[error(
        "{}: {tensor} is not what a LoRA for Stable Diffusion has. Names of diffusers, peft and kohya are known, and \
         LoRA alone: no DoRA, LoHa, LoKr, and no changed biases",
        path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
    },
    /// There is nothing in the file.
    #[error("{}: there is no LoRA in this file", .0.display())]
    Empty(PathBuf),
    /// A module has one of its two matrices.
    #[error("{}: {module} has no {what} matrix: the file is not whole", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The module.
        module: String,
        /// Which one.
        what: &'static str,
    },
    /// The two matrices of a module do not fit each other.
    #[error("{}: {module} goes down by {down:?} and up by {up:?}, which share no rank", path.display())]
    Rank {
        /// The file.
        path: PathBuf,
        /// The module.
        module: String,
        /// The shape of the first.
        down: Vec<usize>,
        /// The shape of the second.
        up: Vec<usize>,
    },
    /// A module's scale is not a number.
    #[error("{}: the alpha of {module} is not a finite number", path.display())]
    Alpha {
        /// The file.
        path: PathBuf,
        /// The module.
        module: String,
    },
    /// peft's settings are not JSON.
    #[error("{}: the settings in the file's header cannot be read: {source}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        source: serde_json::Error,
    },
    /// A setting of peft that is not supported.
    #[error("{}: {field} is set, which is not supported", path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// The setting.
        field: String,
    },
    /// A strength that is not a number.
    #[error("{}: the strength is {strength}, but must be a finite number", path.display())]
    Strength {
        /// The file.
        path: PathBuf,
        /// The strength.
        strength: f32,
    },
    /// A tensor has a value that is infinite or not a number.
    #[error("{}: {tensor} has a value that is not finite: the file is damaged. Download or copy it again", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
    },
    /// What the files add to a weight is more than its type can hold.
    #[error(
        "{}: with {} the weight {weight} is too large for {dtype}; lower the strength, or use a precision that holds more",
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        if paths.len() == 1 { "this LoRA" } else { "these LoRAs" }
    )]
    TooLarge {
        /// The files that change it.
        paths: Vec<PathBuf>,
        /// The weight's name.
        weight: String,
        /// Its type.
        dtype: DType,
    },
    /// Nothing in the file is of this model.
    #[error(
        "{}: this LoRA is for another model: none of its {count} modules is one of the {part}'s, such as {module}, which \
         adds {shape:?}",
        path.display()
    )]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The model's part.
        part: &'static str,
        /// How many modules there are.
        count: usize,
        /// One of them.
        module: String,
        /// The shape of what it adds.
        shape: Vec<usize>,
    },
    /// The model lacks some of the modules.
    #[error(
        "{}: the {part} has no {}{}: this LoRA was made for a model with other layers",
        path.display(), modules.join(", "), and_more(*count, modules.len())
    )]
    MissingModules {
        /// The file.
        path: PathBuf,
        /// The model's part.
        part: &'static str,
        /// The first of them.
        modules: Vec<String>,
        /// How many there are.
        count: usize,
    },
    /// A module has another size than the model's.
    #[error(
        "{}: {module} adds {got:?}, but the {part} has {expected:?} there: this LoRA is for a model of another width",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The model's part.
        part: &'static str,
        /// The module.
        module: String,
        /// The weight's shape.
        expected: Vec<usize>,
        /// The shape of what the LoRA adds.
        got: Vec<usize>,
    },
}

fn and_more(count: usize, shown: usize) -> String {
    match count.saturating_sub(shown) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

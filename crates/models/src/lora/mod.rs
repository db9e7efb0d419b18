//! LoRA: small changes of a model's weights, merged while these are read (Hu et al. 2021).
//!
//! A module's weight becomes `W + Σ strength · alpha / rank · up · down`, computed in f32: [`Adapted`] when the weight is read,
//! [`Adjustable`] in the graph, with the strengths as an input of the clip phase. Files may have the names of diffusers and peft
//! (`unet.….to_q.lora_A.weight`) or those of kohya (`lora_unet_…_to_q.lora_down.weight`), the latter also with the original
//! code's names of blocks (`lora_unet_input_blocks_4_1_…`), with linear layers and convolutions, and a rank and an `alpha` for
//! each module.

mod adapted;
mod adjustable;
mod error;
mod names;
mod original;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use kinora_graph::{DType, TensorType};
use serde_json::Value;

pub use adapted::Adapted;
pub use adjustable::{Adjustable, STRENGTHS};
pub use error::LoraError;
pub use names::LoraPart;

use crate::weights::{Weights, WeightsError};
use names::{Key, ModuleName, Role};

/// Where newer versions of diffusers keep the settings of peft.
const SETTINGS: &str = "lora_adapter_metadata";

/// A LoRA file. Only its header has been read, and what scales its modules.
#[derive(Debug)]
pub struct Lora {
    path: PathBuf,
    file: Weights,
    modules: Vec<Module>,
}

/// What changes one weight.
#[derive(Clone, Debug)]
struct Module {
    part: LoraPart,
    name: ModuleName,
    /// The names of its tensors in the file.
    down: String,
    up: String,
    /// Their shapes in the file.
    down_shape: Vec<usize>,
    up_shape: Vec<usize>,
    /// `alpha / rank`.
    scale: f32,
}

/// What a file has of a module.
#[derive(Default)]
struct Found {
    down: Option<String>,
    up: Option<String>,
    alpha: Option<String>,
}

impl Lora {
    /// Opens a `.safetensors` file.
    ///
    /// # Errors
    /// If it cannot be read, or has something that is not such a change.
    pub fn open(path: &Path) -> Result<Self, LoraError> {
        let file = Weights::open_file(path)?;
        let mut found: BTreeMap<(LoraPart, ModuleName), Found> = BTreeMap::new();
        for tensor in file.tensors() {
            let Some(Key { part, module, role }) = names::parse(tensor.name()) else {
                return Err(LoraError::Unknown { path: path.to_owned(), tensor: tensor.name().to_owned() });
            };
            let found = found.entry((part, module)).or_default();
            let place = match role {
                Role::Down => &mut found.down,
                Role::Up => &mut found.up,
                Role::Alpha => &mut found.alpha,
            };
            *place = Some(tensor.name().to_owned());
        }
        let settings = settings(path, &file)?;
        let modules = found
            .into_iter()
            .map(|((part, name), found)| module(path, &file, &settings, (part, name), found));
        let modules = modules.collect::<Result<Vec<_>, _>>()?;
        if modules.is_empty() {
            return Err(LoraError::Empty(path.to_owned()));
        }
        Ok(Lora { path: path.to_owned(), file, modules })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it changes a part.
    pub fn changes(&self, part: LoraPart) -> bool {
        self.modules.iter().any(|module| module.part == part)
    }
}

/// peft's settings; null if there are none.
fn settings(path: &Path, file: &Weights) -> Result<Value, LoraError> {
    let Some(text) = file.metadata(SETTINGS) else { return Ok(Value::Null) };
    let settings: Value =
        serde_json::from_str(text).map_err(|source| LoraError::Settings { path: path.to_owned(), source })?;
    for part in LoraPart::ALL {
        for field in ["use_rslora", "use_dora"] {
            if settings.get(format!("{}.{field}", part.name())).is_some_and(|value| value == true) {
                return Err(LoraError::Setting {
                    path: path.to_owned(),
                    field: format!("{}.{field}", part.name()),
                });
            }
        }
    }
    Ok(settings)
}

fn module(
    path: &Path,
    file: &Weights,
    settings: &Value,
    (part, name): (LoraPart, ModuleName),
    found: Found,
) -> Result<Module, LoraError> {
    let missing = |what| LoraError::Incomplete { path: path.to_owned(), module: name.to_string(), what };
    let down = found.down.ok_or_else(|| missing("down"))?;
    let up = found.up.ok_or_else(|| missing("up"))?;
    let shape = |tensor: &str| {
        let stored = file.tensors().find(|stored| stored.name() == tensor);
        stored.map(|stored| stored.shape().to_vec()).unwrap_or_default()
    };
    let (down_shape, up_shape) = (shape(&down), shape(&up));
    let rank = match (down_shape.first(), up_shape.get(1)) {
        (Some(&rank), Some(&same)) if rank == same && rank > 0 => rank,
        _ => {
            let (module, path) = (name.to_string(), path.to_owned());
            return Err(LoraError::Rank { path, module, down: down_shape, up: up_shape });
        }
    };
    let alpha = match found.alpha {
        Some(alpha) => Some(number(file, &alpha)?),
        None => of_settings(settings, part, &name),
    };
    let scale = alpha.map_or(1.0, |alpha| alpha / rank as f32);
    if !scale.is_finite() {
        return Err(LoraError::Alpha { path: path.to_owned(), module: name.to_string() });
    }
    Ok(Module { part, name, down, up, down_shape, up_shape, scale })
}

/// The `alpha` that peft's settings give a module.
fn of_settings(settings: &Value, part: LoraPart, module: &ModuleName) -> Option<f32> {
    let part = part.name();
    let own =
        settings.get(format!("{part}.alpha_pattern")).and_then(|pattern| pattern.get(module.to_string()));
    let alpha = own.or_else(|| settings.get(format!("{part}.lora_alpha")))?;
    alpha.as_f64().map(|alpha| alpha as f32)
}

/// A tensor with one element, of any shape.
fn number(file: &Weights, name: &str) -> Result<f32, WeightsError> {
    let shape = file.tensors().find(|stored| stored.name() == name).map(|stored| stored.shape().to_vec());
    let shape = shape.filter(|shape| shape.iter().all(|&extent| extent == 1)).unwrap_or_default();
    let tensor = file.tensor(name, &TensorType::new(DType::F32, shape))?;
    Ok(tensor.to_f32().first().copied().unwrap_or(f32::NAN))
}

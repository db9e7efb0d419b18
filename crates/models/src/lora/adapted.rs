//! A model's weights with LoRAs merged into them.

use std::collections::HashMap;

use kinora_graph::{DType, ParameterError, Parameters, Tensor, TensorType};
use rayon::prelude::*;

use super::{Lora, LoraError, LoraPart, Module, ModuleName, original};
use crate::weights::{Weights, channels_last};

/// How many modules an error names.
const SHOWN: usize = 3;
/// What a text encoder's names begin with, which transformers 5 leaves out of its files.
const TEXT_MODEL: &str = "text_model.";

/// The weights of one part of a model with LoRAs merged into them, when they are asked for.
#[derive(Debug)]
pub struct Adapted<'a> {
    pub(super) base: &'a Weights,
    pub(super) part: LoraPart,
    /// What is added to a weight, by the name that a graph has for it.
    changes: HashMap<String, Vec<Change<'a>>>,
    strengths: Vec<f32>,
}

/// What one LoRA adds to a weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    /// Which of the LoRAs it is of.
    pub of: usize,
    lora: &'a Lora,
    pub module: &'a Module,
}

impl<'a> Adapted<'a> {
    /// The weights of a part with LoRAs, each with its strength. One that does not change this part is passed over.
    ///
    /// # Errors
    /// If a LoRA is for another model: if the part lacks one of its modules, or has it in another size.
    pub fn new(base: &'a Weights, part: LoraPart, loras: &[(&'a Lora, f32)]) -> Result<Self, LoraError> {
        for &(lora, strength) in loras {
            if !strength.is_finite() {
                return Err(LoraError::Strength { path: lora.path.clone(), strength });
            }
        }
        let all: Vec<&Lora> = loras.iter().map(|&(lora, _)| lora).collect();
        let changes = changes(base, part, &all)?;
        let strengths = loras.iter().map(|&(_, strength)| strength).collect();
        Ok(Adapted { base, part, changes, strengths })
    }

    fn merged(&self, ty: &TensorType, name: &str, changes: &[Change<'_>]) -> Result<Tensor, ParameterError> {
        let wide = TensorType::new(DType::F32, ty.shape.clone());
        let base = self.base.tensor(name, &wide).map_err(ParameterError::new)?;
        let whole = base.first_non_finite().is_none();
        let mut weight = base.to_f32();
        let outputs = ty.shape.first().copied().unwrap_or(1).max(1);
        let row = weight.len() / outputs;
        let taps = match *ty.shape {
            [_, frames, height, width, _] => frames * height * width,
            _ => 1,
        };
        for change in changes {
            let (up, down) = change.matrices().map_err(ParameterError::new)?;
            let rank = down.len() / row.max(1);
            let rows = weight.par_chunks_exact_mut(row.max(1)).zip(up.par_chunks_exact(rank.max(1)));
            let scale = self.strengths[change.of] * change.module.scale;
            rows.for_each(|(weight, up)| add_row(weight, up, &down, (scale, taps)));
        }
        let merged = Tensor::from_f32(ty.dtype, ty.shape.clone(), &weight).map_err(ParameterError::new)?;
        // What is not finite in the model itself is not the LoRAs' fault.
        if whole { held(merged, name, changes) } else { Ok(merged) }
    }
}

impl Parameters for Adapted<'_> {
    fn parameter(&self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, ParameterError> {
        match self.changes.get(name) {
            Some(changes) => self.merged(ty, name, changes).map(Some),
            None => self.base.parameter(name, ty),
        }
    }
}

/// The values that LoRAs change, or an error that names the files if their type cannot hold them.
pub(super) fn held(values: Tensor, weight: &str, changes: &[Change<'_>]) -> Result<Tensor, ParameterError> {
    if values.first_non_finite().is_none() {
        return Ok(values);
    }
    let paths = changes.iter().map(|change| change.lora.path.clone()).collect();
    let (weight, dtype) = (weight.to_owned(), values.ty().dtype);
    Err(ParameterError::new(LoraError::TooLarge { paths, weight, dtype }))
}

/// What LoRAs add to the weights of a part, by the names that a graph has for these.
pub(super) fn changes<'a>(
    base: &Weights,
    part: LoraPart,
    loras: &[&'a Lora],
) -> Result<HashMap<String, Vec<Change<'a>>>, LoraError> {
    let layers = Layers::of(base);
    let mut changes: HashMap<String, Vec<Change<'a>>> = HashMap::new();
    for (of, &lora) in loras.iter().enumerate() {
        let modules = || lora.modules.iter().filter(|module| module.part == part);
        let missing: Vec<&Module> = modules().filter(|module| layers.find(&module.name).is_none()).collect();
        if let Some(first) = missing.first() {
            let (path, part, count) = (lora.path.clone(), part.name(), missing.len());
            if count == modules().count() {
                let (module, shape) = (first.name.to_string(), added_shape(first));
                return Err(LoraError::OtherModel { path, part, count, module, shape });
            }
            let modules = missing.iter().take(SHOWN).map(|module| module.name.to_string()).collect();
            return Err(LoraError::MissingModules { path, part, modules, count });
        }
        for module in modules() {
            let Some((name, shape)) = layers.find(&module.name) else { continue };
            if !fits(module, shape) {
                return Err(LoraError::Shape {
                    path: lora.path.clone(),
                    part: part.name(),
                    module: module.name.to_string(),
                    expected: shape.to_vec(),
                    got: added_shape(module),
                });
            }
            changes.entry(name.to_owned()).or_default().push(Change { of, lora, module });
        }
    }
    Ok(changes)
}

impl Change<'_> {
    /// `up` as `[outputs, rank]` and `down` as `[rank, inputs · taps]`, in the file's order.
    pub fn matrices(&self) -> Result<(Vec<f32>, Vec<f32>), LoraError> {
        let read = |name: &str, shape: &[usize]| {
            let tensor = self.lora.file.tensor(name, &TensorType::new(DType::F32, shape))?;
            // Found here, since a merged weight no longer tells whose value it was.
            match tensor.first_non_finite() {
                Some(_) => {
                    Err(LoraError::NotFinite { path: self.lora.path.clone(), tensor: name.to_owned() })
                }
                None => Ok(tensor.to_f32()),
            }
        };
        let module = self.module;
        Ok((read(&module.up, &module.up_shape)?, read(&module.down, &module.down_shape)?))
    }
}

/// Adds `scale · up · down` to the weights of one output. They have their taps before their channels, and `down` after.
fn add_row(weight: &mut [f32], up: &[f32], down: &[f32], (scale, taps): (f32, usize)) {
    let mut sum = vec![0.0; weight.len()];
    for (&factor, down) in up.iter().zip(down.chunks_exact(weight.len())) {
        for (sum, &down) in sum.iter_mut().zip(down) {
            *sum += factor * down;
        }
    }
    if taps > 1 {
        let in_order = sum.clone();
        channels_last(&in_order, in_order.len(), taps, &mut sum);
    }
    for (weight, sum) in weight.iter_mut().zip(sum) {
        *weight += scale * sum;
    }
}

/// The shape of what a module adds, as a file has it.
fn added_shape(module: &Module) -> Vec<usize> {
    let outputs = module.up_shape.first().copied();
    outputs.into_iter().chain(module.down_shape.iter().skip(1).copied()).collect()
}

/// Whether a module is of a weight of this shape. A 1×1 convolution and a linear layer may stand for each other.
fn fits(module: &Module, weight: &[usize]) -> bool {
    let ends = |shape: &[usize]| shape.iter().skip(2).all(|&extent| extent == 1);
    let added = added_shape(module);
    let pointwise = ends(&added) && ends(weight) && weight.len() >= 2 && added.get(..2) == weight.get(..2);
    ends(&module.up_shape) && (added == weight || pointwise)
}

/// The layers of a part that have a weight with two axes or more, by their names.
struct Layers<'a> {
    /// The weight's name in a graph, and its shape in the file, by the layer's name.
    dotted: HashMap<String, (String, &'a [usize])>,
    /// The layer's name, by the same with underscores.
    flat: HashMap<String, String>,
    /// How many layers a stage of the UNet's way down has.
    stage: usize,
}

impl<'a> Layers<'a> {
    fn of(base: &'a Weights) -> Self {
        let mut layers = Layers { dotted: HashMap::new(), flat: HashMap::new(), stage: 0 };
        for tensor in base.tensors() {
            let Some(layer) = tensor.name().strip_suffix(".weight").filter(|_| tensor.shape().len() > 1)
            else {
                continue;
            };
            // Text encoders are built with the whole name, whatever their file and the LoRA leave out.
            let short = layer.strip_prefix(TEXT_MODEL).unwrap_or(layer);
            let of_text = ["encoder.", "embeddings."].iter().any(|first| short.starts_with(first));
            let whole = if of_text { format!("{TEXT_MODEL}{short}") } else { layer.to_owned() };
            for name in [short, &whole] {
                layers.flat.insert(name.replace('.', "_"), name.to_owned());
                layers.dotted.insert(name.to_owned(), (format!("{whole}.weight"), tensor.shape()));
            }
        }
        let has = |layer: &usize| layers.dotted.contains_key(&format!("down_blocks.0.resnets.{layer}.conv1"));
        layers.stage = (0..).take_while(has).count();
        layers
    }

    /// The weight of a module: its name in a graph, and its shape in the file.
    fn find(&self, module: &ModuleName) -> Option<(&str, &'a [usize])> {
        let name = match module {
            ModuleName::Dotted(name) => name,
            ModuleName::Flat(name) => match self.flat.get(name) {
                Some(name) => name,
                None => self.flat.get(&original::in_diffusers(name, self.stage)?)?,
            },
        };
        self.dotted.get(name).map(|(weight, shape)| (weight.as_str(), *shape))
    }
}

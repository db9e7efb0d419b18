//! The folder that `crates/bench/peers/svd_gpu.py` wrote.

use std::path::{Path, PathBuf};

use kinora::{RgbImage, image_to_video::Precision, photo};
use kinora_bench::run::Size;
use kinora_graph::{DType, Tensor, TensorType};
use kinora_runtime::Tensors;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::Failure;

/// The inputs of PyTorch's stages, and the errors of its results.
pub struct Peers {
    folder: PathBuf,
    inputs: Tensors,
    errors: Value,
}

/// The error of one of PyTorch's results against its own result in a higher precision.
#[derive(Clone, Copy)]
pub struct PeerError {
    /// The root mean square of the difference over that of the reference.
    pub relative_rms: f64,
    /// The largest difference.
    pub largest: f64,
}

impl Peers {
    /// Reads the inputs and the errors.
    pub fn open(folder: &Path) -> Result<Peers, Failure> {
        let errors = folder.join("errors.json");
        let text = std::fs::read_to_string(&errors).map_err(|e| format!("{}: {e}", errors.display()))?;
        Ok(Peers {
            inputs: read_tensors(&folder.join("reference/inputs.safetensors"))?,
            errors: serde_json::from_str(&text).map_err(|e| format!("{}: {e}", errors.display()))?,
            folder: folder.to_owned(),
        })
    }

    /// The model's folder.
    pub fn model(&self, size: Size) -> PathBuf {
        self.folder.join(format!("model-{size}"))
    }

    /// An input by its name, `<stage>.<input>`.
    pub fn input(&self, name: &str) -> Result<&Tensor, Failure> {
        Ok(self.inputs.get(name).ok_or_else(|| format!("inputs.safetensors has no {name}"))?)
    }

    /// The pipeline's photo.
    pub fn photo(&self) -> Result<RgbImage, Failure> {
        Ok(photo::open(self.folder.join("reference/photo.png"))?)
    }

    /// A stage's results in the higher precision that another one is compared with: f64 for f32, and f32 for the others.
    pub fn reference(&self, precision: Precision, stage: &str) -> Result<Tensors, Failure> {
        let judge = judge(precision);
        read_tensors(&self.folder.join(format!("reference/{judge}/{stage}.safetensors")))
            .map_err(|problem| format!("{problem}; {}", how_to_add(precision)).into())
    }

    /// PyTorch's own error in a precision.
    pub fn error(&self, precision: Precision, result: &str) -> Result<PeerError, Failure> {
        let entry = self
            .errors
            .get(format!("{precision}.{result}"))
            .ok_or_else(|| format!("errors.json has no {precision}.{result}; {}", how_to_add(precision)))?;
        // Numbers that are not finite are stored as null, and count as infinite.
        let number = |field: &str| entry.get(field).and_then(Value::as_f64).unwrap_or(f64::INFINITY);
        Ok(PeerError { relative_rms: number("relative_rms"), largest: number("largest") })
    }
}

/// The precision that another one is compared with.
pub fn judge(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f64",
        Precision::F16 | Precision::BF16 | Precision::Fp8 => "f32",
    }
}

fn how_to_add(precision: Precision) -> String {
    format!("svd_gpu.py --parts reference --precisions {},{precision} adds it", judge(precision))
}

fn read_tensors(path: &Path) -> Result<Tensors, Failure> {
    let in_file = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let bytes = std::fs::read(path).map_err(|error| in_file(&error))?;
    let stored = SafeTensors::deserialize(&bytes).map_err(|error| in_file(&error))?;
    let mut tensors = Tensors::new();
    for (name, view) in stored.iter() {
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::U8 => DType::U8,
            other => return Err(in_file(&format!("{name} is of type {other}")).into()),
        };
        tensors
            .insert(name.to_owned(), Tensor::from_bytes(TensorType::new(dtype, view.shape()), view.data())?);
    }
    Ok(tensors)
}

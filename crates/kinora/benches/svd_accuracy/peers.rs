//! The folder that `bench/peers/svd_gpu.py` wrote.

use std::path::{Path, PathBuf};

use kinora::{image_to_video::Precision, photo::Photo};
use kinora_cpu::Tensors;
use kinora_graph::{DType, Tensor, TensorType};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::{Failure, stages::Size};

/// What PyTorch was given, and what it made of it.
pub struct Peers {
    folder: PathBuf,
    inputs: Tensors,
    errors: Value,
}

/// How far a result of PyTorch's in another precision is from its own in f32.
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
    pub fn photo(&self) -> Result<Photo, Failure> {
        Ok(Photo::open(self.folder.join("reference/photo.png"))?)
    }

    /// A stage's results in f32, by their names.
    pub fn reference(&self, stage: &str) -> Result<Tensors, Failure> {
        read_tensors(&self.folder.join(format!("reference/f32/{stage}.safetensors")))
    }

    /// PyTorch's error in a precision; there is none in f32, which is the reference.
    pub fn error(&self, precision: Precision, result: &str) -> Result<Option<PeerError>, Failure> {
        if precision == Precision::F32 {
            return Ok(None);
        }
        let entry = self.errors.get(format!("{precision}.{result}")).ok_or_else(|| {
            format!(
                "errors.json has no {precision}.{result}; svd_gpu.py --parts reference --precisions \
                 f32,{precision} adds it"
            )
        })?;
        // What is not finite is stored as null: it is infinitely far.
        let number = |field: &str| entry.get(field).and_then(Value::as_f64).unwrap_or(f64::INFINITY);
        Ok(Some(PeerError { relative_rms: number("relative_rms"), largest: number("largest") }))
    }
}

fn read_tensors(path: &Path) -> Result<Tensors, Failure> {
    let at = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let bytes = std::fs::read(path).map_err(|e| at(&e))?;
    let stored = SafeTensors::deserialize(&bytes).map_err(|e| at(&e))?;
    let mut tensors = Tensors::new();
    for (name, view) in stored.iter() {
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::U8 => DType::U8,
            other => return Err(at(&format!("{name} is of {other}")).into()),
        };
        tensors
            .insert(name.to_owned(), Tensor::from_bytes(TensorType::new(dtype, view.shape()), view.data())?);
    }
    Ok(tensors)
}

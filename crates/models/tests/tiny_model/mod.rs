//! A model's folder, small enough to be made anew by every test.
#![allow(clippy::unwrap_used)]
// Every test file uses a part of it.
#![allow(dead_code)]

use std::{collections::HashMap, fs, path::Path};

use safetensors::{Dtype, tensor::TensorView};

/// The index of a Stable Video Diffusion model.
pub const MODEL_INDEX: &str = r#"{
  "_class_name": "StableVideoDiffusionPipeline",
  "_diffusers_version": "0.24.0.dev0",
  "_name_or_path": "diffusers/svd-xt",
  "feature_extractor": ["transformers", "CLIPImageProcessor"],
  "image_encoder": ["transformers", "CLIPVisionModelWithProjection"],
  "requires_safety_checker": false,
  "scheduler": ["diffusers", "EulerDiscreteScheduler"],
  "unet": ["diffusers", "UNetSpatioTemporalConditionModel"],
  "vae": ["diffusers", "AutoencoderKLTemporalDecoder"]
}"#;

/// The bytes of a weights file with one tensor of as many elements.
pub fn weights(elements: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..elements * 2).map(|i| i as u8).collect();
    let tensor = TensorView::new(Dtype::F16, vec![elements], &data).unwrap();
    safetensors::serialize([("norm.bias", tensor)], None::<HashMap<_, _>>).unwrap()
}

/// The files of the model, with some that are of no use.
pub fn files() -> Vec<(&'static str, Vec<u8>)> {
    let index =
        br#"{"metadata":{},"weight_map":{"norm.bias":"diffusion_pytorch_model-00001-of-00001.safetensors"}}"#;
    vec![
        ("README.md", b"A model.".to_vec()),
        ("model_index.json", MODEL_INDEX.into()),
        ("svd_xt.safetensors", weights(999)),
        ("feature_extractor/preprocessor_config.json", br#"{"name": "feature_extractor"}"#.to_vec()),
        ("image_encoder/config.json", br#"{"name": "image_encoder"}"#.to_vec()),
        ("image_encoder/model.fp16.safetensors", weights(3)),
        ("image_encoder/model.safetensors", weights(4)),
        ("image_encoder/pytorch_model.bin", b"pickle".to_vec()),
        ("scheduler/scheduler_config.json", br#"{"name": "scheduler"}"#.to_vec()),
        ("unet/config.json", br#"{"name": "unet"}"#.to_vec()),
        ("unet/diffusion_pytorch_model.bin", b"pickle".to_vec()),
        ("unet/diffusion_pytorch_model.fp16.safetensors", weights(1000)),
        ("unet/diffusion_pytorch_model.safetensors", weights(6)),
        ("vae/config.json", br#"{"name": "vae"}"#.to_vec()),
        ("vae/diffusion_pytorch_model-00001-of-00001.safetensors", weights(7)),
        ("vae/diffusion_pytorch_model.safetensors.index.json", index.to_vec()),
    ]
}

/// The model in a folder of its own.
pub struct TinyModel(tempfile::TempDir);

impl TinyModel {
    /// Writes the folder.
    pub fn new() -> Self {
        let model = TinyModel(tempfile::tempdir().unwrap());
        for (name, bytes) in files() {
            let path = model.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        model
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

//! A Stable Video Diffusion model whose weights are made from their names.

use std::path::Path;

use kinora_graph::{DType, Graph};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::folder::{FolderToWrite, PartToWrite, SyntheticError};
use crate::{
    folder::Kind,
    networks::{
        clip_vision::{self, ClipVisionConfig},
        denoise::{DenoiseConfig, SamplerNeeds},
        step_cache::Extent,
        unet::UnetConfig,
        vae::{self, Decode, Encode, Pixels, VaeConfig},
    },
    presets::Preset,
    schedulers::Scheduler,
};

/// A Stable Video Diffusion model whose weights are made from their names: the configurations of its parts, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyntheticModel {
    /// `unet/config.json`.
    pub unet: Value,
    /// `vae/config.json`.
    pub vae: Value,
    /// `image_encoder/config.json`.
    pub image_encoder: Value,
    /// `scheduler/scheduler_config.json`; Stable Video Diffusion's unless given.
    #[serde(default = "Scheduler::svd_config")]
    pub scheduler: Value,
    /// `feature_extractor/preprocessor_config.json`; CLIP's own unless given.
    #[serde(default = "clip_image_processor")]
    pub feature_extractor: Value,
}

impl SyntheticModel {
    /// The models that are known by name.
    pub const PRESETS: [&str; 2] = ["tiny", "small"];

    /// A model by its name: one of [`SyntheticModel::PRESETS`]. Both have the shape of Stable Video Diffusion.
    ///
    /// - `tiny`: 4 frames of 64×64, some four million parameters, for tests.
    /// - `small`: 8 frames of 320×192, some seventy million parameters, for benchmarks.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "tiny" => Some(Preset::tiny().model),
            "small" => Some(Preset::small().model),
            _ => None,
        }
    }

    /// Writes the model's folder as diffusers would save it, with weights in f32. It appears in
    /// its place when it is whole.
    ///
    /// # Errors
    /// If there is a folder that is not empty, a configuration is refused, or a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), SyntheticError> {
        let mut parts = Vec::new();
        for (name, kind, class, config) in self.parts() {
            let graphs = self.graphs()?.into_iter().filter(|(of, _)| *of == name).map(|(_, graph)| graph);
            parts.push(PartToWrite {
                name,
                kind,
                class,
                config,
                graphs: graphs.collect(),
                files: Vec::new(),
            });
        }
        FolderToWrite { pipeline: Some("StableVideoDiffusionPipeline"), parts }.write(folder)
    }

    fn parts(&self) -> [(&'static str, Kind, &str, &Value); 5] {
        let scheduler = self.scheduler["_class_name"].as_str().unwrap_or_default();
        [
            ("unet", Kind::DiffusersNetwork, "UNetSpatioTemporalConditionModel", &self.unet),
            ("vae", Kind::DiffusersNetwork, "AutoencoderKLTemporalDecoder", &self.vae),
            (
                "image_encoder",
                Kind::TransformersNetwork,
                "CLIPVisionModelWithProjection",
                &self.image_encoder,
            ),
            ("scheduler", Kind::Scheduler, scheduler, &self.scheduler),
            ("feature_extractor", Kind::ImageProcessor, "CLIPImageProcessor", &self.feature_extractor),
        ]
    }

    /// The networks of the parts, in a small size: their weights do not depend on it.
    fn graphs(&self) -> Result<[(&'static str, Graph); 4], SyntheticError> {
        let unet = UnetConfig::from_json(&self.unet.to_string())?;
        let vae = VaeConfig::from_json(&self.vae.to_string())?;
        let image_encoder = ClipVisionConfig::from_json(&self.image_encoder.to_string())?;
        let dtype = DType::F32;
        let [unet_side, vae_side] =
            [&unet.block_out_channels, &vae.block_out_channels].map(|levels| 1 << levels.len().min(16));
        let denoise = DenoiseConfig {
            unet,
            frames: 1,
            height: unet_side,
            width: unet_side,
            steps: 1,
            guided: false,
            sampler: SamplerNeeds::default(),
            dtype,
            extent: Extent::Whole,
        };
        let encode = Encode { images: 1, height: vae_side, width: vae_side, dtype };
        let decode = Decode { frames: 1, height: 1, width: 1, dtype, scaled: true, pixels: Pixels::Signed };
        Ok([
            ("unet", denoise.build()?),
            ("vae", vae::encoder(&vae, &encode)?),
            ("vae", vae::decoder(&vae, &decode)?),
            ("image_encoder", clip_vision::encoder(&image_encoder, 1, dtype)?),
        ])
    }
}

fn clip_image_processor() -> Value {
    json!({ "image_processor_type": "CLIPImageProcessor" })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{folder::ModelFolder, weights::Variant};

    #[test]
    fn every_preset_is_known_and_can_be_built() {
        let parameters = |name: &str| -> u64 {
            let graphs = SyntheticModel::preset(name).unwrap().graphs().unwrap();
            graphs.iter().map(|(_, graph)| graph.parameter_count()).sum()
        };
        assert_eq!(SyntheticModel::PRESETS.map(parameters), [3_837_147, 71_630_409]);
        assert_eq!(SyntheticModel::preset("huge"), None);
    }

    #[test]
    fn a_model_is_written_once_and_read_as_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let model = SyntheticModel::preset("tiny").unwrap();
        model.write(folder.path()).unwrap();
        let read = ModelFolder::open(folder.path()).unwrap();
        let stored = |part: &str| read.weights(part, &Variant::Plain).unwrap().parameter_count();
        for (part, ..) in model.parts().into_iter().take(3) {
            let graphs = model.graphs().unwrap();
            let declared: u64 =
                graphs.iter().filter(|(of, _)| *of == part).map(|(_, graph)| graph.parameter_count()).sum();
            assert_eq!(stored(part), declared, "{part}");
        }
        let error = model.write(folder.path()).unwrap_err();
        assert!(matches!(error, SyntheticError::Exists(_)), "{error}");
    }

    #[test]
    fn nothing_that_is_there_is_overwritten() {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("model");
        fs::create_dir_all(folder.join("unet")).unwrap();
        let weights = folder.join("unet/diffusion_pytorch_model.safetensors");
        fs::write(&weights, "mine").unwrap();
        let model = SyntheticModel::preset("tiny").unwrap();
        let error = model.write(&folder).unwrap_err();
        assert!(matches!(error, SyntheticError::Exists(_)), "{error}");
        assert_eq!(fs::read(&weights).unwrap(), b"mine");
        let file = around.path().join("file");
        fs::write(&file, "mine").unwrap();
        assert!(matches!(model.write(&file), Err(SyntheticError::Io { .. })));
        // Nothing is left of where it was written first.
        let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
        let (new, empty) = (around.path().join("new"), tempfile::tempdir().unwrap());
        model.write(&new.join("model")).unwrap();
        model.write(empty.path()).unwrap();
        assert_eq!((count(&new), count(&new.join("model")), count(empty.path())), (1, 6, 6));
        assert_eq!(fs::read_dir(around.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_model_that_cannot_be_built_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut model = SyntheticModel::preset("tiny").unwrap();
        model.vae["layers_per_block"] = json!(0);
        assert!(matches!(model.write(folder.path()), Err(SyntheticError::Network(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

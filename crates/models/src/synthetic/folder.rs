//! A model's folder whose weights are made from their names: everything can be tried without a download.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use kinora_graph::{DType, Graph};
use kinora_outside::without_temporary_name;
use safetensors::{Dtype, SafeTensorError, tensor::TensorView};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tensor;
use crate::{
    folder::{INDEX, Kind},
    networks::{
        NetworkError,
        clip_vision::{self, ClipVisionConfig},
        denoise::{DenoiseConfig, SamplerNeeds},
        unet::UnetConfig,
        vae::{self, Decode, Encode, Pixels, VaeConfig},
    },
    presets::Preset,
    schedulers::Scheduler,
    weights::file_shape,
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

/// Why a synthetic model could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// There is something in the folder already.
    #[error("{}: this folder is not empty, and nothing in it is overwritten; give another folder", .0.display())]
    Exists(PathBuf),
    /// A network's configuration.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A file could not be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A weights file could not be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// What its writer says.
        source: SafeTensorError,
    },
}

impl SyntheticError {
    /// The error about a file in a temporary folder, as if it were already in its own.
    fn renamed(mut self, temporary: &Path, own: &Path) -> Self {
        if let SyntheticError::Io { path, .. } | SyntheticError::Weights { path, .. } = &mut self
            && let Ok(name) = path.strip_prefix(temporary)
        {
            *path = own.join(name);
        }
        self
    }
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
        let graphs = self.graphs()?;
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| SyntheticError::Io { path, source }
        };
        let exists = match fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return Err(SyntheticError::Exists(folder.to_owned())),
            Ok(false) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(io(folder)(error)),
        };
        // A folder that is there may be a mount or the current one, which cannot be renamed over.
        let around = match folder.parent() {
            _ if exists => folder,
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(around).map_err(io(around))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kinora-").suffix(".model.partial");
        // Temporary folders are private by default; this one becomes the user's model. The umask applies as usual.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let partial =
            builder.tempdir_in(around).map_err(|error| io(around)(without_temporary_name(error)))?;
        self.write_parts(partial.path(), &graphs).map_err(|error| error.renamed(partial.path(), folder))?;
        if exists {
            // The index comes last: without it a folder is not a model's.
            for name in self.parts().map(|(name, _, _)| name).into_iter().chain([INDEX]) {
                fs::rename(partial.path().join(name), folder.join(name)).map_err(io(folder))?;
            }
            return Ok(());
        }
        fs::rename(partial.path(), folder).map_err(io(folder))?;
        // It has a name of its own now, and is not temporary any more.
        let _ = partial.keep();
        Ok(())
    }

    fn write_parts(&self, folder: &Path, graphs: &[(&'static str, Graph)]) -> Result<(), SyntheticError> {
        for (name, kind, config) in self.parts() {
            let part = folder.join(name);
            fs::create_dir_all(&part).map_err(|source| SyntheticError::Io { path: part.clone(), source })?;
            write_json(&part.join(kind.config_file()), config)?;
            if let Some(stem) = kind.weights_stem() {
                let graphs = graphs.iter().filter(|(of, _)| *of == name).map(|(_, graph)| graph);
                write_weights(&part.join(format!("{stem}.safetensors")), graphs)?;
            }
        }
        let scheduler = &self.scheduler["_class_name"];
        write_json(
            &folder.join(INDEX),
            &json!({
                "_class_name": "StableVideoDiffusionPipeline",
                "feature_extractor": ["transformers", "CLIPImageProcessor"],
                "image_encoder": ["transformers", "CLIPVisionModelWithProjection"],
                "scheduler": ["diffusers", scheduler],
                "unet": ["diffusers", "UNetSpatioTemporalConditionModel"],
                "vae": ["diffusers", "AutoencoderKLTemporalDecoder"],
            }),
        )
    }

    fn parts(&self) -> [(&'static str, Kind, &Value); 5] {
        [
            ("unet", Kind::DiffusersNetwork, &self.unet),
            ("vae", Kind::DiffusersNetwork, &self.vae),
            ("image_encoder", Kind::TransformersNetwork, &self.image_encoder),
            ("scheduler", Kind::Scheduler, &self.scheduler),
            ("feature_extractor", Kind::ImageProcessor, &self.feature_extractor),
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

fn write_json(path: &Path, json: &Value) -> Result<(), SyntheticError> {
    fs::write(path, format!("{json:#}\n"))
        .map_err(|source| SyntheticError::Io { path: path.to_owned(), source })
}

fn write_weights<'a>(path: &Path, graphs: impl Iterator<Item = &'a Graph>) -> Result<(), SyntheticError> {
    let failed = |source| SyntheticError::Weights { path: path.to_owned(), source };
    let mut weights: Vec<(&str, Vec<usize>, Vec<f32>)> = Vec::new();
    for (_, value) in graphs.flat_map(Graph::parameters) {
        let shape = file_shape(&value.ty.shape, &[]).to_vec();
        let values = tensor(&value.name, &shape);
        weights.push((&value.name, shape, values));
    }
    let mut views = Vec::with_capacity(weights.len());
    for (name, shape, values) in &weights {
        let bytes = bytemuck::cast_slice(values);
        views.push((*name, TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(failed)?));
    }
    // transformers refuses a file that does not say where it is from.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(metadata), path).map_err(failed)
}

#[cfg(test)]
mod tests {
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
        for (part, _, _) in model.parts().into_iter().take(3) {
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

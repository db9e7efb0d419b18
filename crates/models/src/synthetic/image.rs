//! A Stable Diffusion model whose weights are made from their names, and a tiny autoencoder to go with it.

use std::path::Path;

use kinora_graph::{DType, Graph, GraphBuilder, Phase, TensorType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::folder::{FolderToWrite, PartToWrite, SyntheticError};
use crate::{
    folder::Kind,
    networks::{
        NetworkError,
        clip_text::{self, ClipTextConfig, TextEncode},
        tiny_vae::{self, Batch, TinyVaeConfig},
        unet2d::{AddedConditions, TimeInputs, Unet2dConfig, Unet2dInputs, time_embedding, unet2d},
        vae::{self, Decode, Encode, Pixels, VaeConfig},
    },
    presets::ImagePreset,
    tokenizer::byte_vocabulary,
};

/// A Stable Diffusion model whose weights are made from their names: the configurations of its parts, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyntheticImageModel {
    /// `unet/config.json`.
    pub unet: Value,
    /// `vae/config.json`.
    pub vae: Value,
    /// `config.json` of the tiny autoencoder, which is a folder of its own.
    pub tiny_vae: Value,
    /// `text_encoder/config.json`.
    pub text_encoder: Value,
    /// `text_encoder_2/config.json`, of Stable Diffusion XL.
    #[serde(default)]
    pub text_encoder_2: Option<Value>,
    /// `scheduler/scheduler_config.json`.
    pub scheduler: Value,
}

impl SyntheticImageModel {
    /// The models that are known by name.
    pub const PRESETS: [&str; 2] = ["live", "live-xl"];

    /// A model by its name: one of [`SyntheticImageModel::PRESETS`].
    ///
    /// - `live`: frames of 64×64, the shape of SD-Turbo, for tests.
    /// - `live-xl`: the same in the shape of Stable Diffusion XL Turbo.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "live" => Some(ImagePreset::live().model),
            "live-xl" => Some(ImagePreset::live_xl().model),
            _ => None,
        }
    }

    /// Writes the model's folder as diffusers would save it, with weights in f32. It appears in its place when it is
    /// whole. Its tokenizers know bytes and no words.
    ///
    /// # Errors
    /// If there is a folder that is not empty, a configuration is refused, or a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), SyntheticError> {
        let tokenizer = tokenizer_config();
        let scheduler = self.scheduler["_class_name"].as_str().unwrap_or_default();
        let network = |name, class, config, graphs| PartToWrite {
            name,
            kind: Kind::DiffusersNetwork,
            class,
            config,
            graphs,
            files: Vec::new(),
        };
        let mut parts = vec![
            network("unet", "UNet2DConditionModel", &self.unet, vec![unet_graph(&self.unet)?]),
            network("vae", "AutoencoderKL", &self.vae, self.vae_graphs()?),
            PartToWrite { kind: Kind::Scheduler, ..network("scheduler", scheduler, &self.scheduler, vec![]) },
        ];
        for (encoder, name, class, config) in [
            ("text_encoder", "tokenizer", "CLIPTextModel", Some(&self.text_encoder)),
            ("text_encoder_2", "tokenizer_2", "CLIPTextModelWithProjection", self.text_encoder_2.as_ref()),
        ] {
            let Some(config) = config else { continue };
            let graphs = vec![text_graph(config)?];
            let kind = Kind::TransformersNetwork;
            parts.push(PartToWrite { kind, ..network(encoder, class, config, graphs) });
            let (vocabulary, merges) = byte_vocabulary();
            parts.push(PartToWrite {
                kind: Kind::Tokenizer,
                files: vec![("vocab.json", vocabulary), ("merges.txt", merges)],
                ..network(name, "CLIPTokenizer", &tokenizer, vec![])
            });
        }
        let pipeline = match self.text_encoder_2 {
            Some(_) => "StableDiffusionXLPipeline",
            None => "StableDiffusionPipeline",
        };
        FolderToWrite { pipeline: Some(pipeline), parts }.write(folder)
    }

    /// Writes the folder of the tiny autoencoder, in the same way.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_tiny_vae(&self, folder: &Path) -> Result<(), SyntheticError> {
        let config = TinyVaeConfig::from_json(&self.tiny_vae.to_string())?;
        let side = config.pixels_per_latent();
        let batch = Batch { images: 1, height: side, width: side, dtype: DType::F32, pixels: Pixels::Signed };
        let part = PartToWrite {
            name: "vae",
            kind: Kind::DiffusersNetwork,
            class: "AutoencoderTiny",
            config: &self.tiny_vae,
            graphs: vec![tiny_vae::encoder(&config, &batch)?, tiny_vae::decoder(&config, &batch)?],
            files: Vec::new(),
        };
        FolderToWrite { pipeline: None, parts: vec![part] }.write(folder)
    }

    fn vae_graphs(&self) -> Result<Vec<Graph>, SyntheticError> {
        let vae = VaeConfig::image_from_json(&self.vae.to_string())?;
        let (side, dtype) = (vae.pixels_per_latent(), DType::F32);
        let encode = Encode { images: 1, height: side, width: side, dtype };
        let decode = Decode { frames: 1, height: 1, width: 1, dtype, scaled: true, pixels: Pixels::Signed };
        Ok(vec![vae::encoder(&vae, &encode)?, vae::decoder(&vae, &decode)?])
    }
}

/// The UNet in a small size: its weights do not depend on it.
fn unet_graph(config: &Value) -> Result<Graph, NetworkError> {
    const TIME_IDS: usize = 6;
    let config = Unet2dConfig::from_json(&config.to_string())?;
    let side = 1 << config.block_out_channels.len().min(16);
    let mut builder = GraphBuilder::new("unet");
    let g = &mut builder;
    let mut input =
        |name: &str, shape: &[usize]| g.input(name, TensorType::new(DType::F32, shape), Phase::Step);
    let sample = input("sample", &[1, side, side, config.in_channels])?;
    let context = input("context", &[1, 1, config.context_channels()?])?;
    let timesteps = input("timesteps", &[1])?;
    let guidance = config.time_cond_proj_dim.map(|_| input("guidance", &[1])).transpose()?;
    let added = match config.pooled_channels(TIME_IDS)? {
        Some(channels) => {
            let (text, time_ids) = (input("pooled", &[1, channels])?, input("time_ids", &[1, TIME_IDS])?);
            Some(AddedConditions { text, time_ids })
        }
        None => None,
    };
    let time = time_embedding(g, &config, DType::F32, &TimeInputs { timesteps, guidance, added })?;
    let prediction = unet2d(g, &config, DType::F32, &Unet2dInputs { sample, time, context })?;
    g.output("prediction", prediction)?;
    Ok(builder.finish())
}

fn text_graph(config: &Value) -> Result<Graph, NetworkError> {
    let config = ClipTextConfig::from_json(&config.to_string())?;
    let dtype = DType::F32;
    let request = TextEncode { prompts: 1, tokens: 1, dtype, skip: 0, final_norm: true, pooled: true };
    clip_text::encoder(&config, &request)
}

fn tokenizer_config() -> Value {
    json!({
        "tokenizer_class": "CLIPTokenizer",
        "bos_token": "<|startoftext|>",
        "eos_token": "<|endoftext|>",
        "pad_token": "!",
        "unk_token": "<|endoftext|>",
        "model_max_length": 77,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{folder::ModelFolder, weights::Variant};

    #[test]
    fn every_preset_is_written_and_read_as_any_other_model() {
        assert_eq!(SyntheticImageModel::preset("tiny"), None);
        for name in SyntheticImageModel::PRESETS {
            let model = SyntheticImageModel::preset(name).unwrap();
            let folder = tempfile::tempdir().unwrap();
            model.write(folder.path()).unwrap();
            let read = ModelFolder::open(folder.path()).unwrap();
            for part in read.parts() {
                let weights = read.weights(part.name(), &Variant::For(DType::F16));
                assert_eq!(weights.is_ok(), part.has_weights(), "{name}: {}", part.name());
                read.config_text(part.name()).unwrap();
            }
            let text = ClipTextConfig::from_json(&read.config_text("text_encoder").unwrap()).unwrap();
            let tokens = read.tokenizer("tokenizer").unwrap().prompt("É, 7", 12).tokens;
            let vocabulary = text.vocab_size as i32;
            assert!(tokens.iter().all(|&token| token < vocabulary), "{tokens:?}");
            // Two bytes, a comma, a digit; then padding with the first token.
            let end = text.eos_token_id as i32;
            assert_eq!((tokens[0], tokens[5], &tokens[6..]), (end - 1, end, &[0; 6][..]), "{tokens:?}");
            assert_eq!(read.tokenizer("tokenizer_2").is_ok(), name == "live-xl");
            assert!(matches!(model.write(folder.path()), Err(SyntheticError::Exists(_))));
        }
    }

    #[test]
    fn a_tiny_autoencoder_is_a_folder_without_an_index() {
        let model = SyntheticImageModel::preset("live").unwrap();
        let empty = tempfile::tempdir().unwrap();
        for folder in [empty.path().to_owned(), empty.path().join("new")] {
            if folder.ends_with("new") {
                std::fs::remove_file(empty.path().join("config.json")).unwrap();
            }
            model.write_tiny_vae(&folder).unwrap();
            let read = ModelFolder::open(&folder).unwrap();
            assert_eq!((read.pipeline(), read.parts().len()), ("AutoencoderTiny", 1));
            let config = TinyVaeConfig::from_json(&read.config_text("vae").unwrap()).unwrap();
            assert_eq!(config.pixels_per_latent(), 8);
            let weights = read.weights("vae", &Variant::Plain).unwrap();
            assert!(weights.parameter_count() > 10_000);
        }
    }
}

//! The networks of a frame of live video with synthetic weights, as `crates/bench/peers/live_models.py` runs them.

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Source, Tensor, TensorType, tensor::TensorError};
use kinora_models::{
    networks::{
        NetworkError,
        denoise::SamplerNeeds,
        frame::{Autoencoder, FrameConfig, Start, UNET},
        tiny_vae::{self, Batch, TinyVaeConfig},
        unet2d::{TimeInputs, Unet2dConfig, Unet2dInputs, time_embedding, unet2d},
        vae::Pixels,
    },
    presets::ImagePreset,
    synthetic::uniform,
};
use kinora_runtime::Tensors;

use crate::BenchError;

/// Tokens of a prompt.
const TOKENS: usize = 77;
/// A frame whose second step reads the result of the first.
pub const TWO_STEPS: &str = "frame, 2 steps";
/// A row of frames, from the host's bytes to the host's bytes.
pub const STREAM: &str = "stream";
/// The cases of the suite `live`.
pub(super) const LIVE: [&str; 7] =
    ["frame, 1 step", TWO_STEPS, "unet, batch 1", "unet, batch 2", "encode", "decode", STREAM];

/// The networks of a model that draws frames with a tiny autoencoder.
#[derive(Clone, Debug)]
pub struct LiveNetworks {
    unet: Unet2dConfig,
    vae: TinyVaeConfig,
    height: usize,
    width: usize,
    dtype: DType,
}

impl LiveNetworks {
    /// Those of a preset, for frames of its size.
    ///
    /// # Errors
    /// If a configuration is refused.
    pub fn new(preset: &ImagePreset, dtype: DType) -> Result<LiveNetworks, NetworkError> {
        Ok(LiveNetworks {
            unet: Unet2dConfig::from_json(&preset.model.unet.to_string())?,
            vae: TinyVaeConfig::from_json(&preset.model.tiny_vae.to_string())?,
            height: preset.frame.height,
            width: preset.frame.width,
            dtype,
        })
    }

    /// The network of a case of the suite `live`.
    ///
    /// # Errors
    /// If there is no such case, or no network can be built for it.
    pub fn graph(&self, case: &str) -> Result<Graph, BenchError> {
        Ok(match case {
            "frame, 1 step" | STREAM => self.frame(1, Start::Picture)?,
            TWO_STEPS => self.frame(2, Start::Picture)?,
            "unet, batch 1" => self.unet(1)?,
            "unet, batch 2" => self.unet(2)?,
            "encode" => self.encoder()?,
            // Numbers instead of bytes, which can be compared closely.
            "decode" => self.decoder(Pixels::Signed)?,
            other => return Err(BenchError::UnknownStage(other.to_owned())),
        })
    }

    /// A frame, blended with the one before.
    ///
    /// # Errors
    /// If no network can be built for the size and the steps.
    pub fn frame(&self, steps: usize, start: Start) -> Result<Graph, NetworkError> {
        let config = FrameConfig {
            unet: self.unet.clone(),
            autoencoder: Autoencoder::Tiny(self.vae.clone()),
            height: self.height,
            width: self.width,
            input: None,
            start,
            steps,
            guided: false,
            tokens: TOKENS,
            sampler: SamplerNeeds::default(),
            blended: true,
            control: None,
            memory: 0,
            dtype: self.dtype,
        };
        config.build()
    }

    /// The UNet alone on some images, each with a prompt of its own.
    ///
    /// # Errors
    /// If no network can be built for the size.
    pub fn unet(&self, images: usize) -> Result<Graph, NetworkError> {
        let [height, width] = self.latents();
        let mut g = GraphBuilder::new("unet");
        let ty = TensorType::new(self.dtype, [images, height, width, self.unet.in_channels]);
        let sample = g.input("sample", ty, Phase::Step)?;
        let ty = TensorType::new(DType::F32, [images, TOKENS, self.unet.context_channels()?]);
        let context = g.input("prompts", ty, Phase::Clip)?;
        let context = g.cast("prompts.cast", context, self.dtype)?;
        let timesteps = g.input("timesteps", TensorType::new(DType::F32, [1]), Phase::Clip)?;
        let inputs = TimeInputs { timesteps, guidance: None, added: None };
        let prediction = g.scope(UNET, |g| {
            let time = time_embedding(g, &self.unet, self.dtype, &inputs)?;
            unet2d(g, &self.unet, self.dtype, &Unet2dInputs { sample, time, context })
        })?;
        g.output("prediction", prediction)?;
        Ok(g.finish())
    }

    /// The autoencoder's encoder, from bytes.
    ///
    /// # Errors
    /// If no network can be built for the size.
    pub fn encoder(&self) -> Result<Graph, NetworkError> {
        tiny_vae::encoder(&self.vae, &self.batch([self.height, self.width], Pixels::Bytes))
    }

    /// The autoencoder's decoder.
    ///
    /// # Errors
    /// If no network can be built for the size.
    pub fn decoder(&self, pixels: Pixels) -> Result<Graph, NetworkError> {
        tiny_vae::decoder(&self.vae, &self.batch(self.latents(), pixels))
    }

    /// Height and width of the latents.
    fn latents(&self) -> [usize; 2] {
        let factor = self.vae.pixels_per_latent().max(1);
        [self.height / factor, self.width / factor]
    }

    fn batch(&self, [height, width]: [usize; 2], pixels: Pixels) -> Batch {
        Batch { images: 1, height, width, dtype: self.dtype, pixels }
    }
}

/// Inputs of a phase, made from their names: floats and bytes, and zeros for the rest.
///
/// # Errors
/// If a type has no such numbers.
pub fn inputs_by_name(graph: &Graph, phase: Phase) -> Result<Tensors, TensorError> {
    let mut tensors = Tensors::new();
    for &id in graph.inputs() {
        let value = graph.value(id);
        if value.source != Source::Input(phase) {
            continue;
        }
        let tensor = if value.ty.dtype.is_float() {
            let numbers: Vec<f32> =
                uniform(&value.name).map(|x| x as f32).take(value.ty.elements()).collect();
            Tensor::from_f32(value.ty.dtype, value.ty.shape.clone(), &numbers)?
        } else if value.ty.dtype == DType::U8 {
            let byte = |x: f64| (127.5 + 127.5 * x) as u8;
            let bytes: Vec<u8> = uniform(&value.name).map(byte).take(value.ty.elements()).collect();
            Tensor::from_slice(value.ty.shape.clone(), &bytes)?
        } else {
            Tensor::zeros(value.ty.clone())
        };
        tensors.insert(value.name.clone(), tensor);
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Size;

    #[test]
    fn every_case_has_a_network_of_every_size() {
        for size in Size::ALL {
            let networks = LiveNetworks::new(&size.image_preset(), DType::F16).unwrap();
            for case in LIVE {
                let graph = networks.graph(case).unwrap();
                assert!(graph.step_flops() > 0, "{case} {size}");
                assert!(!inputs_by_name(&graph, Phase::Step).unwrap().is_empty(), "{case}");
            }
            let flops = |case: &str| networks.graph(case).unwrap().step_flops();
            let [one, two] = ["unet, batch 1", "unet, batch 2"].map(flops);
            assert!(two > one && two <= 2 * one, "{size}: {one}, {two}");
            // A second step is a second run of the UNet.
            let [first, both] = ["frame, 1 step", "frame, 2 steps"].map(flops);
            assert!(both - first >= one, "{size}");
        }
        let networks = LiveNetworks::new(&Size::Tiny.image_preset(), DType::F32).unwrap();
        assert!(networks.graph("audio").is_err());
    }
}

//! The networks of Stable Video Diffusion with synthetic weights, as `crates/bench/peers/svd_stages.py` runs them.

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Source, Tensor, TensorType};
use kinora_models::{
    networks::{
        clip_vision::{self, ClipVisionConfig},
        unet::{UnetConfig, UnetInputs, time_embedding, unet},
        vae::{self, Decode, Encode, Pixels, VaeConfig},
    },
    presets::{ClipShape, Preset},
    synthetic::uniform,
};
use kinora_runtime::Tensors;

use super::live::LIVE;
use crate::{
    BenchError,
    run::{Size, Suite},
};

/// The network of a stage.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its stage: `clip`, `vae_encode`, `unet` or `vae_decode`.
    pub stage: &'static str,
    /// The network.
    pub graph: Graph,
}

/// The clips that a UNet denoises together.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// How many there are.
    pub clips: usize,
    /// Frames of each.
    pub frames: usize,
    /// Height of the latents.
    pub height: usize,
    /// Width of the latents.
    pub width: usize,
}

/// The stages of a suite.
pub fn stages(suite: Suite) -> &'static [&'static str] {
    match suite {
        Suite::Svd => &["clip", "vae_encode", "unet"],
        Suite::Vae => &["vae_decode"],
        Suite::Pipeline => &["pipeline"],
        Suite::Live => &LIVE,
        Suite::Cpu | Suite::Kernels | Suite::Targets => &[],
    }
}

impl Network {
    /// The network of a stage. Like Stable Video Diffusion's with guidance, the UNet denoises two clips.
    ///
    /// # Errors
    /// If there is no such stage.
    pub fn new(stage: &'static str, size: Size, dtype: DType) -> Result<Network, BenchError> {
        let Preset { model, clip: ClipShape { frames, height, width, .. } } = size.preset();
        let [latent_height, latent_width] = [height / 8, width / 8];
        let graph = match stage {
            "clip" => {
                let config = ClipVisionConfig::from_json(&model.image_encoder.to_string())?;
                clip_vision::encoder(&config, 1, dtype)?
            }
            "vae_encode" => {
                let config = VaeConfig::from_json(&model.vae.to_string())?;
                vae::encoder(&config, &Encode { images: 1, height, width, dtype })?
            }
            "vae_decode" => {
                let config = VaeConfig::from_json(&model.vae.to_string())?;
                let decode = Decode {
                    frames,
                    height: latent_height,
                    width: latent_width,
                    dtype,
                    scaled: false,
                    pixels: Pixels::Signed,
                };
                vae::decoder(&config, &decode)?
            }
            "unet" => {
                let config = UnetConfig::from_json(&model.unet.to_string())?;
                let batch = Batch { clips: 2, frames, height: latent_height, width: latent_width };
                prediction(&config, dtype, &batch)?
            }
            other => return Err(BenchError::UnknownStage(other.to_owned())),
        };
        Ok(Network { stage, graph })
    }

    /// The inputs of a phase, made from their names as `svd_stages.py` makes them.
    ///
    /// # Errors
    /// If an input is not of floating-point numbers.
    pub fn inputs(&self, phase: Phase) -> Result<Tensors, BenchError> {
        let mut tensors = Tensors::new();
        for value in self.graph.inputs().iter().map(|&id| self.graph.value(id)) {
            if value.source == Source::Input(phase) {
                tensors.insert(value.name.clone(), self.input(&value.name, &value.ty)?);
            }
        }
        Ok(tensors)
    }

    fn input(&self, name: &str, ty: &TensorType) -> Result<Tensor, BenchError> {
        let count = ty.elements();
        let numbers: Vec<f32> = match name {
            // A quarter of the logarithm of the noise level, of about 55.
            "timesteps" => vec![1.0; count],
            // Frames a second less one, the motion bucket, and the noise on the photo.
            "added_time_ids" => [6.0, 127.0, 0.02].into_iter().cycle().take(count).collect(),
            _ => {
                let scale = 3f64.sqrt();
                let name = format!("{}/{name}", self.stage);
                uniform(&name).map(|number| (number * scale) as f32).take(count).collect()
            }
        };
        // Numbers that are exact in f16, so that every precision gets the same.
        let rounded = Tensor::from_f32(DType::F16, [count], &numbers)?;
        Ok(Tensor::from_f32(ty.dtype, ty.shape.clone(), &rounded.to_f32())?)
    }

    /// The bytes of the weights, the inputs and the results: what must be moved at least, even with infinite caches.
    pub fn bytes(&self) -> u64 {
        network_bytes(&self.graph)
    }
}

/// The bytes of a network's weights, inputs and results.
pub(crate) fn network_bytes(graph: &Graph) -> u64 {
    let results = graph.outputs().iter().map(|output| graph.value(output.value).ty.bytes());
    let given = graph.values().iter().filter(|value| !matches!(value.source, Source::Node { .. }));
    given.map(|value| value.ty.bytes()).chain(results).sum::<usize>() as u64
}

/// A UNet alone: its prediction for a batch of clips, without scaling, guidance and sampler.
///
/// # Errors
/// If the configuration is not supported.
pub fn prediction(config: &UnetConfig, dtype: DType, batch: &Batch) -> Result<Graph, BenchError> {
    let &Batch { clips, frames, height, width } = batch;
    let images = clips * frames;
    let mut g = GraphBuilder::new("unet");
    let sample = TensorType::new(dtype, [images, height, width, config.in_channels]);
    let sample = g.input("sample", sample, Phase::Step)?;
    let context = TensorType::new(dtype, [clips, 1, config.context_channels()?]);
    let context = g.input("context", context, Phase::Clip)?;
    let timesteps = g.input("timesteps", TensorType::new(DType::F32, [clips]), Phase::Clip)?;
    let ids = TensorType::new(DType::F32, [clips, config.added_time_ids()?]);
    let ids = g.input("added_time_ids", ids, Phase::Clip)?;
    let time = time_embedding(&mut g, config, dtype, timesteps, ids)?;
    // Every image reads the row of its clip.
    let rows: Vec<i32> = (0..images).map(|image| (image / frames.max(1)) as i32).collect();
    let rows = Tensor::from_slice([images], &rows)?;
    let rows = g.constant("rows", rows)?;
    let time = g.embedding("time_rows", time, rows)?;
    let prediction = unet(&mut g, config, dtype, &UnetInputs { sample, time, context, frames })?;
    g.output("prediction", prediction)?;
    Ok(g.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_a_network_of_every_size() {
        for suite in [Suite::Svd, Suite::Vae] {
            for &stage in stages(suite) {
                for size in Size::ALL {
                    let network = Network::new(stage, size, DType::F16).unwrap();
                    assert!(network.graph.step_flops() > 0 && network.bytes() > 0, "{stage} {size}");
                }
                let tiny = Network::new(stage, Size::Tiny, DType::F32).unwrap();
                assert!(!tiny.inputs(Phase::Step).unwrap().is_empty(), "{stage}");
            }
        }
        assert!(Network::new("audio", Size::Tiny, DType::F32).is_err());
    }
}

//! The networks of Stable Video Diffusion with synthetic weights, as `bench/peers/svd_stages.py` runs them.

use kinora_graph::{DType, Graph, GraphBuilder, GraphError, Phase, Source, Tensor, TensorType};
use kinora_models::{
    networks::{
        NetworkError,
        clip_vision::{self, ClipVisionConfig},
        unet::{UnetConfig, UnetInputs, time_embedding, unet},
        vae::{self, Decode, Encode, Pixels, VaeConfig},
    },
    synthetic::{SyntheticModel, uniform},
};
use kinora_runtime::Tensors;

use crate::run::{Size, Suite};

/// A network with what it is asked for.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its stage: `clip`, `vae_encode`, `unet` or `vae_decode`.
    pub stage: &'static str,
    /// The network.
    pub graph: Graph,
}

/// The clips that a UNet sees.
#[derive(Clone, Copy, Debug)]
pub struct Clips {
    /// How many there are.
    pub count: usize,
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
        Suite::Cpu | Suite::Kernels => &[],
    }
}

/// Frames, height and width of a clip.
fn clip_of(size: Size) -> [usize; 3] {
    match size {
        Size::Full => [14, 576, 1024],
        Size::Small => [8, 192, 320],
        Size::Tiny => [4, 64, 64],
    }
}

/// Why a network could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Its configuration.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Its graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// There is no such stage, or no such model.
    #[error("there is no network {0}")]
    Unknown(String),
}

impl Network {
    /// A stage's network. Stable Video Diffusion's UNet sees two clips, the second of which is the guided one.
    ///
    /// # Errors
    /// Where there is no such stage.
    pub fn new(stage: &'static str, size: Size, dtype: DType) -> Result<Network, BuildError> {
        let [frames, height, width] = clip_of(size);
        let model = match size {
            Size::Full => None,
            _ => Some(
                SyntheticModel::preset(size.name()).ok_or_else(|| BuildError::Unknown(size.to_string()))?,
            ),
        };
        let vae = || match &model {
            None => Ok(VaeConfig::svd()),
            Some(model) => VaeConfig::from_json(&model.vae.to_string()),
        };
        let latents = [height / 8, width / 8];
        let graph = match stage {
            "clip" => {
                let config = match &model {
                    None => ClipVisionConfig::svd(),
                    Some(model) => ClipVisionConfig::from_json(&model.image_encoder.to_string())?,
                };
                clip_vision::encoder(&config, 1, dtype)?
            }
            "vae_encode" => vae::encoder(&vae()?, &Encode { images: 1, height, width, dtype })?,
            "vae_decode" => {
                let [height, width] = latents;
                let pixels = Pixels::Signed;
                vae::decoder(&vae()?, &Decode { frames, height, width, dtype, scaled: false, pixels })?
            }
            "unet" => {
                let config = match &model {
                    None => UnetConfig::svd(),
                    Some(model) => UnetConfig::from_json(&model.unet.to_string())?,
                };
                let [height, width] = latents;
                prediction(&config, dtype, &Clips { count: 2, frames, height, width })?
            }
            other => return Err(BuildError::Unknown(other.to_owned())),
        };
        Ok(Network { stage, graph })
    }

    /// The inputs of a phase, made from their names as `svd_stages.py` makes them.
    ///
    /// # Errors
    /// Where one cannot be had.
    pub fn inputs(&self, phase: Phase) -> Result<Tensors, String> {
        let mut tensors = Tensors::new();
        for value in self.graph.inputs().iter().map(|&id| self.graph.value(id)) {
            if value.source == Source::Input(phase) {
                tensors.insert(value.name.clone(), self.input(&value.name, &value.ty)?);
            }
        }
        Ok(tensors)
    }

    fn input(&self, name: &str, ty: &TensorType) -> Result<Tensor, String> {
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
        // Numbers that f16 has, so that every precision is given the very same.
        let rounded = Tensor::from_f32(DType::F16, [count], &numbers).map_err(|error| error.to_string())?;
        Tensor::from_f32(ty.dtype, ty.shape.clone(), &rounded.to_f32()).map_err(|error| error.to_string())
    }

    /// The bytes of the weights, the inputs and the results: what has to be moved at the least, were there caches without
    /// end.
    pub fn bytes(&self) -> u64 {
        let results = self.graph.outputs().iter().map(|output| self.graph.value(output.value).ty.bytes());
        let given = self.graph.values().iter().filter(|value| !matches!(value.source, Source::Node { .. }));
        given.map(|value| value.ty.bytes()).chain(results).sum::<usize>() as u64
    }
}

/// A UNet alone: the prediction for clips beside each other, without scaling, guidance and sampler.
///
/// # Errors
/// Where the configuration cannot be honoured.
pub fn prediction(config: &UnetConfig, dtype: DType, clips: &Clips) -> Result<Graph, BuildError> {
    let &Clips { count, frames, height, width } = clips;
    let images = count * frames;
    let mut g = GraphBuilder::new("unet");
    let sample = TensorType::new(dtype, [images, height, width, config.in_channels]);
    let sample = g.input("sample", sample, Phase::Step)?;
    let context = TensorType::new(dtype, [count, 1, config.context_channels()?]);
    let context = g.input("context", context, Phase::Clip)?;
    let timesteps = g.input("timesteps", TensorType::new(DType::F32, [count]), Phase::Clip)?;
    let ids = TensorType::new(DType::F32, [count, config.added_time_ids()?]);
    let ids = g.input("added_time_ids", ids, Phase::Clip)?;
    let time = time_embedding(&mut g, config, dtype, timesteps, ids)?;
    // Every image reads the row of its clip.
    let rows: Vec<i32> = (0..images).map(|image| (image / frames.max(1)) as i32).collect();
    let rows = Tensor::from_slice([images], &rows).map_err(|error| BuildError::Unknown(error.to_string()))?;
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

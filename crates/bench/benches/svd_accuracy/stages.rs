//! The stages of `crates/bench/peers/svd_stages.py`, run by Kinora.

use kinora::{
    device::Device,
    image_to_video::{Configs, ImageToVideo, LoadOptions, Precision, Settings},
    runtime::{Backend, Tuning},
};
use kinora_bench::{
    cases::{Batch, prediction},
    run::Size,
};
use kinora_graph::{DType, Graph, Tensor, TensorType};
use kinora_models::{
    folder::ModelFolder,
    networks::{
        clip_vision,
        vae::{self, Decode, Encode, Pixels},
    },
    weights::Variant,
};
use kinora_runtime::Tensors;

use crate::{Failure, backend, peers::Peers};

/// The stages, in the order in which they are compared.
pub const STAGES: [&str; 5] = ["clip", "vae_encode", "unet", "vae_decode", "pipeline"];

/// The seed of the pipeline's clip.
const SEED: u64 = 20;

/// A model with the inputs of its stages.
pub struct Stages<'a> {
    peers: &'a Peers,
    model: ModelFolder,
    configs: Configs,
    size: Size,
    device: Device,
    tuning: Tuning,
    precision: Precision,
    backend: &'a dyn Backend,
}

impl<'a> Stages<'a> {
    /// Opens the model beside the references.
    pub fn open(
        peers: &'a Peers,
        size: Size,
        (device, tuning): (Device, Tuning),
        precision: Precision,
        backend: &'a dyn Backend,
    ) -> Result<Self, Failure> {
        let model = ModelFolder::open(peers.model(size))?;
        let configs = Configs::read(&model)?;
        Ok(Stages { peers, model, configs, size, device, tuning, precision, backend })
    }

    /// Why a stage cannot be compared in this precision, if it cannot.
    pub fn incomparable(&self, stage: &str) -> Option<&'static str> {
        let other_noise = stage == "pipeline" && self.precision != Precision::F16;
        other_noise.then_some("the reference starts from the noise that a run in f16 draws")
    }

    /// A stage's results, by the references' names.
    pub fn run(&self, stage: &str) -> Result<Tensors, Failure> {
        match stage {
            "clip" => self.network(stage, "image_encoder", &self.image_encoder()?),
            "vae_encode" => self.network(stage, "vae", &self.vae_encoder()?),
            "unet" => self.network(stage, "unet", &self.unet()?),
            "vae_decode" => self.network(stage, "vae", &self.vae_decoder()?),
            _ => self.pipeline(),
        }
    }

    fn dtype(&self) -> DType {
        self.precision.dtype()
    }

    fn image_encoder(&self) -> Result<Graph, Failure> {
        let [images, ..] = self.images("clip.pixels")?;
        Ok(clip_vision::encoder(&self.configs.image_encoder, images, self.dtype())?)
    }

    fn vae_encoder(&self) -> Result<Graph, Failure> {
        let [images, height, width] = self.images("vae_encode.image")?;
        Ok(vae::encoder(&self.configs.vae, &Encode { images, height, width, dtype: self.dtype() })?)
    }

    /// It decodes all frames at once, and does not scale the latents.
    fn vae_decoder(&self) -> Result<Graph, Failure> {
        let [frames, height, width] = self.images("vae_decode.latents")?;
        let pixels = Pixels::Signed;
        let request = Decode { frames, height, width, dtype: self.dtype(), scaled: false, pixels };
        Ok(vae::decoder(&self.configs.vae, &request)?)
    }

    fn unet(&self) -> Result<Graph, Failure> {
        let [images, height, width] = self.images("unet.sample")?;
        let clips = self.peers.input("unet.timesteps")?.shape().elements();
        let batch = Batch { clips, frames: images / clips.max(1), height, width };
        Ok(prediction(&self.configs.unet, self.dtype(), &batch)?)
    }

    /// Images, height and width of an input.
    fn images(&self, name: &str) -> Result<[usize; 3], Failure> {
        match self.peers.input(name)?.shape().to_vec()[..] {
            [images, height, width, _] => Ok([images, height, width]),
            _ => Err(format!("{name} is not a tensor of images").into()),
        }
    }

    /// Runs a network whose inputs and results have the names of the files' tensors, without the stage's name before them.
    fn network(&self, stage: &str, part: &str, graph: &Graph) -> Result<Tensors, Failure> {
        let mut inputs = Tensors::new();
        for value in graph.inputs().iter().map(|&id| graph.value(id)) {
            let given = self.peers.input(&format!("{stage}.{}", value.name))?;
            inputs.insert(value.name.clone(), given.cast(value.ty.dtype));
        }
        let weights = self.model.weights(part, &Variant::For(self.dtype()))?;
        let results = backend::run(self.backend, graph, &weights, &inputs)?;
        Ok(results.into_iter().map(|(name, result)| (format!("{stage}.{name}"), result)).collect())
    }

    /// The whole pipeline, with diffusers' defaults for everything else.
    fn pipeline(&self) -> Result<Tensors, Failure> {
        let photo = self.peers.photo()?;
        let (height, width) = (photo.height(), photo.width());
        let [frames, ..] = self.images("pipeline.noise")?;
        let settings = Settings::for_configs(&self.configs)
            .frames(frames)
            .steps(self.size.preset().clip.steps)
            .height(height)
            .width(width)
            .decode_chunk(frames)
            .seed(SEED);
        let options =
            LoadOptions::default().precision(self.precision).device(self.device).tuning(self.tuning);
        let pipeline = ImageToVideo::new(self.model.clone(), options)?;
        let clip = pipeline.generate(&photo, &settings)?;
        let bytes = clip.frames.iter().flat_map(|frame| frame.bytes()).copied().collect::<Vec<u8>>();
        let frames = Tensor::from_bytes(TensorType::new(DType::U8, [frames, height, width, 3]), &bytes)?;
        Ok(Tensors::from([
            ("pipeline.latents".to_owned(), clip.latents),
            ("pipeline.frames".to_owned(), frames),
        ]))
    }
}

//! The networks of one clip, planned before anything is read or allocated.

use kinora_graph::{DType, Graph};
use kinora_models::{
    networks::{
        clip_vision,
        denoise::DenoiseConfig,
        step_cache::{DEEP, Extent},
        vae::{self, Decode, Encode, Pixels},
    },
    schedulers::{Schedule, Scheduler, SchedulerKind},
    weights::Weights,
};
use kinora_runtime::{
    Backend, LoadContext, Network, PlannedNetwork, SharedWeights, TuningProgress, TuningStage,
};

use super::{
    Configs, Estimate, GenerateError, Observe, OverBudget, PartEstimate, Precision, Progress, Settings, Stage,
};
use crate::quantisation::by_shape;

/// A network as built, before any pass.
pub(crate) struct Built {
    /// Its name in reports and errors.
    pub name: &'static str,
    pub stage: Stage,
    /// How often it runs.
    pub runs: usize,
    pub graph: Graph,
}

/// A network that is planned, and its program once it is loaded.
#[derive(Debug)]
pub(super) struct Part {
    /// Its name in reports and errors.
    pub name: &'static str,
    pub stage: Stage,
    /// The parameters that the network has, before the passes drop any.
    parameters: u64,
    /// How often it runs in a clip.
    pub runs: usize,
    /// The bytes of its weights, if another network has the others.
    own_weights: Option<usize>,
    /// What is kept for it from step to step.
    kept_bytes: usize,
    planned: Box<dyn PlannedNetwork>,
    network: Option<Box<dyn Network>>,
}

impl Part {
    fn new(
        Built { name, stage, runs, graph }: Built,
        (backend, budget): (&dyn Backend, Option<usize>),
    ) -> Result<Self, GenerateError> {
        let planned = backend.plan(&graph, budget).map_err(|source| GenerateError::run(name, source))?;
        Ok(Part {
            name,
            stage,
            parameters: graph.parameter_count(),
            runs,
            own_weights: None,
            kept_bytes: 0,
            planned,
            network: None,
        })
    }

    /// The network with its weights, which are read if they are not loaded yet.
    pub fn load(
        &mut self,
        weights: &Weights,
        context: &LoadContext<'_>,
    ) -> Result<&mut (dyn Network + 'static), GenerateError> {
        let network = match self.network.take() {
            Some(network) => network,
            None => {
                let loaded = self.planned.load(weights, context);
                loaded.map_err(|source| GenerateError::run(self.name, source))?
            }
        };
        Ok(&mut **self.network.insert(network))
    }

    /// The network as it is planned.
    pub fn graph(&self) -> &Graph {
        self.planned.graph()
    }

    /// Whether its weights are in memory.
    pub fn is_loaded(&self) -> bool {
        self.network.is_some()
    }

    /// Frees its weights and activations.
    pub fn unload(&mut self) {
        self.network = None;
    }

    /// What it needs.
    fn estimate(&self) -> PartEstimate {
        let own = PartEstimate::new((self.name, self.stage), self.runs, self.parameters, &*self.planned);
        PartEstimate {
            weight_bytes: self.own_weights.unwrap_or(own.weight_bytes),
            arena_bytes: own.arena_bytes.saturating_add(self.kept_bytes),
            ..own
        }
    }
}

/// The denoising network.
#[derive(Debug)]
pub(super) struct Unet {
    /// That of whole steps.
    pub whole: Part,
    /// That of shallow steps, if some are.
    pub shallow: Option<Part>,
    /// The weights of both.
    pub shared: SharedWeights,
}

impl Unet {
    fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.whole).chain(&self.shallow)
    }

    /// Refuses both networks together if they do not fit.
    fn within(self, budget: Option<usize>) -> Result<Unet, GenerateError> {
        let estimates: Vec<PartEstimate> = self.parts().map(Part::estimate).collect();
        let sum =
            |bytes: fn(&PartEstimate) -> usize| estimates.iter().map(bytes).fold(0, usize::saturating_add);
        let need = sum(PartEstimate::peak_bytes);
        match budget {
            Some(budget) if need > budget => {
                let (weights, activations) = (sum(|part| part.weight_bytes), sum(|part| part.arena_bytes));
                let part = self.whole.name;
                let over = OverBudget { part, need, budget, weights, activations, working: 0 };
                Err(GenerateError::OverBudget { over: Box::new(over), suggestion: None })
            }
            _ => Ok(self),
        }
    }
}

/// The networks of one clip, in the order in which they run.
#[derive(Debug)]
pub(super) struct Plans {
    pub shape: ClipShape,
    /// What the clip holds beside the networks.
    pub working_bytes: usize,
    pub image_encoder: Part,
    pub vae_encoder: Part,
    pub unet: Unet,
    /// The decoder of a full chunk, and that of a shorter last one, if any; each with its number of frames.
    pub decoders: Vec<(usize, Part)>,
}

/// The settings that the networks of a clip are planned for. All others are numbers that they are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClipShape {
    frames: usize,
    steps: usize,
    height: usize,
    width: usize,
    decode_chunk: usize,
    guided: bool,
    scheduler: SchedulerKind,
    /// After how many steps one is whole, and the outer blocks, if not all steps are whole.
    cache: Option<[usize; 2]>,
}

/// What the networks are planned for.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub configs: &'a Configs,
    pub settings: &'a Settings,
    pub precision: Precision,
    pub backend: &'a dyn Backend,
    /// The photo's width and height. For an estimate without one, no pixel.
    pub photo: [usize; 2],
}

impl Request<'_> {
    /// The scheduler that runs.
    pub fn scheduler(&self) -> Result<Scheduler, GenerateError> {
        let config = &self.configs.scheduler;
        let scheduler = match self.settings.scheduler {
            Some(kind) => Scheduler::from_config_as(config, kind),
            None => Scheduler::from_config(config),
        };
        scheduler.map_err(|error| self.configs.named("scheduler", error))
    }

    /// The shape of the clip. Two requests that mean the same have the same shape.
    pub fn shape(&self) -> Result<ClipShape, GenerateError> {
        let Settings { frames, steps, height, width, decode_chunk, .. } = *self.settings;
        Ok(ClipShape {
            frames,
            steps,
            height,
            width,
            decode_chunk: decode_chunk.min(frames),
            guided: self.settings.guided(),
            scheduler: self.scheduler()?.kind(),
            cache: self.settings.cached().then_some([self.settings.cache, self.settings.cache_blocks]),
        })
    }

    /// The run of the scheduler.
    pub fn schedule(&self) -> Result<Schedule, GenerateError> {
        Ok(self.scheduler()?.schedule(self.settings.steps)?)
    }

    /// Height and width of the latents.
    pub fn latent_size(&self) -> [usize; 2] {
        let factor = self.configs.vae.pixels_per_latent();
        [self.settings.height / factor, self.settings.width / factor]
    }

    /// The precision that the photo is encoded in: f32 if f16 would overflow, as in diffusers.
    pub fn vae_encoder_dtype(&self) -> DType {
        match self.precision {
            Precision::F16 | Precision::Fp8 if self.configs.vae.force_upcast => DType::F32,
            precision => precision.dtype(),
        }
    }

    /// Checks the settings and plans all networks. Each has to fit the budget, with what the clip holds beside it.
    pub fn plan(&self, budget: Option<usize>) -> Result<Plans, GenerateError> {
        self.settings.check(self.configs, self.precision)?;
        self.configs.check()?;
        let working = self.working_bytes()?;
        let room = budget.map(|budget| budget.saturating_sub(working));
        self.plan_networks(room, working).map_err(|error| error.with_working(working, budget))
    }

    fn plan_networks(&self, budget: Option<usize>, working_bytes: usize) -> Result<Plans, GenerateError> {
        let schedule = self.schedule()?;
        Ok(Plans {
            working_bytes,
            shape: self.shape()?,
            image_encoder: self.image_encoder(budget)?,
            vae_encoder: self.vae_encoder(budget)?,
            unet: self.unet(&schedule, budget)?,
            decoders: self.decoders(budget)?,
        })
    }

    fn image_encoder(&self, budget: Option<usize>) -> Result<Part, GenerateError> {
        Part::new(self.built_image_encoder()?, (self.backend, budget))
    }

    fn built_image_encoder(&self) -> Result<Built, GenerateError> {
        let graph = self.image_encoder_graph()?;
        Ok(Built { name: "image encoder", stage: Stage::EncodeImage, runs: 1, graph })
    }

    fn image_encoder_graph(&self) -> Result<Graph, GenerateError> {
        let graph = clip_vision::encoder(&self.configs.image_encoder, 1, self.precision.dtype());
        graph.map_err(|error| self.configs.named("image_encoder", error))
    }

    fn vae_encoder(&self, budget: Option<usize>) -> Result<Part, GenerateError> {
        Part::new(self.built_vae_encoder()?, (self.backend, budget))
    }

    fn built_vae_encoder(&self) -> Result<Built, GenerateError> {
        let graph = self.vae_encoder_graph()?;
        Ok(Built { name: "autoencoder's encoder", stage: Stage::EncodeLatents, runs: 1, graph })
    }

    fn vae_encoder_graph(&self) -> Result<Graph, GenerateError> {
        let Settings { height, width, .. } = *self.settings;
        let request = Encode { images: 1, height, width, dtype: self.vae_encoder_dtype() };
        vae::encoder(&self.configs.vae, &request).map_err(|error| self.configs.named("vae", error))
    }

    fn unet(&self, schedule: &Schedule, budget: Option<usize>) -> Result<Unet, GenerateError> {
        let (whole, shallow) = self.built_unets(schedule)?;
        let whole = Part::new(whole, (self.backend, budget))?;
        let shallow = match shallow {
            Some(built) => {
                let kept_bytes = kept_bytes(&built.graph);
                // Within the budget together with the other one.
                let part = Part::new(built, (self.backend, None))?;
                Some(Part {
                    own_weights: Some(SharedWeights::missing_bytes(&*whole.planned, &*part.planned)),
                    kept_bytes,
                    ..part
                })
            }
            None => None,
        };
        Unet { whole, shallow, shared: SharedWeights::default() }.within(budget)
    }

    /// The network of whole steps, and that of shallow ones if there are any.
    fn built_unets(&self, schedule: &Schedule) -> Result<(Built, Option<Built>), GenerateError> {
        let whole_steps = self.settings.whole_steps();
        let (whole, shallow) = self.extents();
        let built = |name, runs, extent| -> Result<Built, GenerateError> {
            Ok(Built { name, stage: Stage::Denoise, runs, graph: self.unet_graph(schedule, extent)? })
        };
        let shallow = shallow
            .map(|extent| built("UNet, shallow", self.settings.steps - whole_steps, extent))
            .transpose()?;
        Ok((built("UNet", whole_steps, whole)?, shallow))
    }

    /// What whole and shallow steps compute, if some are shallow.
    fn extents(&self) -> (Extent, Option<Extent>) {
        let blocks = self.settings.cache_blocks;
        match self.settings.cached() {
            true => (Extent::Keeping { blocks }, Some(Extent::Shallow { blocks })),
            false => (Extent::Whole, None),
        }
    }

    fn unet_graph(&self, schedule: &Schedule, extent: Extent) -> Result<Graph, GenerateError> {
        let [height, width] = self.latent_size();
        let Settings { frames, steps, .. } = *self.settings;
        let config = DenoiseConfig {
            unet: self.configs.unet.clone(),
            frames,
            height,
            width,
            steps,
            guided: self.settings.guided(),
            sampler: schedule.needs(),
            dtype: self.precision.dtype(),
            extent,
        };
        let graph = config.build().map_err(|error| self.configs.named("unet", error))?;
        Ok(by_shape(self.precision, graph))
    }

    /// The chunks that frames are decoded in: how many frames each has, and how many such chunks there are.
    fn chunks(&self) -> impl Iterator<Item = (usize, usize)> {
        let frames = self.settings.frames;
        let chunk = self.settings.decode_chunk.min(frames);
        [(chunk, frames / chunk), (frames % chunk, 1)].into_iter().filter(|&(frames, _)| frames > 0)
    }

    fn decoders(&self, budget: Option<usize>) -> Result<Vec<(usize, Part)>, GenerateError> {
        let plan = |(frames, runs): (usize, usize)| {
            Ok((frames, Part::new(self.built_decoder(frames, runs)?, (self.backend, budget))?))
        };
        self.chunks().map(plan).collect()
    }

    fn built_decoder(&self, frames: usize, runs: usize) -> Result<Built, GenerateError> {
        let graph = self.decoder_graph(frames)?;
        Ok(Built { name: "autoencoder's decoder", stage: Stage::Decode, runs, graph })
    }

    fn decoder_graph(&self, frames: usize) -> Result<Graph, GenerateError> {
        let [height, width] = self.latent_size();
        let dtype = self.precision.dtype();
        let request = Decode { frames, height, width, dtype, scaled: true, pixels: Pixels::Bytes };
        vae::decoder(&self.configs.vae, &request).map_err(|error| self.configs.named("vae", error))
    }

    /// The networks as built, in the order in which they run.
    #[cfg(feature = "cuda")]
    pub fn built(&self) -> Result<Vec<Built>, GenerateError> {
        self.settings.check(self.configs, self.precision)?;
        self.configs.check()?;
        let mut built = vec![self.built_image_encoder()?, self.built_vae_encoder()?];
        let (whole, shallow) = self.built_unets(&self.schedule()?)?;
        built.extend(std::iter::once(whole).chain(shallow));
        for (frames, runs) in self.chunks() {
            built.push(self.built_decoder(frames, runs)?);
        }
        Ok(built)
    }
}

/// What a shallow step takes from an earlier one.
fn kept_bytes(shallow: &Graph) -> usize {
    let inputs = shallow.inputs().iter().map(|&id| shallow.value(id));
    inputs.filter(|value| value.name == DEEP).map(|value| value.ty.bytes()).sum()
}

impl Plans {
    fn parts(&self) -> impl Iterator<Item = &Part> {
        let before = [&self.image_encoder, &self.vae_encoder];
        before.into_iter().chain(self.unet.parts()).chain(self.decoders.iter().map(|(_, part)| part))
    }

    /// The networks with different weights, by the folders that hold them: the decoder of the last chunk has those of
    /// the first, and shallow steps have some of those of whole ones.
    pub fn graphs(&self) -> impl Iterator<Item = (&'static str, &Graph)> {
        let parts =
            [("image_encoder", &self.image_encoder), ("vae", &self.vae_encoder), ("unet", &self.unet.whole)];
        let decoder = self.decoders.iter().take(1).map(|(_, part)| ("vae", part));
        parts.into_iter().chain(decoder).map(|(folder, part)| (folder, part.planned.graph()))
    }

    /// Measures the kernels of all networks, if that was asked for. Returns whether any were measured: the networks
    /// must then be planned again.
    pub fn tune(&self, observe: &mut Observe<'_>) -> Result<bool, GenerateError> {
        let mut measured = false;
        for part in self.parts().filter(|part| !part.is_loaded()) {
            let observer = &mut |tuning: &TuningProgress| {
                let stage = match tuning.stage {
                    TuningStage::Compile => Stage::Compile,
                    TuningStage::Measure => Stage::Tune,
                };
                observe(&Progress { stage, done: tuning.done, total: tuning.total, preview: None })
            };
            measured |=
                part.planned.tune(observer).map_err(|source| GenerateError::run(part.name, source))?;
        }
        Ok(measured)
    }

    /// How many programs have to be loaded for the clip.
    pub fn unloaded(&self) -> usize {
        self.parts().filter(|part| !part.is_loaded()).count()
    }

    /// What the clip needs if each network is dropped before the next is loaded.
    pub fn estimate(&self) -> Estimate {
        let parts = self.parts().map(Part::estimate).collect();
        Estimate { parts, working_bytes: self.working_bytes, kept_loaded: false }
    }
}

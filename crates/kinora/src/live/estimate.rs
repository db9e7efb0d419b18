//! What live video costs, known before anything is read or allocated.

use kinora_cpu::CpuBackend;
use kinora_graph::Graph;
use kinora_models::{
    lora::Adjustable,
    networks::frame::{Start, UNET},
};
use kinora_runtime::Backend;
use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::{
    LiveConfigs, LiveSettings,
    frames::{self, Shape},
    memory, text,
};
use crate::{
    image_to_video::{GenerateError, PartEstimate, Precision, Stage},
    quantisation::{by_shape, check_device, check_products},
};

/// What a stream of live video costs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LiveEstimate {
    /// The text encoders, which run once for every new prompt; then the network that draws frames, which is left out if
    /// the strength is 0.
    pub parts: Vec<PartEstimate>,
    /// What is held beside the networks: what they are given and leave, and the prompts that are remembered.
    pub working_bytes: usize,
}

impl LiveEstimate {
    /// The memory of a stream: all networks, which it keeps, and what it holds beside them.
    pub fn peak_bytes(&self) -> usize {
        self.parts.iter().map(PartEstimate::peak_bytes).fold(self.working_bytes, usize::saturating_add)
    }

    /// Floating-point operations of a frame.
    pub fn flops_per_frame(&self) -> u64 {
        self.sum(Stage::Draw, |part| part.flops)
    }

    /// Floating-point operations before the first frame after a change of settings: what depends on prompts and timesteps
    /// alone.
    pub fn flops_per_change(&self) -> u64 {
        self.sum(Stage::Draw, |part| part.flops_once)
    }

    /// Floating-point operations of a new prompt.
    pub fn flops_per_prompt(&self) -> u64 {
        self.sum(Stage::EncodeText, |part| part.flops.saturating_add(part.flops_once))
    }

    /// The parameters of all networks.
    pub fn parameters(&self) -> u64 {
        self.parts.iter().map(|part| part.parameters).fold(0, u64::saturating_add)
    }

    fn sum(&self, stage: Stage, of: impl Fn(&PartEstimate) -> u64) -> u64 {
        self.parts.iter().filter(|part| part.stage == stage).map(of).fold(0, u64::saturating_add)
    }
}

impl Serialize for LiveEstimate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("LiveEstimate", 7)?;
        fields.serialize_field("peak_bytes", &self.peak_bytes())?;
        fields.serialize_field("working_bytes", &self.working_bytes)?;
        fields.serialize_field("flops_per_frame", &self.flops_per_frame())?;
        fields.serialize_field("flops_per_change", &self.flops_per_change())?;
        fields.serialize_field("flops_per_prompt", &self.flops_per_prompt())?;
        fields.serialize_field("parameters", &self.parameters())?;
        fields.serialize_field("parts", &self.parts)?;
        fields.end()
    }
}

/// What a stream would cost with a model of which only the configuration is known, even on a machine that could not run it. In
/// [`Precision::Fp8`] that is a stream whose model has been measured: measuring takes the UNet in f16 first, which is gone before the
/// rest is loaded.
///
/// # Errors
/// If the settings or the configurations are refused; if nothing would be multiplied in fp8 although that was asked for.
pub fn estimate_live(
    configs: &LiveConfigs,
    settings: &LiveSettings,
    precision: Precision,
) -> Result<LiveEstimate, GenerateError> {
    estimate_live_on(configs, settings, precision, &CpuBackend::default())
}

/// The same as a backend plans it.
pub(crate) fn estimate_live_on(
    configs: &LiveConfigs,
    settings: &LiveSettings,
    precision: Precision,
    backend: &dyn Backend,
) -> Result<LiveEstimate, GenerateError> {
    if precision == Precision::Fp8 {
        check_device(backend)?;
    }
    Request { configs, settings, precision, backend, unet: None, input: None }.estimate()
}

/// What the networks of a stream are planned for.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub configs: &'a LiveConfigs,
    pub settings: &'a LiveSettings,
    pub precision: Precision,
    pub backend: &'a dyn Backend,
    /// What LoRAs add to the UNet in the graph.
    pub unet: Option<&'a Adjustable<'a>>,
    /// The width and height of the frames that come in, if they are known.
    pub input: Option<[usize; 2]>,
}

impl Request<'_> {
    /// Plans all networks.
    pub fn estimate(&self) -> Result<LiveEstimate, GenerateError> {
        let mut working_bytes = text::remembered_bytes(self.configs);
        let plan =
            |(name, stage, graph): (&'static str, Stage, Graph)| -> Result<PartEstimate, GenerateError> {
                let planned =
                    self.backend.plan(&graph, None).map_err(|source| GenerateError::run(name, source))?;
                if stage == Stage::Draw && self.precision == Precision::Fp8 {
                    check_products(planned.graph())?;
                }
                working_bytes = working_bytes.saturating_add(memory::beside(&graph));
                Ok(PartEstimate::new((name, stage), 1, graph.parameter_count(), &*planned))
            };
        let parts = self.graphs()?.into_iter().map(plan).collect::<Result<_, _>>()?;
        Ok(LiveEstimate { parts, working_bytes })
    }

    /// All networks, each with its name and stage.
    pub fn graphs(&self) -> Result<Vec<(&'static str, Stage, Graph)>, GenerateError> {
        let frame = self.frame()?.map(|graph| (frames::PART, Stage::Draw, graph));
        let encoders = text::graphs(self.configs, self.precision.dtype())?.into_iter();
        let encoders = encoders.map(|encoder| (encoder.name, Stage::EncodeText, encoder.graph));
        Ok(encoders.chain(frame).collect())
    }

    /// The network that draws frames; `None` if they are left as they are.
    pub fn frame(&self) -> Result<Option<Graph>, GenerateError> {
        let Request { configs, settings, precision, unet, input, .. } = *self;
        settings.check(configs, precision)?;
        let schedule = configs.schedule(settings, Start::Picture)?;
        let shape = schedule.map(|schedule| Shape::new(configs, settings, &schedule, Start::Picture, input));
        let Some(shape) = shape else { return Ok(None) };
        let graph = shape.graph(configs, precision)?;
        let graph = match unet {
            Some(unet) => unet.attach(&graph, UNET)?,
            None => graph,
        };
        Ok(Some(by_shape(precision, graph)))
    }
}

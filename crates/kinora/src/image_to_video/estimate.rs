//! What a clip costs, known before anything is read or allocated.

use kinora_cpu::CpuBackend;
use kinora_graph::Phase;
use kinora_runtime::{Backend, PlannedNetwork};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::{Configs, GenerateError, Precision, Settings, Stage, plans::Request};
use crate::quantisation::{check_device, check_products};

/// What a network needs, according to its plan for this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PartEstimate {
    /// The network.
    pub name: &'static str,
    /// Where it runs.
    pub stage: Stage,
    /// Its parameters in the model's files. Those that the passes make unnecessary are counted here, but not in
    /// `weight_bytes`.
    pub parameters: u64,
    /// Its weights as they are stored while it runs, packed. The network of shallow steps reads those of whole steps, and so
    /// has next to none of its own.
    pub weight_bytes: usize,
    /// Its activations; for shallow steps, also what is kept for them.
    pub arena_bytes: usize,
    /// How often it runs in a clip; in live video 1, for every frame or every prompt.
    pub runs: usize,
    /// Floating-point operations of one run.
    pub flops: u64,
    /// Floating-point operations once per clip, before the first run; in live video, once for every change of settings.
    pub flops_once: u64,
}

impl PartEstimate {
    /// By its plan. `parameters` are those of the network before the passes.
    pub(crate) fn new(
        (name, stage): (&'static str, Stage),
        runs: usize,
        parameters: u64,
        planned: &dyn PlannedNetwork,
    ) -> Self {
        let (graph, plan) = (planned.graph(), planned.plan());
        let phases = graph.phases();
        let once = graph
            .nodes()
            .iter()
            .filter(|node| node.outputs.iter().map(|v| phases[v.index()]).max() == Some(Phase::Clip))
            .fold(0u64, |sum, node| sum.saturating_add(graph.node_flops(node)));
        PartEstimate {
            name,
            stage,
            parameters,
            weight_bytes: plan.weight_bytes(),
            arena_bytes: plan.arena_bytes(),
            runs,
            flops: graph.step_flops(),
            flops_once: once,
        }
    }

    /// Weights and activations.
    pub fn peak_bytes(&self) -> usize {
        self.weight_bytes.saturating_add(self.arena_bytes)
    }
}

/// What a clip costs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The networks in the order in which they run. A decoder comes twice if the last chunk is shorter than the others, and the
    /// UNet if steps are cached: for whole steps, then for shallow ones.
    pub parts: Vec<PartEstimate>,
    /// What the clip holds beside them at its peak: the photo, latents, finished frames, and what the threads keep. A
    /// photo that is not known, or is smaller than the clip, counts as one of its size. 0 if the device has memory of its own,
    /// because that is not held there.
    pub working_bytes: usize,
    /// Whether they stay in memory for the next clip, as [`LoadOptions::keep_loaded`](super::LoadOptions::keep_loaded)
    /// asks. Otherwise each is loaded when the one before it has been dropped.
    pub kept_loaded: bool,
}

impl Estimate {
    /// The peak memory of the clip: that of its largest network, or of all together if they are kept loaded, and of
    /// what it holds beside them. The networks of whole and shallow steps count as one.
    pub fn peak_bytes(&self) -> usize {
        let sum = |parts: &mut dyn Iterator<Item = &PartEstimate>| {
            parts.map(PartEstimate::peak_bytes).fold(0, usize::saturating_add)
        };
        let networks = if self.kept_loaded {
            sum(&mut self.parts.iter())
        } else {
            // Networks of the same steps are there together.
            let steps = sum(&mut self.parts.iter().filter(|part| part.stage == Stage::Denoise));
            self.parts.iter().map(PartEstimate::peak_bytes).chain([steps]).max().unwrap_or(0)
        };
        networks.saturating_add(self.working_bytes)
    }

    /// The same if the networks are kept, if that fits the budget.
    pub(super) fn kept_within(self, budget: Option<usize>) -> Self {
        let kept = Estimate { kept_loaded: true, ..self };
        let kept_loaded = budget.is_none_or(|budget| kept.peak_bytes() <= budget);
        Estimate { kept_loaded, ..kept }
    }

    /// Floating-point operations of the whole clip.
    pub fn flops(&self) -> u64 {
        let of =
            |part: &PartEstimate| part.flops.saturating_mul(part.runs as u64).saturating_add(part.flops_once);
        self.parts.iter().map(of).fold(0, u64::saturating_add)
    }

    /// The parameters of the whole model.
    pub fn parameters(&self) -> u64 {
        // The decoder of the last chunk has the same weights as the first, and shallow steps have those of whole ones.
        let counted = self
            .parts
            .iter()
            .enumerate()
            .filter(|(at, part)| self.parts[..*at].iter().all(|before| before.stage != part.stage));
        counted.map(|(_, part)| part.parameters).fold(0, u64::saturating_add)
    }

    /// The denoising network; that of whole steps, if others are shallow.
    pub fn unet(&self) -> Option<&PartEstimate> {
        self.parts.iter().find(|part| part.stage == Stage::Denoise)
    }
}

impl Serialize for Estimate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Estimate", 6)?;
        fields.serialize_field("peak_bytes", &self.peak_bytes())?;
        fields.serialize_field("working_bytes", &self.working_bytes)?;
        fields.serialize_field("flops", &self.flops())?;
        fields.serialize_field("parameters", &self.parameters())?;
        fields.serialize_field("kept_loaded", &self.kept_loaded)?;
        fields.serialize_field("parts", &self.parts)?;
        fields.end()
    }
}

/// What a clip would cost with a model of which only the configuration is known, even on a machine that could not run it. In
/// [`Precision::Fp8`] that is a clip whose model has been measured: measuring takes as much as the UNet does in f16, and its largest
/// activation twice.
///
/// # Errors
/// If the settings or the configurations are refused; if nothing would be multiplied in fp8 although that was asked for.
pub fn estimate_configs(
    configs: &Configs,
    settings: &Settings,
    precision: Precision,
) -> Result<Estimate, GenerateError> {
    estimate_on(configs, settings, precision, &CpuBackend::default())
}

/// The same as a backend plans it.
pub(crate) fn estimate_on(
    configs: &Configs,
    settings: &Settings,
    precision: Precision,
    backend: &dyn Backend,
) -> Result<Estimate, GenerateError> {
    if precision == Precision::Fp8 {
        check_device(backend)?;
    }
    let plans = Request { configs, settings, precision, backend, photo: [0; 2] }.plan(None)?;
    if precision == Precision::Fp8 {
        check_products(plans.unet.whole.graph())?;
    }
    Ok(plans.estimate())
}

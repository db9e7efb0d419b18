//! A backend of one's own, which no pipeline knows: every op by the reference, one after the other.
#![allow(clippy::unwrap_used)]

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use kinora::{
    ImageToVideo, RgbImage,
    device::Device,
    image_to_video::{Clip, GenerateError, LoadOptions, Precision, Settings, Stage},
    memory::{LimitSource, MemoryLimit},
    runtime::{
        Backend, Carried, HostFrames, LoadContext, Network, NetworkMemory, PlannedNetwork, RunError,
        StepLoop, StepObserver, Tensors, tensors,
    },
};
use kinora_cpu::{CpuTarget, reference};
use kinora_graph::{
    DType, Graph, Parameters, Source, Tensor,
    plan::{Plan, PlanOptions},
};
use kinora_models::{folder::ModelFolder, synthetic::SyntheticModel};

/// Runs graphs as they are built, and counts its steps.
#[derive(Clone, Debug, Default)]
struct Plain {
    steps: Arc<AtomicUsize>,
}

impl Backend for Plain {
    fn describe(&self) -> String {
        "plain loops".to_owned()
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        let options = PlanOptions { budget, ..PlanOptions::default() };
        let plan = Plan::new(graph, &CpuTarget::default(), &options)?;
        Ok(Box::new(PlannedPlain { graph: graph.clone(), plan, steps: self.steps.clone() }))
    }
}

#[derive(Debug)]
struct PlannedPlain {
    graph: Graph,
    plan: Plan,
    steps: Arc<AtomicUsize>,
}

impl PlannedNetwork for PlannedPlain {
    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn load(&self, parameters: &dyn Parameters, _: &LoadContext<'_>) -> Result<Box<dyn Network>, RunError> {
        let declared = self.graph.values().iter().filter(|value| value.source == Source::Parameter);
        let read =
            |value| Ok((kinora_graph::Value::clone(value).name, tensors::parameter(value, parameters)?));
        let weights = declared.map(read).collect::<Result<Tensors, RunError>>()?;
        let (graph, steps) = (self.graph.clone(), self.steps.clone());
        Ok(Box::new(PlainNetwork { graph, weights, clip: Tensors::new(), frames: None, steps }))
    }
}

#[derive(Debug)]
struct PlainNetwork {
    graph: Graph,
    weights: Tensors,
    clip: Tensors,
    frames: Option<HostFrames>,
    steps: Arc<AtomicUsize>,
}

impl Network for PlainNetwork {
    fn memory(&self) -> NetworkMemory {
        let weights = self.weights.values().map(|tensor: &Tensor| tensor.bytes().len()).sum();
        NetworkMemory { weights, activations: 0 }
    }

    fn run_clip(&mut self, inputs: &Tensors) -> Result<(), RunError> {
        self.clip.clone_from(inputs);
        Ok(())
    }

    fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, RunError> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let mut all = self.clip.clone();
        all.extend(inputs.clone());
        reference::evaluate(&self.graph, &self.weights, &all)
    }

    fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError> {
        let first = steps.first_inputs(&self.graph, inputs)?;
        steps.run(first, observer, |inputs| self.run_step(inputs))
    }

    fn begin_frames(&mut self, carried: Carried<'_>, first: &Tensors) -> Result<(), RunError> {
        self.frames = Some(HostFrames::begin(&self.graph, carried, first)?);
        Ok(())
    }

    fn run_frame(&mut self, inputs: &Tensors, results: &mut Tensors) -> Result<(), RunError> {
        let mut frames = self.frames.take().ok_or(RunError::FramesNotBegun)?;
        let done = frames.run(inputs, results, |all| self.run_step(all));
        self.frames = Some(frames);
        done
    }

    fn handed_on(&mut self) -> Result<Tensors, RunError> {
        let frames = self.frames.as_ref().ok_or(RunError::FramesNotBegun)?;
        Ok(frames.handed_on().clone())
    }

    fn time_step(&mut self, inputs: &Tensors) -> Result<f64, RunError> {
        self.run_step(inputs).map(|_| 0.0)
    }
}

struct Case {
    _folder: tempfile::TempDir,
    model: ModelFolder,
    settings: Settings,
    photo: RgbImage,
}

impl Case {
    fn new() -> Case {
        let folder = tempfile::tempdir().unwrap();
        SyntheticModel::preset("tiny").unwrap().write(folder.path()).unwrap();
        let model = ModelFolder::open(folder.path()).unwrap();
        let settings = Settings::for_model(&model).unwrap().steps(2).frames(2).decode_chunk(2).seed(1);
        let photo = RgbImage::new(64, 64, (0..64 * 64 * 3).map(|at| (at % 251) as u8).collect()).unwrap();
        Case { _folder: folder, model, settings, photo }
    }

    fn make(&self, pipeline: &ImageToVideo, stop: Option<Stage>) -> Result<Clip, GenerateError> {
        pipeline.generate_with(&self.photo, &self.settings, |progress| match stop {
            Some(stage) if progress.stage == stage && progress.done > 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    }
}

#[test]
fn a_pipeline_runs_on_a_backend_that_it_does_not_know() {
    let case = Case::new();
    let plain = Plain::default();
    let pipeline =
        ImageToVideo::on(Arc::new(plain.clone()), case.model.clone(), LoadOptions::default()).unwrap();
    let clip = case.make(&pipeline, None).unwrap();
    assert_eq!(clip.report.device, "plain loops");
    // Two encoders, two steps and one chunk of frames.
    assert_eq!(plain.steps.load(Ordering::Relaxed), 5);

    let options = LoadOptions::default().device(Device::Cpu);
    let expected = case.make(&ImageToVideo::new(case.model.clone(), options).unwrap(), None).unwrap();
    let pairs = clip.latents.to_f32().into_iter().zip(expected.latents.to_f32());
    let furthest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(furthest < 1e-3, "the latents differ by up to {furthest}");

    let stopped = case.make(&pipeline, Some(Stage::Denoise)).unwrap_err();
    assert!(matches!(stopped, GenerateError::Cancelled), "{stopped}");
}

/// What a shallow step takes from a whole one goes through tensors of the host there.
#[test]
fn steps_are_cached_on_a_backend_that_the_pipeline_does_not_know() {
    let case = Case::new();
    let case = Case { settings: case.settings.clone().steps(4).cache(3), ..case };
    let plain = Plain::default();
    let pipeline =
        ImageToVideo::on(Arc::new(plain.clone()), case.model.clone(), LoadOptions::default()).unwrap();
    let clip = case.make(&pipeline, None).unwrap();
    // Two encoders, two whole and two shallow steps, and one chunk of frames.
    assert_eq!(plain.steps.load(Ordering::Relaxed), 7);
    let options = LoadOptions::default().device(Device::Cpu);
    let expected = case.make(&ImageToVideo::new(case.model.clone(), options).unwrap(), None).unwrap();
    let pairs = clip.latents.to_f32().into_iter().zip(expected.latents.to_f32());
    let furthest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(furthest < 1e-3, "the latents differ by up to {furthest}");
    let stopped = case.make(&pipeline, Some(Stage::Denoise)).unwrap_err();
    assert!(matches!(stopped, GenerateError::Cancelled), "{stopped}");
}

/// A device with memory of its own, whose networks are best in another precision.
#[derive(Debug)]
struct Card;

impl Backend for Card {
    fn describe(&self) -> String {
        "a card".to_owned()
    }

    fn default_dtype(&self) -> DType {
        DType::BF16
    }

    fn free_memory(&self) -> Result<Option<usize>, RunError> {
        Ok(Some(5_000))
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        Plain::default().plan(graph, budget)
    }
}

#[test]
fn a_model_takes_the_devices_own_precision_and_memory() {
    let case = Case::new();
    let on =
        |backend: Arc<dyn Backend>, options| ImageToVideo::on(backend, case.model.clone(), options).unwrap();
    let card = on(Arc::new(Card), LoadOptions::default());
    assert_eq!(card.precision(), Precision::BF16);
    let limit = MemoryLimit { bytes: 5_000, source: LimitSource::Gpu };
    assert_eq!(card.memory_limit(), Some(limit));
    let error = case.make(&card, None).unwrap_err();
    assert!(matches!(error, GenerateError::OverBudget { .. }), "{error}");
    assert!(error.to_string().contains("only 5.00 kB may be used"), "{error}");
    // What the machine holds beside the networks does not count there.
    assert_eq!(card.estimate(&case.settings).unwrap().working_bytes, 0);
    let asked = on(Arc::new(Card), LoadOptions::default().precision(Precision::F32).memory_budget(1 << 30));
    assert_eq!(
        (asked.precision(), asked.memory_limit().map(|limit| limit.bytes)),
        (Precision::F32, Some(1 << 30))
    );

    let plain = on(Arc::new(Plain::default()), LoadOptions::default());
    assert_eq!(plain.precision(), Precision::F32);
    assert!(plain.estimate(&case.settings).unwrap().working_bytes > 0);
    let available = plain.memory_limit().map(|limit| limit.source);
    assert!(cfg!(not(target_os = "linux")) || available.is_some_and(|source| source != LimitSource::Gpu));
}

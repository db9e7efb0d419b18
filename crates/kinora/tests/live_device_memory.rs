//! Live video on a device whose memory runs out: a change that finds none is left out, and the stream goes on.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use kinora::{
    Live, LiveModel, LiveSettings, LoadOptions, ModelFolder, RgbImage,
    image_to_video::{GenerateError, MemoryBudget},
    live::Stream,
    runtime::{
        Backend, Carried, DeviceError, DeviceErrorKind, LoadContext, Network, NetworkMemory, PlannedNetwork,
        RunError, StepLoop, StepObserver, Tensors,
    },
};
use kinora_cpu::CpuBackend;
use kinora_graph::{Graph, Parameters, plan::Plan};
use kinora_models::synthetic::SyntheticImageModel;
use tempfile::TempDir;

/// A device with so much memory, whose networks run on the CPU.
#[derive(Clone, Debug)]
struct Card {
    total: Arc<AtomicUsize>,
    used: Arc<AtomicUsize>,
    /// Whether no row of frames finds memory for what frames hand on.
    refuses_frames: Arc<AtomicBool>,
}

#[derive(Debug, thiserror::Error)]
#[error("the card cannot allocate {need} bytes: {free} are free")]
struct Full {
    need: usize,
    free: usize,
}

impl Card {
    fn new(total: usize) -> Card {
        Card { total: Arc::new(total.into()), used: Arc::default(), refuses_frames: Arc::default() }
    }

    fn full(&self, need: usize) -> RunError {
        let free = self.total.load(SeqCst).saturating_sub(self.used.load(SeqCst));
        DeviceError::new(DeviceErrorKind::OutOfMemory, Full { need, free }).into()
    }
}

impl Backend for Card {
    fn describe(&self) -> String {
        "a card".to_owned()
    }

    fn plan(&self, graph: &Graph, budget: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        Ok(Box::new(PlannedOnCard {
            planned: CpuBackend::default().plan(graph, budget)?,
            card: self.clone(),
        }))
    }
}

#[derive(Debug)]
struct PlannedOnCard {
    planned: Box<dyn PlannedNetwork>,
    card: Card,
}

impl PlannedNetwork for PlannedOnCard {
    fn graph(&self) -> &Graph {
        self.planned.graph()
    }

    fn plan(&self) -> &Plan {
        self.planned.plan()
    }

    fn load(
        &self,
        parameters: &dyn Parameters,
        context: &LoadContext<'_>,
    ) -> Result<Box<dyn Network>, RunError> {
        let network = self.planned.load(parameters, context)?;
        let memory = network.memory();
        let need = memory.weights + memory.activations;
        if self.card.used.fetch_add(need, SeqCst) + need > self.card.total.load(SeqCst) {
            self.card.used.fetch_sub(need, SeqCst);
            return Err(self.card.full(need));
        }
        Ok(Box::new(OnCard { network, need, card: self.card.clone() }))
    }
}

#[derive(Debug)]
struct OnCard {
    network: Box<dyn Network>,
    need: usize,
    card: Card,
}

impl Drop for OnCard {
    fn drop(&mut self) {
        self.card.used.fetch_sub(self.need, SeqCst);
    }
}

impl Network for OnCard {
    fn memory(&self) -> NetworkMemory {
        self.network.memory()
    }

    fn run_clip(&mut self, inputs: &Tensors) -> Result<(), RunError> {
        self.network.run_clip(inputs)
    }

    fn run_step(&mut self, inputs: &Tensors) -> Result<Tensors, RunError> {
        self.network.run_step(inputs)
    }

    fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, RunError> {
        self.network.run_steps(steps, inputs, observer)
    }

    fn begin_frames(&mut self, carried: Carried<'_>, first: &Tensors) -> Result<(), RunError> {
        if self.card.refuses_frames.load(SeqCst) {
            return Err(self.card.full(7));
        }
        self.network.begin_frames(carried, first)
    }

    fn run_frame(&mut self, inputs: &Tensors, results: &mut Tensors) -> Result<(), RunError> {
        self.network.run_frame(inputs, results)
    }

    fn handed_on(&mut self) -> Result<Tensors, RunError> {
        self.network.handed_on()
    }

    fn time_step(&mut self, inputs: &Tensors) -> Result<f64, RunError> {
        self.network.time_step(inputs)
    }
}

/// A small model, and the settings that a stream begins with.
struct Case {
    folder: TempDir,
    first: LiveSettings,
}

impl Case {
    fn new() -> Case {
        let folder = tempfile::tempdir().unwrap();
        SyntheticImageModel::preset("live").unwrap().write(folder.path()).unwrap();
        let live = Live::on(Arc::new(Card::new(0)), model(folder.path()), LoadOptions::default()).unwrap();
        Case { first: live.settings().prompt("a harbour").seed(7), folder }
    }

    /// A stream on a card. The limit is not what memory runs out by.
    fn begin(&self, card: &Card) -> Result<Stream, GenerateError> {
        let options = LoadOptions::default().memory_budget(MemoryBudget::Bytes(1 << 40));
        Live::on(Arc::new(card.clone()), model(self.folder.path()), options)?.begin(self.first.clone())
    }

    fn picture(&self) -> RgbImage {
        let bytes = (0..self.first.width * self.first.height * 3).map(|at| (at * 31 % 251) as u8).collect();
        RgbImage::new(self.first.width, self.first.height, bytes).unwrap()
    }

    /// What a stream takes that has been through changes, in bytes.
    fn need(&self, changes: &[&LiveSettings]) -> usize {
        let card = Card::new(usize::MAX);
        let mut stream = self.begin(&card).unwrap();
        for change in changes {
            stream.change((*change).clone()).unwrap();
            stream.settle().unwrap();
        }
        card.used.load(SeqCst)
    }
}

fn model(folder: &std::path::Path) -> LiveModel {
    LiveModel::new(ModelFolder::open(folder).unwrap())
}

/// The sentence of a change that found no memory.
fn said(error: GenerateError) -> String {
    let GenerateError::Change(source) = &error else { panic!("{error}") };
    assert!(matches!(**source, GenerateError::OutOfMemory { .. }), "{source}");
    error.to_string()
}

#[test]
fn a_change_that_finds_no_memory_is_left_out() {
    let case = Case::new();
    let card = Card::new(case.need(&[]));
    let mut stream = case.begin(&card).unwrap();
    let picture = case.picture();
    let before = stream.frame(&picture).unwrap();
    for change in [
        case.first.clone().width(case.first.width * 2),
        case.first.clone().steps(3),
        case.first.clone().prompt("snow").steps(2),
    ] {
        stream.change(change.clone()).unwrap();
        let text = said(stream.settle().unwrap_err());
        assert!(text.starts_with("a change is left out: live network: the card cannot allocate "), "{text}");
        assert!(text.ends_with(" bytes: 0 are free"), "{text}");
        assert_eq!(stream.frame(&picture).unwrap(), before);
        // The same, found by a frame.
        stream.change(change).unwrap();
        let error = loop {
            match stream.frame(&picture) {
                Ok(drawn) => assert_eq!(drawn, before),
                Err(error) => break error,
            }
        };
        said(error);
        assert_eq!((stream.frame(&picture).unwrap(), stream.settings()), (before.clone(), &case.first));
    }
    // What needs no memory takes effect.
    stream.change(case.first.clone().prompt("snow")).unwrap();
    stream.settle().unwrap();
    assert_ne!(stream.frame(&picture).unwrap(), before);
}

#[test]
fn what_frames_hand_on_is_allocated_while_a_change_is_made_ready() {
    let case = Case::new();
    let card = Card::new(usize::MAX);
    let mut stream = case.begin(&card).unwrap();
    let before = stream.frame(&case.picture()).unwrap();
    card.refuses_frames.store(true, SeqCst);
    stream.change(case.first.clone().blend(0.5)).unwrap();
    said(stream.settle().unwrap_err());
    assert_eq!(stream.frame(&case.picture()).unwrap(), before);
}

#[test]
fn an_idle_network_makes_room_for_another() {
    let case = Case::new();
    let (wide, tall) =
        (case.first.clone().width(case.first.width * 2), case.first.clone().height(case.first.height * 2));
    let card = Card::new(case.need(&[&wide, &tall]) - 1);
    let mut stream = case.begin(&card).unwrap();
    for change in [&wide, &tall, &case.first, &wide] {
        stream.change(change.clone()).unwrap();
        stream.settle().unwrap();
        assert_eq!(stream.settings(), change);
        stream.frame(&case.picture()).unwrap();
    }
}

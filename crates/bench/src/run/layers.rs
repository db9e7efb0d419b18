//! The cases of a suite: who runs each, and in which size.

use std::cell::RefCell;

use kinora::Device;
use kinora_graph::{DType, Phase};
use kinora_profile::Ceilings;
use kinora_runtime::Backend;
use serde_json::Value;

use super::{
    Ended, Size, Suite,
    clips::{self, ClipLayer},
    device::{BenchDevice, LayerBench},
    networks::NetworkLayer,
    plan,
    streams::StreamLayer,
    suite::{Event, Observer, Options, family, tell},
    turns::{Contestant, Layer, Subject, measure},
};
use crate::{
    BenchError,
    cases::{
        self, Case, LiveNetworks, Network, Numbers, STREAM, TWO_STEPS, bar, bytes, inputs_by_name, is_case,
        network_bytes, stages,
    },
    peers::{Hello, LIVE_NETWORKS, Program, SVD_NETWORKS, TORCH_LAYERS, TorchPeer, Variant},
    results::KINORA,
    targets::{BASELINE, KERNEL_SETS, TARGETS, TargetCase, UNET},
};

/// Rounding adds up over the layers of a network, and over the steps of a clip: the factors of a layer's bar.
const NETWORK_BAR: f64 = 5.0;
const CLIP_BAR: f64 = 100.0;
/// What the factors give at most: a clip that is further off is another clip, in any precision.
const MOST_BAR: f64 = 0.05;

/// A second step amplifies the rounding of the first: the factor of a network's bar. PyTorch's own f32 is 8e-6 from its f64 after
/// one step of the small network, and 1.1e-4 after two.
const TWO_STEPS_BAR: f64 = 4.0;
/// Bytes differ by one where a number is next to a half; that is four thousandths of the largest.
const BYTES_BAR: f64 = 0.01;
/// A percentile needs more runs than a median: so many times those of a layer.
const STREAM_RUNS: usize = 5;

/// A suite that is being run.
pub struct SuiteRun<'a> {
    pub options: &'a Options,
    pub suite: Suite,
    pub device: &'a dyn BenchDevice,
    pub backend: &'a dyn Backend,
    pub dtype: DType,
    pub ceilings: Option<Ceilings>,
}

/// A case that is ready to be measured.
struct Prepared<'a> {
    subject: Subject,
    contestants: Vec<Contestant<'a>>,
    /// Why the peer stopped, if it did.
    stopped: Option<BenchError>,
}

impl SuiteRun<'_> {
    /// Runs the chosen cases; gives the peer's versions, if there was one.
    pub fn cases(&self, observer: &mut Observer<'_>) -> Result<Option<Value>, Ended> {
        match self.suite {
            Suite::Cpu => self.layers(cases::cpu()?, observer),
            Suite::Kernels if self.on_gpu() => self.layers(cases::kernels()?, observer),
            Suite::Kernels => self.layers(cases::reduced_kernels()?, observer),
            Suite::Targets => self.targets(observer),
            Suite::Svd | Suite::Vae | Suite::Pipeline | Suite::Live => {
                let program = if self.suite == Suite::Live { &LIVE_NETWORKS } else { &SVD_NETWORKS };
                let mut stages = stages(self.suite).to_vec();
                stages.retain(|stage| self.options.only.chooses(stage));
                self.each(program, &stages, |stage| stage, observer, |stage, peer| self.stage(stage, peer))
            }
        }
    }

    fn layers(&self, mut cases: Vec<Case>, observer: &mut Observer<'_>) -> Result<Option<Value>, Ended> {
        cases.retain(|case| self.options.only.chooses(&case.name));
        self.measured_layers(&cases, observer)
    }

    fn measured_layers(&self, cases: &[Case], observer: &mut Observer<'_>) -> Result<Option<Value>, Ended> {
        let bench = self.device.layers()?;
        self.each(
            &TORCH_LAYERS,
            cases,
            |case| case.name.as_str(),
            observer,
            |case, peer| self.layer(case, &*bench, peer),
        )
    }

    /// The cases of the promised figures: layers, a step of a clip's UNet, and a small one with either set of kernels.
    fn targets(&self, observer: &mut Observer<'_>) -> Result<Option<Value>, Ended> {
        let table = if self.on_gpu() { cases::kernels()? } else { cases::kernels_for_cpu()? };
        let (mut layers, mut networks, mut kernel_sets) = (Vec::new(), Vec::new(), false);
        for target in TARGETS.iter().filter(|target| self.options.only.chooses(target.case.name())) {
            match target.case {
                TargetCase::Layer(name) => {
                    layers.extend(table.iter().filter(|case| is_case(&case.name, name)).cloned());
                }
                TargetCase::Unet => networks.push(UNET),
                TargetCase::KernelSets => kernel_sets = true,
            }
        }
        let mut peer = None;
        if !layers.is_empty() {
            peer = self.measured_layers(&layers, observer)?;
        }
        if !networks.is_empty() {
            let steps = self.each(
                &SVD_NETWORKS,
                &networks,
                |stage| stage,
                observer,
                |stage, peer| self.stage(stage, peer),
            );
            peer = steps?.or(peer);
        }
        if kernel_sets && let Some(baseline) = self.device.baseline()? {
            let (suite, name) = (self.suite, KERNEL_SETS);
            tell(observer, &Event::Case { suite, name, done: 0, total: 1 })?;
            let (subject, contestants) =
                self.kernel_sets(&*baseline).map_err(|error| BenchError::in_case(name, error))?;
            let result = measure(&subject, contestants, &self.options.method, self.ceilings.as_ref());
            tell(observer, &Event::Done(&result))?;
        }
        Ok(peer)
    }

    /// A step of a small UNet with our fused kernels, and with the baseline's. The full one does not fit some GPUs twice.
    fn kernel_sets(&self, baseline: &dyn Backend) -> Result<(Subject, Vec<Contestant<'static>>), BenchError> {
        let network = Network::new(UNET, self.options.size.unwrap_or(Size::Small), self.dtype)?;
        let subject = Subject {
            name: KERNEL_SETS.to_owned(),
            family: family(self.suite, UNET).to_owned(),
            flops: network.graph.step_flops(),
            bytes: network.bytes(),
            bar: NETWORK_BAR * bar(self.dtype),
            least: 1,
        };
        let layer = |backend: &dyn Backend| {
            let (clip, step) = (network.inputs(Phase::Clip)?, network.inputs(Phase::Step)?);
            NetworkLayer::new(&network.graph, &clip, step, backend)
        };
        let baseline = Contestant { by: BASELINE.to_owned(), ..ours(layer(baseline)) };
        Ok((subject, vec![ours(layer(self.backend)), baseline]))
    }

    /// Prepares and measures one case after the other, beside a peer that is started again if it stops.
    fn each<T>(
        &self,
        program: &Program,
        cases: &[T],
        name: impl Fn(&T) -> &str,
        observer: &mut Observer<'_>,
        prepare: impl for<'p> Fn(&T, Option<&'p RefCell<TorchPeer>>) -> Result<Prepared<'p>, BenchError>,
    ) -> Result<Option<Value>, Ended> {
        let mut peer = self.start_peer(program, observer)?;
        for (done, case) in cases.iter().enumerate() {
            let (suite, name, total) = (self.suite, name(case), cases.len());
            tell(observer, &Event::Case { suite, name, done, total })?;
            let Prepared { subject, contestants, stopped } =
                prepare(case, peer.as_ref()).map_err(|error| BenchError::in_case(name, error))?;
            let result = measure(&subject, contestants, &self.options.method, self.ceilings.as_ref());
            tell(observer, &Event::Done(&result))?;
            if let Some(why) = stopped {
                tell(observer, &Event::Note(&format!("{name}: {}; starting it again", why.with_causes())))?;
                peer = self.start_peer(program, observer)?;
            }
        }
        Ok(peer.map(|peer| peer.into_inner().versions().clone()))
    }

    /// Starts PyTorch, if it is asked for. If it does not start, a note says so, and the suite runs without it.
    fn start_peer(
        &self,
        program: &Program,
        observer: &mut Observer<'_>,
    ) -> Result<Option<RefCell<TorchPeer>>, Ended> {
        let Some(python) = &self.options.python else { return Ok(None) };
        let hello = Hello {
            threads: rayon::current_num_threads(),
            device: self.device.device().to_string(),
            precision: self.dtype.to_string(),
            compile: self.options.compile,
        };
        match TorchPeer::start(python, program, &hello) {
            Ok(peer) => Ok(Some(RefCell::new(peer))),
            Err(why) => {
                tell(observer, &Event::Note(&format!("no peers: {}", why.with_causes())))?;
                Ok(None)
            }
        }
    }

    fn on_gpu(&self) -> bool {
        self.device.device() != Device::Cpu
    }

    fn layer<'p>(
        &self,
        case: &Case,
        bench: &dyn LayerBench,
        peer: Option<&'p RefCell<TorchPeer>>,
    ) -> Result<Prepared<'p>, BenchError> {
        let graph = case.work.graph(&case.name, self.dtype)?;
        let numbers = Numbers::of(&graph)?;
        let subject = Subject {
            name: case.name.clone(),
            family: case.work.family().to_owned(),
            flops: graph.step_flops(),
            bytes: bytes(&graph),
            bar: bar(self.dtype),
            least: self.options.method.runs,
        };
        let copies = bench.copies(subject.bytes, self.options.method.copies);
        let contestants = bench.contestants(&graph, &numbers, copies, self.options.all_kernels)?;
        Ok(with_peer(subject, contestants, peer, |peer| peer.prepare(&case.work, &numbers, copies)))
    }

    fn stage<'p>(
        &self,
        stage: &'static str,
        peer: Option<&'p RefCell<TorchPeer>>,
    ) -> Result<Prepared<'p>, BenchError> {
        let size = plan::size(self.options, self.suite, self.on_gpu());
        let mut subject = Subject {
            name: stage.to_owned(),
            family: family(self.suite, stage).to_owned(),
            flops: 0,
            bytes: 0,
            bar: NETWORK_BAR * bar(self.dtype),
            least: 1,
        };
        if self.suite == Suite::Pipeline {
            let preset = clips::preset(size);
            let clip = ClipLayer::new(&preset, self.device.device(), self.dtype);
            subject.flops = clip.as_ref().map_or(Ok(0), ClipLayer::flops)?;
            subject.bar = (CLIP_BAR * bar(self.dtype)).min(MOST_BAR);
            return Ok(with_peer(subject, vec![ours(clip)], peer, |peer| peer.prepare_stage(stage, &preset)));
        }
        if self.suite == Suite::Live {
            return self.live(stage, size, subject, peer);
        }
        if self.suite == Suite::Targets && size != Size::Full {
            subject.name = format!("{stage}, {size}");
        }
        let network = Network::new(stage, size, self.dtype)?;
        subject.flops = network.graph.step_flops();
        subject.bytes = network.bytes();
        let (clip, step) = (network.inputs(Phase::Clip)?, network.inputs(Phase::Step)?);
        let contestants = vec![ours(NetworkLayer::new(&network.graph, &clip, step, self.backend))];
        Ok(with_peer(subject, contestants, peer, |peer| peer.prepare_stage(stage, &size.preset())))
    }

    fn live<'p>(
        &self,
        case: &'static str,
        size: Size,
        mut subject: Subject,
        peer: Option<&'p RefCell<TorchPeer>>,
    ) -> Result<Prepared<'p>, BenchError> {
        let preset = size.image_preset();
        let graph = LiveNetworks::new(&preset, self.dtype)?.graph(case)?;
        subject.flops = graph.step_flops();
        subject.bytes = network_bytes(&graph);
        let clip = inputs_by_name(&graph, Phase::Clip)?;
        let step = inputs_by_name(&graph, Phase::Step)?;
        if case == TWO_STEPS {
            subject.bar = (TWO_STEPS_BAR * subject.bar).min(MOST_BAR);
        }
        let contestants = if case == STREAM {
            (subject.bar, subject.least) = (BYTES_BAR, self.options.method.runs.saturating_mul(STREAM_RUNS));
            vec![ours(StreamLayer::new(&graph, &clip, step, self.backend))]
        } else {
            vec![ours(NetworkLayer::new(&graph, &clip, step, self.backend))]
        };
        Ok(with_peer(subject, contestants, peer, |peer| peer.prepare_stage(case, &preset)))
    }
}

pub(super) fn ours(layer: Result<impl Layer + 'static, BenchError>) -> Contestant<'static> {
    match layer {
        Ok(layer) => Contestant { by: KINORA.to_owned(), kernel: None, layer: Ok(Box::new(layer)) },
        Err(error) => failed(error),
    }
}

pub(super) fn failed(error: BenchError) -> Contestant<'static> {
    Contestant { by: KINORA.to_owned(), kernel: None, layer: Err(error) }
}

/// Adds the peer's ways to run a case, if there is a peer and it does not stop.
fn with_peer<'p>(
    subject: Subject,
    ours: Vec<Contestant<'p>>,
    peer: Option<&'p RefCell<TorchPeer>>,
    prepare: impl FnOnce(&mut TorchPeer) -> Result<Vec<Variant>, BenchError>,
) -> Prepared<'p> {
    let mut prepared = Prepared { subject, contestants: ours, stopped: None };
    let Some(peer) = peer else { return prepared };
    let variants = prepare(&mut peer.borrow_mut());
    match variants {
        Ok(variants) => prepared.contestants.extend(variants.into_iter().map(|variant| Contestant {
            by: format!("PyTorch {}", variant.name),
            kernel: None,
            layer: Ok(Box::new(PeerLayer { peer, variant }) as Box<dyn Layer>),
        })),
        Err(why) => prepared.stopped = Some(why),
    }
    prepared
}

/// One of the ways in which PyTorch runs the case that it has prepared.
struct PeerLayer<'a> {
    peer: &'a RefCell<TorchPeer>,
    variant: Variant,
}

impl Layer for PeerLayer<'_> {
    fn result(&mut self) -> Result<Vec<f32>, BenchError> {
        self.variant.result()
    }

    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError> {
        self.peer.borrow_mut().time(self.variant.number, seconds, least)
    }
}

//! The cases of a suite: who runs each, and in which size.

use std::cell::RefCell;

use kinora_cuda::driver::Device;
use kinora_graph::DType;
use kinora_profile::Ceilings;
use serde_json::Value;

use super::{
    BenchError, Ended, Suite,
    cpu::CpuLayer,
    gpu::{Broken, GpuBench},
    networks::NetworkLayer,
    plan,
    suite::{Event, Observer, Options, chosen, tell},
    turns::{Contestant, Layer, Subject, measure},
};
use crate::{
    cases::{self, Case, Network, Numbers, bar, bytes, stages},
    peers::{Hello, SVD_NETWORKS, Script, TORCH_LAYERS, TorchPeer, Variant},
    results::{CaseResults, KINORA},
};

/// What the copies of a layer's operands should take together on a CPU: more than the caches of most.
const FOOTPRINT: u64 = 64 << 20;
/// Rounding adds up over the layers of a network.
const NETWORK_BAR: f64 = 5.0;

/// A suite that is being run.
pub struct SuiteRun<'a> {
    pub options: &'a Options,
    pub suite: Suite,
    /// The GPU that computes, or the processor does.
    pub gpu: Option<&'a Device>,
    pub dtype: DType,
    pub ceilings: Option<Ceilings>,
}

impl SuiteRun<'_> {
    /// Runs the cases that are chosen, and tells of each that is done; gives the peer's versions, where there was one.
    pub fn cases(&self, observer: &mut Observer<'_>) -> Result<Option<Value>, Ended> {
        match self.suite {
            Suite::Cpu => self.layers(cases::cpu(), observer),
            Suite::Kernels if self.gpu.is_some() => self.layers(cases::kernels(), observer),
            Suite::Kernels => self.layers(cases::reduced_kernels(), observer),
            Suite::Svd | Suite::Vae => self.networks(observer),
        }
    }

    fn layers(
        &self,
        cases: Result<Vec<Case>, String>,
        observer: &mut Observer<'_>,
    ) -> Result<Option<Value>, Ended> {
        let mut cases = cases.map_err(BenchError::Case)?;
        cases.retain(|case| chosen(&self.options.only, &case.name));
        let bench = self.gpu.map(GpuBench::new).transpose()?;
        let mut peer = self.start_peer(&[TORCH_LAYERS], observer)?;
        for (done, case) in cases.iter().enumerate() {
            let (suite, name, total) = (self.suite, case.name.as_str(), cases.len());
            tell(observer, &Event::Case { suite, name, done, total })?;
            let (result, stopped) = self.layer(case, bench.as_ref(), peer.as_ref())?;
            tell(observer, &Event::Done(&result))?;
            if let Some(why) = stopped {
                tell(observer, &Event::Note(&format!("{name}: {why}; it is started again")))?;
                peer = self.start_peer(&[TORCH_LAYERS], observer)?;
            }
        }
        Ok(peer.map(|peer| peer.into_inner().versions().clone()))
    }

    /// Starts PyTorch, where it is asked for. One that does not start is told of, and goes without.
    fn start_peer(
        &self,
        scripts: &[Script],
        observer: &mut Observer<'_>,
    ) -> Result<Option<RefCell<TorchPeer>>, Ended> {
        let Some(python) = &self.options.python else { return Ok(None) };
        let hello = Hello {
            threads: rayon::current_num_threads(),
            device: self.gpu.map_or("cpu".to_owned(), |device| format!("cuda:{}", device.info().ordinal)),
            precision: self.dtype.to_string(),
            compile: self.options.compile,
        };
        match TorchPeer::start(python, scripts, &hello) {
            Ok(peer) => Ok(Some(RefCell::new(peer))),
            Err(why) => {
                tell(observer, &Event::Note(&format!("no peers: {why}")))?;
                Ok(None)
            }
        }
    }

    /// Runs one layer; tells why the peer stopped, where it did.
    fn layer(
        &self,
        case: &Case,
        bench: Option<&GpuBench>,
        peer: Option<&RefCell<TorchPeer>>,
    ) -> Result<(CaseResults, Option<String>), BenchError> {
        let wrong = |error: &dyn std::fmt::Display| BenchError::Case(format!("{}: {error}", case.name));
        let graph = case.work.graph(&case.name, self.dtype).map_err(|error| wrong(&error))?;
        let numbers = Numbers::of(&graph).map_err(|error| wrong(&error))?;
        let subject = Subject {
            name: case.name.clone(),
            family: case.work.family().to_owned(),
            flops: graph.step_flops(),
            bytes: bytes(&graph),
            bar: bar(self.dtype),
            least: self.options.method.runs,
        };
        let copies = match bench {
            // A flush of the caches is surer there.
            Some(_) => 1,
            None => {
                let wanted = FOOTPRINT.div_ceil(subject.bytes.max(1)) as usize;
                wanted.clamp(1, self.options.method.copies.max(1))
            }
        };
        let mut contestants = match bench {
            Some(bench) => match bench.contestants(&graph, &numbers, self.options.all_kernels) {
                Ok(contestants) => contestants,
                // Nothing can be measured after that.
                Err(error) if error.is_context_lost() => return Err(error.into()),
                Err(error) => vec![ours(Broken(error.to_string()))],
            },
            None => vec![match CpuLayer::new(&graph, &numbers, copies) {
                Ok(layer) => ours(layer),
                Err(why) => ours(Broken(why)),
            }],
        };
        let mut stopped = None;
        if let Some(peer) = peer {
            let prepared = peer.borrow_mut().prepare(&case.work, &numbers, copies);
            match prepared {
                Ok(variants) => contestants.extend(theirs(peer, variants)),
                Err(why) => stopped = Some(why),
            }
        }
        let results = measure(&subject, contestants, &self.options.method, self.ceilings.as_ref());
        Ok((results, stopped))
    }

    fn networks(&self, observer: &mut Observer<'_>) -> Result<Option<Value>, Ended> {
        let size = plan::size(self.options, self.gpu.is_some());
        let all: Vec<&'static str> =
            stages(self.suite).iter().copied().filter(|stage| chosen(&self.options.only, stage)).collect();
        let mut peer = self.start_peer(&SVD_NETWORKS, observer)?;
        for (done, &stage) in all.iter().enumerate() {
            tell(observer, &Event::Case { suite: self.suite, name: stage, done, total: all.len() })?;
            let wrong = |error: &dyn std::fmt::Display| BenchError::Case(format!("{stage}: {error}"));
            let network = Network::new(stage, size, self.dtype).map_err(|error| wrong(&error))?;
            let subject = Subject {
                name: stage.to_owned(),
                family: "network".to_owned(),
                flops: network.graph.step_flops(),
                bytes: network.bytes(),
                bar: NETWORK_BAR * bar(self.dtype),
                least: 1,
            };
            let mut contestants = vec![match NetworkLayer::new(&network, self.gpu) {
                Ok(layer) => ours(layer),
                Err(why) => ours(Broken(why)),
            }];
            let mut stopped = None;
            if let Some(peer) = &peer {
                let prepared = peer.borrow_mut().prepare_network(stage, size);
                match prepared {
                    Ok(variants) => contestants.extend(theirs(peer, variants)),
                    Err(why) => stopped = Some(why),
                }
            }
            let result = measure(&subject, contestants, &self.options.method, self.ceilings.as_ref());
            tell(observer, &Event::Done(&result))?;
            if let Some(why) = stopped {
                tell(observer, &Event::Note(&format!("{stage}: {why}; it is started again")))?;
                peer = self.start_peer(&SVD_NETWORKS, observer)?;
            }
        }
        Ok(peer.map(|peer| peer.into_inner().versions().clone()))
    }
}

fn ours<'a>(layer: impl Layer + 'a) -> Contestant<'a> {
    Contestant { by: KINORA.to_owned(), kernel: None, layer: Box::new(layer) }
}

fn theirs<'a>(peer: &'a RefCell<TorchPeer>, variants: Vec<Variant>) -> impl Iterator<Item = Contestant<'a>> {
    variants.into_iter().map(move |variant| Contestant {
        by: format!("PyTorch {}", variant.name),
        kernel: None,
        layer: Box::new(PeerLayer { peer, variant }),
    })
}

/// One of the ways in which PyTorch runs the layer that it has ready.
struct PeerLayer<'a> {
    peer: &'a RefCell<TorchPeer>,
    variant: Variant,
}

impl Layer for PeerLayer<'_> {
    fn result(&mut self) -> Result<Vec<f32>, String> {
        self.variant.result.clone()
    }

    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, String> {
        self.peer.borrow_mut().time(self.variant.number, seconds, least)
    }
}

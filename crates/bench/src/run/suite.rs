//! Suites, one after the other.

use std::ops::ControlFlow;

use kinora::Device;
use kinora_cpu::simd::Isa;
use kinora_graph::DType;

use super::{
    Ended, Size, Suite,
    device::{BenchDevice, CpuDevice},
    layers, plan,
};
use crate::{
    BenchError, Filter,
    cases::{self, STREAM, stages},
    peers::Python,
    processor,
    results::{CaseResults, Clock, FORMAT, Method, Results, SuiteResults, Version, now},
    targets::{Means, TARGETS, Target},
};

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The suites.
    pub suites: Vec<Suite>,
    /// The cases, by name.
    pub only: Filter,
    /// What computes. The suite `cpu` always runs on the CPU.
    pub target: super::Target,
    /// The element type. Default: f16 on a GPU, f32 on the CPU.
    pub dtype: Option<DType>,
    /// The size of the networks. Default: full on a GPU, small on the CPU and for whole clips.
    pub size: Option<Size>,
    /// How often each case runs.
    pub method: Method,
    /// Whether every kernel that a GPU has for a layer is timed.
    pub all_kernels: bool,
    /// The Python that runs the peers; without it there are no peers.
    pub python: Option<Python>,
    /// Whether the peers compile as well.
    pub compile: bool,
    /// The version that is measured.
    pub version: Version,
}

/// What an observer learns during a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// A suite begins, or is not run. Its results have no cases yet.
    Suite(&'a SuiteResults),
    /// A case begins.
    Case {
        /// The suite.
        suite: Suite,
        /// The case.
        name: &'a str,
        /// Cases done so far.
        done: usize,
        /// Cases in all.
        total: usize,
    },
    /// A case is done.
    Done(&'a CaseResults),
    /// A suite is done.
    SuiteDone(&'a SuiteResults),
    /// Something unexpected, which the suite's results note as well.
    Note(&'a str),
}

/// Receives events, and may stop the run.
pub type Observer<'a> = dyn FnMut(&Event<'_>) -> ControlFlow<()> + 'a;

/// A case that can be run.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its suite.
    pub suite: Suite,
    /// Its name.
    pub name: String,
    /// The kind of op, or `network`, `pipeline` or `stream`.
    pub family: String,
}

/// The family of a stage.
pub(super) fn family(suite: Suite, stage: &str) -> &'static str {
    match suite {
        Suite::Pipeline => "pipeline",
        Suite::Live if stage == STREAM => "stream",
        _ => "network",
    }
}

/// The chosen cases of some suites.
///
/// # Errors
/// If a pattern matches no case.
pub fn list(suites: &[Suite], only: &Filter) -> Result<Vec<Listed>, BenchError> {
    let mut listed = Vec::new();
    for &suite in suites {
        let cases = match suite {
            Suite::Cpu => cases::cpu()?,
            Suite::Kernels => cases::kernels()?,
            Suite::Targets => {
                let case = |target: &Target| Listed {
                    suite,
                    name: target.case.name().to_owned(),
                    family: target.case.family().to_owned(),
                };
                listed.extend(TARGETS.iter().map(case));
                continue;
            }
            Suite::Svd | Suite::Vae | Suite::Pipeline | Suite::Live => {
                let network =
                    |&stage: &&str| Listed { suite, name: stage.into(), family: family(suite, stage).into() };
                listed.extend(stages(suite).iter().map(network));
                continue;
            }
        };
        let of_table =
            |case: cases::Case| Listed { suite, family: case.work.family().into(), name: case.name };
        listed.extend(cases.into_iter().map(of_table));
    }
    let patterns = only.unmatched(listed.iter().map(|case| case.name.as_str()));
    if !patterns.is_empty() {
        let suites: Vec<&str> = suites.iter().map(|suite| suite.name()).collect();
        return Err(BenchError::NoMatch { suites: suites.join(", "), patterns });
    }
    listed.retain(|case| only.chooses(&case.name));
    Ok(listed)
}

/// A run.
#[derive(Debug)]
pub struct Bench {
    options: Options,
    peer: Option<serde_json::Value>,
}

impl Bench {
    /// A run with these options.
    pub fn new(options: Options) -> Bench {
        Bench { options, peer: None }
    }

    /// Runs the chosen cases.
    ///
    /// # Errors
    /// If a pattern matches no case, or the observer stops the run. A case or a suite that fails is part of the results.
    pub fn run(mut self, observer: &mut Observer<'_>) -> Result<Results, BenchError> {
        let listed = list(&self.options.suites, &self.options.only)?;
        let mut suites = Vec::new();
        for suite in self.options.suites.clone() {
            if !listed.iter().any(|case| case.suite == suite) {
                continue;
            }
            let (results, stopped) = self.suite(suite, observer);
            suites.push(results);
            if stopped {
                return Err(BenchError::Stopped(Box::new(self.results(suites))));
            }
        }
        Ok(self.results(suites))
    }

    fn results(self, suites: Vec<SuiteResults>) -> Results {
        Results {
            format: FORMAT,
            kinora: self.options.version,
            date: now(),
            processor: processor(Isa::detect().name()),
            threads: rayon::current_num_threads(),
            gpu: self.options.target.device.gpu(),
            peer: self.peer,
            method: self.options.method,
            suites,
        }
    }

    /// Runs a suite; gives its results, also if it fails or is stopped, and whether it was stopped.
    fn suite(&mut self, suite: Suite, observer: &mut Observer<'_>) -> (SuiteResults, bool) {
        let options = &self.options;
        let device: &dyn BenchDevice =
            if suite == Suite::Cpu { &CpuDevice } else { &*self.options.target.device };
        let on_gpu = device.device() != Device::Cpu;
        let dtype = options.dtype.unwrap_or(if on_gpu { DType::F16 } else { DType::F32 });
        let mut results = SuiteResults {
            suite: suite.to_string(),
            device: device.name(),
            precision: dtype.to_string(),
            size: self.size(suite, on_gpu),
            not_run: None,
            failed: None,
            notes: Vec::new(),
            ceilings: None,
            clock: None,
            cases: Vec::new(),
            targets: Vec::new(),
        };
        if let (Suite::Kernels | Suite::Targets, Some(why)) = (suite, &options.target.no_gpu) {
            let instead = "--device cpu runs small layers of the same kinds on the CPU";
            results.not_run = Some(format!("{why}; {instead}"));
            (results.device, results.size) = ("no GPU".to_owned(), None);
            results.precision = options.dtype.unwrap_or(DType::F16).to_string();
        } else if (suite, options.size) == (Suite::Pipeline, Some(Size::Full)) {
            let why = "the full model is too large to be written for a benchmark; take --size small or tiny";
            results.not_run = Some(why.to_owned());
        }
        if results.not_run.is_some() {
            self.judge(suite, &mut results);
            let mut stopped = tell(observer, &Event::Suite(&results)).is_err();
            if !results.targets.is_empty() {
                stopped |= tell(observer, &Event::SuiteDone(&results)).is_err();
            }
            return (results, stopped);
        }
        let mut stopped = false;
        match self.fill(&mut results, suite, device, dtype, observer) {
            Ok(peer) => self.peer = peer.or(self.peer.take()),
            Err(Ended::Stopped) => {
                stopped = true;
                results.failed = Some("stopped before its end".to_owned());
            }
            Err(Ended::Failed(error)) => results.failed = Some(error.with_causes()),
        }
        self.judge(suite, &mut results);
        stopped |= tell(observer, &Event::SuiteDone(&results)).is_err();
        (results, stopped)
    }

    /// Judges the promised figures by what was measured.
    fn judge(&self, suite: Suite, results: &mut SuiteResults) {
        if suite == Suite::Targets {
            let on_gpu = self.options.target.device.device() != Device::Cpu;
            let chosen = TARGETS.iter().filter(|target| self.options.only.chooses(target.case.name()));
            let means = Means {
                gpu: on_gpu,
                cpu: !on_gpu && results.not_run.is_none(),
                peers: self.options.python.is_some(),
            };
            results.targets = chosen.map(|target| target.judge(&results.cases, means)).collect();
        }
    }

    /// Runs a suite between two measurements of the device's speed; gives the peer's versions, if there was one.
    fn fill(
        &self,
        results: &mut SuiteResults,
        suite: Suite,
        device: &dyn BenchDevice,
        dtype: DType,
        observer: &mut Observer<'_>,
    ) -> Result<Option<serde_json::Value>, Ended> {
        let backend = device.backend()?;
        results.ceilings = backend.ceilings(dtype)?;
        tell(observer, &Event::Suite(results))?;
        let run = layers::SuiteRun {
            options: &self.options,
            suite,
            device,
            backend: &*backend,
            dtype,
            ceilings: results.ceilings,
        };
        let peer = run.cases(&mut |event| {
            match event {
                Event::Note(text) => results.notes.push((*text).to_owned()),
                Event::Done(case) => results.cases.push((*case).clone()),
                Event::Suite(_) | Event::Case { .. } | Event::SuiteDone(_) => {}
            }
            observer(event)
        })?;
        if let Some(before) = results.ceilings {
            results.clock = Some(Clock { before: before.flops_per_second, after: device.arithmetic(dtype)? });
        }
        Ok(peer)
    }

    fn size(&self, suite: Suite, on_gpu: bool) -> Option<String> {
        match suite {
            Suite::Cpu => None,
            Suite::Kernels | Suite::Targets => (!on_gpu).then(|| "reduced".to_owned()),
            Suite::Svd | Suite::Vae | Suite::Pipeline | Suite::Live => {
                Some(plan::size(&self.options, suite, on_gpu).to_string())
            }
        }
    }
}

/// Passes an event to the observer.
pub(super) fn tell(observer: &mut Observer<'_>, event: &Event<'_>) -> Result<(), Ended> {
    match observer(event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Ended::Stopped),
    }
}

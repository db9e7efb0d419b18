//! Suites, one after the other.

use std::ops::ControlFlow;

use kinora_cpu::simd::Isa;
use kinora_cuda::{compiler::CompilerOptions, driver::Device, vendor::Libraries};
use kinora_graph::DType;
use kinora_profile::Ceilings;

use super::{BenchError, Ended, Size, Suite, layers, plan};
use crate::{
    cases::{self, stages},
    machine::driver,
    peers::Python,
    processor,
    results::{CaseResults, Clock, FORMAT, Gpu, Method, PROCESSOR, Results, SuiteResults, Version, now},
};

/// What computes.
#[derive(Clone, Debug)]
pub enum Target {
    /// The processor, because it was asked for.
    Cpu,
    /// A GPU.
    Gpu(Box<Device>),
    /// The processor, because there is no GPU, for this reason.
    NoGpu(String),
}

impl Target {
    /// The GPU, where it computes.
    pub fn gpu(&self) -> Option<&Device> {
        match self {
            Target::Gpu(device) => Some(device),
            Target::Cpu | Target::NoGpu(_) => None,
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The suites.
    pub suites: Vec<Suite>,
    /// Words of which a case's name must have one; all cases where there are none.
    pub only: Vec<String>,
    /// What computes; the suite `cpu` is the processor's always.
    pub target: Target,
    /// The element type; f16 on a GPU and f32 elsewhere, unless it is given.
    pub dtype: Option<DType>,
    /// The size of the networks; the full one on a GPU and a small one elsewhere, unless it is given.
    pub size: Option<Size>,
    /// How often everything is run.
    pub method: Method,
    /// Whether every kernel of a GPU is timed that there is for a layer.
    pub all_kernels: bool,
    /// Who runs the peers; none are run where there is none.
    pub python: Option<Python>,
    /// Whether the peers compile as well.
    pub compile: bool,
    /// What is measured.
    pub version: Version,
}

/// What there is to tell while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// A suite begins, or is not run. It has no cases yet.
    Suite(&'a SuiteResults),
    /// A case begins.
    Case {
        /// The suite.
        suite: Suite,
        /// The case.
        name: &'a str,
        /// Cases that are done.
        done: usize,
        /// Cases that there are.
        total: usize,
    },
    /// A case is done.
    Done(&'a CaseResults),
    /// A suite is done.
    SuiteDone(&'a SuiteResults),
    /// Something is not as it might be expected; it is in the suite's results too.
    Note(&'a str),
}

/// Is told of events, and may stop the run.
pub type Observer<'a> = dyn FnMut(&Event<'_>) -> ControlFlow<()> + 'a;

/// A case that can be run.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its suite.
    pub suite: Suite,
    /// Its name.
    pub name: String,
    /// What kind of op, or which network, it is.
    pub family: String,
}

/// The cases of some suites whose names have one of the words.
///
/// # Errors
/// Where the tables are wrong, or nothing is chosen.
pub fn list(suites: &[Suite], only: &[String]) -> Result<Vec<Listed>, BenchError> {
    let mut listed = Vec::new();
    for &suite in suites {
        let cases = match suite {
            Suite::Cpu => cases::cpu().map_err(BenchError::Case)?,
            Suite::Kernels => cases::kernels().map_err(BenchError::Case)?,
            Suite::Svd | Suite::Vae => {
                let network = |&stage: &&str| Listed { suite, name: stage.into(), family: "network".into() };
                listed.extend(stages(suite).iter().map(network));
                continue;
            }
        };
        let of_table =
            |case: cases::Case| Listed { suite, family: case.work.family().into(), name: case.name };
        listed.extend(cases.into_iter().map(of_table));
    }
    listed.retain(|case| chosen(only, &case.name));
    if listed.is_empty() {
        let names: Vec<&str> = suites.iter().map(|suite| suite.name()).collect();
        return Err(BenchError::NothingChosen { suites: names.join(", "), words: only.join(" or ") });
    }
    Ok(listed)
}

/// Whether a name has one of the words in it, or there are none.
pub(super) fn chosen(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|word| name.contains(word.as_str()))
}

/// A run.
#[derive(Debug)]
pub struct Bench {
    options: Options,
    peer: Option<serde_json::Value>,
}

impl Bench {
    /// Of what is asked for.
    pub fn new(options: Options) -> Bench {
        Bench { options, peer: None }
    }

    /// Runs everything, and tells of it.
    ///
    /// # Errors
    /// Where nothing is chosen, or the observer stops it. A case or a suite that fails is one of the results.
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
        let gpu = self.options.target.gpu().map(|device| {
            let info = device.info();
            Gpu {
                name: info.name.clone(),
                architecture: info.architecture().to_string(),
                driver: driver(&info.driver.to_string()),
                libraries: Libraries::of(device.context()).versions(),
            }
        });
        Results {
            format: FORMAT,
            kinora: self.options.version,
            date: now(),
            processor: processor(Isa::detect().name()),
            threads: rayon::current_num_threads(),
            gpu,
            peer: self.peer,
            method: self.options.method,
            suites,
        }
    }

    /// Runs a suite, and tells whether it was stopped. What it has measured by then is kept, however it ends.
    fn suite(&mut self, suite: Suite, observer: &mut Observer<'_>) -> (SuiteResults, bool) {
        let options = &self.options;
        let gpu = options.target.gpu().filter(|_| suite != Suite::Cpu);
        let dtype = options.dtype.unwrap_or(if gpu.is_some() { DType::F16 } else { DType::F32 });
        let mut results = SuiteResults {
            suite: suite.to_string(),
            device: gpu.map_or_else(|| PROCESSOR.to_owned(), |device| device.info().name.clone()),
            precision: dtype.to_string(),
            size: self.size(suite, gpu.is_some()),
            not_run: None,
            failed: None,
            notes: Vec::new(),
            ceilings: None,
            clock: None,
            cases: Vec::new(),
        };
        if let (Suite::Kernels, Target::NoGpu(why)) = (suite, &options.target) {
            let otherwise = "--device cpu runs small layers of the same kinds on the processor";
            results.not_run = Some(format!("{why}; {otherwise}"));
            (results.device, results.size) = ("no GPU".to_owned(), None);
            results.precision = options.dtype.unwrap_or(DType::F16).to_string();
            let stopped = tell(observer, &Event::Suite(&results)).is_err();
            return (results, stopped);
        }
        let mut stopped = false;
        match self.fill(&mut results, suite, gpu, dtype, observer) {
            Ok(peer) => self.peer = peer.or(self.peer.take()),
            Err(Ended::Stopped) => {
                stopped = true;
                results.failed = Some("stopped before its end".to_owned());
            }
            Err(Ended::Failed(error)) => results.failed = Some(error.to_string()),
        }
        stopped |= tell(observer, &Event::SuiteDone(&results)).is_err();
        (results, stopped)
    }

    /// Runs a suite between two looks at the device's speed; gives the peer's versions, where there was one.
    fn fill(
        &self,
        results: &mut SuiteResults,
        suite: Suite,
        gpu: Option<&Device>,
        dtype: DType,
        observer: &mut Observer<'_>,
    ) -> Result<Option<serde_json::Value>, Ended> {
        results.ceilings = ceilings(gpu, dtype)?;
        tell(observer, &Event::Suite(results))?;
        let run = layers::SuiteRun { options: &self.options, suite, gpu, dtype, ceilings: results.ceilings };
        let peer = run.cases(&mut |event| {
            match event {
                Event::Note(text) => results.notes.push((*text).to_owned()),
                Event::Done(case) => results.cases.push((*case).clone()),
                Event::Suite(_) | Event::Case { .. } | Event::SuiteDone(_) => {}
            }
            observer(event)
        })?;
        if let Some(before) = results.ceilings {
            results.clock = Some(Clock { before: before.flops_per_second, after: arithmetic(gpu, dtype)? });
        }
        Ok(peer)
    }

    fn size(&self, suite: Suite, on_gpu: bool) -> Option<String> {
        match suite {
            Suite::Cpu => None,
            Suite::Kernels => (!on_gpu).then(|| "reduced".to_owned()),
            Suite::Svd | Suite::Vae => Some(plan::size(&self.options, on_gpu).to_string()),
        }
    }
}

/// Tells of an event.
pub(super) fn tell(observer: &mut Observer<'_>, event: &Event<'_>) -> Result<(), Ended> {
    match observer(event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Ended::Stopped),
    }
}

fn ceilings(gpu: Option<&Device>, dtype: DType) -> Result<Option<Ceilings>, BenchError> {
    match gpu {
        Some(device) => {
            Ok(Some(kinora_cuda::ceilings::measure(device, CompilerOptions::from_environment(), dtype)?))
        }
        None => Ok(kinora_cpu::ceilings::measure(Isa::detect())),
    }
}

fn arithmetic(gpu: Option<&Device>, dtype: DType) -> Result<f64, BenchError> {
    match gpu {
        Some(device) => {
            Ok(kinora_cuda::ceilings::arithmetic(device, CompilerOptions::from_environment(), dtype)?)
        }
        None => Ok(kinora_cpu::ceilings::arithmetic(Isa::detect())),
    }
}

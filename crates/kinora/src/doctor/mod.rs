//! Checks of this machine: what Kinora finds on it, whether it computes correctly, and how fast it is.

mod cpu;
mod families;
#[cfg(feature = "cuda")]
mod gpu;
mod kernels;
mod pipeline;

use std::time::Instant;

use serde::Serialize;

use crate::device::Device;

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What was checked.
    pub name: String,
    /// Whether it works.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// How long the check took.
    pub seconds: f64,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It works.
    Good,
    /// It works, but could be better.
    Note,
    /// It does not work.
    Bad,
    /// There was nothing to check.
    NotRun,
}

/// What a check found.
struct Outcome {
    status: Status,
    found: String,
    advice: Option<String>,
}

impl Outcome {
    fn good(found: impl Into<String>) -> Outcome {
        Outcome { status: Status::Good, found: found.into(), advice: None }
    }

    fn note(found: impl Into<String>, advice: impl Into<String>) -> Outcome {
        Outcome { status: Status::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn bad(found: impl Into<String>, advice: impl Into<String>) -> Outcome {
        Outcome { status: Status::Bad, found: found.into(), advice: Some(advice.into()) }
    }

    fn not_run(found: impl Into<String>) -> Outcome {
        Outcome { status: Status::NotRun, found: found.into(), advice: None }
    }
}

/// What to do about a GPU that was asked for and cannot be used.
const CPU_INSTEAD: &str = "--device auto or --device cpu runs on the CPU";

/// Called with each finding as it is made.
pub type Observe<'a> = dyn FnMut(&Finding) + 'a;

/// Checks everything, each part after those it depends on. `device` is the one to check; GPUs are listed whichever it
/// is. A check that fails is not an error but a [finding](Status::Bad).
pub fn examine(device: Device, observe: &mut Observe<'_>) -> Vec<Finding> {
    let mut examination = Examination { findings: Vec::new(), observe };
    examination.look("CPU", cpu::cpu);
    examination.look("memory", cpu::memory);
    examination.look_at_gpus(device);
    let backend = kernels::backend(device);
    for family in families::FAMILIES {
        examination.look(family.name, || kernels::check(family, backend.as_deref()));
    }
    // What is wrong with the GPU was said already; to say it again of every check would only hide it.
    let unusable = backend.is_none() && examination.findings.iter().any(|found| found.status == Status::Bad);
    match pipeline::Demonstration::new() {
        Ok(_) if unusable => {
            for name in ["model", "clip", "profiler"] {
                examination.look(name, || Outcome::not_run(kernels::UNUSABLE));
            }
        }
        Ok(demonstration) => {
            examination.look("model", || demonstration.load(device));
            examination.look("clip", || demonstration.clip(device));
            examination.look("profiler", || demonstration.profile(device));
        }
        Err(problem) => examination.look("model", || {
            Outcome::bad(
                problem.to_string(),
                "free some space for temporary files, or set TMPDIR to another folder",
            )
        }),
    }
    examination.look("speed", || kernels::speed(backend.as_deref()));
    examination.findings
}

struct Examination<'a, 'o> {
    findings: Vec<Finding>,
    observe: &'a mut Observe<'o>,
}

impl Examination<'_, '_> {
    #[cfg(feature = "cuda")]
    fn look_at_gpus(&mut self, device: Device) {
        self.look("driver", || gpu::driver(device));
        self.look("GPU", || gpu::gpu(device));
        let target = gpu::open(device);
        self.look("compiler", || gpu::compiler(target.as_ref()));
        self.look("libraries", || gpu::libraries(target.as_ref()));
        self.look("tracing", || gpu::tracing(target.as_ref()));
        self.look("cache", gpu::cache);
    }

    #[cfg(not(feature = "cuda"))]
    fn look_at_gpus(&mut self, device: Device) {
        use crate::device::OpenDeviceError;
        self.look("GPU", || match device {
            Device::Cuda(_) => Outcome::bad(OpenDeviceError::NoCuda.to_string(), CPU_INSTEAD),
            Device::Auto | Device::Cpu => {
                Outcome::not_run("this build has no CUDA support; the CPU does the work")
            }
        });
    }

    fn look(&mut self, name: &str, look: impl FnOnce() -> Outcome) {
        let start = Instant::now();
        let Outcome { status, found, advice } = look();
        let seconds = start.elapsed().as_secs_f64();
        let finding = Finding { name: name.to_owned(), status, found, advice, seconds };
        (self.observe)(&finding);
        self.findings.push(finding);
    }
}

//! The report on a task: one structure, as JSON for programs and as text for people.

mod page;
mod side_by_side;
mod text;

pub use side_by_side::{Quantity, quantities, side_by_side};
pub(crate) use text::seconds;

use kinora_ptx::{Finding, Prediction};
use serde::Serialize;

use crate::{
    attempt::LaunchRecord,
    compile::Resources,
    feedback::Feedback,
    task::Sizes,
    verify::{Comparison, finite},
};

/// The version of the JSON. It grows when a field goes or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// What came of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every result is right, and nothing was found.
    Right,
    /// Nothing was found, but there is no reference to compare with.
    Unchecked,
    /// A result is wrong, or something was found.
    Wrong,
    /// It could not be run.
    NotRun,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The source does not compile, or there is no compiler.
    Compile,
    /// The code cannot be loaded, or a launch is refused.
    Launch,
    /// The device failed.
    Device,
    /// The reference failed.
    Reference,
    /// A file of an input does not fit.
    Input,
    /// The simulator found something.
    Finding,
    /// A result differs from the reference.
    Result,
    /// Elements of a result that the kernel never writes.
    Unwritten,
    /// An input that the kernel changes.
    InputChanged,
    /// Memory beside a buffer that the kernel writes to.
    Beyond,
    /// A result that is not the same in every run.
    NotDeterministic,
}

/// Something wrong, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What kind of thing.
    pub kind: ProblemKind,
    /// The sentence.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, message: impl std::fmt::Display) -> Problem {
        Problem { kind, message: message.to_string() }
    }
}

/// The whole report on a task.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The version of this form.
    pub schema: u32,
    /// The task's name.
    pub task: String,
    /// The kernel's source file.
    pub source: String,
    /// Whether it is right.
    pub verdict: Verdict,
    /// What keeps it from being run at all.
    pub problems: Vec<Problem>,
    /// Worth knowing, but not wrong.
    pub notes: Vec<String>,
    /// The compiler, such as `NVRTC 13.0`.
    pub compiler: Option<String>,
    /// What the compiler said, warnings above all.
    pub compiler_log: String,
    /// What the assembler says of the kernels.
    pub resources: Option<Resources>,
    /// The devices that it ran on, the simulated one first.
    pub devices: Vec<DeviceOutcome>,
    /// How long it takes, if that was asked for: predicted for a chip, or measured on a GPU.
    pub times: Vec<TimeOutcome>,
    /// How long PyTorch takes for the same on the GPU, if the reference is written for it.
    pub peers: Vec<PeerOutcome>,
    /// What the GPU's own counters say. Without it, those of the simulator are all there are.
    pub counted: Option<CountedOutcome>,
    /// Why the launch that takes longest takes as long as it does, and what to try, if that was asked for.
    pub feedback: Option<Feedback>,
    /// The kernel's source, by the name that it was compiled under.
    #[serde(skip)]
    pub code: Option<(String, String)>,
}

/// What a device showed.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceOutcome {
    /// The device.
    pub device: String,
    /// Whether it is simulated.
    pub simulated: bool,
    /// Each size.
    pub sizes: Vec<SizeOutcome>,
}

/// What one size showed.
#[derive(Clone, Debug, Serialize)]
pub struct SizeOutcome {
    /// The size.
    pub sizes: Sizes,
    /// Whether it is right.
    pub verdict: Verdict,
    /// What is wrong, in sentences.
    pub problems: Vec<Problem>,
    /// What the simulator found, in the order of the code.
    pub findings: Vec<Finding>,
    /// Each result beside the reference: the worst of all runs.
    pub results: Vec<ResultOutcome>,
    /// The launches, with what they cost.
    pub launches: Vec<LaunchRecord>,
    /// Whether two runs on the same inputs gave the same bits, if that was asked for.
    pub deterministic: Option<bool>,
}

/// A result beside the reference.
#[derive(Clone, Debug, Serialize)]
pub struct ResultOutcome {
    /// The buffer.
    pub name: String,
    /// What its elements are.
    pub element: &'static str,
    /// Its extents.
    pub shape: Vec<usize>,
    /// How it compares; none without a reference.
    pub comparison: Option<Comparison>,
}

/// How long a task takes.
#[derive(Clone, Debug, Serialize)]
pub struct TimeOutcome {
    /// The device or chip.
    pub device: String,
    /// Whether it is predicted rather than measured.
    pub predicted: bool,
    /// The size.
    pub sizes: Sizes,
    /// Seconds of all launches together: predicted, or the median of the measured ones.
    pub seconds: f64,
    /// The quickest and the slowest of the measured ones.
    pub range: Option<[f64; 2]>,
    /// How many were measured.
    pub samples: usize,
    /// Each launch of its own, if they are predicted.
    pub launches: Vec<LaunchTime>,
    /// Where it stands under the chip's limits.
    pub roofline: Option<Roofline>,
    /// Worth knowing.
    pub notes: Vec<String>,
}

/// A launch's predicted time.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchTime {
    /// The kernel.
    pub kernel: String,
    /// How often it is launched.
    pub launches: u64,
    /// The seconds of all its launches.
    pub seconds: f64,
    /// The prediction of the first one.
    pub prediction: Prediction,
}

/// How long PyTorch takes for the reference on the same GPU, timed in the same way.
#[derive(Clone, Debug, Serialize)]
pub struct PeerOutcome {
    /// PyTorch with its version, or `torch.compile`.
    pub name: String,
    /// The device.
    pub device: String,
    /// The median of its times.
    pub seconds: f64,
    /// The quickest and the slowest.
    pub range: [f64; 2],
    /// How many were measured.
    pub samples: usize,
    /// Its time over the kernel's: above 1 the kernel is faster.
    pub speedup: f64,
}

/// Counters of a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct CountedOutcome {
    /// What counted, such as `Nsight Compute`.
    pub by: String,
    /// The kernels in the order in which they were launched.
    pub kernels: Vec<CountedKernel>,
}

/// A kernel's counters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountedKernel {
    /// The kernel.
    pub kernel: String,
    /// Values by the names of Nsight Compute's metrics, in base units.
    pub metrics: std::collections::BTreeMap<String, f64>,
}

/// How a time compares with what the chip could do.
#[derive(Clone, Debug, Serialize)]
pub struct Roofline {
    /// Floating-point operations that the work needs at least.
    pub flops: Option<f64>,
    /// Bytes that it needs to move at least.
    pub bytes: Option<f64>,
    /// The quickest that the chip could do it.
    #[serde(serialize_with = "finite")]
    pub seconds: f64,
    /// What limits that: `memory` or `arithmetic`.
    pub limit: &'static str,
    /// That time over the kernel's: 1 is the limit.
    #[serde(serialize_with = "finite")]
    pub share: f64,
}

impl Outcome {
    /// The text for people. Colours are escape sequences, which a terminal obeys and others strip.
    pub fn text(&self) -> String {
        text::text(self)
    }

    /// It as one HTML page, with the source beside its counters.
    pub fn page(&self) -> String {
        page::of(self)
    }

    /// How many things are wrong. Findings of one kind at one line of the source are one thing.
    pub fn problems(&self) -> usize {
        let sizes = self.devices.iter().flat_map(|device| &device.sizes);
        let of_sizes = sizes.map(|size| text::apart(size).len()).sum::<usize>();
        self.problems.len() + of_sizes
    }
}

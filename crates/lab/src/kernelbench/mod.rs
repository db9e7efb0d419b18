//! KernelBench: its tasks, solutions in CUDA or Python, and whether they are right and faster than PyTorch.
//!
//! Each task runs in two Python processes that do not see each other's memory. One has the task and PyTorch's model, the other the
//! solution. [`Runner`] has inputs drawn in both from the same seeds, and what the solution returns compared with the model in f64.
//! The README says what a solution has to show.

mod error;
mod page;
mod plan;
mod process;
mod report;
mod run;
mod simulated;
mod solution;
mod task;
mod verdict;

pub use error::KernelBenchError;
pub use page::page;
pub use plan::{Argument, Buffer, Launch, Plan};
pub use process::described;
pub use report::{Against, Outcome, Report, Round, Summary, THRESHOLDS, TaskResult, Timing};
pub use run::{Baseline, Device, Options, Runner, writable};
pub use simulated::{Predicted, PredictedKernel, Simulated, compile, predict, simulate};
pub use solution::{Solution, solution, unpack};
pub use task::{Task, tasks};
pub use verdict::{Compared, Error, MAX_FACTOR, RMS_FACTOR, refusal};

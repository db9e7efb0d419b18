#![doc = include_str!("../README.md")]

mod attempt;
mod case;
pub mod compile;
mod element;
pub mod execute;
mod expression;
pub mod feedback;
pub mod inputs;
#[cfg(feature = "cuda")]
pub mod kernelbench;
mod process;
mod reference;
pub mod report;
mod run;
mod scaffold;
pub mod spmv;
mod task;
mod time;
pub mod tune;
mod verify;

pub use attempt::{Attempt, LaunchRecord, Manner, attempt};
pub use element::Element;
pub use expression::{Expression, ExpressionError, Scope};
pub use process::end_programs;
pub use reference::{Expected, ReferenceError, expected};
pub use report::{Outcome, Problem, ProblemKind, Verdict};
#[cfg(feature = "cuda")]
pub use run::launch_once;
pub use run::{GpuChoice, Observer, Options, Stage, results, run};
pub use scaffold::{ScaffoldError, kinds, scaffold};
pub use task::{
    Argument, Arrays, Buffer, LaunchPlan, MAX_BYTES, Place, RandomValues, Reference, Role, Sizes, Task,
    TaskError, Tolerance, Values, Work,
};
pub use verify::{Bound, Comparison, Worst, compare};

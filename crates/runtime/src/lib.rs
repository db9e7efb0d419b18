//! What every backend shares: the layer between the graph and the devices that run it.
//!
//! A [`Backend`] plans a graph, a [`PlannedNetwork`] loads its weights, a [`Network`] runs. A pipeline knows these
//! three traits and no device. What the implementations have in common is here too, so that they cannot disagree:
//! tensors by name and the checks on them ([`tensors`]), the loop of steps ([`StepLoop`], [`CachedSteps`]), frames in a row ([`HostFrames`]), the load phase ([`Loader`], [`load_in_parallel`]), a request to stop ([`Stop`]),
//! the work of a node as a profiler records it ([`work`](mod@work)), and the errors of a run ([`RunError`]).

mod backend;
mod error;
mod frames;
mod host;
mod kernel_choice;
mod loader;
mod parallel_loading;
mod shared_weights;
mod step_cache;
mod step_loop;
mod stop;
pub mod tensors;
mod tuning;
pub mod work;

pub use backend::{Backend, DeviceLoad, LoadContext, Network, NetworkMemory, PlannedNetwork};
pub use error::{DeviceError, DeviceErrorKind, RunError};
pub use frames::{Carried, HostFrames};
pub use host::HostOps;
pub use kernel_choice::{Candidates, KernelSet, Tuning, UnknownName};
pub use loader::Loader;
pub use parallel_loading::load_in_parallel;
pub use shared_weights::{SharedWeights, WeightSlot};
pub use step_cache::CachedSteps;
pub use step_loop::{StepLoop, StepObserver, StepResults};
pub use stop::Stop;
pub use tensors::Tensors;
pub use tuning::{TuningObserver, TuningProgress, TuningStage};

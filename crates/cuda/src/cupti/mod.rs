//! CUPTI, NVIDIA's tracing of what a GPU runs: when each kernel and each copy began and ended, by the device's own clock.
//!
//! It is loaded when a profile is taken and never otherwise. Without it a profile has the times between events, which say
//! what a layer took with the wait for its launch, and not what its kernels did within that time.

mod library;
mod records;
mod trace;

pub use library::Cupti;
pub(crate) use records::{CopyDirection, Operation, Record};
pub(crate) use trace::Trace;

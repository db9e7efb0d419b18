//! CUPTI, NVIDIA's tracing of what a GPU runs: when each kernel and each copy began and ended, by the device's own clock.
//!
//! It is loaded only when a profile is taken. Without it, a profile has the times between events, which include a
//! layer's wait for its launch and do not show what its kernels did within that time.

mod library;
mod records;
mod trace;

pub use library::Cupti;
pub(crate) use records::{CopyDirection, Operation, Record};
pub(crate) use trace::Trace;

//! How cases are timed.

mod clips;
mod cpu;
mod device;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;
mod layers;
mod networks;
mod plan;
mod streams;
mod suite;
mod turns;

pub use cpu::CpuLayer;
pub use device::{BenchDevice, LayerBench, Target};
pub use plan::{Size, Suite};
pub use suite::{Bench, Event, Listed, Observer, Options, list};
pub use turns::{Contestant, Layer, Subject, measure};

use crate::BenchError;

/// Why a suite ended early.
enum Ended {
    /// The observer stopped it.
    Stopped,
    Failed(BenchError),
}

impl<E: Into<BenchError>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Failed(error.into())
    }
}

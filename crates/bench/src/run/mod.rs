//! How cases are timed.

mod cpu;
mod gpu;
mod layers;
mod networks;
mod plan;
mod suite;
mod turns;

pub use cpu::CpuLayer;
pub use plan::{Size, Suite};
pub use suite::{Bench, Event, Listed, Observer, Options, Target, list};
pub use turns::{Contestant, Layer, Subject, measure};

/// Why a benchmark could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Nothing has one of the words in its name.
    #[error("no case of {suites} has {words} in its name")]
    NothingChosen {
        /// The suites.
        suites: String,
        /// The words.
        words: String,
    },
    /// The tables of cases, or a network.
    #[error("{0}")]
    Case(String),
    /// The peer.
    #[error("the peer: {0}")]
    Peer(String),
    /// The GPU.
    #[error(transparent)]
    Gpu(#[from] kinora_cuda::CudaError),
    /// Someone wanted it to end. What was measured by then is there.
    #[error("stopped")]
    Stopped(Box<crate::results::Results>),
}

/// Why a suite ended before its end.
enum Ended {
    /// The observer wanted it.
    Stopped,
    Failed(BenchError),
}

impl From<BenchError> for Ended {
    fn from(error: BenchError) -> Ended {
        Ended::Failed(error)
    }
}

impl From<kinora_cuda::CudaError> for Ended {
    fn from(error: kinora_cuda::CudaError) -> Ended {
        Ended::Failed(error.into())
    }
}

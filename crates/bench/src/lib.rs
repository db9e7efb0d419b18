//! Kinora's benchmarks.
//!
//! [`cases`] are the layers, networks and clips that are measured; [`run`] times them on a CPU or a GPU, in turns with
//! [`peers`] that compute the same from the same numbers; [`results`] are plain data, saved as JSON, compared with those of
//! another day and plotted; [`targets`] are the figures that were promised. The command `kinora bench` and the programs that `cargo bench` starts are made of these.

pub mod cases;
mod command_line;
mod distance;
mod error;
mod estimate;
mod filter;
mod machine;
pub mod peers;
pub mod results;
pub mod run;
pub mod targets;

pub use command_line::{CommandLine, exit_code, gpu_if_any};
pub use distance::Distance;
pub use error::BenchError;
pub use estimate::{Estimate, Ratio, median, percentile};
pub use filter::{Filter, Unmatched};
pub use machine::processor;
pub use peers::Peer;
pub use results::write_json;

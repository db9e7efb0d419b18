//! Kinora's benchmarks.
//!
//! [`cases`] are the layers and networks that are measured; [`run`] times them on a CPU or a GPU, in turns with
//! [`peers`] that compute the same from the same numbers; [`results`] are what it found, kept as JSON, compared with those of another
//! day and drawn. The command `kinora bench` and the programs that `cargo bench` starts are made of these.

pub mod cases;
mod command_line;
mod distance;
mod estimate;
mod machine;
pub mod peers;
pub mod results;
pub mod run;
mod times;

pub use command_line::{CommandLine, Filter, exit_code, gpu_if_any};
pub use distance::Distance;
pub use estimate::Estimate;
pub use machine::processor;
pub use peers::Peer;
pub use results::write_json;
pub use times::{Compared, Ratio, Times, summary};

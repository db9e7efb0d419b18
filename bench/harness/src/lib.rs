//! What benchmarks share: the command line, a Python peer's process, times and distances and how they are compared, and files
//! of results.

mod command_line;
mod distance;
mod machine;
mod peer;
mod report;
mod times;

pub use command_line::{CommandLine, Filter, exit_code};
pub use distance::Distance;
pub use machine::processor;
pub use peer::Peer;
pub use report::write_json;
pub use times::{Compared, Ratio, Times, summary};

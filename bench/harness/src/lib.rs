//! What benchmarks against a Python peer share: the peer's process, times, and how they are compared.

mod machine;
mod peer;
mod times;

pub use machine::processor;
pub use peer::Peer;
pub use times::{Compared, Ratio, Times, summary};

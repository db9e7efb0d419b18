//! What the integration tests share.

pub mod compare;
pub mod coverage;
pub mod golden;
pub mod random_graph;

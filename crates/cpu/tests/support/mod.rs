//! What the integration tests share. Each test uses a part of it.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

pub mod compare;
pub mod coverage;
pub mod executors;
pub mod golden;
pub mod random_graph;

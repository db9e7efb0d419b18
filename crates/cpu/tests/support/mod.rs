//! What the integration tests share. Each test uses a part of it.
#![allow(dead_code)]

pub mod compare;
pub mod coverage;
pub mod executors;
pub mod golden;
pub mod random_graph;

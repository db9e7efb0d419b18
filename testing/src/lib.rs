//! What the tests of the backends share. An op, a graph or a network is run by some [`Executor`](executor::Executor)
//! and compared with what PyTorch made of it ([`golden`]) or with the reference ([`edge_cases`], [`random_graph`]);
//! [`compare`] is the one way to compare, and [`ulps`] compares two machines that should compute the same. A backend
//! provides its executors and gets all tables of shapes, dtypes and edges.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]
#![allow(missing_docs, reason = "the fields of a case are named for what they hold")]

pub mod compare;
pub mod coverage;
pub mod edge_cases;
pub mod executor;
pub mod frames;
pub mod golden;
pub mod movement;
pub mod random_graph;
pub mod sharing;
pub mod step_cache;
pub mod ulps;

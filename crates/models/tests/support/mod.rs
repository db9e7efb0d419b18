//! What the tests of networks and of everything else with fixtures share.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

pub mod denoise;
pub mod fixtures;
pub mod frames;
pub mod networks;
pub mod pictures;

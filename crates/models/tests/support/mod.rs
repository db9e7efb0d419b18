//! What the tests of networks share.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod fixtures;

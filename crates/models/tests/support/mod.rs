//! What the integration tests share. Each test uses a part of it.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

pub mod networks;

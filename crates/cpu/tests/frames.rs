//! Frames in a row on the CPU.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use kinora_cpu::{Options, Program};
use kinora_testing::frames;

#[test]
fn frames_hand_on_what_the_next_one_reads() {
    let graph = frames::running_sum();
    let options = Options { poison: Some(0xFF), ..Options::default() };
    let mut program = Program::new(&graph, &std::collections::HashMap::new(), options).unwrap();
    frames::check(&mut program);
}

/// A request ends a frame, and the row goes on from the last that was finished.
#[test]
fn a_frame_that_is_stopped_hands_on_nothing() {
    let graph = frames::running_sum();
    let mut program = Program::new(&graph, &std::collections::HashMap::new(), Options::default()).unwrap();
    frames::check_stop(&mut program);
}

//! Live video on a GPU: frames whose state stays there, and programs that have weights in common.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod gpu;

use std::collections::HashMap;

use kinora_cuda::{CudaBackend, CudaOptions, Planned};
use kinora_runtime::{KernelSet, Tuning};
use kinora_testing::{frames, sharing};

#[test]
fn frames_hand_on_what_the_next_one_reads() {
    let Some(device) = gpu::open() else { return };
    let graph = frames::running_sum();
    let options =
        CudaOptions { poison: Some(0xFF), ..CudaOptions::for_device(&device, kinora_cpu::CpuOps::shared()) };
    let mut program = Planned::new(&graph, &options).unwrap().load(&device, &HashMap::new()).unwrap();
    frames::check(&mut program);
}

#[test]
fn programs_share_their_weights() {
    let Some(device) = gpu::open() else { return };
    let host = kinora_cpu::CpuOps::shared();
    let backend = CudaBackend::new(device, KernelSet::Fused, Tuning::Off, host).unwrap();
    sharing::check(&backend.poisoned(0xFF));
}

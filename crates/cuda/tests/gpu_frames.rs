//! Live video on a GPU: frames whose state stays there, and programs that have weights in common.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod gpu;

use std::collections::HashMap;

use kinora_cuda::{CudaBackend, CudaOptions, KernelPool, LoadOptions, Planned};
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

/// The second program of a pool loads no code, and computes the same after the first is gone.
#[test]
fn programs_share_their_kernels() {
    let Some(device) = gpu::open() else { return };
    let options =
        CudaOptions { poison: Some(0xFF), ..CudaOptions::for_device(&device, kinora_cpu::CpuOps::shared()) };
    let load = LoadOptions { kernels: KernelPool::default(), ..LoadOptions::default() };
    let planned = Planned::new(&frames::running_sum(), &options).unwrap();
    let mut first = planned.clone().load_with(&device, &HashMap::new(), &load).unwrap();
    frames::check(&mut first);
    let needed = first.compiled().compiled + first.compiled().cached + first.compiled().bundled;
    assert!(needed > 0 && first.compiled().loaded == 0);
    let mut second = planned.load_with(&device, &HashMap::new(), &load).unwrap();
    drop(first);
    frames::check(&mut second);
    let counted = second.compiled();
    assert_eq!([counted.compiled, counted.cached, counted.bundled, counted.loaded], [0, 0, 0, needed]);
}

/// A program whose code is unloaded does not disturb another that is loaded, or recorded, at the same time.
#[test]
fn code_is_unloaded_beside_programs_that_are_loaded() {
    let Some(device) = gpu::open() else { return };
    let options = CudaOptions::for_device(&device, kinora_cpu::CpuOps::shared());
    let planned = Planned::new(&frames::running_sum(), &options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    // Each has a pool of its own, which goes with it.
                    let load = LoadOptions::default();
                    frames::check(&mut planned.clone().load_with(&device, &HashMap::new(), &load).unwrap());
                }
            });
        }
    });
}

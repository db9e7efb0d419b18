//! Steps on a GPU that read what an earlier one kept, by two programs.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod gpu;

use kinora_cuda::CudaBackend;
use kinora_runtime::{KernelSet, Tuning};
use kinora_testing::step_cache;

#[test]
fn shallow_steps_read_what_a_whole_one_kept() {
    let Some(device) = gpu::open() else { return };
    let host = kinora_cpu::CpuOps::shared();
    let backend = CudaBackend::new(device, KernelSet::Fused, Tuning::Off, host).unwrap();
    step_cache::check(&backend.poisoned(0xFF));
}

//! Steps on the CPU that read what an earlier one kept.

use kinora_cpu::CpuBackend;
use kinora_testing::step_cache;

#[test]
fn shallow_steps_read_what_a_whole_one_kept() {
    step_cache::check(&CpuBackend::default());
}

//! Programs on the CPU that have weights in common.

use kinora_cpu::CpuBackend;
use kinora_testing::sharing;

#[test]
fn programs_share_their_weights() {
    sharing::check(&CpuBackend::default());
}

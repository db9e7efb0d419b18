//! PTX.

use kinora_ptx::{Argument, Checks, ChipSpec, LaunchConfig, Module, Simulator};

/// Warp instructions of a launch.
const STEPS: u64 = 5_000;
/// What kernels read and write.
const BYTES: usize = 4096;

/// Any bytes as a PTX module: loaded, and its kernels run if their parameters are a few pointers and numbers.
pub fn module(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for chip in [ChipSpec::a100(), ChipSpec::h200()] {
        let checks = Checks { steps: STEPS, nonfinite: true, ..Checks::default() };
        let mut simulator = Simulator::new(chip).with_checks(checks);
        let Ok(module) = Module::load(&mut simulator, &text) else { continue };
        let names: Vec<String> = module.kernels().map(str::to_owned).collect();
        let Ok(memory) = simulator.upload(&7u32.to_le_bytes().repeat(BYTES / 4)) else { continue };
        for name in names.iter().take(4) {
            let _ = module.rounding_latitude(name);
            for arguments in parameters(memory) {
                for threads in [32, 128] {
                    let mut config = LaunchConfig::new(1, threads, arguments.clone());
                    config.shared_bytes = 1024;
                    if let Ok(report) = simulator.launch(&module, name, &config) {
                        report.findings.iter().for_each(|finding| drop(finding.to_string()));
                    }
                }
            }
        }
    }
}

/// Lists of arguments; a kernel takes one of them, or is not run.
fn parameters(memory: u64) -> Vec<Vec<Argument>> {
    let pointer = || Argument::U64(memory);
    let mut lists: Vec<Vec<Argument>> = (0..4).map(|count| vec![pointer(); count]).collect();
    lists.push(vec![pointer(), Argument::Bytes(vec![1; 16])]);
    lists.push(vec![pointer(), Argument::U32(3)]);
    lists.push(vec![pointer(), pointer(), Argument::U32(3)]);
    lists
}

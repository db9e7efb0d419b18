//! What the tests share: kernels compiled by the real compiler, and tensors of random numbers.

#![allow(dead_code, reason = "every test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod nvrtc;
pub mod planted;

use std::{io::Write, path::PathBuf};

use half::f16;
use kinora_ptx::{Argument, ChipSpec, LaunchConfig, Module, Report, Simulator};

/// The project's kernels.
pub fn kernels() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../cuda/src/kernels")
}

/// Compiles a source to PTX as the project does. `None`, and a line that says so, on a machine without NVRTC; with
/// `KINORA_REQUIRE_NVRTC` set, as `cargo xtask test` does, that is a failure.
pub fn compile(name: &str, source: &str, specialisation: &str, architecture: &str) -> Option<String> {
    match nvrtc::Nvrtc::find() {
        Ok(nvrtc) => Some(nvrtc.compile(name, source, specialisation, architecture)),
        Err(error) if std::env::var_os("KINORA_REQUIRE_NVRTC").is_some() => panic!("{error}"),
        Err(_) => {
            // Not by `println`, which a passing test keeps to itself.
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            let _ = writeln!(std::io::stderr(), "{test} not run: no NVRTC");
            None
        }
    }
}

/// Compiles one of the project's kernels.
pub fn compile_kernel(path: &str, specialisation: &str, architecture: &str) -> Option<String> {
    let source = std::fs::read_to_string(kernels().join(path)).unwrap();
    compile(path, &source, specialisation, architecture)
}

/// The chip that runs an architecture's code.
pub fn profile(architecture: &str) -> ChipSpec {
    match architecture {
        "75" => ChipSpec::t4(),
        "80" => ChipSpec::a100(),
        "86" => ChipSpec::rtx_3090(),
        "89" => ChipSpec::rtx_4090(),
        _ => ChipSpec::h200(),
    }
}

/// A device with a module on it.
pub struct Bench {
    pub simulator: Simulator,
    pub module: Module,
}

impl Bench {
    pub fn new(ptx: &str, architecture: &str) -> Bench {
        let mut simulator = Simulator::new(profile(architecture));
        let module = Module::load(&mut simulator, ptx).unwrap_or_else(|error| panic!("{error}"));
        Bench { simulator, module }
    }

    pub fn halves(&mut self, values: &[f32]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
        self.simulator.upload(&bytes).unwrap()
    }

    pub fn singles(&mut self, values: &[f32]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.simulator.upload(&bytes).unwrap()
    }

    pub fn words(&mut self, values: &[u32]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.simulator.upload(&bytes).unwrap()
    }

    pub fn read_halves(&self, address: u64, count: usize) -> Vec<f32> {
        let mut bytes = vec![0; 2 * count];
        self.simulator.copy_out(address, &mut bytes).unwrap();
        bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
    }

    pub fn read_words(&self, address: u64, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * count];
        self.simulator.copy_out(address, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    pub fn read_singles(&self, address: u64, count: usize) -> Vec<f32> {
        self.read_words(address, count).into_iter().map(f32::from_bits).collect()
    }

    /// Launches the module's only kernel.
    pub fn launch(&mut self, config: &LaunchConfig) -> Report {
        let name = self.module.kernels().next().unwrap().to_owned();
        self.simulator.launch(&self.module, &name, config).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Launches it, and expects nothing wrong.
    pub fn clean_launch(&mut self, config: &LaunchConfig) -> Report {
        let report = self.launch(config);
        let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
        report
    }
}

/// Numbers between -1 and 1 that are exact in f16, the same in every run.
pub fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as i32 % 1024) as f32 / 1024.0 * if state & 1 == 0 { 1.0 } else { -1.0 }
        })
        .collect()
}

/// Asserts that results are close: within a share of the largest expected number.
pub fn assert_close(ours: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), expected.len());
    let largest = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    for (i, (&our, &exact)) in ours.iter().zip(expected).enumerate() {
        let error = (f64::from(our) - exact).abs();
        assert!(error <= tolerance * largest, "element {i}: {our} instead of {exact}");
    }
}

/// An address as an argument.
pub fn pointer(address: u64) -> Argument {
    Argument::U64(address)
}

/// A struct of 64-bit and then 32-bit integers.
pub fn integers(longs: &[i64], words: &[i32]) -> Vec<u8> {
    let longs = longs.iter().flat_map(|value| value.to_le_bytes());
    longs.chain(words.iter().flat_map(|value| value.to_le_bytes())).collect()
}

//! Every op by its kernels on simulated GPUs, in the tables of cases that all backends share: against tensors made with
//! PyTorch, and against the reference at the edges, with every check of the simulator on and nothing found. Runs wherever
//! there is a compiler.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod every_kernel;

use std::{io::Write, path::Path, sync::OnceLock};

use every_kernel::{Bench, EveryKernel};
use kinora_cuda::{
    Architecture, Chip, CodeForm,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    kernels::{Call, Implementation, KernelSet},
    simulation::{SimulatedBench, SimulatedRun},
    vendor::Libraries,
};
use kinora_graph::DType;
use kinora_testing::{edge_cases, executor::Executor, golden};

/// A simulated GPU.
struct OnSimulator(SimulatedBench);

impl Bench for OnSimulator {
    fn chip(&self) -> &Chip {
        self.0.chip()
    }

    fn libraries(&self) -> Libraries {
        Libraries::default()
    }

    fn run(
        &self,
        call: &Call<'_>,
        way: &dyn Implementation,
        operands: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, String> {
        let SimulatedRun { results, fault, reports, .. } =
            self.0.run(call, way, operands).map_err(|error| error.to_string())?;
        for (kernel, report) in &reports {
            if let Some(finding) = report.findings.first() {
                return Err(format!("{kernel}: {} findings, the first: {finding}", report.findings.len()));
            }
        }
        match fault {
            Some(index) => Err(format!("the bad index {index}")),
            None => Ok(results),
        }
    }
}

/// The kernels of every generation, and the plain ones. None, and a line that says so, on a machine without a compiler.
fn executors() -> &'static [EveryKernel<OnSimulator>] {
    static EXECUTORS: OnceLock<Vec<EveryKernel<OnSimulator>>> = OnceLock::new();
    EXECUTORS.get_or_init(|| {
        let options = CompilerOptions {
            cache: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulated-kernels")),
            ..CompilerOptions::plain()
        };
        let target = CompileTarget { architecture: Architecture::AMPERE, form: CodeForm::Ptx };
        if let Err(error) = Compiler::new(target, options.clone()).and_then(|compiler| compiler.version()) {
            assert!(std::env::var_os("KINORA_REQUIRE_NVRTC").is_none(), "{error}");
            let _ = writeln!(std::io::stderr(), "simulated_ops not run: no NVRTC");
            return Vec::new();
        }
        let sets = [
            (Architecture::TURING, KernelSet::Fused),
            (Architecture::AMPERE, KernelSet::Fused),
            (Architecture::HOPPER, KernelSet::Fused),
            (Architecture::HOPPER, KernelSet::Baseline),
        ];
        let executor = |(architecture, set): (Architecture, KernelSet)| EveryKernel {
            name: format!("simulated {architecture} {set:?}"),
            bench: OnSimulator(SimulatedBench::new(Chip::typical(architecture), options.clone()).unwrap()),
            set,
            traced: std::env::var_os("KINORA_TRACE").is_some(),
            // The kernels of older chips differ in their instructions, not in their tiles.
            all: architecture == Architecture::HOPPER,
            vendor: false,
        };
        sets.map(executor).into()
    })
}

fn check(test: impl FnOnce(&[&dyn Executor])) {
    let executors: Vec<&dyn Executor> =
        executors().iter().map(|executor| executor as &dyn Executor).collect();
    if !executors.is_empty() {
        test(&executors);
    }
}

fn check_golden(family: &str) {
    check(|executors| golden::check_family(family, executors));
}

kinora_testing::golden_tests!(check_golden);

/// The edges of every family: odd sizes, single rows, empty batches, huge magnitudes.
fn edges(dtype: DType) {
    for family in edge_cases::Family::ALL {
        check(|executors| edge_cases::check_family(family, dtype, executors));
    }
}

#[test]
fn edges_in_f16() {
    edges(DType::F16);
}

#[test]
#[ignore = "a minute to compile, for what differs from f16 in loads and stores alone"]
fn edges_in_bf16() {
    edges(DType::BF16);
}

#[test]
#[ignore = "as the one above"]
fn edges_in_f32() {
    edges(DType::F32);
}

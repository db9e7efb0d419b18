//! Every op, by every kernel that is offered for it, in the tables of cases that all backends share: against tensors made
//! with PyTorch and against the reference at the edges. The paths of older chips run here too, as PTX.
//!
//! For a sanitizer, which is slow: `KINORA_TEST_ONLY=sm_80` runs the kernels of one chip or set, `KINORA_TEST_VENDOR=off` none
//! of a vendor's, and `KINORA_TEST_POISON=off` leaves memory that nothing was written to as it is, so that a read of it is
//! found. `KINORA_TEST_SHARE=2/16` runs each sixteenth kernel, counted from the third: sixteen processes run them all.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod every_kernel;
mod gpu;

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use kinora_cuda::{
    Architecture, Chip, CodeForm, CudaError,
    compiler::CompilerOptions,
    driver::Device,
    kernels::{Call, Implementation, KernelSet},
    vendor::Libraries,
    workbench::Workbench,
};
use kinora_graph::DType;
use kinora_testing::{
    edge_cases::{self, check_overflow},
    executor::Executor,
    golden,
};

use every_kernel::{Bench, EveryKernel};

/// A GPU, and how its memory is prepared.
struct OnGpu {
    bench: Workbench,
    /// What memory is filled with before a kernel runs.
    poison: Option<u8>,
    /// Which of the kernels run in this process.
    share: Share,
}

/// Every so many of the things that are counted.
struct Share {
    first: usize,
    every: usize,
    counted: AtomicUsize,
}

impl Share {
    /// All, unless the environment says otherwise.
    fn from_environment() -> Share {
        let text = std::env::var("KINORA_TEST_SHARE").unwrap_or_else(|_| "0/1".to_owned());
        let (first, every) = text.split_once('/').unwrap();
        let (first, every) = (first.parse().unwrap(), every.parse().unwrap());
        assert!(
            first < every,
            "KINORA_TEST_SHARE={text}: the first is 0, and the last one less than their number"
        );
        Share { first, every, counted: AtomicUsize::new(0) }
    }

    /// Whether the next one is among them.
    fn takes_next(&self) -> bool {
        self.counted.fetch_add(1, Ordering::Relaxed) % self.every == self.first
    }
}

impl Bench for OnGpu {
    fn chip(&self) -> &Chip {
        self.bench.chip()
    }

    fn libraries(&self) -> Libraries {
        self.bench.libraries().clone()
    }

    fn run(
        &self,
        call: &Call<'_>,
        way: &dyn Implementation,
        operands: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, String> {
        self.bench.run(call, way, self.poison, operands).map_err(|error| error.to_string())
    }

    fn takes(&self, _: &Call<'_>, _: &dyn Implementation) -> bool {
        self.share.takes_next()
    }
}

/// The GPU's own chip with all its kernels, the baseline, and the paths of Ampere and Turing.
fn executors() -> &'static [EveryKernel<OnGpu>] {
    static EXECUTORS: OnceLock<Vec<EveryKernel<OnGpu>>> = OnceLock::new();
    EXECUTORS.get_or_init(|| gpu::open().map_or_else(Vec::new, |device| on(&device).unwrap()))
}

fn on(device: &Device) -> Result<Vec<EveryKernel<OnGpu>>, CudaError> {
    let own = device.info().chip();
    let newest = own.architecture;
    let older = [Architecture::AMPERE, Architecture::TURING]
        .into_iter()
        .filter(|&architecture| architecture < newest)
        .map(|architecture| Chip { form: CodeForm::Ptx, ..Chip::typical(architecture) });
    let sets = [(own.clone(), KernelSet::Fused), (own, KernelSet::Baseline)];
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (only, traced) = (variable("KINORA_TEST_ONLY"), !variable("KINORA_TRACE").is_empty());
    let poison = (variable("KINORA_TEST_POISON") != "off").then_some(0xFF);
    let vendor = variable("KINORA_TEST_VENDOR") != "off";
    sets.into_iter()
        .chain(older.map(|chip| (chip, KernelSet::Fused)))
        .map(|(chip, set)| (format!("{} {set:?}", chip.architecture), chip, set))
        .filter(|(name, ..)| name.contains(&only))
        .map(|(name, chip, set)| {
            // The kernels of older chips differ in their instructions, not in their tiles.
            let all = chip.architecture == newest;
            let bench = Workbench::new(device, chip, CompilerOptions::from_environment())?;
            let bench = OnGpu { bench, poison, share: Share::from_environment() };
            Ok(EveryKernel { name, bench, set, traced, all, vendor })
        })
        .collect()
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

fn check_edges(family: edge_cases::Family, dtype: DType) {
    check(|executors| edge_cases::check_family(family, dtype, executors));
}

kinora_testing::edge_tests!(crate::check_edges);

#[test]
fn overflow_is_the_same_infinity() {
    check(check_overflow);
}

/// By two multiprocessors' worth of blocks, so that a block has several tiles.
fn on_two_multiprocessors(test: impl FnOnce(&[&dyn Executor])) {
    let Some(device) = gpu::open() else { return };
    let chip = Chip { multiprocessors: 2, ..device.info().chip() };
    let bench = Workbench::new(&device, chip, CompilerOptions::from_environment()).unwrap();
    let executor = EveryKernel {
        name: "two multiprocessors".to_owned(),
        bench: OnGpu { bench, poison: Some(0xFF), share: Share::from_environment() },
        set: KernelSet::Fused,
        traced: false,
        all: true,
        vendor: false,
    };
    test(&[&executor]);
}

#[test]
fn few_columns_in_f16() {
    on_two_multiprocessors(|executors| edge_cases::check_few_columns(DType::F16, executors));
}

#[test]
fn few_columns_in_bf16() {
    on_two_multiprocessors(|executors| edge_cases::check_few_columns(DType::BF16, executors));
}

#[test]
fn subpixels_in_f16() {
    on_two_multiprocessors(|executors| edge_cases::check_subpixels(DType::F16, executors));
}

#[test]
fn subpixels_in_bf16() {
    on_two_multiprocessors(|executors| edge_cases::check_subpixels(DType::BF16, executors));
}

#[test]
fn many_tiles_in_f16() {
    on_two_multiprocessors(|executors| edge_cases::check_many_tiles(DType::F16, executors));
}

#[test]
fn many_tiles_in_bf16() {
    on_two_multiprocessors(|executors| edge_cases::check_many_tiles(DType::BF16, executors));
}

#[test]
fn wide_heads_in_f16() {
    check(|executors| edge_cases::check_wide_heads(DType::F16, executors));
}

#[test]
fn wide_heads_in_bf16() {
    check(|executors| edge_cases::check_wide_heads(DType::BF16, executors));
}

#[test]
fn quantised_products() {
    on_two_multiprocessors(|executors| edge_cases::check_quantised_products(DType::F16, executors));
}

#[test]
fn quantised_products_to_e4m3() {
    on_two_multiprocessors(|executors| edge_cases::check_quantised_products(DType::F8E4M3, executors));
}

#[test]
fn measured_products_in_f16() {
    on_two_multiprocessors(|executors| edge_cases::check_measured_products(DType::F16, executors));
}

#[test]
fn measured_products_in_bf16() {
    on_two_multiprocessors(|executors| edge_cases::check_measured_products(DType::BF16, executors));
}

#[test]
fn several_tiles_of_queries_in_f16() {
    on_two_multiprocessors(|executors| edge_cases::check_tiles_of_queries(DType::F16, executors));
}

#[test]
fn several_tiles_of_queries_in_bf16() {
    on_two_multiprocessors(|executors| edge_cases::check_tiles_of_queries(DType::BF16, executors));
}

//! Every op, by every kernel that is offered for it, in the tables of cases that all backends share: against tensors made
//! with PyTorch and against the reference at the edges. The paths of older chips run here too, as PTX.
//!
//! For a sanitizer, which is slow: `KINORA_TEST_ONLY=sm_80` runs the kernels of one chip or set, `KINORA_TEST_VENDOR=off` none
//! of a vendor's, and `KINORA_TEST_POISON=off` leaves memory that nothing was written to as it is, so that a read of it is
//! found. `KINORA_TEST_SHARE=2/16` runs each sixteenth kernel, counted from the third: sixteen processes run them all.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod gpu;

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use kinora_cuda::{
    Architecture, Chip, CodeForm, CudaError,
    compiler::CompilerOptions,
    driver::Device,
    kernels::{Call, KernelSet, implementations},
    workbench::Workbench,
};
use kinora_graph::{DType, Op, Tensor, TensorType};
use kinora_testing::{
    compare,
    edge_cases::{self, check_overflow},
    executor::{Executor, Reference},
    golden,
};

/// All kernels of a set on one chip. Each is held to the reference; the results are the first one's.
struct OnGpu {
    name: String,
    bench: Workbench,
    set: KernelSet,
    /// Says what it runs, for finding a kernel that does not end.
    traced: bool,
    /// Whether every kernel runs, or only the one that the family would choose.
    all: bool,
    /// What memory is filled with before a kernel runs.
    poison: Option<u8>,
    /// Whether kernels of vendors' libraries run too.
    vendor: bool,
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

impl OnGpu {
    fn run_all(&self, op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>, String> {
        let inputs: Vec<&TensorType> = operands.iter().map(|operand| operand.ty()).collect();
        let types = op.infer(&inputs).map_err(|error| error.to_string())?;
        let outputs: Vec<&TensorType> = types.iter().collect();
        let call = Call { layer: "op", op, inputs: &inputs, outputs: &outputs };
        if let Op::Reshape(reshape) = op {
            let ty = TensorType::new(operands[0].dtype(), reshape.shape.clone());
            return Tensor::from_bytes(ty, operands[0].bytes()).map(|y| vec![y]).map_err(|e| e.to_string());
        }
        if !call.runs() {
            return Ok(types.iter().map(|ty| Tensor::zeros(ty.clone())).collect());
        }
        let expected = Reference.run(op, operands)?;
        let said = |error: CudaError| error.to_string();
        let offered =
            implementations(&call, self.bench.chip(), self.set, self.bench.libraries()).map_err(said)?;
        let mut first = None;
        let offered = offered.iter().filter(|implementation| self.vendor || !implementation.is_vendors());
        for implementation in offered.take(if self.all { usize::MAX } else { 1 }) {
            if !self.share.takes_next() {
                // Another process runs it.
                first.get_or_insert_with(|| expected.clone());
                continue;
            }
            let name = implementation.name();
            if self.traced {
                println!("{} {name} {op} begins", self.name);
            }
            let run = || -> Result<Vec<Tensor>, String> {
                let prepared = self.bench.prepare(&call, &**implementation).map_err(said)?;
                let bytes: Vec<&[u8]> = operands.iter().map(|operand| operand.bytes()).collect();
                prepared.write(self.poison, &bytes).map_err(said)?;
                prepared.run().map_err(said)?;
                if let Some(index) = prepared.fault().map_err(said)? {
                    return Err(format!("the bad index {index}"));
                }
                let read = |(i, ty): (usize, &TensorType)| {
                    let bytes = prepared.read(i).map_err(said)?;
                    Tensor::from_bytes(ty.clone(), &bytes).map_err(|error| error.to_string())
                };
                types.iter().enumerate().map(read).collect()
            };
            let start = Instant::now();
            let results = run().map_err(|why| format!("{name}: {why}"))?;
            if self.traced {
                println!("{} {name} {op} {:.1} s", self.name, start.elapsed().as_secs_f64());
            }
            for (expected, got) in expected.iter().zip(&results) {
                compare::close(expected, got).map_err(|why| format!("{name}: {why}"))?;
            }
            first.get_or_insert(results);
        }
        first.ok_or_else(|| "no kernel is offered".to_owned())
    }
}

impl Executor for OnGpu {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&self, op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>, String> {
        self.run_all(op, operands)
    }
}

/// The GPU's own chip with all its kernels, the baseline, and the paths of Ampere and Turing.
fn executors() -> &'static [OnGpu] {
    static EXECUTORS: OnceLock<Vec<OnGpu>> = OnceLock::new();
    EXECUTORS.get_or_init(|| gpu::open().map_or_else(Vec::new, |device| on(&device).unwrap()))
}

fn on(device: &Device) -> Result<Vec<OnGpu>, CudaError> {
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
            let share = Share::from_environment();
            Ok(OnGpu { name, bench, set, traced, all, poison, vendor, share })
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

macro_rules! golden {
    ($($family:ident),+ $(,)?) => {
        $(
            #[test]
            fn $family() {
                check(|executors| golden::check_family(stringify!($family), executors));
            }
        )+
    };
}
golden!(conv, linear, norm, pointwise, attention, arrange, resample, embedding, sampler);

fn check_edges(family: edge_cases::Family, dtype: DType) {
    check(|executors| edge_cases::check_family(family, dtype, executors));
}

kinora_testing::edge_tests!(crate::check_edges);

#[test]
fn overflow_is_the_same_infinity() {
    check(check_overflow);
}

//! Every op by its kernels on simulated GPUs, in the tables of cases that all backends share: against tensors made with
//! PyTorch, and against the reference at the edges, with every check of the simulator on and nothing found. Runs wherever
//! there is a compiler.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod every_kernel;

use std::{
    collections::BTreeSet,
    io::Write,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use every_kernel::{Bench, EveryKernel};
use kinora_cuda::{
    Architecture, Chip, CodeForm, CudaError,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    kernels::{
        Argument, Call, DevicePointer, Implementation, Kernel, KernelSet, Launch, Places, Source, Work,
        implementations,
    },
    simulation::{SimulatedBench, SimulatedRun},
    vendor::Libraries,
};
use kinora_graph::{
    DType, Op, Tensor, TensorType,
    op::{Activation, Linear, STEP_COLUMNS, SamplerStep, Stage, TemporalBlend},
};
use kinora_testing::{
    compare,
    edge_cases::{self, Family},
    executor::{Executor, Reference},
    golden,
};

/// A simulated GPU.
struct OnSimulator {
    bench: SimulatedBench,
    /// Another chip's: what is launched alike there, and compiled to the same code, is not run again.
    like: Option<Like>,
    /// A part of the names of the kernels that run.
    only: &'static str,
    /// How many kernels ran.
    ran: AtomicUsize,
}

/// A chip beside one whose code is much the same.
struct Like {
    chip: Chip,
    compilers: [Compiler; 2],
}

impl Like {
    fn new(architecture: Architecture, other: Architecture) -> Like {
        Like { chip: Chip::typical(other), compilers: [architecture, other].map(compiler) }
    }

    /// Whether both chips compile a kernel to the same PTX, but for the line that names the target.
    fn is_same(&self, kernel: &Kernel) -> bool {
        let [ours, theirs] = self.compilers.each_ref().map(|compiler| {
            let text = String::from_utf8(compiler.compile(kernel).unwrap().bytes).unwrap();
            text.lines().filter(|line| !line.starts_with(".target")).collect::<Vec<_>>().join("\n")
        });
        ours == theirs
    }
}

impl Bench for OnSimulator {
    fn chip(&self) -> &Chip {
        self.bench.chip()
    }

    fn takes(&self, call: &Call<'_>, way: &dyn Implementation) -> bool {
        if !way.name().contains(self.only) {
            return false;
        }
        let Some(like) = &self.like else { return true };
        let theirs = implementations(call, &like.chip, KernelSet::Fused, &Libraries::default()).unwrap();
        let ours = launches(call, way);
        ours != launches(call, &*theirs[0]) || !ours.iter().all(|launch| like.is_same(&launch.kernel))
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
        self.ran.fetch_add(1, Ordering::Relaxed);
        let SimulatedRun { results, fault, reports, .. } =
            self.bench.run(call, way, operands).map_err(|error| error.to_string())?;
        for (kernel, report) in &reports {
            if let Some(finding) = report.findings.first() {
                return Err(format!("{kernel}: {} findings, the first: {finding}", report.findings.len()));
            }
        }
        match fault {
            Some(index) => Err(format!("invalid index {index}")),
            None => Ok(results),
        }
    }
}

/// The launches of a call, wherever its tensors lie.
fn launches(call: &Call<'_>, way: &dyn Implementation) -> Vec<Launch> {
    let somewhere = DevicePointer::new(256);
    let places = Places {
        inputs: vec![somewhere; call.inputs.len()],
        outputs: vec![somewhere; call.outputs.len()],
        workspace: somewhere,
        fault: somewhere,
        number: 1,
    };
    let launch = |work| match work {
        Work::Launch(launch) => launch,
        Work::Library(_) => panic!("no library was offered"),
    };
    way.work(&places).unwrap().into_iter().map(launch).collect()
}

/// Chips after the A100 that have no path of their own. Most of their code is its code.
const LIKE_AMPERE: [Architecture; 2] = [Architecture(86), Architecture(89)];

/// Keeps what is compiled beside the tests.
fn options() -> CompilerOptions {
    CompilerOptions {
        cache: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulated-kernels")),
        ..CompilerOptions::plain()
    }
}

fn compiler(architecture: Architecture) -> Compiler {
    Compiler::new(CompileTarget { architecture, form: CodeForm::Ptx }, options()).unwrap()
}

/// Whether there is a compiler; a line says so where there is none.
fn there_is_nvrtc() -> bool {
    let found = compiler(Architecture::AMPERE).version();
    if let Err(error) = &found {
        assert!(std::env::var_os("KINORA_REQUIRE_NVRTC").is_none(), "{error}");
        let _ = writeln!(std::io::stderr(), "simulated_ops not run: no NVRTC");
    }
    found.is_ok()
}

/// The kernels of every generation, and the plain ones. None, and a line that says so, on a machine without a compiler.
fn executors() -> &'static [EveryKernel<OnSimulator>] {
    static EXECUTORS: OnceLock<Vec<EveryKernel<OnSimulator>>> = OnceLock::new();
    EXECUTORS.get_or_init(|| {
        if !there_is_nvrtc() {
            return Vec::new();
        }
        let sets = [
            (Architecture::TURING, KernelSet::Fused),
            (Architecture::AMPERE, KernelSet::Fused),
            (LIKE_AMPERE[0], KernelSet::Fused),
            (LIKE_AMPERE[1], KernelSet::Fused),
            (Architecture::HOPPER, KernelSet::Fused),
            (Architecture::HOPPER, KernelSet::Baseline),
        ];
        let executor = |(architecture, set): (Architecture, KernelSet)| EveryKernel {
            name: format!("simulated {architecture} {set:?}"),
            bench: OnSimulator {
                bench: SimulatedBench::new(Chip::typical(architecture), options()).unwrap(),
                like: LIKE_AMPERE
                    .contains(&architecture)
                    .then(|| Like::new(architecture, Architecture::AMPERE)),
                only: "",
                ran: AtomicUsize::new(0),
            },
            set,
            traced: std::env::var_os("KINORA_TRACE").is_some(),
            // The kernels of older chips differ in their instructions, not in their tiles.
            all: architecture == Architecture::HOPPER,
            vendor: false,
        };
        sets.map(executor).into()
    })
}

/// Those of the executors that are chosen.
fn check(chosen: impl Fn(&OnSimulator) -> bool, test: impl FnOnce(&[&dyn Executor])) {
    let executors = executors().iter().filter(|executor| chosen(&executor.bench));
    let executors: Vec<&dyn Executor> = executors.map(|executor| executor as &dyn Executor).collect();
    if !executors.is_empty() {
        test(&executors);
    }
}

fn check_golden(family: &str) {
    check(|_| true, |executors| golden::check_family(family, executors));
}

kinora_testing::golden_tests!(check_golden);

/// The edges of every family: odd sizes, single rows, empty batches, huge magnitudes. Chips whose code is much the same would be
/// compiled for to find just that; and what differs between generations does in f16, of which other types differ in loads and
/// stores alone.
fn check_edges(family: Family, dtype: DType) {
    let chosen = |simulator: &OnSimulator| {
        let newest = simulator.bench.chip().architecture == Architecture::HOPPER;
        simulator.like.is_none() && (newest || dtype == DType::F16)
    };
    check(chosen, |executors| edge_cases::check_family(family, dtype, executors));
}

kinora_testing::edge_tests!(crate::check_edges);

/// The edges of products are also those of split-K within a cluster.
#[test]
fn edges_reach_clusters_of_every_size() {
    let chip = Chip::typical(Architecture::HOPPER);
    let mut reached = BTreeSet::new();
    for family in [Family::Convolutions, Family::Products] {
        for (op, operands) in family.all_cases(DType::F16) {
            let inputs: Vec<&TensorType> = operands.iter().map(Tensor::ty).collect();
            let types = op.infer(&inputs).unwrap();
            let outputs: Vec<&TensorType> = types.iter().collect();
            let call = Call { layer: "op", op: &op, inputs: &inputs, outputs: &outputs };
            if !call.runs() {
                continue;
            }
            for way in implementations(&call, &chip, KernelSet::Fused, &Libraries::default()).unwrap() {
                reached.extend(way.name().split_once("wgmma").and_then(|(_, tile)| {
                    let size = tile.split_once(" cluster ")?.1;
                    Some((size.to_owned(), op.to_string().contains("gate")))
                }));
            }
        }
    }
    for size in 2..=8 {
        assert!(reached.iter().any(|(reached, _)| *reached == size.to_string()), "{size}: {reached:?}");
    }
    assert!(reached.iter().filter(|(_, gated)| *gated).count() > 1, "{reached:?}");
}

/// Clusters of the larger tiles, which are offered first only if there are more tiles than the edges have: too many for every
/// kernel to run.
#[test]
fn clusters_of_large_tiles() {
    if !there_is_nvrtc() {
        return;
    }
    let bench = SimulatedBench::new(Chip::typical(Architecture::HOPPER), options()).unwrap();
    let simulator = OnSimulator { bench, like: None, only: "", ran: AtomicUsize::new(0) };
    let mut reached = BTreeSet::new();
    for (rows, depth, columns, gate) in
        [(507, 328, 1912, None), (250, 1000, 1272, None), (507, 328, 1904, Some(Activation::Gelu))]
    {
        let out = if gate.is_some() { columns / 2 } else { columns };
        // Positive and of many sizes, so that nothing cancels and no two rows are alike.
        let operand = |shape: &[usize]| {
            let values: Vec<f32> =
                (0..shape.iter().product()).map(|i: usize| (i * 7919 % 1009) as f32 / 1009.0).collect();
            Tensor::from_f32(DType::F16, shape, &values).unwrap()
        };
        let operands = [&[rows, depth][..], &[columns, depth], &[columns], &[rows, out]].map(operand);
        let operands: Vec<&Tensor> = operands.iter().collect();
        let epilogue = vec![Stage::Scale(0.01), Stage::Add];
        let op = Op::Linear(Linear { bias: true, gate, epilogue, ..Linear::default() });
        let inputs: Vec<&TensorType> = operands.iter().map(|operand| operand.ty()).collect();
        let types = op.infer(&inputs).unwrap();
        let call = Call { layer: "op", op: &op, inputs: &inputs, outputs: &[&types[0]] };
        let bytes: Vec<&[u8]> = operands.iter().map(|operand| operand.bytes()).collect();
        let expected = Reference.run(&op, &operands).unwrap();
        let ways = implementations(&call, simulator.chip(), KernelSet::Fused, &Libraries::default()).unwrap();
        for way in ways {
            let name = way.name();
            let Some((tile, _)) = name.split_once(" cluster ") else { continue };
            // The edges have the others.
            if tile.ends_with("x64") || tile.ends_with("128x128") {
                continue;
            }
            let got = simulator.run(&call, &*way, &bytes).unwrap();
            let got = Tensor::from_bytes(types[0].clone(), &got[0]).unwrap();
            compare::close(&expected[0], &got).unwrap();
            reached.insert(tile.to_owned());
        }
    }
    assert!(["wgmma 128x160", "wgmma 256x128"].iter().all(|tile| reached.contains(*tile)), "{reached:?}");
}

/// The results of an op by the family's own choice of kernels.
fn chosen(simulator: &OnSimulator, op: &Op, operands: &[&Tensor], set: KernelSet) -> Vec<Tensor> {
    let inputs: Vec<&TensorType> = operands.iter().map(|operand| operand.ty()).collect();
    let types = op.infer(&inputs).unwrap();
    let outputs: Vec<&TensorType> = types.iter().collect();
    let call = Call { layer: "op", op, inputs: &inputs, outputs: &outputs };
    let bytes: Vec<&[u8]> = operands.iter().map(|operand| operand.bytes()).collect();
    let ways = implementations(&call, simulator.chip(), set, &Libraries::default()).unwrap();
    let results = simulator.run(&call, &*ways[0], &bytes).unwrap();
    let tensor = |(ty, bytes): (&TensorType, Vec<u8>)| Tensor::from_bytes(ty.clone(), &bytes).unwrap();
    types.iter().zip(results).map(tensor).collect()
}

/// A sampler step that blends gives the bits of the step and the blend after it: in f32, where nothing is rounded between them.
#[test]
fn a_blended_step_is_the_step_and_the_blend_to_the_bit() {
    if !there_is_nvrtc() {
        return;
    }
    let bench = SimulatedBench::new(Chip::typical(Architecture::HOPPER), options()).unwrap();
    let simulator = OnSimulator { bench, like: None, only: "", ran: AtomicUsize::new(0) };
    let tensor = |shape: &[usize], seed: usize| {
        let value = |i: usize| ((i + seed) * 7919 % 1009) as f32 / 504.5 - 1.0;
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        Tensor::from_slice(shape.to_vec(), &values).unwrap()
    };
    let shape = [2, 3, 5, 4];
    let [sample, noise, history, previous] = [1, 100, 200, 300].map(|seed| tensor(&shape, seed));
    let mut values = previous.to_f32();
    values[..3].copy_from_slice(&[f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    let broken = Tensor::from_slice(shape.to_vec(), &values).unwrap();
    let (table, step) = (tensor(&[3, STEP_COLUMNS], 400), Tensor::from_slice([1], &[2i32]).unwrap());
    let guidance = Tensor::from_slice([2], &[1.5f32, 7.5]).unwrap();
    for (guided, with_history, with_noise) in
        [(false, false, false), (true, false, false), (false, false, true), (true, true, true)]
    {
        let plain = SamplerStep {
            guided,
            history: with_history,
            noise: with_noise,
            clip: with_noise.then_some(0.9),
            emit_denoised: true,
            ..SamplerStep::default()
        };
        let prediction = tensor(&[if guided { 4 } else { 2 }, 3, 5, 4], 500);
        let mut operands = vec![&sample, &prediction, &table, &step];
        operands.extend(guided.then_some(&guidance));
        operands.extend(with_history.then_some(&history));
        operands.extend(with_noise.then_some(&noise));
        for set in [KernelSet::Fused, KernelSet::Baseline] {
            let apart = chosen(&simulator, &Op::SamplerStep(plain), &operands, set);
            for (previous, strength) in
                [(&previous, 0.0f32), (&previous, 0.3), (&previous, 1.0), (&broken, 0.0), (&broken, 0.3)]
            {
                let by = Tensor::from_slice([1], &[strength]).unwrap();
                let blend = [previous, &by];
                let op = Op::SamplerStep(SamplerStep { blend: true, ..plain });
                let at_once = chosen(&simulator, &op, &[&operands[..], &blend].concat(), set);
                let op = Op::TemporalBlend(TemporalBlend::default());
                let blended = chosen(&simulator, &op, &[&[&apart[0]][..], &blend].concat(), set);
                // As bytes, since a number that is none does not equal itself.
                let bytes = |tensor: &Tensor| tensor.bytes().to_vec();
                let expected = [bytes(&blended[0]), bytes(&apart[1])];
                let got: Vec<Vec<u8>> = at_once.iter().map(bytes).collect();
                assert_eq!(got, expected, "{plain:?} {set:?} {strength}");
                // What adds nothing to a stream batch is blended away whole.
                if strength == 1.0 {
                    assert_eq!(at_once[0].to_f32(), previous.to_f32(), "{plain:?} {set:?}");
                }
                // At a cut the strength is 0.
                if strength == 0.0 {
                    let (cut, next) = (at_once[0].to_f32(), apart[0].to_f32());
                    let finite = previous.to_f32().iter().position(|x| x.is_finite()).unwrap();
                    assert!(cut[..finite].iter().all(|x| x.is_nan()), "{plain:?} {set:?}");
                    assert_eq!(cut[finite..], next[finite..], "{plain:?} {set:?}");
                }
            }
        }
    }
}

/// GELU is a polynomial's exponential here: it is held to the error function, relative to each result, on a chip with each form of
/// the maximum.
#[test]
fn gelu_is_exact_to_a_few_parts_in_a_million() {
    if !there_is_nvrtc() {
        return;
    }
    let mut values: Vec<f32> = (-1536..=2048).map(|i| i as f32 / 256.0).collect();
    let regular = values.len();
    values.extend([1e4, f32::INFINITY, f32::NAN, -8.0, -1e4, -f32::MAX]);
    let x = Tensor::from_slice([values.len()], &values).unwrap();
    let op = Op::Activate(Activation::Gelu);
    let expected = Reference.run(&op, &[&x]).unwrap()[0].to_f32();
    for architecture in [Architecture::TURING, Architecture::HOPPER] {
        let bench = SimulatedBench::new(Chip::typical(architecture), options()).unwrap();
        let simulator = OnSimulator { bench, like: None, only: "", ran: AtomicUsize::new(0) };
        let got = chosen(&simulator, &op, &[&x], KernelSet::Fused)[0].to_f32();
        for i in 0..regular {
            let error = (f64::from(got[i]) - f64::from(expected[i])).abs();
            assert!(
                error <= 6e-6 * f64::from(expected[i].abs()),
                "{}: {} {}",
                values[i],
                got[i],
                expected[i]
            );
        }
        let [large, infinite, nan, far, further, furthest] = got[regular..] else { panic!("{got:?}") };
        assert_eq!((large, infinite, nan.is_nan()), (1e4, f32::INFINITY, true), "{architecture}");
        // The tail has fewer digits, and goes on to nothing.
        assert!((far / -4.976_768e-15 - 1.0).abs() < 0.1, "{architecture}: {far}");
        assert_eq!((further, furthest), (0.0, 0.0), "{architecture}");
    }
}

/// So many powers of two as weights of attention are made on the FMA units. It is given the exponents.
#[derive(Debug)]
struct Powers(usize);

const POWERS: Source = Source {
    path: "tests/powers.cu",
    text: r#"#include "specialisation.cuh"
#include "exponential.cuh"
extern "C" __global__ void powers(const float *x, float *y, i64 count) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) y[i] = exp2_polynomial(x[i]);
}
"#,
};

// SAFETY: the kernel stays within `count` elements of its operand and its result.
unsafe impl Implementation for Powers {
    fn name(&self) -> String {
        "powers".into()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let [x, y] = [places.inputs[0], places.outputs[0]].map(Argument::Pointer);
        let arguments = vec![x, y, Argument::I64(self.0 as i64)];
        Ok(vec![Launch::new(Kernel::new(POWERS, "powers"), self.0.div_ceil(256) as u32, 256, arguments)])
    }
}

/// Over the whole range of exponents; whole ones are exact, and what is hidden has no weight.
#[test]
fn polynomial_powers_are_exact_beside_the_rounding_of_weights() {
    if !there_is_nvrtc() {
        return;
    }
    const STEPS: usize = 300_000;
    let simulator = SimulatedBench::new(Chip::typical(Architecture::HOPPER), options()).unwrap();
    let mut exponents: Vec<f32> = (0..=STEPS).map(|i| -126.0 + 134.0 * i as f32 / STEPS as f32).collect();
    let whole = exponents.len();
    exponents.extend((-126..=8).map(|i| i as f32));
    let tiny = exponents.len();
    exponents.extend((0..1000).map(|i| -126.0 - i as f32 / 100.0));
    exponents.extend([f32::NEG_INFINITY, -f32::MAX, f32::NAN]);
    let x = Tensor::from_slice([exponents.len()], &exponents).unwrap();
    // Any op of one operand and a result like it.
    let op = Op::Activate(Activation::Silu);
    let call = Call { layer: "powers", op: &op, inputs: &[x.ty()], outputs: &[x.ty()] };
    let powers = Powers(exponents.len());
    let SimulatedRun { results, reports, .. } = simulator.run(&call, &powers, &[x.bytes()]).unwrap();
    assert!(reports[0].1.findings.is_empty(), "{:?}", reports[0].1.findings);
    let got = Tensor::from_bytes(x.ty().clone(), &results[0]).unwrap().to_f32();
    for (i, (&x, &y)) in exponents[..tiny].iter().zip(&got).enumerate() {
        let expected = f64::from(x).exp2();
        let bar = if i < whole { 3.2e-6 } else { 0.0 };
        let error = (f64::from(y) / expected - 1.0).abs();
        assert!(error <= bar, "2 to the power of {x} is {expected:e}, not {y:e}");
    }
    let [tiny @ .., infinite, lowest, nan] = &got[tiny..] else { panic!("{got:?}") };
    assert!(tiny.iter().all(|y| (0.0..=1.2e-38).contains(y)), "{tiny:?}");
    assert_eq!((*infinite, *lowest, nan.is_nan()), (0.0, 0.0, true));
}

/// Hopper's kernels on a chip of so few multiprocessors that a block has several tiles.
fn on_small_hopper(multiprocessors: u32, only: &'static str, test: impl FnOnce(&[&dyn Executor])) {
    on_chip(Chip { multiprocessors, ..Chip::typical(Architecture::HOPPER) }, only, test);
}

/// All kernels of a chip.
fn on_chip(chip: Chip, only: &'static str, test: impl FnOnce(&[&dyn Executor])) {
    if !there_is_nvrtc() {
        return;
    }
    let executor = EveryKernel {
        name: format!("simulated {} of {} multiprocessors", chip.architecture, chip.multiprocessors),
        bench: OnSimulator {
            bench: SimulatedBench::new(chip, options()).unwrap(),
            like: None,
            only,
            ran: AtomicUsize::new(0),
        },
        set: KernelSet::Fused,
        traced: std::env::var_os("KINORA_TRACE").is_some(),
        all: true,
        vendor: false,
    };
    test(&[&executor]);
    assert!(executor.bench.ran.into_inner() > 0, "no kernel of this name was offered: {only:?}");
}

#[test]
fn few_columns_in_f16() {
    on_small_hopper(2, "", |executors| edge_cases::check_few_columns(DType::F16, executors));
}

#[test]
fn few_columns_in_bf16() {
    on_small_hopper(2, "", |executors| edge_cases::check_few_columns(DType::BF16, executors));
}

/// Blocks with several tiles, and clusters that share one.
#[test]
fn subpixels_in_f16() {
    on_small_hopper(1, "", |executors| edge_cases::check_subpixels(DType::F16, executors));
    on_small_hopper(32, "cluster", |executors| edge_cases::check_subpixels(DType::F16, executors));
}

#[test]
fn subpixels_in_bf16() {
    on_small_hopper(2, "", |executors| edge_cases::check_subpixels(DType::BF16, executors));
}

/// Of the kernels for many tiles, those whose warpgroups take turns: a block's second one works only if it has several.
#[test]
fn many_tiles_in_turns_in_f16() {
    on_small_hopper(1, "in turns", |executors| edge_cases::check_many_tiles(DType::F16, executors));
    // Blocks that keep to their columns, and more columns of tiles than there are blocks.
    on_small_hopper(4, "in turns,", |executors| edge_cases::check_many_tiles(DType::F16, executors));
}

/// Products that measure their results: blocks with several tiles, those that keep to their columns, and the plain kernels.
#[test]
fn measured_products_in_f16() {
    on_small_hopper(1, "", |executors| edge_cases::check_measured_products(DType::F16, executors));
    on_small_hopper(4, "in turns,", |executors| {
        edge_cases::check_measured_products(DType::F16, executors);
    });
    let baseline = |simulator: &OnSimulator| simulator.bench.chip().architecture == Architecture::HOPPER;
    check(baseline, |executors| edge_cases::check_measured_products(DType::F16, executors));
}

#[test]
fn measured_products_in_bf16() {
    on_small_hopper(2, "", |executors| edge_cases::check_measured_products(DType::BF16, executors));
}

/// Blocks with several tiles; then those that keep to their columns; then clusters that share a tile.
#[test]
fn quantised_products() {
    on_small_hopper(2, "", |executors| edge_cases::check_quantised_products(DType::F16, executors));
    on_small_hopper(4, "in turns,", |executors| {
        edge_cases::check_quantised_products(DType::F16, executors);
    });
    on_small_hopper(32, "cluster", |executors| edge_cases::check_quantised_products(DType::F16, executors));
}

/// Those of a warp.
#[test]
fn quantised_products_on_ada() {
    for result in [DType::F16, DType::F8E4M3] {
        let chip = Chip::typical(Architecture::ADA);
        on_chip(chip, "mma", |executors| edge_cases::check_quantised_products(result, executors));
    }
}

#[test]
fn quantised_products_to_e4m3() {
    on_small_hopper(2, "", |executors| edge_cases::check_quantised_products(DType::F8E4M3, executors));
}

#[test]
fn many_tiles_in_turns_in_bf16() {
    on_small_hopper(2, "in turns", |executors| edge_cases::check_many_tiles(DType::BF16, executors));
}

#[test]
fn wide_heads_in_f16() {
    on_small_hopper(2, "hopper", |executors| edge_cases::check_wide_heads(DType::F16, executors));
}

#[test]
fn wide_heads_in_bf16() {
    on_small_hopper(2, "hopper", |executors| edge_cases::check_wide_heads(DType::BF16, executors));
}

/// Blocks that take tile after tile of queries work only if they have several.
#[test]
fn several_tiles_of_queries_in_f16() {
    on_small_hopper(2, "hopper", |executors| edge_cases::check_tiles_of_queries(DType::F16, executors));
}

#[test]
fn several_tiles_of_queries_in_bf16() {
    on_small_hopper(3, "hopper", |executors| edge_cases::check_tiles_of_queries(DType::BF16, executors));
}

/// Gradients on wgmma alone, in both of its types.
#[test]
fn gradients_on_hopper() {
    for dtype in [DType::F16, DType::BF16] {
        on_small_hopper(132, "backward hopper", |executors| {
            edge_cases::check_family(Family::AttentionBackward, dtype, executors);
        });
    }
}

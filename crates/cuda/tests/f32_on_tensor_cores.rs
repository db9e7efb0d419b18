//! Products and attention in f32 on the tensor cores, held to f64: their error is that of f32, whatever the operands are. Runs
//! on simulated GPUs, wherever there is a compiler.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::{io::Write, path::Path};

use kinora_cuda::{
    Architecture, Chip, CodeForm,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    kernels::{Call, Implementation, KernelSet, implementations},
    simulation::SimulatedBench,
    vendor::Libraries,
};
use kinora_graph::{
    DType, Op, Tensor, TensorType,
    op::{Attention, Conv, Linear},
};
use kinora_testing::executor::{Executor, Reference};

/// A generation's chip; none where there is no compiler.
fn bench(architecture: Architecture) -> Option<SimulatedBench> {
    let options = CompilerOptions {
        cache: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulated-kernels")),
        ..CompilerOptions::plain()
    };
    let bench = SimulatedBench::new(Chip::typical(architecture), options).unwrap();
    let target = CompileTarget { architecture, form: CodeForm::Ptx };
    let found = Compiler::new(target, CompilerOptions::plain()).unwrap().version();
    if let Err(error) = &found {
        assert!(std::env::var_os("KINORA_REQUIRE_NVRTC").is_none(), "{error}");
        let _ = writeln!(std::io::stderr(), "f32_on_tensor_cores not run: no NVRTC");
    }
    found.is_ok().then_some(bench)
}

/// The results of every kernel that is offered for an op, by its name.
fn results(bench: &SimulatedBench, op: &Op, operands: &[&Tensor]) -> Vec<(String, Vec<f32>)> {
    let inputs: Vec<&TensorType> = operands.iter().map(|operand| operand.ty()).collect();
    let types = op.infer(&inputs).unwrap();
    let call = Call { layer: "op", op, inputs: &inputs, outputs: &[&types[0]] };
    let bytes: Vec<&[u8]> = operands.iter().map(|operand| operand.bytes()).collect();
    let ways = implementations(&call, bench.chip(), KernelSet::Fused, &Libraries::default()).unwrap();
    let run = |way: &dyn Implementation| {
        let run = bench.run(&call, way, &bytes).unwrap();
        for (kernel, report) in &run.reports {
            assert!(report.findings.is_empty(), "{kernel}: {}", report.findings[0]);
        }
        let result = Tensor::from_bytes(types[0].clone(), &run.results[0]).unwrap();
        (way.name(), result.to_f32())
    };
    ways.iter().map(|way| run(&**way)).collect()
}

/// Numbers without a pattern, in [-1, 1).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // 24 bits, so that every significand occurs.
        (self.0 >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    fn many(&mut self, count: usize, mut of: impl FnMut(&mut Self) -> f32) -> Vec<f32> {
        (0..count).map(|_| of(self)).collect()
    }
}

fn tensor(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_f32(DType::F32, shape, values).unwrap()
}

/// The largest and the root mean square of errors relative to what a sum's terms amount to without their signs, in units of
/// 2^-24.
fn errors(got: &[f32], exact: &[(f64, f64)]) -> [f64; 2] {
    assert_eq!(got.len(), exact.len());
    let errors = got.iter().zip(exact).map(|(&got, &(sum, terms))| (f64::from(got) - sum).abs() / terms);
    let errors: Vec<f64> = errors.map(|error| error * f64::from(1u32 << 24)).collect();
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    [errors.iter().copied().fold(0.0, f64::max), (squares / errors.len() as f64).sqrt()]
}

/// A kind of operand, by its name.
type Kind = (&'static str, fn(&mut Numbers) -> f32);

/// Operands of a product, of kinds that are hard in different ways.
fn kinds() -> [Kind; 5] {
    fn signed(numbers: &mut Numbers) -> f32 {
        numbers.next()
    }
    // Nothing cancels: a sum that is always rounded one way would drift.
    fn positive(numbers: &mut Numbers) -> f32 {
        numbers.next().abs()
    }
    // Of sizes from 2^-20 to 2^20.
    fn wide(numbers: &mut Numbers) -> f32 {
        let size = (numbers.next() * 20.0).round() as i32;
        numbers.next() * 2f32.powi(size)
    }
    // Products come near the largest number, but sums stay below it.
    fn large(numbers: &mut Numbers) -> f32 {
        numbers.next() * 2f32.powi(58)
    }
    // Every significand from just above a power of two.
    fn near_one(numbers: &mut Numbers) -> f32 {
        1.0 + numbers.next().abs() / 512.0
    }
    [("signed", signed), ("positive", positive), ("wide", wide), ("large", large), ("near one", near_one)]
}

#[test]
fn products_are_as_exact_as_f32() {
    let (rows, columns) = (70, 72);
    for architecture in [Architecture::AMPERE, Architecture::HOPPER] {
        let Some(bench) = bench(architecture) else { return };
        for (kind, of) in kinds() {
            for depth in [16, 60, 1152] {
                let mut numbers = Numbers(depth as u64);
                let a = numbers.many(rows * depth, of);
                let b = numbers.many(columns * depth, of);
                let exact: Vec<(f64, f64)> = (0..rows * columns)
                    .map(|i| {
                        let (row, column) = (i / columns, i % columns);
                        let terms = (0..depth)
                            .map(|d| f64::from(a[row * depth + d]) * f64::from(b[column * depth + d]));
                        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
                    })
                    .collect();
                let (a, b) = (tensor(&[rows, depth], &a), tensor(&[columns, depth], &b));
                let results = results(&bench, &Op::Linear(Linear::default()), &[&a, &b]);
                let of_f32 = results.iter().find(|(name, _)| name == "simt 64x64").unwrap();
                let [most, typical] = errors(&of_f32.1, &exact);
                let mut reached = 0;
                for (name, got) in results.iter().filter(|(name, _)| name.starts_with("mma")) {
                    let [largest, mean] = errors(got, &exact);
                    println!(
                        "{architecture} {kind} {depth} {name}: {largest:.2} {mean:.2}, f32 {most:.2} {typical:.2}"
                    );
                    assert!(
                        largest <= 2.0 * most && mean <= 2.0 * typical,
                        "{architecture} {kind} {depth} {name}: {largest} {mean}, f32 {most} {typical}"
                    );
                    reached += 1;
                }
                assert!(reached > 3, "{reached} ways");
            }
        }
    }
}

/// Infinities, NaNs, the largest numbers and the smallest ones give what they give in f32.
#[test]
fn extreme_operands_of_products_are_those_of_f32() {
    let extremes = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::from_bits(0x7f80_0001),
        f32::from_bits(0x7fff_ffff),
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        -0.0,
    ];
    let check = |bench: &SimulatedBench, op: &Op, operands: &[&Tensor]| {
        let expected = Reference.run(op, operands).unwrap()[0].to_f32();
        let mut reached = 0;
        for (name, got) in results(bench, op, operands).iter().filter(|(name, _)| name.starts_with("mma")) {
            for (i, (&expected, &got)) in expected.iter().zip(got).enumerate() {
                let same = if expected.is_finite() {
                    (got - expected).abs() <= 1e-5 * expected.abs().max(1.0)
                } else {
                    got == expected || got.is_nan() && expected.is_nan()
                };
                assert!(same, "{name}, {op}, element {i}: expected {expected}, got {got}");
            }
            reached += 1;
        }
        assert!(reached > 1, "{reached} ways");
    };
    for architecture in [Architecture::AMPERE, Architecture::HOPPER] {
        let Some(bench) = bench(architecture) else { return };
        let (rows, depth, columns) = (40, 32, 24);
        let mut numbers = Numbers(7);
        // Positive, so that an infinity is the same in any order.
        let mut a = numbers.many(rows * depth, |numbers| numbers.next().abs() + 0.125);
        let mut b = numbers.many(columns * depth, |numbers| numbers.next().abs() / 64.0 + 0.001);
        for (i, &extreme) in extremes.iter().enumerate() {
            a[3 * i * depth + 2 * i + 1] = extreme;
        }
        // Large numbers times zero, and an infinity times zero.
        a[37 * depth] = f32::MAX;
        a[38 * depth] = f32::INFINITY;
        b[5 * depth] = 0.0;
        b[7 * depth + 31] = f32::NEG_INFINITY;
        b[8 * depth + 30] = f32::NAN;
        b[9 * depth + 29] = f32::MAX;
        let (a, b) = (tensor(&[rows, depth], &a), tensor(&[columns, depth], &b));
        check(&bench, &Op::Linear(Linear::default()), &[&a, &b]);

        let (side, channels) = (6, 4);
        let mut x = numbers.many(side * side * channels, |numbers| numbers.next().abs() + 0.125);
        let mut weight = numbers.many(columns * 9 * channels, |numbers| numbers.next().abs() / 64.0 + 0.001);
        x[13] = f32::INFINITY;
        x[70] = f32::MAX;
        x[120] = f32::NAN;
        // Where the window reaches beyond the image, nothing is multiplied.
        weight[3 * 9 * channels] = f32::INFINITY;
        let (x, weight) =
            (tensor(&[1, side, side, channels], &x), tensor(&[columns, 1, 3, 3, channels], &weight));
        check(&bench, &Op::Conv(Conv::spatial([3, 3], 1, 1)), &[&x, &weight]);
    }
}

#[test]
fn attention_is_as_exact_as_f32() {
    for architecture in [Architecture::AMPERE, Architecture::HOPPER] {
        let Some(bench) = bench(architecture) else { return };
        for (queries, keys, head, size) in
            [(70, 150, 64, 1.0), (40, 90, 160, 4.0), (70, 130, 512, 1.0), (33, 1100, 176, 1.0)]
        {
            let mut numbers = Numbers(head as u64);
            let scale = 1.0 / (head as f32).sqrt();
            let q = numbers.many(queries * head, |numbers| numbers.next() * size);
            let k = numbers.many(keys * head, |numbers| numbers.next() * size);
            let v = numbers.many(keys * head, Numbers::next);
            let mut exact = Vec::new();
            for query in q.chunks(head) {
                let dot = |key: &[f32]| -> f64 {
                    query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum()
                };
                let scores: Vec<f64> = k.chunks(head).map(|key| dot(key) * f64::from(scale)).collect();
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let total: f64 = weights.iter().sum();
                for channel in 0..head {
                    let terms = weights
                        .iter()
                        .zip(v.chunks(head))
                        .map(|(weight, v)| weight * f64::from(v[channel]) / total);
                    exact.push(terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs())));
                }
            }
            let op = Op::Attention(Attention { scale, ..Attention::over_positions(1, head) });
            let (q, k, v) =
                (tensor(&[1, queries, head], &q), tensor(&[1, keys, head], &k), tensor(&[1, keys, head], &v));
            let results = results(&bench, &op, &[&q, &k, &v]);
            let [most, typical] =
                errors(&results.iter().find(|(name, _)| name == "plain").unwrap().1, &exact);
            let mut reached = 0;
            for (name, got) in results.iter().filter(|(name, _)| name != "plain") {
                let [largest, mean] = errors(got, &exact);
                println!("{architecture} {head} {name}: {largest:.2} {mean:.2}, f32 {most:.2} {typical:.2}");
                assert!(
                    largest <= 2.0 * most && mean <= 2.0 * typical,
                    "{architecture} {head} {name}: {largest} {mean}, f32 {most} {typical}"
                );
                reached += 1;
            }
            assert!(reached > 0);
            assert_eq!(results.iter().any(|(name, _)| name.contains("split")), keys > 1000);
        }
    }
}

/// An infinity among the values reaches every query, one among the keys makes no numbers, and the largest number is not one.
#[test]
fn extreme_operands_of_attention_are_those_of_f32() {
    for architecture in [Architecture::AMPERE, Architecture::HOPPER] {
        let Some(bench) = bench(architecture) else { return };
        for (head, keys) in [(40, 70), (168, 70), (164, 1100)] {
            let queries = 35;
            let mut numbers = Numbers(3);
            let mut q = numbers.many(queries * head, Numbers::next);
            let mut v = numbers.many(keys * head, Numbers::next);
            let k = numbers.many(keys * head, |numbers| numbers.next().abs());
            v[5 * head + 3] = f32::INFINITY;
            v[6 * head + 30] = f32::MAX;
            v[7 * head + 31] = f32::NAN;
            q[9 * head] = f32::INFINITY;
            q[20 * head + 1] = f32::NAN;
            let op = Op::Attention(Attention::over_positions(1, head));
            let (q, k, v) =
                (tensor(&[1, queries, head], &q), tensor(&[1, keys, head], &k), tensor(&[1, keys, head], &v));
            let expected = Reference.run(&op, &[&q, &k, &v]).unwrap()[0].to_f32();
            for (name, got) in results(&bench, &op, &[&q, &k, &v]) {
                for (i, (&expected, &got)) in expected.iter().zip(&got).enumerate() {
                    let same = if expected.is_finite() {
                        (got - expected).abs() <= 1e-5 * expected.abs().max(1.0)
                    } else {
                        got == expected || got.is_nan() && expected.is_nan()
                    };
                    assert!(
                        same,
                        "{architecture} {name} of {head}, element {i}: expected {expected}, got {got}"
                    );
                }
            }
        }
    }
}

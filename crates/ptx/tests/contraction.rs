//! Contraction: sums and products without rounding modifiers are rounded once where the assembler may do so, and only there, and only
//! if it is asked for.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use half::{bf16, f16};
use kinora_ptx::{Argument, Checks, LaunchConfig, Module, Simulator};
use support::{compile, profile, random};

/// Runs a body on three numbers a lane of a type, `%f1` to `%f3`; the result is `%f0`. Also returns how many sums were contracted.
fn run<const BYTES: usize>(
    kind: &str,
    body: &str,
    operands: &[[[u8; BYTES]; 3]],
    contract: bool,
) -> (Vec<[u8; BYTES]>, usize) {
    let register = if BYTES == 2 { "b16" } else { kind };
    let text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {{
        .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .{register} %f<9>;
        ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, {};
        add.s64 %rd1, %rd1, %rd3; mul.wide.u32 %rd3, %r1, {BYTES}; add.s64 %rd2, %rd2, %rd3;
        ld.global.{register} %f1, [%rd1]; ld.global.{register} %f2, [%rd1+{BYTES}];
        ld.global.{register} %f3, [%rd1+{}];
        setp.lt.u32 %p1, %r1, 1000; setp.lt.u32 %p2, %r1, 1000;
        {body}
        st.global.{register} [%rd2], %f0; ret; }}",
        3 * BYTES,
        2 * BYTES,
    );
    let mut simulator = Simulator::new(profile("90")).with_checks(Checks { contract, ..Checks::default() });
    let module = Module::load(&mut simulator, &text).unwrap_or_else(|error| panic!("{body}: {error}"));
    let bytes: Vec<u8> = operands.iter().flatten().flatten().copied().collect();
    let x = simulator.upload(&bytes).unwrap();
    let y = simulator.allocate(BYTES * operands.len()).unwrap();
    let config = LaunchConfig::new(1, operands.len() as u32, vec![Argument::U64(x), Argument::U64(y)]);
    let report = simulator.launch(&module, "k", &config).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.findings.is_empty(), "{body}: {:?}", report.findings);
    let mut out = vec![0; BYTES * operands.len()];
    simulator.copy_out(y, &mut out).unwrap();
    (out.as_chunks().0.to_vec(), module.contractions("k").unwrap().len())
}

/// Three numbers a lane with all their digits, whose product and sum are of one size, so that what is rounded away matters.
fn numbers() -> Vec<[f64; 3]> {
    let digits = random(3 * 256, 3);
    let more = random(3 * 256, 4);
    let number = |i: usize| 1.0 + f64::from(digits[i]) / 3.0 + f64::from(more[i]) / 3e4;
    (0..256).map(|i| [number(i), -number(256 + i), number(512 + i) * number(i)]).collect()
}

fn singles() -> Vec<[f32; 3]> {
    numbers().iter().map(|three| three.map(|number| number as f32)).collect()
}

/// The results of a body in f32, with or without contraction, and how many sums were contracted.
fn in_f32(body: &str, contract: bool) -> (Vec<f32>, usize) {
    let operands: Vec<_> = singles().iter().map(|three| three.map(f32::to_le_bytes)).collect();
    let (results, count) = run("f32", body, &operands, contract);
    (results.into_iter().map(f32::from_le_bytes).collect(), count)
}

/// Asserts that a body in f32 gives this, and that it gives other numbers if contraction is the other way around.
fn check(body: &str, apart: impl Fn(f32, f32, f32) -> f32, contracted: impl Fn(f32, f32, f32) -> f32) {
    let (without, none) = in_f32(body, false);
    let (with, one) = in_f32(body, true);
    assert_eq!((none, one), (0, 1), "{body}");
    let mut differ = 0;
    for (i, [a, b, c]) in singles().into_iter().enumerate() {
        assert_eq!(without[i], apart(a, b, c), "{body} of {a}, {b}, {c}");
        assert_eq!(with[i], contracted(a, b, c), "{body} of {a}, {b}, {c}");
        differ += usize::from(without[i] != with[i]);
    }
    assert!(differ > 100, "{body}: only {differ} results differ");
}

/// Asserts that contraction changes nothing.
fn check_apart(body: &str) {
    let (without, with) = (in_f32(body, false), in_f32(body, true));
    assert_eq!(with.1, 0, "{body}");
    assert_eq!(without, with, "{body}");
}

#[test]
fn sums_and_differences_in_every_order() {
    check("mul.f32 %f4, %f1, %f2; add.f32 %f0, %f4, %f3;", |a, b, c| a * b + c, f32::mul_add);
    check("mul.f32 %f4, %f1, %f2; add.f32 %f0, %f3, %f4;", |a, b, c| c + a * b, f32::mul_add);
    check(
        "neg.f32 %f2, %f2; mul.f32 %f4, %f1, %f2; sub.f32 %f0, %f4, %f3;",
        |a, b, c| a * -b - c,
        |a, b, c| a.mul_add(-b, -c),
    );
    check(
        "neg.f32 %f2, %f2; mul.f32 %f4, %f1, %f2; sub.f32 %f0, %f3, %f4;",
        |a, b, c| c - a * -b,
        f32::mul_add,
    );
    // A factor that is a constant, and a result that is an operand.
    check(
        "mul.f32 %f4, %f2, 0f3FAAAAAB; add.f32 %f4, %f4, %f3; mov.f32 %f0, %f4;",
        |_, b, c| b * 1.333_333_4 + c,
        |_, b, c| b.mul_add(1.333_333_4, c),
    );
    // Where both are products, the first.
    check(
        "mul.f32 %f4, %f1, %f2; mul.f32 %f5, %f3, %f3; add.f32 %f0, %f4, %f5;",
        |a, b, c| a * b + c * c,
        |a, b, c| a.mul_add(b, c * c),
    );
}

/// The product is read by something else as well, which gets it as it is.
#[test]
fn a_product_that_is_read_again_is_rounded_there() {
    let body = "mul.f32 %f4, %f1, %f2; sub.f32 %f5, %f4, %f3; add.f32 %f6, %f5, %f3; mov.f32 %f0, %f4;";
    let (with, count) = in_f32(body, true);
    assert_eq!(count, 1);
    for ([a, b, _], got) in singles().into_iter().zip(with) {
        assert_eq!(got, a * b);
    }
}

#[test]
fn what_has_a_rounding_modifier_is_left_apart() {
    check_apart("mul.rn.f32 %f4, %f1, %f2; add.f32 %f0, %f4, %f3;");
    check_apart("mul.f32 %f4, %f1, %f2; add.rn.f32 %f0, %f4, %f3;");
    check_apart("mul.rn.f32 %f4, %f1, %f2; sub.rn.f32 %f0, %f3, %f4;");
    check_apart("mul.rz.f32 %f4, %f1, %f2; add.f32 %f0, %f4, %f3;");
    check_apart("mul.f32 %f4, %f1, %f2; add.rz.f32 %f0, %f4, %f3;");
    // Other modifiers that do not go together.
    check_apart("mul.sat.f32 %f4, %f1, %f2; add.f32 %f0, %f4, %f3;");
    check_apart("mul.ftz.f32 %f4, %f1, %f2; add.f32 %f0, %f4, %f3;");
    check_apart("mul.f32 %f4, %f1, %f2; max.f32 %f0, %f4, %f3;");
}

#[test]
fn registers_must_hold_what_they_held() {
    // A factor, or the product, is something else by then.
    check_apart("mul.f32 %f4, %f1, %f2; mov.f32 %f1, %f3; add.f32 %f0, %f4, %f3;");
    check_apart("mul.f32 %f4, %f1, %f2; mov.f32 %f2, %f3; sub.f32 %f0, %f3, %f4;");
    check_apart("mul.f32 %f4, %f1, %f2; mov.f32 %f4, %f1; add.f32 %f0, %f4, %f3;");
    check_apart("mul.f32 %f1, %f1, %f2; add.f32 %f0, %f1, %f3;");
    check_apart("mul.f32 %f4, %f1, %f2; @%p1 mov.f32 %f1, %f3; add.f32 %f0, %f4, %f3;");
    // The addend may change as it likes.
    check(
        "mul.f32 %f4, %f1, %f2; mov.f32 %f3, %f1; add.f32 %f0, %f4, %f3;",
        |a, b, _| a * b + a,
        |a, b, _| a.mul_add(b, a),
    );
}

#[test]
fn only_within_a_block() {
    check_apart("mul.f32 %f4, %f1, %f2; bra next; next: add.f32 %f0, %f4, %f3;");
    check_apart(
        "mov.f32 %f0, %f3; mul.f32 %f4, %f1, %f2; @%p1 bra next; mov.f32 %f0, %f1; next: add.f32 %f0, %f4, %f3;",
    );
}

#[test]
fn predicates_must_be_the_same() {
    let both = |mul: &str, add: &str, between: &str| {
        format!(
            "mov.f32 %f4, %f1; mov.f32 %f0, %f1; {mul} mul.f32 %f4, %f1, %f2; {between} {add} add.f32 %f0, %f4, %f3;"
        )
    };
    check(&both("@%p1", "@%p1", ""), |a, b, c| a * b + c, f32::mul_add);
    check_apart(&both("@%p1", "@%p2", ""));
    check_apart(&both("@%p1", "@!%p1", ""));
    check_apart(&both("@%p1", "", ""));
    check_apart(&both("", "@%p1", ""));
    check_apart(&both("@%p1", "@%p1", "setp.lt.u32 %p1, %r1, 100;"));
}

#[test]
fn f64_is_contracted_as_well() {
    for (body, contracted) in [
        ("mul.f64 %f4, %f1, %f2; add.f64 %f0, %f4, %f3;", [1.0, 1.0]),
        ("mul.f64 %f4, %f1, %f2; sub.f64 %f0, %f4, %f3;", [1.0, -1.0]),
        ("mul.f64 %f4, %f1, %f2; sub.f64 %f0, %f3, %f4;", [-1.0, 1.0]),
        ("mul.rn.f64 %f4, %f1, %f2; sub.f64 %f0, %f3, %f4;", [0.0, 0.0]),
    ] {
        let operands: Vec<_> = numbers().iter().map(|three| three.map(f64::to_le_bytes)).collect();
        let [without, with] = [false, true].map(|contract| {
            run("f64", body, &operands, contract).0.into_iter().map(f64::from_le_bytes).collect::<Vec<_>>()
        });
        if contracted == [0.0; 2] {
            assert_eq!(without, with);
            continue;
        }
        let [product, addend] = contracted;
        for ([a, b, c], (without, with)) in numbers().into_iter().zip(without.iter().zip(&with)) {
            assert_eq!(*without, product * (a * b) + addend * c, "{body}");
            assert_eq!(*with, (product * a).mul_add(b, addend * c), "{body}");
        }
        assert_ne!(without, with);
    }
}

/// In the formats of 16 bits products are exact in f32 and nearly all sums in f64, from which Rust rounds once.
#[test]
fn halves_are_contracted_as_well() {
    type Round = fn(f64) -> [u8; 2];
    let f16_round: Round = |x| f16::from_f64(x).to_le_bytes();
    let bf16_round: Round = |x| bf16::from_f64(x).to_le_bytes();
    let f16_value: fn([u8; 2]) -> f64 = |x| f16::from_le_bytes(x).to_f64();
    let bf16_value: fn([u8; 2]) -> f64 = |x| bf16::from_le_bytes(x).to_f64();
    for (kind, round, value) in [("f16", f16_round, f16_value), ("bf16", bf16_round, bf16_value)] {
        let operands: Vec<_> = numbers().iter().map(|three| three.map(round)).collect();
        for (sum, signs) in [
            ("add.KIND %f0, %f4, %f3", [1.0, 1.0]),
            ("sub.KIND %f0, %f4, %f3", [1.0, -1.0]),
            ("sub.KIND %f0, %f3, %f4", [-1.0, 1.0]),
        ] {
            let body = format!("mul.KIND %f4, %f1, %f2; {sum};").replace("KIND", kind);
            let without = run(kind, &body, &operands, false).0;
            let with = run(kind, &body, &operands, true).0;
            for (three, (without, with)) in operands.iter().zip(without.iter().zip(&with)) {
                let [a, b, c] = three.map(value);
                let product = value(round(a * b));
                assert_eq!(*without, round(signs[0] * product + signs[1] * c), "{body}");
                assert_eq!(*with, round(signs[0] * a * b + signs[1] * c), "{body}");
            }
            assert_ne!(without, with, "{body}");
        }
    }
}

/// Subnormal factors and sums are flushed before and after, as both instructions ask for.
#[test]
fn flushing_is_kept() {
    let body = "mul.ftz.f32 %f4, %f1, %f2; add.ftz.f32 %f0, %f4, %f3;";
    let tiny = f32::MIN_POSITIVE;
    let rows =
        [[tiny / 2.0, 3.0, 1.0], [tiny, 0.75, tiny], [tiny, -1.5, tiny * 1.75], [1.5, 1.25, tiny / 4.0]];
    let operands: Vec<_> = rows.iter().map(|three| three.map(f32::to_le_bytes)).collect();
    let (results, count) = run("f32", body, &operands, true);
    let results: Vec<f32> = results.into_iter().map(f32::from_le_bytes).collect();
    assert_eq!((results, count), (vec![1.0, 1.75 * tiny, 0.0, 1.875], 1));
}

/// The two parts of each number, as a kernel in CUDA computes them.
fn split(product: &str, contract: bool) -> Option<Vec<[f32; 3]>> {
    let source = format!(
        "#define KERNEL extern \"C\" __global__ void k(const float *x, float *large, float *small)
         KERNEL {{
            float a = x[threadIdx.x];
            {product}
            large[threadIdx.x] = l;
            small[threadIdx.x] = a - l;
         }}"
    );
    let ptx = compile("split.cu", &source, "", "90")?;
    let mut simulator = Simulator::new(profile("90")).with_checks(Checks { contract, ..Checks::default() });
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let numbers: Vec<f32> = singles().iter().map(|three| three[0]).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let x = simulator.upload(&bytes).unwrap();
    let parts = [(); 2].map(|()| simulator.allocate(4 * numbers.len()).unwrap());
    let arguments = vec![Argument::U64(x), Argument::U64(parts[0]), Argument::U64(parts[1])];
    let config = LaunchConfig::new(1, numbers.len() as u32, arguments);
    let report = simulator.launch(&module, "k", &config).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let [large, small] = parts.map(|part| {
        let mut bytes = vec![0; 4 * numbers.len()];
        simulator.copy_out(part, &mut bytes).unwrap();
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>()
    });
    let lines = module.contractions("k").unwrap();
    // The line that the sums are in.
    assert!(
        lines.iter().all(|(source, _)| source.as_ref().is_some_and(|source| source.line == 4)),
        "{lines:?}"
    );
    Some((0..numbers.len()).map(|i| [numbers[i], large[i], small[i]]).collect())
}

/// Dekker's split of a number into two of 12 and 11 digits: on an H200, the second part of the first kernel is zero.
#[test]
fn a_split_in_two_parts_falls_to_contraction() {
    let plain = "float wide = a * 8193.0f; float l = wide - (wide - a);";
    let apart = "float wide = __fmul_rn(a, 8193.0f); float l = __fsub_rn(wide, __fsub_rn(wide, a));";
    let short = |x: f32| x.to_bits().trailing_zeros() >= 12 || x == 0.0;
    for (kernel, contract, splits) in
        [(plain, false, true), (plain, true, false), (apart, false, true), (apart, true, true)]
    {
        let Some(parts) = split(kernel, contract) else { return };
        for &[x, large, small] in &parts {
            assert_eq!(large + small, x);
            if splits {
                assert!(short(large), "{kernel}: {x} is {large} + {small}");
            } else {
                assert_eq!(small, 0.0, "{kernel}: {x}");
            }
        }
        assert_eq!(parts.iter().filter(|parts| parts[2] != 0.0).count() > 200, splits, "{kernel}");
    }
}

/// A sum of products is nearer to that in f64, because each product loses nothing.
#[test]
fn a_sum_of_products_is_nearer() {
    let step = "mul.f32 %f4, %f1, %f2; add.f32 %f0, %f0, %f4; mul.f32 %f5, %f3, %f2; add.f32 %f0, %f0, %f5; \
                mul.f32 %f6, %f3, %f3; add.f32 %f0, %f0, %f6;";
    let body = format!("mov.f32 %f0, 0f00000000; {step}");
    let error = |contract: bool| {
        let (results, _) = in_f32(&body, contract);
        let errors = results.into_iter().zip(singles()).map(|(got, three)| {
            let [a, b, c] = three.map(f64::from);
            (f64::from(got) - (a * b + c * b + c * c)).powi(2)
        });
        errors.sum::<f64>()
    };
    let (without, with) = (error(false), error(true));
    assert!(with < 0.7 * without, "{with:e} and {without:e}");
}

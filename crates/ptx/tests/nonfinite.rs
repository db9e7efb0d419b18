//! Kernels that produce infinities and NaNs: the check must find the line where they originate, and nothing where they are only
//! propagated.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{Argument, Checks, Finding, FindingKind, LaunchConfig, Module, Simulator};
use support::{compile, profile};

const HEAD: &str = r#"
#define KERNEL extern "C" __global__ void k(const float *x, float *y)
typedef unsigned u32;
__device__ u32 halves(float upper, float lower) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(upper), "f"(lower));
    return d;
}
__device__ u32 brains(float upper, float lower) {
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(upper), "f"(lower));
    return d;
}
"#;

/// The findings of a kernel of 32 threads, each with its own number, and the line that ends in `// HERE`.
fn run(body: &str, x: &[f32; 32], nonfinite: bool) -> Option<(Vec<Finding>, u32)> {
    let source = format!("{HEAD}{body}");
    let ptx = compile("nonfinite.cu", &source, "", "80")?;
    let mut simulator = Simulator::new(profile("80")).with_checks(Checks { nonfinite, ..Checks::default() });
    let module = Module::load(&mut simulator, &ptx).unwrap_or_else(|error| panic!("{error}"));
    let bytes: Vec<u8> = x.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (x, y) = (simulator.upload(&bytes).unwrap(), simulator.allocate(128).unwrap());
    let config = LaunchConfig::new(1, 32, vec![Argument::U64(x), Argument::U64(y)]);
    let report = simulator.launch(&module, "k", &config).unwrap_or_else(|error| panic!("{error}"));
    let line = source.lines().zip(1..).find(|(line, _)| line.ends_with("// HERE")).map(|(_, number)| number);
    Some((report.findings, line.unwrap()))
}

/// Asserts that a number of lane 5 leads to a finding at the line, and that 1, NaN and infinity do not.
fn found(body: &str, culprit: f32) {
    let mut x = [1.0; 32];
    for innocent in [1.0, f32::NAN, f32::INFINITY] {
        x[5] = innocent;
        let Some((findings, _)) = run(body, &x, true) else { return };
        assert!(findings.is_empty(), "{innocent}: {findings:?}");
    }
    x[5] = culprit;
    let Some((findings, line)) = run(body, &x, true) else { return };
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.kind, FindingKind::NotFinite);
    let at = [&finding.source, &finding.called_at];
    assert!(at.into_iter().flatten().any(|source| source.line == line), "{finding}");
    assert!(finding.message.contains("inf") || finding.message.contains("NaN"), "{finding}");
    let Some((findings, _)) = run(body, &x, false) else { return };
    assert!(findings.is_empty(), "nobody asked: {findings:?}");
}

#[test]
fn a_quotient() {
    found("KERNEL {\n y[threadIdx.x] = 1.0f / x[threadIdx.x]; // HERE\n}", 0.0);
}

#[test]
fn a_product_that_overflows() {
    found("KERNEL {\n float v = x[threadIdx.x];\n y[threadIdx.x] = v * v; // HERE\n}", 1e30);
}

#[test]
fn a_root_of_a_negative_number() {
    found("KERNEL {\n y[threadIdx.x] = __fsqrt_rn(x[threadIdx.x]); // HERE\n}", -1.0);
}

#[test]
fn a_conversion_that_overflows() {
    found("KERNEL {\n y[threadIdx.x] = halves(x[threadIdx.x], 1.0f); // HERE\n}", 7e4);
}

#[test]
fn either_of_two_halves() {
    for operands in ["v, 1.0f", "1.0f, v"] {
        let body = format!(
            "KERNEL {{\n float v = x[threadIdx.x];\n u32 h = halves({operands}), d;\n\
             asm(\"mul.rn.f16x2 %0, %1, %1;\" : \"=r\"(d) : \"r\"(h)); // HERE\n\
             y[threadIdx.x] = d;\n}}"
        );
        found(&body, 3e4);
    }
}

#[test]
fn a_matrix_product() {
    // Row 1, depth 2 of a is lane 5's.
    let body = r#"KERNEL {
        u32 a = brains(1.0f, x[threadIdx.x]), b = brains(1e37f, 1e37f);
        float d0, d1, d2, d3;
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4}, {%5}, {%6, %6, %6, %6};"
            : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3) : "r"(a), "r"(b), "f"(0.0f)); // HERE
        y[threadIdx.x] = d0;
    }"#;
    let mut x = [1.0; 32];
    x[5] = 1e38;
    let Some((findings, _)) = run(body, &x, true) else { return };
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert!(finding.kind == FindingKind::NotFinite && finding.message.contains("row 1"), "{finding}");
    for innocent in [1.0, f32::NAN, f32::INFINITY] {
        x[5] = innocent;
        let Some((findings, _)) = run(body, &x, true) else { return };
        assert!(findings.is_empty(), "{innocent}: {findings:?}");
    }
}

/// What happens in a softmax over a fully masked row: no operand is NaN, and none is finite.
#[test]
fn a_difference_of_infinities() {
    let body =
        "KERNEL {\n float v = x[threadIdx.x];\n y[threadIdx.x] = v - __shfl_sync(~0u, v, 5); // HERE\n}";
    let mut x = [1.0; 32];
    x[5] = f32::NEG_INFINITY;
    let Some((findings, line)) = run(body, &x, true) else { return };
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.source.as_ref().map(|source| source.line), Some(line), "{finding}");
    assert!(finding.thread == [5, 0, 0] && finding.message.starts_with("produces NaN"), "{finding}");
}

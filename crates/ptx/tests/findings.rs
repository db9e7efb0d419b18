//! How findings are told: names, places, ranges, and the words of NVIDIA's tools.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use kinora_ptx::{Argument, ChipSpec, Finding, FindingKind, LaunchConfig, Module, PtxError, Simulator};
use support::compile;

/// Runs the kernel of a source that takes 64 integers to read and 64 to write.
fn run(source: &str, kernel: &str, blocks: u32, threads: u32) -> Option<Vec<Finding>> {
    let ptx = compile("told.cu", source, "", "80")?;
    let mut simulator = Simulator::new(ChipSpec::a100());
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let x = simulator.upload(&[1; 256]).unwrap();
    let y = simulator.allocate(256).unwrap();
    let config = LaunchConfig::new(blocks, threads, vec![Argument::U64(x), Argument::U64(y)]);
    Some(simulator.launch(&module, kernel, &config).unwrap().findings)
}

fn of(findings: &[Finding], kind: FindingKind) -> &Finding {
    findings
        .iter()
        .find(|finding| finding.kind == kind)
        .unwrap_or_else(|| panic!("no {kind:?}: {findings:?}"))
}

#[test]
fn kernels_are_called_as_in_cpp() {
    let source = "namespace ns { template <typename T, int N> __global__ void copy(const T *x, T *y) {
            y[threadIdx.x] = x[threadIdx.x + N]; }
        template __global__ void copy<float, 0>(const float *, float *);
        template __global__ void copy<float, 64>(const float *, float *); }
        __global__ void other(const int *x, int *y) { y[0] = x[0]; }
        extern \"C\" __global__ void plain(const int *x, int *y) { y[0] = x[0]; }";
    let Some(ptx) = compile("names.cu", source, "", "80") else { return };
    let mut simulator = Simulator::new(ChipSpec::a100());
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let is = |called: &str, name: &str| assert_eq!(module.find(called).unwrap(), name, "{called}");
    let copy = "_ZN2ns4copyIfLi64EEEvPKT_PS1_";
    for called in
        [copy, "copy<float, 64>", "ns::copy<float,64>", "void ns::copy<float, 64>(const float*, float *)"]
    {
        is(called, copy);
    }
    is("other", "_Z5otherPKiPi");
    is("plain", "plain");
    assert_eq!(module.function("other").unwrap(), "other(const int*, int*)");
    assert_eq!(module.function("plain").unwrap(), "plain");
    match module.find("copy") {
        Err(PtxError::SeveralKernels { there, .. }) => assert_eq!(there.len(), 2, "{there:?}"),
        other => panic!("{other:?}"),
    }
    for wrong in ["", " ", "opy<float, 64>", "copy<float>", "ns"] {
        let error = module.find(wrong).unwrap_err();
        assert!(error.to_string().contains("other(const int*, int*)"), "{error}");
    }
    let Some(findings) = run(source, "copy<float, 64>", 2, 64) else { return };
    let finding = of(&findings, FindingKind::OutOfBounds);
    assert_eq!(finding.kernel, copy);
    assert_eq!(finding.function, "void ns::copy<float, 64>(const float*, float*)");
    assert!(finding.to_string().contains(&finding.function), "{finding}");
}

#[test]
fn a_finding_says_which_blocks_and_threads_it_concerns() {
    let source = "extern \"C\" __global__ void k(const int *x, int *y) {
        int i = blockIdx.x * 24 + threadIdx.x;
        if (threadIdx.x < 24) y[i] = x[i]; }";
    // Blocks of 24: the third one reaches 72 of 64.
    let Some(findings) = run(source, "k", 4, 32) else { return };
    let finding = of(&findings, FindingKind::OutOfBounds);
    assert_eq!((finding.block, finding.thread), ([2, 0, 0], [16, 0, 0]));
    assert_eq!((finding.blocks, finding.count), ([[2, 0, 0], [3, 0, 0]], 8 + 24));
    assert_eq!(finding.threads, [[0, 0, 0], [23, 0, 0]]);
    let text = finding.to_string();
    assert!(
        text.contains("32 times, blocks (2, 0, 0) to (3, 0, 0), threads (0, 0, 0) to (23, 0, 0)"),
        "{text}"
    );
    assert!(text.contains("[Invalid __global__ read of size 4 bytes, address is out of bounds]"), "{text}");
}

#[test]
fn the_words_of_compute_sanitizer_are_there() {
    let kernel = |body: &str| {
        format!(
            "extern \"C\" __global__ void k(const int *x, int *y) {{ __shared__ int s[64]; int t = threadIdx.x; {body} }}"
        )
    };
    for (body, kind, words) in [
        ("y[t + 64] = 0;", FindingKind::OutOfBounds, "Invalid __global__ write of size 4 bytes"),
        ("atomicAdd(y + 64, 1);", FindingKind::OutOfBounds, "Invalid __global__ atomic of size 4 bytes"),
        (
            "y[t] = ((const int *)((const char *)x + 2))[t % 8];",
            FindingKind::Misaligned,
            "Invalid __global__ read of size 4 bytes, address is misaligned",
        ),
        (
            "s[t] = y[t]; y[t] = s[t];",
            FindingKind::Uninitialised,
            "Uninitialized __global__ memory read of size 4",
        ),
        ("y[t] = s[t];", FindingKind::Uninitialised, "Uninitialized __shared__ memory read of size 4 bytes"),
        (
            "if (t < 32) s[t] = t; y[t] = s[t % 32];",
            FindingKind::Race,
            "Potential RAW hazard detected at __shared__ 0x",
        ),
        (
            "s[t] = t; __syncthreads(); y[t] = s[t]; s[63 - t] = 1; __syncthreads(); y[t] += s[t];",
            FindingKind::Race,
            "Potential WAR hazard detected at __shared__ 0x",
        ),
        (
            "s[t / 2] = t; __syncthreads(); y[t] = s[t / 2];",
            FindingKind::Race,
            "Potential WAW hazard detected at __shared__ 0x",
        ),
    ] {
        let Some(findings) = run(&kernel(body), "k", 1, 64) else { return };
        let told = |finding: &Finding| {
            finding.kind == kind && finding.sanitizer.iter().any(|told| told.starts_with(words))
        };
        assert!(findings.iter().any(told), "{body}: {findings:?}");
    }
}

//! `printf`, `assert` and `__trap` in CUDA C++, and what other compilers make of them.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::sync::{Arc, Mutex};

use kinora_ptx::{
    Argument, ChipSpec, DeviceLimits, FindingKind, LaunchConfig, Module, PredictOptions, Report, Simulator,
};
use support::{compile, pointer, profile};

/// Runs `k(const int *x, int n)` with `x` from 0 to 31.
fn run(source: &str, blocks: u32, threads: u32, n: u32, limits: DeviceLimits) -> Option<Report> {
    let ptx = compile("printf.cu", source, "", "80")?;
    let mut simulator = Simulator::new(profile("80")).with_limits(limits);
    let module = Module::load(&mut simulator, &ptx).unwrap_or_else(|error| panic!("{error}"));
    let x = simulator.upload(&(0..32u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    let config = LaunchConfig::new(blocks, threads, vec![pointer(x), Argument::U32(n)]);
    Some(simulator.launch(&module, "k", &config).unwrap_or_else(|error| panic!("{error}")))
}

/// The same, without findings.
fn printed(source: &str, blocks: u32, threads: u32) -> Option<String> {
    let report = run(source, blocks, threads, 3, DeviceLimits::default())?;
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    Some(report.printf.text)
}

/// Every expectation is what C's `printf` prints.
#[test]
fn every_kind_of_argument() {
    let source = r#"
        extern "C" __global__ void k(const int *x, int n) {
            long long big = -(1ll << 40);
            float f = 2.5f;
            short s = -7;
            unsigned char c = 250;
            printf("%d|%5d|%-5d|%05d|%+d\n", n, n, n, n, n);
            printf("%u %x %#X %o %lld %llu %llx\n", -1, 255, 255, 8, big, big, 1ull << 63);
            printf("%f %.2f %10.3f|%e %g %G\n", f, 1.0 / 3, -2.0 / 3, 12345.678, 1e-10, 1e20);
            printf("%s and %s, %.3s, %8s|\n", "text", (const char *)0, "abcdef", "right");
            printf("%c%c%c %hd %hhu %%\n", 'a', 66, n + 64, s, c);
            printf("%*d %-*d| %.*f\n", 6, n, 4, n, 2, 3.14159);
            printf("%p %p\n", (void *)0x1234abcd, (void *)0);
            printf("no arguments\n");
            printf("%a %zu %ld %i\n", 0.5, sizeof(int), (long)n, n);
        }"#;
    let Some(text) = printed(source, 1, 1) else { return };
    let expected = "3|    3|3    |00003|+3\n\
                    4294967295 ff 0XFF 10 -1099511627776 18446742974197923840 8000000000000000\n\
                    2.500000 0.33     -0.667|1.234568e+04 1e-10 1E+20\n\
                    text and (null), abc,    right|\n\
                    aBC -7 250 %\n     3 3   | 3.14\n0x1234abcd (nil)\nno arguments\n0x1p-1 4 3 3\n";
    assert_eq!(text, expected);
}

#[test]
fn blocks_print_in_order_and_lanes_too() {
    let source = r#"
        extern "C" __global__ void k(const int *x, int n) {
            if (x[threadIdx.x & 31] % 3 == 0) printf("block %d thread %d\n", blockIdx.x, threadIdx.x);
            __syncthreads();
            if (threadIdx.x == 0) printf("end of %d\n", blockIdx.x);
        }"#;
    let Some(text) = printed(source, 50, 8) else { return };
    let block = |b: u32| format!("block {b} thread 0\nblock {b} thread 3\nblock {b} thread 6\nend of {b}\n");
    assert_eq!(text, (0..50).map(block).collect::<String>());
}

#[test]
fn the_result_is_the_number_of_arguments() {
    let source = r#"
        extern "C" __global__ void k(const int *x, int n) {
            int none = printf("a\n"), three = printf("%d %*d\n", 1, 2, 3);
            printf("%d %d\n", none, three);
        }"#;
    let Some(text) = printed(source, 1, 1) else { return };
    assert_eq!(text, "a\n1  3\n0 3\n");
}

#[test]
fn formats_and_texts_in_any_memory() {
    let source = r#"
        __device__ char format[] = "%s %d\n";
        extern "C" __global__ void k(const int *x, int n) {
            __shared__ char text[4];
            char own[3] = { (char)('x' + n - 3), 'y', 0 };
            text[0] = 's'; text[1] = 'h'; text[2] = 0; text[3] = 0;
            printf(format, text, 1);
            printf(format, own, 2);
        }"#;
    let Some(text) = printed(source, 1, 1) else { return };
    assert_eq!(text, "sh 1\nxy 2\n");
}

#[test]
fn malformed_formats_and_arguments_are_no_crash() {
    let source = r#"
        extern "C" __global__ void k(const int *x, int n) {
            printf("%y %", 1);
            printf("%d %d %d %d %d %d %d %d %d\n", 1);
            printf((const char *)x, 1);
            printf((const char *)8, 1);
            printf("%s\n", (const char *)1);
            printf("%999999999d|%.999999999f\n", n, 1.0);
        }"#;
    let Some(report) = run(source, 1, 1, 3, DeviceLimits::default()) else { return };
    assert!(report.printf.text.starts_with("%y %"), "{:?}", report.printf.text.get(..100));
    assert!(
        report.findings.iter().all(|finding| finding.kind == FindingKind::OutOfBounds),
        "{:?}",
        report.findings
    );
    assert!(report.findings.len() >= 2, "{:?}", report.findings);
}

#[test]
fn text_beyond_the_limit_is_dropped_and_counted() {
    let source = r#"
        extern "C" __global__ void k(const int *x, int n) { printf("0123456 %2d\n", blockIdx.x); }"#;
    let limits = DeviceLimits { printf_bytes: 40, ..DeviceLimits::default() };
    let Some(report) = run(source, 10, 1, 3, limits) else { return };
    assert_eq!(report.printf.text, "0123456  0\n0123456  1\n0123456  2\n");
    assert_eq!((report.printf.dropped_calls, report.printf.dropped_bytes), (7, 77));
}

#[test]
fn text_comes_as_it_is_printed() {
    let source = r#"
        extern "C" __global__ void k(const int *x, int n) { printf("%d\n", threadIdx.x); }"#;
    let Some(ptx) = compile("printf.cu", source, "", "80") else { return };
    let seen = Arc::new(Mutex::new(String::new()));
    let mine = Arc::clone(&seen);
    let mut simulator =
        Simulator::new(profile("80")).with_output(move |text| mine.lock().unwrap().push_str(text));
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let config = LaunchConfig::new(1, 4, vec![Argument::U64(0), Argument::U32(0)]);
    let report = simulator.launch(&module, "k", &config).unwrap();
    assert_eq!(*seen.lock().unwrap(), "0\n1\n2\n3\n");
    assert_eq!(report.printf.text, "0\n1\n2\n3\n");
    // A prediction prints nothing, and takes the time of the calls.
    assert!(simulator.predict(&module, "k", &config, &PredictOptions::default()).is_ok());
    assert_eq!(seen.lock().unwrap().len(), 8);
}

#[test]
fn a_failed_assertion_is_found_at_its_line() {
    let source = r#"
        __device__ int half_of(int n) {
            assert(n % 2 == 0 && "even"); // HERE
            return n / 2;
        }
        extern "C" __global__ void k(const int *x, int n) {
            int all = half_of(x[threadIdx.x] * n);
            printf("%d\n", all);
        }"#;
    let Some(report) = run(source, 2, 32, 2, DeviceLimits::default()) else { return };
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let Some(report) = run(source, 2, 32, 3, DeviceLimits::default()) else { return };
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!(finding.kind, FindingKind::Assert);
    let line = source.lines().position(|line| line.ends_with("// HERE")).unwrap() as u32 + 1;
    assert_eq!(finding.source.as_ref().unwrap().line, line);
    assert_eq!((finding.block, finding.thread, finding.count), ([0, 0, 0], [1, 0, 0], 32));
    for part in ["n % 2 == 0 && \"even\"", &format!("printf.cu:{line}"), "half_of"] {
        assert!(finding.message.contains(part), "{} does not contain {part}", finding.message);
    }
    // Nothing of a block runs after it.
    assert_eq!(report.printf.text, "");
}

#[test]
fn a_trap_is_found() {
    let source = r#"
        extern "C" __global__ void k(const int *x, int n) {
            if (x[threadIdx.x] == n) __trap();
            __syncthreads();
            printf("%d\n", threadIdx.x);
        }"#;
    let Some(report) = run(source, 1, 32, 3, DeviceLimits::default()) else { return };
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((finding.kind, finding.thread), (FindingKind::Trap, [3, 0, 0]));
    let Some(report) = run(source, 1, 32, 99, DeviceLimits::default()) else { return };
    assert_eq!((report.findings.len(), report.printf.text.lines().count()), (0, 32));
}

/// A call whose arguments are in registers, as people write PTX by hand.
#[test]
fn printf_by_hand() {
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func (.param .s32 r) vprintf (.param .b64 f, .param .b64 a);\n\
               .global .b8 text[9] = {37, 100, 32, 37, 46, 49, 102, 10, 0};\n\
               .visible .entry k() {\n.reg .b64 %rd<9>; .reg .b32 %r<4>; .local .align 8 .b8 buf[16];\n\
               mov.u32 %r1, %tid.x; st.local.u32 [buf], %r1; mov.b64 %rd3, 0d3FE8000000000000; st.local.b64 [buf+8], %rd3;\n\
               cvta.local.u64 %rd1, buf; cvta.global.u64 %rd2, text;\n\
               call (%r2), vprintf, (%rd2, %rd1);\ncall (_), vprintf, (%rd2, 0);\nret; }";
    let mut simulator = Simulator::new(ChipSpec::a100());
    let module = Module::load(&mut simulator, ptx).unwrap();
    let report = simulator.launch(&module, "k", &LaunchConfig::new(1, 2, vec![])).unwrap();
    assert_eq!(report.printf.text, "0 0.8\n1 0.8\n");
    // The second call has no arguments to print.
    assert_eq!(report.findings.len(), 1);
}

//! Counters and waits by line, of kernels whose numbers are known by thinking.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use kinora_ptx::{
    Argument, Calibration, Checks, ChipSpec, Counters, InstructionClass, LaunchConfig, LineCounters, Module,
    PredictOptions, Prediction, Report, Simulator, StallReason,
};
use support::compile;

/// A kernel whose every source line does one thing; it has the file's name `k.cu`.
const KERNEL: &str = r#"
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<3>;
    .reg .f64 %d<3>;
    .reg .b64 %rd<8>;
    .shared .align 4 .b8 s[1024];
    .local .align 4 .b8 array[64];
    .loc 1 2 0
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 128;
    add.s64 %rd3, %rd1, %rd3;
    .loc 1 3 0
    ld.global.f32 %f1, [%rd3];
    .loc 1 4 0
    fma.rn.f32 %f1, %f1, %f1, %f1;
    fma.rn.f32 %f1, %f1, %f1, %f1;
    cvt.f64.f32 %d1, %f1;
    add.f64 %d1, %d1, %d1;
    .loc 1 5 0
    shl.b32 %r2, %r1, 3;
    mov.u32 %r3, s;
    add.u32 %r2, %r2, %r3;
    st.shared.f32 [%r2], %f1;
    .loc 1 6 0
    setp.lt.u32 %p1, %r1, 16;
    @%p1 bra done;
    .loc 1 7 0
    red.global.add.u32 [%rd2], 1;
    .loc 1 8 0
    st.local.f32 [array+8], %f1;
    ld.local.f32 %f2, [array+8];
done:
    .loc 1 9 0
    ret;
}
.file 1 "k.cu"
"#;

fn launch(by_line: bool) -> Report {
    let checks = Checks { races: false, by_line, ..Checks::default() };
    let mut simulator = Simulator::new(ChipSpec::a100()).with_checks(checks);
    let module = Module::load(&mut simulator, KERNEL).unwrap();
    let x = simulator.upload(&vec![0; 64 * 128]).unwrap();
    let y = simulator.upload(&[0; 4]).unwrap();
    // Four warps.
    let config = LaunchConfig::new(2, 64, vec![Argument::U64(x), Argument::U64(y)]);
    let report = simulator.launch(&module, "k", &config).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    report
}

fn at(lines: &[LineCounters], line: u32) -> &LineCounters {
    lines.iter().find(|counted| counted.source.as_ref().is_some_and(|source| source.line == line)).unwrap()
}

#[test]
fn every_line_has_its_own_counters() {
    let by_line = launch(true).by_line.unwrap();
    let lines = &by_line.source;
    assert_eq!(lines.len(), 8);
    assert!(lines.iter().all(|line| line.source.as_ref().unwrap().file == "k.cu"));
    let global = at(lines, 3).counters.global_loads;
    assert_eq!((global.requests, global.transactions, global.ideal_transactions), (4, 4 * 32, 4 * 4));
    assert_eq!(at(lines, 2).counters.global_loads.requests, 0);
    let arithmetic = at(lines, 4);
    assert_eq!((arithmetic.flops.single, arithmetic.flops.double, arithmetic.flops.half), (128 * 4, 128, 0));
    assert_eq!(arithmetic.counters.class(InstructionClass::Float), 8);
    assert_eq!(arithmetic.counters.warp_instructions(), 16);
    // Every second word: two wavefronts.
    let shared = at(lines, 5).counters.shared_stores;
    assert_eq!(
        (shared.requests, shared.transactions, shared.ideal_transactions, shared.conflicts),
        (4, 8, 4, 4)
    );
    // The first warp of each block parts.
    let branch = &at(lines, 6).counters;
    assert_eq!((branch.branches, branch.divergent_branches), (4, 2));
    let atomic = &at(lines, 7).counters;
    assert_eq!((atomic.atomics, atomic.global_atomics.requests, atomic.global_atomic_passes), (96, 4, 96));
    assert_eq!(atomic.lane_efficiency(), 0.75);
    // Eight lanes share a sector of local memory.
    let local = &at(lines, 8).counters;
    assert_eq!((local.local_stores.requests, local.local_stores.transactions), (4, 2 * (2 + 4)));
    assert_eq!((local.local_loads.bytes, local.local_load_bytes), (96 * 4, 96 * 4));
    assert_eq!(at(lines, 9).counters.warp_instructions(), 4);
    // Lines of the PTX: each instruction is on its own.
    let store = KERNEL.lines().position(|line| line.contains("st.shared")).unwrap() as u32 + 1;
    let line = by_line.ptx.iter().find(|line| line.ptx_line == store).unwrap();
    assert_eq!(line.counters.shared_stores, shared);
    assert_eq!(line.counters.warp_instructions(), 4);
    assert_eq!(line.source, at(lines, 5).source);
}

#[test]
fn lines_add_up_to_the_launch_and_cost_nothing_if_they_are_not_asked_for() {
    let (plain, by_line) = (launch(false), launch(true));
    assert!(plain.by_line.is_none());
    assert_eq!(plain.counters, by_line.counters);
    let by_line = by_line.by_line.unwrap();
    for lines in [&by_line.source, &by_line.ptx] {
        let sum = |count: fn(&Counters) -> u64| lines.iter().map(|line| count(&line.counters)).sum::<u64>();
        assert_eq!(sum(Counters::warp_instructions), plain.counters.warp_instructions());
        assert_eq!(sum(|counters| counters.thread_instructions), plain.counters.thread_instructions);
        assert_eq!(sum(|counters| counters.thread_flops), plain.counters.thread_flops);
        let flops: u64 = lines.iter().map(|line| line.flops.single + line.flops.double).sum();
        assert_eq!(flops, plain.counters.thread_flops);
    }
    let json = serde_json::to_value(&by_line).unwrap();
    assert_eq!(json["source"][1]["source"]["line"], 3);
    assert_eq!(json["source"][1]["counters"]["global_loads"]["transactions"], 128);
}

/// What a function costs is counted at its own lines.
#[test]
fn lines_of_a_compiled_kernel_are_found() {
    let source = "__device__ __noinline__ float square(const float *x, int i) {\n  return x[32 * i] * x[i];\n}\n\
                  extern \"C\" __global__ void k(const float *x, float *y) {\n  y[threadIdx.x] = square(x, threadIdx.x)\n  \
                  + 1.0f;\n}\n";
    let Some(ptx) = compile("square.cu", source, "", "80") else { return };
    let checks = Checks { by_line: true, ..Checks::default() };
    let mut simulator = Simulator::new(ChipSpec::a100()).with_checks(checks);
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let x = simulator.upload(&vec![0; 4096]).unwrap();
    let y = simulator.allocate(128).unwrap();
    let config = LaunchConfig::new(1, 32, vec![Argument::U64(x), Argument::U64(y)]);
    let report = simulator.launch(&module, "k", &config).unwrap();
    let lines = report.by_line.unwrap().source;
    let loads = at(&lines, 2).counters.global_loads;
    assert_eq!((loads.requests, loads.transactions), (2, 32 + 4));
    assert_eq!(at(&lines, 5).counters.global_stores.requests, 1);
}

fn predict(ptx: &str, threads: u32, by_line: bool) -> Prediction {
    let mut simulator = Simulator::new(ChipSpec::h200());
    let module = Module::load(&mut simulator, ptx).unwrap();
    let x = simulator.reserve(1 << 20);
    let calibration = Calibration { clock: 1.0, ..Calibration::default() };
    let options = PredictOptions { registers: Some(16), calibration, by_line, ..PredictOptions::default() };
    let config = LaunchConfig::new(1, threads, vec![Argument::U64(x)]);
    simulator.predict(&module, "k", &config, &options).unwrap()
}

/// A load, a sum that needs it, a hundred independent multiplications, and a barrier that the first warp reaches late.
const WAITS: &str = r#"
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<3>;
    .loc 1 1 0
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd2, %rd1, %rd2;
    setp.ge.u32 %p1, %r1, 32;
    .loc 1 2 0
    @%p1 bra wait;
    .loc 1 3 0
    ld.global.f32 %f1, [%rd2];
    .loc 1 4 0
    add.f32 %f2, %f1, %f1;
    .loc 1 5 0
    fma.rn.f32 %f2, %f2, %f2, %f2;
    fma.rn.f32 %f2, %f2, %f2, %f2;
    fma.rn.f32 %f2, %f2, %f2, %f2;
    .loc 1 6 0
    st.global.f32 [%rd2], %f2;
wait:
    .loc 1 7 0
    bar.sync 0;
    .loc 1 8 0
    ret;
}
.file 1 "waits.cu"
"#;

#[test]
fn waits_are_where_warps_wait() {
    let one = predict(WAITS, 32, true);
    let lines = one.by_line.as_ref().unwrap();
    let at = |line: u32| {
        lines.source.iter().find(|at| at.line.source.as_ref().is_some_and(|it| it.line == line)).unwrap()
    };
    // A load from DRAM takes 600 clocks, and the sum waits for it.
    let sum = at(4).stalls;
    assert!((500.0..800.0).contains(&sum.reason(StallReason::LongScoreboard)), "{sum:?}");
    assert_eq!(at(3).stalls.exposed, sum.reason(StallReason::LongScoreboard));
    // Each of three multiply-adds waits four clocks for the one before.
    let chain = at(5).stalls;
    let clocks = chain.reason(StallReason::Wait) + chain.reason(StallReason::Selected);
    assert!((11.0..13.0).contains(&clocks), "{chain:?}");
    assert_eq!(at(5).line.flops.single, 32 * 6);
    // The clocks of all lines are those of the one warp.
    let clocks = one.multiprocessor_seconds * ChipSpec::h200().clock_hz;
    for lines in [&lines.source, &lines.ptx] {
        let sum: f64 = lines.iter().map(|line| line.stalls.total()).sum();
        assert!((sum - clocks).abs() < 1e-6 * clocks, "{sum} of {clocks}");
    }
    // Asking for lines changes no prediction.
    let plain = predict(WAITS, 32, false);
    assert!(plain.by_line.is_none());
    assert_eq!((plain.seconds, plain.counters), (one.seconds, one.counters));
    assert!(serde_json::to_string(&one).unwrap().contains("long_scoreboard"));
}

#[test]
fn the_warps_that_come_early_wait_at_the_barrier() {
    let four = predict(WAITS, 128, true).by_line.unwrap();
    let at = |line: u32| {
        four.source
            .iter()
            .find(|at| at.line.source.as_ref().is_some_and(|it| it.line == line))
            .unwrap()
            .stalls
    };
    // Three of four warps wait for the load of the first.
    let (load, barrier) = (at(4).reason(StallReason::LongScoreboard), at(7).reason(StallReason::Barrier));
    assert!(barrier > 2.5 * load && barrier < 4.0 * load, "{barrier} and {load}");
    assert_eq!(at(4).reason(StallReason::Barrier), 0.0);
}

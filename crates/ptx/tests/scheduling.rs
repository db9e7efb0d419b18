//! The order in which blocks run: the same verdict and the same bits whatever the host does, blocks that wait for each other, and
//! kernels that are stuck.

#![allow(clippy::unwrap_used, reason = "what fails ends the test")]

mod support;

use std::{sync::Arc, time::Instant};

use kinora_ptx::{
    Argument, Checks, FindingKind, LaunchConfig, Module, Progress, PtxError, Report, Simulator,
};
use support::{compile, profile};

/// Kernels take 1024 numbers to read, 1024 zeros to write, and 64 counters of zero.
struct Launch {
    simulator: Simulator,
    module: Module,
    config: LaunchConfig,
    y: u64,
}

impl Launch {
    fn new(source: &str, checks: Checks, grid: u32, block: u32) -> Option<Launch> {
        let head = "#define KERNEL extern \"C\" __global__ void k(const int *x, int *y, int *counter)\n";
        let ptx = compile("scheduling.cu", &format!("{head}{source}"), "", "80")?;
        let mut simulator = Simulator::new(profile("80")).with_checks(checks);
        let module = Module::load(&mut simulator, &ptx).unwrap_or_else(|error| panic!("{error}"));
        let numbers: Vec<u8> = (0..1024u32).flat_map(u32::to_le_bytes).collect();
        let x = simulator.upload(&numbers).unwrap();
        let y = simulator.upload(&[0; 4096]).unwrap();
        let counter = simulator.upload(&[0; 256]).unwrap();
        let config = LaunchConfig::new(grid, block, [x, y, counter].map(Argument::U64).to_vec());
        Some(Launch { simulator, module, config, y })
    }

    fn run(&mut self) -> Report {
        self.simulator.launch(&self.module, "k", &self.config).unwrap()
    }

    fn results(&self) -> Vec<u32> {
        let mut bytes = vec![0; 4096];
        self.simulator.copy_out(self.y, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}

/// The report as text, and what memory holds.
fn outcome(source: &str, seed: u64, grid: u32, block: u32, threads: usize) -> Option<(String, Vec<u32>)> {
    let mut launch = Launch::new(source, Checks { seed, ..Checks::default() }, grid, block)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let report = pool.install(|| launch.run());
    let findings: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
    Some((format!("{findings}{:?}", report.counters), launch.results()))
}

/// That one, two and sixteen threads of the host give the same; returns it.
fn same_on_any_host(source: &str, grid: u32, block: u32) -> Option<(String, Vec<u32>)> {
    let one = outcome(source, 0, grid, block, 1)?;
    for threads in [2, 16, 16, 16] {
        let many = outcome(source, 0, grid, block, threads)?;
        assert_eq!(one.0, many.0, "{threads} threads");
        assert_eq!(one.1, many.1, "{threads} threads");
    }
    Some(one)
}

#[test]
fn races_are_reported_alike_on_any_host() {
    let source = "KERNEL {\n\
        int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
        y[i % 300] = y[(i * 7) % 300] + blockIdx.x;\n\
        for (int j = 0; j < 100 * (blockIdx.x % 5); j++) y[600 + i % 100] += j;\n\
        if (i % 3 == 0) atomicAdd(y + 512 + i % 50, 1);\n\
        if (i % 5 == 0) y[512 + i % 50] = 1;\n}";
    let Some((report, _)) = same_on_any_host(source, 40, 96) else { return };
    assert!(report.contains("Race"), "{report}");
}

/// Each kernel has one conflict between blocks, between accesses of other kinds each time.
#[test]
fn every_kind_of_conflict_between_blocks_is_found_on_any_host() {
    for (body, races) in [
        ("if (threadIdx.x == 0) y[0] = 1;", true),
        (
            "if (threadIdx.x == 0) { y[0] = 1; __syncthreads(); }  else __syncthreads(); y[1 + i] = y[0];",
            true,
        ),
        (
            "if (threadIdx.x == 0 && blockIdx.x == 20) y[0] = 1; y[1 + i % 500] = 1; if (threadIdx.x == 40) y[600 + blockIdx.x] = y[0];",
            true,
        ),
        (
            "if (threadIdx.x == 0) atomicAdd(y, 1); if (threadIdx.x == 32 && blockIdx.x == 7) y[1] = y[0];",
            true,
        ),
        (
            "if (threadIdx.x == 0 && blockIdx.x == 9) y[0] = 0; __syncthreads(); if (threadIdx.x == 0) atomicAdd(y, 1);",
            true,
        ),
        ("atomicAdd(y, 1); atomicMax(y + 1, i);", false),
        (
            "if (threadIdx.x == 0) y[512 + blockIdx.x] = x[0]; __syncthreads(); atomicAdd(y + 512 + blockIdx.x, 1);",
            false,
        ),
    ] {
        let source = format!("KERNEL {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}");
        let Some((report, _)) = same_on_any_host(&source, 40, 64) else { return };
        // What one thread writes and others of the block read at once is a race too.
        assert_eq!(report.contains("Race"), races, "{body}: {report}");
    }
}

/// All blocks run again to report a race, from what memory held before.
#[test]
fn a_race_does_not_change_memory_twice() {
    let source = "KERNEL { if (threadIdx.x == 0) { y[0] += 1; y[1 + blockIdx.x] += 5; } }";
    let Some((report, y)) = same_on_any_host(source, 20, 32) else { return };
    assert!(report.contains("Race"), "{report}");
    assert_eq!(y[..22], [vec![20], vec![5; 20], vec![0]].concat());
}

#[test]
fn blocks_that_communicate_give_the_same_on_any_host() {
    let source = "KERNEL {\n\
        int ticket = atomicAdd(counter, 1);\n\
        y[ticket % 1024] = blockIdx.x;\n\
        while (atomicCAS(counter + 1, 0, 1) != 0) {}\n\
        __threadfence();\n\
        counter[2] = counter[2] * 3 + blockIdx.x;\n\
        __threadfence();\n\
        atomicExch(counter + 1, 0);\n\
        if (ticket == gridDim.x - 1) { while (atomicCAS(counter + 1, 0, 1) != 0) {} __threadfence(); y[1023] = counter[2]; }\n}";
    let Some((report, y)) = same_on_any_host(source, 30, 1) else { return };
    assert!(!report.contains("Race"), "{report}");
    let sum = (0..30).fold(0u32, |sum, block| sum.wrapping_mul(3).wrapping_add(block));
    assert_eq!(y[1023], sum);
}

const FLOATS: &str = "KERNEL { int i = blockIdx.x * blockDim.x + threadIdx.x; atomicAdd((float *)y, 1.0f / (1 + i * 37 % 1009)); }";

#[test]
fn float_atomics_add_in_one_order() {
    let Some((_, y)) = same_on_any_host(FLOATS, 33, 64) else { return };
    let exact: f64 = (0..33 * 64).map(|i| 1.0 / f64::from(1 + i * 37 % 1009)).sum();
    assert!((f64::from(f32::from_bits(y[0])) / exact - 1.0).abs() < 1e-5);
}

#[test]
fn seeds_show_what_depends_on_the_order() {
    let of = |seed| outcome(FLOATS, seed, 33, 64, 2).map(|outcome| outcome.1[0]);
    let Some(natural) = of(0) else { return };
    let others: Vec<u32> = (1..9).filter_map(of).collect();
    assert!(others.iter().any(|&other| other != natural), "{others:?}");
    assert_eq!(others, (1..9).filter_map(of).collect::<Vec<u32>>());
    // Integers have no order.
    let integers = "KERNEL { atomicAdd(y, threadIdx.x); atomicMax(y + 1, blockIdx.x); }";
    let of = |seed| outcome(integers, seed, 33, 64, 2).unwrap();
    (1..4).for_each(|seed| assert_eq!(of(0), of(seed)));
}

/// The lanes of a warp, the warps of a block and the blocks take a lock in turn.
#[test]
fn whoever_spins_gives_way() {
    let source = "KERNEL {\n\
        bool done = false;\n\
        while (!done) {\n\
            if (atomicCAS(counter, 0, 1) == 0) {\n\
                __threadfence();\n\
                y[0] += 1;\n\
                __threadfence();\n\
                atomicExch(counter, 0);\n\
                done = true;\n\
            }\n\
        }\n}";
    let Some((report, y)) = same_on_any_host(source, 5, 96) else { return };
    assert!(!report.contains("Race") && !report.contains("Deadlock"), "{report}");
    assert_eq!(y[0], 5 * 96);
}

const GRID_BARRIER: &str = "KERNEL {\n\
    __syncthreads();\n\
    if (threadIdx.x == 0) {\n\
        __threadfence();\n\
        atomicAdd(counter, 1);\n\
        while (*(volatile int *)counter < gridDim.x) {} // SPINS\n\
        __threadfence();\n\
    }\n\
    __syncthreads();\n\
    if (threadIdx.x == 0) atomicAdd(y, 1);\n}";

/// An A100 holds two blocks of 1024 threads on each of its 108 multiprocessors.
#[test]
fn blocks_wait_for_as_many_as_fit_the_chip() {
    let Some(mut launch) = Launch::new(GRID_BARRIER, Checks::default(), 216, 1024) else { return };
    let report = launch.run();
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(launch.results()[0], 216);
    let Some(mut launch) = Launch::new(GRID_BARRIER, Checks::default(), 217, 1024) else { return };
    let report = launch.run();
    let finding = report.findings.iter().find(|finding| finding.address.is_some()).unwrap();
    assert_eq!(finding.kind, FindingKind::Deadlock, "{finding}");
    assert!(finding.message.contains("216 of the 217 blocks at once"), "{finding}");
    assert_eq!(finding.source.as_ref().unwrap().line, 7, "{finding}");
}

#[test]
fn a_flag_that_nobody_sets() {
    for (flag, grid) in [("*(volatile int *)(counter + 5) == 0", 3), ("atomicAdd(counter + 5, 0) == 0", 1)] {
        let source =
            format!("KERNEL {{\n if (threadIdx.x == 40)\n while ({flag}) {{}}\n __syncthreads(); }}");
        let Some(mut launch) = Launch::new(&source, Checks::default(), grid, 64) else { return };
        let started = Instant::now();
        let report = launch.run();
        // The limit of instructions would take minutes.
        assert!(started.elapsed().as_secs() < 60);
        assert!(report.findings.iter().all(|finding| finding.kind == FindingKind::Deadlock));
        let Argument::U64(counter) = launch.config.arguments[2] else { return };
        let spins = report.findings.iter().find(|finding| finding.address == Some(counter + 20)).unwrap();
        assert_eq!((spins.source.as_ref().unwrap().line, spins.thread[0]), (4, 40), "{spins}");
        assert!(spins.message.contains("which nobody changes"), "{spins}");
    }
}

#[test]
fn a_flag_in_shared_memory_that_nobody_sets() {
    let source = "__shared__ volatile int flag;\nKERNEL { if (threadIdx.x == 0) flag = 0; __syncthreads(); while (flag == 0) {} }";
    let Some(mut launch) = Launch::new(source, Checks::default(), 1, 64) else { return };
    let report = launch.run();
    assert!(!report.findings.is_empty());
    assert!(report.findings.iter().all(|finding| finding.kind == FindingKind::Deadlock));
}

/// A grid barrier as CUDA's cooperative groups make it: in memory that the driver provides.
const COOPERATIVE: &str = "KERNEL {\n\
    unsigned high, low;\n\
    asm volatile(\"mov.u32 %0, %envreg1;\" : \"=r\"(high));\n\
    asm volatile(\"mov.u32 %0, %envreg2;\" : \"=r\"(low));\n\
    unsigned *barrier = (unsigned *)((unsigned long long)high << 32 | low);\n\
    if (barrier == 0) __trap();\n\
    int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
    y[i] = i;\n\
    for (int round = 0; round < 3; round++) {\n\
        __syncthreads();\n\
        if (threadIdx.x == 0) {\n\
            unsigned add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1, old, now;\n\
            asm volatile(\"atom.add.release.gpu.u32 %0,[%1],%2;\" : \"=r\"(old) : \"l\"(barrier + 1), \"r\"(add) : \"memory\");\n\
            do asm volatile(\"ld.acquire.gpu.u32 %0,[%1];\" : \"=r\"(now) : \"l\"(barrier + 1) : \"memory\");\n\
            while (((now ^ old) & 0x80000000u) == 0);\n\
        }\n\
        __syncthreads();\n\
        if (round == 0) y[512 + i] = y[511 - i];\n\
        if (round == 1) y[i] = y[1023 - i];\n\
    }\n}";

#[test]
fn cooperative_launches_synchronise_as_a_grid() {
    let Some(mut launch) = Launch::new(COOPERATIVE, Checks::default(), 8, 64) else { return };
    launch.config.cooperative = true;
    // The workspace is ready again for the second launch.
    for _ in 0..2 {
        let report = launch.run();
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        let y = launch.results();
        assert!((0..512).all(|i| y[512 + i] == 511 - i as u32 && y[i] == i as u32));
    }
    launch.config.cooperative = false;
    let report = launch.run();
    assert!(report.findings.iter().all(|finding| finding.kind == FindingKind::Trap));
    assert!(!report.findings.is_empty());
}

#[test]
fn cooperative_launches_must_fit_the_chip() {
    let Some(mut launch) = Launch::new("KERNEL {}", Checks::default(), 217, 1024) else { return };
    launch.config.cooperative = true;
    let refused = launch.simulator.launch(&launch.module, "k", &launch.config);
    let Err(PtxError::Launch { what, .. }) = refused else { panic!("not refused") };
    assert!(what.contains("217 blocks") && what.contains("holds 216"), "{what}");
}

#[test]
fn progress_counts_blocks_and_instructions() {
    let Some(launch) = Launch::new("KERNEL { y[blockIdx.x] = 1; }", Checks::default(), 50, 64) else {
        return;
    };
    let progress = Arc::new(Progress::default());
    let mut launch = Launch { simulator: launch.simulator.with_progress(progress.clone()), ..launch };
    let report = launch.run();
    assert_eq!((progress.all_blocks(), progress.ended_blocks()), (50, 50));
    assert!(report.findings.iter().all(|finding| finding.kind == FindingKind::Race));
    assert!(progress.instructions() >= report.counters.warp_instructions());
}

/// Clocks count a block's own instructions, not those of whatever its host thread ran before.
#[test]
fn clocks_are_the_same_on_any_host() {
    let source = "KERNEL { for (int i = 0; i < blockIdx.x * 10; i++) y[512 + blockIdx.x] += 1; y[blockIdx.x] = clock(); }";
    let Some((_, y)) = same_on_any_host(source, 40, 1) else { return };
    assert!(y[39] > 0);
}

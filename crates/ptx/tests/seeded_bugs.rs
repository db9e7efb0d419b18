//! Kernels that are broken on purpose, each in one way: the simulator must find that, at its line, and nothing else. Beside
//! each stands the same kernel without the bug, in which it must find nothing.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{
    Argument, Checks, Finding, FindingKind, LaunchConfig, MapElement, Module, PredictOptions, Simulator,
    SourceLine, Swizzle, TensorMap, TensorMapKind,
};
use support::{compile, profile};

/// A kernel in CUDA C++. The lines of the bug end in `// BUG`; `BUG` is 1 with it and 0 without.
struct Case<'a> {
    source: &'a str,
    architecture: &'a str,
    grid: u32,
    block: u32,
    shared: usize,
    cluster: u32,
    steps: u64,
}

const PLAIN: Case<'static> =
    Case { source: "", architecture: "80", grid: 1, block: 64, shared: 0, cluster: 1, steps: 1_000_000 };
const HOPPER: Case<'static> = Case { architecture: "90a", ..PLAIN };

/// What every kernel has: 1024 integers to read, 1024 to write, one counter of zero, and a map of the integers to read as
/// 32 rows of 32.
const HEAD: &str = r#"
#include "hopper.cuh"
#define KERNEL extern "C" __global__ void __launch_bounds__(256, 1) \
    k(const int *x, int *y, int *counter, const __grid_constant__ TensorMap map)
"#;

fn run(case: &Case<'_>, bug: bool) -> Option<(Vec<Finding>, Vec<u32>)> {
    let source = format!("#define BUG {}\n{HEAD}{}", u32::from(bug), case.source);
    let ptx = compile("case.cu", &source, "", case.architecture)?;
    let checks = Checks { steps: case.steps, ..Checks::default() };
    let mut simulator = Simulator::new(profile(case.architecture)).with_checks(checks);
    let module = Module::load(&mut simulator, &ptx).unwrap_or_else(|error| panic!("{error}"));
    let numbers: Vec<u8> = (0..1024u32).flat_map(u32::to_le_bytes).collect();
    let x = simulator.upload(&numbers).unwrap();
    let y = simulator.allocate(4096).unwrap();
    let counter = simulator.upload(&[0; 4]).unwrap();
    let map = TensorMap {
        address: x,
        element: MapElement::U32,
        rank: 2,
        extents: [32, 32, 1, 1, 1],
        strides: [128, 0, 0, 0],
        element_strides: [1; 5],
        kind: TensorMapKind::Tiled { tile: [32, 8, 1, 1, 1] },
        swizzle: Swizzle::None,
        nan_outside: false,
    };
    let arguments =
        vec![Argument::U64(x), Argument::U64(y), Argument::U64(counter), Argument::TensorMap(map)];
    let mut config = LaunchConfig::new(case.grid, case.block, arguments);
    config.shared_bytes = case.shared;
    config.cluster = [case.cluster, 1, 1];
    let report = simulator.launch(&module, "k", &config).unwrap_or_else(|error| panic!("{error}"));
    let lines =
        source.lines().zip(1..).filter(|(line, _)| line.ends_with("// BUG")).map(|(_, number)| number);
    Some((report.findings, lines.collect()))
}

fn texts(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// That the bug is found, at its line, and that without it nothing is.
fn found(case: &Case<'_>, kind: FindingKind) {
    let Some((findings, _)) = run(case, false) else { return };
    assert!(findings.is_empty(), "without the bug: {}", texts(&findings));
    let Some((findings, lines)) = run(case, true) else { return };
    assert!(!findings.is_empty(), "{kind:?} was not found");
    let here = |finding: &Finding| {
        let at = |place: &Option<SourceLine>| place.as_ref().is_some_and(|place| lines.contains(&place.line));
        finding.kind == kind && (at(&finding.source) || at(&finding.called_at))
    };
    assert!(findings.iter().any(here), "not at its line: {}", texts(&findings));
    for finding in &findings {
        // A race may be seen at both of its ends, and leaves memory that nobody wrote.
        let symptom = kind == FindingKind::Race
            && matches!(finding.kind, FindingKind::Race | FindingKind::Uninitialised);
        assert!(here(finding) || symptom, "more than was expected: {}", texts(&findings));
        assert!(!finding.suggestion.is_empty() && finding.kernel == "k");
    }
}

macro_rules! bugs {
    ($($name:ident: $kind:ident, $case:expr;)*) => {
        $(#[test]
        fn $name() {
            found(&$case, FindingKind::$kind);
        })*
    };
}

bugs! {
    read_behind_the_end: OutOfBounds, Case { grid: 16, source: r#"
        KERNEL {
            int i = blockIdx.x * 64 + threadIdx.x;
            y[i] = x[i + BUG]; // BUG
        }"#, ..PLAIN };
    write_before_the_begin: OutOfBounds, Case { source: r#"
        KERNEL {
            int i = threadIdx.x;
            y[i - BUG] = x[i]; // BUG
        }"#, ..PLAIN };
    off_by_one_in_the_tail_of_a_tile: OutOfBounds, Case { grid: 3, source: r#"
        KERNEL {
            for (int i = blockIdx.x * 400 + threadIdx.x; i < blockIdx.x * 400 + 400; i += 64)
                if (i < 1024 + BUG) y[i] = x[i - (i == 1024)]; // BUG
        }"#, ..PLAIN };
    shared_memory_behind_its_end: OutOfBounds, Case { shared: 256, source: r#"
        extern __shared__ int s[];
        KERNEL {
            s[threadIdx.x + BUG] = x[threadIdx.x]; // BUG
            __syncthreads();
            y[threadIdx.x] = s[63 - threadIdx.x + BUG * (threadIdx.x == 63)];
        }"#, ..PLAIN };
    a_wide_load_that_is_not_aligned: Misaligned, Case { source: r#"
        KERNEL {
            int4 four = *(const int4 *)(x + 4 * threadIdx.x + BUG); // BUG
            y[threadIdx.x] = four.x + four.y + four.z + four.w;
        }"#, ..PLAIN };
    shared_memory_that_is_not_aligned: Misaligned, Case { source: r#"
        __shared__ __align__(16) int s[260];
        KERNEL {
            for (int i = threadIdx.x; i < 260; i += 64) s[i] = x[i];
            __syncthreads();
            int2 two = *(int2 *)(s + 2 * threadIdx.x + BUG); // BUG
            y[threadIdx.x] = two.x + two.y;
        }"#, ..PLAIN };
    global_memory_that_nobody_wrote: Uninitialised, Case { source: r#"
        KERNEL {
            if (!BUG) y[threadIdx.x] = 1;
            y[threadIdx.x + 64] = y[threadIdx.x]; // BUG
        }"#, ..PLAIN };
    shared_memory_that_nobody_wrote: Uninitialised, Case { source: r#"
        __shared__ int s[64];
        KERNEL {
            if (threadIdx.x < 64 - BUG) s[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            y[threadIdx.x] = s[63 - threadIdx.x]; // BUG
        }"#, ..PLAIN };
    a_missing_barrier_before_a_read: Race, Case { source: r#"
        __shared__ int s[64];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            if (!BUG) __syncthreads();
            if (BUG) __syncwarp();
            y[threadIdx.x] = s[threadIdx.x ^ 32]; // BUG
        }"#, ..PLAIN };
    a_missing_barrier_before_the_next_write: Race, Case { source: r#"
        __shared__ int s[64];
        KERNEL {
            int sum = 0;
            s[threadIdx.x] = 0;
            for (int round = 0; round < 2; round++) {
                __syncthreads();
                sum += s[threadIdx.x ^ 32];
                if (!BUG) __syncthreads();
                s[threadIdx.x] = sum + round; // BUG
            }
            y[threadIdx.x] = sum;
        }"#, ..PLAIN };
    two_threads_write_one_place: Race, Case { source: r#"
        __shared__ int s[64];
        KERNEL {
            s[BUG ? threadIdx.x % 32 : threadIdx.x] = threadIdx.x; // BUG
            __syncthreads();
            y[threadIdx.x] = s[threadIdx.x % 32];
        }"#, ..PLAIN };
    a_missing_sync_of_a_warp: Race, Case { block: 32, source: r#"
        __shared__ volatile int dummy;
        __shared__ int s[32];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            if (!BUG) __syncwarp();
            asm volatile("" ::: "memory");
            y[threadIdx.x] = s[threadIdx.x ^ 1]; // BUG
        }"#, ..PLAIN };
    two_blocks_write_one_place: Race, Case { grid: 4, source: r#"
        KERNEL {
            int i = (BUG ? blockIdx.x / 2 : blockIdx.x) * 64 + threadIdx.x;
            y[i] = blockIdx.x; // BUG
        }"#, ..PLAIN };
    a_block_reads_what_another_writes: Race, Case { grid: 2, source: r#"
        KERNEL {
            int i = blockIdx.x * 64 + threadIdx.x;
            y[i] = x[i];
            __syncthreads();
            int from = BUG && blockIdx.x == 1 ? i - 64 : i;
            int value = y[from]; // BUG
            y[512 + i] = value;
        }"#, ..PLAIN };
    halves_of_a_word_are_not_a_race: Race, Case { source: r#"
        __shared__ unsigned short s[64];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            if (!BUG) __syncthreads();
            if (BUG) __syncwarp();
            y[threadIdx.x] = s[BUG ? threadIdx.x ^ 32 : threadIdx.x]; // BUG
        }"#, ..PLAIN };
    a_copy_that_nobody_waited_for: Race, Case { source: r#"
        __shared__ __align__(16) int s[256];
        KERNEL {
            cp_async_16(shared_address(s + 4 * threadIdx.x), x + 4 * threadIdx.x, true);
            cp_async_commit_group();
            if (!BUG) cp_async_wait_group<0>();
            __syncthreads();
            y[threadIdx.x] = s[threadIdx.x]; // BUG
        }"#, ..PLAIN };
    one_group_of_copies_too_few: Race, Case { source: r#"
        __shared__ __align__(16) int s[512];
        KERNEL {
            for (int stage = 0; stage < 2; stage++) {
                cp_async_16(shared_address(s + 256 * stage + 4 * threadIdx.x), x + 4 * threadIdx.x, true);
                cp_async_commit_group();
            }
            cp_async_wait_group<BUG>();
            __syncthreads();
            y[threadIdx.x] = s[256 + threadIdx.x]; // BUG
            cp_async_wait_group<0>();
        }"#, ..PLAIN };
    a_null_pointer_with_an_index_below_zero: OutOfBounds, Case { source: r#"
        KERNEL {
            const int *p = BUG ? (const int *)(u64)counter[0] : x + 1;
            int i = counter[0] - 1;
            y[threadIdx.x] = p[i]; // BUG
        }"#, ..PLAIN };
    an_atomic_on_memory_that_nobody_wrote: Uninitialised, Case { source: r#"
        KERNEL {
            if (!BUG) atomicExch(y + threadIdx.x, 5);
            else atomicAdd(y + threadIdx.x, 5); // BUG
            __syncthreads();
            y[64 + threadIdx.x] = y[63 - threadIdx.x];
        }"#, ..PLAIN };
    an_exchange_that_takes_what_nobody_wrote: Uninitialised, Case { source: r#"
        __shared__ int s[64];
        KERNEL {
            if (!BUG) s[threadIdx.x] = 0;
            y[threadIdx.x] = atomicExch(s + threadIdx.x, 5); // BUG
            __syncthreads();
            y[threadIdx.x + 64] = s[63 - threadIdx.x];
        }"#, ..PLAIN };
    a_write_that_several_readers_may_not_have_passed: Race, Case { source: r#"
        KERNEL {
            if (threadIdx.x == 0) y[0] = 1;
            __syncthreads();
            int value = y[0]; // BUG
            if (!BUG) __syncthreads();
            if (threadIdx.x == 8) y[0] = 2; // BUG
            y[threadIdx.x + 64] = value;
        }"#, ..PLAIN };
    a_write_by_the_first_of_several_readers: Race, Case { block: 32, source: r#"
        KERNEL {
            if (threadIdx.x == 0) y[0] = 1;
            __syncwarp();
            int value = y[0];
            if (!BUG) __syncwarp();
            asm volatile("" ::: "memory");
            if (threadIdx.x == 0) y[0] = 2; // BUG
            y[threadIdx.x + 64] = value;
        }"#, ..PLAIN };
    a_write_after_reads_of_a_later_phase: Race, Case { source: r#"
        KERNEL {
            y[threadIdx.x] = 1;
            __syncthreads();
            int value = y[0];
            __syncthreads();
            value += y[0]; // BUG
            if (!BUG) __syncthreads();
            if (threadIdx.x == 40) y[0] = 2; // BUG
            y[threadIdx.x + 64] = value;
        }"#, ..PLAIN };
    a_sum_by_atomics_that_is_read_too_early: Race, Case { source: r#"
        KERNEL {
            atomicAdd(counter, x[threadIdx.x]); // BUG
            if (!BUG) __syncthreads();
            if (BUG) __syncwarp();
            y[threadIdx.x] = *counter; // BUG
        }"#, ..PLAIN };
    a_sum_in_shared_memory_that_is_read_too_early: Race, Case { source: r#"
        __shared__ int sum;
        KERNEL {
            if (threadIdx.x == 0) sum = 0;
            __syncthreads();
            atomicAdd(&sum, x[threadIdx.x]); // BUG
            if (!BUG) __syncthreads();
            if (BUG) __syncwarp();
            y[threadIdx.x] = sum; // BUG
        }"#, ..PLAIN };
    a_sum_in_shared_memory_that_is_cleared_too_late: Race, Case { source: r#"
        __shared__ int sum;
        KERNEL {
            if (threadIdx.x == 0) sum = 0;
            if (!BUG) __syncthreads();
            if (BUG) __syncwarp();
            atomicAdd(&sum, x[threadIdx.x]); // BUG
            __syncthreads();
            y[threadIdx.x] = sum;
        }"#, ..PLAIN };
    a_sum_of_other_blocks_that_is_read_without_a_ticket: Race, Case { grid: 4, source: r#"
        KERNEL {
            if (threadIdx.x == 0) {
                atomicAdd(counter, 1); // BUG
                __threadfence();
                bool last = BUG || atomicAdd(counter, 1 << 16) >> 16 == 3;
                if (last) y[blockIdx.x] = *counter; // BUG
            }
        }"#, ..PLAIN };
    what_a_lock_guards: Race, Case { source: r#"
        KERNEL {
            if (threadIdx.x == 0) y[0] = 0;
            __syncthreads();
            bool done = false;
            while (!done)
                if (BUG || atomicCAS(counter, 0, 1) == 0) {
                    y[0] += 1; // BUG
                    __threadfence();
                    if (!BUG) atomicExch(counter, 0);
                    done = true;
                }
        }"#, ..PLAIN };
    a_flag_that_a_warp_waits_for: Race, Case { source: r#"
        __shared__ volatile int ready;
        __shared__ int s[32];
        KERNEL {
            if (threadIdx.x == 0) ready = 0;
            __syncthreads();
            if (threadIdx.x >= 32) {
                s[threadIdx.x - 32] = x[threadIdx.x]; // BUG
                __threadfence_block();
                __syncwarp();
                if (threadIdx.x == 32) ready = 1;
            } else {
                if (!BUG) while (ready == 0) {}
                __threadfence_block();
                y[threadIdx.x] = s[threadIdx.x]; // BUG
            }
        }"#, ..PLAIN };
    what_another_block_wrote_without_a_flag: Race, Case { grid: 2, source: r#"
        KERNEL {
            if (blockIdx.x == 0) {
                y[threadIdx.x] = x[threadIdx.x]; // BUG
                __threadfence();
                __syncthreads();
                if (threadIdx.x == 0) *(volatile int *)counter = 1;
            } else {
                if (!BUG && threadIdx.x == 0) while (*(volatile int *)counter == 0) {}
                __threadfence();
                __syncthreads();
                y[threadIdx.x + 64] = y[threadIdx.x]; // BUG
            }
        }"#, ..PLAIN };
    a_copy_seen_without_a_barrier: Race, Case { source: r#"
        __shared__ __align__(16) int s[256];
        KERNEL {
            cp_async_16(shared_address(s + 4 * threadIdx.x), x + 4 * threadIdx.x, true);
            cp_async_commit_group();
            cp_async_wait_group<0>();
            if (!BUG) __syncthreads();
            y[threadIdx.x] = s[255 - threadIdx.x]; // BUG
        }"#, ..PLAIN };
    a_barrier_in_a_branch: DivergentBarrier, Case { source: r#"
        KERNEL {
            if (!BUG || threadIdx.x % 2 == 0)
                asm volatile("bar.sync 0;" ::: "memory"); // BUG
            y[threadIdx.x] = x[threadIdx.x];
            if (BUG && threadIdx.x % 2 == 1) asm volatile("barrier.sync 1, 64;" ::: "memory");
        }"#, steps: 100_000, ..PLAIN };
    parts_of_a_warp_at_barriers_of_their_own: DivergentBarrier, Case { source: r#"
        #if BUG
        #define BARRIER "bar.sync 0;"
        #else
        #define BARRIER "barrier.sync 0;"
        #endif
        __shared__ int s[64];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            if (threadIdx.x % 2) asm volatile(BARRIER "// one" ::: "memory"); // BUG
            else asm volatile(BARRIER "// another" ::: "memory"); // BUG
            y[threadIdx.x] = s[63 - threadIdx.x];
        }"#, ..PLAIN };
    a_part_of_a_warp_that_is_not_waited_for: Race, Case { source: r#"
        __shared__ int s[64];
        KERNEL {
            if (threadIdx.x % 2) {
                asm volatile("// one" ::: "memory");
                s[threadIdx.x] = x[threadIdx.x];
                asm volatile("barrier.sync 0;// one" ::: "memory");
                y[threadIdx.x] = s[63 - threadIdx.x]; // BUG
            } else {
                asm volatile("// another" ::: "memory");
                if (!BUG) s[threadIdx.x] = x[threadIdx.x];
                asm volatile("barrier.sync 0;// another" ::: "memory");
                y[threadIdx.x] = BUG ? 0 : s[63 - threadIdx.x];
                if (BUG) s[threadIdx.x] = x[threadIdx.x]; // BUG
            }
        }"#, ..PLAIN };
    a_barrier_that_half_of_the_block_never_reaches: Deadlock, Case { source: r#"
        KERNEL {
            y[threadIdx.x] = x[threadIdx.x];
            if (threadIdx.x < 32 || !BUG)
                named_barrier_sync(1, 64); // BUG
        }"#, ..PLAIN };
    numbers_of_threads_that_differ: BarrierMismatch, Case { source: r#"
        KERNEL {
            y[threadIdx.x] = x[threadIdx.x];
            int count = BUG && threadIdx.x >= 32 ? 32 : 64;
            named_barrier_sync(1, count); // BUG
        }"#, ..PLAIN };
    a_shuffle_that_lanes_do_not_share: WarpSyncMismatch, Case { block: 32, source: r#"
        KERNEL {
            int value = x[threadIdx.x];
            unsigned mask = BUG ? 0xffffu : 0xffffffffu;
            value = __shfl_xor_sync(mask, value, 1); // BUG
            y[threadIdx.x] = value;
        }"#, ..PLAIN };
    an_mbarrier_that_was_never_made: MbarrierMisuse, Case { source: r#"
        __shared__ unsigned long long bar;
        KERNEL {
            if (threadIdx.x == 0 && !BUG) mbarrier_init(shared_address(&bar), 64);
            __syncthreads();
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&bar)) : "memory"); // BUG
            if (!BUG) mbarrier_wait_parity(shared_address(&bar), 0);
            y[threadIdx.x] = x[threadIdx.x];
        }"#, ..HOPPER };
    more_arrivals_than_the_phase_has: MbarrierMisuse, Case { source: r#"
        __shared__ unsigned long long bar;
        KERNEL {
            if (threadIdx.x == 0) {
                mbarrier_init(shared_address(&bar), 4);
                fence_mbarrier_init();
                for (int i = 0; i < 2; i++)
                    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&bar)), "n"(2 + BUG) : "memory"); // BUG
            }
            y[threadIdx.x] = x[threadIdx.x];
        }"#, ..HOPPER };
    an_mbarrier_that_is_made_twice: MbarrierMisuse, Case { source: r#"
        __shared__ unsigned long long bar;
        KERNEL {
            if (threadIdx.x == 0) {
                for (int i = 0; i < 2; i++) {
                    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&bar)) : "memory"); // BUG
                    if (!BUG) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&bar)) : "memory");
                }
            }
            y[threadIdx.x] = x[threadIdx.x];
        }"#, ..HOPPER };
    a_store_over_an_mbarrier: MbarrierMisuse, Case { source: r#"
        __shared__ unsigned long long bars[2];
        KERNEL {
            if (threadIdx.x == 0) mbarrier_init(shared_address(bars + 1), 64);
            __syncthreads();
            if (threadIdx.x == 0) ((volatile int *)bars)[1 + BUG] = 7; // BUG
            if (!BUG) {
                mbarrier_arrive(shared_address(bars + 1));
                mbarrier_wait_parity(shared_address(bars + 1), 0);
            }
            y[threadIdx.x] = x[threadIdx.x];
        }"#, ..HOPPER };
    a_wait_for_the_wrong_parity: Deadlock, Case { source: r#"
        __shared__ unsigned long long bar;
        KERNEL {
            if (threadIdx.x == 0) mbarrier_init(shared_address(&bar), 64);
            __syncthreads();
            mbarrier_arrive(shared_address(&bar));
            unsigned done = 0, parity = BUG && threadIdx.x == 5 ? 1 : 0;
            if (!BUG || threadIdx.x == 5) {
                if (BUG) mbarrier_wait_parity(shared_address(&bar), 0);
                while (!done)
                    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(shared_address(&bar)), "r"(parity) : "memory"); // BUG
            }
            y[threadIdx.x] = x[threadIdx.x];
        }"#, ..HOPPER };
    bytes_that_were_announced_and_never_come: Deadlock, Case { source: r#"
        __shared__ unsigned long long bar;
        __shared__ __align__(128) int s[256];
        KERNEL {
            u32 b = shared_address(&bar);
            if (threadIdx.x == 0) {
                mbarrier_init(b, 1);
                fence_mbarrier_init();
                mbarrier_arrive_expect_tx(b, 1024 + 16 * BUG);
                tma_load_2d(shared_address(s), map, b, 0, 0);
            }
            __syncthreads();
            unsigned done = 0;
            while (!done)
                asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(b) : "memory"); // BUG
            y[threadIdx.x] = s[threadIdx.x];
        }"#, ..HOPPER };
    a_bulk_copy_that_nobody_waited_for: Race, Case { source: r#"
        __shared__ unsigned long long bar;
        __shared__ __align__(128) int s[256];
        KERNEL {
            u32 b = shared_address(&bar);
            if (threadIdx.x == 0) {
                mbarrier_init(b, 1);
                fence_mbarrier_init();
                mbarrier_arrive_expect_tx(b, 1024);
                tma_load_2d(shared_address(s), map, b, 0, 0);
            }
            __syncthreads();
            if (!BUG || threadIdx.x < 32) mbarrier_wait_parity(b, 0);
            y[threadIdx.x] = s[threadIdx.x]; // BUG
        }"#, ..HOPPER };
    a_slot_that_is_filled_before_it_is_free: Race, Case { source: r#"
        __shared__ unsigned long long bars[2];
        __shared__ __align__(128) int s[256];
        KERNEL {
            u32 full = shared_address(bars), empty = full + 8;
            if (threadIdx.x == 0) {
                mbarrier_init(full, 1);
                mbarrier_init(empty, 32);
                fence_mbarrier_init();
            }
            __syncthreads();
            if (threadIdx.x >= 32) {
                if (threadIdx.x == 32)
                    for (int i = 0; i < 2; i++) {
                        if (!BUG) mbarrier_wait_parity(empty, i ^ 1);
                        if (BUG && i) mbarrier_wait_parity(full, 0);
                        mbarrier_arrive_expect_tx(full, 1024);
                        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(s)), "l"(&map), "r"(full), "r"(0), "r"(8 * i) : "memory"); // BUG
                    }
            } else {
                for (int i = 0; i < 2; i++) {
                    if (!BUG || i == 0) mbarrier_wait_parity(full, i);
                    if (!BUG || i == 0) y[32 * i + threadIdx.x] = s[threadIdx.x]; // BUG
                    mbarrier_arrive(empty);
                }
            }
        }"#, ..HOPPER };
    a_store_by_the_copy_engine_without_a_fence: MissingProxyFence, Case { source: r#"
        __shared__ __align__(128) int s[64];
        KERNEL {
            s[threadIdx.x] = x[threadIdx.x];
            if (!BUG) fence_proxy_async();
            __syncthreads();
            if (threadIdx.x == 0) {
                asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y), "r"(shared_address(s)) : "memory"); // BUG
                asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
            }
        }"#, ..HOPPER };
    a_box_beyond_shared_memory: OutOfBounds, Case { shared: 1024 + 128, source: r#"
        extern __shared__ __align__(128) int s[];
        KERNEL {
            u32 b = shared_address(s);
            if (threadIdx.x == 0) {
                mbarrier_init(b, 1);
                fence_mbarrier_init();
                mbarrier_arrive_expect_tx(b, 1024);
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(b + 128 + 128 * BUG), "l"(&map), "r"(b), "r"(0), "r"(0) : "memory"); // BUG
            }
            __syncthreads();
            if (!BUG) mbarrier_wait_parity(b, 0);
            y[threadIdx.x] = BUG ? 0 : s[32 + threadIdx.x];
        }"#, ..HOPPER };
    a_box_that_is_not_aligned: TensorMap, Case { shared: 2048, source: r#"
        extern __shared__ __align__(128) int s[];
        KERNEL {
            u32 b = shared_address(s);
            if (threadIdx.x == 0) {
                mbarrier_init(b, 1);
                fence_mbarrier_init();
                mbarrier_arrive_expect_tx(b, 1024);
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(b + 128 + 16 * BUG), "l"(&map), "r"(b), "r"(0), "r"(0) : "memory"); // BUG
            }
            __syncthreads();
            if (!BUG) mbarrier_wait_parity(b, 0);
            y[threadIdx.x] = BUG ? 0 : s[32 + threadIdx.x];
        }"#, ..HOPPER };
    a_block_of_the_cluster_that_is_read_too_early: Race, Case { grid: 2, cluster: 2, block: 32, source: r#"
        __shared__ int s[32];
        KERNEL {
            s[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
            if (!BUG) asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
            if (BUG) __syncwarp();
            u32 other, value;
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(shared_address(s + threadIdx.x)), "r"(blockIdx.x ^ 1));
            if (BUG && blockIdx.x == 0) return;
            asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(other) : "memory"); // BUG
            y[blockIdx.x * 32 + threadIdx.x] = value;
            asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
        }"#, ..HOPPER };
    sums_that_are_read_before_the_product_is_done: WgmmaInFlight, Case { block: 128, shared: 8192, source: r#"
        extern __shared__ __align__(1024) u8 shared[];
        KERNEL {
            u32 at = shared_address(shared);
            for (int i = threadIdx.x; i < 2048; i += 128) *(int *)(shared + 4 * i) = x[i % 1024];
            fence_proxy_async();
            __syncthreads();
            float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
            wgmma_fence();
            u64 a = wgmma_descriptor(at, 16, 1024), b = wgmma_descriptor(at, 16, 1024);
            asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\n"
                "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;}" : SUM_4 : "l"(a), "l"(b));
            wgmma_commit_group();
            
            if (!BUG) wgmma_wait_group<0>();
            pin_registers(sum);
            
            y[threadIdx.x] = __float_as_int(sum[0] + sum[1] + sum[2] + sum[3]); // BUG
        }"#, ..HOPPER };
    a_product_without_a_fence_before_it: WgmmaInFlight, Case { block: 128, shared: 8192, source: r#"
        extern __shared__ __align__(1024) u8 shared[];
        KERNEL {
            u32 at = shared_address(shared);
            for (int i = threadIdx.x; i < 2048; i += 128) *(int *)(shared + 4 * i) = x[i % 1024];
            fence_proxy_async();
            __syncthreads();
            float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
            if (!BUG) wgmma_fence();
            u64 a = wgmma_descriptor(at, 16, 1024), b = wgmma_descriptor(at, 16, 1024);
            asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\n"
                "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;}" : SUM_4 : "l"(a), "l"(b)); // BUG
            wgmma_commit_group();
            
            wgmma_wait_group<0>();
            pin_registers(sum);
            
            y[threadIdx.x] = __float_as_int(sum[0] + sum[1] + sum[2] + sum[3]);
        }"#, ..HOPPER };
    operands_of_a_product_without_a_fence: MissingProxyFence, Case { block: 128, shared: 8192, source: r#"
        extern __shared__ __align__(1024) u8 shared[];
        KERNEL {
            u32 at = shared_address(shared);
            for (int i = threadIdx.x; i < 2048; i += 128) *(int *)(shared + 4 * i) = x[i % 1024];
            if (!BUG) fence_proxy_async();
            __syncthreads();
            float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
            wgmma_fence();
            u64 a = wgmma_descriptor(at, 16, 1024), b = wgmma_descriptor(at, 16, 1024);
            asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\n"
                "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;}" : SUM_4 : "l"(a), "l"(b)); // BUG
            wgmma_commit_group();
            
            wgmma_wait_group<0>();
            pin_registers(sum);
            
            y[threadIdx.x] = __float_as_int(sum[0] + sum[1] + sum[2] + sum[3]);
        }"#, ..HOPPER };
    operands_that_are_overwritten_while_the_product_runs: Race, Case { block: 128, shared: 8192, source: r#"
        extern __shared__ __align__(1024) u8 shared[];
        KERNEL {
            u32 at = shared_address(shared);
            for (int i = threadIdx.x; i < 2048; i += 128) *(int *)(shared + 4 * i) = x[i % 1024];
            fence_proxy_async();
            __syncthreads();
            float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
            wgmma_fence();
            u64 a = wgmma_descriptor(at, 16, 1024), b = wgmma_descriptor(at, 16, 1024);
            asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\n"
                "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;}" : SUM_4 : "l"(a), "l"(b)); // BUG
            wgmma_commit_group();
            if (BUG && threadIdx.x >= 64) *(int *)(shared + 4 * (threadIdx.x - 64)) = 5;
            wgmma_wait_group<0>();
            pin_registers(sum);
            
            y[threadIdx.x] = __float_as_int(sum[0] + sum[1] + sum[2] + sum[3]);
        }"#, ..HOPPER };
    a_trap: Trap, Case { source: r#"
        KERNEL {
            y[threadIdx.x] = x[threadIdx.x];
            if (BUG && threadIdx.x == 40) asm volatile("trap;"); // BUG
        }"#, ..PLAIN };
    a_loop_without_an_end: StepLimit, Case { steps: 20_000, source: r#"
        KERNEL {
            y[threadIdx.x] = x[threadIdx.x];
            while (BUG && *(volatile const int *)x == 0) {} // BUG
        }"#, ..PLAIN };
}

#[test]
fn memory_that_was_freed() {
    let source = format!("{HEAD}KERNEL {{ y[threadIdx.x] = x[threadIdx.x]; }}");
    let Some(ptx) = compile("case.cu", &source, "", "80") else { return };
    let mut simulator = Simulator::new(profile("80"));
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let x = simulator.upload(&[1; 256]).unwrap();
    let y = simulator.allocate(256).unwrap();
    simulator.free(x).unwrap();
    let arguments = vec![Argument::U64(x), Argument::U64(y), Argument::U64(y), Argument::Bytes(vec![0; 128])];
    let report = simulator.launch(&module, "k", &LaunchConfig::new(1, 64, arguments)).unwrap();
    let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::UseAfterFree]);
    assert_eq!(report.findings[0].address, Some(x));
    assert!(simulator.free(x).is_err());
}

#[test]
fn what_to_do_about_a_race() {
    let case = |index: &str, grid: u32| {
        let source = format!("KERNEL {{ y[{index}] = threadIdx.x; }}");
        run(&Case { source: &source, grid, ..PLAIN }, true).map(|(findings, _)| texts(&findings))
    };
    let Some(within) = case("threadIdx.x % 32", 1) else { return };
    assert!(within.contains("__syncthreads"), "{within}");
    let Some(between) = case("threadIdx.x", 2) else { return };
    assert!(between.contains("later launch") && !between.contains("__syncthreads"), "{between}");
}

#[test]
fn more_memory_than_there_is() {
    let mut simulator = Simulator::new(profile("80"));
    let refused = simulator.allocate(usize::MAX / 4).unwrap_err().to_string();
    assert!(refused.contains("make the tensors smaller"), "{refused}");
    // Addresses alone cost nothing, nor does a prediction over them, but records of who touched them would.
    let source = format!("{HEAD}KERNEL {{ y[threadIdx.x] = x[threadIdx.x]; }}");
    let Some(ptx) = compile("case.cu", &source, "", "80") else { return };
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let x = simulator.reserve(1 << 46);
    let arguments = vec![Argument::U64(x), Argument::U64(x), Argument::U64(x), Argument::Bytes(vec![0; 128])];
    let config = LaunchConfig::new(1, 64, arguments);
    assert!(simulator.predict(&module, "k", &config, &PredictOptions::default()).is_ok());
    let refused = simulator.launch(&module, "k", &config).unwrap_err().to_string();
    assert!(refused.contains("without the search for races"), "{refused}");
}

/// A kernel of one warp, of which lanes from 8 on have their predicate set.
fn run_warp(body: &str) -> Vec<FindingKind> {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 y) {{\n.reg .b32 %t;\n.reg .b64 %y;\n\
         .reg .pred %p;\nld.param.u64 %y, [y];\nmov.u32 %t, %tid.x;\nsetp.ge.u32 %p, %t, 8;\n\
         mad.wide.u32 %y, %t, 4, %y;\n{body}\n}}\n"
    );
    let mut simulator = Simulator::new(profile("80"));
    let module = Module::load(&mut simulator, &ptx).unwrap_or_else(|error| panic!("{error}"));
    let y = simulator.allocate(256).unwrap();
    let config = LaunchConfig::new(1, 64, vec![Argument::U64(y)]);
    let report = simulator.launch(&module, "k", &config).unwrap();
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn barriers_and_threads_that_have_ended_however_the_code_lies() {
    // Lanes that end without a barrier are not waited for.
    for early in [
        "@%p bra WORK;\nret;\nWORK:\nbar.sync 0;\nst.global.u32 [%y], %t;\nret;",
        "@!%p bra DONE;\nbar.sync 0;\nst.global.u32 [%y], %t;\nDONE:\nret;",
        "@!%p bra OUT;\nbar.sync 0;\nret;\nOUT:\nst.global.u32 [%y], %t;\nret;",
        "@!%p bra OUT;\nbar.sync 0;\nbra.uni DONE;\nOUT:\nst.global.u32 [%y], %t;\nDONE:\nret;",
        "@%p bar.sync 0;\nret;",
        "@!%p exit;\nbar.sync 0;\nbar.sync 0;\nret;",
    ] {
        assert_eq!(run_warp(early), [], "{early}");
    }
    // Those that go on without one, in code that the others come to later, should have come.
    for beside in [
        "@!%p bra SKIP;\nbar.sync 0;\nSKIP:\nst.global.u32 [%y], %t;\nret;",
        "@%p bra WORK;\nSKIP:\nst.global.u32 [%y], %t;\nret;\nWORK:\nbar.sync 0;\nbra.uni SKIP;",
    ] {
        assert_eq!(run_warp(beside), [FindingKind::DivergentBarrier], "{beside}");
    }
}

#[test]
fn instructions_that_the_target_does_not_have() {
    for (instruction, has, lacks) in [
        ("wgmma.fence.sync.aligned;", "90a", "90"),
        ("wgmma.fence.sync.aligned;", "90a", "75"),
        ("setmaxnreg.dec.sync.aligned.u32 40;", "90a", "90"),
        ("cp.async.commit_group;", "80", "75"),
        ("cp.async.bulk.commit_group;", "90", "89"),
        ("barrier.cluster.arrive.aligned;", "90", "80"),
        ("fence.proxy.async;", "90", "80"),
        ("redux.sync.add.s32 %r, %r, -1;", "80", "75"),
    ] {
        let load = |target: &str| {
            let ptx = format!(
                ".version 8.0\n.target sm_{target}\n.address_size 64\n.visible .entry k() {{\n.reg .b32 %r;\n{instruction}\nret;\n}}\n"
            );
            Module::load(&mut Simulator::new(profile("90a")), &ptx)
        };
        load(has).unwrap_or_else(|error| panic!("{error}"));
        let error = load(lacks).unwrap_err();
        assert_eq!(error.place().map(|place| place.line), Some(6));
        let text = error.to_string();
        assert!(text.contains("this needs sm_") && text.contains(&format!("for sm_{lacks}")), "{text}");
    }
}

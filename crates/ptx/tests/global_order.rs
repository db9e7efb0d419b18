//! Blocks that synchronise through global memory: with the fences and scopes that PTX asks for, and without.

#![allow(clippy::unwrap_used, reason = "what fails ends the test")]

mod support;

use kinora_ptx::{Argument, Finding, FindingKind, LaunchConfig, Module, Simulator};
use support::{compile, profile};

/// What every kernel has: 1024 integers to read, 1024 zeros to write, and 64 counters of zero.
const HEAD: &str = r#"
#define KERNEL extern "C" __global__ void k(const int *x, int *y, int *counter)
#define LOAD(how, address) ([&] { int value; asm volatile("ld." how ".u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory"); return value; }())
#define STORE(how, address, value) asm volatile("st." how ".u32 [%0], %1;" :: "l"(address), "r"(value) : "memory")
#define ADD(how, address, value) ([&] { int old; asm volatile("atom." how ".add.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(value) : "memory"); return old; }())
"#;

struct Outcome {
    findings: Vec<Finding>,
    y: Vec<u32>,
    source: String,
}

impl Outcome {
    fn texts(&self) -> String {
        self.findings.iter().map(|finding| format!("{finding}\n")).collect()
    }

    /// Whether there is a race at a line that the source marks.
    fn races(&self) -> bool {
        let marked = |line: u32| {
            self.source.lines().nth(line as usize - 1).is_some_and(|line| line.contains("// RACE"))
        };
        let mut all = self.findings.iter();
        all.any(|finding| {
            finding.kind == FindingKind::Race && finding.source.as_ref().is_some_and(|at| marked(at.line))
        })
    }
}

fn run(source: &str, bug: bool, grid: u32, block: u32) -> Option<Outcome> {
    let source = format!("#define BUG {}\n{HEAD}{source}", u32::from(bug));
    let ptx = compile("order.cu", &source, "", "80")?;
    let mut simulator = Simulator::new(profile("80"));
    let module = Module::load(&mut simulator, &ptx).unwrap_or_else(|error| panic!("{error}"));
    let numbers: Vec<u8> = (0..1024u32).flat_map(u32::to_le_bytes).collect();
    let x = simulator.upload(&numbers).unwrap();
    let y = simulator.upload(&[0; 4096]).unwrap();
    let counter = simulator.upload(&[0; 256]).unwrap();
    let arguments = [x, y, counter].map(Argument::U64).to_vec();
    let report = simulator.launch(&module, "k", &LaunchConfig::new(grid, block, arguments)).unwrap();
    let mut bytes = vec![0; 4096];
    simulator.copy_out(y, &mut bytes).unwrap();
    let y = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    Some(Outcome { findings: report.findings, y, source })
}

/// That the bug is found at a marked line, with advice that contains `advice`, and that without it nothing is found.
fn found(source: &str, grid: u32, block: u32, advice: &str) {
    let Some(good) = run(source, false, grid, block) else { return };
    assert!(good.findings.is_empty(), "without the bug: {}", good.texts());
    let Some(bad) = run(source, true, grid, block) else { return };
    assert!(bad.races(), "not found at its line: {}", bad.texts());
    let advised = |finding: &Finding| finding.suggestion.contains(advice);
    assert!(bad.findings.iter().any(advised), "no advice: {}", bad.texts());
    for finding in &bad.findings {
        assert_eq!(finding.kind, FindingKind::Race, "{finding}");
    }
}

macro_rules! orders {
    ($($name:ident: $grid:literal x $block:literal, $advice:literal, $source:expr;)*) => {
        $(#[test]
        fn $name() {
            found($source, $grid, $block, $advice);
        })*
    };
}

orders! {
    the_counter_that_the_last_block_resets: 8 x 64, "before the atomic", r#"
        __shared__ bool last;
        KERNEL {
            __threadfence();
            if (threadIdx.x == 0) {
                last = atomicInc((unsigned *)counter, gridDim.x) == gridDim.x - 1;
                if (BUG && blockIdx.x == 3) atomicAdd(counter + 1, 1);
            }
            __syncthreads();
            if (last && threadIdx.x == 40) counter[BUG] = 0; // RACE
        }"#;
    a_counter_that_is_reset_without_a_ticket: 8 x 64, "", r#"
        KERNEL {
            if (threadIdx.x > 0) return;
            int ticket = BUG && blockIdx.x == 7 ? 7 : atomicAdd(counter, 1);
            if (ticket == 7) counter[0] = 0; // RACE
        }"#;
    the_last_block_after_a_fence_of_its_first_thread: 8 x 64, "before the atomic", r#"
        __shared__ bool last;
        KERNEL {
            y[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;
            __syncthreads();
            if (threadIdx.x == 0) {
                if (!BUG) __threadfence();
                last = atomicAdd(counter, 1) == gridDim.x - 1;
            }
            __syncthreads();
            if (!last) return;
            int sum = 0;
            for (int i = threadIdx.x; i < gridDim.x * 64; i += 64) sum += y[i]; // RACE
            y[512 + threadIdx.x] = sum;
        }"#;
    the_last_block_after_fences_of_all_threads: 8 x 64, "before the atomic", r#"
        __shared__ bool last;
        KERNEL {
            y[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;
            if (!BUG) __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) last = atomicInc((unsigned *)counter, gridDim.x - 1) == gridDim.x - 1;
            __syncthreads();
            if (!last) return;
            int sum = 0;
            for (int i = threadIdx.x; i < gridDim.x * 64; i += 64) sum += y[i]; // RACE
            y[512 + threadIdx.x] = sum;
        }"#;
    a_ticket_before_the_barrier: 8 x 64, "", r#"
        __shared__ bool last;
        KERNEL {
            y[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;
            if (!BUG) __syncthreads();
            if (threadIdx.x == 0) {
                __threadfence();
                last = atomicAdd(counter, 1) == gridDim.x - 1;
            }
            __syncthreads();
            if (!last) return;
            int sum = 0;
            for (int i = threadIdx.x; i < gridDim.x * 64; i += 64) sum += y[i]; // RACE
            y[512 + threadIdx.x] = sum;
        }"#;
    a_flag_without_a_fence_before_it: 2 x 32, "before the atomic or the store", r#"
        KERNEL {
            if (blockIdx.x == 0) {
                y[threadIdx.x] = x[threadIdx.x];
                if (!BUG) __threadfence();
                __syncwarp();
                if (threadIdx.x == 0) *(volatile int *)counter = 1;
            } else {
                while (*(volatile int *)counter == 0) {}
                __threadfence();
                y[32 + threadIdx.x] = y[threadIdx.x]; // RACE
            }
        }"#;
    a_flag_without_a_fence_after_it: 2 x 32, "after reading the flag", r#"
        KERNEL {
            if (blockIdx.x == 0) {
                y[threadIdx.x] = x[threadIdx.x];
                __threadfence();
                __syncwarp();
                if (threadIdx.x == 0) *(volatile int *)counter = 1;
            } else {
                while (*(volatile int *)counter == 0) {}
                if (!BUG) __threadfence();
                y[32 + threadIdx.x] = y[threadIdx.x]; // RACE
            }
        }"#;
    a_flag_that_is_no_strong_store: 2 x 1, "", r#"
        KERNEL {
            if (blockIdx.x == 0) {
                if (BUG) *counter = 1; // RACE
                else *(volatile int *)counter = 1;
            } else {
                y[0] = *(volatile int *)counter; // RACE
            }
        }"#;
    a_release_that_is_relaxed: 2 x 32, "before the atomic or the store", r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            if (blockIdx.x == 1) {
                y[0] = 5;
                if (BUG) STORE("relaxed.gpu.global", counter, 1);
                else STORE("release.gpu.global", counter, 1);
            } else {
                while (LOAD("acquire.gpu.global", counter) == 0) {}
                y[1] = y[0]; // RACE
            }
        }"#;
    an_acquire_that_is_relaxed: 2 x 32, "after reading the flag", r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            if (blockIdx.x == 1) {
                y[0] = 5;
                STORE("release.gpu.global", counter, 1);
            } else {
                if (BUG) while (LOAD("relaxed.gpu.global", counter) == 0) {}
                else while (LOAD("acquire.gpu.global", counter) == 0) {}
                y[1] = y[0]; // RACE
            }
        }"#;
    an_acquire_of_the_block_alone: 2 x 32, "", r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            if (blockIdx.x == 1) {
                y[0] = 5;
                STORE("release.gpu.global", counter, 1);
            } else {
                if (BUG) while (LOAD("acquire.cta.global", counter) == 0) {} // RACE
                else while (LOAD("acquire.gpu.global", counter) == 0) {}
                y[1] = y[0]; // RACE
            }
        }"#;
    an_atomic_that_acquires_and_releases: 4 x 32, "", r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            y[blockIdx.x] = 5;
            int ticket = BUG ? ADD("relaxed.gpu.global", counter, 1) : ADD("acq_rel.gpu.global", counter, 1);
            if (ticket == 3) y[4] = y[0] + y[1] + y[2] + y[3]; // RACE
        }"#;
    an_unrelated_atomic_orders_nothing: 4 x 32, "", r#"
        KERNEL {
            int i = threadIdx.x;
            __threadfence();
            y[512 + blockIdx.x * 32 + i] = atomicAdd(counter + blockIdx.x, 1);
            __threadfence();
            y[BUG ? i : blockIdx.x * 32 + i] = i; // RACE
        }"#;
    an_atomic_after_which_nothing_was_released: 4 x 32, "", r#"
        KERNEL {
            if (!BUG && blockIdx.x > 0) return;
            int before = atomicAdd(counter, 1);
            y[threadIdx.x] = before; // RACE
        }"#;
    a_fence_of_the_block_between_blocks: 2 x 32, "before the atomic or the store", r#"
        KERNEL {
            if (blockIdx.x == 0) {
                y[threadIdx.x] = x[threadIdx.x];
                if (BUG) __threadfence_block();
                else __threadfence();
                __syncwarp();
                if (threadIdx.x == 0) atomicExch(counter, 1);
            } else {
                while (atomicAdd(counter, 0) == 0) {}
                y[32 + threadIdx.x] = y[threadIdx.x]; // RACE
            }
        }"#;
    a_fence_of_the_block_within_it: 2 x 64, "__syncthreads", r#"
        KERNEL {
            int *mine = y + 128 * blockIdx.x, *flag = counter + blockIdx.x;
            if (threadIdx.x == 0) {
                mine[0] = 5;
                if (!BUG) __threadfence_block();
                *(volatile int *)flag = 1;
            } else if (threadIdx.x == 32) {
                while (*(volatile int *)flag == 0) {}
                __threadfence_block();
                mine[1] = mine[0]; // RACE
            }
            if (BUG && threadIdx.x == 0) y[500] = blockIdx.x; // RACE
            if (BUG) return;
            __threadfence();
            if (threadIdx.x == 0) y[500 + blockIdx.x] = atomicAdd(counter + 8, 1);
        }"#;
    atomics_of_the_block_that_blocks_share: 4 x 32, "without _block", r#"
        KERNEL {
            if (BUG) atomicAdd_block(counter, 1); // RACE
            else atomicAdd(counter, 1);
            atomicAdd_block(counter + 1 + blockIdx.x, 1);
        }"#;
    a_lock_that_is_released_without_a_fence: 8 x 32, "before the atomic", r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            while (atomicCAS(counter, 0, 1) != 0) {}
            __threadfence();
            y[0] += 1; // RACE
            if (!BUG) __threadfence();
            atomicExch(counter, 0);
        }"#;
    a_lock_that_is_released_by_a_plain_store: 8 x 32, "", r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            while (atomicCAS(counter, 0, 1) != 0) {} // RACE
            __threadfence();
            y[0] += 1; // RACE
            __threadfence();
            if (BUG) *counter = 0; // RACE
            else atomicExch(counter, 0);
        }"#;
    a_lock_that_protects_something_else: 8 x 32, "", r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            int *lock = counter + (BUG ? blockIdx.x % 2 : 0);
            while (atomicCAS(lock, 0, 1) != 0) {}
            __threadfence();
            y[0] += 1; // RACE
            __threadfence();
            atomicExch(lock, 0);
        }"#;
    what_is_passed_on_by_a_third_block: 3 x 32, "", r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            if (blockIdx.x == 0) {
                y[0] = 5;
                __threadfence();
                atomicExch(counter, 1);
            } else if (blockIdx.x == 1) {
                while (atomicAdd(counter, 0) == 0) {}
                if (!BUG) __threadfence();
                atomicExch(counter + 1, 1);
            } else {
                while (atomicAdd(counter + 1, 0) == 0) {}
                __threadfence();
                y[1] = y[0]; // RACE
            }
        }"#;
    a_grid_barrier: 16 x 64, "", r#"
        KERNEL {
            int i = blockIdx.x * 64 + threadIdx.x;
            for (int round = 1; round < 4; round++) {
                y[i] += round; // RACE
                if (BUG) __syncthreads();
                __threadfence();
                if (!BUG) __syncthreads();
                if (threadIdx.x == 0) {
                    atomicAdd(counter, 1);
                    while (*(volatile int *)counter < round * gridDim.x) {}
                    __threadfence();
                }
                if (!BUG || round < 3) __syncthreads();
                int other = y[1023 - i]; // RACE
                __threadfence();
                __syncthreads();
                if (threadIdx.x == 0) {
                    atomicAdd(counter + 1, 1);
                    while (*(volatile int *)(counter + 1) < round * gridDim.x) {}
                    __threadfence();
                }
                __syncthreads();
                if (other != y[i]) atomicAdd(counter + 2, 1);
            }
        }"#;
    a_scan_that_looks_back: 64 x 16, "before the atomic or the store", r#"
        __shared__ int before, sums[16];
        KERNEL {
            int i = blockIdx.x * 16 + threadIdx.x;
            volatile int *flag = counter;
            sums[threadIdx.x] = x[i];
            __syncthreads();
            if (threadIdx.x == 0) {
                for (int j = 1; j < 16; j++) sums[j] += sums[j - 1];
                before = 0;
                if (blockIdx.x > 0) {
                    while (flag[blockIdx.x - 1] == 0) {}
                    __threadfence();
                    before = y[blockIdx.x * 16 - 1]; // RACE
                }
            }
            __syncthreads();
            y[i] = before + sums[threadIdx.x];
            __syncthreads();
            if (threadIdx.x == 0) {
                if (!BUG) __threadfence();
                flag[blockIdx.x] = 1;
            }
        }"#;
}

#[test]
fn a_scan_gives_the_sums() {
    let source = r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            int before = 0;
            if (blockIdx.x > 0) {
                while (*(volatile int *)(counter + blockIdx.x - 1) == 0) {}
                __threadfence();
                before = y[blockIdx.x - 1];
            }
            y[blockIdx.x] = before + x[blockIdx.x];
            __threadfence();
            *(volatile int *)(counter + blockIdx.x) = 1;
        }"#;
    let Some(outcome) = run(source, false, 64, 32) else { return };
    assert!(outcome.findings.is_empty(), "{}", outcome.texts());
    for i in 0..64 {
        assert_eq!(outcome.y[i as usize], i * (i + 1) / 2);
    }
}

#[test]
fn a_missing_fence_is_named_by_its_line() {
    let source = r#"
        KERNEL {
            if (threadIdx.x != 0) return;
            y[blockIdx.x] = 5;
            int ticket = atomicAdd(counter, 1); // TICKET
            if (ticket == 3) y[4] = y[0] + y[1]; // RACE
        }"#;
    let Some(outcome) = run(source, true, 4, 32) else { return };
    let ticket = outcome.source.lines().position(|line| line.contains("// TICKET")).unwrap() + 1;
    let named = format!("no fence comes before line {ticket}");
    assert!(outcome.findings.iter().any(|finding| finding.message.contains(&named)), "{}", outcome.texts());
}

/// Blocks of a cluster may use the cluster's scope among each other, but not with others.
#[test]
fn clusters_have_a_scope_of_their_own() {
    let source = r#"
        extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int *y, int *counter) {
            if (threadIdx.x != 0) return;
            int pair = blockIdx.x / (BUG ? 4 : 2);
            if (blockIdx.x % (BUG ? 4 : 2) == 0) {
                y[pair] = 5;
                asm volatile("st.release.cluster.global.u32 [%0], 1;" :: "l"(counter + pair) : "memory");
            } else if (blockIdx.x % 4 != 1 || !BUG) {
                int there;
                do asm volatile("ld.acquire.cluster.global.u32 %0, [%1];" : "=r"(there) : "l"(counter + pair) : "memory"); // RACE
                while (there == 0);
                y[512 + blockIdx.x] = y[pair]; // RACE
            }
        }"#;
    let races = |bug: u32| {
        let ptx = compile("cluster.cu", &format!("#define BUG {bug}\n{source}"), "", "90")?;
        let mut simulator = Simulator::new(profile("90"));
        let module = Module::load(&mut simulator, &ptx).unwrap_or_else(|error| panic!("{error}"));
        let [y, counter] = [4096, 256].map(|bytes| simulator.upload(&vec![0; bytes]).unwrap());
        let config = LaunchConfig {
            cluster: [2, 1, 1],
            ..LaunchConfig::new(8, 32, vec![Argument::U64(y), Argument::U64(counter)])
        };
        Some(simulator.launch(&module, "k", &config).unwrap().findings)
    };
    let Some(good) = races(0) else { return };
    assert!(good.is_empty(), "{}", good[0]);
    let bad = races(1).unwrap();
    assert!(bad.iter().any(|finding| finding.kind == FindingKind::Race));
}

//! Counters of kernels whose numbers are known by thinking.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{Argument, Counters, InstructionClass, LaunchConfig};
use support::{Bench, compile};

fn count(source: &str, blocks: u32, threads: u32) -> Option<Counters> {
    let ptx = compile("counted.cu", &format!("#include \"matrix.cuh\"\n{source}"), "", "80")?;
    let mut bench = Bench::new(&ptx, "80");
    let x = bench.words(&vec![1; 65536]);
    let y = bench.simulator.allocate(4 * 65536).unwrap();
    let report =
        bench.clean_launch(&LaunchConfig::new(blocks, threads, vec![Argument::U64(x), Argument::U64(y)]));
    Some(report.counters)
}

#[test]
fn neighbours_are_read_together_and_strides_are_not() {
    let kernel = |index: &str| {
        let head =
            "extern \"C\" __global__ void k(const int *x, int *y) { int i = blockIdx.x * 128 + threadIdx.x;";
        format!("{head} y[i] = x[{index}]; }}")
    };
    let Some(together) = count(&kernel("i"), 4, 128) else { return };
    assert_eq!(together.global_loads.requests, 16);
    assert_eq!((together.global_loads.transactions, together.global_loads.bytes), (16 * 4, 16 * 128));
    assert_eq!(together.global_loads.efficiency(), 1.0);
    assert_eq!(together.global_stores, together.global_loads);
    assert_eq!(together.lane_efficiency(), 1.0);
    // Arguments are no loads of global memory: two for each of 16 warps.
    assert_eq!(together.class(InstructionClass::Global), 2 * 16);
    assert_eq!(together.class(InstructionClass::Constant), 2 * 16);
    // Nor does a branch that nobody takes leave lanes idle.
    let guarded = kernel("i").replace(" y[i] =", " if (i < 512) y[i] =");
    let Some(guarded) = count(&guarded, 4, 128) else { return };
    assert_eq!((guarded.branches, guarded.lane_efficiency()), (16, 1.0));
    let Some(apart) = count(&kernel("i * 32"), 4, 128) else { return };
    assert_eq!(apart.global_loads.transactions, 16 * 32);
    assert_eq!(apart.global_loads.efficiency(), 0.125);
    let Some(moved) = count(&kernel("i + 1"), 4, 128) else { return };
    assert_eq!(moved.global_loads.transactions, 16 * 5);
    let Some(shared) = count(&kernel("blockIdx.x"), 4, 128) else { return };
    assert_eq!((shared.global_loads.transactions, shared.global_loads.efficiency()), (16, 1.0));
}

#[test]
fn a_column_of_a_matrix_in_shared_memory_is_a_storm_of_bank_conflicts() {
    let kernel = |pitch: u32| {
        format!(
            "extern \"C\" __global__ void k(const int *x, int *y) {{
                __shared__ int s[32 * {pitch}];
                for (int row = 0; row < 32; row++) s[row * {pitch} + threadIdx.x] = x[row * 32 + threadIdx.x];
                __syncthreads();
                int sum = 0;
                #pragma unroll 1
                for (int column = 0; column < 32; column++) sum += s[threadIdx.x * {pitch} + column];
                y[threadIdx.x] = sum; }}"
        )
    };
    let Some(storm) = count(&kernel(32), 1, 32) else { return };
    assert_eq!((storm.shared_loads.requests, storm.shared_loads.transactions), (32, 32 * 32));
    assert_eq!((storm.shared_stores.requests, storm.shared_stores.transactions), (32, 32));
    let Some(calm) = count(&kernel(33), 1, 32) else { return };
    assert_eq!((calm.shared_loads.requests, calm.shared_loads.transactions), (32, 32));
}

#[test]
fn atomics_on_one_word_of_shared_memory_go_one_after_the_other() {
    let kernel = |kind: &str, index: &str| {
        format!(
            "extern \"C\" __global__ void k(const int *x, int *y) {{
                typedef {kind} T;
                __shared__ T s[1024];
                for (int i = threadIdx.x; i < 1024; i += 32) s[i] = 0;
                __syncthreads();
                int i = threadIdx.x;
                atomicAdd(&s[{index}], (T)x[i]);
                __syncthreads();
                y[i] = s[i]; }}"
        )
    };
    for (kind, index, wavefronts_and_conflicts) in [
        ("unsigned", "i", (1, 0)),
        ("unsigned", "0", (32, 31)),
        ("unsigned", "i / 2", (2, 1)),
        // One bank, and another word for each.
        ("unsigned", "32 * i", (32, 31)),
        // Seven lanes on each of four words, in banks of their own, and one more on four others.
        ("unsigned", "i < 28 ? i % 4 : i", (7, 6)),
        // Words of 8 bytes go in two halves of the warp, of which neither is a conflict.
        ("unsigned long long", "i", (2, 0)),
        ("unsigned long long", "0", (32, 30)),
    ] {
        let Some(Counters { shared_atomics, atomics, .. }) = count(&kernel(kind, index), 1, 32) else {
            return;
        };
        let found = (shared_atomics.transactions, shared_atomics.conflicts);
        assert_eq!(found, wavefronts_and_conflicts, "{kind} {index}");
        assert_eq!((shared_atomics.requests, atomics), (1, 32), "{kind} {index}");
        let bytes = if kind == "unsigned" { 4 } else { 8 };
        assert_eq!(shared_atomics.bytes, 32 * bytes, "{kind} {index}");
    }
}

#[test]
fn bytes_of_local_memory_are_counted() {
    // Half of 64 threads write a second time, all read once.
    let source = "extern \"C\" __global__ void k(const int *x, int *y) {
        volatile int a[4];
        a[threadIdx.x % 4] = x[threadIdx.x];
        if (threadIdx.x < 32) a[threadIdx.x % 4] = 7;
        y[threadIdx.x] = a[threadIdx.x % 4]; }";
    let Some(counters) = count(source, 1, 64) else { return };
    assert_eq!(counters.local_store_bytes, (64 + 32) * 4);
    assert_eq!(counters.local_load_bytes, 64 * 4);
    // Registers need none.
    let source = "extern \"C\" __global__ void k(const int *x, int *y) { y[threadIdx.x] = x[threadIdx.x]; }";
    let Some(counters) = count(source, 1, 64) else { return };
    assert_eq!((counters.local_load_bytes, counters.local_store_bytes), (0, 0));
}

#[test]
fn lanes_that_part_are_counted() {
    let source = "extern \"C\" __global__ void k(const int *x, int *y) {
        int value = x[threadIdx.x];
        int rounds = value + 9;
        if (threadIdx.x % 2) {
            for (int i = 0; i < rounds; i++) asm volatile(\"add.s32 %0, %0, 1;\" : \"+r\"(value));
        }
        y[threadIdx.x] = value; }";
    let Some(parted) = count(source, 1, 32) else { return };
    assert!(parted.divergent_branches > 0 && parted.divergent_branches <= parted.branches);
    assert!(parted.lane_efficiency() < 0.9);
    let source =
        "extern \"C\" __global__ void k(const int *x, int *y) { y[threadIdx.x] = x[threadIdx.x] / 3; }";
    let Some(whole) = count(source, 1, 32) else { return };
    assert_eq!(whole.divergent_branches, 0);
    // Four warps branch once each; of these one takes it, two do not, and one parts.
    let source = "extern \"C\" __global__ void k(const int *x, int *y) {
        asm volatile(\"{ .reg .pred p; setp.lt.u32 p, %0, 48; @p bra DONE; st.global.u32 [%1], %0; DONE: }\"
                     :: \"r\"(threadIdx.x), \"l\"(y + threadIdx.x)); }";
    let Some(some) = count(source, 1, 128) else { return };
    assert_eq!((some.branches, some.divergent_branches), (4, 1));
    // So do these by a table, of which the last parts.
    let source = "extern \"C\" __global__ void k(const int *x, int *y) {
        asm volatile(\"{ TABLE: .branchtargets EVEN, ODD; brx.idx %0, TABLE;\\n\"
                     \"EVEN: st.global.u32 [%1], 2; bra.uni DONE; ODD: st.global.u32 [%1], 3; DONE: }\"
                     :: \"r\"(threadIdx.x / 96 & threadIdx.x), \"l\"(y + threadIdx.x)); }";
    let Some(table) = count(source, 1, 128) else { return };
    assert_eq!((table.branches, table.divergent_branches), (4, 1));
}

#[test]
fn operations_of_threads_and_of_matrices() {
    let source = "extern \"C\" __global__ void k(const float *x, float *y) {
        float a = x[threadIdx.x], sum = 0.0f;
        #pragma unroll
        for (int i = 0; i < 10; i++) sum = __fmaf_rn(sum, a, 1.0f);
        float c[4] = {sum, sum, sum, sum};
        u32 ones[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00}, two[2] = {0x40004000, 0x40004000};
        mma_m16n8k16<f16>(c, ones, two);
        y[blockIdx.x * 64 + threadIdx.x] = c[0] + c[1]; }";
    let Some(counters) = count(source, 2, 64) else { return };
    // Ten fused ones and one sum in each of 128 threads.
    assert_eq!(counters.thread_flops, 128 * 21);
    assert_eq!(counters.matrix_flops, 4 * 2 * 16 * 8 * 16);
    assert_eq!(counters.class(InstructionClass::Matrix), 4);
    assert_eq!(counters.class(InstructionClass::Float), 4 * 11);
    // Doubles and halves are numbers too, two of them in a pair; what only chooses one is no operation.
    let source = "extern \"C\" __global__ void k(const int *x, int *y) {
        double d = x[threadIdx.x]; unsigned h = x[threadIdx.x]; float f = x[threadIdx.x];
        asm volatile(\"fma.rn.f64 %0, %0, %0, %0;\" : \"+d\"(d));
        asm volatile(\"fma.rn.f16x2 %0, %0, %0, %0;\" : \"+r\"(h));
        asm volatile(\"max.f32 %0, %0, %0;\" : \"+f\"(f)); }";
    let Some(counters) = count(source, 1, 32) else { return };
    assert_eq!(counters.thread_flops, 32 * (2 + 4));
}

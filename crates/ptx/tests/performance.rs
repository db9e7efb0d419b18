//! Occupancy and predictions.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::fs;

use kinora_ptx::{
    Argument, BlockResources, Calibration, ChipSpec, LaunchConfig, Module, OccupancyLimit, PredictOptions,
    Prediction, Resource, Simulator,
};
use support::compile;

/// `x[i] = x[i] * 2 + 1`, a number a thread, some multiply-adds more, and as many turns of a loop as asked for.
const KERNEL: &str = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 x, .param .u32 turns) {
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r5, [turns];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    mov.u32 %r6, 0;
again:
    fma.rn.f32 %f1, %f1, %f1, %f1;
    add.s32 %r6, %r6, 1;
    setp.lt.s32 %p1, %r6, %r5;
    @%p1 bra again;
    st.global.f32 [%rd3], %f1;
    ret;
}";

fn predict(profile: ChipSpec, blocks: u32, turns: u32, calibration: Calibration) -> Prediction {
    let mut simulator = Simulator::new(profile);
    let module = Module::load(&mut simulator, KERNEL).unwrap();
    let x = simulator.reserve(blocks as usize * 256 * 4);
    let config = LaunchConfig::new(blocks, 256, vec![Argument::U64(x), Argument::U32(turns)]);
    let options = PredictOptions { registers: Some(16), calibration, ..PredictOptions::default() };
    simulator.predict(&module, "scale", &config, &options).unwrap()
}

/// Figures of NVIDIA's occupancy calculator.
#[test]
fn occupancy_is_that_of_the_vendors_calculator() {
    let cases = [
        // 256 threads of 32 registers: all warps.
        (ChipSpec::a100(), 256, 32, 0, 8, OccupancyLimit::Warps),
        // 64 registers: half of them.
        (ChipSpec::a100(), 256, 64, 0, 4, OccupancyLimit::Registers),
        // 33 are rounded to 40: 51 warps, of which 48 are given out by fours.
        (ChipSpec::a100(), 256, 33, 0, 6, OccupancyLimit::Registers),
        // 48 KiB and one more each: three in 164.
        (ChipSpec::a100(), 128, 32, 48 << 10, 3, OccupancyLimit::Shared),
        (ChipSpec::t4(), 256, 32, 0, 4, OccupancyLimit::Warps),
        (ChipSpec::rtx_3090(), 128, 32, 0, 12, OccupancyLimit::Warps),
        (ChipSpec::h200(), 32, 16, 0, 32, OccupancyLimit::Blocks),
        (ChipSpec::h200(), 384, 168, 200 << 10, 1, OccupancyLimit::Registers),
        (ChipSpec::h200(), 128, 32, 228 << 10, 0, OccupancyLimit::Shared),
    ];
    for (profile, threads, registers, shared_bytes, blocks, limit) in cases {
        let found = profile.occupancy(&BlockResources { threads, registers, shared_bytes });
        assert_eq!((found.blocks, found.limit), (blocks, limit), "{} {threads} {registers}", profile.name);
    }
}

#[test]
fn a_streaming_kernel_is_limited_by_memory_and_a_counting_one_by_its_units() {
    let streams = predict(ChipSpec::h200(), 400_000, 1, Calibration::default());
    assert_eq!(streams.limiter, Resource::Dram, "{streams:?}");
    assert_eq!(streams.dram_bytes, 2.0 * 400_000.0 * 1024.0);
    let counts = predict(ChipSpec::h200(), 4_000, 3_000, Calibration::default());
    assert!(matches!(counts.limiter, Resource::Issue | Resource::Float | Resource::Integer), "{counts:?}");
    let small = predict(ChipSpec::h200(), 1, 1, Calibration::default());
    assert_eq!(small.limiter, Resource::Launch, "{small:?}");
}

#[test]
fn more_of_anything_is_never_slower() {
    let base = ChipSpec::a100();
    let seconds = |profile: ChipSpec, turns| predict(profile, 20_000, turns, Calibration::default()).seconds;
    for turns in [1, 200] {
        let before = seconds(base.clone(), turns);
        let mut memory = base.clone();
        memory.memory.dram_bytes *= 2.0;
        let mut cache = base.clone();
        cache.memory.l2_rate *= 2.0;
        let mut clock = base.clone();
        clock.clock_hz *= 2.0;
        let mut wider = base.clone();
        wider.multiprocessors *= 2;
        for better in [memory, cache, clock, wider] {
            assert!(seconds(better, turns) <= before * 1.001, "{turns}");
        }
        assert!(seconds(base.clone(), 2 * turns) >= before);
    }
    for share in [0.5, 0.7] {
        let slow = Calibration { clock: share, dram: share, l2: share, ..Calibration::default() };
        assert!(predict(base.clone(), 20_000, 50, slow).seconds > seconds(base.clone(), 50));
    }
}

/// A grid of a few blocks runs whole; one of many by a sample, and takes as long for each block.
#[test]
fn a_sample_says_what_all_blocks_do() {
    let mut tiny = ChipSpec::h200();
    tiny.multiprocessors = 2;
    // Twice eight blocks at a time: three rounds are run whole, thirty by a tenth.
    let whole = predict(tiny.clone(), 48, 500, Calibration::default());
    let sampled = predict(tiny, 480, 500, Calibration::default());
    assert_eq!(whole.sampled_blocks, 48);
    assert!(sampled.sampled_blocks < 100, "{}", sampled.sampled_blocks);
    let ratio = sampled.multiprocessor_seconds / whole.multiprocessor_seconds;
    assert!((ratio - 10.0).abs() < 0.5, "{ratio}");
    assert_eq!(sampled.counters.warp_instructions(), 10 * whole.counters.warp_instructions());
}

#[test]
fn a_calibration_is_kept_in_a_file_and_a_damaged_one_is_refused() {
    let folder = std::env::temp_dir().join(format!("kinora-calibration-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("calibration.json");
    let kept = Calibration {
        device: "a device".to_owned(),
        clock: 0.8,
        launch_seconds: Some(5e-6),
        ..Calibration::default()
    };
    kept.write(&path).unwrap();
    assert_eq!(Calibration::read(&path).unwrap(), kept);
    let text = fs::read_to_string(&path).unwrap();
    for (damage, said) in [
        (text.replace("\"format\": 1", "\"format\": 9"), "format is 9"),
        (text.replace("0.8", "-0.8"), "clock"),
        (text.replace("0.8", "1e-320"), "clock"),
        (text.replace("0.8", "50"), "clock"),
        (text.replace("\"clock\"", "\"clack\""), "clack"),
        (text[..text.len() / 2].to_owned(), "not a calibration"),
        (String::new(), "not a calibration"),
    ] {
        fs::write(&path, damage).unwrap();
        let error = Calibration::read(&path).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("calibration.json"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(Calibration::read(&path).unwrap_err().to_string().contains("calibration.json"));
    fs::remove_dir_all(&folder).unwrap();
}

/// Atomics of a warp's lanes on one place of shared memory go one after the other; on places of their own, together. Lanes that add a
/// constant 1 are counted at once.
#[test]
fn shared_atomics_on_one_place_take_longer() {
    let seconds = |stride: u32, value: u32| {
        let ptx = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n.reg .b32 %r<4>;\n.reg .pred %p;\n\
             .shared .align 4 .b8 s[1024];\nmov.u32 %r1, %tid.x;\nmul.lo.u32 %r1, %r1, {stride};\nmov.u32 %r2, s;\n\
             add.u32 %r1, %r1, %r2;\nmov.u32 %r3, 0;\nagain:\natom.shared.add.u32 %r0, [%r1], {value};\nand.b32 %r0, %r0, 0;\n\
             add.u32 %r1, %r1, %r0;\nadd.u32 %r3, %r3, 1;\n\
             setp.lt.u32 %p, %r3, 100;\n@%p bra again;\nret;\n}}\n"
        );
        let mut simulator = Simulator::new(ChipSpec::a100());
        let module = Module::load(&mut simulator, &ptx).unwrap();
        let options = PredictOptions { registers: Some(16), ..PredictOptions::default() };
        simulator
            .predict(&module, "k", &LaunchConfig::new(108, 256, Vec::new()), &options)
            .unwrap()
            .multiprocessor_seconds
    };
    let (apart, together) = (seconds(4, 2), seconds(0, 2));
    assert!(together > 4.0 * apart, "{together} s against {apart} s");
    assert_eq!(seconds(0, 1), apart);
}

/// The milliseconds that the only kernel of a source takes on an H200, launch included. Its arguments are `buffers` of 64 MiB, and then
/// `values`.
fn milliseconds(
    source: &str,
    grid: [u32; 2],
    block: [u32; 2],
    buffers: usize,
    values: &[u32],
) -> Option<f64> {
    Some(1e3 * predicted(source, grid, block, buffers, values)?.seconds)
}

fn predicted(
    source: &str,
    grid: [u32; 2],
    block: [u32; 2],
    buffers: usize,
    values: &[u32],
) -> Option<Prediction> {
    let ptx = compile("predicted.cu", source, "", "90")?;
    let mut simulator = Simulator::new(ChipSpec::h200());
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let mut arguments: Vec<Argument> =
        (0..buffers).map(|_| Argument::U64(simulator.reserve(64 << 20))).collect();
    arguments.extend(values.iter().map(|&value| Argument::U32(value)));
    let config = LaunchConfig {
        grid: [grid[0], grid[1], 1],
        block: [block[0], block[1], 1],
        ..LaunchConfig::new(1, 1, arguments)
    };
    let calibration = Calibration::of(simulator.chip());
    let options = PredictOptions { registers: Some(32), calibration, ..PredictOptions::default() };
    let name = module.kernels().next().unwrap();
    Some(simulator.predict(&module, name, &config, &options).unwrap())
}

/// C = A B of n × n numbers in f32, a thread each.
const NAIVE: &str = "extern \"C\" __global__ void k(const float *a, const float *b, float *c, int n) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += a[row * n + i] * b[i * n + column];
    c[row * n + column] = sum; }";

/// The same by tiles of 16 × 16 in shared memory.
const TILED: &str = "extern \"C\" __global__ void k(const float *a, const float *b, float *c, int n) {
    __shared__ float s[16][16], t[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0.0f;
    for (int tile = 0; tile < n; tile += 16) {
        s[y][x] = a[row * n + tile + x];
        t[y][x] = b[(tile + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += s[y][i] * t[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum; }";

/// Measured on an H200 for n = 1024: 0.422 ms and 0.277 ms.
#[test]
fn a_tiled_matrix_product_is_faster_than_a_naive_one() {
    let time = |source| milliseconds(source, [64, 64], [16, 16], 3, &[1024]);
    let (Some(naive), Some(tiled)) = (time(NAIVE), time(TILED)) else { return };
    assert!(naive > 1.1 * tiled, "naive {naive} ms, tiled {tiled} ms");
    assert!((0.422 / 1.5..0.422 * 1.5).contains(&naive), "{naive} ms");
    assert!((0.277 / 1.6..0.277 * 1.6).contains(&tiled), "{tiled} ms");
}

/// 2^24 atomics on one word, with and without results. Measured on an H200, with results: 0.396 ms.
#[test]
fn atomics_on_one_word_go_one_after_the_other() {
    let time = |source: &str| {
        milliseconds(
            &format!(
                "extern \"C\" __global__ void k(unsigned *x, unsigned *y) {{ unsigned i = blockIdx.x * 256 + threadIdx.x; {source} }}"
            ),
            [65536, 1],
            [256, 1],
            2,
            &[],
        )
    };
    let Some(with) = time("y[i] = atomicAdd(x, 1u);") else { return };
    let (Some(without), Some(apart), Some(varied)) =
        (time("atomicAdd(x, 1u);"), time("atomicAdd(x + i, 1u);"), time("y[i] = atomicAdd(x, i);"))
    else {
        return;
    };
    assert!((0.396 / 1.6..0.396 * 1.6).contains(&with), "{with} ms");
    assert!((0.396 / 1.6..0.396 * 1.6).contains(&without), "{without} ms");
    assert!(apart < 0.5 * without, "{apart} ms");
    // The assembler cannot add up values whose sums each lane needs.
    assert!(varied > 4.0 * with, "{varied} ms");
}

/// A block reads the same 4 KiB again and again: from L1, or from L2 with `ld.global.cg`, volatile or `relaxed`.
#[test]
fn loads_that_leave_out_l1_are_slower() {
    let time = |load: &str| {
        let source = format!(
            "extern \"C\" __global__ void k(const float *x, float *y) {{
                float sum = 0.0f;
                for (int i = 0; i < 1000; i++) {{
                    float value; const float *p = x + (i % 4) * 256 + threadIdx.x;
                    asm volatile(\"{load} %0, [%1];\" : \"=f\"(value) : \"l\"(p));
                    sum += value;
                }}
                y[blockIdx.x * 256 + threadIdx.x] = sum; }}"
        );
        predicted(&source, [1056, 1], [256, 1], 2, &[])
    };
    let Some(cached) = time("ld.global.ca.f32") else { return };
    for load in [
        "ld.global.cg.f32",
        "ld.global.cv.f32",
        "ld.volatile.global.f32",
        "ld.relaxed.gpu.global.f32",
        "ld.acquire.sys.global.f32",
    ] {
        let Some(uncached) = time(load) else { return };
        assert!(
            uncached.seconds > 1.5 * cached.seconds,
            "{load}: {} s against {} s",
            uncached.seconds,
            cached.seconds
        );
        assert!(uncached.l2_bytes > 50.0 * cached.l2_bytes, "{load}");
    }
    // Within a block the first level is coherent.
    let Some(block) = time("ld.relaxed.cta.global.f32") else { return };
    assert_eq!(block.l2_bytes, cached.l2_bytes);
}

/// An array that is indexed by a number that is not known is in local memory: it goes through L1, and beyond it if it does not fit.
#[test]
fn local_arrays_are_memory_traffic() {
    let run = |length: u32, rounds: u32| {
        let source = format!(
            "extern \"C\" __global__ void k(const float *x, float *y, int step) {{
                float all[{length}];
                for (int i = 0; i < {length}; i++) all[i] = x[i];
                float sum = 0.0f;
                #pragma unroll 1
                for (int i = 0, at = 0; i < {rounds}; i++) {{ sum += all[at]; at = (at + step) & {}; }}
                y[blockIdx.x * 256 + threadIdx.x] = sum; }}",
            length - 1
        );
        predicted(&source, [1056, 1], [256, 1], 2, &[1])
    };
    let (Some(short), Some(long)) = (run(16, 512), run(256, 512)) else { return };
    // Sixteen numbers of 2048 threads are 128 KiB, which fit; 256 are 2 MiB.
    assert!(long.seconds > 1.2 * short.seconds, "{} s against {} s", long.seconds, short.seconds);
    assert!(long.l2_bytes > 10.0 * short.l2_bytes, "{} against {}", long.l2_bytes, short.l2_bytes);
    // 512 loads of a warp are 512 wavefronts of L1, of 64 warps.
    let clocks =
        short.multiprocessor_seconds * ChipSpec::h200().clock_hz * Calibration::of(&ChipSpec::h200()).clock;
    assert!(clocks > 64.0 * 512.0, "{clocks}");
}

/// Columns of a matrix: the lanes of a warp read 32 lines, and the next seven columns are in the same sectors. A block of 128 rows keeps
/// them in L1, one of 16384 rows does not.
#[test]
fn strided_reads_are_kept_if_they_fit() {
    let run = |rows: u32| {
        let source = format!(
            "extern \"C\" __global__ void k(const float *x, float *y) {{
                float sum = 0.0f;
                for (int column = 0; column < 8; column++)
                    for (int row = threadIdx.x; row < {rows}; row += 128) sum += x[row * 1024 + column];
                y[blockIdx.x * 128 + threadIdx.x] = sum; }}"
        );
        predicted(&source, [132, 1], [128, 1], 2, &[])
    };
    let (Some(kept), Some(lost)) = (run(128), run(16384)) else { return };
    let per_row = |prediction: &Prediction, rows: f64| prediction.l2_bytes / (132.0 * rows * 32.0);
    // A sector of each row once, or for every column.
    assert!(per_row(&kept, 128.0) < 2.5, "{}", per_row(&kept, 128.0));
    assert!(per_row(&lost, 16384.0) > 6.0, "{}", per_row(&lost, 16384.0));
}

/// The constants of an H200 in the program are those that its measurements gave.
#[test]
fn the_known_calibration_is_the_measured_one() {
    let measured = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results/h200/calibration.json");
    let known = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("known-calibration.json");
    // As texts, since the reader of JSON may round a number's last bit.
    Calibration::of(&ChipSpec::h200()).write(&known).unwrap();
    assert_eq!(fs::read_to_string(&known).unwrap(), fs::read_to_string(measured).unwrap());
    assert_eq!(Calibration::of(&ChipSpec::h100()), Calibration::of(&ChipSpec::h200()));
    assert_eq!(Calibration::of(&ChipSpec::t4()), Calibration::default());
    // The data sheets: 65 and 989 TFLOP/s.
    assert!((ChipSpec::t4().tensor_flops() / 65e12 - 1.0).abs() < 0.01);
    assert!((ChipSpec::h200().tensor_flops() / 989.4e12 - 1.0).abs() < 0.01);
}

//! The project's own kernels, compiled by NVRTC and run with every check, against plain loops in f64.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{Argument, LaunchConfig, MapElement, Swizzle, TensorMap, TensorMapKind};
use support::{Bench, assert_close, compile_kernel, integers, pointer, random};

const EVERYWHERE: [&str; 5] = ["75", "80", "86", "89", "90a"];

/// An epilogue without stages.
const NO_EPILOGUE: &str = r#"
#include "epilogue.cuh"
typedef EpilogueOperands<1> Epilogue;
constexpr int element_operands = 0;
template <int N> struct Fetched {};
template <int N> __device__ __forceinline__ void fetch(Fetched<N> &f, const Epilogue &e, i64 element) {}
template <int N> __device__ __forceinline__ void apply_stages(
    float (&v)[N], const Fetched<N> &f, const Epilogue &e, int row, int column) {}
template <int N> __device__ __forceinline__ void finish(float (&v)[N], const Epilogue &e, int row, i64 element, int column) {}
"#;

fn defines(pairs: &[(&str, &str)]) -> String {
    pairs.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect()
}

#[test]
fn elementwise() {
    let specialisation = defines(&[
        ("EXPRESSION", "silu(p * x[0] + q)"),
        ("OPERANDS", "1"),
        ("RANK", "1"),
        ("VECTOR", "8"),
        ("UNROLL", "4"),
        ("INDEX", "u32"),
        ("RESULT", "f16"),
        ("TYPE_0", "f16"),
        ("SPREAD_0", "true"),
    ]);
    for architecture in EVERYWHERE {
        let Some(ptx) = compile_kernel("pointwise/elementwise.cu", &specialisation, architecture) else {
            return;
        };
        let mut bench = Bench::new(&ptx, architecture);
        // Not a multiple of a vector: the end is a scalar loop.
        let count = 20_003;
        let x = random(count, 1);
        let x_at = bench.halves(&x);
        let y_at = bench.simulator.allocate(2 * count).unwrap();
        let operands = integers(&[x_at as i64, 8, count.div_ceil(8) as i64], &[]);
        let arguments = vec![
            pointer(y_at),
            Argument::Bytes(operands),
            Argument::U64(count as u64),
            Argument::F32(3.0),
            Argument::F32(0.5),
        ];
        let blocks = count.div_ceil(8).div_ceil(256 * 4) as u32;
        bench.clean_launch(&LaunchConfig::new(blocks, 256, arguments));
        let expected: Vec<f64> = x
            .iter()
            .map(|&x| {
                let x = 3.0 * f64::from(x) + 0.5;
                x / (1.0 + (-x).exp())
            })
            .collect();
        assert_close(&bench.read_halves(y_at, count), &expected, 1e-3);
    }
}

#[test]
fn layer_norm() {
    for (in_registers, channels, rows) in [(true, 320, 37), (false, 640, 5)] {
        let specialisation = defines(&[
            ("IN_REGISTERS", if in_registers { "1" } else { "0" }),
            ("VECTOR", "8"),
            ("LANES", "8"),
            ("PER_LANE", "5"),
            ("TYPE", "f16"),
            ("CENTRED", "true"),
            ("SCALED", "true"),
            ("SHIFTED", "true"),
            ("SCALE", "f16"),
            ("SHIFT", "f16"),
            ("ACTIVATION", "gelu"),
            ("QUANTISED", "false"),
            ("RESULT", "f16"),
        ]);
        for architecture in ["75", "90a"] {
            let Some(ptx) = compile_kernel("norm/rows.cu", &specialisation, architecture) else { return };
            let mut bench = Bench::new(&ptx, architecture);
            let (x, scale, shift) = (random(rows * channels, 2), random(channels, 3), random(channels, 4));
            let (x_at, scale_at, shift_at) = (bench.halves(&x), bench.halves(&scale), bench.halves(&shift));
            let y_at = bench.simulator.allocate(2 * rows * channels).unwrap();
            let arguments = vec![
                pointer(y_at),
                pointer(x_at),
                Argument::Bytes(integers(&[scale_at as i64, shift_at as i64], &[])),
                Argument::U64(rows as u64),
                Argument::U32(channels as u32),
                Argument::F32(1e-5),
                Argument::F32(1.0),
            ];
            let config = if in_registers {
                LaunchConfig::new(rows.div_ceil(16) as u32, 128, arguments)
            } else {
                LaunchConfig::new(rows as u32, 256, arguments)
            };
            bench.clean_launch(&config);
            let mut expected = Vec::new();
            for row in x.chunks(channels) {
                let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / channels as f64;
                let variance =
                    row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / channels as f64;
                for (i, &value) in row.iter().enumerate() {
                    let normal = (f64::from(value) - mean) / (variance + 1e-5).sqrt();
                    let value = normal * f64::from(scale[i]) + f64::from(shift[i]);
                    expected.push(0.5 * value * (1.0 + erf(value / 2f64.sqrt())));
                }
            }
            assert_close(&bench.read_halves(y_at, rows * channels), &expected, 1e-3);
        }
    }
}

/// By its series: a sum of small terms for the arguments that occur here.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn product(a: &[f32], b: &[f32], rows: usize, columns: usize, depth: usize) -> Vec<f64> {
    let mut expected = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        for column in 0..columns {
            let dot = |i: usize| f64::from(a[row * depth + i]) * f64::from(b[column * depth + i]);
            expected.push((0..depth).map(dot).sum());
        }
    }
    expected
}

#[test]
fn matrix_product_of_a_warp() {
    for architecture in EVERYWHERE {
        for (rows, columns, depth) in [(100, 96, 128), (64, 72, 40)] {
            let asynchronous = if architecture == "75" { "0" } else { "1" };
            let stages = if architecture == "75" { "2" } else { "3" };
            let specialisation = defines(&[
                ("ELEMENT", "f16"),
                ("TYPE", "f16"),
                ("CONVOLUTION", "0"),
                ("GATED", "0"),
                ("SPLIT", "0"),
                ("STORE", "8"),
                ("TILE_ROWS", "64"),
                ("TILE_COLUMNS", "64"),
                ("WARPS_DOWN", "2"),
                ("WARPS_ACROSS", "2"),
                ("STAGES", stages),
                ("ASYNCHRONOUS", asynchronous),
                ("A_VECTOR", "1"),
                ("B_VECTOR", "1"),
                ("BLOCKS", "4"),
            ]) + NO_EPILOGUE;
            let Some(ptx) = compile_kernel("matrix/mma.cu", &specialisation, architecture) else { return };
            let mut bench = Bench::new(&ptx, architecture);
            let (a, b) = (random(rows * depth, 5), random(columns * depth, 6));
            let (a_at, b_at) = (bench.halves(&a), bench.halves(&b));
            let y_at = bench.simulator.allocate(2 * rows * columns).unwrap();
            let numbers = integers(
                &[depth as i64, 1, depth as i64, 1, 0, 0, 0, columns as i64],
                &[
                    rows as i32,
                    columns as i32,
                    depth as i32,
                    depth as i32,
                    1,
                    depth.div_ceil(32) as i32,
                    0,
                    0,
                ],
            );
            let arguments = vec![
                pointer(a_at),
                pointer(b_at),
                pointer(y_at),
                pointer(0),
                Argument::Bytes(numbers),
                Argument::Bytes(vec![0; 72]),
                Argument::Bytes(integers(&[0, 0, columns as i64, 1, 0], &[])),
            ];
            let blocks = rows.div_ceil(64) * columns.div_ceil(64);
            let mut config = LaunchConfig::new(blocks as u32, 128, arguments);
            let stages: usize = stages.parse().unwrap();
            config.shared_bytes = (128 * 64 * stages).max(4 * 16 * (32 + 8) * 4);
            let report = bench.clean_launch(&config);
            assert!(report.counters.matrix_flops > 0);
            assert_close(
                &bench.read_halves(y_at, rows * columns),
                &product(&a, &b, rows, columns, depth),
                1e-3,
            );
        }
    }
}

fn tiled_map(address: u64, extents: [u64; 5], strides: [u64; 4], tile: [u32; 5], rank: usize) -> Argument {
    Argument::TensorMap(TensorMap {
        address,
        element: MapElement::F16,
        rank,
        extents,
        strides,
        element_strides: [1; 5],
        kind: TensorMapKind::Tiled { tile },
        swizzle: Swizzle::Bytes128,
        nan_outside: false,
    })
}

#[test]
fn matrix_product_of_a_warpgroup() {
    let (tile_rows, tile_columns, stages) = (128usize, 128usize, 3usize);
    for (rows, columns, depth, blocks) in [(200usize, 136usize, 96usize, 2u32), (128, 128, 256, 1)] {
        let specialisation = defines(&[
            ("ELEMENT", "f16"),
            ("TYPE", "f16"),
            ("GATED", "0"),
            ("SPLIT", "0"),
            ("CLUSTER", "1"),
            ("TILE_ROWS", "128"),
            ("TILE_COLUMNS", "128"),
            ("STAGES", "3"),
        ]) + NO_EPILOGUE;
        let Some(ptx) = compile_kernel("matrix/wgmma.cu", &specialisation, "90a") else { return };
        let mut bench = Bench::new(&ptx, "90a");
        let (a, b) = (random(rows * depth, 7), random(columns * depth, 8));
        let (a_at, b_at) = (bench.halves(&a), bench.halves(&b));
        let y_at = bench.simulator.allocate(2 * rows * columns).unwrap();
        let line = 2 * depth as u64;
        let map_a = tiled_map(
            a_at,
            [depth as u64, rows as u64, 1, 1, 1],
            [line, line * rows as u64, line * rows as u64, line * rows as u64],
            [64, 128, 1, 1, 1],
            5,
        );
        let map_b = tiled_map(
            b_at,
            [depth as u64, 1, columns as u64, 1, 1],
            [line, line, 0, 0],
            [64, 1, 128, 1, 1],
            3,
        );
        let across = columns.div_ceil(tile_columns) as i32;
        let counts = rows.div_ceil(tile_rows) as i32;
        #[rustfmt::skip]
        let boxes = [
            7, 0, 0, 0,
            counts, 1, 1, 1,
            rows as i32, 1, 1, 1,
            1, 1, 1, 0, 0, 0, 1, 1, 1,
            depth.div_ceil(64) as i32, columns as i32, across, across * counts, 1, rows as i32,
        ];
        let arguments = vec![
            map_a,
            map_b,
            pointer(y_at),
            pointer(0),
            Argument::Bytes(integers(&[], &boxes)),
            Argument::Bytes(integers(&[0, 0, columns as i64, 1, 0], &[])),
        ];
        let mut config = LaunchConfig::new(blocks, 384, arguments);
        config.shared_bytes = (tile_rows + tile_columns) * 128 * stages + 8 * 16 * 36 * 4 + 16 * stages;
        bench.clean_launch(&config);
        assert_close(&bench.read_halves(y_at, rows * columns), &product(&a, &b, rows, columns, depth), 1e-3);
    }
}

struct Attention {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
}

impl Attention {
    fn problem(&self) -> Vec<u8> {
        let channels = (self.heads * self.width) as i64;
        let strides = |length: usize| [channels, channels, length as i64 * channels];
        let longs =
            [strides(self.queries), strides(self.keys), strides(self.keys), strides(self.queries)].concat();
        let mut bytes = integers(&longs, &[]);
        // No mask, no window, one sequence.
        bytes.extend(integers(&[0, 0, 0, 1], &[self.batch as i32, self.queries as i32, self.keys as i32]));
        bytes.extend(integers(&[], &[self.heads as i32, 1, 1, 0]));
        bytes.extend((1.0 / (self.width as f32).sqrt()).to_le_bytes());
        bytes
    }

    /// What every kernel takes: no mask, lengths or boundaries, and no logarithms.
    fn arguments(&self, operands: [u64; 3], y: u64) -> Vec<Argument> {
        let pointers = operands.into_iter().chain([0, 0, 0, 0, y, 0]).map(pointer);
        pointers.chain([Argument::Bytes(self.problem())]).collect()
    }

    fn expected(&self, q: &[f32], k: &[f32], v: &[f32]) -> Vec<f64> {
        let channels = self.heads * self.width;
        let mut expected = vec![0.0; self.batch * self.queries * channels];
        let scale = 1.0 / (self.width as f64).sqrt();
        for batch in 0..self.batch {
            for head in 0..self.heads {
                let at = |row: usize, length: usize, i: usize| {
                    (batch * length + row) * channels + head * self.width + i
                };
                for query in 0..self.queries {
                    let score = |key: usize| {
                        let dot = |i: usize| {
                            f64::from(q[at(query, self.queries, i)]) * f64::from(k[at(key, self.keys, i)])
                        };
                        (0..self.width).map(dot).sum::<f64>() * scale
                    };
                    let scores: Vec<f64> = (0..self.keys).map(score).collect();
                    let most = scores.iter().fold(f64::NEG_INFINITY, |most, &score| most.max(score));
                    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                    let total: f64 = weights.iter().sum();
                    for i in 0..self.width {
                        let term = |key: usize| weights[key] * f64::from(v[at(key, self.keys, i)]);
                        expected[at(query, self.queries, i)] = (0..self.keys).map(term).sum::<f64>() / total;
                    }
                }
            }
        }
        expected
    }
}

#[test]
fn attention_by_blocks_of_keys() {
    for architecture in EVERYWHERE {
        let stages = if architecture == "75" { "1" } else { "2" };
        let specialisation = defines(&[
            ("HEAD_DIM", "64"),
            ("MASK", "0"),
            ("MASK_TYPE", "u8"),
            ("KEY_LENGTHS", "0"),
            ("BOUNDARIES", "0"),
            ("LOG_SUM_EXP", "0"),
            ("ELEMENT", "f16"),
            ("QUERY_TILE", "64"),
            ("WARP_ROWS", "16"),
            ("KEY_TILE", "64"),
            ("STAGES", stages),
            ("VALUE_SLICE", "64"),
        ]);
        let Some(ptx) = compile_kernel("attention/flash.cu", &specialisation, architecture) else { return };
        let mut bench = Bench::new(&ptx, architecture);
        let attention = Attention { batch: 1, heads: 2, queries: 100, keys: 150, width: 64 };
        let channels = attention.heads * attention.width;
        let (q, k, v) = (random(100 * channels, 9), random(150 * channels, 10), random(150 * channels, 11));
        let (q_at, k_at, v_at) = (bench.halves(&q), bench.halves(&k), bench.halves(&v));
        let y_at = bench.simulator.allocate(2 * 100 * channels).unwrap();
        let arguments = attention.arguments([q_at, k_at, v_at], y_at);
        let mut config = LaunchConfig::new(4, 128, arguments);
        config.shared_bytes = 2 * (64 * 72 + stages.parse::<usize>().unwrap() * 64 * (72 + 72));
        bench.clean_launch(&config);
        assert_close(&bench.read_halves(y_at, 100 * channels), &attention.expected(&q, &k, &v), 2e-3);
    }
}

#[test]
fn attention_with_the_copy_engine() {
    for (warpgroups, key_tile, turns, keys) in
        [(2usize, 128usize, "1", 300usize), (3, 128, "1", 128), (2, 128, "0", 256)]
    {
        let specialisation = defines(&[
            ("HEAD_DIM", "64"),
            ("MASK", "0"),
            ("MASK_TYPE", "u8"),
            ("KEY_LENGTHS", "0"),
            ("BOUNDARIES", "0"),
            ("LOG_SUM_EXP", "0"),
            ("ELEMENT", "f16"),
            ("WARPGROUPS", &warpgroups.to_string()),
            ("KEY_TILE", &key_tile.to_string()),
            ("STAGES", "2"),
            ("TURNS", turns),
            ("OVERLAPPED", "0"),
            ("SKIPPING", "0"),
            ("POLYNOMIAL", "0"),
            ("PERSISTENT", "0"),
            ("MASK_PAIRS", "1"),
        ]);
        let Some(ptx) = compile_kernel("attention/hopper.cu", &specialisation, "90a") else { return };
        let mut bench = Bench::new(&ptx, "90a");
        let attention = Attention { batch: 2, heads: 1, queries: 200, keys, width: 64 };
        let (q, k, v) = (random(400 * 64, 12), random(2 * keys * 64, 13), random(2 * keys * 64, 14));
        let (q_at, k_at, v_at) = (bench.halves(&q), bench.halves(&k), bench.halves(&v));
        let y_at = bench.simulator.allocate(2 * 400 * 64).unwrap();
        let map = |address: u64, length: usize, rows: usize| {
            let length = length as u64;
            tiled_map(
                address,
                [64, 1, length, 2, 1],
                [128, 128, 128 * length, 0],
                [64, 1, rows as u32, 1, 1],
                4,
            )
        };
        let query_tile = 64 * warpgroups;
        let mut arguments =
            vec![map(q_at, 200, query_tile), map(k_at, keys, key_tile), map(v_at, keys, key_tile)];
        arguments.extend(attention.arguments([q_at, k_at, v_at], y_at));
        let blocks = 2 * 200usize.div_ceil(query_tile);
        let mut config = LaunchConfig::new(blocks as u32, 128 * (warpgroups as u32 + 1), arguments);
        config.shared_bytes = 128 * (query_tile + 4 * key_tile) + 8 * 10;
        bench.clean_launch(&config);
        assert_close(&bench.read_halves(y_at, 400 * 64), &attention.expected(&q, &k, &v), 2e-3);
    }
}

#[test]
fn sines_of_timesteps() {
    // Large angles take a function that is called, with arguments and results in local memory.
    let specialisation = defines(&[("TYPE", "f32"), ("COSINE_FIRST", "true")]);
    for architecture in EVERYWHERE {
        let Some(ptx) = compile_kernel("embedding/timesteps.cu", &specialisation, architecture) else {
            return;
        };
        let mut bench = Bench::new(&ptx, architecture);
        let (times, width) = ([0.0f32, 1.0, 999.0, 3.0e9, 12345.678], 33usize);
        let t_at = bench.singles(&times);
        let y_at = bench.simulator.allocate(4 * times.len() * width).unwrap();
        let step = -(10000f64.ln()) / 16.0;
        let frequencies = [step, 1.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let arguments = vec![
            pointer(y_at),
            pointer(t_at),
            Argument::Bytes(frequencies),
            Argument::U64(times.len() as u64),
            Argument::U32(width as u32),
        ];
        bench.clean_launch(&LaunchConfig::new((times.len() * 17).div_ceil(128) as u32, 128, arguments));
        let mut expected = vec![0.0; times.len() * width];
        for (row, &t) in times.iter().enumerate() {
            for i in 0..16 {
                let angle = f64::from(t) * (step * i as f64).exp();
                expected[row * width + i] = angle.cos();
                expected[row * width + 16 + i] = angle.sin();
            }
        }
        assert_close(&bench.read_singles(y_at, expected.len()), &expected, 1e-6);
    }
}

#[test]
fn softmax() {
    for (in_registers, channels, rows) in [(true, 77usize, 9usize), (false, 2050, 3)] {
        let specialisation = defines(&[
            ("IN_REGISTERS", if in_registers { "1" } else { "0" }),
            ("VECTOR", "1"),
            ("LANES", "32"),
            ("PER_LANE", "3"),
            ("TYPE", "f32"),
        ]);
        for architecture in ["75", "86"] {
            let Some(ptx) = compile_kernel("norm/softmax.cu", &specialisation, architecture) else { return };
            let mut bench = Bench::new(&ptx, architecture);
            let x: Vec<f32> = random(rows * channels, 20).iter().map(|value| value * 20.0).collect();
            let x_at = bench.singles(&x);
            let y_at = bench.simulator.allocate(4 * rows * channels).unwrap();
            let counts = [rows as u64, channels as u64].map(Argument::U64);
            let arguments = [pointer(y_at), pointer(x_at)].into_iter().chain(counts).collect();
            let config = if in_registers {
                LaunchConfig::new(rows.div_ceil(4) as u32, 128, arguments)
            } else {
                LaunchConfig::new(rows as u32, 256, arguments)
            };
            bench.clean_launch(&config);
            let mut expected = Vec::new();
            for row in x.chunks(channels) {
                let total: f64 = row.iter().map(|&value| f64::from(value).exp()).sum();
                expected.extend(row.iter().map(|&value| f64::from(value).exp() / total));
            }
            assert_close(&bench.read_singles(y_at, rows * channels), &expected, 1e-5);
        }
    }
}

#[test]
fn group_norm_of_a_whole_slab() {
    // Two images of 60 pixels and 64 channels in 8 groups of 8: a block has one group, 64 lanes of one column.
    let specialisation = defines(&[
        ("TYPE", "f16"),
        ("VECTOR", "8"),
        ("WHOLE", "1"),
        ("THREADS", "64"),
        ("PER_THREAD", "1"),
        ("FULL_TURNS", "0"),
        ("CHANNELS", "64"),
        ("MEMBERS", "8"),
        ("GROUPS", "1"),
        ("CLUSTER", "1"),
        ("RESIDENT", "1"),
        ("SCALED", "true"),
        ("SHIFTED", "true"),
        ("SCALE", "f16"),
        ("SHIFT", "f16"),
        ("ACTIVATION", "silu"),
        ("QUANTISED", "false"),
        ("RESULT", "f16"),
    ]);
    let (images, rows, channels, groups) = (2usize, 60usize, 64usize, 8usize);
    for architecture in EVERYWHERE {
        let Some(ptx) = compile_kernel("norm/group.cu", &specialisation, architecture) else { return };
        let mut bench = Bench::new(&ptx, architecture);
        let (x, scale, shift) =
            (random(images * rows * channels, 21), random(channels, 22), random(channels, 23));
        let (x_at, scale_at, shift_at) = (bench.halves(&x), bench.halves(&scale), bench.halves(&shift));
        let y_at = bench.simulator.allocate(2 * x.len()).unwrap();
        let slab = integers(&[rows as i64, rows as i64, 1], &[]);
        let arguments = vec![
            pointer(y_at),
            pointer(x_at),
            Argument::Bytes(integers(&[scale_at as i64, shift_at as i64], &[])),
            Argument::Bytes(slab),
            Argument::F32(1e-5),
            Argument::F32(1.0),
        ];
        bench.clean_launch(&LaunchConfig::new((images * groups) as u32, 64, arguments));
        let members = channels / groups;
        let mut expected = vec![0.0; x.len()];
        for image in 0..images {
            for group in 0..groups {
                let at = |row: usize, i: usize| (image * rows + row) * channels + group * members + i;
                let all: Vec<usize> = (0..rows * members).map(|i| at(i / members, i % members)).collect();
                let mean = all.iter().map(|&i| f64::from(x[i])).sum::<f64>() / all.len() as f64;
                let variance =
                    all.iter().map(|&i| (f64::from(x[i]) - mean).powi(2)).sum::<f64>() / all.len() as f64;
                for &i in &all {
                    let channel = i % channels;
                    let normal = (f64::from(x[i]) - mean) / (variance + 1e-5).sqrt();
                    let value = normal * f64::from(scale[channel]) + f64::from(shift[channel]);
                    expected[i] = value / (1.0 + (-value).exp());
                }
            }
        }
        assert_close(&bench.read_halves(y_at, x.len()), &expected, 1e-3);
    }
}

#[test]
fn matrix_product_without_tensor_cores() {
    let (rows, columns, depth) = (70usize, 50usize, 37usize);
    let specialisation = defines(&[
        ("A_TYPE", "f32"),
        ("B_TYPE", "f32"),
        ("CONVOLUTION", "0"),
        ("GATED", "0"),
        ("TILE", "64"),
        ("A_ALONG_DEPTH", "true"),
        ("B_ALONG_DEPTH", "true"),
        ("A_VECTOR", "false"),
        ("B_VECTOR", "false"),
        ("STORE", "2"),
    ]) + NO_EPILOGUE;
    for architecture in EVERYWHERE {
        let Some(ptx) = compile_kernel("matrix/simt.cu", &specialisation, architecture) else { return };
        let mut bench = Bench::new(&ptx, architecture);
        let (a, b) = (random(rows * depth, 24), random(columns * depth, 25));
        let (a_at, b_at) = (bench.singles(&a), bench.singles(&b));
        let y_at = bench.simulator.allocate(4 * rows * columns).unwrap();
        let numbers = integers(
            &[depth as i64, 1, depth as i64, 1, 0, 0, 0, columns as i64],
            &[rows as i32, columns as i32, depth as i32, depth as i32, 1, 0, 0, 0],
        );
        let arguments = vec![
            pointer(a_at),
            pointer(b_at),
            pointer(y_at),
            Argument::Bytes(numbers),
            Argument::Bytes(vec![0; 72]),
            Argument::Bytes(integers(&[0, 0, columns as i64, 1, 0], &[])),
        ];
        bench.clean_launch(&LaunchConfig::new(
            (rows.div_ceil(64) * columns.div_ceil(64)) as u32,
            256,
            arguments,
        ));
        assert_close(&bench.read_singles(y_at, rows * columns), &product(&a, &b, rows, columns, depth), 1e-6);
    }
}

#[test]
fn attention_over_frames() {
    let specialisation = defines(&[
        ("HEAD_DIM", "64"),
        ("MASK", "0"),
        ("MASK_TYPE", "u8"),
        ("KEY_LENGTHS", "0"),
        ("BOUNDARIES", "0"),
        ("LOG_SUM_EXP", "0"),
        ("ELEMENT", "f16"),
        ("QUERY_TILES", "1"),
        ("KEY_TILES", "1"),
        ("WARPS", "4"),
    ]);
    for architecture in EVERYWHERE {
        let Some(ptx) = compile_kernel("attention/temporal.cu", &specialisation, architecture) else {
            return;
        };
        let mut bench = Bench::new(&ptx, architecture);
        let attention = Attention { batch: 3, heads: 2, queries: 14, keys: 14, width: 64 };
        let count = 3 * 14 * 128;
        let (q, k, v) = (random(count, 26), random(count, 27), random(count, 28));
        let (q_at, k_at, v_at) = (bench.halves(&q), bench.halves(&k), bench.halves(&v));
        let y_at = bench.simulator.allocate(2 * count).unwrap();
        let arguments = attention.arguments([q_at, k_at, v_at], y_at);
        // Six sequences, four a block: two warps of the second block have none.
        bench.clean_launch(&LaunchConfig::new(2, 128, arguments));
        assert_close(&bench.read_halves(y_at, count), &attention.expected(&q, &k, &v), 2e-3);
    }
}

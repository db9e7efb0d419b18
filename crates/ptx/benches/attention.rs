//! How fast the simulator runs an attention of one head, 512 queries and keys of 64 channels, with every check: on the
//! tensor cores of a warp, and on Hopper's warpgroups.

#![allow(clippy::unwrap_used, reason = "what fails ends the benchmark")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use kinora_ptx::{
    Argument, Checks, LaunchConfig, MapElement, Module, Simulator, Swizzle, TensorMap, TensorMapKind,
};
use support::{compile_kernel, integers, profile, random};

const LENGTH: usize = 512;

fn problem() -> Vec<u8> {
    let strides = [64, 64, 64 * LENGTH as i64];
    let mut bytes = integers(&[strides, strides, strides, strides].concat(), &[]);
    bytes.extend(integers(&[0, 0, 0, 1], &[1, LENGTH as i32, LENGTH as i32, 1, 1, 1, 0]));
    bytes.extend(0.125f32.to_le_bytes());
    bytes
}

fn halves(simulator: &mut Simulator, seed: u64) -> u64 {
    let bytes: Vec<u8> = random(LENGTH * 64, seed)
        .iter()
        .flat_map(|&value| half::f16::from_f32(value).to_le_bytes())
        .collect();
    simulator.upload(&bytes).unwrap()
}

fn main() {
    let shared = "#define HEAD_DIM 64\n#define MASK 0\n#define MASK_TYPE u8\n#define KEY_LENGTHS 0\n#define BOUNDARIES 0\n#define LOG_SUM_EXP 0\n#define ELEMENT f16\n";
    let flash = "#define QUERY_TILE 64\n#define WARP_ROWS 16\n#define KEY_TILE 64\n#define STAGES 2\n#define VALUE_SLICE 64\n";
    let hopper = "#define WARPGROUPS 2\n#define KEY_TILE 128\n#define STAGES 2\n#define TURNS 1\n#define MASK_PAIRS 1\n";
    for (path, rest, architecture) in
        [("attention/flash.cu", flash, "80"), ("attention/hopper.cu", hopper, "90a")]
    {
        let Some(ptx) = compile_kernel(path, &format!("{shared}{rest}"), architecture) else { return };
        for races in [true, false] {
            let checks = Checks { races, ..Checks::default() };
            let mut simulator = Simulator::new(profile(architecture)).with_checks(checks);
            let loading = Instant::now();
            let module = Module::load(&mut simulator, &ptx).unwrap();
            let loading = loading.elapsed();
            let [q, k, v] = [1, 2, 3].map(|seed| halves(&mut simulator, seed));
            let y = simulator.allocate(LENGTH * 128).unwrap();
            let map = |address, rows| {
                Argument::TensorMap(TensorMap {
                    address,
                    element: MapElement::F16,
                    rank: 4,
                    extents: [64, 1, LENGTH as u64, 1, 1],
                    strides: [128, 128, 128 * LENGTH as u64, 0],
                    element_strides: [1; 5],
                    kind: TensorMapKind::Tiled { tile: [64, 1, rows, 1, 1] },
                    swizzle: Swizzle::Bytes128,
                    nan_outside: false,
                })
            };
            // No mask, lengths or boundaries, and no logarithms.
            let pointers = [q, k, v, 0, 0, 0, 0, y, 0].map(Argument::U64);
            let arguments = pointers.into_iter().chain([Argument::Bytes(problem())]);
            let config = if architecture == "80" {
                let arguments = arguments.collect();
                let mut config = LaunchConfig::new(LENGTH as u32 / 64, 128, arguments);
                config.shared_bytes = 2 * (64 * 72 + 2 * 64 * 144);
                config
            } else {
                let arguments =
                    [map(q, 128), map(k, 128), map(v, 128)].into_iter().chain(arguments).collect();
                let mut config = LaunchConfig::new(LENGTH as u32 / 128, 384, arguments);
                config.shared_bytes = 128 * (128 + 4 * 128) + 8 * 9;
                config
            };
            let name = module.kernels().next().unwrap().to_owned();
            let mut best = f64::INFINITY;
            let mut instructions = 0;
            for _ in 0..5 {
                let start = Instant::now();
                let report = simulator.launch(&module, &name, &config).unwrap();
                best = best.min(start.elapsed().as_secs_f64());
                assert!(report.findings.is_empty(), "{}", report.findings[0]);
                instructions = report.counters.warp_instructions();
            }
            let cores = rayon::current_num_threads();
            println!(
                "{path}, races {races}: {:.1} ms for {instructions} warp instructions on {cores} cores: {:.2} million a second and core; loaded in {:.1} ms",
                best * 1e3,
                instructions as f64 / best / 1e6 / cores as f64,
                loading.as_secs_f64() * 1e3,
            );
        }
    }
}

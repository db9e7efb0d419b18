//! What a store to global memory costs on a GPU, by how much of a sector it writes, beside what is predicted. Where the cost arises is
//! told by what it depends on:
//!
//! - the request path, if scattered sectors cost the same whether they are written whole or in part;
//! - the merging of bytes in L2, if parts cost more than whole sectors although they stay in L2;
//! - reads from DRAM that fill a sector, if parts cost more only where L2 does not hold the sectors;
//! - the multiprocessor's port, if a quarter of the multiprocessors takes four times as long; L2 or DRAM, if it takes as long.
//!
//! `cargo bench -p kinora-lab --bench stores_on_gpu -- --json stores.json`, on a machine with the GPU that is predicted, an H200.
#![allow(clippy::unwrap_used, reason = "what fails ends the benchmark")]

use kinora_lab::{
    compile::{Compiled, Form, Request, Source, compile},
    execute::{Device, GpuDevice, Launch},
};
use kinora_ptx::{Argument, Calibration, ChipSpec, LaunchConfig, Module, PredictOptions, Simulator};
use serde_json::{Value, json};

/// `LANES` lanes write `BYTES` each, side by side in one sector, and `PARTS` requests in a row write what follows. Every sector is in
/// a line of its own, and lines that are written together are far apart.
const SOURCE: &str = r#"
#if BYTES == 16
typedef uint4 Part;
#elif BYTES == 8
typedef uint2 Part;
#else
typedef unsigned Part;
#endif
extern "C" __global__ void stores(char *out, unsigned lines, unsigned rounds) {
    const unsigned sectors = 32 / LANES, lane = threadIdx.x % 32;
    unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    for (unsigned round = 0; round < rounds; round++) {
        unsigned number = (round * warps + warp) * sectors + lane / LANES;
        char *sector = out + (size_t)(number * 0x9E3779B1u & (lines - 1)) * 128;
#pragma unroll
        for (unsigned part = 0; part < PARTS; part++)
            *(Part *)(sector + (part * LANES + lane % LANES) * BYTES) = Part();
    }
}
"#;

/// What is written of a sector: bytes of a lane, lanes, requests.
const SHAPES: [(u32, u32, u32); 7] =
    [(4, 1, 1), (8, 1, 1), (16, 1, 1), (4, 8, 1), (16, 2, 1), (4, 1, 8), (16, 1, 2)];

/// Lines of 128 bytes: what L2 holds, and what it does not.
const LINES: [u32; 2] = [1 << 16, 1 << 24];

/// All multiprocessors of an H200, and a quarter.
const BLOCKS: [u32; 2] = [132, 33];
const THREADS: u32 = 1024;

/// Requests of the whole grid, about.
const REQUESTS: u32 = 1 << 20;
const WARM_UP: usize = 2;
const RUNS: usize = 10;

fn code(shape: (u32, u32, u32), form: Form) -> Compiled {
    let source = Source { name: "stores.cu".to_owned(), text: SOURCE.to_owned(), folder: None };
    let (bytes, lanes, parts) = shape;
    let options = [("BYTES", bytes), ("LANES", lanes), ("PARTS", parts)];
    let options = options.map(|(name, value)| format!("-D{name}={value}")).to_vec();
    compile(&source, &Request { form, options, ..Request::ptx((9, 0)) }).unwrap()
}

/// How often each warp goes round.
fn rounds(blocks: u32, parts: u32) -> u32 {
    REQUESTS / (blocks * THREADS / 32) / parts
}

fn predicted(shape: (u32, u32, u32), lines: u32, blocks: u32) -> f64 {
    let mut simulator = Simulator::new(ChipSpec::h200());
    let module = Module::load(&mut simulator, code(shape, Form::Ptx).ptx()).unwrap();
    let out = Argument::U64(simulator.reserve(lines as usize * 128));
    let config = LaunchConfig {
        grid: [blocks, 1, 1],
        block: [THREADS, 1, 1],
        shared_bytes: 0,
        cluster: [1; 3],
        cooperative: false,
        arguments: vec![out, Argument::U32(lines), Argument::U32(rounds(blocks, shape.2))],
    };
    let options =
        PredictOptions { calibration: Calibration::of(&ChipSpec::h200()), ..PredictOptions::default() };
    simulator.predict(&module, "stores", &config, &options).unwrap().seconds
}

fn measured(gpu: &mut GpuDevice, shape: (u32, u32, u32), lines: u32, blocks: u32) -> f64 {
    let out = gpu.allocate(lines as usize * 128).unwrap();
    let arguments = [lines, rounds(blocks, shape.2)].map(|number| number.to_le_bytes().to_vec());
    let launch = Launch {
        module: gpu.load(&code(shape, Form::Cubin)).unwrap(),
        kernel: "stores".to_owned(),
        grid: [blocks, 1, 1],
        block: [THREADS, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        overlaps: false,
        arguments: [vec![out.to_le_bytes().to_vec()], arguments.to_vec()].concat(),
    };
    gpu.time(&[vec![launch.clone()]], WARM_UP).unwrap();
    let mut times = gpu.time(&[vec![launch]], RUNS).unwrap();
    gpu.free(out).unwrap();
    times.sort_by(f32::total_cmp);
    f64::from(times[times.len() / 2]) / 1e3
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let file = words.find(|word| word == "--json").and_then(|_| words.next());
    let mut gpu = match GpuDevice::open(0) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            assert!(std::env::var_os("KINORA_REQUIRE_GPU").is_none(), "{error}");
            println!("predicted only: {error}");
            None
        }
    };
    let mut rows = Vec::<Value>::new();
    for (lines, blocks) in LINES.into_iter().flat_map(|lines| BLOCKS.map(|blocks| (lines, blocks))) {
        println!("{} MiB of lines, {blocks} multiprocessors", lines >> 13);
        for shape @ (bytes, lanes, parts) in SHAPES {
            // Sectors that are written, each part of one on its own.
            let writes = f64::from(rounds(blocks, parts) * parts * (blocks * THREADS / 32) * (32 / lanes));
            let each = |seconds: f64| seconds / writes * f64::from(blocks) * 1e9;
            let seconds = gpu.as_mut().map(|gpu| measured(gpu, shape, lines, blocks));
            let model = predicted(shape, lines, blocks);
            println!(
                "  {:2} of 32 bytes, {:2} at a time by {lanes} lanes: {} ns a sector and multiprocessor, predicted {:.2}",
                bytes * lanes * parts,
                bytes * lanes,
                seconds.map_or("   -".to_owned(), |seconds| format!("{:4.2}", each(seconds))),
                each(model),
            );
            rows.push(json!({
                "lines": lines, "multiprocessors": blocks, "bytes_of_lane": bytes, "lanes": lanes, "requests": parts,
                "sector_writes": writes, "seconds": seconds, "predicted_seconds": model,
            }));
        }
    }
    if let Some(file) = file {
        std::fs::write(file, serde_json::to_string_pretty(&rows).unwrap()).unwrap();
    }
}

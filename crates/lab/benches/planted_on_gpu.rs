//! What mending a planted inefficiency gains on a GPU, beside what the feedback promises: every kernel as it is and mended, in turns.
//!
//! `cargo bench -p kinora-lab --bench planted_on_gpu -- --json planted.json`, on a machine with the GPU that is predicted, an H200.
#![allow(clippy::unwrap_used, reason = "what fails ends the benchmark")]

#[path = "../tests/planted/kernels.rs"]
mod kernels;

use kernels::{Planted, all};
use kinora_lab::{
    compile::Form,
    execute::{Device, GpuDevice, Launch},
};
use serde_json::{Value, json};

/// How far a promise may be from what is gained.
const BAR: f64 = 1.5;
const WARM_UP: usize = 6;
/// Runs of each form.
const RUNS: usize = 30;

/// Numbers from 0 to 1, in f32 or, for products of f16, in f16. One kernel needs that all fall into one bin.
fn content(planted: &Planted, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u32
    };
    match planted.file {
        "one_bin" => vec![0; bytes],
        "product_without_tensor_cores" => {
            (0..bytes / 2).flat_map(|_| (0x3800u16 + next() as u16 % 0x400).to_le_bytes()).collect()
        }
        _ => (0..bytes / 4).flat_map(|_| (next() as f32 / (1 << 24) as f32).to_le_bytes()).collect(),
    }
}

fn median(mut times: Vec<f32>) -> f64 {
    times.sort_by(f32::total_cmp);
    f64::from(times[times.len() / 2])
}

/// Milliseconds as it is and mended.
fn measured(gpu: &mut GpuDevice, planted: &Planted) -> [f64; 2] {
    let buffers: Vec<u64> = planted
        .buffers
        .iter()
        .map(|&bytes| {
            let buffer = gpu.allocate(bytes).unwrap();
            gpu.write(buffer, &content(planted, bytes)).unwrap();
            buffer
        })
        .collect();
    let forms = [false, true].map(|mended| {
        let kernel = planted.compiled(mended, Form::Ptx).kernel(None).unwrap();
        let code = planted.compiled(mended, Form::Cubin);
        let (grid, block, shared_bytes) = planted.launches[usize::from(mended)];
        let addresses = buffers.iter().map(|buffer| buffer.to_le_bytes().to_vec());
        let numbers = planted.numbers.iter().map(|number| number.to_le_bytes().to_vec());
        vec![Launch {
            module: gpu.load(&code).unwrap(),
            kernel,
            grid,
            block,
            cluster: [1; 3],
            shared_bytes: shared_bytes as u32,
            arguments: addresses.chain(numbers).collect(),
            overlaps: false,
        }]
    });
    gpu.time(&forms, WARM_UP).unwrap();
    let times = gpu.time(&forms, 2 * RUNS).unwrap();
    let of = |form: usize| median(times.iter().skip(form).step_by(2).copied().collect());
    let both = [of(0), of(1)];
    for buffer in buffers {
        gpu.free(buffer).unwrap();
    }
    both
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let file = words.find(|word| word == "--json").and_then(|_| words.next());
    let mut gpu = match GpuDevice::open(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            assert!(std::env::var_os("KINORA_REQUIRE_GPU").is_none(), "{error}");
            println!("not run: {error}");
            return;
        }
    };
    let mut rows = Vec::<Value>::new();
    for planted in all() {
        let feedback = planted.explained(false);
        let advice = feedback.advice.first();
        let promised = advice.and_then(|advice| advice.gain).unwrap_or(1.0);
        let [before, after] = measured(&mut gpu, &planted);
        let gained = before / after * planted.work;
        let ratio = (promised / gained).max(gained / promised);
        let first = advice.is_some_and(|advice| advice.rule == planted.rule);
        println!(
            "{} {:30} promised {promised:6.2}, gained {gained:6.2}; {before:.4} -> {after:.4} ms, predicted {:.4}",
            if first && ratio <= BAR { "ok   " } else { "apart" },
            planted.file,
            feedback.prediction.seconds * 1e3,
        );
        rows.push(json!({
            "kernel": planted.file, "rule": planted.rule, "ranked_first": first, "promised": promised, "gained": gained,
            "milliseconds": [before, after], "predicted_milliseconds": feedback.prediction.seconds * 1e3,
        }));
    }
    let within = rows.iter().filter(|row| {
        let (promised, gained) = (row["promised"].as_f64().unwrap(), row["gained"].as_f64().unwrap());
        row["ranked_first"] == true && (promised / gained).max(gained / promised) <= BAR
    });
    println!("{} of {} within a factor of {BAR}, on {}", within.count(), rows.len(), gpu.name());
    if let Some(file) = file {
        std::fs::write(file, serde_json::to_string_pretty(&rows).unwrap()).unwrap();
    }
}

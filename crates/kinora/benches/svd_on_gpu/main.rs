//! The networks of Stable Video Diffusion at full size on a GPU, with random weights: milliseconds, memory, start-up.
//!
//! Options after `--`: words of which network names must contain one, `--frames N`, `--height N`, `--width N`, `--chunk N`
//! (frames that are decoded together), `--kernels fused|baseline`, `--tuning off|auto|all|ours|vendor` (how kernels
//! are chosen), `--replays N`, `--json FILE`. Without a GPU it says so, as where a plain `cargo bench` starts it; with
//! `KINORA_REQUIRE_GPU=1` that is a failure.

#[path = "../support/inputs.rs"]
mod inputs;
#[path = "../support/tuner.rs"]
mod tuner;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Instant};

use kinora::runtime::{KernelSet, Tuning};
use kinora_bench::{CommandLine, Filter, exit_code, gpu_if_any, write_json};
use kinora_cuda::{CudaOptions, LoadOptions, Planned, driver::Device, tuning::Tuner};
use kinora_graph::{DType, Graph, Phase};
use kinora_models::{
    networks::{
        clip_vision::{self, ClipVisionConfig},
        denoise::{DenoiseConfig, SamplerNeeds},
        unet::UnetConfig,
        vae::{self, Decode, Encode, Pixels, VaeConfig},
    },
    synthetic::Synthetic,
};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    filter: Filter,
    frames: usize,
    height: usize,
    width: usize,
    chunk: usize,
    kernels: KernelSet,
    tuning: Tuning,
    replays: usize,
    json: Option<PathBuf>,
}

impl Arguments {
    fn read() -> Result<Arguments, String> {
        let mut line = CommandLine::of_process();
        Ok(Arguments {
            frames: line.option_or("--frames", 14)?,
            height: line.option_or("--height", 576)?,
            width: line.option_or("--width", 1024)?,
            chunk: line.option_or("--chunk", 2)?,
            kernels: line.option_or("--kernels", KernelSet::Fused)?,
            tuning: line.option_or("--tuning", Tuning::Off)?,
            replays: line.option_or("--replays", 10)?,
            json: line.option("--json")?,
            filter: line.rest()?,
        })
    }

    fn networks(&self) -> Result<Vec<(&'static str, Graph)>, Failure> {
        let (height, width, dtype) = (self.height / 8, self.width / 8, DType::F16);
        let vae = VaeConfig::svd();
        let unet = DenoiseConfig {
            unet: UnetConfig::svd(),
            frames: self.frames,
            height,
            width,
            steps: 10,
            guided: true,
            sampler: SamplerNeeds::default(),
            dtype,
        };
        let encode = Encode { images: 1, height: self.height, width: self.width, dtype };
        let decode = Decode { frames: self.chunk, height, width, dtype, scaled: true, pixels: Pixels::Bytes };
        let networks = vec![
            ("unet", unet.build()?),
            ("clip", clip_vision::encoder(&ClipVisionConfig::svd(), 1, dtype)?),
            ("encode", vae::encoder(&vae, &encode)?),
            ("decode", vae::decoder(&vae, &decode)?),
        ];
        Ok(networks.into_iter().filter(|(name, _)| self.filter.chooses(name)).collect())
    }
}

fn measure(
    device: &Device,
    name: &str,
    graph: &Graph,
    arguments: &Arguments,
    tuner: Option<&Arc<Tuner>>,
) -> Result<Value, Failure> {
    let options = CudaOptions {
        kernels: arguments.kernels,
        ..CudaOptions::for_device(device, kinora_cpu::CpuOps::shared())
    };
    let start = Instant::now();
    let options = tuner::tuned(options, tuner, graph)?;
    let tuned_in = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let planned = Planned::new(graph, &options)?;
    let planned_in = start.elapsed().as_secs_f64();
    let flops = planned.graph().step_flops();
    let start = Instant::now();
    let mut program = planned.load_with(device, &Synthetic, &LoadOptions::default())?;
    let loaded_in = start.elapsed().as_secs_f64();
    let clip = inputs::random(program.graph(), Phase::Clip)?;
    let step = inputs::random(program.graph(), Phase::Step)?;
    let start = Instant::now();
    program.run_clip(&clip)?;
    let outputs = program.run_step(&step)?;
    let first_in = start.elapsed().as_secs_f64();
    let finite = outputs.values().all(|tensor| tensor.first_non_finite().is_none());
    let mut times = program.time_replays(arguments.replays)?;
    times.sort_by(f32::total_cmp);
    let median = times[times.len() / 2];
    let memory = program.memory();
    let compiled = program.compiled();
    println!(
        "{name:<8} {median:>9.3} ms ({:.0} TFLOP/s, best {:.3} ms), {:.2} GB planned, {:.2} GB by the driver, \
         tuned in {tuned_in:.2} s, planned in {planned_in:.2} s, loaded in {loaded_in:.2} s ({} kernels compiled, {} kept, {:.2} s), first run \
         {first_in:.2} s, {} launches, finite {finite}",
        flops as f64 / f64::from(median) / 1e9,
        times[0],
        memory.planned as f64 / 1e9,
        memory.driver as f64 / 1e9,
        compiled.compiled,
        compiled.cached,
        compiled.seconds,
        program.launches(Phase::Step),
    );
    Ok(json!({
        "network": name, "milliseconds": times, "median_ms": median, "tflop": flops as f64 / 1e12,
        "tflop_per_s": flops as f64 / f64::from(median) / 1e9, "planned_bytes": memory.planned,
        "driver_bytes": memory.driver, "tuned_in_s": tuned_in, "planned_in_s": planned_in, "loaded_in_s": loaded_in,
        "kernels_compiled": compiled.compiled, "kernels_kept": compiled.cached, "compiled_in_s": compiled.seconds,
        "first_run_s": first_in, "launches": program.launches(Phase::Step), "finite": finite,
    }))
}

fn run() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let Some(device) = gpu_if_any("svd_on_gpu", Device::open(0))? else { return Ok(()) };
    let info = device.info();
    println!("{}, {} frames of {}×{}, f16", info.name, arguments.frames, arguments.width, arguments.height);
    let tuner = tuner::open(arguments.tuning, &device)?;
    let mut results = Vec::new();
    let mut failed = false;
    for (name, graph) in arguments.networks()? {
        match measure(&device, name, &graph, &arguments, tuner.as_ref()) {
            Ok(result) => results.push(result),
            Err(error) => {
                failed = true;
                println!("{name:<8} failed: {error}");
                results.push(json!({"network": name, "error": error.to_string()}));
            }
        }
        let report = json!({
            "device": info.name, "driver": info.driver.to_string(), "frames": arguments.frames,
            "height": arguments.height, "width": arguments.width, "decode_chunk": arguments.chunk,
            "kernels": arguments.kernels.to_string(), "tuning": arguments.tuning.to_string(), "results": results,
            "tuned": tuner.as_ref().map(|tuner| tuner.report()),
        });
        if let Some(path) = &arguments.json {
            write_json(path, &report)?;
        }
    }
    if failed { Err("a network failed".into()) } else { Ok(()) }
}

fn main() -> ExitCode {
    exit_code(run())
}

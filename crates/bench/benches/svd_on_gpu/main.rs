//! The networks of Stable Video Diffusion at full size on a GPU, with random weights: milliseconds, memory, start-up.
//!
//! Options after `--`: patterns, one of which a network's name must contain, `--frames N`, `--height N`, `--width N`, `--chunk N`
//! (frames that are decoded together), `--kernels fused|baseline`, `--tuning off|auto|all|ours|vendor` (how kernels
//! are chosen), `--replays N`, `--layers N` (how many of the slowest layers are listed), `--json FILE`. The photo's encoder is measured in
//! f32 as well, as the model asks, a step of the UNet with products in 8 bits, compared with that in f16, and one that reuses the deep blocks of an
//! earlier one; the decoder also with group norms that read their inputs twice, as if no product measured its result for them.
//! Without a GPU it prints that it does not run; with `KINORA_REQUIRE_GPU=1` that is a failure.

#[path = "../support/fp8.rs"]
mod fp8;
#[path = "../support/layers.rs"]
mod layers;
#[path = "../support/svd.rs"]
mod svd;
#[path = "../support/tuner.rs"]
mod tuner;

use std::{process::ExitCode, sync::Arc, time::Instant};

use fp8::{compared, measured_activations, run_once};
use kinora_bench::{
    BenchError, CommandLine, Filter, cases::inputs_by_name, exit_code, gpu_if_any, median, write_json,
};
use kinora_cuda::{CudaOptions, LoadOptions, Planned, driver::Device, tuning::Tuner};
use kinora_graph::{DType, Graph, Phase};
use kinora_models::{
    networks::{
        clip_vision::{self, ClipVisionConfig},
        step_cache::{DEFAULT_BLOCKS, Extent},
        vae::{self, Decode, Encode, Pixels, VaeConfig},
    },
    synthetic::Synthetic,
};
use serde_json::{Value, json};
use svd::{PIXELS_PER_LATENT, SvdOptions};

type Failure = Box<dyn std::error::Error>;

/// What a network is called if its group norms find their statistics themselves.
const NORMS_APART: &str = "decode, norms apart";

/// Denoising steps that the UNet is built for.
const STEPS: usize = 10;
/// The case with products in 8 bits.
const IN_FP8: &str = "unet in fp8";

struct Arguments {
    filter: Filter,
    svd: SvdOptions,
    chunk: usize,
    replays: usize,
    layers: usize,
}

impl Arguments {
    fn read() -> Result<Arguments, BenchError> {
        let mut line = CommandLine::of_process();
        Ok(Arguments {
            svd: SvdOptions::take(&mut line)?,
            chunk: line.option_or("--chunk", 2)?,
            replays: line.option_or("--replays", 10)?,
            layers: line.option_or("--layers", 0)?,
            filter: line.rest()?,
        })
    }

    fn networks(&self) -> Result<Vec<(&'static str, Graph)>, Failure> {
        let SvdOptions { height, width, .. } = self.svd;
        let (vae, dtype) = (VaeConfig::svd(), DType::F16);
        let decode = Decode {
            frames: self.chunk,
            height: height / PIXELS_PER_LATENT,
            width: width / PIXELS_PER_LATENT,
            dtype,
            scaled: true,
            pixels: Pixels::Bytes,
        };
        let networks = vec![
            ("unet", self.svd.denoiser(STEPS, Extent::Whole)?),
            (IN_FP8, self.svd.denoiser(STEPS, Extent::Whole)?),
            ("unet, shallow", self.svd.denoiser(STEPS, Extent::Shallow { blocks: DEFAULT_BLOCKS })?),
            ("clip", clip_vision::encoder(&ClipVisionConfig::svd(), 1, dtype)?),
            ("encode", vae::encoder(&vae, &Encode { images: 1, height, width, dtype })?),
            ("encode in f32", vae::encoder(&vae, &Encode { images: 1, height, width, dtype: DType::F32 })?),
            ("decode", vae::decoder(&vae, &decode)?),
            (NORMS_APART, vae::decoder(&vae, &decode)?),
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
        kernels: arguments.svd.kernels,
        measure_for_norms: name != NORMS_APART,
        ..CudaOptions::for_device(device, kinora_cpu::CpuOps::shared())
    };
    let mut graph = graph.clone();
    let mut f16 = None;
    if name == IN_FP8 {
        f16 = Some(run_once(device, Planned::new(&graph, &options)?)?.1);
        let largest = measured_activations(device, &graph, &options, |_| true)?;
        graph = graph.calibrated(largest);
    }
    let start = Instant::now();
    let options = tuner::tuned(options, tuner, &graph)?;
    let tuned_in = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let planned = Planned::new(&graph, &options)?;
    let planned_in = start.elapsed().as_secs_f64();
    let flops = planned.graph().step_flops();
    let start = Instant::now();
    let mut program = planned.load_with(device, &Synthetic, &LoadOptions::default())?;
    let loaded_in = start.elapsed().as_secs_f64();
    let clip = inputs_by_name(program.graph(), Phase::Clip)?;
    let step = inputs_by_name(program.graph(), Phase::Step)?;
    let start = Instant::now();
    program.run_clip(&clip)?;
    let outputs = program.run_step(&step)?;
    let first_in = start.elapsed().as_secs_f64();
    let finite = outputs.values().all(|tensor| tensor.first_non_finite().is_none());
    let mut times: Vec<f64> = program.time_replays(arguments.replays)?.into_iter().map(f64::from).collect();
    times.sort_by(f64::total_cmp);
    let median = median(&times);
    let memory = program.memory();
    let compiled = program.compiled();
    println!(
        "{name:<8} {median:>9.3} ms ({:.0} TFLOP/s, best {:.3} ms), {:.2} GB planned, {:.2} GB by the driver, \
         tuned in {tuned_in:.2} s, planned in {planned_in:.2} s, loaded in {loaded_in:.2} s ({} kernels compiled, {} kept, {:.2} s), first run \
         {first_in:.2} s, {} launches, finite {finite}",
        flops as f64 / median / 1e9,
        times.first().copied().unwrap_or(f64::NAN),
        memory.planned as f64 / 1e9,
        memory.driver as f64 / 1e9,
        compiled.compiled,
        compiled.cached,
        compiled.seconds,
        program.launches(Phase::Step),
    );
    let from_f16 = f16.map_or(Value::Null, |f16| compared(&outputs, &f16));
    let mut result = json!({
        "network": name, "from_f16": from_f16, "milliseconds": times, "median_ms": median, "tflop": flops as f64 / 1e12,
        "tflop_per_s": flops as f64 / median / 1e9, "planned_bytes": memory.planned,
        "driver_bytes": memory.driver, "tuned_in_s": tuned_in, "planned_in_s": planned_in, "loaded_in_s": loaded_in,
        "kernels_compiled": compiled.compiled, "kernels_kept": compiled.cached, "compiled_in_s": compiled.seconds,
        "first_run_s": first_in, "launches": program.launches(Phase::Step), "finite": finite,
    });
    if arguments.layers > 0 {
        result["profile"] = layers::profiled(&mut program, 3, arguments.layers)?;
    }
    Ok(result)
}

fn run() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let Some(device) = gpu_if_any("svd_on_gpu", Device::open(0))? else { return Ok(()) };
    let svd = &arguments.svd;
    svd.print_head(device.info());
    let tuner = tuner::open(svd.tuning, &device)?;
    let mut report = svd.head(device.info());
    report["decode_chunk"] = json!(arguments.chunk);
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
        report["results"] = json!(results);
        report["tuned"] = json!(tuner.as_ref().map(|tuner| tuner.report()));
        // After every network, so that an interrupted run keeps it.
        if let Some(path) = &svd.json {
            write_json(path, &report)?;
        }
    }
    if failed { Err("a network failed".into()) } else { Ok(()) }
}

fn main() -> ExitCode {
    exit_code(run())
}

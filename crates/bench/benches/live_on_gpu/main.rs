//! Frames of live video at full size on a GPU, with random weights: an SD-Turbo UNet and the tiny autoencoder, from bytes to
//! bytes in one graph. Also its parts by themselves, and where the time of a frame goes.
//!
//! Options after `--`: patterns, one of which a case's name must contain, `--height N`, `--width N`, `--precision f16|fp8` (in fp8 a
//! frame of one step is measured in f16 first, and each result compared with that of the same network in f16), `--kernels fused|baseline`, `--tuning off|auto|all|ours|vendor` (how kernels are chosen), `--overlap true|false` (whether launches
//! overlap), `--replays N`, `--layers N` (how many of the slowest layers are listed), `--json FILE`,
//! `--results FOLDER` (the results of a frame of one step, which `peers/live_gpu.py` compares with PyTorch's). Without a GPU it
//! prints that it does not run; with `KINORA_REQUIRE_GPU=1` that is a failure. `kinora bench live` measures the same networks
//! in turns with PyTorch.

#[path = "../support/fp8.rs"]
mod fp8;
#[path = "../support/layers.rs"]
mod layers;
#[path = "../support/tuner.rs"]
mod tuner;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use fp8::{compared, measured_activations, run_once};
use kinora::{
    image_to_video::Precision,
    runtime::{KernelSet, Tuning},
};
use kinora_bench::{
    BenchError, CommandLine, Filter, cases::LiveNetworks, exit_code, gpu_if_any, median, percentile,
    write_json,
};
use kinora_cuda::{CudaOptions, Planned, driver::Device, tuning::Tuner};
use kinora_graph::{Graph, Phase, calibration::Largest};
use kinora_models::{
    networks::{
        frame::{Start, UNET},
        vae::Pixels,
    },
    presets::ImagePreset,
};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

/// The case whose results PyTorch's are compared with.
const ONE_STEP: &str = "frame, 1 step";

struct Arguments {
    filter: Filter,
    height: usize,
    width: usize,
    precision: Precision,
    kernels: KernelSet,
    tuning: Tuning,
    overlap: bool,
    replays: usize,
    layers: usize,
    json: Option<PathBuf>,
    results: Option<PathBuf>,
}

impl Arguments {
    fn read() -> Result<Arguments, BenchError> {
        let mut line = CommandLine::of_process();
        Ok(Arguments {
            height: line.option_or("--height", 512)?,
            width: line.option_or("--width", 512)?,
            precision: line.option_or("--precision", Precision::F16)?,
            kernels: line.option_or("--kernels", KernelSet::Fused)?,
            tuning: line.option_or("--tuning", Tuning::Off)?,
            overlap: line.option_or("--overlap", true)?,
            replays: line.option_or("--replays", 200)?,
            layers: line.option_or("--layers", 0)?,
            json: line.option("--json")?,
            results: line.option("--results")?,
            filter: line.rest()?,
        })
    }

    fn networks(&self) -> Result<LiveNetworks, Failure> {
        let mut preset = ImagePreset::sd_turbo();
        (preset.frame.height, preset.frame.width) = (self.height, self.width);
        Ok(LiveNetworks::new(&preset, self.precision.dtype())?)
    }

    fn graphs(&self) -> Result<Vec<(&'static str, Graph)>, Failure> {
        let networks = self.networks()?;
        let graphs = vec![
            (ONE_STEP, networks.frame(1, Start::Picture)?),
            ("frame, 2 steps", networks.frame(2, Start::Picture)?),
            ("frame, 4 steps", networks.frame(4, Start::Picture)?),
            ("noise, 1 step", networks.frame(1, Start::Noise)?),
            ("encode", networks.encoder()?),
            ("decode", networks.decoder(Pixels::Bytes)?),
        ];
        Ok(graphs.into_iter().filter(|(name, _)| self.filter.chooses(name)).collect())
    }
}

fn options(device: &Device, arguments: &Arguments) -> CudaOptions {
    CudaOptions {
        kernels: arguments.kernels,
        overlap_launches: arguments.overlap,
        ..CudaOptions::for_device(device, kinora_cpu::CpuOps::shared())
    }
}

/// How large the activations of the UNet are in a frame of one step in f16.
fn largest_of_unet(device: &Device, arguments: &Arguments) -> Result<Arc<Largest>, Failure> {
    let frame = arguments.networks()?.frame(1, Start::Picture)?;
    let of_unet = |weight: &str| weight.split_once('.').is_some_and(|(network, _)| network == UNET);
    measured_activations(device, &frame, &options(device, arguments), of_unet)
}

fn measure(
    device: &Device,
    (name, graph): (&str, &Graph),
    arguments: &Arguments,
    (tuner, largest): (Option<&Arc<Tuner>>, Option<&Arc<Largest>>),
) -> Result<Value, Failure> {
    let options = options(device, arguments);
    let f16 = match largest {
        Some(_) => Some(run_once(device, Planned::new(graph, &options)?)?.1),
        None => None,
    };
    let graph = largest.map_or_else(|| graph.clone(), |largest| graph.clone().calibrated(largest.clone()));
    let options = tuner::tuned(options, tuner, &graph)?;
    let planned = Planned::new(&graph, &options)?;
    let (flops, fp8) = (planned.graph().step_flops(), planned.graph().quantised_products());
    let (mut program, results) = run_once(device, planned)?;
    let finite = results.values().all(|tensor| tensor.first_non_finite().is_none());
    if let Some(folder) = arguments.results.as_ref().filter(|_| name == ONE_STEP) {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("latents.f32"), results["latents"].bytes())?;
        std::fs::write(folder.join("frame.u8"), results["frame"].bytes())?;
    }
    program.time_replays(arguments.replays.min(50))?;
    let mut times: Vec<f64> = program.time_replays(arguments.replays)?.into_iter().map(f64::from).collect();
    times.sort_by(f64::total_cmp);
    let (p50, p99) = (median(&times), percentile(&times, 0.99).ok_or(BenchError::Nothing("time"))?);
    println!(
        "{name:<16} p50 {p50:.3} ms, p99 {p99:.3} ms, {:.0} TFLOP/s, {} launches, {fp8} products in fp8, {:.2} GB, finite {finite}",
        flops as f64 / p50 / 1e9,
        program.launches(Phase::Step),
        program.memory().driver as f64 / 1e9,
    );
    let from_f16 = f16.map_or(Value::Null, |f16| compared(&results, &f16));
    let profile = match arguments.layers {
        0 => Value::Null,
        layers => layers::profiled(&mut program, 20, layers)?,
    };
    Ok(json!({
        "case": name, "p50_ms": p50, "p99_ms": p99, "least_ms": times.first(), "tflop": flops as f64 / 1e12,
        "launches": program.launches(Phase::Step), "planned_bytes": program.memory().planned,
        "driver_bytes": program.memory().driver, "finite": finite, "fp8_products": fp8, "from_f16": from_f16, "profile": profile,
    }))
}

fn run() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let Some(device) = gpu_if_any("live_on_gpu", Device::open(0))? else { return Ok(()) };
    let info = device.info();
    let Arguments { height, width, precision, tuning, .. } = &arguments;
    println!("{}, {width}×{height}, {precision}, tuning {tuning}", info.name);
    let largest = match precision {
        Precision::Fp8 => Some(largest_of_unet(&device, &arguments)?),
        _ => None,
    };
    let tuner = tuner::open(arguments.tuning, &device)?;
    let mut report = json!({
        "device": info.name, "driver": info.driver.to_string(), "height": height, "width": width,
        "precision": precision.to_string(), "kernels": arguments.kernels.to_string(), "tuning": tuning.to_string(),
        "overlap": arguments.overlap,
    });
    let mut results = Vec::new();
    for (name, graph) in arguments.graphs()? {
        results.push(measure(&device, (name, &graph), &arguments, (tuner.as_ref(), largest.as_ref()))?);
        report["results"] = json!(results);
        // After every case, so that an interrupted run keeps it.
        if let Some(path) = &arguments.json {
            write_json(path, &report)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run())
}

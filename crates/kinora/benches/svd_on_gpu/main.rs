//! The networks of Stable Video Diffusion at full size on a GPU, with random weights: milliseconds, memory, start-up.
//!
//! Options after `--`: words that network names must contain, `--frames N`, `--height N`, `--width N`, `--kernels
//! fused|baseline`, `--choice heuristic|all|ours|vendor` (what the tuner may choose among), `--replays N`, `--json FILE`.

use std::{ops::ControlFlow, path::PathBuf, process::ExitCode, sync::Arc, time::Instant};

use kinora_cuda::{
    CudaOptions, LoadOptions, Planned,
    compiler::CompilerOptions,
    driver::Device,
    kernels::KernelSet,
    tuning::{Candidates, Tuner},
};
use kinora_graph::{DType, Graph, Phase, Source, Tensor};
use kinora_models::{
    networks::{
        clip_vision::{self, ClipVisionConfig},
        denoise::{DenoiseConfig, SamplerNeeds},
        unet::UnetConfig,
        vae::{self, Decode, Encode, Pixels, VaeConfig},
    },
    synthetic::{Synthetic, uniform},
};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    words: Vec<String>,
    frames: usize,
    height: usize,
    width: usize,
    chunk: usize,
    kernels: KernelSet,
    choice: String,
    replays: usize,
    json: Option<PathBuf>,
}

impl Arguments {
    fn read() -> Result<Arguments, Failure> {
        let mut this = Arguments {
            words: Vec::new(),
            frames: 14,
            height: 576,
            width: 1024,
            chunk: 2,
            kernels: KernelSet::Fused,
            choice: "heuristic".to_owned(),
            replays: 10,
            json: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                // Cargo's own.
                "--bench" => {}
                "--frames" => this.frames = value()?.parse()?,
                "--height" => this.height = value()?.parse()?,
                "--width" => this.width = value()?.parse()?,
                "--chunk" => this.chunk = value()?.parse()?,
                "--replays" => this.replays = value()?.parse()?,
                "--choice" => this.choice = value()?,
                "--json" => this.json = Some(value()?.into()),
                "--kernels" => {
                    this.kernels = match value()?.as_str() {
                        "fused" => KernelSet::Fused,
                        "baseline" => KernelSet::Baseline,
                        other => return Err(format!("{other} is no set of kernels").into()),
                    }
                }
                other if other.starts_with("--") => return Err(format!("{other} is no option").into()),
                _ => this.words.push(word),
            }
        }
        Ok(this)
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
        let wanted = |name: &str| self.words.is_empty() || self.words.iter().any(|word| name.contains(word));
        Ok(networks.into_iter().filter(|(name, _)| wanted(name)).collect())
    }
}

/// Inputs of a phase: random floats, and zeros for the rest.
fn inputs(graph: &Graph, phase: Phase) -> Result<kinora_cpu::Tensors, Failure> {
    let mut tensors = kinora_cpu::Tensors::new();
    for &id in graph.inputs() {
        let value = graph.value(id);
        if value.source != Source::Input(phase) {
            continue;
        }
        let tensor = if value.ty.dtype.is_float() {
            let numbers: Vec<f32> =
                uniform(&value.name).map(|x| x as f32).take(value.ty.elements()).collect();
            Tensor::from_f32(value.ty.dtype, value.ty.shape.clone(), &numbers)?
        } else {
            Tensor::zeros(value.ty.clone())
        };
        tensors.insert(value.name.clone(), tensor);
    }
    Ok(tensors)
}

fn measure(
    device: &Device,
    name: &str,
    graph: &Graph,
    arguments: &Arguments,
    tuner: Option<&Arc<Tuner>>,
) -> Result<Value, Failure> {
    let mut options = CudaOptions { kernels: arguments.kernels, ..CudaOptions::for_device(device) };
    options.choice = tuner.map(|tuner| tuner.clone() as _);
    let start = Instant::now();
    if let Some(tuner) = tuner {
        tuner.tune(&Planned::new(graph, &options)?, &mut |_| ControlFlow::Continue(()))?;
    }
    let tuned_in = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let planned = Planned::new(graph, &options)?;
    let planned_in = start.elapsed().as_secs_f64();
    let flops = planned.graph().step_flops();
    let start = Instant::now();
    let mut program = planned.load_with(device, &Synthetic, &LoadOptions::default())?;
    let loaded_in = start.elapsed().as_secs_f64();
    let clip = inputs(program.graph(), Phase::Clip)?;
    let step = inputs(program.graph(), Phase::Step)?;
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
    let device = Device::open(0)?;
    let info = device.info();
    println!("{}, {} frames of {}×{}, f16", info.name, arguments.frames, arguments.width, arguments.height);
    let tuner = match arguments.choice.as_str() {
        "heuristic" => None,
        candidates => {
            let candidates: Candidates = candidates.parse()?;
            let compiler = CompilerOptions::from_environment();
            let folder = compiler.cache.clone();
            Some(Arc::new(Tuner::new(&device, candidates, compiler, folder)?))
        }
    };
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
            "kernels": format!("{:?}", arguments.kernels), "choice": arguments.choice, "results": results,
            "tuned": tuner.as_ref().map(|tuner| tuner.report()),
        });
        if let Some(path) = &arguments.json {
            std::fs::write(path, serde_json::to_vec_pretty(&report)?)?;
        }
    }
    if failed { Err("a network failed".into()) } else { Ok(()) }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

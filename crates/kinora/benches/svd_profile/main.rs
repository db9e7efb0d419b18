//! How far the profiler can be believed on a GPU: the denoising network of Stable Video Diffusion at full size, with random
//! weights, run three times: as it always runs, with events between its layers, and with CUPTI as well.
//!
//! Two figures are read off: by how much the sum of a step's layers and copies differs from its time by the host's clock, and
//! by how much the time of each kind of kernel differs from CUPTI's: by events, as a profile has it without CUPTI; by the spans
//! of its layers with CUPTI, which hold the gaps between the kernels of a layer; and as a profile with CUPTI has it by kernel,
//! which differs only where runs are not recognised in the trace.
//!
//! Options after `--`: `--frames N`, `--height N`, `--width N`, `--steps N`, `--kernels fused|baseline`,
//! `--tuning off|auto|all|ours|vendor` (how kernels are chosen), `--json FILE`. Without a GPU it says so, as where a plain `cargo
//! bench` starts it; with `KINORA_REQUIRE_GPU=1` that is a failure. Without CUPTI the second figure is left out.

#[path = "../support/inputs.rs"]
mod inputs;
#[path = "../support/tuner.rs"]
mod tuner;

use std::{ops::ControlFlow, path::PathBuf, process::ExitCode, time::Instant};

use kinora::runtime::{KernelSet, Tuning};
use kinora_bench::{CommandLine, exit_code, gpu_if_any, write_json};
use kinora_cuda::{CudaOptions, LoadOptions, Planned, Program, cupti::Cupti, driver::Device};
use kinora_graph::{DType, Graph, Phase};
use kinora_models::{
    networks::{
        denoise::{DenoiseConfig, SamplerNeeds},
        unet::UnetConfig,
    },
    synthetic::Synthetic,
};
use kinora_profile::{
    Profile, Profiler,
    groups::{By, groups},
    kernel_times::kernel_times,
    steps::{Step, steps},
};
use kinora_runtime::StepLoop;
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    frames: usize,
    height: usize,
    width: usize,
    steps: usize,
    kernels: KernelSet,
    tuning: Tuning,
    json: Option<PathBuf>,
}

impl Arguments {
    fn read() -> Result<Arguments, String> {
        let mut line = CommandLine::of_process();
        let arguments = Arguments {
            frames: line.option_or("--frames", 14)?,
            height: line.option_or("--height", 576)?,
            width: line.option_or("--width", 1024)?,
            steps: line.option_or("--steps", 10)?,
            kernels: line.option_or("--kernels", KernelSet::Fused)?,
            tuning: line.option_or("--tuning", Tuning::Off)?,
            json: line.option("--json")?,
        };
        line.rest()?;
        match arguments.steps {
            // The first step has no results before it, and the last none that follow it.
            0..3 => Err("--steps is at least 3: the first and the last are not counted".to_owned()),
            _ => Ok(arguments),
        }
    }

    fn network(&self) -> Result<Graph, Failure> {
        let config = DenoiseConfig {
            unet: UnetConfig::svd(),
            frames: self.frames,
            height: self.height / 8,
            width: self.width / 8,
            steps: self.steps,
            guided: true,
            sampler: SamplerNeeds::default(),
            dtype: DType::F16,
        };
        Ok(config.build()?)
    }
}

/// Denoises once, and gives the seconds from each step's results to the next one's.
fn denoise(program: &mut Program, count: usize) -> Result<Vec<f64>, Failure> {
    let clip = inputs::random(program.graph(), Phase::Clip)?;
    let step = inputs::random(program.graph(), Phase::Step)?;
    program.run_clip(&clip)?;
    let step_loop = StepLoop { count, feedback: &[("next", "latents")], counters: &["step"], fresh: &[] };
    let (mut seconds, mut before) = (Vec::new(), Instant::now());
    program.run_steps(
        &step_loop,
        &step,
        Some(&mut |_, _| {
            seconds.push(before.elapsed().as_secs_f64());
            before = Instant::now();
            ControlFlow::Continue(())
        }),
    )?;
    Ok(seconds)
}

/// Denoises once more under a profiler.
fn profiled(program: &mut Program, count: usize, cupti: Option<&'static Cupti>) -> Result<Profile, Failure> {
    let profiler = Profiler::on();
    program.profile(&profiler, "UNet", cupti)?;
    denoise(program, count)?;
    program.profile(&Profiler::off(), "", None)?;
    let profile = profiler.profile();
    profile.check()?;
    profile.notes.iter().for_each(|note| println!("note: {note}"));
    Ok(profile)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The steps between the first and the last.
fn inner<T>(all: &[T]) -> &[T] {
    &all[1..all.len() - 1]
}

/// The first figure, of a profile.
fn report_steps(name: &str, profile: &Profile) -> Value {
    let steps = steps(profile);
    let milliseconds =
        |of: fn(&Step) -> u64| median(inner(&steps).iter().map(|s| of(s) as f64 / 1e6).collect());
    let difference = |step: &Step| {
        let spans = (step.layer_nanoseconds + step.copy_nanoseconds) as f64;
        100.0 * (spans / step.nanoseconds as f64 - 1.0)
    };
    let differences: Vec<f64> = inner(&steps).iter().map(difference).collect();
    let worst = differences.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(f64::NAN);
    let (wall, launches) = (milliseconds(|s| s.nanoseconds), milliseconds(|s| s.launch_nanoseconds));
    println!(
        "{name:<16} step {wall:.3} ms, layers {:.3} ms, copies {:.3} ms: {:+.2} % of the step, at worst {worst:+.2} %; \
         launches were given for {launches:.3} ms of it",
        milliseconds(|s| s.layer_nanoseconds),
        milliseconds(|s| s.copy_nanoseconds),
        median(differences.clone()),
    );
    // Where the driver's queue is full, giving launches takes as long as the GPU does: only what it ran says what bound it.
    let traced = steps.iter().any(|step| step.active_nanoseconds.is_some());
    let active = traced.then(|| milliseconds(|s| s.active_nanoseconds.unwrap_or(0)));
    if let Some(active) = active {
        println!("{:<16} the GPU ran something for {active:.3} ms of it", "");
    }
    json!({
        "steps": steps, "median_difference_percent": median(differences), "worst_difference_percent": worst,
        "busy_percent": active.map(|active| 100.0 * active / wall),
    })
}

/// The second figure: the times of kernels by events, without CUPTI, and as spans of layers and by kernel, with it, beside
/// CUPTI's.
fn report_kernels(events: &Profile, traced: &Profile) -> Value {
    let alone = groups(events, By::Kernel);
    let mut rows = Vec::new();
    println!(
        "{:<44} {:>6} {:>12} {:>12} {:>12} {:>12} {:>9} {:>9} {:>9}",
        "kernel", "runs", "events", "layers", "by kernel", "CUPTI", "events", "layers", "by kernel"
    );
    let (mut sum_of_events, mut sum_of_cupti) = (0, 0);
    for time in kernel_times(traced) {
        let Some(group) = alone.iter().find(|group| group.name == time.kernel) else { continue };
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let ours = [group.nanoseconds, time.layer_nanoseconds, time.nanoseconds];
        let [by_events, by_layers, by_kernel] =
            ours.map(|ours| 100.0 * (ours as f64 / time.traced_nanoseconds as f64 - 1.0));
        println!(
            "{:<44} {:>6} {:>9.3} ms {:>9.3} ms {:>9.3} ms {:>9.3} ms {by_events:>+7.2} % {by_layers:>+7.2} % \
             {by_kernel:>+7.2} %",
            time.kernel,
            time.runs,
            milliseconds(group.nanoseconds),
            milliseconds(time.layer_nanoseconds),
            milliseconds(time.nanoseconds),
            milliseconds(time.traced_nanoseconds),
        );
        sum_of_events += group.nanoseconds;
        sum_of_cupti += time.traced_nanoseconds;
        rows.push(json!({
            "kernel": time.kernel, "runs": time.runs, "kernels": time.traced_kernels,
            "events_nanoseconds": group.nanoseconds, "layers_with_cupti_nanoseconds": time.layer_nanoseconds,
            "by_kernel_nanoseconds": time.nanoseconds, "cupti_nanoseconds": time.traced_nanoseconds,
            "events_difference_percent": by_events, "layers_difference_percent": by_layers,
            "by_kernel_difference_percent": by_kernel,
        }));
    }
    let difference = 100.0 * (sum_of_events as f64 / sum_of_cupti as f64 - 1.0);
    println!("all kernels: events differ from CUPTI by {difference:+.2} %");
    let unknown = traced.activity.iter().filter(|activity| activity.work.is_none()).count();
    println!("{} kernels and copies were traced, {unknown} of them of no layer", traced.activity.len());
    json!({"kernels": rows, "difference_percent": difference, "traced": traced.activity.len(), "of_no_layer": unknown})
}

fn run() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let Some(device) = gpu_if_any("svd_profile", Device::open(0))? else { return Ok(()) };
    let info = device.info();
    println!("{}, {} frames of {}×{}, f16", info.name, arguments.frames, arguments.width, arguments.height);
    let graph = arguments.network()?;
    let tuner = tuner::open(arguments.tuning, &device)?;
    let options = CudaOptions {
        kernels: arguments.kernels,
        ..CudaOptions::for_device(&device, kinora_cpu::CpuOps::shared())
    };
    let options = tuner::tuned(options, tuner.as_ref(), &graph)?;
    let mut program =
        Planned::new(&graph, &options)?.load_with(&device, &Synthetic, &LoadOptions::default())?;

    // The first run warms up.
    denoise(&mut program, arguments.steps)?;
    let plain = median(inner(&denoise(&mut program, arguments.steps)?).to_vec());
    println!("{:<16} step {:.3} ms", "not profiled", 1e3 * plain);
    let events = profiled(&mut program, arguments.steps, None)?;
    let mut report = json!({
        "device": info.name, "driver": info.driver.to_string(), "frames": arguments.frames,
        "height": arguments.height, "width": arguments.width, "kernels": arguments.kernels.to_string(),
        "tuning": arguments.tuning.to_string(), "step_ms": 1e3 * plain, "events": report_steps("events", &events),
    });
    match Cupti::find() {
        Ok(cupti) => {
            println!("{cupti:?}");
            let traced = profiled(&mut program, arguments.steps, Some(cupti))?;
            report["cupti_version"] = json!(cupti.version());
            report["events_and_cupti"] = report_steps("events and CUPTI", &traced);
            report["comparison"] = report_kernels(&events, &traced);
        }
        Err(error) => println!("not compared with CUPTI: {error}"),
    }
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run())
}

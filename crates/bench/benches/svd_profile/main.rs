//! How accurate the profiler is on a GPU: the denoising network of Stable Video Diffusion at full size, with random weights,
//! run three times: without the profiler, with events between its layers, and with CUPTI as well.
//!
//! It reports two figures: how much the sum of a step's layers and copies differs from its time by the host's clock, and how
//! much the time of each kind of kernel differs from CUPTI's: by events, as in a profile without CUPTI; by the spans of its
//! layers with CUPTI, which include the gaps between the kernels of a layer; and by kernel, as in a profile with CUPTI, which
//! differs only if runs are not recognised in the trace.
//!
//! Options after `--`: `--frames N`, `--height N`, `--width N`, `--steps N`, `--kernels fused|baseline`,
//! `--tuning off|auto|all|ours|vendor` (how kernels are chosen), `--json FILE`. Without a GPU it prints that it does not run;
//! with `KINORA_REQUIRE_GPU=1` that is a failure. Without CUPTI the second figure is left out.

#[path = "../support/svd.rs"]
mod svd;
#[path = "../support/tuner.rs"]
mod tuner;

use std::{ops::ControlFlow, process::ExitCode, time::Instant};

use kinora_bench::{CommandLine, cases::inputs_by_name, exit_code, gpu_if_any, median, write_json};
use kinora_cuda::{CudaOptions, LoadOptions, Planned, Program, cupti::Cupti, driver::Device};
use kinora_graph::Phase;
use kinora_models::{networks::step_cache::Extent, synthetic::Synthetic};
use kinora_profile::{
    Profile, Profiler,
    groups::{By, groups},
    kernel_times::kernel_times,
    steps::{Step, steps},
};
use kinora_runtime::StepLoop;
use serde_json::{Value, json};
use svd::SvdOptions;

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    svd: SvdOptions,
    steps: usize,
}

impl Arguments {
    fn read() -> Result<Arguments, Failure> {
        let mut line = CommandLine::of_process();
        let arguments =
            Arguments { svd: SvdOptions::take(&mut line)?, steps: line.option_or("--steps", 10)? };
        line.rest()?;
        match arguments.steps {
            // The first step follows no other, and no step follows the last.
            0..3 => Err("--steps must be at least 3: the first and the last are not counted".into()),
            _ => Ok(arguments),
        }
    }
}

/// Denoises once; gives the seconds from each step's results to the next one's.
fn denoise(program: &mut Program, count: usize) -> Result<Vec<f64>, Failure> {
    let clip = inputs_by_name(program.graph(), Phase::Clip)?;
    let step = inputs_by_name(program.graph(), Phase::Step)?;
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

/// The steps between the first and the last.
fn inner<T>(all: &[T]) -> &[T] {
    &all[1..all.len() - 1]
}

/// The first figure, of a profile.
fn report_steps(name: &str, profile: &Profile) -> Value {
    let steps = steps(profile);
    let milliseconds =
        |of: fn(&Step) -> u64| median(&inner(&steps).iter().map(|s| of(s) as f64 / 1e6).collect::<Vec<_>>());
    let difference = |step: &Step| {
        let spans = (step.layer_nanoseconds + step.copy_nanoseconds) as f64;
        100.0 * (spans / step.nanoseconds as f64 - 1.0)
    };
    let differences: Vec<f64> = inner(&steps).iter().map(difference).collect();
    let worst = differences.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(f64::NAN);
    let (wall, launches) = (milliseconds(|s| s.nanoseconds), milliseconds(|s| s.launch_nanoseconds));
    println!(
        "{name:<16} step {wall:.3} ms, layers {:.3} ms, copies {:.3} ms: {:+.2} % of the step, at worst {worst:+.2} %; \
         the host launched for {launches:.3} ms of it",
        milliseconds(|s| s.layer_nanoseconds),
        milliseconds(|s| s.copy_nanoseconds),
        median(&differences),
    );
    // With a full queue, launching takes as long as the GPU does: only what the GPU ran shows what limits the step.
    let traced = steps.iter().any(|step| step.active_nanoseconds.is_some());
    let active = traced.then(|| milliseconds(|s| s.active_nanoseconds.unwrap_or(0)));
    if let Some(active) = active {
        println!("{:<16} the GPU ran something for {active:.3} ms of it", "");
    }
    json!({
        "steps": steps, "median_difference_percent": median(&differences), "worst_difference_percent": worst,
        "busy_percent": active.map(|active| 100.0 * active / wall),
    })
}

/// The second figure: the times of kernels by events without CUPTI, by spans of layers and by kernel with it, beside
/// CUPTI's own.
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
    println!(
        "{} kernels and copies were traced, {unknown} of them outside of any layer",
        traced.activity.len()
    );
    json!({"kernels": rows, "difference_percent": difference, "traced": traced.activity.len(), "of_no_layer": unknown})
}

fn run() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let Some(device) = gpu_if_any("svd_profile", Device::open(0))? else { return Ok(()) };
    let svd = &arguments.svd;
    svd.print_head(device.info());
    let graph = svd.denoiser(arguments.steps, Extent::Whole)?;
    let tuner = tuner::open(svd.tuning, &device)?;
    let options = CudaOptions {
        kernels: svd.kernels,
        ..CudaOptions::for_device(&device, kinora_cpu::CpuOps::shared())
    };
    let options = tuner::tuned(options, tuner.as_ref(), &graph)?;
    let mut program =
        Planned::new(&graph, &options)?.load_with(&device, &Synthetic, &LoadOptions::default())?;

    // The first run warms up.
    denoise(&mut program, arguments.steps)?;
    let plain = median(inner(&denoise(&mut program, arguments.steps)?));
    println!("{:<16} step {:.3} ms", "not profiled", 1e3 * plain);
    let events = profiled(&mut program, arguments.steps, None)?;
    let mut report = svd.head(device.info());
    report["step_ms"] = json!(1e3 * plain);
    report["events"] = report_steps("events", &events);
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
    if let Some(path) = &svd.json {
        write_json(path, &report)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run())
}

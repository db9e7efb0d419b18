//! A stream of live video at full size on a GPU, with random weights: SD-Turbo and the tiny autoencoder through the pipeline
//! [`Live`], from the host's bytes to the host's bytes.
//!
//! Frames in a row and whether they stay as fast; the memory beside the plan's; how long it takes until a changed prompt, a
//! changed size and a changed number of steps are seen, and whether a frame is late meanwhile; frames of a camera's size, fitted on
//! the device, and whether they have the bytes of those that the host fits.
//!
//! Options after `--`: `--frames N` (in a row), `--model FOLDER` (where the model is written, or was), `--precision f16|fp8` (in fp8
//! the first start also measures the model, unless it has its fp8.json), `--tuning off|auto|all|ours|vendor`, `--lora FILE` (also measures how long it takes to turn its strength), `--json FILE`. Without a GPU it prints that it does not run; with `KINORA_REQUIRE_GPU=1` that is a
//! failure.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use kinora::{
    Device, Live, LiveModel, LiveSettings, LoadOptions, ModelFolder, RgbImage, image_to_video::Precision,
    live::Stream, runtime::Tuning, video::fit::Placement,
};
use kinora_bench::{BenchError, CommandLine, exit_code, gpu_if_any, percentile, write_json};
use kinora_cuda::driver;
use kinora_models::{lora::Lora, presets::ImagePreset, synthetic::uniform};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

const SIDE: usize = 512;
/// Another size, of about as many pixels.
const OTHER: [usize; 2] = [640, 384];
/// A camera's size.
const CAMERA: [usize; 2] = [1280, 720];
/// Frames before anything is measured.
const WARM_UP: usize = 50;

struct Arguments {
    frames: usize,
    model: PathBuf,
    precision: Precision,
    tuning: Tuning,
    lora: Option<PathBuf>,
    json: Option<PathBuf>,
}

impl Arguments {
    fn read() -> Result<Arguments, BenchError> {
        let mut line = CommandLine::of_process();
        let arguments = Arguments {
            frames: line.option_or("--frames", 2000)?,
            model: line.option_or("--model", std::env::temp_dir().join("kinora-live-model"))?,
            precision: line.option_or("--precision", Precision::F16)?,
            tuning: line.option_or("--tuning", Tuning::Off)?,
            lora: line.option("--lora")?,
            json: line.option("--json")?,
        };
        line.rest()?;
        Ok(arguments)
    }
}

/// The model, which is written if it is not there.
fn model(folder: &Path) -> Result<LiveModel, Failure> {
    let preset = ImagePreset::sd_turbo().model;
    let (model, tiny) = (folder.join("model"), folder.join("tiny"));
    if !model.exists() {
        preset.write(&model)?;
    }
    if !tiny.exists() {
        preset.write_tiny_vae(&tiny)?;
    }
    Ok(LiveModel::new(ModelFolder::open(model)?).tiny_autoencoder(ModelFolder::open(tiny)?))
}

fn picture(number: usize, [width, height]: [usize; 2]) -> Result<RgbImage, Failure> {
    let byte = |x: f64| (127.5 + 127.5 * x) as u8;
    let bytes = uniform(&format!("picture {number}")).map(byte).take(width * height * 3).collect();
    Ok(RgbImage::new(width, height, bytes)?)
}

/// Times of frames in a row, in milliseconds.
struct Times(Vec<f64>);

impl Times {
    fn take(stream: &mut Stream, pictures: &[RgbImage], count: usize) -> Result<Times, Failure> {
        let mut times = Vec::with_capacity(count);
        for number in 0..count {
            let start = Instant::now();
            stream.frame(&pictures[number % pictures.len()])?;
            times.push(milliseconds(start.elapsed()));
        }
        Ok(Times(times))
    }

    fn percentile(&self, share: f64) -> f64 {
        let mut times = self.0.clone();
        times.sort_by(f64::total_cmp);
        percentile(&times, share).unwrap_or(f64::NAN)
    }

    fn summary(&self) -> Value {
        json!({
            "frames": self.0.len(),
            "p50_ms": self.percentile(0.5), "p99_ms": self.percentile(0.99), "p99_9_ms": self.percentile(0.999),
            "most_ms": self.percentile(1.0),
        })
    }

    fn part(&self, range: std::ops::Range<usize>) -> Times {
        Times(self.0[range].to_vec())
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Asks for a change and draws frames until it is seen: how long that took, and the slowest frame meanwhile.
fn change(stream: &mut Stream, settings: &LiveSettings, picture: &RgbImage) -> Result<Value, Failure> {
    let start = Instant::now();
    stream.change(settings.clone())?;
    let asked = milliseconds(start.elapsed());
    let (mut slowest, mut frames) = (0.0_f64, 0);
    loop {
        let began = Instant::now();
        stream.frame(picture)?;
        slowest = slowest.max(milliseconds(began.elapsed()));
        frames += 1;
        if stream.settings() == settings {
            break;
        }
    }
    let seen = milliseconds(start.elapsed());
    println!(
        "  seen after {seen:.1} ms and {frames} frames, the slowest {slowest:.1} ms; asking took {asked:.2} ms"
    );
    Ok(json!({ "seen_ms": seen, "frames": frames, "slowest_frame_ms": slowest, "asking_ms": asked }))
}

/// Turns a LoRA's strength, and draws frames with it.
fn turn(model: LiveModel, file: &Path, options: LoadOptions, picture: &RgbImage) -> Result<Value, Failure> {
    const NAME: &str = "lora";
    println!("a LoRA that is turned:");
    let live = Live::new(model.adjustable_lora(NAME, Lora::open(file)?, 0.5), options)?;
    let settings = live.settings().prompt("a harbour").seed(7).strength(1.0).blend(0.3);
    let mut stream = live.begin(settings.clone())?;
    let pictures = std::slice::from_ref(picture);
    Times::take(&mut stream, pictures, WARM_UP)?;
    let before = Times::take(&mut stream, pictures, 300)?.summary();
    let turned = change(&mut stream, &settings.lora_strength(NAME, 0.8), picture)?;
    let after = Times::take(&mut stream, pictures, 300)?.summary();
    let planned = stream.memory_bytes();
    Ok(json!({ "frames_before": before, "turned": turned, "frames_after": after, "planned_bytes": planned }))
}

/// Frames of a camera's size, which the network fits.
fn fitted(live: &Live, settings: &LiveSettings) -> Result<Value, Failure> {
    println!("frames of {}×{}:", CAMERA[0], CAMERA[1]);
    let pictures: Vec<RgbImage> =
        (0..4).map(|number| picture(number, CAMERA)).collect::<Result<_, Failure>>()?;
    let begin = |size| live.begin_for(settings.clone(), size, |_| ControlFlow::Continue(()));
    let (mut stream, mut by_host) = (begin(CAMERA)?, begin([SIDE; 2])?);
    let placement = Placement::new(settings.fit, CAMERA, [SIDE; 2])?;
    let mut equal = true;
    for picture in &pictures {
        let fitted = placement.forward(picture, settings.background)?;
        equal &= stream.frame(picture)? == by_host.frame(&fitted)?;
    }
    Times::take(&mut stream, &pictures, WARM_UP)?;
    let times = Times::take(&mut stream, &pictures, 500)?.summary();
    Ok(json!({ "input": CAMERA, "equal_to_those_that_the_host_fits": equal, "frames": times }))
}

fn run() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let Some(device) = gpu_if_any("live_stream", driver::Device::shared(0))? else { return Ok(()) };
    let start = Instant::now();
    let folders = model(&arguments.model)?;
    println!(
        "{}, {SIDE}×{SIDE}, {}; the model is there after {:.1} s",
        device.info().name,
        arguments.precision,
        start.elapsed().as_secs_f64()
    );
    let options = || {
        let options = LoadOptions::default().device(Device::Cuda(0)).precision(arguments.precision);
        options.tuning(arguments.tuning)
    };
    let pictures: Vec<RgbImage> =
        (0..4).map(|number| picture(number, [SIDE; 2])).collect::<Result<_, Failure>>()?;
    // The context that all programs share is there already: what it takes is counted apart.
    let context = device.memory()?.total - device.memory()?.free;
    let before = device.memory()?.free;
    let mut report = json!({
        "device": device.info().name, "precision": arguments.precision.to_string(), "tuning": arguments.tuning.to_string(),
    });
    // The first start also measures and compiles kernels that are not cached yet.
    for name in ["first_start", "second_start"] {
        let start = Instant::now();
        let live = Live::new(folders.clone(), options())?;
        let settings = live.settings().prompt("a harbour").seed(7).strength(1.0).blend(0.3);
        let mut stream = live.begin(settings)?;
        let begun = start.elapsed().as_secs_f64();
        stream.frame(&pictures[0])?;
        let first = start.elapsed().as_secs_f64();
        println!("{name}: begun after {begun:.2} s, the first frame after {first:.2} s");
        report[name] = json!({ "begun_s": begun, "first_frame_s": first });
    }
    let live = Live::new(folders.clone(), options())?;
    let settings = live.settings().prompt("a harbour").seed(7).strength(1.0).blend(0.3);
    let mut stream = live.begin(settings.clone())?;
    Times::take(&mut stream, &pictures, WARM_UP)?;
    let held = before.saturating_sub(device.memory()?.free);
    let planned = stream.memory_bytes();
    report["memory"] = json!({ "planned_bytes": planned, "driver_bytes": held, "context_bytes": context });
    println!(
        "memory: {:.3} GB by the plan, {:.3} GB by the driver, beside {:.3} GB of the context and other processes",
        planned as f64 / 1e9,
        held as f64 / 1e9,
        context as f64 / 1e9
    );
    let two = settings.clone().steps(2);
    let other = settings.clone().width(OTHER[0]).height(OTHER[1]);
    for (name, to) in [
        ("new_prompt", settings.clone().prompt("a snowy street at night")),
        ("prompt_again", settings.clone()),
        ("new_size", other.clone()),
        ("size_back", settings.clone()),
        ("size_again", other),
        ("back", settings.clone()),
        ("two_steps", two.clone()),
        ("one_step", settings.clone()),
        ("two_steps_again", two),
    ] {
        println!("{name}:");
        report[name] = change(&mut stream, &to, &pictures[0])?;
    }
    report["frames_of_two_steps"] = Times::take(&mut stream, &pictures, 300)?.summary();
    change(&mut stream, &settings, &pictures[0])?;
    Times::take(&mut stream, &pictures, WARM_UP)?;
    let free = device.memory()?.free;
    let times = Times::take(&mut stream, &pictures, arguments.frames)?;
    report["frames"] = times.summary();
    let part = (arguments.frames / 2).min(1000);
    report["first_frames"] = times.part(0..part).summary();
    report["last_frames"] = times.part(arguments.frames - part..arguments.frames).summary();
    report["memory"]["growth_bytes"] = json!(free as i64 - device.memory()?.free as i64);
    drop(stream);
    report["fitted"] = fitted(&live, &settings)?;
    if let Some(file) = &arguments.lora {
        report["lora"] = turn(folders, file, options(), &pictures[0])?;
    }
    println!("{report:#}");
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    exit_code(run())
}

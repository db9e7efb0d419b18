//! The error of Stable Video Diffusion's stages against PyTorch in f32, beside that of PyTorch itself in half precision; or of
//! f32 against PyTorch in f64.
//!
//! `crates/bench/peers/svd_gpu.py --parts model,reference` writes a model, inputs, PyTorch's results and their errors into a folder;
//! `crates/bench/peers/README.md` describes it. Each stage runs here with the same weights on the same inputs, and its error is
//! computed by the same formula. It may be up to 1.2 times PyTorch's own in the same precision. The process fails if an
//! error is larger, or a result is not finite. The pipeline is compared in f16 only: it starts from the noise that a run in
//! f16 draws. Without `--peers`, as with a plain `cargo bench`, it prints that there is nothing to compare with.
//!
//! Options after `--`: patterns, one of which a stage's name must contain (`clip`, `vae_encode`, `unet`, `vae_decode`,
//! `pipeline`), `--peers FOLDER` that the script wrote, `--size full|small|tiny` of its model, `--device cpu|cuda[:N]`,
//! `--precision f32|f16|bf16`, `--tuning off|auto|all|ours|vendor` (how a GPU's kernels are chosen), `--json FILE`.

mod backend;
mod peers;
mod report;
mod stages;

use std::{path::PathBuf, process::ExitCode};

use kinora::{device::Device, image_to_video::Precision, runtime::Tuning};
use kinora_bench::{BenchError, CommandLine, Filter, exit_code, run::Size};

use peers::Peers;
use report::Report;
use stages::{STAGES, Stages};

type Failure = Box<dyn std::error::Error>;

/// What the command line asked for.
struct Arguments {
    filter: Filter,
    peers: Option<PathBuf>,
    size: Size,
    device: Device,
    precision: Precision,
    tuning: Tuning,
    json: Option<PathBuf>,
}

impl Arguments {
    fn read() -> Result<Arguments, BenchError> {
        let mut line = CommandLine::of_process();
        Ok(Arguments {
            peers: line.option("--peers")?,
            size: line.option_or("--size", Size::Full)?,
            device: line.option_or("--device", Device::Cuda(0))?,
            precision: line.option_or("--precision", Precision::F16)?,
            tuning: line.option_or("--tuning", Tuning::Off)?,
            json: line.option("--json")?,
            filter: line.rest()?,
        })
    }
}

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<(), Failure> {
    let Arguments { filter, peers, size, device, precision, tuning, json } = Arguments::read()?;
    let Some(peers) = peers else {
        println!("svd_accuracy not run: it needs --peers FOLDER, which crates/bench/peers/svd_gpu.py writes");
        return Ok(());
    };
    let peers = Peers::open(&peers)?;
    let backend = backend::open(device, tuning)?;
    let stages = Stages::open(&peers, size, (device, tuning), precision, &*backend)?;
    let mut report = Report::new(size, precision, tuning, &backend.describe(), json);
    for stage in STAGES.into_iter().filter(|stage| filter.chooses(stage)) {
        if let Some(reason) = stages.incomparable(stage) {
            println!("{stage}: not compared: {reason}");
            continue;
        }
        report.add(stage, stages.run(stage), &peers)?;
    }
    report.finish()
}

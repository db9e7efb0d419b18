//! Compares the simulator with a GPU, bit by bit and counter by counter.
//!
//! Every kernel that is offered for an op runs over the golden and the edge tables, as machine code on the GPU and as PTX in the
//! simulator: the GPU's own kernels, the baseline, and the paths of Ampere and Turing, which the driver translates. Kernels whose
//! instructions are all defined to the bit must agree to the bit; the others must be within the bound of their class (`bounds.rs`).
//! Otherwise the process fails.
//!
//! Options after `--`: words, one of which a table's name must contain (`conv`, `norm`, …; `edges norms f16`, …), `--path sm_80` for
//! the paths with that in their name, `--json FILE`.
//!
//! For a profiler: `--launch NAME` runs one chosen call once on the GPU, and `--counters NAME` prints the simulator's counters of
//! the same launches as JSON; `--counters list` prints the names. `crates/bench/peers/ncu_counters.py` compares the two.
//!
//! Without a GPU it says so; with `KINORA_REQUIRE_GPU=1` it fails. Counters need no GPU.

mod agreement;
mod bounds;
mod chosen;
mod gpu;
mod probes;
mod report;
mod tables;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use kinora_bench::{CommandLine, Filter, exit_code, gpu_if_any};
use kinora_cuda::{
    Architecture, Chip, CodeForm, compiler::CompilerOptions, driver::Device, kernels::KernelSet,
};

use agreement::{Agreement, Path};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<(), Failure> {
    let mut line = CommandLine::of_process();
    let json: Option<PathBuf> = line.option("--json")?;
    let only: String = line.option_or("--path", String::new())?;
    let launch: Option<String> = line.option("--launch")?;
    let counters: Option<String> = line.option("--counters")?;
    let filter = line.rest()?;
    if let Some(name) = counters {
        let chip = gpu::find().map_or_else(|_| Chip::typical(Architecture::HOPPER), |gpu| gpu.info().chip());
        return chosen::count(&name, chip);
    }
    let Some(device) = gpu_if_any("simulator_on_gpu", gpu::find())? else { return Ok(()) };
    match launch {
        Some(name) => chosen::launch(&name, &device),
        None => compare(&device, &filter, &only, json),
    }
}

/// Compares everything, and fails if something is too far apart.
fn compare(device: &Device, filter: &Filter, only: &str, json: Option<PathBuf>) -> Result<(), Failure> {
    let start = Instant::now();
    let paths = paths(device, only)?;
    let mut agreement = Agreement::default();
    for name in tables::names().into_iter().filter(|name| filter.chooses(name)) {
        let began = Instant::now();
        agreement.add_table(&name, &tables::cases(&name), &paths);
        eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
        // A run that is stopped keeps the tables so far.
        if let Some(file) = &json {
            report::write(file, &agreement, device)?;
        }
    }
    print!("{}", report::text(&agreement));
    println!("{:.0} s in total", start.elapsed().as_secs_f64());
    match agreement.failures() {
        0 => Ok(()),
        count => Err(format!("{count} rows or calls disagree").into()),
    }
}

/// The GPU's own chip with all its kernels, the baseline, and the paths of Ampere and Turing.
fn paths(device: &Device, only: &str) -> Result<Vec<Path>, Failure> {
    let own = device.info().chip();
    let newest = own.architecture;
    let older = [Architecture::AMPERE, Architecture::TURING]
        .into_iter()
        .filter(|&architecture| architecture < newest)
        .map(|architecture| Chip { form: CodeForm::Ptx, ..Chip::typical(architecture) });
    let sets = [(own.clone(), KernelSet::Fused), (own, KernelSet::Baseline)];
    let paths = sets.into_iter().chain(older.map(|chip| (chip, KernelSet::Fused)));
    let mut made = Vec::new();
    for (chip, set) in paths {
        let name = format!("{} {set:?}", chip.architecture).to_lowercase();
        if name.contains(only) {
            // The kernels of older chips differ in their instructions, not in their tiles.
            let all = chip.architecture == newest;
            let options = CompilerOptions::from_environment();
            let gpu = gpu::OnGpu::new(device, chip.clone(), options.clone())?;
            made.push(Path::new(name, chip, set, all, options, Box::new(gpu))?);
        }
    }
    Ok(made)
}

//! Predicts the kernels of sparse matrix × vector on an H200: `cargo run --release -p kinora-lab --example spmv_predictions`, with recipes
//! such as `uniform:rows=100000,nonzeros=3000000` to predict others than the usual ones.

use std::{env, error::Error, io::Write};

use kinora_lab::{
    compile::Form,
    execute::SimulatedDevice,
    spmv::{
        Csr, Job, Placed, Statistics, Value, candidates,
        cpu::Scalars,
        generate::{Recipe, vector},
        predict::predict,
    },
};
use kinora_ptx::{Calibration, Checks, ChipSpec};

const USUAL: [&str; 6] = [
    "stencil-3d:rows=1000000",
    "banded:rows=200000,nonzeros=8000000",
    "uniform:rows=200000,nonzeros=4000000",
    "power-law:rows=300000,nonzeros=6000000",
    "empty-rows:rows=1000000,nonzeros=4000000",
    "dense-row:rows=1000000,nonzeros=5000000",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut asked: Vec<String> = env::args().skip(1).collect();
    let double = asked.iter().any(|word| word == "f64");
    asked.retain(|word| word != "f64" && word != "--bench");
    if asked.is_empty() {
        asked = USUAL.map(str::to_owned).to_vec();
    }
    for recipe in asked {
        let recipe: Recipe = recipe.parse()?;
        if double { table::<f64>(&recipe)? } else { table::<f32>(&recipe)? }
    }
    Ok(())
}

fn table<V: Value>(recipe: &Recipe) -> Result<(), Box<dyn Error>> {
    let matrix: Csr<V, i32> = recipe.generate()?;
    let known = Statistics::new(&matrix);
    let chip = ChipSpec::h200();
    let calibration = Calibration::of(&chip);
    let floor = matrix.floor_bytes(known.columns_used, false) as f64;
    let at_best = floor / (chip.memory.dram_bytes * calibration.dram);
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{recipe}, {}: rows of {:.1} ± {:.1}, at most {}; floor {:.1} µs",
        V::NAME,
        known.mean,
        known.deviation,
        known.longest,
        at_best * 1e6
    )?;
    let x: Vec<V> = vector(matrix.columns(), 1);
    for variant in candidates::<V>(&known, chip.shared_bytes) {
        let mut device =
            SimulatedDevice::new(chip.clone(), Checks::default()).calibrated(calibration.clone());
        let placed = Placed::new(&mut device, &matrix, &x)?;
        let code = variant.compile::<V, i32>(chip.capability, Form::Ptx)?;
        let registers =
            variant.compile::<V, i32>(chip.capability, Form::Cubin)?.resources.map(|r| r.registers);
        let job = Job::new(&mut device, (variant, &code), &matrix, &placed, Scalars::default())?;
        let found = predict(&device, &calibration, &job, registers)?;
        let working = found.seconds - found.launch_seconds;
        writeln!(
            out,
            "  {:<18} {:8.1} µs, {:7.1} without launches: {:5.1} % of what memory reaches; {}{}; DRAM {:.2} × floor, L2 {:.2} ×, {} registers, {} blocks; prepared by the device in {:.1} µs, by this host in {:.0} µs",
            variant.to_string(),
            found.seconds * 1e6,
            working * 1e6,
            100.0 * at_best / working,
            found.limiter.describe(),
            if found.straggles { " of the longest row" } else { "" },
            found.dram_bytes / floor,
            found.l2_bytes / floor,
            found.registers,
            found.resident_blocks,
            found.preparation_seconds * 1e6,
            job.host_seconds * 1e6,
        )?;
    }
    Ok(())
}

//! Compares the simulator's predictions with the times of a device, from the tuner's record of it.
//!
//! `cargo bench -p kinora-cuda --bench predictions` predicts some pairs of a call and an implementation, from every family of
//! kernels, from the shortest to the longest, from published figures of the chip alone. With `--calibrate OUT.json` it fits the
//! constants of a calibration to one half of the pairs of each family, chosen by a hash, and reports the error on the other half,
//! which the fit has not seen. Give absolute paths of files: a benchmark starts in its crate's folder.

mod fit;
mod pairs;
mod statistics;

use std::{fs, path::PathBuf, time::Instant};

use kinora_cuda::{Architecture, Chip, compiler::CompilerOptions, simulation::SimulatedBench};
use kinora_ptx::Calibration;
use serde_json::json;
use statistics::Errors;

const USAGE: &str = "\
--records FILE      the tuner's record of a Hopper GPU (bench/results/h200/svd-tuning.json)
--device TEXT       the device and driver of that record (those of the record in the repository)
--memory SHARE      the share of the published memory bandwidth that a copy reaches there, from `kinora doctor` (0.86)
--each COUNT        pairs of each family of kernels (16)
--calibrate FILE    fit the constants to half of the pairs, and write them
--calibration FILE  predict with these constants instead of published figures alone
--json FILE         write every prediction";

/// The record in the repository.
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results/h200/svd-tuning.json");

/// Its device, and the share of the memory bandwidth that a copy reached there: 4.14 of 4.8 TB/s.
const DEVICE: &str = "NVIDIA H200, driver 580.159.04, CUDA 13.0";
const MEMORY_SHARE: f64 = 0.86;

/// The shares of the tensor cores' published rate that a calibration tries.
const TENSOR_SHARES: [f64; 5] = [1.0, 0.9, 0.8, 0.7, 0.6];

/// The options of the command line.
struct Arguments {
    records: PathBuf,
    device: String,
    memory: f64,
    each: usize,
    calibrate: Option<PathBuf>,
    calibration: Option<PathBuf>,
    json: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments {
        records: RECORDS.into(),
        device: DEVICE.to_owned(),
        memory: MEMORY_SHARE,
        each: 16,
        calibrate: None,
        calibration: None,
        json: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        // `cargo bench` adds it.
        if word == "--bench" {
            continue;
        }
        let value = words.next().ok_or(USAGE)?;
        match word.as_str() {
            "--records" => found.records = value.into(),
            "--device" => found.device = value,
            "--memory" => found.memory = value.parse().map_err(|_| USAGE)?,
            "--each" => found.each = value.parse().map_err(|_| USAGE)?,
            "--calibration" => found.calibration = Some(value.into()),
            "--calibrate" => found.calibrate = Some(value.into()),
            "--json" => found.json = Some(value.into()),
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(found)
}

fn main() -> Result<(), String> {
    let arguments = arguments()?;
    let chosen = pairs::choose(pairs::read(&arguments.records)?, arguments.each);
    let options = CompilerOptions::from_environment();
    let bench = SimulatedBench::new(Chip::typical(Architecture::HOPPER), options)
        .map_err(|error| error.to_string())?;
    let plain = match &arguments.calibration {
        Some(path) => Calibration::read(path).map_err(|error| error.to_string())?,
        None => Calibration::default(),
    };
    let given =
        if arguments.calibration.is_some() { "the constants given" } else { "published figures alone" };
    let measure = |calibration: &Calibration, pairs: &[pairs::Pair]| {
        let mut measured: Vec<fit::Measured> = Vec::new();
        for (done, pair) in pairs.iter().enumerate() {
            eprintln!("{done} of {}: {} {}", pairs.len(), pair.family, pair.way);
            match pair.with(bench.chip(), |call, way| bench.predict(call, way, calibration)) {
                Ok(prediction) => measured.push(fit::Measured { pair: pair.clone(), prediction }),
                Err(error) => eprintln!("{} {}: {error}", pair.family, pair.way),
            }
        }
        measured
    };
    let start = Instant::now();
    let measured = measure(&plain, &chosen);
    let seconds = start.elapsed().as_secs_f64();
    // The simulation of the blocks depends on the tensor cores' share, and is repeated for each one.
    let candidates = || {
        let tried = TENSOR_SHARES.map(|tensor| {
            let base = Calibration { tensor, ..plain.clone() };
            let measured = measure(&base, &chosen);
            let start =
                Calibration { device: arguments.device.clone(), dram: arguments.memory, ..base.clone() };
            let (fitted, error) = fit::fit(&measured, &base, start);
            (fitted, base, measured, error)
        });
        tried.into_iter().min_by(|a, b| a.3.total_cmp(&b.3))
    };
    let fitted = arguments.calibrate.as_ref().and_then(|_| candidates());
    match &fitted {
        Some((fitted, base, measured, _)) => print_table(measured, base, fitted),
        None => print_table(&measured, &plain, &plain),
    }
    let of =
        |measured: &[fit::Measured], calibration: &Calibration, base: &Calibration, half: Option<bool>| {
            let chosen = measured.iter().filter(|one| half.is_none_or(|half| one.pair.calibrates == half));
            Errors::of(chosen.map(|one| one.times(calibration, base)))
        };
    let mut results = vec![(given, of(&measured, &plain, &plain, None))];
    if let Some((fitted, base, again, _)) = &fitted {
        results.push(("calibrated, the half it was fitted to", of(again, fitted, base, Some(true))));
        results.push(("calibrated, the other half", of(again, fitted, base, Some(false))));
        results.push(("calibrated, all", of(again, fitted, base, None)));
    }
    println!("\n{} pairs in {seconds:.0} s", measured.len());
    for (name, errors) in &results {
        println!("{name:<40} {errors}");
    }
    if let (Some(path), Some((fitted, ..))) = (&arguments.calibrate, &fitted) {
        fitted.write(path).map_err(|error| error.to_string())?;
    }
    if let Some(path) = &arguments.json {
        let calibrated = |at: usize| {
            let (fitted, base, measured, _) = fitted.as_ref()?;
            measured.get(at).map(|one| 1e3 * one.times(fitted, base).1)
        };
        let pairs: Vec<_> =
            measured.iter().enumerate().map(|(at, one)| one.json(calibrated(at), &plain)).collect();
        let results: Vec<_> =
            results.iter().map(|(name, errors)| json!({"of": name, "errors": errors})).collect();
        let answer =
            json!({ "device": arguments.device, "seconds": seconds, "results": results, "pairs": pairs });
        let text = serde_json::to_string_pretty(&answer).unwrap_or_default() + "\n";
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn print_table(measured: &[fit::Measured], base: &Calibration, calibration: &Calibration) {
    println!(
        "{:<20} {:<24} {:>10} {:>10} {:>7}  limited by",
        "family", "way", "measured", "predicted", "error"
    );
    for one in measured {
        let (expected, predicted) = one.times(calibration, base);
        let limiter = one.prediction.launches.first().map(|(_, launch)| launch.limiter);
        println!(
            "{:<20} {:<24} {:>7.4} ms {:>7.4} ms {:>+5.0} %  {:<9} {}",
            one.pair.family,
            one.pair.way,
            expected * 1e3,
            predicted * 1e3,
            100.0 * (predicted / expected - 1.0),
            limiter.map(|limiter| format!("{limiter:?}").to_lowercase()).unwrap_or_default(),
            one.pair.shapes()
        );
    }
}

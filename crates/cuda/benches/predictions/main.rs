//! Compares what the simulator predicts with what a device took, by the tuner's record of it.

mod records;

use std::{path::PathBuf, time::Instant};

use kinora_cuda::{Architecture, Chip, compiler::CompilerOptions, simulation::SimulatedBench};
use kinora_ptx::Calibration;
use records::Pair;

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let (mut records, mut filter, mut each) = (PathBuf::new(), String::new(), 10usize);
    let (mut way, mut shape, mut calibration) = (String::new(), String::new(), Calibration::default());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--records" => records = value().into(),
            "--filter" => filter = value(),
            "--way" => way = value(),
            "--shape" => shape = value(),
            "--calibration" => calibration = Calibration::read(&PathBuf::from(value())).map_err(|e| e.to_string())?,
            "--each" => each = value().parse().unwrap_or(10),
            _ => {}
        }
    }
    let mut pairs = records::read(&records)?;
    pairs.retain(|pair| pair.family.contains(&filter) && pair.way.contains(&way) && pair.signature.contains(&shape));
    let chosen = choose(pairs, each);
    let mut options = CompilerOptions::plain();
    options.cache = Some(PathBuf::from("/tmp/perf-kernel-cache"));
    let bench = SimulatedBench::new(Chip::typical(Architecture::HOPPER), options).map_err(|error| error.to_string())?;
    let mut errors = Vec::new();
    for pair in &chosen {
        let start = Instant::now();
        let predicted = pair.with(bench.chip(), |call, way| bench.predict(call, way, &calibration));
        match predicted {
            Ok(predicted) => {
                let ms = predicted.seconds * 1e3;
                let error = ms / pair.milliseconds - 1.0;
                errors.push(error.abs());
                let first = &predicted.launches[0].1;
                println!(
                    "{:16} {:22} {:9.4} {:9.4} {:+6.0} %  {:?}/{:?} occ {} of {} sm {:.4} l2 {:.4} dram {:.4} regs {} waves {:.1} sampled {} in {:.1}s {}",
                    pair.family, pair.way, pair.milliseconds, ms, 100.0 * error, first.limiter, first.next_limiter,
                    first.occupancy.blocks, first.blocks, first.multiprocessor_seconds * 1e3, first.l2_seconds * 1e3, first.dram_seconds * 1e3, first.registers, first.waves, first.sampled_blocks,
                    start.elapsed().as_secs_f64(), pair.shapes()
                );
                if std::env::var_os("VERBOSE").is_some() {
                    for used in &first.uses { println!("      {:?} {:.4}", used.resource, used.seconds * 1e3); }
                    println!("      {:?}", first.counters);
                }
            }
            Err(error) => println!("{} {}: {error}", pair.family, pair.way),
        }
    }
    if false { let _ = (chosen[0].calibrates(), chosen[0].hash()); }
    println!("MAPE {:.1} % of {}", 100.0 * errors.iter().sum::<f64>() / errors.len() as f64, errors.len());
    Ok(())
}

fn choose(mut pairs: Vec<Pair>, each: usize) -> Vec<Pair> {
    pairs.sort_by(|a, b| a.family.cmp(&b.family).then(a.milliseconds.total_cmp(&b.milliseconds)));
    let mut chosen = Vec::new();
    for family in pairs.chunk_by(|a, b| a.family == b.family) {
        let count = family.len().min(each);
        for i in 0..count {
            chosen.push(family[if count > 1 { i * (family.len() - 1) / (count - 1) } else { 0 }].clone());
        }
    }
    chosen
}

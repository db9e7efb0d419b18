//! How long a simulated kernel would take, as text.

use kinora::quantity::{bytes, time};
use kinora_ptx::{Calibration, LaunchConfig, Module, OccupancyLimit, PredictOptions, Prediction, Simulator};

use super::{arguments::SimArgs, lines, source};
use crate::failure::Failure;

/// The prediction, if one was asked for. If there is a source, the assembler says how many registers a thread has.
pub fn predict(
    arguments: &SimArgs,
    simulator: &Simulator,
    module: &Module,
    kernel: &str,
    config: &LaunchConfig,
    cuda: Option<&String>,
) -> Result<Option<Prediction>, Failure> {
    if arguments.device_profile.is_none() {
        return Ok(None);
    }
    let name = arguments.file.display().to_string();
    let calibration = match &arguments.calibration {
        Some(path) => Calibration::read(path).map_err(|error| Failure::Simulation(error.to_string()))?,
        None => Calibration::default(),
    };
    let registers = match cuda {
        Some(text) => source::registers(arguments, &name, text)?,
        None => None,
    };
    let options =
        PredictOptions { registers, calibration, by_line: arguments.by_line, ..PredictOptions::default() };
    let predicted = simulator.predict(module, kernel, config, &options);
    predicted.map(Some).map_err(|error| Failure::Simulation(format!("{name}: {error}")))
}

/// The prediction's lines.
pub fn text(prediction: &Prediction) -> String {
    let occupancy = &prediction.occupancy;
    let total = format!(
        "{}, limited by {}, then by {}",
        seconds(prediction.seconds),
        prediction.limiter.describe(),
        prediction.next_limiter.describe()
    );
    let parts = format!(
        "{} launch; then multiprocessors {} and DRAM {}, overlapping",
        seconds(prediction.launch_seconds),
        seconds(prediction.multiprocessor_seconds),
        seconds(prediction.dram_seconds)
    );
    let filled = format!(
        "{} blocks per multiprocessor at {} registers per thread, {:.0} % of its warps, limited by {}",
        occupancy.blocks,
        prediction.registers,
        100.0 * occupancy.share,
        limit(occupancy.limit)
    );
    let traffic = format!(
        "{} to and from DRAM, {} to and from L2",
        bytes(prediction.dram_bytes as u64),
        bytes(prediction.l2_bytes as u64)
    );
    let blocks = format!(
        "{} in {}; {} were simulated",
        prediction.blocks,
        waves(prediction.waves),
        prediction.sampled_blocks
    );
    let all = [
        ("predicted", total),
        ("  of which", parts),
        ("busy", busy(prediction)),
        ("waiting at barriers", format!("{} per warp on average", seconds(prediction.barrier_seconds))),
        ("occupancy", filled),
        ("traffic", traffic),
        ("blocks", blocks),
    ];
    let text: String = all.into_iter().map(|(name, value)| format!("{name:<28} {value}\n")).collect();
    text + &prediction.by_line.as_ref().map_or_else(String::new, lines::waits)
}

/// How often the multiprocessors are filled.
fn waves(waves: f64) -> String {
    if waves < 0.995 { "less than one wave".to_owned() } else { format!("{waves:.2} waves") }
}

fn seconds(seconds: f64) -> String {
    time((seconds * 1e9).round() as u64)
}

/// The busiest resources, with their shares of the time.
fn busy(prediction: &Prediction) -> String {
    let share = |seconds: f64| 100.0 * seconds / prediction.seconds.max(f64::MIN_POSITIVE);
    let uses = prediction.uses.iter().take(4);
    uses.map(|used| format!("{} {:.0} %", used.resource.describe(), share(used.seconds)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn limit(limit: OccupancyLimit) -> &'static str {
    match limit {
        OccupancyLimit::Warps => "warps",
        OccupancyLimit::Blocks => "blocks",
        OccupancyLimit::Registers => "registers",
        OccupancyLimit::Shared => "shared memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_wave_is_not_none() {
        assert_eq!(waves(0.002), "less than one wave");
        assert_eq!(waves(1.0), "1.00 waves");
        assert_eq!(waves(2500.0), "2500.00 waves");
    }
}

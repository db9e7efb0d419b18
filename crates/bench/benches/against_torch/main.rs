//! The CPU backend against PyTorch eager: same machine, same run, same inputs.
//!
//! `cargo xtask bench` installs PyTorch into the project's own environment and runs this; `cargo bench` runs it with what
//! is there. Each case is verified against PyTorch's result before either is timed, and once more afterwards. The two take
//! many short turns, so that what else the machine does meets both alike. The ratio of each turn is taken, and of these the
//! median, with the interval in which it lies; best times are compared too. Where eager PyTorch has two natural ways to run
//! a layer, both are timed and the better one counts. Operands are those of one layer, which stay in the caches that they fit into;
//! `kinora bench cpu` goes round several copies.
//! Results are written as JSON beside a table for people.
//!
//! Options after `--`: words of which case names must contain one, `--seconds N` a turn, `--turns N`, `--json FILE`.

mod report;

use std::{path::PathBuf, process::ExitCode};

use kinora_bench::{
    CommandLine, Compared, Distance, Filter,
    cases::{self, Case, Numbers},
    exit_code,
    peers::{Hello, TORCH_LAYERS, TorchPeer, Variant, checkout},
    run::{CpuLayer, Layer as _},
};
use kinora_graph::DType;

use report::{Measurement, Report};

/// How far the results may be apart, in root mean squares.
const BAR: f64 = 1e-5;
/// How far any element may be from its place in the other result, over the largest there.
const ELEMENT_BAR: f64 = 1e-4;
/// Runs of a turn, at the least.
const LEAST: usize = 3;

/// What the command line asked for.
struct Arguments {
    filter: Filter,
    seconds: f64,
    turns: usize,
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code(bench())
}

fn bench() -> Result<(), String> {
    let arguments = arguments()?;
    let threads = rayon::current_num_threads();
    let hello = Hello { threads, device: "cpu".into(), precision: "f32".into(), compile: false };
    let mut peer = TorchPeer::start(&checkout()?, &[TORCH_LAYERS], &hello)?;
    let version = peer.versions()["torch"].as_str().unwrap_or("unknown").to_owned();
    let mut report = Report::new(threads, &version);
    for case in cases::cpu()? {
        if arguments.filter.chooses(&case.name) {
            let measured = measure(&case, &mut peer, &arguments);
            report.add(measured.map_err(|problem| format!("{}: {problem}", case.name))?);
        }
    }
    report.finish(arguments.json.as_deref())
}

fn measure(case: &Case, peer: &mut TorchPeer, arguments: &Arguments) -> Result<Measurement, String> {
    let graph = case.work.graph(&case.name, DType::F32).map_err(|error| error.to_string())?;
    let numbers = Numbers::of(&graph).map_err(|error| error.to_string())?;
    let mut layer = CpuLayer::new(&graph, &numbers, 1)?;
    let ours = layer.result()?;
    let variants = peer.prepare(&case.work, &numbers, 1)?;
    let mut furthest = 0f64;
    for Variant { name, result, .. } in &variants {
        let theirs = result.as_ref()?;
        let Distance { relative_rms, largest, .. } = Distance::between(theirs, &ours);
        let scale = theirs.iter().fold(f32::MIN_POSITIVE, |most, number| most.max(number.abs()));
        // What is no number must not pass.
        let close = relative_rms <= BAR && largest / f64::from(scale) <= ELEMENT_BAR;
        if !close {
            let problem = format!("by {relative_rms:.1e} in all and by {largest:.1e} in an element");
            return Err(format!("differs from PyTorch ({name}) {problem}; not timed"));
        }
        furthest = furthest.max(relative_rms);
    }

    let mut own_turns = Vec::new();
    let mut peer_turns = vec![Vec::new(); variants.len()];
    for turn in 0..arguments.turns {
        // Whoever comes second in a turn finds the processor as the other left it.
        if turn % 2 == 0 {
            own_turns.push(layer.time(arguments.seconds, LEAST)?);
        }
        for (variant, turns) in variants.iter().zip(&mut peer_turns) {
            turns.push(peer.time(variant.number, arguments.seconds, LEAST)?);
        }
        if turn % 2 == 1 {
            own_turns.push(layer.time(arguments.seconds, LEAST)?);
        }
    }
    if layer.result()? != ours {
        return Err("another result after the timing than before it".into());
    }
    let compared = peer_turns.iter().map(|turns| Compared::of(&own_turns, turns));
    let times = compared.min_by(|a, b| a.peer.median.total_cmp(&b.peer.median));
    Ok(Measurement {
        name: case.name.clone(),
        family: case.work.family(),
        gflop: graph.step_flops() as f64 / 1e9,
        times: times.ok_or("PyTorch has no way to run it")?,
        relative_error: furthest,
    })
}

fn arguments() -> Result<Arguments, String> {
    let mut line = CommandLine::of_process();
    let seconds = line.option_or("--seconds", 0.1)?;
    let turns = line.option_or("--turns", 24)?;
    if !(seconds > 0.0 && seconds < 60.0) || turns == 0 {
        return Err("--seconds must lie between 0 and 60, --turns be at least 1".into());
    }
    Ok(Arguments { seconds, turns, json: line.option("--json")?, filter: line.rest()? })
}

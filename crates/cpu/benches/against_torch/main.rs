//! The CPU backend against PyTorch eager: same machine, same run, same inputs.
//!
//! `cargo xtask bench` installs PyTorch into the project's own environment and runs this; `cargo bench` runs it with what
//! is there. Each case is verified against PyTorch's result before either is timed, and once more afterwards. The two take
//! many short turns, so that what else the machine does meets both alike. The ratio of each turn is taken, and of these the
//! median, with the interval in which it lies; best times are compared too.
//! Results are written as JSON beside a table for people.
//!
//! Options after `--`: words of which case names must contain one, `--seconds N` a turn, `--turns N`, `--json FILE`.

mod cases;
mod peer;
mod report;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use kinora_bench::{CommandLine, Compared, Filter, exit_code};
use kinora_cpu::{CpuError, Options, Program, Tensors};
use kinora_graph::Tensor;

use cases::Case;
use peer::TorchPeer;
use report::{Measurement, Report};

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
    let mut peer = TorchPeer::start(threads)?;
    let mut report = Report::new(threads, peer.version());
    for case in cases::all() {
        if arguments.filter.chooses(case.name) {
            report.add(measure(&case, &mut peer, &arguments)?);
        }
    }
    report.finish(arguments.json.as_deref())
}

fn measure(case: &Case, peer: &mut TorchPeer, arguments: &Arguments) -> Result<Measurement, String> {
    let graph = case.graph().map_err(|e| format!("{}: {e}", case.name))?;
    let mut parameters = Tensors::new();
    let mut inputs = Tensors::new();
    for (name, tensor) in case.tensors(&graph) {
        let is_input = graph.inputs().iter().any(|&v| graph.value(v).name == name);
        if is_input { &mut inputs } else { &mut parameters }.insert(name, tensor);
    }
    let mut program =
        Program::new(&graph, &parameters, Options::default()).map_err(|e| format!("{}: {e}", case.name))?;
    let result = |program: &mut Program| {
        let results = program.run(&inputs).map_err(|e| format!("{}: {e}", case.name))?;
        Ok::<_, String>(results.get("y").map(Tensor::to_f32).unwrap_or_default())
    };
    let ours = result(&mut program)?;
    let theirs = peer.prepare(case, inputs.iter().chain(&parameters), ours.len())?;
    let relative_error = relative_error(&ours, &theirs);
    if relative_error.is_nan() || relative_error > 1e-4 {
        return Err(format!("{}: differs from PyTorch by {relative_error:.1e}; not timed", case.name));
    }

    let (mut own_turns, mut peer_turns) = (Vec::new(), Vec::new());
    for turn in 0..arguments.turns {
        let mut own_turn = || {
            time(&mut program, Duration::from_secs_f64(arguments.seconds))
                .map_err(|e| format!("{}: {e}", case.name))
        };
        // Whoever comes second in a turn finds the processor as the other left it.
        if turn % 2 == 0 {
            own_turns.push(own_turn()?);
            peer_turns.push(peer.time(arguments.seconds)?);
        } else {
            peer_turns.push(peer.time(arguments.seconds)?);
            own_turns.push(own_turn()?);
        }
    }
    if result(&mut program)? != ours {
        return Err(format!("{}: another result after the timing than before it", case.name));
    }
    Ok(Measurement {
        name: case.name,
        family: case.family,
        gflop: graph.step_flops() as f64 / 1e9,
        times: Compared::of(&own_turns, &peer_turns),
        relative_error,
    })
}

/// Seconds of each replay, for about as long as asked and at least three replays.
fn time(program: &mut Program, budget: Duration) -> Result<Vec<f64>, CpuError> {
    program.replay()?;
    let end = Instant::now() + budget;
    let mut samples = Vec::new();
    while samples.len() < 3 || Instant::now() < end {
        let start = Instant::now();
        program.replay()?;
        samples.push(start.elapsed().as_secs_f64());
    }
    Ok(samples)
}

/// The largest difference over the largest magnitude.
fn relative_error(ours: &[f32], theirs: &[f32]) -> f32 {
    let largest = theirs.iter().fold(f32::MIN_POSITIVE, |m, x| m.max(x.abs()));
    let worst = ours.iter().zip(theirs).fold(0f32, |m, (a, b)| {
        let difference = (a - b).abs();
        // `max` alone would pass over a NaN.
        if m.is_nan() || difference.is_nan() { f32::NAN } else { m.max(difference) }
    });
    worst / largest
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

//! KernelBench: honest solutions pass, known cheats do not, and what cannot run is named. Without a GPU: PyTorch computes on the CPU,
//! kernels run in the simulator. Tests that need PyTorch say so if there is none; with `KINORA_REQUIRE_TORCH` they fail.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]
#![cfg(feature = "cuda")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use kinora_lab::kernelbench::{Baseline, Device, Options, Outcome, Report, Runner, TaskResult, page};
use kinora_ptx::ChipSpec;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernelbench")
}

/// A Python that has PyTorch: that of `KINORA_LAB_PYTHON`, of the virtual environment, or of the system.
fn torch() -> Option<PathBuf> {
    let named = env::var_os("KINORA_LAB_PYTHON").map(PathBuf::from);
    let environment = env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python"));
    let all = named.into_iter().chain(environment).chain([PathBuf::from("python3")]);
    let has_torch = |python: &PathBuf| {
        Command::new(python).args(["-c", "import torch"]).output().is_ok_and(|output| output.status.success())
    };
    let found = all.into_iter().find(has_torch);
    if found.is_none() {
        assert!(
            env::var_os("KINORA_REQUIRE_TORCH").is_none(),
            "no Python has PyTorch: set KINORA_LAB_PYTHON"
        );
        eprintln!("not run: no Python has PyTorch");
    }
    found
}

/// What a task of the fixtures is run with on a CPU.
fn options(python: &Path, number: u32, solutions: &Path, seconds: u64, baselines: Vec<Baseline>) -> Options {
    Options {
        folder: fixtures(),
        level: 1,
        only: vec![number],
        device: Device::Cpu,
        solutions: Some(solutions.to_owned()),
        baselines,
        shrink: false,
        predict: true,
        chip: ChipSpec::h200(),
        python: python.to_owned(),
        seconds,
        seed: 1,
    }
}

/// Runs one task of the fixtures with the solutions of a folder.
fn run(python: &Path, number: u32, solutions: &Path, seconds: u64, baselines: Vec<Baseline>) -> Report {
    let options = options(python, number, solutions, seconds, baselines);
    Runner::new(options).unwrap().run(None, |_, _| Ok(())).unwrap()
}

/// Runs a solution in Python.
fn module(python: &Path, number: u32, name: &str, seconds: u64) -> TaskResult {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixtures().join(format!("cheats/{name}.py")), folder.path().join(format!("{number}.py")))
        .unwrap();
    let mut report = run(python, number, folder.path(), seconds, Vec::new());
    report.tasks.remove(0)
}

/// The protocol of the checks, and the declarations: plain Python, so that they run without PyTorch.
#[test]
fn checks_in_plain_python() {
    let Ok(output) = Command::new("python3")
        .arg(fixtures().join("test_checks.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
    else {
        eprintln!("not run: there is no python3");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn known_cheats_do_not_pass() {
    let Some(python) = torch() else { return };
    // A task, the cheat, and what it must be accused of.
    let cheats: [(u32, &str, &[&str]); 18] = [
        (1, "zeros", &["the error is"]),
        (1, "stale", &["call 2", "the error is"]),
        (1, "unwritten", &["result 0"]),
        (1, "one_buffer", &["a buffer is used again"]),
        (1, "three_buffers", &["call 4", "a buffer is used again"]),
        (1, "many_buffers", &["holds what an earlier call returned"]),
        (1, "by_address", &["call 2", "the error is"]),
        (1, "aliased", &["shares memory with input 0"]),
        (1, "changes_input", &["input 0 was changed"]),
        (1, "later", &["work is left on another stream"]),
        (1, "lazy", &["not an ordinary tensor"]),
        (1, "timers", &["time.perf_counter was replaced"]),
        (1, "harness", &["Timer.once was replaced"]),
        (1, "tires", &["while timed", "the error is"]),
        (1, "searches", &["the error is"]),
        (1, "other_shape", &["it returns float32[4, 30000] instead of float32[8, 30000]"]),
        (2, "half", &["the error is"]),
        (1, "terabyte", &["memory"]),
    ];
    // A process needs seconds to load PyTorch: a few at a time.
    for some in cheats.chunks(4) {
        thread::scope(|scope| {
            for (number, name, accused) in some {
                let python = &python;
                scope.spawn(move || {
                    let result = module(python, *number, name, 240);
                    let expected = if *name == "terabyte" { Outcome::Failed } else { Outcome::Refused };
                    assert_eq!(result.outcome, expected, "{name}: {:?}", result.reasons);
                    for word in *accused {
                        assert!(
                            result.reasons.iter().any(|reason| reason.contains(word)),
                            "{name}: {:?}",
                            result.reasons
                        );
                    }
                });
            }
        });
    }
}

/// Only a GPU shows it: a stream's work of a few microseconds ends while the host comes to look, unless the host is ahead.
#[test]
fn short_work_on_another_stream_is_found_on_a_gpu() {
    let Some(python) = torch() else { return };
    let gpu = "import torch; assert torch.cuda.is_available()";
    if !Command::new(&python).args(["-c", gpu]).output().is_ok_and(|output| output.status.success()) {
        assert!(env::var_os("KINORA_REQUIRE_GPU").is_none(), "PyTorch sees no GPU");
        eprintln!("not run: PyTorch sees no GPU");
        return;
    }
    for (name, outcome) in [("other_stream", Outcome::Refused), ("honest", Outcome::Right)] {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(fixtures().join(format!("cheats/{name}.py")), folder.path().join("1.py")).unwrap();
        let options = Options {
            device: Device::Cuda,
            predict: false,
            ..options(&python, 1, folder.path(), 240, Vec::new())
        };
        let result = Runner::new(options).unwrap().run(None, |_, _| Ok(())).unwrap().tasks.remove(0);
        assert_eq!(result.outcome, outcome, "{name}: {:?}", result.reasons);
        let found = result.reasons.iter().any(|reason| reason.contains("work is left on another stream"));
        assert_eq!(found, outcome == Outcome::Refused, "{name}: {:?}", result.reasons);
    }
}

#[test]
fn what_ends_or_never_ends_is_named() {
    let Some(python) = torch() else { return };
    let crashed = module(&python, 1, "crashes", 240);
    assert_eq!(crashed.outcome, Outcome::Failed);
    assert!(crashed.reasons[0].starts_with("the solution stopped: "), "{:?}", crashed.reasons);
    let endless = module(&python, 1, "endless", 40);
    assert_eq!(endless.outcome, Outcome::Failed);
    assert_eq!(endless.reasons, ["the solution did not answer within 40 s, and was stopped"]);
}

#[test]
fn an_honest_solution_passes_and_is_timed() {
    let Some(python) = torch() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixtures().join("cheats/honest.py"), folder.path().join("1.py")).unwrap();
    let report = run(&python, 1, folder.path(), 240, vec![Baseline::Eager]);
    let result = &report.tasks[0];
    assert_eq!(result.outcome, Outcome::Right, "{:?}", result.reasons);
    assert_eq!(result.rounds.len(), 5);
    assert!(result.speedup().is_some_and(|speedup| speedup > 0.0));
    assert!(page(&report).contains("honest") || page(&report).contains("1.py"));
}

/// Results that are looked up by what inputs hold make no run faster.
#[test]
fn timed_runs_have_inputs_of_their_own() {
    let Some(python) = torch() else { return };
    let result = module(&python, 1, "forgetful", 240);
    assert_eq!(result.outcome, Outcome::Right, "{:?}", result.reasons);
    assert!(result.timing.is_some_and(|timing| timing.runs > 5));
}

#[test]
fn kernels_run_in_the_simulator() {
    let Some(python) = torch() else { return };
    let source = fs::read_to_string(fixtures().join("kernels/scale.cu")).unwrap();
    let table = fs::read_to_string(fixtures().join("kernels/scale.toml")).unwrap();
    let kernel = |source: &str, table: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("3.cu"), source).unwrap();
        fs::write(folder.path().join("3.toml"), table).unwrap();
        run(&python, 3, folder.path(), 240, Vec::new()).tasks.remove(0)
    };
    let right = kernel(&source, &table);
    if right.reasons.iter().any(|reason| reason.contains("NVRTC"))
        && env::var_os("KINORA_REQUIRE_NVRTC").is_none()
    {
        eprintln!("not run: there is no compiler: {:?}", right.reasons);
        return;
    }
    assert_eq!(right.outcome, Outcome::Right, "{:?}", right.reasons);
    assert_eq!(right.rounds.len(), 2);
    assert!(right.predicted.is_some_and(|predicted| predicted.milliseconds > 0.0));
    // The kernel and its declaration, and what is said of them.
    let wrong = [
        (source.replace("at < COUNT", "at <= COUNT"), table.clone(), Outcome::Refused, "OutOfBounds"),
        (source.replace("at < COUNT", "at < COUNT / 2"), table.clone(), Outcome::Refused, "the error is"),
        (source.replace("x[at]", "z[at]"), table.clone(), Outcome::Failed, "identifier \"z\" is undefined"),
        (
            source.clone(),
            table.replace("\"scale\"", "\"scales\""),
            Outcome::Failed,
            "the module has no kernel scales",
        ),
        (source.clone(), table.replace("x.shape", "x.shapes"), Outcome::Failed, "cannot be evaluated"),
    ];
    for (source, table, outcome, said) in wrong {
        let result = kernel(&source, &table);
        assert_eq!(result.outcome, outcome, "{said}: {:?}", result.reasons);
        assert!(result.reasons.iter().any(|reason| reason.contains(said)), "{said}: {:?}", result.reasons);
    }
}

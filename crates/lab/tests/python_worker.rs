//! The Python that stays: jobs do not see each other, and whatever a reference does to Python is a sentence.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use kinora_lab::{Task, expected};
use support::{Bench, has_numpy};

/// Sizes are jobs: a reference tells them apart by `n`.
const TASK: &str = r#"
[kernel]
source = "kernel.cu"
grid = 1
block = 32
arguments = ["x", "y"]
[sizes]
n = [1, 2, 3]
[[input]]
name = "x"
element = "f32"
shape = "n"
values = "index"
[[output]]
name = "y"
element = "f64"
shape = 4
[reference]
python = "reference.py"
seconds = 60
"#;

const KERNEL: &str = "__global__ void k(const float *x, double *y) {}";

fn bench(reference: &str) -> Bench {
    Bench::new(&[("task.toml", TASK), ("kernel.cu", KERNEL), ("reference.py", reference)])
}

/// What the reference returned for one size, or the error.
fn results(task: &Task, size: usize) -> Result<Vec<f64>, String> {
    let sizes = &task.sizes[size];
    let scope = task.scope(sizes).unwrap();
    let given: Vec<u8> = (0..=size).flat_map(|x| (x as f32).to_le_bytes()).collect();
    let expected = expected(task, sizes, &scope, &[given, Vec::new()]).map_err(|error| error.to_string())?;
    Ok(expected.unwrap().results[1].clone().unwrap())
}

fn is_running(process: f64) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Waits for what the system does a moment later.
fn soon(is: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !is() {
        if started.elapsed() > Duration::from_secs(20) {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Whatever a job changes is as it was for the next one, in the file, in what lies beside it and in libraries.
#[test]
fn jobs_do_not_see_each_other() {
    if !has_numpy() {
        return;
    }
    let bench = bench(
        "\
'''Counts how often it has been called, in every place that it can reach.'''
import os
import numpy
import helper
calls = []
def reference(x, n):
    calls.append(n)
    helper.calls.append(n)
    numpy.calls = getattr(numpy, 'calls', 0) + 1
    os.environ['CALLS'] = os.environ.get('CALLS', '') + 'x'
    seen = {len(calls), len(helper.calls), numpy.calls, len(os.environ['CALLS'])}
    assert seen == {1}, seen
    os.chdir('/')
    numpy.random.seed(int(n))
    return [x.sum(), os.getppid(), os.getpid(), helper.factor]
",
    );
    bench.write("helper.py", b"calls = []\nfactor = 2.0\n");
    let task = bench.open().unwrap();
    let all: Vec<Vec<f64>> = [2, 0, 1, 2].iter().map(|&size| results(&task, size).unwrap()).collect();
    assert_eq!(all.iter().map(|one| one[0]).collect::<Vec<_>>(), [3.0, 0.0, 1.0, 3.0]);
    // Each has a process of its own, and is over when there is an answer.
    for (number, one) in all.iter().enumerate() {
        assert!(all[..number].iter().all(|other| other[2] != one[2]), "{all:?}");
        assert!(!is_running(one[2]), "{all:?}");
    }
    // What lies beside the file may change between jobs, and the file too.
    bench.write("helper.py", b"calls = []\nfactor = 3.5\n");
    assert_eq!(results(&task, 0).unwrap()[3], 3.5);
    bench.write("reference.py", b"def reference(x, n):\n    return [7.0, n, 0.0, 0.0]\n");
    assert_eq!(results(&task, 1).unwrap(), [7.0, 2.0, 0.0, 0.0]);
}

/// The first job does something to Python, the second is an ordinary one.
#[test]
fn whatever_ends_python_is_a_sentence() {
    if !has_numpy() {
        return;
    }
    for (first, words) in [
        ("os._exit(3)", "ended before the function returned (exit status: 3)"),
        ("os._exit(0)", "ended before the function returned (exit status: 0)"),
        ("print('so it', 'goes', flush=True); os._exit(1)", "its last words: so it goes"),
        ("os.abort()", "signal: 6"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal: 9"),
        ("os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)", "signal: 9"),
        ("os.kill(os.getppid(), signal.SIGSTOP); time.sleep(60)", "more than 1 seconds"),
        ("os.killpg(0, signal.SIGKILL)", "signal: 9"),
        ("while True: pass", "more than 1 seconds"),
        (
            "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(60)",
            "more than 1 seconds",
        ),
        ("sys.exit('enough')", "ends Python (sys.exit('enough'))"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise MemoryError('all of it')", "MemoryError: all of it at"),
        ("numpy.empty(1 << 58)", "MemoryError: Unable to allocate"),
        ("f = lambda: f(); f()", "RecursionError"),
        ("ctypes.string_at(0)", "signal: 11"),
        // These return.
        ("os.closerange(0, 1000); return x", "has shape"),
        ("sys.stdout.close(); sys.stderr.close(); return x", "has shape"),
        ("print('0\\n' * 1000000); return x", "has shape"),
        ("threading.Thread(target=time.sleep, args=[60]).start(); return x", "has shape"),
    ] {
        let reference = format!(
            "import ctypes, os, signal, sys, threading, time\nimport numpy\ndef reference(x, n):\n    if n == 2:\n        {first}\n    return [n, 1.0, 2.0, 3.0]\n"
        );
        let bench = bench(&reference);
        let task = bench.open().unwrap();
        bench.write("task.toml", TASK.replace("seconds = 60", "seconds = 1").as_bytes());
        let first_task = if words.contains("seconds") { bench.open().unwrap() } else { task.clone() };
        let error = results(&first_task, 1).err().unwrap_or_else(|| panic!("{first}: no error"));
        assert!(error.contains(words), "{first}: {error}");
        assert!(!error.contains("worker.py") && !error.contains("kinora_lab_jobs"), "{error}");
        assert_eq!(results(&task, 2).unwrap(), [3.0, 1.0, 2.0, 3.0], "after {first}");
    }
}

/// What a job has started ends with it, whether it returns, fails or takes too long, also in a session of its own and without a parent.
#[test]
fn nothing_that_a_job_starts_stays() {
    if !has_numpy() {
        return;
    }
    let reference = "\
import subprocess, time
import numpy
def reference(x, n):
    child = subprocess.Popen(['sleep', '1000'])
    other = subprocess.Popen(['sleep', '1000'], start_new_session=True)
    orphan = subprocess.run(['sh', '-c', 'setsid sleep 1000 >&2 & echo $!'], stdout=subprocess.PIPE, check=True)
    numbers = [child.pid, other.pid, int(orphan.stdout), 0]
    with open('FILE', 'w') as file:
        print(*numbers, file=file)
    if n == 2:
        raise RuntimeError('no')
    if n == 3:
        time.sleep(1000)
    return numbers
";
    let bench = bench("");
    let file = bench.folder.path().join("numbers.txt");
    bench.write("reference.py", reference.replace("FILE", file.to_str().unwrap()).as_bytes());
    let task = bench.open().unwrap();
    bench.write("task.toml", TASK.replace("seconds = 60", "seconds = 10").as_bytes());
    let impatient = bench.open().unwrap();
    for (size, words) in [(0, ""), (1, "RuntimeError: no"), (2, "more than 10 seconds")] {
        let task = if size == 2 { &impatient } else { &task };
        let error = results(task, size).err().unwrap_or_default();
        assert!(error.contains(words) && error.is_empty() == words.is_empty(), "{error}");
        let text = std::fs::read_to_string(&file).unwrap();
        let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 4, "{text}");
        assert!(soon(|| !numbers[..3].iter().any(|&process| is_running(process))), "{size}: {numbers:?}");
    }
}

//! The Python side: golden fixtures and benchmark peers. Tests need none of it installed.

use std::{path::PathBuf, process::Command};

use crate::shell::{TaskError, cargo, command, root, step, succeeds};

/// The scripts that make the golden fixtures.
const GOLDEN: [&str; 4] =
    ["golden/make_images.py", "golden/make_noise.py", "golden/make_ops.py", "golden/make_schedulers.py"];

/// The interpreter of the project's own environment, which git ignores.
fn interpreter() -> PathBuf {
    root().join(".python").join("bin").join("python")
}

/// The system's Python 3.
fn system() -> Result<PathBuf, TaskError> {
    ["python3", "python"]
        .into_iter()
        .map(PathBuf::from)
        .find(|program| {
            succeeds(&mut command(program, &["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]))
        })
        .ok_or(TaskError::Missing {
            what: "Python 3.10 or newer",
            remedy: "install it with your system's package manager",
        })
}

/// Compiles every Python file in memory: a syntax error in a script that no test runs would go unnoticed.
pub fn syntax_check() -> Result<Command, TaskError> {
    const CHECK: &str = "\
import pathlib, sys
files = [p for folder in sys.argv[1:] for p in sorted(pathlib.Path(folder).rglob('*.py'))]
for p in files:
    compile(p.read_text(encoding='utf-8'), str(p), 'exec')
print(len(files), 'files')";
    Ok(command(system()?, &["-c", CHECK, "golden", "bench"]))
}

/// Makes the environment where it is missing, and installs pinned requirements into it.
fn install(requirements: &str) -> Result<(), TaskError> {
    if !succeeds(&mut command(interpreter(), &["-c", "pass"])) {
        step("python environment", &mut command(system()?, &["-m", "venv", ".python"]))?;
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements];
    step("python packages", &mut command(interpreter(), &pip))
}

/// Benchmarks against PyTorch in one run.
pub fn bench(arguments: &[String]) -> Result<(), TaskError> {
    install("bench/peers/requirements.txt")?;
    let mut words = vec!["bench"];
    words.extend(arguments.iter().map(String::as_str));
    step("benchmarks", &mut cargo(&words))
}

/// Makes the golden fixtures again.
pub fn golden() -> Result<(), TaskError> {
    install("golden/requirements.txt")?;
    for script in GOLDEN {
        step(script, &mut command(interpreter(), &[script]))?;
    }
    Ok(())
}

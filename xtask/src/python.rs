//! The Python side: golden fixtures, benchmark peers, and the kernel compiler, which comes as a Python package. Tests need
//! the last alone.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{TaskError, cargo, command, root, step, succeeds};

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

/// Makes the environment where it is missing.
fn environment() -> Result<(), TaskError> {
    if succeeds(&mut command(interpreter(), &["-c", "pass"])) {
        return Ok(());
    }
    step("python environment", &mut command(system()?, &["-m", "venv", ".python"]))
}

/// Installs pinned requirements into the environment.
fn install(requirements: &str) -> Result<(), TaskError> {
    environment()?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements];
    step("python packages", &mut command(interpreter(), &pip))
}

/// Installs NVIDIA's run-time compiler, so that every kernel is compiled by the tests. `false` on systems that it does not
/// exist for.
pub fn kernel_compiler() -> Result<bool, TaskError> {
    let exists = cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")));
    if exists {
        install("crates/cuda/requirements.txt")?;
    }
    Ok(exists)
}

/// The benchmarks that a CPU and a peer suffice for. Those of a GPU are started on its host, out of the bundle.
const AGAINST_PEERS: [&str; 4] = ["--bench", "against_torch", "--bench", "against_diffusers"];

/// Benchmarks against PyTorch and diffusers in one run; more words go to `cargo bench`, as `--bench against_diffusers`.
pub fn bench(arguments: &[String]) -> Result<(), TaskError> {
    install("bench/peers/requirements.txt")?;
    let mut words = vec!["bench"];
    if !arguments.iter().any(|word| word == "--bench") {
        words.extend(AGAINST_PEERS);
    }
    words.extend(arguments.iter().map(String::as_str));
    step("benchmarks", &mut cargo(&words))
}

/// Writes the archive of Python packages that a GPU host may lack; wheels are kept in the environment's folder.
pub fn pack_packages(folder: &Path) -> Result<(), TaskError> {
    environment()?;
    let script = ["bench/peers/pack_packages.py", "--cache", ".python/packed", "--out"];
    step("python packages", command(interpreter(), &script).arg(folder))
}

/// Makes the golden fixtures again: runs every `golden/make_*.py`.
pub fn golden() -> Result<(), TaskError> {
    install("golden/requirements.txt")?;
    let failed =
        |reason: std::io::Error| TaskError::Start { command: "golden".into(), reason: reason.to_string() };
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(root().join("golden")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.starts_with("make_") && name.ends_with(".py") {
            scripts.push(format!("golden/{name}"));
        }
    }
    scripts.sort();
    for script in &scripts {
        step(script, &mut command(interpreter(), &[script]))?;
    }
    Ok(())
}

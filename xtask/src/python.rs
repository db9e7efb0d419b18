//! The Python side: ruff, golden fixtures, the peers of the benchmarks, and NVIDIA's kernel compiler, which is a Python
//! package. Tests need only ruff, NumPy and the compiler.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    files::entries,
    shell::{TaskError, cargo, command, root, step, succeeds},
};

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

/// Makes the environment if it is missing.
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

/// Checks all Python files with ruff: lints and format. `pyproject.toml` has its settings.
pub fn lint() -> Result<(), TaskError> {
    install("xtask/requirements.txt")?;
    step("python lint", &mut command(interpreter(), &["-m", "ruff", "check", "--quiet"]))?;
    step("python format", &mut command(interpreter(), &["-m", "ruff", "format", "--check", "--quiet"]))
}

/// Installs NumPy and NVIDIA's run-time compiler, and makes tests fail that lack them: without, they would say that they did not
/// run. The compiler does not exist for every system.
pub fn require_packages(tests: &mut Command) -> Result<(), TaskError> {
    install("crates/lab/requirements.txt")?;
    tests.env("KINORA_REQUIRE_NUMPY", "1").env("KINORA_LAB_PYTHON", interpreter());
    if cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        install("crates/cuda/requirements.txt")?;
        tests.env("KINORA_REQUIRE_NVRTC", "1").env("VIRTUAL_ENV", root().join(".python"));
    }
    Ok(())
}

/// Runs `kinora bench` beside PyTorch and diffusers, on the CPU unless the arguments say otherwise.
pub fn bench(arguments: &[String]) -> Result<(), TaskError> {
    install("crates/bench/peers/requirements.txt")?;
    let mut words = vec!["run", "--release", "--package", "kinora-cli", "--", "bench"];
    if arguments.is_empty() {
        words.extend(["cpu", "svd", "vae", "pipeline", "--device", "cpu"]);
    }
    words.extend(arguments.iter().map(String::as_str));
    let mut run = cargo(&words);
    if !arguments.iter().any(|word| matches!(word.as_str(), "--no-peers" | "--from" | "--python")) {
        run.arg("--python").arg(interpreter());
    }
    step("benchmarks", &mut run)
}

/// Writes the archive of Python packages that a GPU host may lack; wheels are kept in the environment's folder.
pub fn pack_packages(folder: &Path) -> Result<(), TaskError> {
    environment()?;
    let script = ["crates/bench/peers/pack_packages.py", "--cache", ".python/packed", "--out"];
    step("python packages", command(interpreter(), &script).arg(folder))
}

/// Makes the golden fixtures again: runs every `golden/make_*.py`.
pub fn golden() -> Result<(), TaskError> {
    install("golden/requirements.txt")?;
    for script in entries(&root().join("golden"))? {
        let name = script.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("make_") && name.ends_with(".py") {
            let script = format!("golden/{name}");
            step(&script, &mut command(interpreter(), &[&script]))?;
        }
    }
    Ok(())
}

//! A worker in Python: a process group of its own, which is ended whole if it takes too long or the program ends.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

const WORKER: &str = include_str!("worker.py");

/// The environment variable that names the Python.
const VARIABLE: &str = "KINORA_LAB_PYTHON";

/// How much is said of what a worker printed before it ended.
const MAX_SAID: u64 = 2000;
/// The longest answer: a task that is declared.
const MAX_ANSWER: u64 = 4 << 20;

/// The workers that run, and their folders.
static RUNNING: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

/// Ends the references that run, with all that they have started, and removes their files: for a program that is about to end at
/// once.
pub fn end_references() {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for (process, folder) in running.drain(..) {
        end_group(process);
        let _ = fs::remove_dir_all(folder);
    }
}

#[cfg(unix)]
fn end_group(process: u32) {
    if let Ok(group) = i32::try_from(process) {
        // SAFETY: a plain system call without pointers. The process leads its group and has not been waited for, so that the number is
        // not another's.
        let _ = unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

#[cfg(not(unix))]
fn end_group(_process: u32) {}

/// A process that does not outlive its owner.
struct Worker(Child);

impl Worker {
    fn start(command: &mut Command, folder: &Path) -> std::io::Result<Worker> {
        // Ctrl-C reaches the program alone, which ends the whole group.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        running.push((child.id(), folder.to_owned()));
        Ok(Worker(child))
    }

    /// Waits until it has ended, but not beyond the time.
    fn wait(&mut self, seconds: f64) -> std::io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds);
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(10));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // What it has started is in its group as long as anything of that runs.
        end_group(self.0.id());
        let _ = self.0.kill();
        let _ = self.0.wait();
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|(process, _)| *process != self.0.id());
    }
}

/// Runs a program to its end, but not beyond the time: then it is ended with all that it has started.
#[cfg(feature = "cuda")]
pub(crate) fn ended(
    command: &mut Command,
    folder: &Path,
    seconds: f64,
) -> std::io::Result<Option<ExitStatus>> {
    Worker::start(command, folder)?.wait(seconds)
}

/// Runs a worker on a job; gives its answer.
pub(super) fn run(folder: &Path, mut job: Value, seconds: f64) -> Result<Value, String> {
    let system = |error: std::io::Error| format!("a temporary file cannot be written: {error}");
    let (worker, task, answer) =
        (folder.join("worker.py"), folder.join("job.json"), folder.join("answer.json"));
    job["answer"] = json!(answer);
    fs::write(&worker, WORKER).map_err(system)?;
    fs::write(&task, job.to_string()).map_err(system)?;
    let said = folder.join("said.txt");
    let output = File::create(&said).map_err(system)?;
    let errors = output.try_clone().map_err(system)?;
    let python = python();
    let mut command = Command::new(&python);
    command.arg(&worker).arg(&task).stdin(Stdio::null()).stdout(output).stderr(errors);
    // No files beside those of the reference's author.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let started = Worker::start(&mut command, folder);
    let mut worker = started.map_err(|error| {
        format!(
            "Python cannot be started ({}: {error}); set {VARIABLE} to one, or use a reference without Python",
            python.display()
        )
    })?;
    let ended = worker.wait(seconds).map_err(|error| format!("Python cannot be waited for: {error}"))?;
    let Some(status) = ended else {
        return Err(format!("it took more than {seconds} seconds and was stopped; {MORE_SECONDS}"));
    };
    drop(worker);
    let answered = kinora_outside::read_text(&answer, MAX_ANSWER).ok();
    let answered = answered.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    match answered {
        Some(answer) => match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        },
        None => {
            let mut text = Vec::new();
            if let Ok(file) = File::open(&said) {
                let _ = file.take(MAX_SAID).read_to_end(&mut text);
            }
            let text = String::from_utf8_lossy(&text);
            let last = text.lines().rfind(|line| !line.trim().is_empty());
            let last = last.map_or(String::new(), |line| format!("; its last words: {}", line.trim()));
            Err(format!("Python ended before the function returned ({status}){last}"))
        }
    }
}

/// What to do about a reference that takes too long. Whether one did is told by it.
pub(crate) const MORE_SECONDS: &str = "`seconds` under [reference] allows more";

/// The Python to use: the one that was named, the active environment's, or the first on the path.
fn python() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = variable(VARIABLE) {
        return named;
    }
    let in_environment = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let active = active.map(|environment| environment.join(in_environment)).find(|python| python.is_file());
    active.unwrap_or_else(|| PathBuf::from(if cfg!(windows) { "python" } else { "python3" }))
}

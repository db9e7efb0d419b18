//! A Python that stays: it imports what a reference imports once, and does one job after the other.
//!
//! Between jobs it rests. `worker.py` forks for each, so that no job finds what another has left, and tells how the fork ended. The
//! answer is in files: nothing that a reference prints or closes comes between.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::Program;

/// The worker's files; the first is what Python starts.
const SCRIPTS: [(&str, &str); 2] =
    [("worker.py", include_str!("worker.py")), ("kinora_lab_jobs.py", include_str!("kinora_lab_jobs.py"))];

/// The environment variable that names the Python.
const VARIABLE: &str = "KINORA_LAB_PYTHON";

/// The most bytes of a file in Python.
pub(super) const MAX_FILE: u64 = 16 << 20;
/// How much is read of what a worker printed before it ended.
const MAX_SAID: u64 = 2000;
/// The longest answer: a task that is declared.
const MAX_ANSWER: u64 = 4 << 20;
/// The longest line: a number. Python itself may print others while it starts.
const MAX_LINE: u64 = 4 << 10;

/// What to do about a reference that takes too long. A message with these words is about such a one.
pub(crate) const MORE_SECONDS: &str = "`seconds` under [reference] allows more";

/// The worker that waits for the next job. The others are at work.
static RESTING: Mutex<Option<Worker>> = Mutex::new(None);

/// What a worker is for: a Python that has imported what a file with this text does.
#[derive(PartialEq)]
struct Purpose {
    python: PathBuf,
    file: PathBuf,
    text: Vec<u8>,
}

/// A Python process, which has no job.
struct Worker {
    purpose: Purpose,
    jobs: ChildStdin,
    /// How the process of each job ended, as `waitpid` tells it.
    ended: Receiver<i32>,
    program: Program,
    // Goes when the program has ended.
    folder: TempDir,
}

impl Worker {
    fn start(purpose: Purpose) -> Result<Worker, String> {
        let folder = tempfile::tempdir().map_err(of_file)?;
        for (name, text) in SCRIPTS {
            fs::write(folder.path().join(name), text).map_err(of_file)?;
        }
        let said = File::create(folder.path().join("said.txt")).map_err(of_file)?;
        let mut command = Command::new(&purpose.python);
        command.arg(folder.path().join(SCRIPTS[0].0));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        // No files beside those of the reference's author.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let unstarted = |why: &dyn std::fmt::Display| {
            format!(
                "Python cannot be started ({}: {why}); set {VARIABLE} to one, or use a reference without Python",
                purpose.python.display()
            )
        };
        let mut program = Program::start(&mut command, folder.path()).map_err(|error| unstarted(&error))?;
        let (jobs, output) = program.pipes().ok_or_else(|| unstarted(&"it has no input and output"))?;
        Ok(Worker { purpose, jobs, ended: numbers(output), program, folder })
    }
}

/// The numbers among the lines of a program's output, until it ends.
fn numbers(output: ChildStdout) -> Receiver<i32> {
    let (send, receive) = sync_channel(1);
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while matches!(output.by_ref().take(MAX_LINE).read_until(b'\n', &mut line), Ok(read) if read > 0) {
            let number = std::str::from_utf8(&line).ok().and_then(|text| text.trim_end().parse().ok());
            if number.is_some_and(|number| send.send(number).is_err()) {
                break;
            }
            line.clear();
        }
    });
    receive
}

/// A job for a worker. Its folder goes with it.
pub(super) struct Job {
    /// None after it has failed.
    worker: Option<Worker>,
    folder: PathBuf,
}

impl Job {
    /// A job with a file: for the worker that rests, if it is for the same file as it is now, or else for a new one.
    pub(super) fn of(file: &Path) -> Result<Job, String> {
        let file = std::path::absolute(file).map_err(|error| error.to_string())?;
        // What cannot be read is Python's to refuse.
        let text = kinora_outside::read(&file, MAX_FILE).unwrap_or_default();
        let purpose = Purpose { python: python(), file, text };
        let resting = RESTING.lock().unwrap_or_else(PoisonError::into_inner).take();
        let resting = resting.filter(|worker| worker.purpose == purpose);
        let resting = resting.and_then(|mut worker| (!worker.program.has_ended()).then_some(worker));
        let worker = resting.map_or_else(|| Worker::start(purpose), Ok)?;
        let folder = worker.folder.path().join("job");
        fs::create_dir(&folder).map_err(of_file)?;
        Ok(Job { worker: Some(worker), folder })
    }

    /// A folder for its files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Has it done; gives the answer. If that takes too long, the worker is ended with all that it has started.
    pub(super) fn answer(&mut self, mut job: Value, seconds: f64) -> Result<Value, String> {
        let Some(mut worker) = self.worker.take() else { return Err("its worker has ended".to_owned()) };
        let (task, answer, said) =
            (self.folder.join("job.json"), self.folder.join("answer.json"), self.folder.join("said.txt"));
        let temporary = self.folder.join("temporary");
        fs::create_dir(&temporary).map_err(of_file)?;
        job["answer"] = json!(answer);
        job["said"] = json!(said);
        job["temporary"] = json!(temporary);
        fs::write(&task, job.to_string()).map_err(of_file)?;

        let limit = Duration::from_secs_f64(seconds);
        let started = Instant::now();
        // One that has just ended is found out below.
        let _ = writeln!(worker.jobs, "{}", task.display()).and_then(|()| worker.jobs.flush());
        let too_long = || format!("it took more than {seconds} seconds and was stopped; {MORE_SECONDS}");
        let status = match worker.ended.recv_timeout(limit) {
            Ok(status) => status_text(status),
            Err(RecvTimeoutError::Timeout) => return Err(too_long()),
            Err(RecvTimeoutError::Disconnected) => {
                let ended = worker.program.wait(limit.saturating_sub(started.elapsed()));
                let ended = ended.map_err(|error| format!("Python cannot be waited for: {error}"))?;
                ended.ok_or_else(too_long)?.to_string()
            }
        };
        let answered = kinora_outside::read_text(&answer, MAX_ANSWER).ok();
        let answered = answered.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let said = [said, worker.folder.path().join("said.txt")];
        // Its folder is needed even if it has ended.
        self.worker = Some(worker);
        match answered {
            Some(answer) => match answer["error"].as_str() {
                Some(error) => Err(error.to_owned()),
                None => Ok(answer),
            },
            None => {
                let last = said.iter().find_map(|file| last_words(file));
                let last = last.map_or(String::new(), |line| format!("; its last words: {line}"));
                Err(format!("Python ended before the function returned ({status}){last}"))
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        let Some(mut worker) = self.worker.take() else { return };
        if worker.program.has_ended() {
            return;
        }
        let other = RESTING.lock().unwrap_or_else(PoisonError::into_inner).replace(worker);
        drop(other);
    }
}

fn of_file(error: std::io::Error) -> String {
    format!("a temporary file cannot be written: {error}")
}

/// How a process ended, in words.
#[cfg(unix)]
fn status_text(status: i32) -> String {
    let status: std::process::ExitStatus = std::os::unix::process::ExitStatusExt::from_raw(status);
    status.to_string()
}

#[cfg(not(unix))]
fn status_text(status: i32) -> String {
    status.to_string()
}

/// The last line that a process wrote into a file.
fn last_words(file: &Path) -> Option<String> {
    let mut file = File::open(file).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_SAID))).ok()?;
    let mut text = Vec::new();
    file.take(MAX_SAID).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().rfind(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
}

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

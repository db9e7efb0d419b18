//! What the lab's tests share.
// Every test file uses a part of it.
#![allow(dead_code)]

use std::{io::Write, path::PathBuf, process::Command};

use kinora_lab::{GpuChoice, Options, Outcome, ProblemKind, Task, TaskError, run};

/// A folder with a task.
pub struct Bench {
    pub folder: tempfile::TempDir,
}

impl Bench {
    pub fn new(files: &[(&str, &str)]) -> Bench {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        files.iter().for_each(|(name, text)| bench.write(name, text.as_bytes()));
        bench
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
    }

    pub fn open(&self) -> Result<Task, TaskError> {
        Task::open(self.folder.path())
    }

    /// The outcome without a time; `None` if there is no compiler, which is said.
    pub fn outcome(&self) -> Option<Outcome> {
        let task = self.open().unwrap_or_else(|error| panic!("{error}"));
        let outcome = run(&task, &options(), &mut |_| {});
        let uncompiled = |problem: &kinora_lab::Problem| {
            problem.kind == ProblemKind::Compile && problem.message.contains("cannot be compiled here")
        };
        if outcome.problems.iter().any(uncompiled) && std::env::var_os("KINORA_REQUIRE_NVRTC").is_none() {
            let _ = writeln!(std::io::stderr(), "not run: no NVRTC");
            return None;
        }
        Some(outcome)
    }
}

pub fn options() -> Options {
    Options { time: false, gpu: GpuChoice::Never, ..Options::default() }
}

/// Everything that is wrong, in one text, with the kinds of findings.
pub fn problems(outcome: &Outcome) -> String {
    let sizes = || outcome.devices.iter().flat_map(|device| &device.sizes);
    let of_sizes = sizes().flat_map(|size| &size.problems);
    let told = outcome.problems.iter().chain(of_sizes);
    let told: String = told.map(|problem| format!("{:?}: {}\n", problem.kind, problem.message)).collect();
    let kinds = sizes().flat_map(|size| &size.findings).map(|finding| format!("[{:?}] ", finding.kind));
    told + &kinds.collect::<String>()
}

/// The kinds of everything that is wrong.
pub fn kinds(outcome: &Outcome) -> Vec<ProblemKind> {
    let of_sizes = outcome.devices.iter().flat_map(|device| &device.sizes).flat_map(|size| &size.problems);
    outcome.problems.iter().chain(of_sizes).map(|problem| problem.kind).collect()
}

/// Whether the Python of the tests has NumPy; that it has none is said.
pub fn has_numpy() -> bool {
    let python = std::env::var_os("KINORA_LAB_PYTHON").unwrap_or_else(|| {
        let environment =
            std::env::var_os("VIRTUAL_ENV").map(|folder| PathBuf::from(folder).join("bin/python"));
        environment.filter(|python| python.is_file()).map_or("python3".into(), Into::into)
    });
    let has =
        Command::new(python).args(["-c", "import numpy"]).output().is_ok_and(|ran| ran.status.success());
    if !has {
        assert!(std::env::var_os("KINORA_REQUIRE_NUMPY").is_none(), "the Python of the tests has no NumPy");
        let _ = writeln!(std::io::stderr(), "references in Python not run: no NumPy");
    }
    has
}

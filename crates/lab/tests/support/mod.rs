//! What the lab's tests share.

use std::io::Write;

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
#[allow(dead_code)]
pub fn kinds(outcome: &Outcome) -> Vec<ProblemKind> {
    let of_sizes = outcome.devices.iter().flat_map(|device| &device.sizes).flat_map(|size| &size.problems);
    outcome.problems.iter().chain(of_sizes).map(|problem| problem.kind).collect()
}

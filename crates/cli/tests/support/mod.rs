//! The program as a person runs it.
// Every test file uses a part of it.
#![allow(dead_code)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

/// The program, in an environment that asks for nothing.
pub fn kinora() -> Command {
    listen_to_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinora"));
    for variable in
        ["KINORA_MODEL", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "NO_COLOR", "CLICOLOR_FORCE"]
    {
        command.env_remove(variable);
    }
    // No test may find a model of someone's own, or reach a hub.
    command.env("HF_HOME", "/nonexistent").env("HF_ENDPOINT", "http://127.0.0.1:1").stdin(Stdio::null());
    command
}

/// Takes back what a shell does to commands in the background: it has them ignore Ctrl-C, and the program would, too.
fn listen_to_signals() {
    #[cfg(unix)]
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: it sets the default, so that no code of ours runs on a signal.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// What the program has said, and how it ended.
#[derive(Debug)]
pub struct Answer {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// The one JSON object on standard output.
    pub fn json(&self) -> serde_json::Value {
        let text = self.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Fails unless the program ended with this code and said all of these on standard error.
    pub fn must_fail(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Answer {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs a command to its end.
pub fn answer(command: &mut Command) -> Answer {
    command.output().unwrap().into()
}

/// The command, started by a shell that does something first, such as to limit it.
pub fn after(first: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]).arg(command.get_program());
    shell.args(command.get_args()).stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// The command with room for so many threads and no more: each takes its share of the addresses. Two of them compute.
pub fn with_threads(most: u64, command: &Command) -> Command {
    const ADDRESSES: u64 = 8 << 30;
    let mut limited = after(&format!("ulimit -v {}", ADDRESSES >> 10), command);
    let stack = ADDRESSES / (most + 1);
    limited.env("RUST_MIN_STACK", stack.to_string()).env("RAYON_NUM_THREADS", "2");
    limited
}

/// Runs the program with these words.
pub fn run(words: &[&str]) -> Answer {
    answer(kinora().args(words))
}

/// The demonstration model, which all tests of a file share.
pub fn model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!("model-of-", env!("CARGO_CRATE_NAME")));
        let _ = fs::remove_dir_all(&folder);
        let made = run(&["demo-model", folder.to_str().unwrap()]);
        assert_eq!(made.code, Some(0), "{made:?}");
        folder
    })
}

/// A copy of the model, to be damaged.
pub fn model_copy() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(model(), copy.path());
    copy
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}

/// One of the photos that the library is tested with.
pub fn photo(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/photos").join(name)
}

/// A folder for videos, and the program that makes small ones there.
pub struct Studio {
    pub folder: tempfile::TempDir,
}

impl Studio {
    pub fn new() -> Self {
        Studio { folder: tempfile::tempdir().unwrap() }
    }

    /// `kinora generate` with a small photo and the least of everything, to be given what differs.
    pub fn generate(&self, output: &str) -> Command {
        self.generate_from(&photo("rgb.png"), model(), output)
    }

    pub fn generate_from(&self, photo: &Path, model: &Path, output: &str) -> Command {
        let mut command = kinora();
        command.current_dir(self.folder.path()).arg("generate").arg(photo).arg("-o").arg(output);
        command.arg("--model").arg(model).args(["--size", "64x64", "--frames", "2", "--steps", "1"]);
        command
    }

    /// What lies in the folder, hidden files too.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(name)).unwrap()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

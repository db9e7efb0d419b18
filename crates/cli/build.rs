//! Tells the program which commit it was built from, so that files of results can say it.

use std::{path::Path, process::Command};

fn main() {
    // The repository must be this program's own: sources out of a package may lie within another's.
    let commit = git(&["ls-files", "--error-unmatch", "build.rs"])
        .and_then(|_| git(&["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=KINORA_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    // HEAD changes with a checkout, its log with every commit; a worktree has both in a folder of its own.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// What git says, where there is a git and a repository.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

//! Builds executables and finds where cargo put them.

use std::{path::PathBuf, process::Stdio};

use serde_json::Value;

use crate::shell::{TaskError, cargo, command_line, root};

/// An executable that cargo built.
#[derive(Debug, PartialEq, Eq)]
pub struct Executable {
    /// Its target's name; that of a library's own tests is `unit`.
    pub name: String,
    /// The folder of its package, from the repository's root.
    pub package: PathBuf,
    /// Where it is.
    pub path: PathBuf,
}

/// Runs a cargo command that builds, and gives the executables of targets of some kinds, as cargo calls them.
///
/// # Errors
/// Where cargo cannot be started or a build fails; its messages have been shown.
pub fn build(title: &str, arguments: &[&str], kinds: &[&str]) -> Result<Vec<Executable>, TaskError> {
    let mut command = cargo(arguments);
    let line = command_line(&command);
    println!("\n── {title}: {line}");
    let output = command
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| TaskError::Start { command: line.clone(), reason: e.to_string() })?;
    if !output.status.success() {
        return Err(TaskError::Failed { command: line, status: output.status.to_string() });
    }
    Ok(executables(&String::from_utf8_lossy(&output.stdout), kinds))
}

/// The executables among cargo's messages, of which each is a line of JSON.
fn executables(messages: &str, kinds: &[&str]) -> Vec<Executable> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let kind = message["target"]["kind"][0].as_str()?;
            let path = PathBuf::from(message["executable"].as_str()?);
            let manifest = PathBuf::from(message["manifest_path"].as_str()?);
            let package = manifest.parent()?.strip_prefix(root()).ok()?.to_path_buf();
            let name = match kind {
                "lib" => "unit",
                _ => message["target"]["name"].as_str()?,
            };
            kinds.contains(&kind).then(|| Executable { name: name.to_owned(), package, path })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executables_of_the_kinds_that_are_asked_for_are_found() {
        let message = |reason: &str, kind: &str, name: &str, executable: Option<&str>| {
            serde_json::json!({
                "reason": reason,
                "manifest_path": root().join("crates/cuda/Cargo.toml"),
                "target": {"kind": [kind], "name": name},
                "executable": executable,
            })
            .to_string()
        };
        let messages = [
            message("compiler-artifact", "lib", "kinora_cuda", None),
            message("compiler-artifact", "lib", "kinora_cuda", Some("/t/kinora_cuda-1")),
            "   Compiling is no JSON".to_owned(),
            message("compiler-artifact", "test", "golden", Some("/t/golden-2")),
            message("compiler-artifact", "bench", "ops", Some("/t/ops-3")),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = executables(&messages.join("\n"), &["lib", "test"]);
        let expected =
            [("unit", "/t/kinora_cuda-1"), ("golden", "/t/golden-2")].map(|(name, path)| Executable {
                name: name.to_owned(),
                package: PathBuf::from("crates/cuda"),
                path: PathBuf::from(path),
            });
        assert_eq!(found, expected);
    }
}

//! Builds executables and finds where cargo put them.

use std::path::PathBuf;

use serde_json::Value;

use crate::shell::{TaskError, cargo, command_line, output, root};

/// An executable that cargo built.
#[derive(Debug, PartialEq, Eq)]
pub struct Executable {
    /// The kind of its target, as cargo calls it: `bin`, `test` or `bench`.
    pub kind: String,
    /// Its target's name.
    pub name: String,
    /// The folder of its package, from the repository's root.
    pub package: PathBuf,
    /// Where it is.
    pub path: PathBuf,
}

/// Runs a cargo command that builds, and returns the executables.
///
/// # Errors
/// If cargo cannot be started or the build fails; its messages have been shown.
pub fn build(title: &str, arguments: &[&str]) -> Result<Vec<Executable>, TaskError> {
    let mut command = cargo(arguments);
    println!("\n── {title}: {}", command_line(&command));
    let messages = output(command.arg("--message-format=json-render-diagnostics"))?;
    Ok(executables(&messages))
}

/// The executables among cargo's messages, of which each is a line of JSON.
fn executables(messages: &str) -> Vec<Executable> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let path = PathBuf::from(message["executable"].as_str()?);
            let manifest = PathBuf::from(message["manifest_path"].as_str()?);
            let package = manifest.parent()?.strip_prefix(root()).ok()?.to_path_buf();
            let name = message["target"]["name"].as_str()?.to_owned();
            let kind = message["target"]["kind"][0].as_str()?.to_owned();
            Some(Executable { kind, name, package, path })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_among_the_messages() {
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
            message("compiler-artifact", "test", "gpu_ops", Some("/t/gpu_ops-1")),
            "   Compiling is no JSON".to_owned(),
            message("compiler-artifact", "test", "gpu_graphs", Some("/t/gpu_graphs-2")),
            message("compiler-artifact", "bench", "svd_on_gpu", Some("/t/svd_on_gpu-3")),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = executables(&messages.join("\n"));
        let expected = [
            ("test", "gpu_ops", "/t/gpu_ops-1"),
            ("test", "gpu_graphs", "/t/gpu_graphs-2"),
            ("bench", "svd_on_gpu", "/t/svd_on_gpu-3"),
        ];
        let expected = expected.map(|(kind, name, path)| Executable {
            kind: kind.to_owned(),
            name: name.to_owned(),
            package: PathBuf::from("crates/cuda"),
            path: PathBuf::from(path),
        });
        assert_eq!(found, expected);
    }
}

//! The licences of everything that the program is linked with.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    files::{entries, io_error},
    shell::TaskError,
};

/// How the names of files begin that have a licence or a notice.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "UNLICENSE", "COPYING", "COPYRIGHT", "NOTICE"];

const HEAD: &str = "\
Kinora is linked with the Rust standard library (MIT OR Apache-2.0, https://github.com/rust-lang/rust) and with the
following packages from crates.io. Below the list are the licences and notices that the packages contain; a text that
several packages share is printed once.

";

/// A package that is linked into the program.
#[derive(Debug)]
struct Linked {
    /// Its name and version.
    title: String,
    /// Its licence as an SPDX expression.
    licence: String,
    /// Where its source is.
    repository: String,
    /// Its folder.
    folder: PathBuf,
}

/// The text of all licences, for the program of one crate of this workspace, from what `cargo metadata` says.
pub fn notices(metadata: &Value, package: &str) -> Result<String, TaskError> {
    let linked = linked(metadata, package);
    let mut text = HEAD.to_owned();
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    for one in &linked {
        let files = licence_files(&one.folder)?;
        let without = if files.is_empty() { " (the package contains no licence file)" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} - {} - {}{without}", one.title, one.licence, one.repository);
        for file in files {
            let bytes = fs::read(&file).map_err(io_error(&file))?;
            let licence = String::from_utf8_lossy(&bytes).trim().replace("\r\n", "\n");
            let name = file.strip_prefix(&one.folder).unwrap_or(&file).display();
            texts.entry(licence).or_default().push(format!("{} ({name})", one.title));
        }
    }
    let mut texts: Vec<(String, Vec<String>)> = texts.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1));
    for (licence, of) in texts {
        let _ = write!(text, "\n{}\n{}\n\n{licence}\n", "=".repeat(80), of.join("\n"));
    }
    Ok(text)
}

/// The packages from a registry that a crate is linked with, in the order of names. What only runs while it is built or
/// tested is left out: procedural macros, and dependencies of builds and tests.
fn linked(metadata: &Value, package: &str) -> Vec<Linked> {
    let packages = || metadata["packages"].as_array().into_iter().flatten();
    let is_macro = |package: &Value| {
        package["targets"].as_array().into_iter().flatten().any(|target| target["kind"][0] == "proc-macro")
    };
    let macros: BTreeSet<&str> =
        packages().filter(|package| is_macro(package)).filter_map(|package| package["id"].as_str()).collect();
    let mut pending: Vec<&str> = packages()
        .filter(|known| known["name"] == package)
        .filter_map(|known| known["id"].as_str())
        .collect();
    let mut found = BTreeSet::new();
    while let Some(id) = pending.pop() {
        if macros.contains(id) || !found.insert(id) {
            continue;
        }
        let node =
            metadata["resolve"]["nodes"].as_array().into_iter().flatten().find(|node| node["id"] == id);
        let dependencies = node.and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let normal = dependencies.filter(|dependency| {
            dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
        });
        pending.extend(normal.filter_map(|dependency| dependency["pkg"].as_str()));
    }
    let text =
        |package: &Value, key: &str, unknown: &str| package[key].as_str().unwrap_or(unknown).to_owned();
    let mut linked: Vec<Linked> = packages()
        .filter(|package| package["id"].as_str().is_some_and(|id| found.contains(id)))
        .filter(|package| !package["source"].is_null())
        .map(|package| Linked {
            title: format!("{} {}", text(package, "name", ""), text(package, "version", "")),
            licence: text(package, "license", "see its licence file"),
            repository: text(package, "repository", "crates.io"),
            folder: Path::new(&text(package, "manifest_path", ""))
                .parent()
                .map(Path::to_path_buf)
                .unwrap_or_default(),
        })
        .collect();
    linked.sort_by(|a, b| a.title.cmp(&b.title));
    linked
}

/// The files with licences and notices in a package's folder and in the folders directly below it: there, packages keep the
/// licences of sources that they bring along.
fn licence_files(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        let inside = if path.is_dir() { entries(&path)? } else { vec![path] };
        files.extend(inside.into_iter().filter(|path| path.is_file() && is_licence(path)));
    }
    Ok(files)
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    NAMES.iter().any(|known| name.starts_with(known)) && !name.ends_with(".RS")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that is linked with `direct` and through it with `deep`, and only built or tested with the others.
    fn metadata(folder: &Path) -> Value {
        let package = |name: &str, kind: &str, source: Option<&str>| {
            serde_json::json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source,
                "repository": format!("https://example.org/{name}"), "targets": [{"kind": [kind]}],
                "manifest_path": folder.join(name).join("Cargo.toml"),
            })
        };
        let dependency =
            |name: &str, kind: Option<&str>| serde_json::json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        serde_json::json!({
            "packages": [
                package("program", "bin", None), package("direct", "lib", Some("registry")),
                package("deep", "lib", Some("registry")), package("macro", "proc-macro", Some("registry")),
                package("of-macro", "lib", Some("registry")), package("tested", "lib", Some("registry")),
                package("built", "lib", Some("registry")),
            ],
            "resolve": {"nodes": [
                {"id": "program", "deps": [
                    dependency("direct", None), dependency("macro", None), dependency("tested", Some("dev")),
                ]},
                {"id": "direct", "deps": [dependency("deep", None), dependency("built", Some("build"))]},
                {"id": "macro", "deps": [dependency("of-macro", None)]},
            ]},
        })
    }

    #[test]
    fn only_what_is_linked_is_listed_and_equal_texts_are_printed_once() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("direct/LICENSE-MIT", "shared text\r\nof two lines\n"),
            ("direct/src/lib.rs", "not a licence"),
            ("direct/upstream/license.txt", "upstream's text"),
            ("deep/LICENSE-MIT", "shared text\nof two lines"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let text = notices(&metadata(folder.path()), "program").unwrap();
        let expected = format!(
            "{HEAD}\
deep 1.0.0 - MIT - https://example.org/deep
direct 1.0.0 - MIT - https://example.org/direct

{line}
deep 1.0.0 (LICENSE-MIT)
direct 1.0.0 (LICENSE-MIT)

shared text
of two lines

{line}
direct 1.0.0 (upstream/license.txt)

upstream's text
",
            line = "=".repeat(80)
        );
        assert_eq!(text, expected);
    }
}

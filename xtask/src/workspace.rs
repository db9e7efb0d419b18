//! The crates of this workspace, as `cargo metadata` describes them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::shell::{TaskError, cargo, output, root};

/// A crate of this workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its one-line description.
    pub description: String,
    /// Its folder, from the root of the repository.
    pub folder: PathBuf,
    /// Whether it is meant for crates.io.
    pub published: bool,
    /// The crates of this workspace that it depends on, in the order of names.
    pub dependencies: Vec<Dependency>,
    /// Whether it has a library.
    pub library: bool,
    /// Whether it has a program.
    pub program: bool,
    /// Its integration tests: the files in its `tests` folder.
    pub tests: Vec<String>,
}

/// A dependency on another crate of this workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The crate's name.
    pub name: String,
    /// Whether only tests, examples and benchmarks need it.
    pub development: bool,
    /// Whether a feature turns it on.
    pub optional: bool,
}

/// All crates of this workspace, in the order of names.
pub fn packages() -> Result<Vec<Package>, TaskError> {
    let metadata = metadata(&["--no-deps", "--offline"])?;
    Ok(parse(&metadata, &root()))
}

/// What `cargo metadata` prints, with more arguments.
pub fn metadata(arguments: &[&str]) -> Result<Value, TaskError> {
    let mut command = cargo(&["metadata", "--format-version", "1"]);
    command.args(arguments);
    let text = output(&mut command)?;
    serde_json::from_str(&text).map_err(|source| TaskError::Json { what: "cargo metadata", source })
}

fn parse(metadata: &Value, root: &Path) -> Vec<Package> {
    let listed = || metadata["packages"].as_array().into_iter().flatten();
    let names: BTreeSet<&str> = listed().filter_map(|package| package["name"].as_str()).collect();
    let mut packages: Vec<Package> =
        listed().filter_map(|package| parse_one(package, &names, root)).collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    packages
}

fn parse_one(package: &Value, names: &BTreeSet<&str>, root: &Path) -> Option<Package> {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let folder =
        Path::new(package["manifest_path"].as_str()?).parent()?.strip_prefix(root).ok()?.to_path_buf();
    let mut dependencies = Vec::<Dependency>::new();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let Some(name) = dependency["name"].as_str().filter(|name| names.contains(name)) else { continue };
        let found = Dependency {
            name: name.to_owned(),
            development: dependency["kind"] == "dev",
            optional: dependency["optional"] == true,
        };
        match dependencies.iter_mut().find(|known| known.name == found.name) {
            // Needed by the library too: that is what counts.
            Some(known) if !found.development => *known = found,
            Some(_) => {}
            None => dependencies.push(found),
        }
    }
    dependencies.sort_by(|a, b| a.name.cmp(&b.name));
    let targets = |kind: &str| {
        let all = package["targets"].as_array().into_iter().flatten();
        let of_kind = all.filter(|target| target["kind"][0] == kind);
        of_kind.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    Some(Package {
        name: text("name"),
        version: text("version"),
        description: text("description"),
        folder,
        published: package["publish"].is_null(),
        dependencies,
        library: !targets("lib").is_empty(),
        program: !targets("bin").is_empty(),
        tests: targets("test"),
    })
}

/// The given crates with all that depend on them, directly or not; dev-dependencies count.
pub fn with_dependants(packages: &[Package], changed: &BTreeSet<String>) -> BTreeSet<String> {
    let mut affected = changed.clone();
    loop {
        let more: Vec<&Package> = packages
            .iter()
            .filter(|package| !affected.contains(&package.name))
            .filter(|package| package.dependencies.iter().any(|on| affected.contains(&on.name)))
            .collect();
        if more.is_empty() {
            return affected;
        }
        affected.extend(more.into_iter().map(|package| package.name.clone()));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A crate for tests. A dependency that ends in `?` is optional, one that ends in `*` is for development.
    pub fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependency = |on: &&str| Dependency {
            name: on.trim_end_matches(['?', '*']).to_owned(),
            development: on.ends_with('*'),
            optional: on.ends_with('?'),
        };
        Package {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            description: format!("What {name} is"),
            folder: Path::new("crates").join(name),
            published: true,
            dependencies: dependencies.iter().map(dependency).collect(),
            library: true,
            program: false,
            tests: Vec::new(),
        }
    }

    #[test]
    fn what_cargo_says_is_understood() {
        let metadata = serde_json::json!({"packages": [
            {
                "name": "b", "version": "1.2.3", "description": "second", "manifest_path": "/r/crates/b/Cargo.toml",
                "publish": [],
                "dependencies": [
                    {"name": "a", "kind": "dev", "optional": false},
                    {"name": "serde", "kind": null, "optional": false},
                    {"name": "a", "kind": null, "optional": true},
                ],
                "targets": [{"kind": ["lib"], "name": "b"}, {"kind": ["test"], "name": "slow"}],
            },
            {
                "name": "a", "version": "1.2.3", "manifest_path": "/r/crates/a/Cargo.toml", "publish": null,
                "dependencies": [{"name": "b", "kind": "dev", "optional": false}],
                "targets": [{"kind": ["bin"], "name": "a"}],
            },
        ]});
        let found = parse(&metadata, Path::new("/r"));
        let mut a = package("a", &["b*"]);
        (a.version, a.description, a.library, a.program) = ("1.2.3".to_owned(), String::new(), false, true);
        let mut b = package("b", &["a?"]);
        (b.version, b.description, b.published) = ("1.2.3".to_owned(), "second".to_owned(), false);
        b.tests = vec!["slow".to_owned()];
        assert_eq!(found, [a, b]);
    }

    #[test]
    fn a_change_affects_all_that_depend_on_it() {
        let packages = [
            package("cli", &["kinora"]),
            package("cpu", &["graph"]),
            package("graph", &[]),
            package("kinora", &["cpu?"]),
            package("testing", &["graph"]),
            package("ptx", &["testing*"]),
            package("xtask", &[]),
        ];
        let affected = |changed: &str| {
            let found = with_dependants(&packages, &BTreeSet::from([changed.to_owned()]));
            found.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(affected("cpu"), "cli cpu kinora");
        assert_eq!(affected("testing"), "ptx testing");
        assert_eq!(affected("graph"), "cli cpu graph kinora ptx testing");
        assert_eq!(affected("xtask"), "xtask");
    }
}

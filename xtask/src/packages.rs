//! Whether every crate that is meant for others can be published.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use crate::{
    files::{entries, io_error},
    shell::{TaskError, cargo, root, step},
    workspace::Package,
};

/// The macros that make a file part of a crate.
const INCLUDES: [&str; 3] = ["include!(", "include_str!(", "include_bytes!("];

/// Packs every published crate as `cargo publish` would, without a network and without compiling it again. What compiling a
/// package would find, a file that is not in it, is looked for in its source.
pub fn check(packages: &[Package]) -> Result<(), TaskError> {
    let published: Vec<&Package> = packages.iter().filter(|package| package.published).collect();
    for package in &published {
        check_includes(package, &root().join(&package.folder).join("src"))?;
    }
    let mut command = cargo(&["package", "--no-verify", "--allow-dirty", "--offline", "--quiet"]);
    for package in published {
        command.args(["--package", &package.name]);
    }
    step("packages", &mut command)
}

/// Every file that the sources in a folder include must be in the crate's own folder.
fn check_includes(package: &Package, folder: &Path) -> Result<(), TaskError> {
    for path in entries(folder)? {
        if path.is_dir() {
            check_includes(package, &path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).map_err(io_error(&path))?;
            for included in included(&text) {
                if !inside(&root().join(&package.folder), folder, included) {
                    let (included, package) = (included.to_owned(), package.name.clone());
                    return Err(TaskError::OutsidePackage { path, included, package });
                }
            }
        }
    }
    Ok(())
}

/// The first string after each including macro: the path, or the beginning of one that is put together.
fn included(text: &str) -> Vec<&str> {
    let after = INCLUDES
        .iter()
        .flat_map(|name| text.match_indices(name).map(move |(at, _)| &text[at + name.len()..]));
    after.filter_map(|rest| rest.split('"').nth(1)).collect()
}

/// Whether a path from a folder stays below another folder.
fn inside(package: &Path, folder: &Path, path: &str) -> bool {
    let mut place = PathBuf::from(folder);
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                place.pop();
            }
            part => place.push(part),
        }
    }
    place.starts_with(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_found() {
        let text = r#"
            const A: &str = include_str!("a.json");
            const B: &[u8] = include_bytes!(
                "../b.png"
            );
            const C: &[u8] = include_bytes!(concat!("../../assets/", $path));
        "#;
        assert_eq!(included(text), ["a.json", "../b.png", "../../assets/"]);
    }

    #[test]
    fn a_file_outside_the_package_is_noticed() {
        let (package, folder) = (Path::new("/r/crates/bench"), Path::new("/r/crates/bench/src/peers"));
        assert!(inside(package, folder, "torch.py"));
        assert!(inside(package, folder, "../../peers/torch.py"));
        assert!(!inside(package, folder, "../../../../golden/svd.py"));
        assert!(!inside(package, folder, "../../../bench-results/x.json"));
    }
}

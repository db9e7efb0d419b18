//! First kernels: a task and a source that pass as they are.

use std::path::PathBuf;

/// A kind of kernel that there is a scaffold for: its name, the task and the source.
const KINDS: [(&str, &str, &str); 6] = [
    ("reduction", include_str!("templates/reduction.toml"), include_str!("templates/reduction.cu")),
    ("product", include_str!("templates/product.toml"), include_str!("templates/product.cu")),
    ("elementwise", include_str!("templates/elementwise.toml"), include_str!("templates/elementwise.cu")),
    ("scan", include_str!("templates/scan.toml"), include_str!("templates/scan.cu")),
    ("stencil", include_str!("templates/stencil.toml"), include_str!("templates/stencil.cu")),
    ("attention", include_str!("templates/attention.toml"), include_str!("templates/attention.cu")),
];

/// The names of the kinds.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(|(kind, ..)| kind)
}

/// Why there is no scaffold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaffoldError {
    /// A kind that is not known.
    #[error("there is no scaffold {0:?}; there are {known}", known = kinds().collect::<Vec<_>>().join(", "))]
    Kind(String),
    /// A name that is no file's.
    #[error("{0:?} is not a name for a task: letters, digits, _ and -, at most 64, a letter first")]
    Name(String),
}

/// The files of a new task, relative to the folder that its own is made in.
///
/// # Errors
/// If there is no such kind, or the name is not one.
pub fn scaffold(name: &str, kind: &str) -> Result<Vec<(PathBuf, String)>, ScaffoldError> {
    let is_name = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !is_name {
        return Err(ScaffoldError::Name(name.to_owned()));
    }
    let Some((_, task, source)) = KINDS.into_iter().find(|(known, ..)| *known == kind) else {
        return Err(ScaffoldError::Kind(kind.to_owned()));
    };
    let folder = PathBuf::from(name);
    let named = |text: &str| text.replace("@NAME@", name);
    Ok(vec![(folder.join("task.toml"), named(task)), (folder.join(format!("{name}.cu")), named(source))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaffold_has_its_name_everywhere() {
        for kind in kinds() {
            let files = scaffold("mine", kind).unwrap();
            assert_eq!(files[0].0, PathBuf::from("mine/task.toml"));
            assert_eq!(files[1].0, PathBuf::from("mine/mine.cu"));
            assert!(files[0].1.contains("source = \"mine.cu\""));
            assert!(files.iter().all(|(_, text)| !text.contains("@NAME@")), "{kind}");
        }
        assert!(matches!(scaffold("mine", "nothing"), Err(ScaffoldError::Kind(_))));
        for name in ["", "../up", "a/b", "1st", "a b", "ä", "-n", &"a".repeat(65)] {
            assert!(matches!(scaffold(name, "scan"), Err(ScaffoldError::Name(_))), "{name}");
        }
    }
}

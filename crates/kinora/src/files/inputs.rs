//! Files that are read, and so must not be replaced.

use std::path::{Path, PathBuf};

/// Files that must not be replaced, by whatever name they are reached.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use kinora::files::Inputs;
///
/// let folder = tempfile::tempdir()?;
/// let photo = folder.path().join("photo.png");
/// std::fs::write(&photo, "a photo")?;
/// let inputs = Inputs::new([&photo]);
/// assert!(inputs.contains(folder.path().join("./photo.png")));
/// assert!(!inputs.contains(folder.path().join("clip.gif")));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inputs {
    paths: Vec<PathBuf>,
    /// What the paths led to at the beginning: someone may move an input while it is in use.
    first: Vec<Identity>,
}

/// What makes two names the same file: hard links, symbolic links and names that differ in case lead to one identity.
#[cfg(unix)]
type Identity = (u64, u64);
/// What makes two names the same file: symbolic links lead to one identity.
#[cfg(not(unix))]
type Identity = PathBuf;

impl Inputs {
    /// The files at these paths. Paths that lead nowhere are ignored.
    pub fn new<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        let paths: Vec<PathBuf> = paths.into_iter().map(Into::into).collect();
        let first = paths.iter().filter_map(|path| identity(path)).collect();
        Self { paths, first }
    }

    /// Whether the file at this path is one of them.
    pub fn contains(&self, path: impl AsRef<Path>) -> bool {
        let Some(found) = identity(path.as_ref()) else { return false };
        self.first.contains(&found) || self.paths.iter().any(|path| identity(path).as_ref() == Some(&found))
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    path.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_input_is_recognised_by_every_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("photo.png"), "photo").unwrap();
        fs::write(path("other.png"), "photo").unwrap();
        fs::create_dir(path("sub")).unwrap();
        let inputs = Inputs::new([path("photo.png"), path("absent.png")]);
        assert!(inputs.contains(path("photo.png")) && inputs.contains(path("sub/../photo.png")));
        assert!(!inputs.contains(path("other.png")) && !inputs.contains(path("absent.png")));
        #[cfg(unix)]
        {
            fs::hard_link(path("photo.png"), path("hard.png")).unwrap();
            std::os::unix::fs::symlink("photo.png", path("soft.png")).unwrap();
            assert!(inputs.contains(path("hard.png")) && inputs.contains(path("soft.png")));
            // An editor that saves replaces the file: both are inputs then.
            fs::rename(path("other.png"), path("photo.png")).unwrap();
            assert!(inputs.contains(path("hard.png")) && inputs.contains(path("photo.png")));
        }
    }
}

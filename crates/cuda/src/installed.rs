//! Where to look for NVIDIA's libraries: in CUDA installs and in Python packages.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A library that may be installed.
#[derive(Debug)]
pub(crate) struct Sought {
    /// The environment variable that names the library or its folder. If it is set, nothing else is tried.
    pub variable: &'static str,
    /// Its names, the newest first.
    pub names: &'static [&'static str],
    /// Folders of a CUDA install that hold it, beside [`INSTALL_FOLDERS`].
    pub install_folders: &'static [&'static str],
    /// Folders of Python's packages that hold it, the newest first.
    pub wheel_folders: &'static [&'static str],
}

/// Folders of a CUDA install that hold libraries.
const INSTALL_FOLDERS: [&str; 5] =
    ["lib64", "lib", "bin", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// The places to look, as the process's environment gives them. The current folder is not searched: a library that is
/// found is run, and anyone may have made that folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// The library or its folder, if someone named it.
    pub named: Option<PathBuf>,
    /// The program's own folder.
    pub beside: Option<PathBuf>,
    /// CUDA installs: those that environment variables name, and the usual places.
    pub installs: Vec<PathBuf>,
    /// Folders with Python packages below them: environments, active ones first, and what a user or the system has installed.
    pub environments: Vec<PathBuf>,
}

/// Why a library cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// There is no such file.
    #[error("not found")]
    Missing,
    /// The system's loader refuses it, or it lacks a function.
    #[error(transparent)]
    Loader(#[from] libloading::Error),
    /// It fails when it is asked for its version.
    #[error("it does not report its version ({0})")]
    NoVersion(String),
    /// A compiler whose code the driver does not load.
    #[error("version {major}.{minor} is too new for this machine's driver")]
    TooNew {
        /// The major version.
        major: u32,
        /// The minor version.
        minor: u32,
    },
    /// A tracing library whose records may be laid out differently.
    #[error("it is CUPTI {0}, but only CUDA 12.0 to 13.0 are supported")]
    UnknownRecords(String),
}

/// No library could be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these were tried:\n{}", tried.join("\n"))]
pub struct NotFound {
    /// A line for each that was tried, with what is wrong with it.
    pub tried: Vec<String>,
    /// The first that is there and cannot be used, or that was named and is not there.
    pub unusable: Option<String>,
}

impl NotFound {
    /// The library was not found, or what is wrong with the one that was.
    pub(crate) fn what(&self) -> String {
        match &self.unusable {
            Some(unusable) => format!("cannot be used: {unusable}"),
            None => "was not found".to_owned(),
        }
    }
}

/// A candidate library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Where it is, or its bare name.
    pub path: PathBuf,
    /// Whether the system's loader has to find it.
    pub by_loader: bool,
}

impl Surroundings {
    /// The surroundings of this process.
    pub fn of_process(sought: &Sought) -> Surroundings {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let mut installs: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).collect();
        installs.extend(customary_installs());
        let mut environments: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
        environments.extend(customary_environments(variable("HOME").as_deref()));
        let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
        Surroundings { named: variable(sought.variable), beside, installs, environments }
    }

    /// The candidate libraries, in the order in which they are tried.
    pub fn candidates(&self, sought: &Sought) -> Vec<Candidate> {
        let at = |path: PathBuf| Candidate { path, by_loader: false };
        if let Some(named) = &self.named {
            if named.is_dir() {
                return sought.names.iter().map(|name| at(named.join(name))).collect();
            }
            return vec![at(named.clone())];
        }
        let in_installs = self.installs.iter().flat_map(|install| {
            let folders = INSTALL_FOLDERS.iter().chain(sought.install_folders);
            folders.map(|folder| install.join(folder)).collect::<Vec<_>>()
        });
        let in_wheels = self
            .environments
            .iter()
            .flat_map(|environment| site_packages(environment))
            .flat_map(|packages| sought.wheel_folders.iter().map(move |folder| packages.join(folder)));
        let in_folders = self
            .beside
            .iter()
            .cloned()
            .chain(in_installs)
            .chain(in_wheels)
            .flat_map(|folder| sought.names.iter().map(move |name| at(folder.join(name))));
        // A bare name is left to the loader, which also searches LD_LIBRARY_PATH.
        let by_loader =
            sought.names.iter().map(|name| Candidate { path: PathBuf::from(name), by_loader: true });
        by_loader.chain(in_folders).collect()
    }

    /// Folders of headers, a set for each install and each folder of Python's packages that has any, in the order in which libraries
    /// are looked for.
    pub fn include_folders(&self, wheels: &[&str], has_headers: impl Fn(&Path) -> bool) -> Vec<Vec<PathBuf>> {
        let installs = self.installs.iter().map(|install| vec![install.join("include")]);
        let packages = self.environments.iter().flat_map(|environment| site_packages(environment));
        let in_packages = packages.map(|packages| wheels.iter().map(|wheel| packages.join(wheel)).collect());
        let there = |folder: &PathBuf| folder.is_dir() && has_headers(folder);
        let sets =
            installs.chain(in_packages).map(|set: Vec<PathBuf>| set.into_iter().filter(there).collect());
        sets.filter(|set: &Vec<PathBuf>| !set.is_empty()).collect()
    }

    /// The result of `load` for the first library that loads.
    ///
    /// # Errors
    /// If it succeeds for none.
    pub fn first<T>(
        &self,
        sought: &Sought,
        mut load: impl FnMut(&Candidate) -> Result<T, LoadError>,
    ) -> Result<T, NotFound> {
        let (mut tried, mut unusable) = (Vec::new(), None);
        for candidate in self.candidates(sought) {
            let there = candidate.path.is_file();
            let loaded = match candidate.by_loader || there {
                true => load(&candidate),
                false => Err(LoadError::Missing),
            };
            let reason = match loaded {
                Ok(loaded) => return Ok(loaded),
                Err(reason) => reason,
            };
            let line = format!("{}: {reason}", candidate.path.display());
            // The loader's own words for a library that it does not find tell nobody anything.
            if self.named.is_some()
                || (there && !candidate.by_loader)
                || matches!(reason, LoadError::TooNew { .. })
            {
                unusable.get_or_insert_with(|| line.clone());
            }
            tried.push(format!("  {line}"));
        }
        Err(NotFound { tried, unusable })
    }
}

/// `/usr/local/cuda`, then `/usr/local/cuda-13.0` and its like, the newest first.
fn customary_installs() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/local")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("cuda-"))
        .map(|entry| entry.path())
        .collect();
    found.sort_by_key(|path| std::cmp::Reverse(version_in(path)));
    let mut installs = vec![PathBuf::from("/usr/local/cuda")];
    installs.extend(found);
    installs
}

/// Where pip, pipx, uv, pyenv and conda put packages: for the user, then for all.
fn customary_environments(home: Option<&Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(home) = home {
        found.push(home.join(".local"));
        let several =
            [".local/share/pipx/venvs", ".local/pipx/venvs", ".local/share/uv/tools", ".pyenv/versions"];
        for folder in several {
            let entries = fs::read_dir(home.join(folder)).into_iter().flatten().flatten();
            let mut environments: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            environments.sort();
            found.extend(environments);
        }
        found.extend([".venv", "miniconda3", "miniforge3", "anaconda3"].map(|name| home.join(name)));
    }
    found.extend(["/usr/local", "/usr", "/opt/conda"].map(PathBuf::from));
    found.retain(|folder| folder.is_dir());
    found
}

/// The numbers in a file's or folder's name: 13 comes after 9.
pub(crate) fn version_in(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The package folders of a Python environment, those of the newest Python first. Debian calls those of its own packages otherwise.
fn site_packages(environment: &Path) -> Vec<PathBuf> {
    let mut found = vec![environment.join("Lib").join("site-packages")];
    for lib in ["lib", "lib64"] {
        let pythons = fs::read_dir(environment.join(lib)).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = pythons
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .map(|entry| entry.path())
            .collect();
        folders.sort_by_key(|path| std::cmp::Reverse(version_in(path)));
        found.extend(
            folders
                .iter()
                .flat_map(|folder| ["site-packages", "dist-packages"].map(|name| folder.join(name))),
        );
    }
    found.retain(|folder| folder.is_dir());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUGHT: Sought = Sought {
        variable: "KINORA_SOUGHT",
        names: &["libsought.so.13", "libsought.so.12"],
        install_folders: &["extras/SOUGHT/lib64"],
        wheel_folders: &["nvidia/cu13/lib"],
    };

    #[test]
    fn a_named_library_is_the_only_one_tried() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("libsought.so.13");
        let named = |path: &Path| Surroundings {
            named: Some(path.to_owned()),
            installs: vec!["/usr/local/cuda".into()],
            ..Surroundings::default()
        };
        let only = [Candidate { path: missing.clone(), by_loader: false }];
        assert_eq!(named(&missing).candidates(&SOUGHT), only);
        let tried = |path: &Path| {
            let no_version = |_: &Candidate| Err::<(), _>(LoadError::NoVersion("no library".to_owned()));
            let not_found = named(path).first(&SOUGHT, no_version).unwrap_err();
            assert!(not_found.what().contains(path.to_str().unwrap()), "{not_found:?}");
            not_found.tried
        };
        assert_eq!(tried(&missing), [format!("  {}: not found", missing.display())]);
        // A folder means the library in it.
        let candidates = named(folder.path()).candidates(&SOUGHT);
        let names: Vec<_> = candidates.iter().map(|c| c.path.strip_prefix(folder.path()).unwrap()).collect();
        assert_eq!(names, SOUGHT.names.iter().map(Path::new).collect::<Vec<_>>());
        fs::write(&missing, "not a library").unwrap();
        assert_eq!(
            tried(&missing),
            [format!("  {}: it does not report its version (no library)", missing.display())]
        );
    }

    #[test]
    fn the_loader_comes_first_then_the_program_then_installs_then_packages() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("lib/python3.12/site-packages");
        fs::create_dir_all(&packages).unwrap();
        let install = folder.path().join("cuda");
        let surroundings = Surroundings {
            named: None,
            beside: Some(folder.path().join("program")),
            installs: vec![install.clone()],
            environments: vec![folder.path().to_owned()],
        };
        let candidates = surroundings.candidates(&SOUGHT);
        let place = |path: PathBuf| candidates.iter().position(|candidate| candidate.path == path).unwrap();
        let places = [
            place("libsought.so.13".into()),
            place("libsought.so.12".into()),
            place(folder.path().join("program/libsought.so.13")),
            place(install.join("lib64/libsought.so.13")),
            place(install.join("extras/SOUGHT/lib64/libsought.so.13")),
            place(packages.join("nvidia/cu13/lib/libsought.so.13")),
            place(packages.join("nvidia/cu13/lib/libsought.so.12")),
        ];
        assert!(places.is_sorted() && places[6] == candidates.len() - 1, "{places:?}");
        assert_eq!(candidates.iter().filter(|candidate| candidate.by_loader).count(), 2);
        // The first that works is taken, and the rest are not touched.
        let mut asked = Vec::new();
        let found = surroundings.first(&SOUGHT, |candidate| {
            asked.push(candidate.path.clone());
            match candidate.path.ends_with("libsought.so.12") {
                true => Ok("loaded"),
                false => Err(LoadError::TooNew { major: 99, minor: 0 }),
            }
        });
        assert_eq!((found, asked.len()), (Ok("loaded"), 2));
    }

    /// Both layouts of NVIDIA's wheels, in every place where they may lie.
    #[test]
    fn wheels_are_found_wherever_they_are_installed() {
        let home = tempfile::tempdir().unwrap();
        let places = [
            ".local/lib/python3.11/site-packages",
            ".local/share/pipx/venvs/kinora/lib/python3.12/site-packages",
            ".local/share/uv/tools/kinora/lib/python3.13/site-packages",
            ".pyenv/versions/3.12.1/lib/python3.12/site-packages",
            "miniconda3/lib/python3.10/site-packages",
        ];
        let folders = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];
        for (at, place) in places.iter().enumerate() {
            let folder = home.path().join(place).join(folders[at % 2]);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("libsought.so.12"), "").unwrap();
        }
        let sought = Sought { wheel_folders: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"], ..SOUGHT };
        let environments = customary_environments(Some(home.path()));
        let surroundings = Surroundings { environments, ..Surroundings::default() };
        let there =
            |candidate: &Candidate| candidate.path.starts_with(home.path()) && candidate.path.is_file();
        let found = surroundings.candidates(&sought).into_iter().filter(there).count();
        assert_eq!(found, places.len());
    }

    /// Whoever made the folder in which the program happens to run must not have code run by that.
    #[test]
    fn the_current_folder_is_no_place_to_look() {
        let current = std::env::current_dir().unwrap();
        let Surroundings { beside, installs, environments, .. } = Surroundings::of_process(&SOUGHT);
        let named = ["VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH"].map(std::env::var_os);
        let places = installs.iter().chain(&environments).chain(&beside);
        for place in places.filter(|place| !named.contains(&Some(place.as_os_str().to_owned()))) {
            assert!(place.is_absolute() && !place.starts_with(&current), "{}", place.display());
        }
    }

    #[test]
    fn debians_packages_are_found() {
        let root = tempfile::tempdir().unwrap();
        for place in
            ["lib/python3/dist-packages", "lib/python3.9/site-packages", "lib/python3.12/dist-packages"]
        {
            fs::create_dir_all(root.path().join(place)).unwrap();
        }
        let found = site_packages(root.path());
        let found: Vec<_> = found.iter().map(|path| path.strip_prefix(root.path()).unwrap()).collect();
        let expected =
            ["lib/python3.12/dist-packages", "lib/python3.9/site-packages", "lib/python3/dist-packages"];
        assert_eq!(found, expected.map(Path::new));
    }

    #[test]
    fn newer_versions_come_first() {
        assert!(version_in(Path::new("/usr/local/cuda-13.0")) > version_in(Path::new("/usr/local/cuda-9.2")));
        assert!(version_in(Path::new("lib/python3.12")) > version_in(Path::new("lib/python3.9")));
    }
}

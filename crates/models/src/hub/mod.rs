//! Models from the Hugging Face hub, downloaded into the cache that all its clients share.
//!
//! Only what a model needs is downloaded: its index, the configurations, and the weights of one variant. A revision is
//! resolved to a commit first and every file is taken from that commit, so that files of two versions never mix. hf-hub does
//! the transfer; what it leaves out is done here: the length of every file is checked, and a remainder of an earlier download
//! that cannot be continued is thrown away.

mod error;
mod id;
mod transfer;
mod wanted;

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use hf_hub::{
    Cache, CacheRepo, Repo, RepoType,
    api::sync::{ApiBuilder, ApiError},
};

pub use error::HubError;
pub use id::HubId;
use transfer::Commit;

use crate::{
    folder::INDEX,
    weights::{Variant, WeightsError, list},
};

/// The digits of a commit's hash.
const COMMIT_DIGITS: usize = 40;

/// Is called as a download progresses.
pub trait Progress {
    /// `done` of the `total` bytes of a file are there.
    fn downloaded(&mut self, file: &str, done: u64, total: u64);
}

/// Nobody wants to know.
impl Progress for () {
    fn downloaded(&mut self, _: &str, _: u64, _: u64) {}
}

/// The folder of a model that was given as the path of one or as a name on the hub; a path comes first.
///
/// # Errors
/// If the name is neither, or the model cannot be downloaded.
pub fn locate(
    name: impl AsRef<OsStr>,
    variant: &Variant,
    progress: &mut dyn Progress,
) -> Result<PathBuf, HubError> {
    let name = name.as_ref();
    let path = Path::new(name);
    // A broken link is a path as well: its own error is the better one.
    if path.symlink_metadata().is_ok() {
        return Ok(path.to_owned());
    }
    // A path may have any bytes, the name of a model has letters.
    let not_a_model = || HubError::NotAModel(name.to_string_lossy().into_owned());
    let id = name.to_str().and_then(HubId::parse).ok_or_else(not_a_model)?;
    Hub::from_env()?.fetch(&id, variant, progress)
}

/// A hub and the cache for what comes from it. It cannot be printed, so that no log ever shows the token.
#[derive(Clone)]
pub struct Hub {
    /// The hub's address.
    pub endpoint: String,
    /// The folder of the cache.
    pub cache: PathBuf,
    /// What to show the hub for models that are not given to everyone.
    pub token: Option<String>,
    /// Whether only the cache may be used.
    pub offline: bool,
}

impl Hub {
    /// The hub that the environment asks for: `HF_ENDPOINT`, `HF_HUB_CACHE` or `HF_HOME`, `HF_TOKEN` (or the token that
    /// `hf auth login` left) and `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// If there is no home folder to hold a cache.
    pub fn from_env() -> Result<Hub, HubError> {
        Self::from_variables(|name| env::var(name).ok()).ok_or(HubError::NoCache)
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Hub> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = set("HF_HOME")
            .map(PathBuf::from)
            .or_else(|| set("XDG_CACHE_HOME").map(|cache| Path::new(&cache).join("huggingface")))
            .or_else(|| Some(env::home_dir()?.join(".cache").join("huggingface")));
        let cache = set("HF_HUB_CACHE").map(PathBuf::from).or_else(|| Some(home.as_ref()?.join("hub")))?;
        let stored = || {
            let token = fs::read_to_string(home.as_ref()?.join("token")).ok()?;
            Some(token.trim().to_owned()).filter(|token| !token.is_empty())
        };
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Some(Hub {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache,
            token: set("HF_TOKEN").or_else(stored),
            offline: set("HF_HUB_OFFLINE")
                .is_some_and(|value| matches!(&*value.to_lowercase(), "1" | "true" | "yes" | "on")),
        })
    }

    /// Downloads what the cache lacks of a model and gives its folder, which
    /// [`ModelFolder::open`](crate::folder::ModelFolder::open) takes. If the hub cannot be reached, what the cache has
    /// is enough if it is complete.
    ///
    /// # Errors
    /// If the hub cannot be reached or refuses, or the model is not one that Kinora runs.
    pub fn fetch(
        &self,
        id: &HubId,
        variant: &Variant,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        if self.offline {
            return self.cached(id, variant);
        }
        match self.download(id, variant, progress) {
            Err(unreachable @ HubError::Unreachable { .. }) => {
                self.cached(id, variant).map_err(|_| unreachable)
            }
            result => result,
        }
    }

    fn cache_repo(&self, id: &HubId, revision: &str) -> CacheRepo {
        Cache::new(self.cache.clone()).repo(repo(id, revision))
    }

    /// The folder of a model of which the cache has everything.
    fn cached(&self, id: &HubId, variant: &Variant) -> Result<PathBuf, HubError> {
        let missing = |file: &str| HubError::Offline {
            id: id.clone(),
            file: file.to_owned(),
            cache: self.cache.clone(),
        };
        let cache = self.cache_repo(id, id.revision());
        // A branch or tag is a reference to a commit, a commit is a folder itself.
        let index = cache
            .get(INDEX)
            .or_else(|| Some(cache.pointer_path(id.revision()).join(INDEX)).filter(|path| path.exists()))
            .ok_or_else(|| missing(INDEX))?;
        let folder = index.parent().ok_or_else(|| missing(INDEX))?.to_owned();
        let names = files_under(&folder)?;
        wanted::files(id, &folder, &names, variant).map_err(|error| match error {
            HubError::MissingFile { file, .. } => missing(&file),
            HubError::Weights(WeightsError::NotFound { wanted, .. }) => missing(&wanted),
            other => other,
        })?;
        Ok(folder)
    }

    fn download(
        &self,
        id: &HubId,
        variant: &Variant,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        let answer = |source| self.answer(id, "the list of its files", source);
        let api = ApiBuilder::from_cache(Cache::new(self.cache.clone()))
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .with_progress(false)
            .with_user_agent("kinora", env!("CARGO_PKG_VERSION"))
            .build()
            .map_err(answer)?;
        let info = api.repo(repo(id, id.revision())).info().map_err(answer)?;
        // It becomes the name of a folder.
        if info.sha.len() != COMMIT_DIGITS || !info.sha.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            let (id, endpoint) = (id.clone(), self.endpoint.clone());
            return Err(HubError::Commit { id, endpoint, commit: info.sha });
        }
        let names: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
        let cache = self.cache_repo(id, &info.sha);
        let folder = cache.pointer_path(&info.sha);
        let files = api.repo(repo(id, &info.sha));
        let commit = Commit { hub: self, id, api: &api, files, cache, folder: folder.clone() };
        loop {
            let wanted = wanted::files(id, &folder, &names, variant)?;
            match wanted.iter().find(|file| !folder.join(file).exists()) {
                Some(file) => commit.fetch(file, progress)?,
                None => break,
            }
        }
        // Only now does the name stand for this commit: a reference to half a model would look whole.
        let named = self.cache_repo(id, id.revision());
        named.create_ref(&info.sha).map_err(|source| HubError::Cache { path: self.cache.clone(), source })?;
        Ok(folder)
    }

    /// What an error of the client means for a person.
    fn answer(&self, id: &HubId, file: &str, source: ApiError) -> HubError {
        let (id, endpoint, file) = (id.clone(), self.endpoint.clone(), file.to_owned());
        match source {
            ApiError::RequestError(error) => match *error {
                ureq::Error::StatusCode(status @ (401 | 403)) => {
                    HubError::Forbidden { id, endpoint, status, token: self.token.is_some() }
                }
                ureq::Error::StatusCode(404) => HubError::NotFound { id, endpoint },
                ureq::Error::StatusCode(_) | ureq::Error::Json(_) | ureq::Error::BadUri(_) => {
                    HubError::Answer { id, endpoint, file, source: Box::new(ApiError::RequestError(error)) }
                }
                other => HubError::Unreachable { id, endpoint, source: Box::new(other) },
            },
            ApiError::LockAcquisition(_) => HubError::Busy { id, file },
            source => HubError::Answer { id, endpoint, file, source: Box::new(source) },
        }
    }
}

fn repo(id: &HubId, revision: &str) -> Repo {
    Repo::with_revision(id.repo().to_owned(), RepoType::Model, revision.to_owned())
}

/// The files in a folder and in the folders of it, named from there with `/`; no links that lead nowhere.
fn files_under(folder: &Path) -> Result<Vec<String>, HubError> {
    let mut names = Vec::new();
    for name in list(folder)? {
        let path = folder.join(&name);
        if path.is_dir() {
            names.extend(list(&path)?.into_iter().map(|file| format!("{name}/{file}")));
        } else {
            names.push(name);
        }
    }
    names.retain(|name| folder.join(name).exists());
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(variables: &[(&str, &str)]) -> Hub {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        Hub::from_variables(find).unwrap()
    }

    #[test]
    fn the_environment_decides_where_from_and_where_to() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_str().unwrap();
        fs::write(home.path().join("token"), "hf_stored\n").unwrap();
        let plain = hub(&[("HF_HOME", path), ("HF_TOKEN", "")]);
        assert_eq!(plain.endpoint, "https://huggingface.co");
        assert_eq!(plain.cache, home.path().join("hub"));
        assert_eq!(plain.token.as_deref(), Some("hf_stored"));
        assert!(!plain.offline);
        let all = hub(&[
            ("HF_HOME", path),
            ("HF_HUB_CACHE", "/elsewhere"),
            ("HF_ENDPOINT", "http://mirror/"),
            ("HF_TOKEN", "hf_mine"),
            ("HF_HUB_OFFLINE", "1"),
        ]);
        assert_eq!((&*all.endpoint, all.cache.to_str()), ("http://mirror", Some("/elsewhere")));
        assert_eq!(all.token.as_deref(), Some("hf_mine"));
        assert!(all.offline);
        assert!(!hub(&[("HF_HOME", path), ("HF_HUB_OFFLINE", "0")]).offline);
        let xdg = hub(&[("XDG_CACHE_HOME", path)]);
        assert_eq!(xdg.cache, home.path().join("huggingface").join("hub"));
    }
}

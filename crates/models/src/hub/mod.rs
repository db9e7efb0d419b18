//! Models from the Hugging Face hub, downloaded into the cache that all its clients share.
//!
//! Only what a model needs is downloaded: its index, the configurations, and the weights of one variant. A revision is
//! resolved to a commit first and every file is taken from that commit, so that files of two versions never mix.
//!
//! A hub is not trusted. What it sends becomes part of a path only if it is a hash, every file is hashed before it
//! appears, and the token is shown to no server but the hub itself.

mod answer;
mod cache;
mod certificates;
mod client;
mod digest;
mod error;
mod id;
mod inventory;
mod part;
mod patience;
mod redirect;
mod short;
mod transfer;
mod verify;
mod wanted;

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

pub use answer::{AnswerError, FileFacts, ListedFile, Listing, retry_after, start_of_contents};
pub use client::RequestError;
pub use digest::Digest;
pub use error::HubError;
pub use id::HubId;
pub use inventory::{CachedModel, CachedRevision, Removal};
pub use patience::Patience;
pub use redirect::{RedirectError, target as redirect_target};
pub use short::{SHORT_NAMES, ShortName};
pub use verify::{CheckedFile, FileState, verify_folder};

use kinora_outside::read_text;

use self::{
    cache::RepoCache,
    client::Client,
    transfer::{Attempts, Transfer, Trust},
};
use crate::{
    folder::{INDEX, index_name},
    weights::{Variant, WeightsError, list},
};

/// If the list of files does not come, the cache may do: it is not asked for as often as a file.
const LISTING_RETRIES: u32 = 2;
/// The most bytes of the file with the token.
const LONGEST_TOKEN: u64 = 4096;
/// The hub, unless another is named.
const USUAL_ENDPOINT: &str = "https://huggingface.co";
/// What the list of files is called in messages.
const LISTING: &str = "the list of its files";

/// Is called as a download progresses.
pub trait Progress {
    /// `done` of the `total` bytes of a file are there.
    fn downloaded(&mut self, file: &str, done: u64, total: u64);

    /// `done` of the `total` bytes of a file that is in the cache were hashed.
    fn checked(&mut self, _file: &str, _done: u64, _total: u64) {}

    /// Another program downloads a file, and this one waits for it.
    fn waiting(&mut self, _file: &str) {}

    /// A request failed, and is tried again after a pause.
    fn retrying(&mut self, _file: &str, _reason: &str, _pause: Duration) {}
}

/// Nobody wants to know.
impl Progress for () {
    fn downloaded(&mut self, _: &str, _: u64, _: u64) {}
}

/// What the name of a model stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A path on this machine.
    Path(PathBuf),
    /// A model of the hub, perhaps by its short name.
    Model(HubId),
}

/// Whether a name is a path or a model of the hub; a path comes first.
///
/// # Errors
/// If it is neither.
pub fn find(name: impl AsRef<OsStr>) -> Result<Found, HubError> {
    let name = name.as_ref();
    let path = Path::new(name);
    // A broken link is a path as well: its own error is the better one.
    if path.symlink_metadata().is_ok() {
        return Ok(Found::Path(path.to_owned()));
    }
    // A path may have any bytes, the name of a model has letters.
    let not_a_model = || HubError::NotAModel(name.to_string_lossy().into_owned());
    name.to_str().and_then(HubId::parse).map(Found::Model).ok_or_else(not_a_model)
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
    match find(name)? {
        Found::Path(path) => Ok(path),
        Found::Model(id) => Hub::from_env()?.fetch(&id, variant, progress),
    }
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
    /// A PEM file with the certificate authorities to trust, instead of Mozilla's list.
    pub certificates: Option<PathBuf>,
    /// How long to wait, and how often to try again.
    pub patience: Patience,
}

impl Hub {
    /// The hub that the environment asks for: `HF_ENDPOINT`, `HF_HUB_CACHE` or `HF_HOME`, `HF_TOKEN` (or the token that
    /// `hf auth login` left), `HF_HUB_OFFLINE` and `SSL_CERT_FILE`.
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
        let trimmed = |token: String| Some(token.trim().to_owned()).filter(|token| !token.is_empty());
        let stored = || trimmed(read_text(&home.as_ref()?.join("token"), LONGEST_TOKEN).ok()?);
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| USUAL_ENDPOINT.to_owned());
        Some(Hub {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache,
            token: set("HF_TOKEN").and_then(trimmed).or_else(stored),
            offline: set("HF_HUB_OFFLINE")
                .is_some_and(|value| matches!(&*value.to_lowercase(), "1" | "true" | "yes" | "on")),
            certificates: set("SSL_CERT_FILE").map(PathBuf::from),
            patience: Patience::default(),
        })
    }

    /// Downloads what the cache lacks of a model and gives its folder, which
    /// [`ModelFolder::open`](crate::folder::ModelFolder::open) takes. A file in the cache that has another length than
    /// the hub says is downloaded again. If the hub cannot be reached or is out of order, what the cache has is enough
    /// if it is complete.
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
        match self.download(id, variant, Trust::Length, progress) {
            Err(outage) if outage.is_outage() => self.cached(id, variant).map_err(|_| outage),
            result => result,
        }
    }

    /// The same, but what the cache has is hashed, and what is damaged is downloaded again.
    ///
    /// # Errors
    /// As for [`fetch`](Hub::fetch), and if the hub cannot be asked.
    pub fn pull(
        &self,
        id: &HubId,
        variant: &Variant,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        if self.offline {
            return self.cached(id, variant);
        }
        self.download(id, variant, Trust::Nothing, progress)
    }

    /// The folder of a model of which the cache has everything.
    fn cached(&self, id: &HubId, variant: &Variant) -> Result<PathBuf, HubError> {
        let missing = |file: &str| HubError::Offline {
            id: id.clone(),
            file: file.to_owned(),
            cache: self.cache.clone(),
        };
        let cache = RepoCache::new(&self.cache, id);
        let folder = cache.commit_of(id.revision()).map(|commit| cache.snapshot(&commit));
        let has_index = |folder: &PathBuf| index_name(|name| folder.join(name).exists()).is_some();
        let folder = folder.filter(has_index).ok_or_else(|| missing(INDEX))?;
        needed_of(id, &folder, variant).map_err(|error| match error {
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
        trust: Trust,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        let client = Client::new(self)?;
        let listing = self.listing(&client, id, progress)?;
        let names: Vec<String> = listing.files.keys().cloned().collect();
        let cache = RepoCache::new(&self.cache, id);
        let folder = cache.snapshot(&listing.commit);
        let transfer = Transfer { hub: self, id, client: &client, cache: &cache, listing: &listing, trust };
        let mut done = BTreeSet::new();
        loop {
            let ready = |file: &str| done.contains(file);
            let files = wanted::Files { id, folder: &folder, names: &names, ready: &ready };
            let wanted = wanted::files(&files, variant)?;
            let Some(file) = wanted.into_iter().find(|file| !done.contains(file)) else { break };
            transfer.ensure(&file, progress)?;
            done.insert(file);
        }
        // Only now does the name stand for this commit: a reference to half a model would look whole.
        cache.set_reference(id.revision(), &listing.commit)?;
        Ok(folder)
    }

    fn listing(
        &self,
        client: &Client<'_>,
        id: &HubId,
        progress: &mut dyn Progress,
    ) -> Result<Listing, HubError> {
        let mut attempts = Attempts::new(self, self.patience.retries.min(LISTING_RETRIES));
        loop {
            let failed = match client.listing(id) {
                Ok(listing) => return Ok(listing),
                // Whoever has no network should not have to wait.
                Err(error) if error.is_unreachable() => Err(error),
                Err(error) => attempts.failed(error, LISTING, progress),
            };
            failed.map_err(|source| match source {
                RequestError::Status { .. } | RequestError::Answer(_) | RequestError::Token => {
                    self.refused(id, LISTING, source)
                }
                source => HubError::Unreachable {
                    id: id.clone(),
                    endpoint: self.endpoint.clone(),
                    source: Box::new(source),
                },
            })?;
        }
    }

    /// What an answer of the hub means for a person.
    fn refused(&self, id: &HubId, file: &str, source: RequestError) -> HubError {
        let (id, endpoint) = (id.clone(), self.endpoint.clone());
        match source {
            RequestError::Status { status: status @ (401 | 403), from_hub: true, .. } => {
                HubError::Forbidden { id, endpoint, status, token: self.token.is_some() }
            }
            RequestError::Status { status: 404, from_hub: true, .. } => HubError::NotFound { id, endpoint },
            source => HubError::Answer { id, endpoint, file: file.to_owned(), source: Box::new(source) },
        }
    }
}

/// The files that a model in the cache needs, if it has all of them.
fn needed_of(id: &HubId, folder: &Path, variant: &Variant) -> Result<Vec<String>, HubError> {
    let names = files_under(folder)?;
    wanted::files(&wanted::Files { id, folder, names: &names, ready: &|_| true }, variant)
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
        std::fs::write(home.path().join("token"), "hf_stored\n").unwrap();
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
            ("SSL_CERT_FILE", "/company.pem"),
        ]);
        assert_eq!((all.certificates, plain.certificates), (Some("/company.pem".into()), None));
        assert_eq!((&*all.endpoint, all.cache.to_str()), ("http://mirror", Some("/elsewhere")));
        assert_eq!(all.token.as_deref(), Some("hf_mine"));
        assert!(all.offline);
        assert!(!hub(&[("HF_HOME", path), ("HF_HUB_OFFLINE", "0")]).offline);
        let xdg = hub(&[("XDG_CACHE_HOME", path)]);
        assert_eq!(xdg.cache, home.path().join("huggingface").join("hub"));
    }
}

//! What can go wrong with a model of the hub.

use std::{io, path::PathBuf};

use super::{Digest, HubId, RequestError};
use crate::{folder::FolderError, weights::WeightsError};

/// Why a model could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// A name is neither a path nor a model of the hub.
    #[error(
        "{0}: there is no such folder, and it is not the name of a model: a short one ({short}), or one on the hub, which \
         looks like owner/name or owner/name@revision",
        short = super::SHORT_NAMES.map(|short| short.name).join(", ")
    )]
    NotAModel(String),
    /// There is no place for the cache.
    #[error("there is no folder for downloads: set HF_HOME to one, or give the path of a model's folder")]
    NoCache,
    /// The hub's address is not one.
    #[error(
        "{endpoint:?} is not the address of a hub, which looks like https://huggingface.co. Check HF_ENDPOINT"
    )]
    Endpoint {
        /// The address.
        endpoint: String,
    },
    /// The certificate authorities to trust are not known.
    #[error("{} (SSL_CERT_FILE) is not a list of certificates: {source}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The hub could not be reached.
    #[error(
        "{id}: tried to download it from {endpoint}, which cannot be reached: {source}. Check the network{}; \
         the path of a model's folder works offline",
        if endpoint == super::USUAL_ENDPOINT { "" } else { " and HF_ENDPOINT" }
    )]
    Unreachable {
        /// The model.
        id: HubId,
        /// The address of the hub.
        endpoint: String,
        /// Why.
        source: Box<RequestError>,
    },
    /// Downloads are forbidden, and the cache does not have the model.
    #[error(
        "{id}: {file} is not in the cache {}, and HF_HUB_OFFLINE forbids downloading it. Unset HF_HUB_OFFLINE, or \
         give the path of a model's folder",
        cache.display()
    )]
    Offline {
        /// The model.
        id: HubId,
        /// What is not there.
        file: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// The hub refuses access without a token, or with this one.
    #[error(
        "{id}: the hub refuses access (HTTP {status}). It may be gated: accept its licence on \
         {endpoint}/{repo}, make a token at {endpoint}/settings/tokens and set HF_TOKEN to it{}. The hub also says \
         this of names that do not exist",
        if *token { " (one is set, but it is not enough)" } else { "" },
        repo = id.repo()
    )]
    Forbidden {
        /// The model.
        id: HubId,
        /// The address of the hub.
        endpoint: String,
        /// 401 or 403.
        status: u16,
        /// Whether a token was sent.
        token: bool,
    },
    /// There is no such model or revision.
    #[error("{id}: {endpoint} has no such model, or not this revision (HTTP 404)")]
    NotFound {
        /// The model.
        id: HubId,
        /// The address of the hub.
        endpoint: String,
    },
    /// A download was interrupted.
    #[error(
        "{id}: the download of {file} was interrupted: {source}. What has arrived is kept; run the same command again to continue"
    )]
    Interrupted {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
        /// Why.
        source: Box<RequestError>,
    },
    /// A download is not what the hub said it would be.
    #[error(
        "{id}: {file} arrived twice with contents other than the hub announced ({expected}). It was discarded. Try again \
         later, or another mirror"
    )]
    Contents {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
        /// What its contents should hash to.
        expected: Digest,
    },
    /// The hub gave an answer that makes no sense.
    #[error("{id}: {endpoint} gave an unexpected answer to the request for {file}: {source}")]
    Answer {
        /// The model.
        id: HubId,
        /// The address of the hub.
        endpoint: String,
        /// What was asked for.
        file: String,
        /// What is wrong with it.
        source: Box<RequestError>,
    },
    /// The repository lacks a file that a model's folder has.
    #[error("{id}: the hub has no {file} for it, so Kinora cannot run it")]
    MissingFile {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
    },
    /// A file of the cache could not be read or written.
    #[error("{}: {source}{}", path.display(), if is_full(source) { FULL } else { "" })]
    Cache {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another program downloads the same file.
    #[error(
        "{id}: another program downloads {file}, but makes no progress. End that program, or wait for it, and try again"
    )]
    Busy {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
    },
    /// A model that is being downloaded cannot be removed.
    #[error("{id} cannot be removed: another program is downloading it")]
    InUse {
        /// The model.
        id: HubId,
    },
    /// Nothing says what the files of a folder should be.
    #[error(
        "{}: nothing says what its files should be: they were copied, or made here. Only what Kinora or `hf download` \
         downloaded can be verified",
        path.display()
    )]
    NoHashes {
        /// The folder.
        path: PathBuf,
    },
    /// The cache does not have a model.
    #[error("{id} is not in the cache {}", cache.display())]
    NotCached {
        /// The model.
        id: HubId,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// The model's index.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The model's weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

impl HubError {
    /// Whether the hub cannot be reached or is out of order, which says nothing about the model.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            HubError::Unreachable { .. } => true,
            HubError::Answer { source, .. } => source.may_pass(),
            _ => false,
        }
    }
}

/// What to do about a full disk.
const FULL: &str = ". Make room, or set HF_HOME to a folder on another disk; what has arrived is kept";

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

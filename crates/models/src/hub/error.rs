//! What can go wrong with a model of the hub.

use std::{io, path::PathBuf};

use hf_hub::api::sync::ApiError;

use super::HubId;
use crate::{folder::FolderError, weights::WeightsError};

/// Why a model could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// A name is neither a path nor a model of the hub.
    #[error(
        "{0}: there is no such folder, and it is not the name of a model on the hub, which looks like \
         stabilityai/stable-video-diffusion-img2vid-xt or owner/name@revision"
    )]
    NotAModel(String),
    /// There is no place for the cache.
    #[error("there is no folder for downloads: set HF_HOME to one, or give the path of a model's folder")]
    NoCache,
    /// The hub could not be reached.
    #[error(
        "{id}: tried to download it from {endpoint}, which cannot be reached: {source}. Check the network and \
         HF_ENDPOINT; the path of a model's folder works offline"
    )]
    Unreachable {
        /// The model.
        id: HubId,
        /// The address of the hub.
        endpoint: String,
        /// What the client says.
        source: Box<ureq::Error>,
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
        /// What the system says.
        source: io::Error,
    },
    /// A download has another length than the hub said.
    #[error("{id}: {file} should have {expected} bytes, but {got} arrived. It was discarded; try again")]
    Length {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
        /// What the hub said.
        expected: u64,
        /// What arrived.
        got: u64,
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
        /// What the client says.
        source: Box<ApiError>,
    },
    /// The hub named a commit that cannot be one.
    #[error(
        "{id}: {endpoint} says that its commit is {commit:?}, which is not a hash of 40 hexadecimal digits"
    )]
    Commit {
        /// The model.
        id: HubId,
        /// The address of the hub.
        endpoint: String,
        /// What the hub said.
        commit: String,
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
    #[error("{}: {source}", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another program downloads the same file.
    #[error("{id}: {file} is being downloaded by another program. Wait for it and try again")]
    Busy {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
    },
    /// The model's index.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The model's weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

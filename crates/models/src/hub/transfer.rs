//! The download of one file.

use std::{fs, io, path::PathBuf};

use hf_hub::{
    CacheRepo,
    api::{
        self,
        sync::{Api, ApiError, ApiRepo},
    },
};

use super::{Hub, HubError, HubId, Progress};

/// The files of one commit of a model.
pub(super) struct Commit<'a> {
    pub hub: &'a Hub,
    pub id: &'a HubId,
    pub api: &'a Api,
    pub files: ApiRepo,
    pub cache: CacheRepo,
    /// Where the cache has the commit's files.
    pub folder: PathBuf,
}

impl Commit<'_> {
    /// Downloads a file that is not in the folder.
    pub fn fetch(&self, file: &str, progress: &mut dyn Progress) -> Result<(), HubError> {
        let path = self.folder.join(file);
        // A link whose file was deleted stands in the way of a new one.
        if path.symlink_metadata().is_ok() && !path.exists() {
            fs::remove_file(&path).map_err(|source| HubError::Cache { path: path.clone(), source })?;
        }
        let mut meter = Meter { file, done: 0, total: 0, progress };
        let mut result = self.files.download_with_progress(file, &mut meter);
        if let Err(error) = &result
            && cannot_continue(error)
            && self.discard_remainder(file)
        {
            result = self.files.download_with_progress(file, &mut meter);
        }
        let expected = meter.total;
        let got = result.map_err(|error| self.broken(file, error))?;
        if !path.exists() {
            // The server says that the file belongs to another commit than the one it was asked for.
            return Err(self.hub.answer(self.id, file, ApiError::InvalidHeader("x-repo-commit")));
        }
        self.check_length(file, got, expected)
    }

    /// hf-hub takes whatever came for the whole file.
    fn check_length(&self, file: &str, path: PathBuf, expected: u64) -> Result<(), HubError> {
        let cache = |source| HubError::Cache { path: path.clone(), source };
        let got = fs::metadata(&path).map_err(cache)?.len();
        if got == expected {
            return Ok(());
        }
        let blob = fs::canonicalize(&path).map_err(cache)?;
        fs::remove_file(&path).map_err(cache)?;
        if blob != path && blob.exists() {
            fs::remove_file(&blob).map_err(cache)?;
        }
        Err(HubError::Length { id: self.id.clone(), file: file.to_owned(), expected, got })
    }

    /// Throws away what an earlier download left; whether there was something.
    fn discard_remainder(&self, file: &str) -> bool {
        let Ok(metadata) = self.api.metadata(&self.files.url(file)) else { return false };
        fs::remove_file(self.cache.blob_path(metadata.etag()).with_extension("part")).is_ok()
    }

    fn broken(&self, file: &str, error: ApiError) -> HubError {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull};
        match error {
            ApiError::IoError(source) => match source.kind() {
                StorageFull | PermissionDenied | ReadOnlyFilesystem | NotFound | NotADirectory => {
                    HubError::Cache { path: self.hub.cache.clone(), source }
                }
                _ => HubError::Interrupted { id: self.id.clone(), file: file.to_owned(), source },
            },
            other => self.hub.answer(self.id, file, other),
        }
    }
}

/// Whether what an earlier download left is as long as the file, or longer: then hf-hub fails each time anew.
fn cannot_continue(error: &ApiError) -> bool {
    match error {
        ApiError::InvalidResume => true,
        ApiError::RequestError(error) => matches!(**error, ureq::Error::StatusCode(416)),
        _ => false,
    }
}

/// Adds up the bytes of a file.
struct Meter<'a> {
    file: &'a str,
    done: u64,
    total: u64,
    progress: &'a mut dyn Progress,
}

impl api::Progress for &mut Meter<'_> {
    fn init(&mut self, size: usize, _: &str) {
        (self.done, self.total) = (0, size as u64);
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        self.progress.downloaded(self.file, self.done, self.total);
    }

    fn finish(&mut self) {}
}

//! The download of a commit's files: each is there, continued, or fetched, and hashed before it appears.

use std::{fs, path::Path, thread, time::Duration};

use super::{
    Hub, HubError, HubId, Progress,
    answer::{AnswerError, FileFacts, ListedFile, Listing},
    cache::{RepoCache, at},
    client::{Client, RequestError},
    part::{CHUNK, Part, digest_of, read_some},
};

/// As much must arrive for a failure not to count as one after another.
const WORTH_A_RETRY: u64 = 1 << 20;
/// The longest configuration or index. Weights are not read as a whole, so they may be as long as they like.
const LONGEST_JSON: u64 = 32 << 20;

/// How much is believed of a file that is in the cache already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// A file of the right length is the right one.
    Length,
    /// Its contents are hashed.
    Nothing,
}

/// The files of one commit of a model.
pub(super) struct Transfer<'a> {
    pub hub: &'a Hub,
    pub id: &'a HubId,
    pub client: &'a Client<'a>,
    pub cache: &'a RepoCache,
    pub listing: &'a Listing,
    pub trust: Trust,
}

impl Transfer<'_> {
    /// Makes sure that the cache has a file.
    pub fn ensure(&self, file: &str, progress: &mut dyn Progress) -> Result<(), HubError> {
        let listed = self.listing.files.get(file).copied().unwrap_or_default();
        if self.is_there(file, listed, progress)? {
            return Ok(());
        }
        let facts = self.facts(file, listed, progress)?;
        if file.ends_with(".json") && facts.size > LONGEST_JSON {
            return Err(self.too_long(file));
        }
        let patience = self.hub.patience.other_program;
        let _lock = self.cache.lock(self.id, file, facts.digest, patience, progress)?;
        let blob = self.cache.blob(facts.digest);
        let new = !self.is_whole(&blob, file, facts, progress)?;
        if new {
            if blob.symlink_metadata().is_ok() {
                fs::remove_file(&blob).map_err(at(&blob))?;
            }
            self.download(file, facts, Part::open(&blob, facts)?, progress)?;
        }
        self.cache.link(facts.digest, &self.listing.commit, file, new)
    }

    /// Whether the file is in the commit's folder, as far as it is trusted.
    fn is_there(
        &self,
        file: &str,
        listed: ListedFile,
        progress: &mut dyn Progress,
    ) -> Result<bool, HubError> {
        let path = self.cache.snapshot(&self.listing.commit).join(file);
        let Ok(metadata) = fs::metadata(&path) else { return Ok(false) };
        if !metadata.is_file() || listed.size.is_some_and(|size| size != metadata.len()) {
            return Ok(false);
        }
        match (self.trust, listed) {
            (Trust::Length, _) => Ok(true),
            (Trust::Nothing, ListedFile { size: Some(size), digest: Some(digest) }) => {
                self.is_whole(&path, file, FileFacts { size, digest }, progress)
            }
            // The hub is asked what it should be.
            (Trust::Nothing, _) => Ok(false),
        }
    }

    /// Whether a file on the disk is the one, as far as it is trusted.
    fn is_whole(
        &self,
        path: &Path,
        file: &str,
        facts: FileFacts,
        progress: &mut dyn Progress,
    ) -> Result<bool, HubError> {
        let there = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == facts.size);
        if !there || self.trust == Trust::Length {
            return Ok(there);
        }
        let watch = |done, total| progress.checked(file, done, total);
        Ok(digest_of(path, facts.digest, watch).map_err(at(path))? == facts.digest)
    }

    /// What the file must be: as the listing says, or the hub is asked.
    fn facts(
        &self,
        file: &str,
        listed: ListedFile,
        progress: &mut dyn Progress,
    ) -> Result<FileFacts, HubError> {
        if let ListedFile { size: Some(size), digest: Some(digest) } = listed {
            return Ok(FileFacts { size, digest });
        }
        let mut attempts = Attempts::new(self.hub, self.hub.patience.retries);
        loop {
            match self.client.facts(&self.address(file), &self.listing.commit, listed) {
                Ok(facts) => return Ok(facts),
                Err(error) => attempts.failed(error, file, progress).map_err(|e| self.failed(file, e))?,
            }
        }
    }

    /// Downloads a blob. What the hub did not mean to send is thrown away, and asked for once more.
    fn download(
        &self,
        file: &str,
        facts: FileFacts,
        mut part: Part,
        progress: &mut dyn Progress,
    ) -> Result<(), HubError> {
        for last in [false, true] {
            self.receive(file, facts, &mut part, progress)?;
            match part.finish()? {
                None => return Ok(()),
                Some(empty) if last => {
                    empty.discard()?;
                    break;
                }
                Some(empty) => {
                    progress.retrying(
                        file,
                        "what arrived is not what the hub says the file is",
                        Duration::ZERO,
                    );
                    part = empty;
                }
            }
        }
        Err(HubError::Contents { id: self.id.clone(), file: file.to_owned(), expected: facts.digest })
    }

    /// Receives a blob to its end, over as many connections as it takes.
    fn receive(
        &self,
        file: &str,
        facts: FileFacts,
        part: &mut Part,
        progress: &mut dyn Progress,
    ) -> Result<(), HubError> {
        let mut attempts = Attempts::new(self.hub, self.hub.patience.retries);
        progress.downloaded(file, part.length(), facts.size);
        let mut furthest = part.length();
        while part.length() < facts.size {
            let error = match self.receive_some(file, facts, part, progress)? {
                Ok(()) => continue,
                Err(error) => error,
            };
            // A server that sends the beginning again and again gets nowhere.
            if part.length() >= furthest.saturating_add(WORTH_A_RETRY) {
                attempts.failures = 0;
                furthest = part.length();
            }
            if matches!(error, RequestError::CannotContinue) {
                part.restart()?;
            }
            attempts.failed(error, file, progress).map_err(|error| self.failed(file, error))?;
        }
        Ok(())
    }

    /// Receives what one connection gives.
    fn receive_some(
        &self,
        file: &str,
        facts: FileFacts,
        part: &mut Part,
        progress: &mut dyn Progress,
    ) -> Result<Result<(), RequestError>, HubError> {
        let mut contents = match self.client.contents(&self.address(file), part.length(), facts.size) {
            Ok(contents) => contents,
            Err(error) => return Ok(Err(error)),
        };
        if contents.start != part.length() {
            part.restart()?;
        }
        let mut buffer = vec![0; CHUNK];
        while part.length() < facts.size {
            let left = usize::try_from(facts.size - part.length()).unwrap_or(CHUNK).min(CHUNK);
            match read_some(&mut contents.body, &mut buffer[..left]) {
                Ok(0) => return Ok(Err(RequestError::EndedEarly)),
                Ok(read) => part.append(&buffer[..read])?,
                Err(error) => return Ok(Err(self.client.broken(error))),
            }
            progress.downloaded(file, part.length(), facts.size);
        }
        Ok(Ok(()))
    }

    fn address(&self, file: &str) -> String {
        self.client.file_address(self.id, &self.listing.commit, file)
    }

    /// What a request for a file that failed means for a person.
    fn failed(&self, file: &str, error: RequestError) -> HubError {
        let (id, file) = (self.id.clone(), file.to_owned());
        match error {
            RequestError::Status { status: 404, from_hub: true, .. } => HubError::MissingFile { id, file },
            error if error.may_pass() => HubError::Interrupted { id, file, source: Box::new(error) },
            error => self.hub.refused(self.id, &file, error),
        }
    }

    fn too_long(&self, file: &str) -> HubError {
        let error = AnswerError::TooLong { limit: LONGEST_JSON };
        self.hub.refused(self.id, file, error.into())
    }
}

/// Counts failures in a row, and waits between them.
pub(super) struct Attempts<'a> {
    hub: &'a Hub,
    most: u32,
    failures: u32,
}

impl<'a> Attempts<'a> {
    /// Allows as many failures.
    pub fn new(hub: &'a Hub, most: u32) -> Self {
        Attempts { hub, most, failures: 0 }
    }

    /// Waits before the next attempt, or gives the error back if there should be none.
    pub fn failed(
        &mut self,
        error: RequestError,
        file: &str,
        progress: &mut dyn Progress,
    ) -> Result<(), RequestError> {
        self.failures += 1;
        if !error.may_pass() || self.failures > self.most {
            return Err(error);
        }
        let asked = match error {
            RequestError::Status { retry_after, .. } => retry_after,
            _ => None,
        };
        let pause = self.hub.patience.pause_after(self.failures, asked);
        progress.retrying(file, &error.to_string(), pause);
        thread::sleep(pause);
        Ok(())
    }
}

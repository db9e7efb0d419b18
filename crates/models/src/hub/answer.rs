//! What a hub answers, read without trust. Everything here is a pure function of the bytes that came.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use super::{
    digest::Digest,
    redirect::{RedirectError, shown},
};

/// The digits of a commit's hash.
const COMMIT_DIGITS: usize = 40;
/// The longest name of a file, its deepest nesting, and the longest name in it that file systems take.
const LONGEST_NAME: usize = 1024;
const DEEPEST_NAME: usize = 16;
const LONGEST_WORD: usize = 255;

/// Why an answer makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The list of files is something else.
    #[error("it is not a list of files: {0}")]
    NotAList(#[source] serde_json::Error),
    /// An answer that should be small is not.
    #[error("it is longer than {limit} bytes")]
    TooLong {
        /// The most that is read.
        limit: u64,
    },
    /// The commit cannot be one.
    #[error("it names the commit {0:?}, which is not a hash of {COMMIT_DIGITS} hexadecimal digits")]
    Commit(String),
    /// The files belong to another commit than the one that was asked for.
    #[error("x-repo-commit says {0:?}, which is not the commit that was asked for")]
    OtherCommit(String),
    /// A header has a value that it cannot have.
    #[error("the header {name} is {value:?}")]
    Header {
        /// Its name.
        name: &'static str,
        /// The beginning of its value.
        value: String,
    },
    /// A header is missing.
    #[error("it lacks the header {0}")]
    NoHeader(&'static str),
    /// The list of files and the headers of a file do not agree.
    #[error("it contradicts the list of files about the {0}")]
    Contradiction(&'static str),
    /// The file would come with another length.
    #[error("it has {got} bytes, but {expected} were expected")]
    Length {
        /// What was expected.
        expected: u64,
        /// What the answer says.
        got: u64,
    },
    /// The contents are compressed although that was not asked for.
    #[error("it is compressed ({0:?}), although it was asked for as it is")]
    Compressed(String),
    /// A redirect that is not followed.
    #[error(transparent)]
    Redirect(#[from] RedirectError),
}

/// The files of a model at one commit.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The commit: 40 hexadecimal digits.
    pub commit: String,
    /// The files, by names that are safe below a folder. Others are left out: no model that Kinora runs has them.
    pub files: BTreeMap<String, ListedFile>,
}

/// What a listing says about a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListedFile {
    /// Its length.
    pub size: Option<u64>,
    /// What its contents hash to.
    pub digest: Option<Digest>,
}

/// The listing as it is sent.
#[derive(Deserialize)]
struct SentListing {
    sha: String,
    siblings: Vec<SentFile>,
}

#[derive(Deserialize)]
struct SentFile {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<SentLargeFile>,
}

#[derive(Deserialize)]
struct SentLargeFile {
    sha256: Option<String>,
}

impl Listing {
    /// Reads the answer to `/api/models/OWNER/NAME/revision/REVISION?blobs=true`.
    ///
    /// # Errors
    /// If it is not a listing, or its commit is not a commit.
    pub fn parse(body: &[u8]) -> Result<Listing, AnswerError> {
        let sent: SentListing = serde_json::from_slice(body).map_err(AnswerError::NotAList)?;
        // It becomes the name of a folder.
        if !is_commit(&sent.sha) {
            return Err(AnswerError::Commit(shown(sent.sha.as_bytes())));
        }
        let files = sent.siblings.into_iter().filter(|file| is_safe_name(&file.rfilename));
        let files = files.map(|file| (file.rfilename.clone(), ListedFile::from(&file))).collect();
        Ok(Listing { commit: sent.sha, files })
    }
}

impl From<&SentFile> for ListedFile {
    fn from(file: &SentFile) -> Self {
        let digest = match &file.lfs {
            // The blob in git is only a pointer to a large file.
            Some(large) => large.sha256.as_deref().and_then(Digest::parse),
            None => file.blob_id.as_deref().and_then(Digest::parse),
        };
        let fits = match digest {
            Some(Digest::Sha256(_)) => file.lfs.is_some(),
            Some(Digest::GitBlob(_)) => file.lfs.is_none(),
            None => false,
        };
        ListedFile { size: file.size, digest: digest.filter(|_| fits) }
    }
}

/// Whether a text is a commit's hash.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == COMMIT_DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Whether a name means a file below the folder it is looked up in, on every system.
pub(super) fn is_safe_name(name: &str) -> bool {
    let fits = |word: &str| !matches!(word, "" | "." | "..") && word.len() <= LONGEST_WORD;
    name.len() <= LONGEST_NAME
        && name.split('/').count() <= DEEPEST_NAME
        && name.split('/').all(fits)
        && !name.contains(['\\', ':'])
        && !name.contains(char::is_control)
}

/// What is known about a file before it is downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Its length.
    pub size: u64,
    /// What its contents hash to: the name of its blob in the cache.
    pub digest: Digest,
}

impl FileFacts {
    /// Reads the headers of the answer to a `HEAD` request for a file of a commit, where the listing did not say
    /// everything. `redirected` says whether the answer is a redirect to another server, whose `Content-Length` is not
    /// the file's.
    ///
    /// # Errors
    /// If something is missing, cannot be, or contradicts the listing.
    pub fn read<'h>(
        header: impl Fn(&str) -> Option<&'h [u8]>,
        redirected: bool,
        commit: &str,
        listed: ListedFile,
    ) -> Result<FileFacts, AnswerError> {
        if let Some(said) = header("x-repo-commit").filter(|said| *said != commit.as_bytes()) {
            return Err(AnswerError::OtherCommit(shown(said)));
        }
        let etag = |name: &'static str| {
            header(name).map(|value| {
                Digest::from_etag(value).ok_or_else(|| AnswerError::Header { name, value: shown(value) })
            })
        };
        let length = |name: &'static str| {
            header(name)
                .map(|value| number(value).ok_or_else(|| AnswerError::Header { name, value: shown(value) }))
        };
        let digest = etag("x-linked-etag").or_else(|| etag("etag")).transpose()?;
        let size = length("x-linked-size")
            .or_else(|| if redirected { None } else { length("content-length") })
            .transpose()?;
        Ok(FileFacts {
            digest: agreed(listed.digest, digest, "contents")?.ok_or(AnswerError::NoHeader("etag"))?,
            size: agreed(listed.size, size, "length")?.ok_or(AnswerError::NoHeader("content-length"))?,
        })
    }
}

/// What at least one of two sources says, if they do not contradict each other.
fn agreed<T: PartialEq>(
    listed: Option<T>,
    said: Option<T>,
    what: &'static str,
) -> Result<Option<T>, AnswerError> {
    match (listed, said) {
        (Some(listed), Some(said)) if listed != said => Err(AnswerError::Contradiction(what)),
        (listed, said) => Ok(listed.or(said)),
    }
}

/// Where a file's contents start in the answer to a request for its bytes from `from` on: there, or at 0 if the server
/// sends everything.
///
/// # Errors
/// If the answer has another part of the file, another length, or is compressed. [`AnswerError::Header`] of
/// `content-range` means that the file should be asked for from its start.
pub fn start_of_contents<'h>(
    status: u16,
    header: impl Fn(&str) -> Option<&'h [u8]>,
    from: u64,
    size: u64,
) -> Result<u64, AnswerError> {
    if let Some(encoding) = header("content-encoding").filter(|e| !e.eq_ignore_ascii_case(b"identity")) {
        return Err(AnswerError::Compressed(shown(encoding)));
    }
    let start = if status == 206 {
        let name = "content-range";
        let value = header(name).ok_or(AnswerError::NoHeader(name))?;
        let fits = content_range(value).is_some_and(|(first, last, total)| {
            first == from && last.checked_add(1) == Some(size) && total.is_none_or(|total| total == size)
        });
        if !fits {
            return Err(AnswerError::Header { name, value: shown(value) });
        }
        from
    } else {
        0
    };
    let expected = size.saturating_sub(start);
    match header("content-length") {
        None => Ok(start),
        Some(value) => match number(value) {
            Some(got) if got == expected => Ok(start),
            Some(got) => Err(AnswerError::Length { expected, got }),
            None => Err(AnswerError::Header { name: "content-length", value: shown(value) }),
        },
    }
}

/// `bytes FIRST-LAST/TOTAL`, or `*` for the total.
fn content_range(value: &[u8]) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = str::from_utf8(value).ok()?.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(number(total.as_bytes())?) };
    Some((number(first.as_bytes())?, number(last.as_bytes())?, total))
}

/// The pause that a `Retry-After` asks for. A date is not read: nobody knows whose clock is right.
pub fn retry_after(value: &[u8]) -> Option<Duration> {
    number(value).map(Duration::from_secs)
}

/// Decimal digits and nothing else.
fn number(value: &[u8]) -> Option<u64> {
    let text = str::from_utf8(value).ok()?.trim();
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    const GIT: &str = "ce013625030ba8dba906f756967f9e9ca394464a";
    const SHA256: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

    #[test]
    fn a_listing_has_lengths_and_digests() {
        let body = serde_json::json!({ "sha": COMMIT, "siblings": [
            { "rfilename": "small.json", "size": 6, "blobId": GIT },
            { "rfilename": "a/large", "size": 7, "blobId": GIT, "lfs": { "sha256": SHA256, "size": 7, "pointerSize": 1 } },
            { "rfilename": "bare" },
            { "rfilename": "odd", "size": null, "blobId": SHA256, "lfs": null },
            { "rfilename": "pointer", "blobId": GIT, "lfs": { "sha256": GIT } },
        ]});
        let listing = Listing::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(listing.commit, COMMIT);
        let file = |size, digest| ListedFile { size, digest: Digest::parse(digest) };
        assert_eq!(listing.files["small.json"], file(Some(6), GIT));
        assert_eq!(listing.files["a/large"], file(Some(7), SHA256));
        for name in ["bare", "odd", "pointer"] {
            assert_eq!(listing.files[name], file(None, ""), "{name}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_left_out() {
        let deep = ["a"; DEEPEST_NAME + 1].join("/");
        let long = "a".repeat(LONGEST_WORD + 1);
        for name in [
            "",
            ".",
            "..",
            "/etc/passwd",
            "a//b",
            "a/",
            "a/../b",
            "../a",
            "./a",
            "a\\b",
            "C:a",
            "a\0",
            "a\nb",
            "a\u{1b}[2J",
            &deep,
            &long,
        ] {
            let body = serde_json::json!({ "sha": COMMIT, "siblings": [{ "rfilename": name }] }).to_string();
            assert!(Listing::parse(body.as_bytes()).unwrap().files.is_empty(), "{name:?}");
        }
        assert!(is_safe_name("unet/..a.safetensors") && is_safe_name("Ä/ö"));
    }

    #[test]
    fn whatever_else_comes_is_no_listing() {
        for body in [
            "",
            "<html>",
            "null",
            "[]",
            "{}",
            "7",
            "\"\"",
            r#"{"sha": 1}"#,
            r#"{"sha": null, "siblings": []}"#,
        ] {
            assert!(Listing::parse(body.as_bytes()).is_err(), "{body}");
        }
        for sha in [
            "",
            "main",
            "../../x",
            &COMMIT[1..],
            &format!("{COMMIT}0"),
            "g123456789abcdef0123456789abcdef01234567",
        ] {
            let body = serde_json::json!({ "sha": sha, "siblings": [] }).to_string();
            assert!(matches!(Listing::parse(body.as_bytes()), Err(AnswerError::Commit(_))), "{sha}");
        }
        assert!(Listing::parse("[".repeat(100_000).as_bytes()).is_err());
        assert!(Listing::parse(&[0xff; 9]).is_err());
    }

    fn facts(
        headers: &[(&str, &str)],
        redirected: bool,
        listed: ListedFile,
    ) -> Result<FileFacts, AnswerError> {
        let find =
            |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes());
        FileFacts::read(find, redirected, COMMIT, listed)
    }

    #[test]
    fn headers_say_what_the_listing_left_out() {
        let nothing = ListedFile::default();
        let known = |size, digest| FileFacts { size, digest: Digest::parse(digest).unwrap() };
        let plain = [("etag", GIT), ("content-length", "6"), ("x-repo-commit", COMMIT)];
        assert_eq!(facts(&plain, false, nothing).unwrap(), known(6, GIT));
        let listed = ListedFile { size: Some(6), digest: Digest::parse(GIT) };
        assert_eq!(facts(&plain, false, listed).unwrap(), known(6, GIT));
        let linked =
            [("etag", "\"cdn\""), ("content-length", "9"), ("x-linked-etag", SHA256), ("x-linked-size", "7")];
        assert_eq!(facts(&linked, true, nothing).unwrap(), known(7, SHA256));
        // The length of a redirect's own body is not the file's.
        assert!(matches!(facts(&plain, true, nothing), Err(AnswerError::NoHeader("content-length"))));
        let listed = ListedFile { size: Some(6), digest: None };
        assert_eq!(facts(&plain[..1], true, listed).unwrap(), known(6, GIT));
        let listed = ListedFile { size: Some(5), digest: None };
        assert!(matches!(facts(&plain, false, listed), Err(AnswerError::Contradiction("length"))));
        let listed = ListedFile { size: None, digest: Digest::parse(SHA256) };
        assert!(matches!(facts(&plain, false, listed), Err(AnswerError::Contradiction("contents"))));
        assert!(matches!(facts(&plain[1..], false, nothing), Err(AnswerError::NoHeader("etag"))));
        assert!(matches!(
            facts(&[("x-repo-commit", "main")], false, nothing),
            Err(AnswerError::OtherCommit(_))
        ));
        for length in ["", "-1", "+6", "6.0", "0x6", "99999999999999999999", "6, 6"] {
            let headers = [("etag", GIT), ("content-length", length)];
            assert!(matches!(facts(&headers, false, nothing), Err(AnswerError::Header { .. })), "{length}");
        }
    }

    #[test]
    fn contents_start_where_the_server_says_or_not_at_all() {
        let start = |status, headers: &[(&str, &str)], from| {
            let find =
                |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes());
            start_of_contents(status, find, from, 10)
        };
        assert_eq!(start(206, &[("content-range", "bytes 4-9/10"), ("content-length", "6")], 4).unwrap(), 4);
        assert_eq!(start(206, &[("content-range", "bytes 4-9/*")], 4).unwrap(), 4);
        assert_eq!(start(200, &[("content-length", "10")], 4).unwrap(), 0);
        assert_eq!(start(200, &[("content-encoding", "identity")], 0).unwrap(), 0);
        for range in [
            "",
            "bytes",
            "bytes 4-9",
            "bytes 0-9/10",
            "bytes 4-8/10",
            "bytes 4-9/11",
            "bytes 4-10/10",
            "bytes 9-4/10",
            "bytes */10",
            "items 4-9/10",
            "bytes 4-18446744073709551615/10",
            "bytes -4-9/10",
        ] {
            assert!(start(206, &[("content-range", range)], 4).is_err(), "{range}");
        }
        assert!(matches!(start(206, &[], 4), Err(AnswerError::NoHeader(_))));
        for length in ["9", "11", "0", "-1", "", "18446744073709551616"] {
            assert!(start(200, &[("content-length", length)], 0).is_err(), "{length}");
        }
        assert!(matches!(start(200, &[("content-encoding", "gzip")], 0), Err(AnswerError::Compressed(_))));
    }

    #[test]
    fn pauses_are_whole_seconds() {
        assert_eq!(retry_after(b"120"), Some(Duration::from_secs(120)));
        for value in ["", "-1", "1.5", "Wed, 21 Oct 2015 07:28:00 GMT", "99999999999999999999999"] {
            assert_eq!(retry_after(value.as_bytes()), None, "{value}");
        }
    }
}

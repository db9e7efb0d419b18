//! The hashes that name the contents of a file on the hub, and in the cache.

use std::fmt;

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// What a file's contents hash to. The hub names a large file by its SHA-256 and a small one as git does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Digest {
    /// The SHA-1 of a git blob: of `blob LENGTH\0` and the contents.
    GitBlob([u8; 20]),
    /// The SHA-256 of the contents.
    Sha256([u8; 32]),
}

impl Digest {
    /// Reads 40 or 64 hexadecimal digits. Nothing else becomes the name of a file.
    pub fn parse(text: &str) -> Option<Digest> {
        match text.len() {
            40 => hexadecimal(text).map(Digest::GitBlob),
            64 => hexadecimal(text).map(Digest::Sha256),
            _ => None,
        }
    }

    /// Reads an `ETag`: a digest, perhaps in quotes, perhaps marked as weak.
    pub fn from_etag(value: &[u8]) -> Option<Digest> {
        let text = str::from_utf8(value).ok()?.trim();
        let text = text.strip_prefix("W/").unwrap_or(text);
        Digest::parse(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text))
    }

    /// Starts to hash contents of this length, to be compared with this digest.
    pub(super) fn hasher(self, length: u64) -> Hasher {
        match self {
            Digest::GitBlob(_) => {
                Hasher::GitBlob(Sha1::new_with_prefix(format!("blob {length}\0").as_bytes()))
            }
            Digest::Sha256(_) => Hasher::Sha256(Sha256::new()),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: &[u8] = match self {
            Digest::GitBlob(bytes) => bytes,
            Digest::Sha256(bytes) => bytes,
        };
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The digest of contents that arrive in pieces.
pub(super) enum Hasher {
    GitBlob(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::GitBlob(sha1) => sha1.update(bytes),
            Hasher::Sha256(sha256) => sha256.update(bytes),
        }
    }

    pub fn finish(self) -> Digest {
        match self {
            Hasher::GitBlob(sha1) => Digest::GitBlob(sha1.finalize().into()),
            Hasher::Sha256(sha256) => Digest::Sha256(sha256.finalize().into()),
        }
    }
}

fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_of(text: &[u8], like: &str) -> String {
        let mut hasher = Digest::parse(like).unwrap().hasher(text.len() as u64);
        hasher.update(&text[..text.len() / 2]);
        hasher.update(&text[text.len() / 2..]);
        hasher.finish().to_string()
    }

    /// As `sha256sum` and `git hash-object` print them.
    #[test]
    fn digests_are_those_of_git_and_sha256sum() {
        let (git, sha256) = ("0".repeat(40), "0".repeat(64));
        assert_eq!(digest_of(b"hello\n", &git), "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(digest_of(b"", &git), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            digest_of(b"hello\n", &sha256),
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
        );
    }

    #[test]
    fn an_etag_is_a_digest_or_nothing() {
        let digits = "ce013625030ba8dba906f756967f9e9ca394464a";
        let known = Digest::parse(digits);
        assert_eq!(known.unwrap().to_string(), digits);
        for etag in
            [digits.to_owned(), format!("\"{digits}\""), format!("W/\"{digits}\""), digits.to_uppercase()]
        {
            assert_eq!(Digest::from_etag(etag.as_bytes()), known, "{etag}");
        }
        for etag in [
            "",
            "\"",
            "\"\"",
            "../../../../etc/passwd",
            "ce013625030ba8dba906f756967f9e9ca394464",
            "ce013625030ba8dba906f756967f9e9ca394464aa",
            "ce013625030ba8dba906f756967f9e9ca394464g",
            "+e013625030ba8dba906f756967f9e9ca394464a",
            "\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}\u{ff11}1",
            "ce013625030ba8dba906f756967f9e9ca394464a\0",
        ] {
            assert_eq!(Digest::from_etag(etag.as_bytes()), None, "{etag}");
        }
        assert_eq!(Digest::from_etag(&[0xff; 40]), None);
    }
}

//! Names of models on a hub.

use std::fmt;

use super::short;

/// A model on the hub and one of its revisions: `owner/name`, or `owner/name@revision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubId {
    repo: String,
    revision: Option<String>,
}

impl HubId {
    /// Reads `owner/name` or `owner/name@revision`, or a [short name](super::SHORT_NAMES) in place of `owner/name`;
    /// `None` if the text is not of that form.
    pub fn parse(text: &str) -> Option<HubId> {
        let (repo, revision) = match text.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (text, None),
        };
        let repo = short::repo(repo).unwrap_or(repo);
        let (owner, name) = repo.split_once('/')?;
        // The cache writes the slash so. The hub has no such names.
        if repo.contains("--") {
            return None;
        }
        // A branch may have a slash in its name: refs/pr/3.
        let mut words = [owner, name].into_iter().chain(revision.into_iter().flat_map(|r| r.split('/')));
        words.all(is_word).then(|| HubId { repo: repo.to_owned(), revision: revision.map(str::to_owned) })
    }

    /// `owner/name`.
    pub fn repo(&self) -> &str {
        &self.repo
    }

    /// The branch, tag or commit; `main` if the name has none.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    /// Whether the name has a branch, tag or commit.
    pub fn names_revision(&self) -> bool {
        self.revision.is_some()
    }
}

/// Letters, digits, `-`, `_` and `.`, but no `..`, which would lead out of the cache.
fn is_word(word: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.chars().all(allowed) && !word.contains("..")
}

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.revision {
            Some(revision) => write!(f, "{}@{revision}", self.repo),
            None => f.write_str(&self.repo),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_an_owner_and_perhaps_a_revision() {
        let id = HubId::parse("stabilityai/stable-video-diffusion-img2vid-xt").unwrap();
        assert_eq!((id.repo(), id.revision()), ("stabilityai/stable-video-diffusion-img2vid-xt", "main"));
        let id = HubId::parse("a/b.c_d@refs/pr/3").unwrap();
        assert_eq!((id.repo(), id.revision()), ("a/b.c_d", "refs/pr/3"));
        assert_eq!(id.to_string(), "a/b.c_d@refs/pr/3");
        assert!(id.names_revision() && !HubId::parse("a/b").unwrap().names_revision());
        let id = HubId::parse("svd-xt@v1").unwrap();
        assert_eq!(id.to_string(), "stabilityai/stable-video-diffusion-img2vid-xt@v1");
        for text in [
            "", "sdv", "SVD", "svd/", "a--b/c", "a/b--c", "/a/b", "a/", "/b", "a/b/c", "../b", "a/..", "./a",
            "a b/c", "a/b@", "a/b@../x", "~/b",
        ] {
            assert_eq!(HubId::parse(text), None, "{text}");
        }
    }
}

//! What a hub answers.

use std::{
    collections::HashMap,
    path::{Component, Path},
};

use kinora_models::hub::{
    Digest, FileFacts, HubId, ListedFile, Listing, redirect_target, retry_after, start_of_contents,
};
use ureq::http::Uri;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Any bytes as the list of a model's files. What becomes a path stays below its folder.
pub fn listing(bytes: &[u8]) {
    let Ok(listing) = Listing::parse(bytes) else { return };
    assert!(is_hexadecimal(&listing.commit, 40), "{}", listing.commit);
    for (name, file) in listing.files {
        let below = |part| matches!(part, Component::Normal(_));
        assert!(Path::new(&name).components().all(below) && !name.is_empty(), "{name:?}");
        file.digest.iter().for_each(check_digest);
    }
}

/// Any text as the head of an answer: the status and two numbers in its first line, a header in each other one.
pub fn headers(bytes: &[u8]) {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut numbers = first.split(' ').map(|word| word.parse::<u64>().unwrap_or(200));
    let mut number = || numbers.next().unwrap_or(200);
    let (status, from, size) = (number() as u16, number(), number());
    let headers: HashMap<String, &[u8]> = lines.filter_map(header).collect();
    let get = |name: &str| headers.get(name).copied();
    for redirected in [false, true] {
        if let Ok(facts) = FileFacts::read(get, redirected, COMMIT, ListedFile::default()) {
            check_digest(&facts.digest);
        }
    }
    if let Ok(start) = start_of_contents(status, get, from, size) {
        assert!(start == 0 || start == from, "{start}");
    }
    let _ = get("retry-after").map(retry_after);
    if let Some(location) = get("location") {
        for from in ["https://huggingface.co/owner/name/file", "http://127.0.0.1:8000", "https://hub/a?b"] {
            check_redirect(from, location);
        }
    }
    let _ = get("id").and_then(|id| HubId::parse(&String::from_utf8_lossy(id)));
}

/// A line as a header's name, in small letters, and its value.
fn header(line: &[u8]) -> Option<(String, &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
    Some((String::from_utf8_lossy(name).to_lowercase(), value.trim_ascii()))
}

/// A redirect leads to the web, keeps its encryption, and carries no password.
fn check_redirect(from: &str, location: &[u8]) {
    let from: Uri = from.parse().unwrap();
    let Ok(to) = redirect_target(&from, location) else { return };
    let encrypted = to.scheme_str() == Some("https");
    assert!(encrypted || (to.scheme_str() == Some("http") && from.scheme_str() == Some("http")), "{to}");
    let authority = to.authority().map(|authority| authority.as_str()).unwrap_or_default();
    assert!(!authority.is_empty() && !authority.contains('@'), "{to}");
}

/// A digest becomes the name of a file.
fn check_digest(digest: &Digest) {
    let name = digest.to_string();
    assert!(is_hexadecimal(&name, 40) || is_hexadecimal(&name, 64), "{name}");
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

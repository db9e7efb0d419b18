//! Where a redirect leads, and to whom the token may be shown.

use ureq::http::Uri;

/// Why a redirect is not followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// It has no `Location`, or one that is not an address.
    #[error("a redirect to {0:?}, which is not an address")]
    NotAnAddress(String),
    /// It leads to something other than a web address.
    #[error("a redirect to {0:?}, which is neither http nor https")]
    Scheme(String),
    /// The address has a user's name in it.
    #[error("a redirect to an address with a user name in it")]
    UserName,
    /// The next connection would not be encrypted although this one is.
    #[error("a redirect from https to http")]
    Downgrade,
    /// There are too many.
    #[error("more than {0} redirects")]
    TooMany(usize),
}

/// Longer addresses are not followed; the hub's signed ones have about 2,000 characters.
const LONGEST: usize = 16 * 1024;

/// The address that a redirect leads to: `location` as the server at `from` gave it.
///
/// # Errors
/// If it is not an address of the web, or gives up encryption.
pub fn target(from: &Uri, location: &[u8]) -> Result<Uri, RedirectError> {
    let bad = || RedirectError::NotAnAddress(shown(location));
    let text = str::from_utf8(location).map_err(|_| bad())?.trim();
    let printable = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if text.is_empty() || text.len() > LONGEST || !printable {
        return Err(bad());
    }
    let (Some(scheme), Some(authority)) = (from.scheme_str(), from.authority()) else { return Err(bad()) };
    let address = if let Some(named) = scheme_of(text) {
        if !matches!(&*named.to_ascii_lowercase(), "http" | "https") {
            return Err(RedirectError::Scheme(shown(named.as_bytes())));
        }
        text.to_owned()
    } else if text.starts_with("//") {
        format!("{scheme}:{text}")
    } else if text.starts_with('/') {
        format!("{scheme}://{authority}{text}")
    } else {
        let path = from.path();
        let folder = match text.starts_with(['?', '#']) {
            true => path,
            false => &path[..=path.rfind('/').unwrap_or(0)],
        };
        format!("{scheme}://{authority}{folder}{text}")
    };
    let next: Uri = address.parse().map_err(|_| bad())?;
    let Some(authority) = next.authority() else { return Err(bad()) };
    if authority.as_str().contains('@') {
        return Err(RedirectError::UserName);
    }
    if authority.host().is_empty() {
        return Err(bad());
    }
    match (scheme, next.scheme_str()) {
        ("https", Some("http")) => Err(RedirectError::Downgrade),
        (_, Some(_)) => Ok(next),
        // `https:80` is a host called https, and an address without a scheme.
        (_, None) => Err(bad()),
    }
}

/// What comes before the first colon, if it is the scheme of an address.
fn scheme_of(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(allowed)).then_some(scheme)
}

/// The beginning of what a server sent, for a message.
pub(super) fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 120;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned();
    if bytes.len() > LONGEST { format!("{text}…") } else { text }
}

/// Scheme, host and port: whoever has all three is the same server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    https: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// The server of an address; `None` if it is not one of the web.
    pub fn of(address: &Uri) -> Option<Origin> {
        let https = match address.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = address.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        Some(Origin { https, host, port: address.port_u16().unwrap_or(if https { 443 } else { 80 }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(from: &str, location: &str) -> Result<String, RedirectError> {
        target(&from.parse().unwrap(), location.as_bytes()).map(|next| next.to_string())
    }

    #[test]
    fn redirects_are_followed_as_browsers_do() {
        let from = "https://hub.example:8443/a/b?c=d";
        for (location, next) in [
            ("https://cdn.example/x?y=z", "https://cdn.example/x?y=z"),
            ("HTTPS://cdn.example/x", "https://cdn.example/x"),
            ("//cdn.example/x", "https://cdn.example/x"),
            ("/x/y", "https://hub.example:8443/x/y"),
            ("x", "https://hub.example:8443/a/x"),
            ("x/y:z", "https://hub.example:8443/a/x/y:z"),
            ("?e=f", "https://hub.example:8443/a/b?e=f"),
            ("/x#part", "https://hub.example:8443/x"),
            ("https://[::1]:80/x", "https://[::1]:80/x"),
        ] {
            assert_eq!(follow(from, location).as_deref(), Ok(next), "{location}");
        }
        assert_eq!(follow("http://a/", "http://b/").as_deref(), Ok("http://b/"));
    }

    #[test]
    fn odd_redirects_are_refused() {
        let from = "https://hub.example/a";
        for location in [
            "",
            " ",
            "/a b",
            "/\u{1b}[31m",
            "/ä",
            "\\\\host\\x",
            "https://",
            "https:///x",
            "http://:80/",
            "https:80",
        ] {
            assert!(follow(from, location).is_err(), "{location:?}");
        }
        for location in ["file:///etc/passwd", "ftp://x/", "javascript:alert(1)", "data:,x", "gopher://x"] {
            assert!(matches!(follow(from, location), Err(RedirectError::Scheme(_))), "{location}");
        }
        for location in ["https://user@x/", "https://user:word@x/", "//user@x/"] {
            assert_eq!(follow(from, location), Err(RedirectError::UserName), "{location}");
        }
        assert_eq!(follow(from, "http://hub.example/a"), Err(RedirectError::Downgrade));
        let long = |length: usize| follow(from, &format!("/{}", "x".repeat(length - 1)));
        assert!(long(10_000).is_ok() && long(LONGEST).is_ok() && long(LONGEST + 1).is_err());
        assert!(target(&from.parse().unwrap(), b"/\xff\xfe").is_err());
    }

    #[test]
    fn what_is_shown_of_a_server_ends() {
        let shown = |length| shown(&vec![b'x'; length]);
        assert_eq!([119, 120].map(shown), [119, 120].map(|length| "x".repeat(length)));
        assert_eq!(shown(121), format!("{}…", "x".repeat(120)));
    }

    #[test]
    fn a_server_is_its_scheme_host_and_port() {
        let origin = |address: &str| Origin::of(&address.parse().unwrap());
        assert_eq!(origin("https://HUB.example/x"), origin("https://hub.example:443/y"));
        assert_eq!(origin("http://hub.example"), origin("http://hub.example:80/"));
        assert!(origin("http://hub.example").is_some());
        for other in [
            "http://hub.example/",
            "https://hub.example:444/",
            "https://hub.example.evil/",
            "https://ahub.example/",
            "https://hub.example@evil/",
        ] {
            assert_ne!(origin("https://hub.example/"), origin(other), "{other}");
        }
        assert_eq!(origin("/x"), None);
    }
}

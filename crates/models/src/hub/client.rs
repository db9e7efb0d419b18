//! Requests to a hub: timeouts, redirects, and who sees the token.

use std::{
    io::{self, Read},
    thread,
    time::{Duration, Instant},
};

use ureq::{
    Agent, Body,
    http::{
        HeaderValue, Method, Request, Response, StatusCode, Uri,
        header::{AUTHORIZATION, LOCATION, RANGE, RETRY_AFTER},
    },
    tls::TlsConfig,
};

use super::{
    Hub, HubError, HubId,
    answer::{AnswerError, FileFacts, ListedFile, Listing, retry_after, start_of_contents},
    certificates::authorities,
    patience::Patience,
    redirect::{Origin, RedirectError, target},
};

/// The longest list of files that is read: a hundred thousand of them.
const LONGEST_LISTING: u64 = 32 << 20;
/// More redirects than any server has reason for.
const MOST_REDIRECTS: usize = 5;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There was no connection, or it broke.
    #[error("{0}")]
    Connection(#[source] Box<ureq::Error>),
    /// The system allows no thread to look up an address.
    #[error("the system allows no further thread: {0}")]
    Thread(#[source] io::Error),
    /// The connection ended before the answer did.
    #[error("the connection ended too early")]
    EndedEarly,
    /// The server went silent.
    #[error("the server sent nothing, or next to nothing, for {} s", after.as_secs_f32())]
    Stalled {
        /// For how long.
        after: Duration,
    },
    /// The server refused.
    #[error("HTTP {status}")]
    Status {
        /// The status.
        status: u16,
        /// When to try again, if the server said so.
        retry_after: Option<Duration>,
        /// Whether it came from the hub itself, not from a server that it redirects to.
        from_hub: bool,
    },
    /// What was kept of an earlier download cannot be continued.
    #[error("the download cannot be continued where it was interrupted")]
    CannotContinue,
    /// The token cannot be sent.
    #[error("the token (HF_TOKEN) has characters that no token has")]
    Token,
    /// The answer makes no sense.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

impl From<RedirectError> for RequestError {
    fn from(error: RedirectError) -> Self {
        AnswerError::from(error).into()
    }
}

impl RequestError {
    /// Whether the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            RequestError::Connection(error) => match &**error {
                // A certificate that is not trusted, say.
                ureq::Error::Io(error) => error.kind() != io::ErrorKind::InvalidData,
                ureq::Error::Timeout(_)
                | ureq::Error::HostNotFound
                | ureq::Error::ConnectionFailed
                | ureq::Error::ConnectProxyFailed(_)
                | ureq::Error::BodyStalled => true,
                _ => false,
            },
            RequestError::EndedEarly | RequestError::Stalled { .. } | RequestError::CannotContinue => true,
            // A signed address that has expired: the hub gives a new one.
            RequestError::Status { status: 401 | 403 | 410, from_hub: false, .. } => true,
            RequestError::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            RequestError::Thread(_) | RequestError::Token | RequestError::Answer(_) => false,
        }
    }

    /// Whether no connection could be made: there is no network, or nobody at that address.
    pub(super) fn is_unreachable(&self) -> bool {
        use io::ErrorKind::{
            AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut,
        };
        let RequestError::Connection(error) = self else { return false };
        match &**error {
            ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::ConnectProxyFailed(_)
            | ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => true,
            ureq::Error::Io(error) => matches!(
                error.kind(),
                AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut
            ),
            _ => false,
        }
    }

    fn from_ureq(error: ureq::Error, patience: &Patience) -> Self {
        match error {
            ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => {
                RequestError::Connection(Box::new(error))
            }
            ureq::Error::Timeout(ureq::Timeout::RecvResponse) => {
                RequestError::Stalled { after: patience.answer }
            }
            ureq::Error::Timeout(_) => RequestError::Stalled { after: patience.stall },
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                RequestError::EndedEarly
            }
            error => RequestError::Connection(Box::new(error)),
        }
    }
}

/// What talks to a hub.
pub(super) struct Client<'a> {
    hub: &'a Hub,
    agent: Agent,
    /// The only server that may see the token.
    own: Origin,
}

/// Which redirects to follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// Those to the hub itself: its headers say what a file is, the storage's do not.
    OnTheHub,
    /// All.
    Everywhere,
}

/// The contents of a file, on their way.
pub(super) struct Contents {
    /// Where in the file they start.
    pub start: u64,
    /// The bytes.
    pub body: Paced,
}

impl<'a> Client<'a> {
    /// Checks the hub's address and prepares requests to it.
    pub fn new(hub: &'a Hub) -> Result<Client<'a>, HubError> {
        let address = hub.endpoint.parse::<Uri>().ok();
        let own = address.as_ref().and_then(Origin::of);
        let own = own.ok_or_else(|| HubError::Endpoint { endpoint: hub.endpoint.clone() })?;
        let Patience { connect, answer, stall, .. } = hub.patience;
        let config = Agent::config_builder()
            .user_agent(concat!("kinora/", env!("CARGO_PKG_VERSION")))
            // What is compressed can grow without bound, and its length says nothing.
            .accept_encoding("identity")
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(connect))
            .timeout_connect(Some(connect))
            .timeout_send_request(Some(answer))
            .timeout_recv_response(Some(answer))
            .timeout_per_read(Some(stall))
            .timeout_per_write(Some(stall));
        let config = match &hub.certificates {
            Some(path) => config.tls_config(TlsConfig::builder().root_certs(authorities(path)?).build()),
            None => config,
        };
        Ok(Client { hub, agent: config.build().new_agent(), own })
    }

    /// Asks for the commit of a revision and its files.
    pub fn listing(&self, id: &HubId) -> Result<Listing, RequestError> {
        let (repo, revision) = (id.repo(), percent_encoded(id.revision(), &[]));
        let address = format!("{}/api/models/{repo}/revision/{revision}?blobs=true", self.hub.endpoint);
        let response = self.send(&Method::GET, &address, 0, Follow::Everywhere)?;
        let mut body = Vec::new();
        let reader = Paced::new(response.into_body(), self.hub.patience);
        let read = reader.take(LONGEST_LISTING + 1).read_to_end(&mut body);
        read.map_err(|error| self.broken(error))?;
        if body.len() as u64 > LONGEST_LISTING {
            return Err(AnswerError::TooLong { limit: LONGEST_LISTING }.into());
        }
        Ok(Listing::parse(&body)?)
    }

    /// The address of a file of a commit.
    pub fn file_address(&self, id: &HubId, commit: &str, file: &str) -> String {
        format!("{}/{}/resolve/{commit}/{}", self.hub.endpoint, id.repo(), percent_encoded(file, b"/"))
    }

    /// Asks what a file is, if the listing does not say it.
    pub fn facts(&self, address: &str, commit: &str, listed: ListedFile) -> Result<FileFacts, RequestError> {
        let response = self.send(&Method::HEAD, address, 0, Follow::OnTheHub)?;
        let header = |name: &str| response.headers().get(name).map(HeaderValue::as_bytes);
        Ok(FileFacts::read(header, is_redirect(response.status()), commit, listed)?)
    }

    /// Asks for the contents of a file of this size, from a byte on.
    pub fn contents(&self, address: &str, from: u64, size: u64) -> Result<Contents, RequestError> {
        let response = match self.send(&Method::GET, address, from, Follow::Everywhere) {
            Err(RequestError::Status { status: 416, .. }) if from > 0 => {
                return Err(RequestError::CannotContinue);
            }
            answer => answer?,
        };
        let header = |name: &str| response.headers().get(name).map(HeaderValue::as_bytes);
        match start_of_contents(response.status().as_u16(), header, from, size) {
            Ok(start) => Ok(Contents { start, body: Paced::new(response.into_body(), self.hub.patience) }),
            Err(AnswerError::Header { name: "content-range", .. }) if from > 0 => {
                Err(RequestError::CannotContinue)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What an error while reading an answer means.
    pub fn broken(&self, error: io::Error) -> RequestError {
        match error.kind() {
            io::ErrorKind::TimedOut => RequestError::Stalled { after: self.hub.patience.stall },
            _ => RequestError::from_ureq(error.into(), &self.hub.patience),
        }
    }

    /// Sends a request and follows redirects. Returns the first answer that is not a redirect, or that redirects to a
    /// server that `follow` excludes.
    fn send(
        &self,
        method: &Method,
        address: &str,
        from: u64,
        follow: Follow,
    ) -> Result<Response<Body>, RequestError> {
        let bad = |_| RedirectError::NotAnAddress(address.to_owned());
        let mut address: Uri = address.parse().map_err(bad)?;
        for _ in 0..=MOST_REDIRECTS {
            let response = self.send_once(method, &address, from)?;
            let status = response.status();
            if is_redirect(status) {
                let location = response.headers().get(LOCATION).map_or(&b""[..], HeaderValue::as_bytes);
                let next = target(&address, location)?;
                if follow == Follow::OnTheHub && !self.is_own(&next) {
                    return Ok(response);
                }
                address = next;
            } else if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
                return Ok(response);
            } else {
                let retry_after =
                    response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.as_bytes()));
                let from_hub = self.is_own(&address);
                return Err(RequestError::Status { status: status.as_u16(), retry_after, from_hub });
            }
        }
        Err(RedirectError::TooMany(MOST_REDIRECTS).into())
    }

    fn send_once(&self, method: &Method, address: &Uri, from: u64) -> Result<Response<Body>, RequestError> {
        let mut request = Request::builder().method(method).uri(address);
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        if let Some(token) = self.hub.token.as_ref().filter(|_| self.is_own(address)) {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| RequestError::Token)?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let failed = |error: ureq::Error| RequestError::from_ureq(error, &self.hub.patience);
        let request = request.body(()).map_err(|error| failed(error.into()))?;
        try_a_thread().map_err(RequestError::Thread)?;
        self.agent.run(request).map_err(failed)
    }

    fn is_own(&self, address: &Uri) -> bool {
        Origin::of(address).as_ref() == Some(&self.own)
    }
}

/// Starts a thread and ends it: ureq starts one to look up an address, and panics if it cannot.
fn try_a_thread() -> io::Result<()> {
    // It cannot panic.
    thread::Builder::new().spawn(|| ()).map(|thread| thread.join().unwrap_or_default())
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// A text as a part of an address: everything but letters, digits, `-._~` and `kept` is escaped.
fn percent_encoded(text: &str, kept: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

/// A body that must keep coming: a server that sends a byte now and then would keep us forever.
pub(super) struct Paced {
    body: ureq::BodyReader<'static>,
    window: Duration,
    since: Instant,
    arrived: u64,
}

impl Paced {
    fn new(body: Body, patience: Patience) -> Self {
        Paced { body: body.into_reader(), window: patience.stall, since: Instant::now(), arrived: 0 }
    }
}

impl Read for Paced {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since.elapsed() > self.window {
            if self.arrived < Patience::LEAST {
                return Err(io::ErrorKind::TimedOut.into());
            }
            (self.since, self.arrived) = (Instant::now(), 0);
        }
        let read = self.body.read(buffer)?;
        self.arrived += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_no_odd_characters() {
        assert_eq!(percent_encoded("refs/pr/3", &[]), "refs%2Fpr%2F3");
        assert_eq!(percent_encoded("unet/a b?#%ä", b"/"), "unet/a%20b%3F%23%25%C3%A4");
    }
}

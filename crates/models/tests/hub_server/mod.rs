//! A hub with one model, on this machine: honest, unless a test twists what it answers.
// Every test file uses a part of it.
#![allow(dead_code)]

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The commit that the model's `main` is at.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// All of it, headers included.
    pub text: String,
    /// Where the range that is asked for starts.
    pub start: usize,
}

impl Request {
    pub fn is_listing(&self) -> bool {
        self.path.starts_with("/api/models/")
    }

    /// Whether the contents of this file are asked for.
    pub fn is_get_of(&self, file: &str) -> bool {
        self.method == "GET" && self.path.ends_with(&format!("/{file}"))
    }
}

/// How an answer is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// To its end.
    Whole,
    /// The connection ends after as many bytes of the body.
    BreaksOff(usize),
    /// Nothing comes after as many bytes of the body, and the connection stays open.
    Stalls(usize),
    /// A byte now and then.
    Trickles,
    /// These bytes and nothing else, then the end.
    Raw(Vec<u8>),
    /// The head, then these bytes over and over, as long as the client listens.
    Endless(Vec<u8>),
    /// The first bytes, then the second over and over, as long as the client listens.
    RawEndless(Vec<u8>, Vec<u8>),
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub delivery: Delivery,
}

impl Reply {
    pub fn new(status: u16, body: Vec<u8>) -> Self {
        let headers = vec![("Content-Length".to_owned(), body.len().to_string().into_bytes())];
        Reply { status, headers, body, delivery: Delivery::Whole }
    }

    /// With a header, instead of one of that name.
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub fn delivered(self, delivery: Delivery) -> Self {
        Reply { delivery, ..self }
    }
}

/// Changes what an honest hub would answer.
pub type Twist = Arc<dyn Fn(&Request, Reply) -> Reply + Send + Sync>;

/// A running server; it ends with the value.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    files: Vec<(String, Vec<u8>)>,
    /// Whether the listing says what the files are; otherwise only their names.
    bare: AtomicBool,
    twist: Mutex<Twist>,
    requests: Mutex<Vec<Request>>,
    stopped: AtomicBool,
}

impl Server {
    /// Starts a server that has these files.
    pub fn new(files: Vec<(&'static str, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            files: files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect(),
            bare: AtomicBool::new(false),
            twist: Mutex::new(Arc::new(|_, reply| reply)),
            requests: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let thread = thread::spawn({
            let shared = shared.clone();
            move || {
                for stream in listener.incoming() {
                    if shared.stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    let shared = shared.clone();
                    // The client may go away at any time.
                    thread::spawn(move || stream.and_then(|stream| shared.answer(stream)));
                }
            }
        });
        Server { address, shared, thread: Some(thread) }
    }

    /// The address of the hub.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers so from now on.
    pub fn twist(&self, twist: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) {
        *self.shared.twist.lock().unwrap() = Arc::new(twist);
    }

    /// Answers honestly from now on.
    pub fn behave(&self) {
        self.twist(|_, reply| reply);
    }

    /// Lists nothing but the names from now on, as some mirrors do.
    pub fn list_only_names(&self) {
        self.shared.bare.store(true, Ordering::Relaxed);
    }

    /// The requests so far; forgotten with that.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.requests.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// What git calls contents.
pub fn git_digest(bytes: &[u8]) -> String {
    let mut hasher = Sha1::new_with_prefix(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hexadecimal(&hasher.finalize())
}

pub fn sha256_digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the hub keeps a file as a large one, by its SHA-256.
pub fn is_large(name: &str) -> bool {
    name.ends_with(".safetensors")
}

/// The name of a file's blob in the cache.
pub fn blob_name(name: &str, bytes: &[u8]) -> String {
    if is_large(name) { sha256_digest(bytes) } else { git_digest(bytes) }
}

/// An honest listing.
pub fn listing(files: &[(String, Vec<u8>)], bare: bool) -> serde_json::Value {
    let file = |(name, bytes): &(String, Vec<u8>)| match (bare, is_large(name)) {
        (true, _) => serde_json::json!({ "rfilename": name }),
        (_, false) => {
            serde_json::json!({ "rfilename": name, "size": bytes.len(), "blobId": git_digest(bytes) })
        }
        (_, true) => serde_json::json!({
            "rfilename": name, "size": bytes.len(), "blobId": git_digest(b"pointer"),
            "lfs": { "sha256": sha256_digest(bytes), "size": bytes.len(), "pointerSize": 135 },
        }),
    };
    serde_json::json!({
        "id": "owner/name", "sha": COMMIT, "private": false,
        "siblings": files.iter().map(file).collect::<Vec<_>>(),
    })
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let request = read_request(&stream)?;
        let honest = self.honest(&request);
        self.requests.lock().unwrap().push(request.clone());
        let twist = self.twist.lock().unwrap().clone();
        let reply = twist(&request, honest);
        send(&mut stream, &request, reply)?;
        // Closing with unread input would reset the connection, and the client would lose the end of the answer.
        stream.shutdown(std::net::Shutdown::Write)?;
        io::copy(&mut stream, &mut io::sink()).map(drop)
    }

    fn honest(&self, request: &Request) -> Reply {
        if request.path.starts_with("/api/models/owner/name/revision/") {
            let listing = listing(&self.files, self.bare.load(Ordering::Relaxed));
            let reply = Reply::new(200, listing.to_string().into_bytes());
            return reply.with("Content-Type", "application/json");
        }
        let name = request.path.strip_prefix(&format!("/owner/name/resolve/{COMMIT}/"));
        let Some((name, bytes)) = self.files.iter().find(|(known, _)| Some(&**known) == name) else {
            return Reply::new(404, Vec::new());
        };
        let digest = blob_name(name, bytes);
        let reply = match request.start {
            0 => Reply::new(200, bytes.clone()),
            start if start >= bytes.len() => return Reply::new(416, Vec::new()),
            start => {
                let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
                Reply::new(206, bytes[start..].to_vec()).with("Content-Range", range)
            }
        };
        let reply = reply.with("X-Repo-Commit", COMMIT).with("ETag", format!("\"{digest}\""));
        match is_large(name) {
            true => reply
                .with("ETag", "\"of-the-storage-1\"")
                .with("X-Linked-Etag", format!("\"{digest}\""))
                .with("X-Linked-Size", bytes.len().to_string()),
            false => reply,
        }
    }
}

fn read_request(stream: &TcpStream) -> io::Result<Request> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        if reader.read_line(&mut text)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut words = text.lines().next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let lower = text.to_lowercase();
    let range = lower.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let start = range.map_or(0, |range| range.trim_end_matches('-').parse().unwrap());
    Ok(Request { method, path, text, start })
}

fn send(stream: &mut TcpStream, request: &Request, reply: Reply) -> io::Result<()> {
    match &reply.delivery {
        Delivery::Raw(bytes) => return stream.write_all(bytes),
        Delivery::RawEndless(first, bytes) => {
            stream.write_all(first)?;
            loop {
                stream.write_all(bytes)?;
            }
        }
        _ => {}
    }
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status).into_bytes();
    for (name, value) in &reply.headers {
        head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    stream.write_all(&[&head[..], b"\r\n"].concat())?;
    if request.method == "HEAD" {
        return Ok(());
    }
    match reply.delivery {
        Delivery::Whole | Delivery::Raw(_) | Delivery::RawEndless(..) => stream.write_all(&reply.body)?,
        Delivery::BreaksOff(length) => stream.write_all(&reply.body[..length.min(reply.body.len())])?,
        Delivery::Stalls(length) => {
            stream.write_all(&reply.body[..length.min(reply.body.len())])?;
            // Until the client has had enough.
            let _ = stream.read(&mut [0]);
        }
        Delivery::Trickles => {
            for byte in reply.body {
                stream.write_all(&[byte])?;
                thread::sleep(Duration::from_millis(50));
            }
        }
        Delivery::Endless(bytes) => loop {
            stream.write_all(&bytes)?;
        },
    }
    stream.flush()
}

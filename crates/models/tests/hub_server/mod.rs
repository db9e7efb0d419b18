//! A hub with one model, on this machine.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// The commit that the model's `main` is at.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server does wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Requests whose path has this in it get this status.
    Status(&'static str, u16),
    /// The file of this name breaks off after as many bytes.
    BreaksOff(&'static str, usize),
    /// The file of this name always comes from its start, whatever was asked for.
    NeverContinues(&'static str),
    /// Files say that they belong to this commit.
    Commit(&'static str),
    /// The list of the files says that they are of this commit.
    ListedCommit(&'static str),
    /// Whatever is asked, a page comes.
    Page,
}

/// A running server; it ends with the value.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    files: Vec<(&'static str, Vec<u8>)>,
    fault: Mutex<Fault>,
    requests: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

impl Server {
    /// Starts a server that has these files.
    pub fn new(files: Vec<(&'static str, Vec<u8>)>, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            files,
            fault: Mutex::new(fault),
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
                    // The client may go away at any time.
                    let _ = shared.answer(stream.unwrap());
                }
            }
        });
        Server { address, shared, thread: Some(thread) }
    }

    /// The address of the hub.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Does this wrong from now on.
    pub fn set(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    /// The paths and the tokens of the requests so far; forgotten with that.
    pub fn requests(&self) -> Vec<String> {
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

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut start = 0;
        let mut only_one = false;
        let mut token = String::new();
        for line in lines {
            let line = line?.to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(range) = line.strip_prefix("range: bytes=") {
                only_one = range == "0-0";
                start = range.split('-').next().unwrap().parse().unwrap();
            }
            if let Some(bearer) = line.strip_prefix("authorization: bearer ") {
                token = format!(" as {bearer}");
            }
        }
        self.requests.lock().unwrap().push(format!("{path}{token}"));
        let fault = self.fault.lock().unwrap().clone();
        let mut reply = |status: u16, headers: &str, length: usize, body: &[u8]| {
            let head = format!(
                "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
            stream.flush()
        };
        match fault {
            Fault::Status(part, status) if path.contains(part) => return reply(status, "", 0, b""),
            Fault::Page => return reply(200, "Content-Type: text/html\r\n", 6, b"<html>"),
            _ => {}
        }
        if path.starts_with("/api/models/owner/name/revision/") {
            let siblings: Vec<_> =
                self.files.iter().map(|(name, _)| serde_json::json!({ "rfilename": name })).collect();
            let sha = if let Fault::ListedCommit(commit) = fault { commit } else { COMMIT };
            let body = serde_json::json!({ "sha": sha, "siblings": siblings }).to_string();
            return reply(200, "Content-Type: application/json\r\n", body.len(), body.as_bytes());
        }
        let name = path.strip_prefix(&format!("/owner/name/resolve/{COMMIT}/"));
        let Some((name, bytes)) = self.files.iter().find(|(known, _)| Some(*known) == name) else {
            return reply(404, "", 0, b"");
        };
        if fault == Fault::NeverContinues(name) {
            start = 0;
        }
        if start >= bytes.len() {
            return reply(416, "", 0, b"");
        }
        let commit = if let Fault::Commit(commit) = fault { commit } else { COMMIT };
        let etag = name.replace(['/', '.'], "-");
        let end = if only_one { 1 } else { bytes.len() };
        let headers = format!(
            "ETag: \"{etag}\"\r\nX-Repo-Commit: {commit}\r\nContent-Range: bytes {start}-{}/{}\r\n",
            end - 1,
            bytes.len()
        );
        let mut body = &bytes[start..end];
        if let Fault::BreaksOff(broken, length) = fault
            && broken == *name
            && !only_one
        {
            body = &body[..length];
        }
        reply(206, &headers, end - start, body)
    }
}

//! Files of unknown origin.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    path::Path,
};

/// Why a file is not read, although the system would read it. It is the inner error of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is a folder, a pipe, a socket or a device.
    #[error("it is a {0}, not an ordinary file")]
    Kind(&'static str),
    /// It is longer than the caller allows.
    #[error("it is longer than {limit} bytes, the most that is read of such a file")]
    TooLong {
        /// The most bytes that are read.
        limit: u64,
    },
    /// It is not UTF-8.
    #[error("it is not text: byte {at} is not UTF-8")]
    NotText {
        /// Where the first wrong byte is, from 0.
        at: usize,
    },
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        let kind = match refused {
            Refused::Kind(_) => io::ErrorKind::InvalidInput,
            Refused::TooLong { .. } => io::ErrorKind::FileTooLarge,
            Refused::NotText { .. } => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, refused)
    }
}

/// Opens an ordinary file for reading. Never waits: a named pipe is refused even if it replaces the file just now.
///
/// # Errors
/// If the file cannot be opened, or is [refused](Refused).
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, false)
}

/// Opens an ordinary file or a pipe, such as a shell's `<(command)`. Waits until somebody writes to the pipe.
///
/// # Errors
/// As [`open`].
pub fn open_stream(path: &Path) -> io::Result<File> {
    open_as(path, true)
}

/// The bytes of an ordinary file.
///
/// # Errors
/// If the file cannot be read, or is [refused](Refused): for example because it is longer than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    bounded(open(path)?, limit)
}

/// The bytes of an ordinary file or of a pipe, such as a shell's `<(command)`. Waits for whoever writes to the pipe.
///
/// # Errors
/// As [`read`].
pub fn read_stream(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    bounded(open_stream(path)?, limit)
}

/// The text of an ordinary file.
///
/// # Errors
/// As [`read`], and if the file is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    to_text(read(path, limit)?)
}

/// Bytes as text.
///
/// # Errors
/// If they are not UTF-8.
pub fn to_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| Refused::NotText { at: error.utf8_error().valid_up_to() }.into())
}

/// The system's own error about a temporary file, without the name of that file, which nobody asked for.
pub fn without_temporary_name(error: io::Error) -> io::Error {
    // The crate `tempfile` adds it to the text, and keeps nothing else of the system's error.
    match error.to_string().rsplit_once(" at path ") {
        Some((system, _)) => io::Error::new(error.kind(), system.to_owned()),
        None => error,
    }
}

fn open_as(path: &Path, pipes: bool) -> io::Result<File> {
    // Asked before the file is opened, because opening a device may do something; and again afterwards, because something
    // else may have the name by then.
    check(&fs::metadata(path)?, pipes)?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    if !pipes {
        // Means nothing for an ordinary file.
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    check(&file.metadata()?, pipes)?;
    Ok(file)
}

fn check(metadata: &Metadata, pipes: bool) -> io::Result<()> {
    let kind = kind(metadata);
    if metadata.is_file() || (pipes && kind == PIPE) { Ok(()) } else { Err(Refused::Kind(kind).into()) }
}

const PIPE: &str = "pipe";

#[cfg(unix)]
fn kind(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match metadata.file_type() {
        kind if kind.is_dir() => "folder",
        kind if kind.is_fifo() => PIPE,
        kind if kind.is_socket() => "socket",
        _ => "device",
    }
}

#[cfg(not(unix))]
fn kind(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() { "folder" } else { "device" }
}

fn bounded(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let too_long = || Err(Refused::TooLong { limit }.into());
    if file.metadata()?.len() > limit {
        return too_long();
    }
    let mut bytes = Vec::new();
    // A limit while reading as well: a pipe has no length, and a file may grow.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { too_long() } else { Ok(bytes) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refused(result: io::Result<impl std::fmt::Debug>) -> Refused {
        let error = result.unwrap_err();
        *error.get_ref().and_then(|inner| inner.downcast_ref()).unwrap_or_else(|| panic!("{error}"))
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "twelve bytes").unwrap();
        assert_eq!(read(&path, 12).unwrap(), b"twelve bytes");
        assert_eq!(read_text(&path, u64::MAX).unwrap(), "twelve bytes");
        assert_eq!(read_stream(&path, 12).unwrap(), b"twelve bytes");
        assert_eq!(refused(read(&path, 11)), Refused::TooLong { limit: 11 });
        assert_eq!(read(&folder.path().join("absent"), 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, b"ab\xff").unwrap();
        assert_eq!(refused(read_text(&path, 12)), Refused::NotText { at: 2 });
        assert_eq!(refused(read(folder.path(), 12)), Refused::Kind("folder"));
    }

    #[test]
    fn a_temporary_files_name_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            tempfile::Builder::new().prefix(".new-").tempfile_in(folder.path().join("absent")).unwrap_err();
        assert!(error.to_string().contains(".new-"), "{error}");
        let (kind, error) = (error.kind(), without_temporary_name(error));
        assert!(!error.to_string().contains(".new-") && error.kind() == kind, "{error}");
        assert_eq!(without_temporary_name(io::Error::other("plain")).to_string(), "plain");
    }

    /// Its length is 0 to the system, and the limit holds all the same.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_without_a_length_is_bounded() {
        assert_eq!(refused(read(Path::new("/proc/self/status"), 10)), Refused::TooLong { limit: 10 });
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, socket, link) =
            (folder.path().join("pipe"), folder.path().join("socket"), folder.path().join("link"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        // Nobody writes to the pipe: opening it as it is would wait for ever.
        for (path, kind) in [
            (pipe.as_path(), "pipe"),
            (&link, "pipe"),
            (&socket, "socket"),
            (Path::new("/dev/zero"), "device"),
            (Path::new("/dev/null"), "device"),
        ] {
            assert_eq!(refused(open(path)), Refused::Kind(kind), "{}", path.display());
        }
        assert_eq!(refused(read_stream(Path::new("/dev/zero"), 10)), Refused::Kind("device"));
        assert_eq!(refused(read_stream(&socket, 10)), Refused::Kind("socket"));
    }

    #[test]
    #[cfg(unix)]
    fn a_pipe_is_read_as_a_stream() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let read_from = |limit: u64| {
            std::thread::scope(|scope| {
                // Fails if the reader is gone before everything is written; that is the reader's right.
                scope.spawn(|| drop(fs::write(&pipe, [7; 100])));
                read_stream(&pipe, limit)
            })
        };
        assert_eq!(read_from(100).unwrap(), [7; 100]);
        assert_eq!(refused(read_from(99)), Refused::TooLong { limit: 99 });
    }
}

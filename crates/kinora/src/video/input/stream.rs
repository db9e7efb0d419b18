//! Bytes that come one after another.

use std::io::{self, BufRead, BufReader, Read};

use super::{
    error::Fault,
    sniff::{HEAD, Kind},
};

/// The most bytes that a pipe is asked for at a time.
const BUFFER: usize = 1 << 16;

/// A file, a pipe or standard input.
pub(super) struct Stream {
    /// The first bytes, once they have been looked at, and how many of them were read again.
    head: Vec<u8>,
    taken: usize,
    rest: BufReader<Box<dyn Read + Send>>,
}

impl Stream {
    pub(super) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self { head: Vec::new(), taken: 0, rest: BufReader::with_capacity(BUFFER, reader) }
    }

    /// What it is. Nothing is taken from it.
    pub(super) fn kind(&mut self) -> Result<Kind, Fault> {
        let missing = HEAD.saturating_sub(self.head.len()) as u64;
        self.rest.by_ref().take(missing).read_to_end(&mut self.head)?;
        Ok(Kind::of(&self.head))
    }

    /// A line without its end, of at most so many bytes; `None` at the end of the stream.
    pub(super) fn line(&mut self, limit: u64) -> Result<Option<Vec<u8>>, Fault> {
        let mut line = Vec::new();
        self.by_ref().take(limit).read_until(b'\n', &mut line)?;
        match line.pop() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) if (line.len() as u64) < limit - 1 => Err(Fault::Truncated),
            Some(_) => Err(Fault::damaged(format!("a header is longer than {limit} bytes"))),
        }
    }

    /// Fills the buffer; `false` if the stream ended before its first byte.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, Fault> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(Fault::Truncated),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut head = &self.head[self.taken..];
        if head.is_empty() {
            return self.rest.read(buffer);
        }
        let read = head.read(buffer)?;
        self.taken += read;
        Ok(read)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken < self.head.len() { Ok(&self.head[self.taken..]) } else { self.rest.fill_buf() }
    }

    fn consume(&mut self, amount: usize) {
        if self.taken < self.head.len() {
            self.taken += amount;
        } else {
            self.rest.consume(amount);
        }
    }
}

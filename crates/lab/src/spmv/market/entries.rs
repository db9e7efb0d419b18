//! The lines of entries, parsed on all cores.
//!
//! The text is read in blocks that end with a line; a block is cut into pieces at line breaks, which are parsed side by side and handed
//! on in order.

use std::io::Read;

use rayon::prelude::*;

use super::{
    Field, Format, Header, MAX_LINE, MarketError, Symmetry,
    header::{Sizes, shorten},
    is_void, line_error,
};

/// Bytes that are read at a time.
const BLOCK: usize = 8 << 20;

/// Bytes of a piece that one task parses.
const PIECE: usize = 256 << 10;

/// An entry of a list: its row and column from 0, and its value. An array's have only values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub row: u64,
    pub column: u64,
    pub value: f64,
}

/// What was parsed of a piece.
struct Piece {
    entries: Vec<Entry>,
    lines: u64,
    /// The first error, and its line within the piece, counted from 1.
    error: Option<(u64, String)>,
}

/// The lines of a text.
pub(super) struct Lines<R> {
    from: R,
    block: Vec<u8>,
    /// Where the next line begins in the block.
    at: usize,
    /// Whether the text has ended.
    ended: bool,
    /// The line that was read last, counted from 1.
    number: u64,
}

impl<R: Read> Lines<R> {
    pub fn new(from: R) -> Lines<R> {
        Lines { from, block: Vec::new(), at: 0, ended: false, number: 0 }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Reads on, until the block has so many bytes that were not used.
    fn fill(&mut self, wanted: usize) -> Result<(), MarketError> {
        self.block.drain(..self.at);
        self.at = 0;
        while !self.ended && self.block.len() < wanted {
            let more = wanted - self.block.len();
            let read = (&mut self.from).take(more as u64).read_to_end(&mut self.block)?;
            self.ended = read < more;
        }
        Ok(())
    }

    /// The next line without its end.
    pub fn line(&mut self) -> Result<Option<Vec<u8>>, MarketError> {
        if self.block.len() - self.at <= MAX_LINE {
            self.fill(4 * MAX_LINE)?;
        }
        let rest = &self.block[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let end = rest.iter().take(MAX_LINE + 1).position(|&byte| byte == b'\n');
        let line = match end {
            Some(end) => &rest[..end],
            None if rest.len() <= MAX_LINE => rest,
            None => return Err(too_long(self.number)),
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.at += end.map_or(rest.len(), |end| end + 1);
        Ok(Some(line))
    }

    /// Parses all entries, and hands them on in order. A value that is not `finite` in the matrix's type is refused.
    pub fn entries(
        &mut self,
        (header, sizes): (&Header, &Sizes),
        finite: &(dyn Fn(f64) -> bool + Sync),
        mut add: impl FnMut(&[Entry]) -> Result<(), MarketError>,
    ) -> Result<(), MarketError> {
        let mut left = sizes.entries;
        loop {
            self.fill(BLOCK)?;
            if self.block.is_empty() {
                break;
            }
            let end = match self.block.iter().rposition(|&byte| byte == b'\n') {
                Some(last) => last + 1,
                None if self.ended => self.block.len(),
                None => return Err(too_long(self.number + 1)),
            };
            // The last line may lack its end.
            let end = if self.ended { self.block.len() } else { end };
            let pieces: Vec<Piece> = cut(&self.block[..end])
                .into_par_iter()
                .map(|text| parse(header, sizes, finite, text))
                .collect();
            self.at = end;
            for piece in pieces {
                // An error after the last entry that was promised is one all the same.
                if piece.entries.len() as u64 > left {
                    let wanted = sizes.entries;
                    return Err(line_error(
                        self.number + piece.lines,
                        format!(
                            "there are more entries than the {wanted} that the sizes promise, at this line or before"
                        ),
                    ));
                }
                left -= piece.entries.len() as u64;
                if let Some((line, what)) = piece.error {
                    return Err(line_error(self.number + line, what));
                }
                add(&piece.entries)?;
                self.number += piece.lines;
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(MarketError::Short {
                line: self.number,
                found: sizes.entries - left,
                wanted: sizes.entries,
            }),
        }
    }
}

fn too_long(line: u64) -> MarketError {
    line_error(line, format!("the line is longer than {MAX_LINE} bytes"))
}

/// Cuts a block into pieces that end with a line.
fn cut(mut block: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !block.is_empty() {
        let after = block.get(PIECE..).and_then(|rest| rest.iter().position(|&byte| byte == b'\n'));
        let (piece, rest) = block.split_at(after.map_or(block.len(), |after| PIECE + after + 1));
        pieces.push(piece);
        block = rest;
    }
    pieces
}

fn parse(header: &Header, sizes: &Sizes, finite: &dyn Fn(f64) -> bool, text: &[u8]) -> Piece {
    let mut piece = Piece { entries: Vec::new(), lines: 0, error: None };
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    for line in text.split(|&byte| byte == b'\n') {
        piece.lines += 1;
        if line.len() > MAX_LINE {
            piece.error = Some((piece.lines, format!("the line is longer than {MAX_LINE} bytes")));
            return piece;
        }
        if is_void(line) {
            continue;
        }
        let entry = entry(header, sizes, line).and_then(|entry| match finite(entry.value) {
            true => Ok(entry),
            false => Err("the value is not finite in the type that it is read as".to_owned()),
        });
        match entry {
            Ok(entry) => piece.entries.push(entry),
            Err(what) => {
                let shown = shorten(&String::from_utf8_lossy(line));
                piece.error = Some((piece.lines, format!("{what}: {shown:?}")));
                return piece;
            }
        }
    }
    piece
}

fn entry(header: &Header, sizes: &Sizes, line: &[u8]) -> Result<Entry, String> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (mut row, mut column) = (0, 0);
    if header.format == Format::Coordinate {
        row = place(words.next(), sizes.rows, "row")?;
        column = place(words.next(), sizes.columns, "column")?;
        match header.symmetry {
            Symmetry::General => {}
            _ if column > row => {
                return Err("a symmetric matrix lists no entries above the diagonal".to_owned());
            }
            Symmetry::SkewSymmetric if column == row => {
                return Err("a skew-symmetric matrix lists no entries on the diagonal".to_owned());
            }
            _ => {}
        }
    }
    let value = match header.field {
        Field::Pattern => 1.0,
        Field::Real | Field::Integer => {
            let word = words.next().ok_or("the value is missing")?;
            let text = std::str::from_utf8(word).map_err(|_| "the value is not a number")?;
            match header.field {
                // A whole number may have more digits than any integer.
                Field::Integer
                    if !text.trim_start_matches(['-', '+']).bytes().all(|byte| byte.is_ascii_digit()) =>
                {
                    return Err("the value is not a whole number".to_owned());
                }
                _ => number(text).ok_or("the value is not a number")?,
            }
        }
    };
    match words.next() {
        None => Ok(Entry { row, column, value }),
        Some(_) => Err("there is more on the line than an entry".to_owned()),
    }
}

/// A number as C and Fortran write it.
fn number(text: &str) -> Option<f64> {
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => text.replace(['d', 'D'], "e").parse().ok(),
    }
}

/// A row or column, counted from 1 in the file and from 0 here.
fn place(word: Option<&[u8]>, extent: u64, what: &str) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("the {what} is missing"))?;
    let wrong = || format!("the {what} is not a number from 1 to {extent}");
    let mut number = 0u64;
    for &byte in word {
        if !byte.is_ascii_digit() {
            return Err(wrong());
        }
        number = number.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    }
    if number == 0 || number > extent { Err(wrong()) } else { Ok(number - 1) }
}

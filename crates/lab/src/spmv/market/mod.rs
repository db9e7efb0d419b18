//! Matrix Market files: the text format in which matrices are exchanged.
//!
//! A header line says what the file holds, a line of sizes follows, then a line for each entry. The files come from anywhere, so sizes
//! are believed only as far as the limits and the text allow.

mod assemble;
mod entries;
mod header;
mod write;

use std::{
    io::{self, Read},
    path::Path,
};

pub use header::{Field, Format, Header, Symmetry};
pub use write::write;

use self::{assemble::Assembly, entries::Lines, header::Sizes};
use super::csr::{self, Csr, CsrError, Index, Value};

/// How much of a file is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that the matrix may take in memory.
    pub matrix_bytes: u64,
}

impl Default for Limits {
    /// Room for more than 10⁹ non-zeros.
    fn default() -> Limits {
        Limits { matrix_bytes: 24 << 30 }
    }
}

/// The longest line that is read. The format allows 1024 characters; comments are often longer.
const MAX_LINE: usize = 1 << 16;

/// Rows and columns that a file may have beyond a thousand for each entry: vectors of as many numbers are made of it.
const FREE_EXTENT: u64 = 1 << 20;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum MarketError {
    /// The system does not read it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The first line is not that of a Matrix Market file.
    #[error(
        "line 1 is not `%%MatrixMarket matrix coordinate|array real|integer|pattern general|symmetric|skew-symmetric`: {0}"
    )]
    Header(String),
    /// A kind of file that is known and not supported.
    #[error("line 1: {0} matrices are not supported; only real, integer and pattern ones are")]
    Unsupported(String),
    /// A line does not say what it should.
    #[error("line {line}: {what}")]
    Line {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The file ends early.
    #[error("line {line}: the file ends after {found} of {wanted} entries")]
    Short {
        /// The last line.
        line: u64,
        /// Entries that there are.
        found: u64,
        /// Entries that the sizes promise.
        wanted: u64,
    },
    /// The matrix would need more memory than is allowed.
    #[error(
        "line {line}: a matrix of {rows} × {columns} with {entries} entries takes {bytes} bytes, but at most {limit} are allowed"
    )]
    TooLarge {
        /// The line of the sizes.
        line: u64,
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
        /// Entries.
        entries: u64,
        /// The bytes that it takes.
        bytes: u64,
        /// The most that it may take.
        limit: u64,
    },
    /// There is no memory for it.
    #[error("there is no memory for a matrix of {bytes} bytes")]
    Memory {
        /// What it takes.
        bytes: u64,
    },
    /// The matrix does not fit its types.
    #[error(transparent)]
    Csr(#[from] CsrError),
}

fn line_error(line: u64, what: impl Into<String>) -> MarketError {
    MarketError::Line { line, what: what.into() }
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read, is not a matrix that is supported, or exceeds the limits.
pub fn read_file<V: Value, I: Index>(path: &Path, limits: Limits) -> Result<Csr<V, I>, MarketError> {
    let file = kinora_outside::open(path)?;
    let length = file.metadata()?.len();
    read(file, Some(length), limits)
}

/// Reads a matrix from its text. If its length is known, no memory is taken for entries that it cannot hold.
///
/// # Errors
/// As [`read_file`].
pub fn read<V: Value, I: Index>(
    from: impl Read,
    length: Option<u64>,
    limits: Limits,
) -> Result<Csr<V, I>, MarketError> {
    let mut lines = Lines::new(from);
    let first = lines.line()?.ok_or_else(|| MarketError::Header("the file is empty".to_owned()))?;
    let header = Header::parse(&first)?;
    let sizes = loop {
        match lines.line()? {
            None => return Err(line_error(lines.number(), "the file ends before the line of sizes")),
            Some(line) if is_void(&line) => {}
            Some(line) => break Sizes::parse(&header, &line, lines.number())?,
        }
    };
    check::<V, I>(&header, &sizes, length, limits)?;
    let mut assembly = Assembly::<V, I>::new(header, sizes, limits);
    let finite = |value: f64| V::from_f64(value).to_f64().is_finite();
    lines.entries((&header, &sizes), &finite, |piece| assembly.add(piece))?;
    assembly.finish(lines.number())
}

/// Whether a line is a comment or blank.
fn is_void(line: &[u8]) -> bool {
    line.first() == Some(&b'%') || line.iter().all(u8::is_ascii_whitespace)
}

/// Refuses sizes before anything is allocated for them.
fn check<V: Value, I: Index>(
    header: &Header,
    sizes: &Sizes,
    length: Option<u64>,
    limits: Limits,
) -> Result<(), MarketError> {
    let Sizes { rows, columns, entries, line } = *sizes;
    if header.symmetry != Symmetry::General && rows != columns {
        return Err(line_error(
            line,
            format!("a symmetric matrix is square, but this one is {rows} × {columns}"),
        ));
    }
    // The mirrored entries count as well.
    let twice = if header.symmetry == Symmetry::General { 1 } else { 2 };
    let nonzeros = entries.saturating_mul(twice);
    csr::fits::<I>(rows, columns, entries)?;
    // While the matrix is assembled, its entries are held with their rows, and sorted into a copy.
    let bytes = csr::bytes::<V, I>(rows, nonzeros).saturating_add(assemble::entry_bytes::<V, I>(entries));
    if bytes > limits.matrix_bytes {
        let limit = limits.matrix_bytes;
        return Err(MarketError::TooLarge { line, rows, columns, entries, bytes, limit });
    }
    // The shortest line of an entry: two numbers and a space, or a number, and the end of the line.
    let shortest = match (header.format, header.field) {
        (Format::Coordinate, Field::Pattern) => 4,
        (Format::Coordinate, _) => 6,
        (Format::Array, _) => 2,
    };
    if let Some(length) = length
        && entries.saturating_mul(shortest) > length.saturating_add(shortest)
    {
        let what = format!("the sizes promise {entries} entries, but the file has only {length} bytes");
        return Err(line_error(line, what));
    }
    let most = FREE_EXTENT.saturating_add(entries.saturating_mul(1000));
    for (extent, what) in [(rows, "rows"), (columns, "columns")] {
        if extent > most {
            let what =
                format!("{extent} {what} are too many for {entries} entries; a thousand an entry are read");
            return Err(line_error(line, what));
        }
    }
    Ok(())
}

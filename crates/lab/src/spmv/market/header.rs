//! The first line, and the line of sizes.

use super::{MarketError, line_error};

/// How entries are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line for each non-zero: its row, its column, its value.
    Coordinate,
    /// A line for every element, column by column.
    Array,
}

/// What values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Floating-point numbers.
    Real,
    /// Whole numbers.
    Integer,
    /// None: every entry is 1.
    Pattern,
}

/// Which entries stand for two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// None.
    General,
    /// Those below the diagonal, for the one above it as well.
    Symmetric,
    /// The same with the other sign; the diagonal is zero.
    SkewSymmetric,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How entries are listed.
    pub format: Format,
    /// What values are.
    pub field: Field,
    /// Which entries stand for two.
    pub symmetry: Symmetry,
}

impl Header {
    /// Reads the first line.
    pub(super) fn parse(line: &[u8]) -> Result<Header, MarketError> {
        let text = String::from_utf8_lossy(line).to_lowercase();
        let shown = || kinora_outside::shortened(text.trim_end(), 80).into_owned();
        let refuse = || MarketError::Header(shown());
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [banner, object, format, field, symmetry] = words[..] else { return Err(refuse()) };
        if banner != "%%matrixmarket" || object != "matrix" {
            return Err(refuse());
        }
        let format = match format {
            "coordinate" => Format::Coordinate,
            "array" => Format::Array,
            _ => return Err(refuse()),
        };
        let field = match field {
            "real" | "double" => Field::Real,
            "integer" => Field::Integer,
            "pattern" if format == Format::Coordinate => Field::Pattern,
            "complex" => return Err(MarketError::Unsupported("complex".to_owned())),
            _ => return Err(refuse()),
        };
        let symmetry = match symmetry {
            "general" => Symmetry::General,
            "symmetric" => Symmetry::Symmetric,
            "skew-symmetric" if field != Field::Pattern => Symmetry::SkewSymmetric,
            "hermitian" => return Err(MarketError::Unsupported("Hermitian".to_owned())),
            _ => return Err(refuse()),
        };
        Ok(Header { format, field, symmetry })
    }
}

/// The line of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub rows: u64,
    pub columns: u64,
    /// The entries that are listed.
    pub entries: u64,
    /// Its line.
    pub line: u64,
}

impl Sizes {
    pub fn parse(header: &Header, text: &[u8], line: u64) -> Result<Sizes, MarketError> {
        let wanted = match header.format {
            Format::Coordinate => "rows, columns and entries",
            Format::Array => "rows and columns",
        };
        let shown = String::from_utf8_lossy(text);
        let wrong =
            || line_error(line, format!("expected the numbers of {wanted}, found {:?}", shorten(&shown)));
        let numbers: Vec<u64> = shown
            .split_ascii_whitespace()
            .take(4)
            .map(|word| word.parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        match (header.format, &numbers[..]) {
            (Format::Coordinate, &[rows, columns, entries]) => Ok(Sizes { rows, columns, entries, line }),
            (Format::Array, &[rows, columns]) => {
                let all = rows.saturating_mul(columns);
                let entries = match header.symmetry {
                    Symmetry::General => all,
                    Symmetry::Symmetric => all / 2 + rows / 2 + (rows & 1),
                    Symmetry::SkewSymmetric => all / 2 - rows / 2,
                };
                Ok(Sizes { rows, columns, entries, line })
            }
            _ => Err(wrong()),
        }
    }
}

/// A text that is short enough for a message.
pub(super) fn shorten(text: &str) -> String {
    kinora_outside::shortened(text.trim_end(), 60).into_owned()
}

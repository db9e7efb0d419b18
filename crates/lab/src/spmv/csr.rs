//! Matrices in compressed sparse rows.

use std::fmt;

/// The type of a matrix's values.
pub trait Value:
    bytemuck::Pod
    + Send
    + Sync
    + fmt::Debug
    + fmt::LowerExp
    + PartialEq
    + std::ops::Add<Output = Self>
    + std::ops::Mul<Output = Self>
{
    /// Its name.
    const NAME: &'static str;
    /// The unit round-off: half of the distance from 1 to the next number.
    const ROUND_OFF: f64;

    /// The nearest number.
    fn from_f64(number: f64) -> Self;
    /// The same number.
    fn to_f64(self) -> f64;
}

impl Value for f32 {
    const NAME: &'static str = "f32";
    const ROUND_OFF: f64 = f32::EPSILON as f64 / 2.0;

    fn from_f64(number: f64) -> f32 {
        number as f32
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Value for f64 {
    const NAME: &'static str = "f64";
    const ROUND_OFF: f64 = f64::EPSILON / 2.0;

    fn from_f64(number: f64) -> f64 {
        number
    }

    fn to_f64(self) -> f64 {
        self
    }
}

/// The type of a matrix's row offsets and columns.
pub trait Index: bytemuck::Pod + Send + Sync + fmt::Debug + Ord {
    /// Its name.
    const NAME: &'static str;
    /// The largest number that it holds.
    const MOST: u64;

    /// A number that is at most [`Index::MOST`].
    fn from_usize(number: usize) -> Self;
    /// The number; `None` if it is negative or too large for this machine.
    fn to_usize(self) -> Option<usize>;
    /// The number, if it is known not to be negative.
    fn at(self) -> usize;
    /// -1 minus a number: how a table marks what is no index.
    fn before_zero(number: usize) -> Self;
}

impl Index for i32 {
    fn before_zero(number: usize) -> i32 {
        -1 - number as i32
    }

    const NAME: &'static str = "i32";
    const MOST: u64 = i32::MAX as u64;

    fn from_usize(number: usize) -> i32 {
        number as i32
    }

    fn to_usize(self) -> Option<usize> {
        usize::try_from(self).ok()
    }

    fn at(self) -> usize {
        self as usize
    }
}

impl Index for i64 {
    fn before_zero(number: usize) -> i64 {
        -1 - number as i64
    }

    const NAME: &'static str = "i64";
    const MOST: u64 = i64::MAX as u64;

    fn from_usize(number: usize) -> i64 {
        number as i64
    }

    fn to_usize(self) -> Option<usize> {
        usize::try_from(self).ok()
    }

    fn at(self) -> usize {
        self as usize
    }
}

/// Why arrays are not a matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// An extent or the number of non-zeros does not fit the index type.
    #[error("a matrix of {rows} × {columns} with {nonzeros} non-zeros does not fit indices of type {index}")]
    TooLarge {
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
        /// Non-zeros.
        nonzeros: u64,
        /// The index type.
        index: &'static str,
    },
    /// There must be one offset more than rows.
    #[error("{rows} rows need {} offsets, but there are {offsets}", rows + 1)]
    OffsetCount {
        /// Rows.
        rows: usize,
        /// Offsets given.
        offsets: usize,
    },
    /// The first offset is not 0, or the last one is not the number of non-zeros.
    #[error(
        "the offsets must run from 0 to {nonzeros}, the number of non-zeros, but run from {first} to {last}"
    )]
    OffsetEnds {
        /// The first offset.
        first: i64,
        /// The last one.
        last: i64,
        /// Non-zeros.
        nonzeros: usize,
    },
    /// An offset is smaller than the one before it.
    #[error("row {row} ends before it begins: the offsets must not decrease")]
    OffsetOrder {
        /// The row.
        row: usize,
    },
    /// Columns and values differ in number.
    #[error("there are {columns} columns but {values} values")]
    ValueCount {
        /// Column indices given.
        columns: usize,
        /// Values given.
        values: usize,
    },
    /// A column is not in the matrix.
    #[error("non-zero {place} is in column {column}, but the matrix has {columns}")]
    Column {
        /// The non-zero, counted from 0.
        place: usize,
        /// Its column.
        column: i64,
        /// Columns of the matrix.
        columns: usize,
    },
}

/// A matrix in compressed sparse rows, valid by construction: row `r` has the non-zeros from `offsets[r]` to `offsets[r + 1]`.
/// A column may occur several times in a row; its values then add up.
#[derive(Clone, Debug, PartialEq)]
pub struct Csr<V, I> {
    rows: usize,
    columns: usize,
    offsets: Vec<I>,
    indices: Vec<I>,
    values: Vec<V>,
}

impl<V: Value, I: Index> Csr<V, I> {
    /// Checks the arrays, and makes them a matrix.
    ///
    /// # Errors
    /// If they are not one.
    pub fn new(
        rows: usize,
        columns: usize,
        offsets: Vec<I>,
        indices: Vec<I>,
        values: Vec<V>,
    ) -> Result<Csr<V, I>, CsrError> {
        fits::<I>(rows as u64, columns as u64, indices.len() as u64)?;
        if offsets.len() != rows + 1 {
            return Err(CsrError::OffsetCount { rows, offsets: offsets.len() });
        }
        if indices.len() != values.len() {
            return Err(CsrError::ValueCount { columns: indices.len(), values: values.len() });
        }
        let number = |index: I| index.to_usize().map_or(-1, |index| index as i64);
        let (first, last) = (number(offsets[0]), number(offsets[rows]));
        if first != 0 || last != indices.len() as i64 {
            return Err(CsrError::OffsetEnds { first, last, nonzeros: indices.len() });
        }
        if let Some(row) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(CsrError::OffsetOrder { row });
        }
        let outside = |index: &I| index.to_usize().is_none_or(|column| column >= columns);
        if let Some(place) = indices.iter().position(outside) {
            return Err(CsrError::Column { place, column: signed(indices[place]), columns });
        }
        Ok(Csr { rows, columns, offsets, indices, values })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Non-zeros.
    pub fn nonzeros(&self) -> usize {
        self.values.len()
    }

    /// Where each row begins, and the last one ends.
    pub fn offsets(&self) -> &[I] {
        &self.offsets
    }

    /// The column of each non-zero.
    pub fn indices(&self) -> &[I] {
        &self.indices
    }

    /// The value of each non-zero.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// The places of a row's non-zeros. The row exists.
    pub fn row(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row].at()..self.offsets[row + 1].at()
    }

    /// The bytes of its three arrays.
    pub fn bytes(&self) -> u64 {
        bytes::<V, I>(self.rows as u64, self.nonzeros() as u64)
    }

    /// The bytes that a product has to move at least: the matrix once, each entry of `x` that a column names once, and `y` once, or
    /// twice if it is read as well.
    pub fn floor_bytes(&self, columns_used: usize, reads_y: bool) -> u64 {
        let vectors = columns_used as u64 + self.rows as u64 * if reads_y { 2 } else { 1 };
        self.bytes() + vectors * size_of::<V>() as u64
    }
}

/// The bytes of a matrix's three arrays; the largest number if there are more.
pub fn bytes<V: Value, I: Index>(rows: u64, nonzeros: u64) -> u64 {
    let offsets = rows.saturating_add(1).saturating_mul(size_of::<I>() as u64);
    offsets.saturating_add(nonzeros.saturating_mul((size_of::<I>() + size_of::<V>()) as u64))
}

/// Whether the extents fit an index type. The sum of rows and non-zeros must fit as well, because kernels count both together.
///
/// # Errors
/// If they do not.
pub fn fits<I: Index>(rows: u64, columns: u64, nonzeros: u64) -> Result<(), CsrError> {
    match rows.max(columns) <= I::MOST && rows.saturating_add(nonzeros) <= I::MOST {
        true => Ok(()),
        false => Err(CsrError::TooLarge { rows, columns, nonzeros, index: I::NAME }),
    }
}

fn signed<I: Index>(index: I) -> i64 {
    match bytemuck::bytes_of(&index) {
        &[a, b, c, d] => i64::from(i32::from_ne_bytes([a, b, c, d])),
        bytes => bytes.try_into().map_or(0, i64::from_ne_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(offsets: &[i32], indices: &[i32]) -> Result<Csr<f32, i32>, CsrError> {
        Csr::new(2, 3, offsets.to_vec(), indices.to_vec(), vec![1.0; 3])
    }

    #[test]
    fn arrays_are_checked() {
        let matrix = of(&[0, 1, 3], &[2, 0, 1]).unwrap();
        assert_eq!((matrix.row(1), matrix.nonzeros(), matrix.bytes()), (1..3, 3, 12 + 24));
        assert_eq!(matrix.floor_bytes(3, false), 36 + 12 + 8);
        assert_eq!(of(&[0, 3], &[0; 3]), Err(CsrError::OffsetCount { rows: 2, offsets: 2 }));
        assert_eq!(of(&[0, 4, 3], &[0; 3]), Err(CsrError::OffsetOrder { row: 1 }));
        assert_eq!(of(&[0, -1, 3], &[0; 3]), Err(CsrError::OffsetOrder { row: 0 }));
        assert_eq!(of(&[0, 1, 2], &[0; 3]), Err(CsrError::OffsetEnds { first: 0, last: 2, nonzeros: 3 }));
        assert_eq!(of(&[1, 1, 3], &[0; 3]), Err(CsrError::OffsetEnds { first: 1, last: 3, nonzeros: 3 }));
        assert_eq!(of(&[0, 1, 3], &[0, 3, 0]), Err(CsrError::Column { place: 1, column: 3, columns: 3 }));
        assert_eq!(of(&[0, 1, 3], &[0, 0, -7]), Err(CsrError::Column { place: 2, column: -7, columns: 3 }));
        assert_eq!(of(&[0, 1, 2], &[0, 0]), Err(CsrError::ValueCount { columns: 2, values: 3 }));
        assert!(Csr::<f64, i64>::new(0, 0, vec![0], vec![], vec![]).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let most = i32::MAX as u64;
        assert!(fits::<i32>(1, most, most - 1).is_ok());
        assert!(fits::<i32>(1, 1, most).is_err() && fits::<i32>(1, most + 1, 0).is_err());
        assert!(fits::<i64>(1, most + 1, most).is_ok());
        assert_eq!(bytes::<f32, i32>(u64::MAX, u64::MAX), u64::MAX);
    }
}

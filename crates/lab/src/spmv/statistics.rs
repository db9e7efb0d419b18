//! What a matrix is like: extents, row lengths, and how far its columns lie apart.

use serde::Serialize;

use super::csr::{Csr, Index, Value};

/// What is known of a matrix after one walk over it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Non-zeros.
    pub nonzeros: usize,
    /// Non-zeros of a row on average.
    pub mean: f64,
    /// The standard deviation of the rows' lengths.
    pub deviation: f64,
    /// The shortest row.
    pub shortest: usize,
    /// The longest row.
    pub longest: usize,
    /// Rows without a non-zero.
    pub empty_rows: usize,
    /// Columns that some non-zero is in.
    pub columns_used: usize,
    /// How scattered the reads of `x` are: the share of non-zeros whose entry of `x` is not within the 128 bytes that follow the entry of
    /// the non-zero before.
    pub scattered: f64,
    /// The largest distance between two columns of a row.
    pub reach: usize,
    /// Rows by length: the first count is of empty rows, the next of length 1, then 2 to 3, 4 to 7, and so on.
    pub histogram: Vec<usize>,
}

impl Statistics {
    /// Walks over the matrix.
    pub fn new<V: Value, I: Index>(matrix: &Csr<V, I>) -> Statistics {
        let (rows, columns, nonzeros) = (matrix.rows(), matrix.columns(), matrix.nonzeros());
        let mean = nonzeros as f64 / rows.max(1) as f64;
        let (mut squares, mut shortest, mut longest) = (0.0, usize::MAX, 0);
        let mut histogram = Vec::new();
        let mut used = vec![0u64; columns.div_ceil(64)];
        let near = 128 / size_of::<V>();
        let (mut scattered, mut reach) = (0usize, 0);
        for row in 0..rows {
            let range = matrix.row(row);
            let length = range.len();
            squares += (length as f64 - mean).powi(2);
            (shortest, longest) = (shortest.min(length), longest.max(length));
            let class = (usize::BITS - length.leading_zeros()) as usize;
            if histogram.len() <= class {
                histogram.resize(class + 1, 0);
            }
            histogram[class] += 1;
            let mut before = None;
            let (mut low, mut high) = (usize::MAX, 0);
            for index in &matrix.indices()[range] {
                let column = index.at();
                (low, high) = (low.min(column), high.max(column));
                used[column / 64] |= 1 << (column % 64);
                scattered += usize::from(before.is_none_or(|before| column.wrapping_sub(before) > near));
                before = Some(column);
            }
            reach = reach.max(high.saturating_sub(low));
        }
        Statistics {
            rows,
            columns,
            nonzeros,
            mean,
            deviation: (squares / rows.max(1) as f64).sqrt(),
            shortest: if rows == 0 { 0 } else { shortest },
            longest,
            empty_rows: histogram.first().copied().unwrap_or(0),
            columns_used: used.iter().map(|bits| bits.count_ones() as usize).sum(),
            scattered: scattered as f64 / nonzeros.max(1) as f64,
            reach,
            histogram,
        }
    }

    /// Whether rows differ much in length: a few have several times the mean.
    pub fn is_irregular(&self) -> bool {
        self.deviation > 0.5 * self.mean || self.longest as f64 > 4.0 * self.mean + 32.0
    }

    /// The histogram of row lengths, a line for each class.
    pub fn plot(&self) -> String {
        const WIDTH: f64 = 40.0;
        let most = self.histogram.iter().copied().max().unwrap_or(0).max(1);
        let mut text = String::new();
        for (class, &count) in self.histogram.iter().enumerate() {
            let lengths = match class {
                0 => "0".to_owned(),
                1 => "1".to_owned(),
                _ => format!("{}–{}", 1usize << (class - 1), (1usize << (class - 1)) * 2 - 1),
            };
            // A class with any row shows at least one mark.
            let marks = (WIDTH * count as f64 / most as f64).ceil() as usize;
            text += &format!("{lengths:>17} | {:<40} {count}\n", "#".repeat(marks));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_matrix_is_described() {
        // Rows of 0, 1, 4 and 3 non-zeros.
        let indices = vec![0, 0, 1, 2, 99, 5, 50, 99];
        let matrix: Csr<f32, i32> = Csr::new(4, 100, vec![0, 0, 1, 5, 8], indices, vec![1.0; 8]).unwrap();
        let known = Statistics::new(&matrix);
        assert_eq!((known.shortest, known.longest, known.empty_rows, known.columns_used), (0, 4, 1, 6));
        assert_eq!(known.histogram, [1, 1, 1, 1]);
        assert_eq!(known.mean, 2.0);
        assert!((known.deviation - 2.5f64.sqrt()).abs() < 1e-12, "{}", known.deviation);
        // The first of each row, and columns 99, 50 and 99 after 2, 5 and 50.
        assert_eq!(known.scattered, 6.0 / 8.0);
        assert_eq!(known.reach, 99);
        assert_eq!(known.plot().lines().count(), 4);
        assert!(known.plot().contains("2–3 | ####"));
        let empty: Csr<f32, i32> = Csr::new(0, 0, vec![0], vec![], vec![]).unwrap();
        let known = Statistics::new(&empty);
        assert_eq!((known.mean, known.shortest, known.plot()), (0.0, 0, String::new()));
    }
}

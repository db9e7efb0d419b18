//! From a list of entries to compressed rows.

use rayon::prelude::*;

use super::{Format, Header, Limits, MarketError, Symmetry, entries::Entry, header::Sizes};
use crate::spmv::csr::{self, Csr, Index, Value};

/// Entries as they come.
pub(super) struct Assembly<V, I> {
    header: Header,
    sizes: Sizes,
    limits: Limits,
    /// The entry of an array that comes next.
    next: (u64, u64),
    rows: Vec<I>,
    columns: Vec<I>,
    values: Vec<V>,
}

/// The bytes of so many entries while they are collected.
pub(super) fn entry_bytes<V: Value, I: Index>(entries: u64) -> u64 {
    entries.saturating_mul((2 * size_of::<I>() + size_of::<V>()) as u64)
}

impl<V: Value, I: Index> Assembly<V, I> {
    pub fn new(header: Header, sizes: Sizes, limits: Limits) -> Assembly<V, I> {
        let first = u64::from(header.symmetry == Symmetry::SkewSymmetric);
        Assembly { header, sizes, limits, next: (first, 0), rows: vec![], columns: vec![], values: vec![] }
    }

    /// Takes entries. Memory grows with what has come, not with what was promised.
    pub fn add(&mut self, piece: &[Entry]) -> Result<(), MarketError> {
        let none = |_| MarketError::Memory { bytes: entry_bytes::<V, I>(self.sizes.entries) };
        self.rows.try_reserve(piece.len()).map_err(none)?;
        self.columns.try_reserve(piece.len()).map_err(none)?;
        self.values.try_reserve(piece.len()).map_err(none)?;
        for &Entry { mut row, mut column, value } in piece {
            if self.header.format == Format::Array {
                (row, column) = self.next;
                self.step();
                if value == 0.0 {
                    continue;
                }
            }
            // Both are below the extents, which fit the type.
            self.rows.push(I::from_usize(row as usize));
            self.columns.push(I::from_usize(column as usize));
            self.values.push(V::from_f64(value));
        }
        Ok(())
    }

    /// Goes on to the next element of an array, down its column and then to the next.
    fn step(&mut self) {
        let (row, column) = &mut self.next;
        *row += 1;
        if *row == self.sizes.rows {
            *column += 1;
            *row = match self.header.symmetry {
                Symmetry::General => 0,
                Symmetry::Symmetric => *column,
                Symmetry::SkewSymmetric => *column + 1,
            };
        }
    }

    /// The matrix, its rows sorted by column.
    pub fn finish(self, line: u64) -> Result<Csr<V, I>, MarketError> {
        let (rows, columns) = (self.sizes.rows as usize, self.sizes.columns as usize);
        let mirrored = |row: I, column: I| self.header.symmetry != Symmetry::General && row != column;
        let pairs = || self.rows.iter().copied().zip(self.columns.iter().copied());
        let nonzeros =
            self.rows.len() as u64 + pairs().filter(|&(row, column)| mirrored(row, column)).count() as u64;
        csr::fits::<I>(self.sizes.rows, self.sizes.columns, nonzeros)?;
        let bytes = csr::bytes::<V, I>(self.sizes.rows, nonzeros);
        if bytes > self.limits.matrix_bytes {
            let Sizes { rows, columns, entries, .. } = self.sizes;
            let limit = self.limits.matrix_bytes;
            return Err(MarketError::TooLarge { line, rows, columns, entries, bytes, limit });
        }
        let nonzeros = nonzeros as usize;
        let mut counts = room(rows + 1, 0usize, bytes)?;
        for (row, column) in pairs() {
            counts[row.at()] += 1;
            if mirrored(row, column) {
                counts[column.at()] += 1;
            }
        }
        let mut end = 0;
        let mut offsets = room(rows + 1, I::from_usize(0), bytes)?;
        // From here on a count is where the row's next entry goes.
        for (count, offset) in counts.iter_mut().zip(&mut offsets) {
            *offset = I::from_usize(end);
            end += *count;
            *count = end - *count;
        }
        let mut indices = room(nonzeros, I::from_usize(0), bytes)?;
        let mut values = room(nonzeros, V::from_f64(0.0), bytes)?;
        let skew = self.header.symmetry == Symmetry::SkewSymmetric;
        let mut put = |row: I, column: I, value: V| {
            let place = &mut counts[row.at()];
            (indices[*place], values[*place]) = (column, value);
            *place += 1;
        };
        for ((row, column), &value) in pairs().zip(&self.values) {
            put(row, column, value);
            if mirrored(row, column) {
                put(column, row, if skew { V::from_f64(-value.to_f64()) } else { value });
            }
        }
        drop((self.rows, self.columns, self.values, counts));
        sort_rows(&offsets, &mut indices, &mut values);
        Ok(Csr::new(rows, columns, offsets, indices, values)?)
    }
}

fn room<T: Clone>(count: usize, zero: T, bytes: u64) -> Result<Vec<T>, MarketError> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| MarketError::Memory { bytes })?;
    all.resize(count, zero);
    Ok(all)
}

/// Sorts each row by column; entries of one column keep their order.
fn sort_rows<V: Value, I: Index>(offsets: &[I], indices: &mut [I], values: &mut [V]) {
    let mut rows = Vec::new();
    let (mut indices, mut values) = (indices, values);
    for pair in offsets.windows(2) {
        let (row, rest) = std::mem::take(&mut indices).split_at_mut(pair[1].at() - pair[0].at());
        let (numbers, others) = std::mem::take(&mut values).split_at_mut(row.len());
        (indices, values) = (rest, others);
        if !row.is_sorted() {
            rows.push((row, numbers));
        }
    }
    rows.into_par_iter().for_each(|(row, numbers)| {
        let mut both: Vec<(I, V)> = row.iter().copied().zip(numbers.iter().copied()).collect();
        both.sort_by_key(|&(column, _)| column);
        for ((column, number), sorted) in row.iter_mut().zip(numbers).zip(both) {
            (*column, *number) = sorted;
        }
    });
}

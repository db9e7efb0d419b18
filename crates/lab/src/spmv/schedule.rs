//! What the adaptive kernel is given beside the matrix: which rows each block takes, and columns of 16 bits.

use std::ops::Range;

use rayon::prelude::*;

use super::csr::{Csr, Index, Value};

/// The tiles of a matrix: blocks of whole rows, and pieces of rows that are longer than a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiles<I> {
    /// The first row, the end of the rows, the first non-zero and the end of the non-zeros of each tile. In a piece of a long row, the end of
    /// the rows is -1 minus the number of the piece.
    pub tiles: Vec<[I; 4]>,
    /// The row, the first piece and the end of the pieces of each long row.
    pub long_rows: Vec<[I; 3]>,
    /// Pieces of long rows.
    pub pieces: usize,
}

/// Pieces of a long row have so many tiles' worth of non-zeros: their blocks need no shared memory, and each costs a sum over the block.
const PIECE_TILES: usize = 4;

/// Columns of a row or a tile are narrow if they differ by less.
pub const NARROW: usize = 1 << 16;

impl<I: Index> Tiles<I> {
    /// Packs consecutive rows into tiles of at most `tile` non-zeros and `tile` rows, in one walk over the offsets.
    pub fn new<V: Value>(matrix: &Csr<V, I>, tile: usize) -> Tiles<I> {
        Tiles::of_rows_that(matrix, tile, |_, _| true)
    }

    /// The same, of rows whose columns lie so near each other that 16 bits tell them apart, as those of each row alone must.
    pub fn narrow<V: Value>(matrix: &Csr<V, I>, tile: usize) -> Tiles<I> {
        let (mut low, mut high) = (usize::MAX, 0);
        Tiles::of_rows_that(matrix, tile, |row, begins| {
            let own = &matrix.indices()[matrix.row(row)];
            let (before_low, before_high) = if begins { (usize::MAX, 0) } else { (low, high) };
            low = own.iter().map(|index| index.at()).fold(before_low, usize::min);
            high = own.iter().map(|index| index.at()).fold(before_high, usize::max);
            begins || high.saturating_sub(low) < NARROW
        })
    }

    /// Packs rows; `joins` is asked whether a row may be in a tile, and told whether the tile begins with it.
    fn of_rows_that<V: Value>(
        matrix: &Csr<V, I>,
        tile: usize,
        mut joins: impl FnMut(usize, bool) -> bool,
    ) -> Tiles<I> {
        let tile = tile.max(1);
        let (mut tiles, mut long_rows, mut pieces) = (Vec::new(), Vec::new(), 0usize);
        let index = I::from_usize;
        let rows = matrix.rows();
        let end_of = |row: usize| matrix.offsets()[row].at();
        let mut row = 0;
        while row < rows {
            let begin = end_of(row);
            let mut end = row;
            while end < rows && end - row < tile && end_of(end + 1) - begin <= tile && joins(end, end == row)
            {
                end += 1;
            }
            if end > row {
                tiles.push([index(row), index(end), index(begin), index(end_of(end))]);
                row = end;
                continue;
            }
            // The row alone is longer than a tile.
            let last = end_of(row + 1);
            let first_piece = pieces;
            let piece = PIECE_TILES * tile;
            for from in (begin..last).step_by(piece) {
                let to = last.min(from.saturating_add(piece));
                tiles.push([index(row), I::before_zero(pieces), index(from), index(to)]);
                pieces += 1;
            }
            long_rows.push([index(row), index(first_piece), index(pieces)]);
            row += 1;
        }
        Tiles { tiles, long_rows, pieces }
    }
}

/// The first column of each part of a matrix, and all columns counted from that of their part. The parts have all non-zeros, in order.
pub fn narrow_columns<V: Value, I: Index>(
    matrix: &Csr<V, I>,
    parts: impl Iterator<Item = Range<usize>>,
) -> (Vec<I>, Vec<u16>) {
    let mut columns = vec![0; matrix.nonzeros()];
    let mut left = &mut columns[..];
    let mut tasks = Vec::new();
    for part in parts {
        let (own, after) = left.split_at_mut(part.len());
        tasks.push((&matrix.indices()[part], own));
        left = after;
    }
    let of_part = |(indices, own): (&[I], &mut [u16])| {
        let first = indices.iter().min().copied().unwrap_or(I::from_usize(0));
        for (column, index) in own.iter_mut().zip(indices) {
            *column = (index.at() - first.at()) as u16;
        }
        first
    };
    (tasks.into_par_iter().map(of_part).collect(), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_packed_and_long_ones_cut() {
        // Rows of 3, 0, 2, 41, 4, 1.
        let offsets = vec![0, 3, 3, 5, 46, 50, 51];
        let matrix: Csr<f32, i32> = Csr::new(6, 1, offsets, vec![0; 51], vec![1.0; 51]).unwrap();
        let tiles = Tiles::new(&matrix, 5);
        let expected = [[0, 3, 0, 5], [3, -1, 5, 25], [3, -2, 25, 45], [3, -3, 45, 46], [4, 6, 46, 51]];
        assert_eq!(tiles.tiles, expected);
        assert_eq!((tiles.long_rows, tiles.pieces), (vec![[3, 0, 3]], 3));
        // Rows whose columns are too far from each other for 16 bits are not put together.
        let indices = vec![10, 70_000, 60_000, 9, 65_544, 65_545];
        let far: Csr<f32, i32> = Csr::new(5, 70_001, vec![0, 1, 3, 4, 5, 6], indices, vec![1.0; 6]).unwrap();
        let tiles = Tiles::narrow(&far, 5);
        assert_eq!(tiles.tiles, [[0, 1, 0, 1], [1, 2, 1, 3], [2, 4, 3, 5], [4, 5, 5, 6]]);
        let own = tiles.tiles.iter().map(|&[.., begin, end]| begin.at()..end.at());
        let (firsts, columns) = narrow_columns(&far, own);
        assert_eq!((firsts, columns), (vec![10, 60_000, 9, 65_545], vec![0, 10_000, 0, 0, 65_535, 0]));
        // Not more rows than the tile has places, however short they are.
        let empty: Csr<f32, i64> = Csr::new(7, 1, vec![0; 8], vec![], vec![]).unwrap();
        assert_eq!(Tiles::new(&empty, 5).tiles, [[0, 5, 0, 0], [5, 7, 0, 0]]);
    }
}

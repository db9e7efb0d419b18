//! How a product is split into tasks, and a task along K.

use std::num::NonZeroUsize;
use std::ops::Range;

/// The longest piece of K multiplied at once. Every additional piece is another pass over the sums, which costs more
/// than reading a panel of B from L2: at this depth a panel is 32 KiB with 256-bit vectors, all of a usual L1.
pub(super) const DEPTH_BLOCK: usize = 512;

/// What pieces of K are multiples of, so that most of them are copied in whole vectors.
pub(super) const VECTOR: usize = 8;

/// The longest piece of K of a product of few columns whose rows lie in runs: their sums are costly to finish.
pub(super) const LONG_DEPTH_BLOCK: usize = 2048;

/// The longest piece of K multiplied on tiles, in pairs: a panel is 40 KiB then, which leaves room in an L1 of 48 KiB.
pub(super) const TILE_DEPTH_BLOCK: usize = 320;

/// Products of fewer rows are not multiplied on tiles: most of a tile would be idle, and such a product waits for its weights.
pub(super) const FEWEST_TILE_ROWS: usize = 16;

/// Products of fewer values in depth are not multiplied on tiles: it would take longer to load and store them than to multiply.
pub(super) const LEAST_TILE_DEPTH: usize = 64;

/// The distance between rows of the copied block of A: a constant, so that the microkernel addresses its rows by constant
/// displacements, and not a power of two, so that they do not fall into the same sets of the cache.
pub(super) const ROW_STRIDE: usize = DEPTH_BLOCK + 16;

/// The most rows of a block: `ROW_BLOCK × DEPTH_BLOCK` f32 values are 384 KiB, three quarters of a usual L2.
const ROW_BLOCK: usize = 192;

/// The most columns of a block. Its f32 sums lie in L3 when they are many, but each is touched only once in
/// `DEPTH_BLOCK` steps, while a wide block copies its rows of A less often.
const COLUMN_BLOCK: usize = 1280;

/// Panels of a group: the columns that are multiplied and, after the last piece of K, finished while their sums are
/// still close. Even, because a value panel and its gate panel must stay together.
pub(super) const GROUP_PANELS: usize = 8;

/// Products with fewer multiplications than this are not worth waking another thread.
const PARALLEL_FROM: usize = 1 << 18;

/// Cuts `0..depth` into pieces of at most `longest`, as even as whole multiples of `unit` allow; one empty piece if there
/// is no depth, whose sums are zero.
pub(super) fn depth_pieces(depth: usize, longest: usize, unit: usize) -> impl Iterator<Item = Range<usize>> {
    let pieces = depth.div_ceil(longest).max(1);
    let size = depth.div_ceil(pieces).next_multiple_of(unit);
    (0..depth.max(1)).step_by(size.max(1)).map(move |start| start..depth.min(start + size))
}

/// As [`depth_pieces`] for rows that lie in runs of `run` values: whole runs together, `longest` values at the most, or one run
/// cut evenly.
pub(super) fn run_pieces(depth: usize, run: NonZeroUsize, longest: usize) -> Vec<Range<usize>> {
    let run = run.get();
    if run > longest {
        let within = |start: usize| {
            depth_pieces(run, DEPTH_BLOCK, VECTOR).map(move |p| start + p.start..start + p.end)
        };
        return (0..depth).step_by(run).flat_map(within).collect();
    }
    let runs = depth / run;
    let pieces = runs.div_ceil(longest / run).max(1);
    let size = runs.div_ceil(pieces).max(1) * run;
    (0..depth.max(1)).step_by(size).map(|start| start..depth.min(start + size)).collect()
}

/// The register tile of the instruction set in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// A grid of blocks of C whose sizes differ by a register tile at most, so that equal shares of them are equal work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    down: Cut,
    across: Cut,
}

/// An axis split into pieces of whole tiles, as even as tiles allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    extent: usize,
    tile: usize,
    pieces: usize,
}

impl Cut {
    fn tiles(&self) -> usize {
        self.extent.div_ceil(self.tile)
    }

    fn piece(&self, index: usize) -> Range<usize> {
        let boundary = |index: usize| (index * self.tiles() / self.pieces * self.tile).min(self.extent);
        boundary(index)..boundary(index + 1)
    }
}

impl Grid {
    /// Chooses the blocks of a product for `threads` threads: small enough for the caches, and with the least work for
    /// the busiest thread. That work includes copying A, which each block of columns repeats, and reading B, which each
    /// block of rows repeats.
    pub(super) fn new(rows: usize, columns: usize, depth: usize, tile: Tile, threads: usize) -> Self {
        let tiles = rows.div_ceil(tile.rows);
        let panels = columns.div_ceil(tile.columns);
        let fewest_down = tiles.div_ceil((ROW_BLOCK / tile.rows).max(1)).max(1);
        let fewest_across = panels.div_ceil((COLUMN_BLOCK / tile.columns).max(1)).max(1);
        let threads = if rows * columns * depth < PARALLEL_FROM { 1 } else { threads.max(1) };
        let most_tasks = fewest_down * fewest_across + 4 * (threads - 1);
        // Cycles per step of k, in tenths, with two vector multiply-adds, two or three copied values, and eight bytes
        // of B read per cycle.
        let multiply = 10 * tiles * tile.rows * panels;
        let copy = 4 * tiles * tile.rows;
        let read = 10 * panels * tile.columns / 2;
        let mut best = (u128::MAX, fewest_down, fewest_across);
        for down in fewest_down..=tiles.min(most_tasks / fewest_across) {
            for across in fewest_across..=panels.min(most_tasks / down) {
                let tasks = down * across;
                let all = (multiply + copy * across + read * down) as u128;
                let cost = all * tasks.div_ceil(threads) as u128 * 1000 / tasks as u128;
                if cost < best.0 {
                    best = (cost, down, across);
                }
            }
        }
        let (_, down, across) = best;
        Self {
            down: Cut { extent: rows, tile: tile.rows, pieces: down },
            across: Cut { extent: columns, tile: tile.columns, pieces: across },
        }
    }

    /// The number of blocks; 0 if there is no row or no column.
    pub(super) fn blocks(&self) -> usize {
        let empty = self.down.extent == 0 || self.across.extent == 0;
        if empty { 0 } else { self.down.pieces * self.across.pieces }
    }

    /// The rows and columns of a block. Blocks of the same columns follow each other, so that threads working on
    /// neighbours share the panels of B in L3.
    pub(super) fn block(&self, index: usize) -> (Range<usize>, Range<usize>) {
        (self.down.piece(index % self.down.pieces), self.across.piece(index / self.down.pieces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::tiles::TILE_ROWS;

    #[test]
    fn depth_pieces_cover_depth_in_order() {
        for (longest, unit) in [(DEPTH_BLOCK, VECTOR), (TILE_DEPTH_BLOCK, TILE_ROWS)] {
            for depth in [0, 1, 7, 8, 255, 256, 257, 320, 321, 512, 513, 2880] {
                let pieces: Vec<_> = depth_pieces(depth, longest, unit).collect();
                let mut end = 0;
                for piece in &pieces {
                    assert_eq!((piece.start, piece.start % unit), (end, 0));
                    assert!(piece.is_empty() == (depth == 0) && piece.len() <= longest);
                    end = piece.end;
                }
                assert_eq!(end, depth);
            }
        }
    }

    #[test]
    fn blocks_cover_every_element_once_and_start_on_tiles() {
        let tile = Tile { rows: 6, columns: 16 };
        for (rows, columns) in [(0, 5), (5, 0), (1, 1), (7, 33), (77, 320), (256, 1280), (600, 3000)] {
            for threads in [1, 2, 3, 64] {
                let grid = Grid::new(rows, columns, 4096, tile, threads);
                let mut seen = vec![0; rows * columns];
                for index in 0..grid.blocks() {
                    let (row_range, column_range) = grid.block(index);
                    assert_eq!((row_range.start % tile.rows, column_range.start % tile.columns), (0, 0));
                    assert!(row_range.len() <= ROW_BLOCK && column_range.len() <= COLUMN_BLOCK);
                    for row in row_range {
                        column_range.clone().for_each(|column| seen[row * columns + column] += 1);
                    }
                }
                assert!(seen.iter().all(|&count| count == 1), "{rows}×{columns} on {threads}");
            }
        }
    }

    #[test]
    fn few_rows_are_spread_over_columns() {
        let grid = Grid::new(1, 1280, 1280, Tile { rows: 6, columns: 16 }, 2);
        assert_eq!(grid.blocks() % 2, 0);
    }
}

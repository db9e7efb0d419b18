//! What the sliced kernel is given in place of the matrix: its non-zeros, sorted by slices of columns and blocks of rows.
//!
//! Every block of rows is made on its own, so they are made on all cores, and the tables are the same on any number of them.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    csr::{Csr, Index, Value},
    row_blocks::{RowBlocks, RowTable, RowTables},
};

/// The sizes that the tables are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Columns of a slice.
    pub columns: usize,
    /// Bytes that a block of the second launch has for products, sums and tables.
    pub block_bytes: usize,
    /// Blocks of the first launch.
    pub shares: usize,
    /// Blocks of the second launch that run at the same time.
    pub resident: usize,
}

impl Extents {
    /// The slices of a matrix.
    pub fn slices(&self, columns: usize) -> usize {
        columns.div_ceil(self.columns)
    }
}

/// Four values, or columns within a slice, that one thread multiplies.
type Quad<T> = [T; 4];

/// The tables. A quad is four products of rows of their own (single), or four of one row that the first launch adds up (joint).
#[derive(Clone, Debug, PartialEq)]
pub struct Slices<V, I> {
    /// The values, slice by slice: first its single quads, then its joint ones, each in the order of the blocks of rows.
    pub values: Vec<Quad<V>>,
    /// The columns within the slice. What fills a quad up has a column beyond it.
    pub columns: Vec<Quad<u16>>,
    /// Where the first result of each quad goes.
    pub places: Vec<u32>,
    /// What a block of the first launch takes of a slice: the slice's first column and its columns, the first quad, the first that is joint,
    /// and the end.
    pub pieces: Vec<[i64; 5]>,
    /// The first piece of each block of the first launch, and the end of the last.
    pub firsts: Vec<i64>,
    /// Results of the first launch, with the places between them that nothing uses.
    pub products: usize,
    /// What the second launch is given.
    pub rows: RowTables,
    /// The row, the first piece and the end of the pieces of each long row.
    pub long_rows: Vec<[I; 3]>,
    /// Pieces of long rows.
    pub partials: usize,
}

/// A non-zero of a block of rows.
#[derive(Clone, Copy)]
struct Entry<V> {
    line: u32,
    column: u16,
    value: V,
}

/// The quads of a block of rows.
struct Part<V> {
    values: [Vec<Quad<V>>; 2],
    columns: [Vec<Quad<u16>>; 2],
    /// Where the quads of each slice begin, and the last ones end; single ones, and joint ones.
    starts: [Vec<u32>; 2],
    /// Where the products of each slice begin: those of its single quads, then those of its joint ones.
    tiles: Vec<u32>,
    rows: RowTable,
    products: usize,
}

const SINGLE: usize = 0;
const JOINT: usize = 1;

/// What memory is written by; the products of a slice begin at one.
const SECTOR_BYTES: usize = 32;

/// Marks the places between products.
pub(super) const NO_LINE: u32 = u32::MAX;

impl<V: Value> Part<V> {
    /// Sorts the non-zeros of some lines. If their tables turn out larger than expected, they become several blocks.
    fn all<I: Index>(
        matrix: &Csr<V, I>,
        blocks: &RowBlocks<I>,
        lines: &Range<usize>,
        extents: &Extents,
    ) -> Vec<Part<V>> {
        let part = Part::new(matrix, blocks, lines, extents);
        if part.rows.shared_bytes::<V>(part.products) <= extents.block_bytes || lines.len() == 1 {
            return vec![part];
        }
        let middle = lines.start + lines.len() / 2;
        let halves = [lines.start..middle, middle..lines.end];
        halves.iter().flat_map(|half| Part::all(matrix, blocks, half, extents)).collect()
    }

    fn new<I: Index>(
        matrix: &Csr<V, I>,
        blocks: &RowBlocks<I>,
        lines: &Range<usize>,
        extents: &Extents,
    ) -> Part<V> {
        let slices = extents.slices(matrix.columns());
        let sorted = sorted_by_slice(matrix, blocks, lines, extents);
        let mut part = Part {
            values: [Vec::new(), Vec::new()],
            columns: [Vec::new(), Vec::new()],
            starts: [Vec::with_capacity(slices + 1), Vec::with_capacity(slices + 1)],
            tiles: Vec::with_capacity(slices),
            rows: RowTable::default(),
            products: 0,
        };
        let (mut line_of, mut joint_lines) = (Vec::new(), Vec::new());
        for slice in 0..slices {
            part.begin_slice();
            // No two blocks of the first launch write to one sector of memory.
            if !sorted.of(slice).is_empty() {
                line_of.resize(line_of.len().next_multiple_of(SECTOR_BYTES / size_of::<V>()), NO_LINE);
            }
            part.tiles.push(line_of.len() as u32);
            for run in sorted.of(slice).chunk_by(|a, b| a.line == b.line) {
                // One that is left over costs less as a product of its own than as a quad with three empty places.
                let joint = if run.len() % 4 == 1 { run.len() - 1 } else { run.len() };
                for quad in run[..joint].chunks(4) {
                    part.push(JOINT, extents);
                    quad.iter().enumerate().for_each(|(lane, entry)| part.set(JOINT, lane, entry));
                    joint_lines.push(quad[0].line);
                }
                for entry in &run[joint..] {
                    let lane = line_of.len() % 4;
                    if lane == 0 {
                        part.push(SINGLE, extents);
                    }
                    part.set(SINGLE, lane, entry);
                    line_of.push(entry.line);
                }
            }
            line_of.resize(line_of.len().next_multiple_of(4), NO_LINE);
            line_of.append(&mut joint_lines);
        }
        part.begin_slice();
        part.products = line_of.len().next_multiple_of(SECTOR_BYTES / size_of::<V>());
        part.rows = RowTable::new(&line_of, lines);
        part
    }

    fn begin_slice(&mut self) {
        for (starts, values) in self.starts.iter_mut().zip(&self.values) {
            starts.push(values.len() as u32);
        }
    }

    /// Adds a quad in which nothing counts yet.
    fn push(&mut self, kind: usize, extents: &Extents) {
        self.values[kind].push([V::from_f64(0.0); 4]);
        self.columns[kind].push([extents.columns as u16; 4]);
    }

    fn set(&mut self, kind: usize, lane: usize, entry: &Entry<V>) {
        if let (Some(values), Some(columns)) = (self.values[kind].last_mut(), self.columns[kind].last_mut()) {
            values[lane] = entry.value;
            columns[lane] = entry.column;
        }
    }

    /// Where the first result of a quad goes.
    fn place(&self, kind: usize, slice: usize, quad: usize) -> usize {
        let tile = self.tiles[slice] as usize;
        match kind {
            SINGLE => tile + 4 * (quad - self.quads(SINGLE, slice).start),
            _ => tile + 4 * self.quads(SINGLE, slice).len() + quad - self.quads(JOINT, slice).start,
        }
    }

    /// The quads that it has in a slice.
    fn quads(&self, kind: usize, slice: usize) -> Range<usize> {
        self.starts[kind][slice] as usize..self.starts[kind][slice + 1] as usize
    }
}

/// The non-zeros of a block of rows by slice, and in each slice as the matrix has them.
struct Sorted<V> {
    entries: Vec<Entry<V>>,
    starts: Vec<usize>,
}

impl<V> Sorted<V> {
    fn of(&self, slice: usize) -> &[Entry<V>] {
        &self.entries[self.starts[slice]..self.starts[slice + 1]]
    }
}

fn sorted_by_slice<V: Value, I: Index>(
    matrix: &Csr<V, I>,
    blocks: &RowBlocks<I>,
    lines: &Range<usize>,
    extents: &Extents,
) -> Sorted<V> {
    let width = extents.columns;
    let mut starts = vec![0; extents.slices(matrix.columns()) + 1];
    for line in lines.clone() {
        for index in &matrix.indices()[blocks.nonzeros(matrix, line)] {
            starts[index.at() / width + 1] += 1;
        }
    }
    for slice in 1..starts.len() {
        starts[slice] += starts[slice - 1];
    }
    let none = Entry { line: 0, column: 0, value: V::from_f64(0.0) };
    let mut entries = vec![none; *starts.last().unwrap_or(&0)];
    let mut next = starts.clone();
    for line in lines.clone() {
        let range = blocks.nonzeros(matrix, line);
        for (index, &value) in matrix.indices()[range.clone()].iter().zip(&matrix.values()[range]) {
            let (slice, column) = (index.at() / width, index.at() % width);
            entries[next[slice]] = Entry { line: (line - lines.start) as u32, column: column as u16, value };
            next[slice] += 1;
        }
    }
    Sorted { entries, starts }
}

/// The quads of a slice: the first, the first that is joint, and the end.
type Section = [usize; 3];

impl<V: Value, I: Index> Slices<V, I> {
    /// Sorts a matrix; `None` if it has more products than a place can name.
    pub fn new(matrix: &Csr<V, I>, extents: &Extents) -> Option<Slices<V, I>> {
        let blocks = RowBlocks::new(matrix, extents);
        let parts = blocks.lines.par_iter().flat_map_iter(|lines| Part::all(matrix, &blocks, lines, extents));
        let mut parts: Vec<Part<V>> = parts.collect();
        let mut products = 0;
        let mut held = Vec::with_capacity(parts.len());
        for part in &parts {
            held.push(products..products + part.products);
            products += part.products;
        }
        u32::try_from(products).ok()?;
        let slices = extents.slices(matrix.columns());
        let mut quads = 0;
        let sections: Vec<Section> = (0..slices)
            .map(|slice| {
                let begin = quads;
                let of = |kind| parts.iter().map(|part| part.quads(kind, slice).len()).sum::<usize>();
                let border = begin + of(SINGLE);
                quads = border + of(JOINT);
                [begin, border, quads]
            })
            .collect();
        let tables = parts.iter_mut().map(|part| std::mem::take(&mut part.rows)).collect();
        let rows = RowTables::new(tables, &blocks, &held);
        let (values, columns, places) = joined(&parts, &held, &sections);
        let (pieces, firsts) = shared_out::<V>(&sections, matrix.columns(), extents);
        Some(Slices {
            values,
            columns,
            places,
            pieces,
            firsts,
            products,
            rows,
            long_rows: blocks.long_rows,
            partials: blocks.pieces.len(),
        })
    }
}

/// The quads of all blocks of rows, slice by slice. `held` has the products of each block.
fn joined<V: Value>(
    parts: &[Part<V>],
    held: &[Range<usize>],
    sections: &[Section],
) -> (Vec<Quad<V>>, Vec<Quad<u16>>, Vec<u32>) {
    let quads = sections.last().map_or(0, |section| section[2]);
    let mut values = vec![[V::from_f64(0.0); 4]; quads];
    let mut columns = vec![[0; 4]; quads];
    let mut places = vec![0; quads];
    let mut left = (&mut values[..], &mut columns[..], &mut places[..]);
    let mut tasks = Vec::new();
    for (slice, [begin, border, end]) in sections.iter().enumerate() {
        for (kind, count) in [(SINGLE, border - begin), (JOINT, end - border)] {
            let (own_values, values) = left.0.split_at_mut(count);
            let (own_columns, columns) = left.1.split_at_mut(count);
            let (own_places, places) = left.2.split_at_mut(count);
            tasks.push((slice, kind, own_values, own_columns, own_places));
            left = (values, columns, places);
        }
    }
    tasks.into_par_iter().for_each(|(slice, kind, values, columns, places)| {
        let mut at = 0;
        for (part, &Range { start: base, .. }) in parts.iter().zip(held) {
            let quads = part.quads(kind, slice);
            let end = at + quads.len();
            values[at..end].copy_from_slice(&part.values[kind][quads.clone()]);
            columns[at..end].copy_from_slice(&part.columns[kind][quads.clone()]);
            for (place, quad) in places[at..end].iter_mut().zip(quads) {
                *place = (base + part.place(kind, slice, quad)) as u32;
            }
            at = end;
        }
    });
    (values, columns, places)
}

/// A block of the first launch has to load a slice of `x` first: with fewer quads it would do little else.
const LEAST_SHARE: usize = 1024;

/// A share ends with a slice that it would leave less of, and does not begin one of which it would take less.
const LEAST_PIECE: usize = 256;

/// Shares begin at multiples of so many quads, which are whole lines of the cache.
const LINE: usize = 32;

/// Shares out the quads by the bytes that they move.
fn shared_out<V: Value>(
    sections: &[Section],
    columns: usize,
    extents: &Extents,
) -> (Vec<[i64; 5]>, Vec<i64>) {
    let read = size_of::<[V; 4]>() + size_of::<[u16; 4]>() + size_of::<u32>();
    let weights = [read + size_of::<[V; 4]>(), read + size_of::<V>()];
    let weight = |[begin, border, end]: Section| {
        (border - begin) as u128 * weights[SINGLE] as u128 + (end - border) as u128 * weights[JOINT] as u128
    };
    let all: u128 = sections.iter().map(|&section| weight(section)).sum();
    let quads = sections.last().map_or(0, |section| section[2]);
    let shares = (quads / LEAST_SHARE).clamp(1, extents.shares.max(1));
    let (mut pieces, mut firsts) = (Vec::new(), vec![0]);
    let (mut done, mut slice, mut at) = (0, 0, 0);
    for share in 1..=shares {
        let goal = all * share as u128 / shares as u128;
        while slice < sections.len() {
            let [begin, border, end] = sections[slice];
            let (within, single) = (goal.saturating_sub(done), weight([begin, border, border]));
            let cut = match within < single {
                true => begin + (within / weights[SINGLE] as u128) as usize,
                false => border + ((within - single) / weights[JOINT] as u128) as usize,
            };
            let cut = cut.next_multiple_of(LINE);
            let to = match cut {
                _ if share == shares || cut + LEAST_PIECE > end => end,
                _ if cut < at + LEAST_PIECE => at,
                _ => cut,
            };
            if to > at {
                let first = slice * extents.columns;
                let width = extents.columns.min(columns - first);
                pieces.push([first, width, at, border.clamp(at, to), to].map(|number| number as i64));
                at = to;
            }
            if at < end {
                break;
            }
            done += weight([begin, border, end]);
            slice += 1;
        }
        firsts.push(pieces.len() as i64);
    }
    (pieces, firsts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmv::generate::{Kind, Recipe};

    const SMALL: Extents = Extents { columns: 8, block_bytes: 4000, shares: 3, resident: 2 };

    /// Four slices: row 0 has five non-zeros in the first and one in the third, row 1 none, row 2 two in the first and one in the last.
    fn example() -> Csr<f32, i32> {
        let indices = vec![0, 1, 2, 3, 4, 16, 7, 5, 25];
        let values = (1..=9).map(|number| number as f32).collect();
        Csr::new(3, 26, vec![0, 6, 6, 9], indices, values).unwrap()
    }

    #[test]
    fn non_zeros_are_sorted_by_slice_and_joined_by_row() {
        let tables = Slices::new(&example(), &SMALL).unwrap();
        let none = SMALL.columns as u16;
        // The first slice has the fifth non-zero of row 0 alone; four of row 0 and two of row 2 together. Then one alone in the third and in
        // the last slice.
        let values = [[5.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0], [7.0, 8.0, 0.0, 0.0]];
        assert_eq!(tables.values[..3], values);
        assert_eq!(tables.values[3..], [[6.0, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0]]);
        assert_eq!(tables.columns[..3], [[4, none, none, none], [0, 1, 2, 3], [7, 5, none, none]]);
        assert_eq!(tables.columns[3..], [[0, none, none, none], [1, none, none, none]]);
        // Each slice's results begin at a multiple of eight.
        assert_eq!((tables.places, tables.products), (vec![0, 4, 5, 8, 16], 24));
        assert_eq!(tables.pieces, [[0, 8, 0, 1, 3], [16, 8, 3, 4, 4], [24, 2, 4, 5, 5]]);
        assert_eq!(tables.firsts, [0, 3]);
        assert!(tables.long_rows.is_empty() && tables.partials == 0);
    }

    /// Every quad belongs to one block, and no two of its results have the same place.
    #[test]
    fn shares_are_whole_and_places_differ() {
        for (name, kind) in Kind::ALL {
            let recipe = Recipe { kind, rows: 3000, columns: 3000, nonzeros: 60_000, seed: 4 };
            let matrix: Csr<f64, i64> = recipe.generate().unwrap();
            let extents = Extents { columns: 256, block_bytes: 20_000, shares: 7, resident: 5 };
            let tables = Slices::new(&matrix, &extents).unwrap();
            let mut next = 0;
            let mut results = vec![0; tables.products];
            for &[column, columns, begin, border, end] in &tables.pieces {
                assert!(begin == next && begin <= border && border <= end && begin < end, "{name}");
                assert!(column % 256 == 0 && column + columns <= 3000, "{name}");
                next = end;
                for quad in begin..end {
                    let place = tables.places[quad as usize] as usize;
                    let count = if quad < border { 4 } else { 1 };
                    results[place..place + count].iter_mut().for_each(|times| *times += 1);
                    assert!(count == 1 || place.is_multiple_of(4), "{name}");
                    let known = tables.columns[quad as usize];
                    assert!(known.iter().all(|&known| known == 256 || i64::from(known) < columns), "{name}");
                }
            }
            assert_eq!(next as usize, tables.values.len(), "{name}");
            assert!(results.iter().all(|&times| times <= 1), "{name}");
            // A place in each quad that is not used has a value of zero.
            let filled = tables.values.iter().flatten().filter(|&&value| value != 0.0).count();
            assert_eq!(filled, matrix.values().iter().filter(|&&value| value != 0.0).count(), "{name}");
            let shares = tables.firsts.windows(2).map(|pair| {
                let own = &tables.pieces[pair[0] as usize..pair[1] as usize];
                own.iter().map(|piece| piece[4] - piece[2]).sum::<i64>()
            });
            let shares: Vec<i64> = shares.collect();
            let most = shares.iter().max().unwrap();
            assert!(*most <= 2 * next / shares.len() as i64 + 2 * LEAST_PIECE as i64, "{name}: {shares:?}");
        }
    }

    #[test]
    fn the_threads_do_not_decide() {
        let recipe: Recipe = "power-law:rows=3000,nonzeros=100000,seed=8".parse().unwrap();
        let matrix: Csr<f32, i32> = recipe.generate().unwrap();
        let extents = Extents { columns: 512, block_bytes: 20_000, shares: 9, resident: 4 };
        let of = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Slices::new(&matrix, &extents).unwrap())
        };
        assert!(of(1) == of(3));
    }
}

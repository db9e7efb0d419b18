//! The blocks of rows that the sliced kernel sums, and the tables by which it does.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    csr::{Csr, Index, Value},
    slices::{Extents, NO_LINE},
};

/// A row with more non-zeros is cut into pieces of so many, so that one warp does not sum long after all others.
const LONGEST: usize = 2048;

/// Blocks are not made smaller than this only to have enough of them.
const LEAST_BYTES: usize = 8 << 10;

/// What the tables of a block need beside what each line adds to them: groups that are not full, or whose rows are not of one length.
const GROUP_BYTES: usize = 4 << 10;

/// How rows are put together. A line is a row, or a piece of a long row: the rows come first, and a long one has no non-zeros there.
pub(super) struct RowBlocks<I> {
    rows: usize,
    longest: usize,
    /// The non-zeros of each piece of a long row.
    pub pieces: Vec<Range<usize>>,
    /// The row, the first piece and the end of the pieces of each long row.
    pub long_rows: Vec<[I; 3]>,
    /// The lines of each block: rows, or pieces.
    pub lines: Vec<Range<usize>>,
}

impl<I: Index> RowBlocks<I> {
    /// Cuts long rows, and packs lines into blocks.
    pub fn new<V: Value>(matrix: &Csr<V, I>, extents: &Extents) -> RowBlocks<I> {
        let rows = matrix.rows();
        // A line alone fits a block, whatever lies between its products.
        let longest = (extents.block_bytes.saturating_sub(1536) / 40).clamp(1, LONGEST);
        let mut blocks =
            RowBlocks { rows, longest, pieces: Vec::new(), long_rows: Vec::new(), lines: Vec::new() };
        let index = I::from_usize;
        for row in 0..rows {
            let Range { start, end } = matrix.row(row);
            if end - start > longest {
                let first = blocks.pieces.len();
                let piece = |from: usize| from..end.min(from + longest);
                blocks.pieces.extend((start..end).step_by(longest).map(piece));
                blocks.long_rows.push([index(row), index(first), index(blocks.pieces.len())]);
            }
        }
        let lines = rows + blocks.pieces.len();
        let products: Vec<u16> =
            (0..lines).into_par_iter().map(|line| blocks.most_products(matrix, line, extents)).collect();
        blocks.lines = packed::<V>(&products, rows, extents, extents.slices(matrix.columns()));
        blocks
    }

    /// Where the non-zeros of a line are.
    pub fn nonzeros<V: Value>(&self, matrix: &Csr<V, I>, line: usize) -> Range<usize> {
        match line.checked_sub(self.rows) {
            Some(piece) => self.pieces[piece].clone(),
            None => {
                let range = matrix.row(line);
                if range.len() > self.longest { range.start..range.start } else { range }
            }
        }
    }

    /// How many products a line has at most: exactly so many if its columns ascend.
    fn most_products<V: Value>(&self, matrix: &Csr<V, I>, line: usize, extents: &Extents) -> u16 {
        let (mut products, mut run, mut slice) = (0, 0usize, 0..0);
        for index in &matrix.indices()[self.nonzeros(matrix, line)] {
            if !slice.contains(&index.at()) {
                products += run.div_ceil(4);
                run = 0;
                let first = index.at() / extents.columns * extents.columns;
                slice = first..first + extents.columns;
            }
            run += 1;
        }
        // At most as many as non-zeros.
        (products + run.div_ceil(4)) as u16
    }
}

/// Bytes of a block that a line takes.
fn line_bytes<V: Value>(products: u16) -> usize {
    let products = usize::from(products);
    let lanes = lanes(products);
    let positions = lanes * products.div_ceil(2 * lanes) * size_of::<u32>();
    (products + 1) * size_of::<V>() + positions + (lanes * size_of::<Group>()).div_ceil(32) + size_of::<u16>()
}

/// Packs lines into blocks with room for what they take, and for what lies between their products on average. If there are few blocks, all
/// are of about one size, so that no multiprocessor has one more than the others.
fn packed<V: Value>(products: &[u16], rows: usize, extents: &Extents, slices: usize) -> Vec<Range<usize>> {
    let more = GROUP_BYTES + BETWEEN_BYTES * slices;
    let room = extents.block_bytes.saturating_sub(more).max(extents.block_bytes / 4);
    let sizes = || products.iter().map(|&products| line_bytes::<V>(products));
    let (all, largest) = (sizes().sum::<usize>(), sizes().max().unwrap_or(0));
    let blocks = all.div_ceil(room).next_multiple_of(extents.resident.max(1)).max(1);
    let room = (all.div_ceil(blocks) + largest).max(LEAST_BYTES).min(room);
    let mut lines: Vec<Range<usize>> = Vec::new();
    let mut held = 0;
    for (line, own) in sizes().enumerate() {
        match lines.last_mut() {
            // Pieces begin a block of their own.
            Some(last) if line != rows && held + own <= room => {
                last.end = line + 1;
                held += own;
            }
            _ => {
                lines.push(line..line + 1);
                held = own;
            }
        }
    }
    lines
}

/// What lies between the products of a slice and of the next on average: places of a quad that are empty, and the rest of a sector.
const BETWEEN_BYTES: usize = 24;

/// Steps of a lane in a row: with more, the row gets twice the lanes.
const STEPS: usize = 16;

/// Lanes that sum a row with so many products.
fn lanes(products: usize) -> usize {
    products.div_ceil(STEPS).next_power_of_two().min(32)
}

/// Rows that a warp sums together: where the positions of their products are, how many pairs of them a lane has, the logarithm of the lanes of
/// a row with the number of rows above it, and the place of the first row in the order.
type Group = [u32; 4];

/// The tables of a block of rows, as its threads have them in shared memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RowTable {
    lines: Range<usize>,
    groups: Vec<Group>,
    /// Pairs of products that a lane adds. Position 0 is a zero, and the products begin at [`FIRST`].
    positions: Vec<u32>,
    /// The lines that have products, the longest first.
    order: Vec<u16>,
}

/// Where products begin in shared memory.
const FIRST: usize = 4;

/// The tables are copied in pieces of so many bytes.
const PIECE_BYTES: usize = 16;

impl RowTable {
    /// The tables of some lines, given the line of each product.
    pub fn new(line_of: &[u32], lines: &Range<usize>) -> RowTable {
        let mut starts = vec![0u32; lines.len() + 1];
        for &line in line_of.iter().filter(|&&line| line != NO_LINE) {
            starts[line as usize + 1] += 1;
        }
        for line in 0..lines.len() {
            starts[line + 1] += starts[line];
        }
        let mut by_line = vec![0u16; starts[lines.len()] as usize];
        let mut next = starts.clone();
        for (place, &line) in line_of.iter().enumerate().filter(|(_, line)| **line != NO_LINE) {
            by_line[next[line as usize] as usize] = (FIRST + place) as u16;
            next[line as usize] += 1;
        }
        let positions_of = |line: u16| {
            let line = usize::from(line);
            &by_line[starts[line] as usize..starts[line + 1] as usize]
        };
        let lanes_of = |line: u16| lanes(positions_of(line).len());
        let mut order: Vec<u16> = (0..lines.len()).map(|line| line as u16).collect();
        order.retain(|&line| !positions_of(line).is_empty());
        order.sort_by_key(|&line| std::cmp::Reverse(positions_of(line).len()));
        let mut table = RowTable { lines: lines.clone(), ..RowTable::default() };
        let mut first = 0;
        while first < order.len() {
            let lanes = lanes_of(order[first]);
            let alike = order[first..].iter().take(32 / lanes).take_while(|&&line| lanes_of(line) == lanes);
            let members = &order[first..first + alike.count()];
            let pairs = positions_of(members[0]).len().div_ceil(2 * lanes);
            let shift = lanes.trailing_zeros();
            let numbers = [table.positions.len(), pairs, members.len(), first].map(|number| number as u32);
            let [positions, pairs_of_lane, rows, place] = numbers;
            table.groups.push([positions, pairs_of_lane, shift | rows << 8, place]);
            let begin = table.positions.len();
            table.positions.resize(begin + 32 * pairs, 0);
            for (member, &line) in members.iter().enumerate() {
                for (place, &position) in positions_of(line).iter().enumerate() {
                    let (step, lane) = (place >> shift, place % lanes + member * lanes);
                    let half = step % 2 * u16::BITS as usize;
                    table.positions[begin + 32 * (step / 2) + lane] |= u32::from(position) << half;
                }
            }
            first += members.len();
        }
        // Positions follow the groups.
        let words = table.groups.len() * size_of::<Group>() / size_of::<u32>();
        table.groups.iter_mut().for_each(|group| group[0] += words as u32);
        RowTable { order, ..table }
    }

    /// Where the order begins, and where it ends, in pieces.
    fn pieces(&self) -> [usize; 2] {
        let before = size_of_val(&self.groups[..]) + size_of_val(&self.positions[..]);
        let order = before / PIECE_BYTES;
        [order, order + size_of_val(&self.order[..]).div_ceil(PIECE_BYTES)]
    }

    /// The shared memory that a block with so many products needs.
    pub fn shared_bytes<V: Value>(&self, products: usize) -> usize {
        let numbers = (FIRST + products + self.lines.len()) * size_of::<V>();
        numbers.next_multiple_of(PIECE_BYTES) + self.pieces()[1] * PIECE_BYTES
    }
}

/// What the second launch is given. The names of the numbers are in `sliced.cu`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowTables {
    /// The blocks of rows.
    pub blocks: Vec<[i64; 9]>,
    /// Their tables, one after the other.
    pub words: Vec<u32>,
}

impl RowTables {
    /// Puts the tables of all blocks together. `held` has the products of each.
    pub(super) fn new<I: Index>(
        tables: Vec<RowTable>,
        blocks: &RowBlocks<I>,
        held: &[Range<usize>],
    ) -> RowTables {
        let of_piece = PIECE_BYTES / size_of::<u32>();
        let mut all = RowTables::default();
        all.words.reserve_exact(tables.iter().map(|table| table.pieces()[1] * of_piece).sum());
        for (table, products) in tables.into_iter().zip(held) {
            let is_partial = table.lines.start >= blocks.rows;
            let first = if is_partial { table.lines.start - blocks.rows } else { table.lines.start };
            let [order, pieces] = table.pieces();
            let numbers = [
                products.start,
                products.len(),
                first,
                table.lines.len(),
                all.words.len() / of_piece,
                pieces,
                table.groups.len(),
                order,
                usize::from(is_partial),
            ];
            all.blocks.push(numbers.map(|number| number as i64));
            all.words.extend_from_slice(bytemuck::cast_slice(&table.groups));
            all.words.extend(table.positions);
            let mut order = table.order;
            order.resize(order.len().next_multiple_of(PIECE_BYTES / size_of::<u16>()), 0);
            all.words.extend(
                order.chunks_exact(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << u16::BITS),
            );
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmv::generate::{Kind, Recipe};

    /// What a block of the second launch does, with as many numbers as its shared memory has: the sums of the lines.
    fn sums(table: &RowTable, products: &[f64]) -> Vec<f64> {
        let mut slots = vec![0.0; FIRST];
        slots.extend(products);
        let mut sums = vec![0.0; table.lines.len()];
        let words = (table.groups.len() * 4) as u32;
        for &[positions, pairs, shift_and_rows, first] in &table.groups {
            let (shift, rows) = (shift_and_rows & 0xff, shift_and_rows >> 8);
            for lane in 0..32 {
                let begin = (positions - words + lane) as usize;
                let sum: f64 = (0..pairs as usize)
                    .map(|pair| table.positions[begin + 32 * pair])
                    .map(|both| slots[(both & 0xffff) as usize] + slots[(both >> 16) as usize])
                    .sum();
                match lane >> shift {
                    row if row < rows => sums[usize::from(table.order[(first + row) as usize])] += sum,
                    _ => assert_eq!(sum, 0.0),
                }
            }
        }
        sums
    }

    #[test]
    fn every_product_is_added_to_its_line_once() {
        // Lines of 0, 1, 16, 17, 40, 200, 900 and 3 products, mixed, with places that nothing uses.
        let lengths = [0, 1, 16, 17, 40, 200, 900, 3, 0];
        let mut line_of: Vec<u32> =
            (0..900).flat_map(|step| (0..9).filter(move |&line| step < lengths[line as usize])).collect();
        line_of.splice(5..5, [NO_LINE; 3]);
        let products: Vec<f64> = (0..line_of.len()).map(|place| (place * place) as f64).collect();
        let mut expected = vec![0.0; lengths.len()];
        for (&line, &product) in line_of.iter().zip(&products).filter(|(line, _)| **line != NO_LINE) {
            expected[line as usize] += product;
        }
        let table = RowTable::new(&line_of, &(20..29));
        assert_eq!(sums(&table, &products), expected);
        assert_eq!(table.order, [6, 5, 4, 3, 2, 7, 1]);
        // 900 products are 15 pairs for each of 32 lanes; rows of 16, 3 and 1 are a group.
        assert_eq!((table.groups[0][1], table.groups[0][2]), (15, 5 | 1 << 8));
        assert_eq!((table.groups[4][1], table.groups[4][2]), (8, 3 << 8));
        assert_eq!(table.groups.len(), 5);
    }

    #[test]
    fn lines_are_packed_and_long_rows_cut() {
        let recipe = Recipe { kind: Kind::DenseRow, rows: 500, columns: 1000, nonzeros: 6000, seed: 5 };
        let matrix: Csr<f32, i32> = recipe.generate().unwrap();
        let extents = Extents { columns: 100, block_bytes: 9000, shares: 1, resident: 1 };
        let blocks = RowBlocks::new(&matrix, &extents);
        // (9000 - 1536) / 40 is 186: 1000 non-zeros are six pieces.
        assert_eq!((blocks.longest, blocks.pieces.len(), blocks.long_rows.len()), (186, 6, 1));
        let dense = blocks.long_rows[0][0] as usize;
        assert_eq!(blocks.long_rows[0], [dense as i32, 0, 6]);
        assert!(blocks.nonzeros(&matrix, dense).is_empty());
        assert_eq!(blocks.nonzeros(&matrix, 500 + 5).len(), 1000 - 5 * 186);
        // All lines in order, and none that is a row with one that is a piece.
        let mut next = 0;
        for lines in &blocks.lines {
            assert_eq!(lines.start, next);
            assert!(lines.end <= 500 || lines.start >= 500, "{lines:?}");
            next = lines.end;
        }
        assert_eq!(next, 506);
        assert!(blocks.lines.len() > 5);
    }

    #[test]
    fn few_blocks_are_of_one_size() {
        let extents = Extents { columns: 100, block_bytes: 100_000, shares: 1, resident: 8 };
        let lines = packed::<f32>(&[10; 20_000], 20_000, &extents, 10);
        assert_eq!(lines.len() % 8, 0, "{}", lines.len());
        assert!(
            lines.iter().map(ExactSizeIterator::len).all(|rows| rows.abs_diff(20_000 / lines.len()) < 60)
        );
    }
}

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
const LEAST_SLOTS: usize = 2048;

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
        // A line alone fits a block, whatever is between its products.
        let longest = (extents.slots / 4 - 1).clamp(1, LONGEST);
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
        blocks.lines = packed(&products, rows, extents, extents.slices(matrix.columns()));
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

/// Packs lines into blocks with room for their products, what lies between them, and a sum for each line. If there are few, all are of about
/// one size, so that no multiprocessor has one more than the others.
fn packed(products: &[u16], rows: usize, extents: &Extents, slices: usize) -> Vec<Range<usize>> {
    let between = |products: usize| 3 * slices.min(products) + 3;
    let all = products.iter().map(|&products| usize::from(products) + 1).sum::<usize>();
    let largest = products.iter().max().map_or(0, |&products| usize::from(products) + 1);
    let room = extents.slots.saturating_sub(between(extents.slots)).max(extents.slots / 4);
    let blocks = all.div_ceil(room).next_multiple_of(extents.resident.max(1)).max(1);
    let even = all.div_ceil(blocks) + largest;
    let slots = (even + between(even)).max(LEAST_SLOTS).min(extents.slots);
    let mut lines: Vec<Range<usize>> = Vec::new();
    let mut held = 0;
    for (line, &own) in products.iter().enumerate() {
        let own = usize::from(own);
        match lines.last_mut() {
            // Pieces begin a block of their own.
            Some(last) if line != rows && held + own + between(held + own) + last.len() < slots => {
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

/// Steps of a lane in a row: with more, the row gets twice the lanes.
const STEPS: usize = 16;

/// The tables of the second launch. What the kernel calls each number is in `sliced.cu`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowTables {
    /// The blocks of rows.
    pub blocks: Vec<[i64; 9]>,
    /// What a warp sums together.
    pub groups: Vec<[u32; 4]>,
    /// Pairs of products that a lane adds, by their positions in the block.
    pub positions: Vec<[u16; 2]>,
    /// The lines of a block that have products, the longest first.
    pub order: Vec<u16>,
}

impl RowTables {
    /// The tables of one block, given the line of each product. There is no header yet.
    pub(super) fn of_block(line_of: &[u32], lines: usize, slots: usize) -> RowTables {
        let mut starts = vec![0u32; lines + 1];
        for &line in line_of.iter().filter(|&&line| line != NO_LINE) {
            starts[line as usize + 1] += 1;
        }
        for line in 0..lines {
            starts[line + 1] += starts[line];
        }
        let mut by_line = vec![0u16; starts[lines] as usize];
        let mut next = starts.clone();
        for (position, &line) in line_of.iter().enumerate().filter(|(_, line)| **line != NO_LINE) {
            by_line[next[line as usize] as usize] = position as u16;
            next[line as usize] += 1;
        }
        let positions_of = |line: u16| {
            let line = usize::from(line);
            &by_line[starts[line] as usize..starts[line + 1] as usize]
        };
        let mut order: Vec<u16> = (0..lines as u32).map(|line| line as u16).collect();
        order.retain(|&line| !positions_of(line).is_empty());
        order.sort_by_key(|&line| std::cmp::Reverse(positions_of(line).len()));
        let shift_of = |line: u16| {
            let lanes = positions_of(line).len().div_ceil(STEPS).next_power_of_two();
            lanes.trailing_zeros().min(5)
        };
        let mut tables = RowTables::default();
        let mut first = 0;
        while first < order.len() {
            let shift = shift_of(order[first]);
            let lanes = 1 << shift;
            let alike = order[first..].iter().take(32 / lanes).take_while(|&&line| shift_of(line) == shift);
            let members = &order[first..first + alike.count()];
            let pairs = positions_of(members[0]).len().div_ceil(2 * lanes);
            tables.groups.push([
                tables.positions.len() as u32,
                pairs as u32,
                shift | (members.len() as u32) << 8,
                first as u32,
            ]);
            for pair in 0..pairs {
                for lane in 0..32 {
                    let own = members.get(lane / lanes).map_or(&[][..], |&line| positions_of(line));
                    let nth = |step: usize| own.get(step * lanes + lane % lanes).copied();
                    tables
                        .positions
                        .push([2 * pair, 2 * pair + 1].map(|step| nth(step).unwrap_or(slots as u16)));
                }
            }
            first += members.len();
        }
        RowTables { order, ..tables }
    }

    /// The tables of all blocks, one after the other. `held` has the products of each.
    pub(super) fn joined<I: Index>(
        parts: Vec<RowTables>,
        blocks: &RowBlocks<I>,
        held: &[Range<usize>],
    ) -> RowTables {
        let mut all = RowTables::default();
        all.positions.reserve_exact(parts.iter().map(|part| part.positions.len()).sum());
        for ((part, lines), products) in parts.into_iter().zip(&blocks.lines).zip(held) {
            let is_partial = lines.start >= blocks.rows;
            let first = if is_partial { lines.start - blocks.rows } else { lines.start };
            let numbers = [
                products.start,
                products.len(),
                first,
                lines.len(),
                all.groups.len(),
                part.groups.len(),
                all.positions.len(),
                all.order.len(),
                usize::from(is_partial),
            ];
            all.blocks.push(numbers.map(|number| number as i64));
            all.groups.extend(part.groups);
            all.positions.extend(part.positions);
            all.order.extend(part.order);
        }
        all
    }
}

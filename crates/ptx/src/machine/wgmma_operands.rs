//! The layout of `wgmma` operands in shared memory.

use std::ops::Range;

use super::mma_tiles::{DEPTH, Left, NO_LEFT, Right, SumWords, TileProduct, line, set_columns, with_kind};
use crate::{isa::Type, memory::Swizzle};

/// The fields of a matrix descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    start: usize,
    leading: usize,
    stride: usize,
    swizzle: Swizzle,
    /// Whether memory is contiguous along rows or columns rather than along the depth.
    pub transposed: bool,
}

impl Layout {
    pub(super) fn new(descriptor: u64, transposed: bool) -> Layout {
        let field = |bit: u32| (descriptor >> bit & 0x3fff) as usize * 16;
        let swizzle = match descriptor >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::Bytes128,
            2 => Swizzle::Bytes64,
            _ => Swizzle::Bytes32,
        };
        Layout { start: field(0), leading: field(16), stride: field(32), swizzle, transposed }
    }

    /// The addresses of 16-byte pieces, line by line. Lines are rows or columns and pieces run along the depth; if transposed, lines are
    /// depths and pieces run along the rows or columns.
    pub(super) fn addresses(&self, lines: Range<usize>, pieces: Range<usize>, mut each: impl FnMut(usize)) {
        let Layout { start, leading, stride, swizzle, transposed } = *self;
        let (eights, width) = match (swizzle, transposed) {
            (Swizzle::None, false) => (stride, 16),
            (Swizzle::None, true) => (leading, 16),
            _ => (stride, swizzle.bytes()),
        };
        // This many pieces are contiguous before the next `step`.
        let (across, step) = match (swizzle, transposed) {
            (Swizzle::None, false) => (1, leading),
            (Swizzle::None, true) => (1, stride),
            (_, false) => (usize::MAX, 0),
            (_, true) => (swizzle.bytes() / 16, leading),
        };
        let within: Vec<usize> = pieces.map(|piece| piece / across * step + piece % across * 16).collect();
        for line in lines {
            let begin = start + line / 8 * eights + line % 8 * width;
            within.iter().for_each(|piece| each(swizzle.swizzled(begin + piece)));
        }
    }
}

/// An operand in shared memory: the offsets of its 16-byte pieces, line after line.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    pub kind: Type,
    pub offsets: Vec<u32>,
    pub per_line: usize,
    /// Whether lines are depths instead of rows or columns.
    pub transposed: bool,
}

impl Pieces {
    /// The four words of a piece.
    #[inline(always)]
    fn words(&self, memory: &[u8], line: usize, piece: usize) -> [u32; 4] {
        let offset = self.offsets[line * self.per_line + piece] as usize;
        let bytes = &memory[offset..offset + 16];
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        words
    }

    /// The rows of operand A.
    pub(super) fn left(&self, memory: &[u8]) -> Left {
        let mut left = NO_LEFT;
        with_kind!(self.kind, left_of_pieces(self, memory, &mut left));
        left
    }

    /// Eight columns of operand B.
    #[inline(always)]
    pub(super) fn right(&self, memory: &[u8], tile: usize, right: &mut Right) {
        with_kind!(self.kind, right_of_pieces(self, memory, tile, right));
    }
}

#[inline(always)]
fn left_of_pieces<const LINE: usize>(kind: Type, pieces: &Pieces, memory: &[u8], left: &mut Left) {
    for number in 0..pieces.offsets.len() / pieces.per_line {
        for piece in 0..pieces.per_line {
            let values = line::<LINE>(kind, &pieces.words(memory, number, piece));
            let begin = LINE * piece;
            if pieces.transposed {
                for (row, value) in left[begin..].iter_mut().zip(values) {
                    row[number] = value;
                }
            } else {
                left[number][begin..begin + LINE].copy_from_slice(&values);
            }
        }
    }
}

#[inline(always)]
fn right_of_pieces<const LINE: usize>(
    kind: Type,
    pieces: &Pieces,
    memory: &[u8],
    tile: usize,
    right: &mut Right,
) {
    if pieces.transposed {
        let depths = (pieces.offsets.len() / pieces.per_line).min(DEPTH);
        for (depth, right) in right.iter_mut().enumerate().take(depths) {
            let values = line::<LINE>(kind, &pieces.words(memory, depth, tile));
            right.iter_mut().zip(values).for_each(|(right, value)| *right = value);
        }
        return;
    }
    for (piece, right) in right.chunks_exact_mut(LINE).enumerate().take(pieces.per_line) {
        let mut columns = [[0.0; LINE]; 8];
        for (number, column) in columns.iter_mut().enumerate() {
            *column = line(kind, &pieces.words(memory, 8 * tile + number, piece));
        }
        set_columns(right, &columns);
    }
}

/// A warp's part of a product: 16 rows and all columns.
#[derive(Clone, Copy)]
pub(super) struct WarpPart<'a> {
    pub left: &'a Left,
    pub right: &'a Pieces,
    pub memory: &'a [u8],
    pub k: usize,
    pub sum: Type,
}

impl WarpPart<'_> {
    /// Adds the product to the accumulators of eight columns, and leaves the columns of B in `right`.
    pub(super) fn add_to(self, wide: bool, tile: usize, right: &mut Right, sums: &mut SumWords) {
        #[cfg(target_arch = "x86_64")]
        if wide {
            // SAFETY: the processor was found to have these instructions.
            return unsafe { self.add_wide(tile, right, sums) };
        }
        let _ = wide;
        self.add(tile, right, sums);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add_wide(self, tile: usize, right: &mut Right, sums: &mut SumWords) {
        self.add(tile, right, sums);
    }

    #[inline(always)]
    fn add(self, tile: usize, right: &mut Right, sums: &mut SumWords) {
        self.right.right(self.memory, tile, right);
        self.tile(right).add(sums);
    }

    /// The product of eight columns.
    #[inline(always)]
    pub(super) fn tile<'b>(&'b self, right: &'b Right) -> TileProduct<'b> {
        let WarpPart { left, k, sum, .. } = *self;
        TileProduct { left, right, k, sum, saturate: false }
    }
}

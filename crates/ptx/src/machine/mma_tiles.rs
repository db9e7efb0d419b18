//! The arithmetic of matrix products in tiles of 16 rows and eight columns, and the register layout of their operands.
//!
//! Products of f16, bf16, tf32 and 8-bit operands are exact in f32, and are added in f32 one after the other. Tensor cores add several
//! products at once, in an order and with guard bits that are not published: results agree within a few units in the last place
//! of the largest term.

use super::registers::Words;
use crate::{
    isa::Type,
    numeric::{self, Format},
};

/// The largest depth of a tile: elements of a row of the left operand.
pub(super) const DEPTH: usize = 32;

/// The left operand's rows. Wider elements use only the first part of a row.
pub(super) type Left = [[f32; DEPTH]; 16];

/// The right operand's eight columns, depth after depth.
pub(super) type Right = [[f32; 8]; DEPTH];

/// Zeros, before operands are read.
pub(super) const NO_LEFT: Left = [[0.0; DEPTH]; 16];
pub(super) const NO_RIGHT: Right = [[0.0; 8]; DEPTH];

/// The accumulators, row by row.
pub(super) type Sums = [[f32; 8]; 16];

/// A tile's accumulators in registers: four, or two if they have 16 bits or there are only eight rows.
pub(super) type SumWords = [Words; 4];

/// The value of an operand's element.
#[inline(always)]
fn value(kind: Type, bits: u32) -> f32 {
    match kind {
        Type::F16 => numeric::from_f16(bits & 0xffff),
        Type::Bf16 => numeric::from_bf16(bits & 0xffff),
        // The lower bits of a tf32 are ignored.
        Type::Tf32 => f32::from_bits(bits & 0xffff_e000),
        Type::E4m3 => numeric::widen(bits & 0xff, Format::E4M3) as f32,
        Type::E5m2 => numeric::widen(bits & 0xff, Format::E5M2) as f32,
        Type::S8 => f32::from(bits as u8 as i8),
        Type::U8 => f32::from(bits as u8),
        _ => 0.0,
    }
}

/// Calls with the element type, and how many of them fit into 16 bytes, as constants, so that loops over the common types become
/// vector code.
macro_rules! with_kind {
    ($kind:expr, $call:ident($($argument:expr),*)) => {
        match $kind {
            Type::F16 => $call::<8>(Type::F16, $($argument),*),
            Type::Bf16 => $call::<8>(Type::Bf16, $($argument),*),
            Type::Tf32 => $call::<4>(Type::Tf32, $($argument),*),
            kind => $call::<16>(kind, $($argument),*),
        }
    };
}
pub(super) use with_kind;

/// The elements of four words: part of a row of the left operand, or of a column of the right one.
#[inline(always)]
pub(super) fn line<const LINE: usize>(kind: Type, words: &[u32]) -> [f32; LINE] {
    let each = LINE / 4;
    let mut line = [0.0; LINE];
    for (line, &word) in line.chunks_exact_mut(each).zip(words) {
        for (part, element) in line.iter_mut().enumerate() {
            *element = value(kind, word >> (32 / each * part));
        }
    }
    line
}

/// Transposes eight columns into the right operand.
#[inline(always)]
pub(super) fn set_columns<const LINE: usize>(right: &mut [[f32; 8]], columns: &[[f32; LINE]; 8]) {
    for (depth, right) in right.iter_mut().enumerate().take(LINE) {
        for (right, column) in right.iter_mut().zip(columns) {
            *right = column[depth];
        }
    }
}

/// The eight lines of a register, four lanes each.
#[inline(always)]
fn lines<const LINE: usize>(kind: Type, words: &Words) -> [[f32; LINE]; 8] {
    let mut lines = [[0.0; LINE]; 8];
    for (out, words) in lines.iter_mut().zip(words.chunks_exact(4)) {
        *out = line(kind, words);
    }
    lines
}

/// The rows of the left operand from the registers of a warp.
#[inline(always)]
fn left_of_registers<const LINE: usize>(kind: Type, registers: &[&Words], m: usize, left: &mut Left) {
    for (r, words) in registers.iter().enumerate() {
        let (row, depth) = if m == 16 { (8 * (r % 2), LINE * (r / 2)) } else { (0, LINE * r) };
        for (row, line) in left[row..row + 8].iter_mut().zip(&lines::<LINE>(kind, words)) {
            row[depth..depth + LINE].copy_from_slice(line);
        }
    }
}

/// The columns of the right operand from the registers of a warp.
#[inline(always)]
fn right_of_registers<const LINE: usize>(kind: Type, registers: &[&Words], right: &mut Right) {
    for (right, words) in right.chunks_exact_mut(LINE).zip(registers) {
        set_columns(right, &lines::<LINE>(kind, words));
    }
}

/// Accumulators from registers. Four lanes hold a row, each two neighbouring columns: one lane of two registers, or of one register
/// if accumulators have 16 bits. Further registers hold the other eight rows.
#[inline(always)]
pub(super) fn sums_of_registers(words: &SumWords, kind: Type) -> Sums {
    let mut sums = [[0.0; 8]; 16];
    for (half, sums) in sums.chunks_exact_mut(8).enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            for i in 0..4 {
                let lane = 4 * row + i;
                [sums[2 * i], sums[2 * i + 1]] = if kind == Type::F16 {
                    let pair = words[half][lane];
                    [numeric::from_f16(pair & 0xffff), numeric::from_f16(pair >> 16)]
                } else {
                    [f32::from_bits(words[2 * half][lane]), f32::from_bits(words[2 * half + 1][lane])]
                };
            }
        }
    }
    sums
}

/// Accumulators to registers.
#[inline(always)]
fn registers_of_sums(sums: &Sums, kind: Type, words: &mut SumWords) {
    for (half, sums) in sums.chunks_exact(8).enumerate() {
        for (row, sums) in sums.iter().enumerate() {
            for i in 0..4 {
                let lane = 4 * row + i;
                let [low, high] = [sums[2 * i], sums[2 * i + 1]];
                if kind == Type::F16 {
                    words[half][lane] = numeric::f16_bits(low) | numeric::f16_bits(high) << 16;
                } else {
                    (words[2 * half][lane], words[2 * half + 1][lane]) = (low.to_bits(), high.to_bits());
                }
            }
        }
    }
}

/// Adds the products of `k` depths to the accumulators.
#[allow(clippy::needless_range_loop, reason = "the form that becomes vector code")]
#[inline(always)]
fn multiply(sums: &mut Sums, left: &Left, right: &Right, k: usize) {
    // Eight rows stay in registers over the whole depth: enough independent sums to hide the latency of an addition.
    for (sums, left) in sums.chunks_exact_mut(8).zip(left.chunks_exact(8)) {
        let mut block = [[0f32; 8]; 8];
        block.copy_from_slice(sums);
        for depth in 0..k.min(DEPTH) {
            let line = right[depth];
            for row in 0..8 {
                let x = left[row][depth];
                for i in 0..8 {
                    block[row][i] = x.mul_add(line[i], block[row][i]);
                }
            }
        }
        sums.copy_from_slice(&block);
    }
}

/// A tile's product, with its operands as f32.
#[derive(Clone, Copy)]
pub(super) struct TileProduct<'a> {
    pub left: &'a Left,
    pub right: &'a Right,
    pub k: usize,
    /// The type of the accumulators.
    pub sum: Type,
    /// Whether integer accumulators saturate instead of wrapping.
    pub saturate: bool,
}

impl TileProduct<'_> {
    /// Adds the product to accumulators.
    pub(super) fn add_to(self, wide: bool, sums: &mut SumWords) {
        #[cfg(target_arch = "x86_64")]
        if wide {
            // SAFETY: the processor was found to have these instructions.
            return unsafe { self.add_wide(sums) };
        }
        let _ = wide;
        self.add(sums);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn add_wide(self, sums: &mut SumWords) {
        self.add(sums);
    }

    #[inline(always)]
    pub(super) fn add(self, words: &mut SumWords) {
        let TileProduct { left, right, k, sum, saturate } = self;
        if sum == Type::S32 {
            // All products and their sum are integers below 2^24, which f32 represents exactly.
            let mut product = [[0.0; 8]; 16];
            multiply(&mut product, left, right, k);
            let mut products = [[0; 32]; 4];
            registers_of_sums(&product, Type::F32, &mut products);
            for (word, product) in words.as_flattened_mut().iter_mut().zip(products.as_flattened()) {
                let exact = i64::from(*word as i32) + f32::from_bits(*product) as i64;
                let kept =
                    if saturate { exact.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) } else { exact };
                *word = kept as u32;
            }
            return;
        }
        let mut sums = sums_of_registers(words, sum);
        multiply(&mut sums, left, right, k);
        registers_of_sums(&sums, sum, words);
    }
}

/// The operands of a product in the registers of a warp; the right one may be elsewhere.
#[derive(Clone, Copy)]
pub(super) struct WarpOperands<'a> {
    pub a: &'a [&'a Words],
    pub a_kind: Type,
    pub b: &'a [&'a Words],
    pub b_kind: Type,
    /// Rows, 8 or 16.
    pub m: usize,
}

impl WarpOperands<'_> {
    /// Converts them to f32.
    pub(super) fn spread(self, wide: bool, left: &mut Left, right: &mut Right) {
        #[cfg(target_arch = "x86_64")]
        if wide {
            // SAFETY: the processor was found to have these instructions.
            return unsafe { self.spread_wide(left, right) };
        }
        let _ = wide;
        self.spread_any(left, right);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn spread_wide(self, left: &mut Left, right: &mut Right) {
        self.spread_any(left, right);
    }

    #[inline(always)]
    fn spread_any(self, left: &mut Left, right: &mut Right) {
        with_kind!(self.a_kind, left_of_registers(self.a, self.m, left));
        with_kind!(self.b_kind, right_of_registers(self.b, right));
    }
}

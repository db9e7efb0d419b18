//! Matrix products of f64, of 4-bit integers and of single bits. Integer sums are exact; those of f64 are fused multiply-adds, one depth
//! after the other.

use super::{nonfinite::originates, registers::Longs, step::Step, unit::Unit, warp::Warp};
use crate::{
    check::FindingKind,
    isa::{Class, ExactElement, ExactMma, Operand},
};

/// The largest depth in units.
const DEPTH: usize = 16;

impl Unit<'_> {
    pub(super) fn exact_mma(&mut self, warp: &mut Warp, step: Step<'_>, mma: ExactMma) {
        self.whole_warp(warp, step);
        let m = mma.m as usize;
        self.counters.matrix_instructions += 1;
        self.counters.matrix_flops += 16 * m as u64 * u64::from(mma.k);
        if self.launched.timed {
            return;
        }
        let units = mma.units();
        let (d, rest) = step.operands.split_at(step.instruction.results as usize);
        let (a, rest) = rest.split_at(m * units / 32);
        let (b, c) = rest.split_at(units / 4);
        let values = |operands: &[Operand]| -> Vec<Longs> {
            operands.iter().map(|&operand| self.lanes(warp, operand)).collect()
        };
        let (a, b, mut sums) = (values(a), values(b), values(c));
        let (mut left, mut right) = ([[0u64; DEPTH]; 16], [[0u64; DEPTH]; 8]);
        for lane in 0..32 {
            let (group, quarter) = (lane / 4, lane % 4);
            for (r, register) in a.iter().enumerate() {
                let (line, block) = if m == 16 { (8 * (r % 2) + group, r / 2) } else { (group, r) };
                left[line][4 * block + quarter] = register[lane];
            }
            for (block, register) in b.iter().enumerate() {
                right[group][4 * block + quarter] = register[lane];
            }
        }
        let mut found = None;
        for (i, register) in sums.iter_mut().enumerate() {
            for (lane, sum) in register.iter_mut().enumerate() {
                let (row, column) = (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
                let (left, right) = (&left[row][..units], &right[column][..units]);
                let before = *sum;
                *sum = dot(mma, left, right, before);
                if self.launched.nonfinite && mma.element == ExactElement::F64 && found.is_none() {
                    let terms = left.iter().chain(right).copied().chain([before]).map(f64::from_bits);
                    let (value, before) = (f64::from_bits(*sum), f64::from_bits(before));
                    found = originates(value, terms).then_some((lane, row, column, before, value));
                }
            }
        }
        for (&result, sums) in d.iter().zip(&sums) {
            match result.class() {
                Class::Long => warp.registers.set_long(result, sums, step.mask),
                _ => warp.registers.set_word(result, &sums.map(|sum| sum as u32), step.mask),
            }
        }
        if let Some((lane, row, column, before, value)) = found {
            self.report(warp, FindingKind::NotFinite, step.pc, lane as u32, None, || {
                format!("the accumulator at row {row}, column {column} of a matrix product goes from {before} to {value}")
            });
        }
    }
}

/// An accumulator plus the products of a row and a column.
fn dot(mma: ExactMma, left: &[u64], right: &[u64], sum: u64) -> u64 {
    let units = left.iter().zip(right);
    let exact: i64 = match mma.element {
        ExactElement::F64 => {
            let add = |sum: f64, (&a, &b): (&u64, &u64)| f64::from_bits(a).mul_add(f64::from_bits(b), sum);
            return units.fold(f64::from_bits(sum), add).to_bits();
        }
        ExactElement::Int4 { a_signed, b_signed } => {
            let nibble = |word: u64, i: u32, signed: bool| {
                let bits = (word >> (4 * i)) as u8 & 0xf;
                if signed { i64::from((bits << 4) as i8 >> 4) } else { i64::from(bits) }
            };
            units
                .map(|(&a, &b)| (0..8).map(|i| nibble(a, i, a_signed) * nibble(b, i, b_signed)).sum::<i64>())
                .sum()
        }
        ExactElement::Bit { and } => {
            units.map(|(&a, &b)| i64::from((if and { a & b } else { a ^ b } as u32).count_ones())).sum()
        }
    };
    let exact = exact + i64::from(sum as u32 as i32);
    let kept = if mma.saturate { exact.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) } else { exact };
    u64::from(kept as u32)
}

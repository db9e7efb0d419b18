//! Comparisons, whose results are masks of lanes.

use super::registers::{Constants, Registers};
use crate::{
    isa::{Compare, Logic, Operand, Type},
    numeric::{self, flushed},
};

/// A comparison of two operands.
#[derive(Clone, Copy)]
pub(super) struct Comparison {
    pub compare: Compare,
    pub kind: Type,
    pub flush: bool,
    pub a: Operand,
    pub b: Operand,
}

/// The lanes in which a comparison holds.
#[inline(always)]
pub(super) fn compare(
    wide: bool,
    comparison: Comparison,
    registers: &Registers,
    constants: &Constants,
) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if wide {
        // SAFETY: the processor was found to have these instructions.
        return unsafe { compare_wide(comparison, registers, constants) };
    }
    let _ = wide;
    compare_body(comparison, registers, constants)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn compare_wide(comparison: Comparison, registers: &Registers, constants: &Constants) -> u32 {
    compare_body(comparison, registers, constants)
}

#[inline(always)]
fn compare_body(comparison: Comparison, registers: &Registers, constants: &Constants) -> u32 {
    let Comparison { compare, kind, flush, a, b } = comparison;
    macro_rules! ordered {
        ($x:expr, $y:expr) => {{
            // Each lane's own bit, then all of them combined; both loops vectorise.
            let mut bits = [0u32; 32];
            macro_rules! each {
                ($x2:ident, $y2:ident => $holds:expr) => {
                    for lane in 0..32 {
                        let ($x2, $y2) = ($x(lane), $y(lane));
                        bits[lane] = if $holds { 1 << lane } else { 0 };
                    }
                };
            }
            // An unordered comparison is the negation of the opposite ordered one.
            #[allow(clippy::eq_op, clippy::double_comparisons, clippy::nonminimal_bool, clippy::neg_cmp_op_on_partial_ord)]
            match compare {
                Compare::Eq => each!(x, y => x == y),
                Compare::Ne => each!(x, y => x < y || x > y),
                Compare::Lt => each!(x, y => x < y),
                Compare::Le => each!(x, y => x <= y),
                Compare::Gt => each!(x, y => x > y),
                Compare::Ge => each!(x, y => x >= y),
                Compare::EqOrNan => each!(x, y => !(x < y || x > y)),
                Compare::NeOrNan => each!(x, y => x != y),
                Compare::LtOrNan => each!(x, y => !(x >= y)),
                Compare::LeOrNan => each!(x, y => !(x > y)),
                Compare::GtOrNan => each!(x, y => !(x <= y)),
                Compare::GeOrNan => each!(x, y => !(x < y)),
                Compare::Numbers => each!(x, y => x == x && y == y),
                Compare::Nans => each!(x, y => x != x || y != y),
            }
            bits.iter().fold(0, |all, bit| all | bit)
        }};
    }
    if kind.bytes() == 8 {
        let (a, b) = (registers.long(constants, a), registers.long(constants, b));
        return match kind {
            Type::F64 => {
                ordered!(|lane: usize| f64::from_bits(a[lane]), |lane: usize| f64::from_bits(b[lane]))
            }
            Type::S64 => ordered!(|lane: usize| a[lane] as i64, |lane: usize| b[lane] as i64),
            _ => ordered!(|lane: usize| a[lane], |lane: usize| b[lane]),
        };
    }
    let (a, b) = (registers.word(constants, a), registers.word(constants, b));
    let single = |x: u32| if flush { flushed(f32::from_bits(x)) } else { f32::from_bits(x) };
    match kind {
        Type::F32 => ordered!(|lane: usize| single(a[lane]), |lane: usize| single(b[lane])),
        Type::F16 => {
            ordered!(|lane: usize| numeric::from_f16(a[lane] & 0xffff), |lane: usize| numeric::from_f16(
                b[lane] & 0xffff
            ))
        }
        Type::Bf16 => {
            ordered!(|lane: usize| numeric::from_bf16(a[lane]), |lane: usize| numeric::from_bf16(b[lane]))
        }
        Type::S32 => ordered!(|lane: usize| a[lane] as i32, |lane: usize| b[lane] as i32),
        Type::S16 => ordered!(|lane: usize| a[lane] as i16, |lane: usize| b[lane] as i16),
        Type::S8 => ordered!(|lane: usize| a[lane] as i8, |lane: usize| b[lane] as i8),
        Type::U16 | Type::B16 => ordered!(|lane: usize| a[lane] as u16, |lane: usize| b[lane] as u16),
        Type::U8 | Type::B8 => ordered!(|lane: usize| a[lane] as u8, |lane: usize| b[lane] as u8),
        _ => ordered!(|lane: usize| a[lane], |lane: usize| b[lane]),
    }
}

/// Combines predicates.
#[inline(always)]
pub(super) fn combine(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
        Logic::Copy => a,
        Logic::Not => !a,
    }
}

//! Conversions between types. The common ones are loops that vectorise; the others convert one number at a time.

use super::{
    alu::lanes,
    registers::{Constants, Registers},
};
use crate::{
    isa::{Class, Conversion, Mode, Operand, Type},
    numeric::{Format, Rounding, bf16_bits, f16_bits, flushed, from_bf16, from_f16, round, widen},
};

/// Runs a conversion.
#[inline(always)]
pub(super) fn run(
    conversion: Conversion,
    operands: &[Operand],
    registers: &mut Registers,
    constants: &Constants,
    mask: u32,
) {
    let Conversion { to, from, mode, finite, integral } = conversion;
    let d = operands[0];
    let plain = mode == Mode::PLAIN && !finite && !integral;
    if plain {
        let word = |i: usize| registers.word(constants, operands[i]);
        use Type::{Bf16, Bf16x2, F16, F16x2, F32, S32, S64, U32, U64};
        let out = match (to, from) {
            (F32, F16) => lanes!(u32; a in word(1) => from_f16(a & 0xffff).to_bits()),
            (F32, Bf16) => lanes!(u32; a in word(1) => from_bf16(a).to_bits()),
            (F16, F32) => lanes!(u32; a in word(1) => f16_bits(f32::from_bits(a))),
            (Bf16, F32) => lanes!(u32; a in word(1) => bf16_bits(f32::from_bits(a))),
            // The first operand becomes the upper half.
            (F16x2, F32) => lanes!(u32; a in word(1), b in word(2)
                => f16_bits(f32::from_bits(a)) << 16 | f16_bits(f32::from_bits(b))),
            (Bf16x2, F32) => lanes!(u32; a in word(1), b in word(2)
                => bf16_bits(f32::from_bits(a)) << 16 | bf16_bits(f32::from_bits(b))),
            (F32, S32) => lanes!(u32; a in word(1) => (a as i32 as f32).to_bits()),
            (F32, U32) => lanes!(u32; a in word(1) => (a as f32).to_bits()),
            (S32 | U32, S64 | U64) => lanes!(u32; a in registers.long(constants, operands[1]) => a as u32),
            (S64 | U64, S32) => {
                let out = lanes!(u64; a in word(1) => i64::from(a as i32) as u64);
                return registers.set_long(d, &out, mask);
            }
            (S64 | U64, U32) => {
                let out = lanes!(u64; a in word(1) => u64::from(a));
                return registers.set_long(d, &out, mask);
            }
            _ => return slowly(conversion, operands, registers, constants, mask),
        };
        return registers.set_word(d, &out, mask);
    }
    slowly(conversion, operands, registers, constants, mask);
}

#[inline(never)]
fn slowly(
    conversion: Conversion,
    operands: &[Operand],
    registers: &mut Registers,
    constants: &Constants,
    mask: u32,
) {
    let d = operands[0];
    let wide_source = conversion.from.class() == Class::Long;
    let (mut words, mut longs) = ([0; 32], [0; 32]);
    for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
        let source = |i: usize| {
            let operand: Operand = operands[i];
            if wide_source {
                registers.long(constants, operand)[lane]
            } else {
                u64::from(registers.word(constants, operand)[lane])
            }
        };
        let value = match (scalar(conversion.to), conversion.from) {
            // Packed results, from two numbers or from a pair.
            (Some(part), Type::F32) => {
                let one = |bits| number(Conversion { to: part, ..conversion }, bits);
                let bits = 8 * part.bytes();
                one(source(1)) << bits | one(source(2))
            }
            (Some(part), pair) => {
                let from = scalar(pair).unwrap_or(pair);
                let one = |bits| number(Conversion { to: part, from, ..conversion }, bits);
                let (from_bits, to_bits) = (8 * from.bytes(), 8 * part.bytes());
                let low = source(1) & ((1 << from_bits) - 1);
                one(source(1) >> from_bits & ((1 << from_bits) - 1)) << to_bits | one(low)
            }
            (None, _) => number(conversion, source(1)),
        };
        words[lane] = value as u32;
        longs[lane] = value;
    }
    if conversion.to.class() == Class::Long {
        registers.set_long(d, &longs, mask);
    } else {
        registers.set_word(d, &words, mask);
    }
}

/// The type of a pair's parts.
fn scalar(kind: Type) -> Option<Type> {
    match kind {
        Type::F16x2 => Some(Type::F16),
        Type::Bf16x2 => Some(Type::Bf16),
        Type::E4m3x2 => Some(Type::E4m3),
        Type::E5m2x2 => Some(Type::E5m2),
        _ => None,
    }
}

fn format(kind: Type) -> Option<Format> {
    match kind {
        Type::F32 => Some(Format::F32),
        Type::F16 => Some(Format::F16),
        Type::Bf16 => Some(Format::BF16),
        Type::Tf32 => Some(Format::TF32),
        Type::E4m3 => Some(Format::E4M3),
        Type::E5m2 => Some(Format::E5M2),
        _ => None,
    }
}

/// One number.
fn number(conversion: Conversion, bits: u64) -> u64 {
    let Conversion { to, from, mode, finite, integral } = conversion;
    if from.is_float() {
        let mut value = match from {
            Type::F64 => f64::from_bits(bits),
            Type::F32 if mode.flush => f64::from(flushed(f32::from_bits(bits as u32))),
            _ => widen(
                bits as u32 & (u32::MAX >> (32 - 8 * from.bytes())),
                format(from).unwrap_or(Format::F32),
            ),
        };
        if !to.is_float() {
            return to_integer(value, to, mode.rounding);
        }
        if integral {
            value = whole(value, mode.rounding);
        }
        return to_float(value, to, mode, finite);
    }
    let value = match from {
        Type::S8 => i128::from(bits as i8),
        Type::S16 => i128::from(bits as i16),
        Type::S32 => i128::from(bits as i32),
        Type::S64 => i128::from(bits as i64),
        _ => i128::from(bits & (u64::MAX >> (64 - 8 * from.bytes()))),
    };
    if to.is_float() {
        return integer_to_float(value, to, mode);
    }
    let value = if mode.saturate { saturated(value, to) } else { value };
    cut(value, to)
}

fn cut(value: i128, to: Type) -> u64 {
    value as u64 & (u64::MAX >> (64 - 8 * to.bytes()))
}

fn saturated(value: i128, to: Type) -> i128 {
    let bits = 8 * to.bytes();
    let (low, high) =
        if to.is_signed() { (-(1i128 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    value.clamp(low, high)
}

fn whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// Conversions to integers saturate; a NaN becomes zero, or the lowest number of a 64-bit type.
fn to_integer(value: f64, to: Type, rounding: Rounding) -> u64 {
    if value.is_nan() {
        return if to.bytes() == 8 { 1 << 63 } else { 0 };
    }
    cut(saturated(whole(value, rounding) as i128, to), to)
}

fn to_float(value: f64, to: Type, mode: Mode, finite: bool) -> u64 {
    let mut value = value;
    if mode.saturate {
        value = if value > 0.0 { value.min(1.0) } else { 0.0 };
    }
    if mode.relu && value <= 0.0 {
        value = 0.0;
    }
    let Some(format) = format(to) else { return value.to_bits() };
    if finite && value.is_nan() {
        return u64::from(format.nan());
    }
    let bits = round(value, format, mode.rounding, finite);
    let bits = match to {
        // A tf32 is in the upper bits of an f32.
        Type::Tf32 => bits << 13,
        Type::F32 if mode.flush => flushed(f32::from_bits(bits)).to_bits(),
        _ => bits,
    };
    u64::from(bits)
}

/// A 64-bit integer may have more digits than an f64, so it is rounded to odd.
fn integer_to_float(value: i128, to: Type, mode: Mode) -> u64 {
    if to == Type::F64 {
        let nearest = value as f64;
        let off = value - nearest as i128;
        let step = |up: bool| if up { nearest.next_up() } else { nearest.next_down() };
        let result = match mode.rounding {
            _ if off == 0 => nearest,
            Rounding::Down if off < 0 => step(false),
            Rounding::Up if off > 0 => step(true),
            Rounding::Zero if (off < 0) == (value > 0) => step(value < 0),
            _ => nearest,
        };
        return result.to_bits();
    }
    let magnitude = value.unsigned_abs();
    let excess = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let kept = magnitude >> excess;
    let sticky = u128::from(kept << excess != magnitude);
    let odd = (kept | sticky) as f64 * 2f64.powi(excess as i32);
    to_float(if value < 0 { -odd } else { odd }, to, mode, false)
}

//! Arithmetic on 32-bit and 64-bit numbers.

use super::{
    alu::lanes,
    registers::{Longs, Words},
};
use crate::{
    isa::{Float, Mode},
    numeric::{self, Rounding, directed_add, directed_div, directed_fma, directed_sqrt, flushed},
};

/// f32 operations. The common case, round to nearest and nothing else, has its own loops.
#[inline(always)]
pub(super) fn float32(op: Float, mode: Mode, a: &Words, b: &Words, c: &Words) -> Words {
    let f = f32::from_bits;
    if mode.rounding == Rounding::Nearest && !mode.flush && !mode.saturate && !mode.relu {
        match op {
            Float::Add => return lanes!(u32; a in a, b in b => (f(a) + f(b)).to_bits()),
            Float::Sub => return lanes!(u32; a in a, b in b => (f(a) - f(b)).to_bits()),
            Float::Mul => return lanes!(u32; a in a, b in b => (f(a) * f(b)).to_bits()),
            Float::Fma => return lanes!(u32; a in a, b in b, c in c => f(a).mul_add(f(b), f(c)).to_bits()),
            Float::MulSub => {
                return lanes!(u32; a in a, b in b, c in c => f(a).mul_add(f(b), -f(c)).to_bits());
            }
            Float::NegMulAdd => {
                return lanes!(u32; a in a, b in b, c in c => (-f(a)).mul_add(f(b), f(c)).to_bits());
            }
            Float::Div => return lanes!(u32; a in a, b in b => (f(a) / f(b)).to_bits()),
            _ => {}
        }
    }
    let input = |x: u32| if mode.flush { flushed(f(x)) } else { f(x) };
    let r = mode.rounding;
    let nearest = r == Rounding::Nearest;
    let out = match op {
        Float::Add if nearest => lanes!(u32; a in a, b in b => (input(a) + input(b)).to_bits()),
        Float::Sub if nearest => lanes!(u32; a in a, b in b => (input(a) - input(b)).to_bits()),
        Float::Mul if nearest => lanes!(u32; a in a, b in b => (input(a) * input(b)).to_bits()),
        Float::Fma if nearest => {
            lanes!(u32; a in a, b in b, c in c => input(a).mul_add(input(b), input(c)).to_bits())
        }
        Float::Add => lanes!(u32; a in a, b in b => directed_add(input(a), input(b), r).to_bits()),
        Float::Sub => lanes!(u32; a in a, b in b => directed_add(input(a), -input(b), r).to_bits()),
        // Adding a zero of the product's sign keeps that sign.
        Float::Mul => lanes!(u32; a in a, b in b => {
            let zero = if (input(a).to_bits() ^ input(b).to_bits()) >> 31 == 1 { -0.0 } else { 0.0 };
            directed_fma(input(a), input(b), zero, r).to_bits()
        }),
        Float::Fma => {
            lanes!(u32; a in a, b in b, c in c => directed_fma(input(a), input(b), input(c), r).to_bits())
        }
        Float::MulSub => {
            lanes!(u32; a in a, b in b, c in c => input(a).mul_add(input(b), -input(c)).to_bits())
        }
        Float::NegMulAdd => {
            lanes!(u32; a in a, b in b, c in c => (-input(a)).mul_add(input(b), input(c)).to_bits())
        }
        Float::Div => lanes!(u32; a in a, b in b => directed_div(input(a), input(b), r).to_bits()),
        Float::Reciprocal if nearest => lanes!(u32; a in a => (1.0 / input(a)).to_bits()),
        Float::Reciprocal => lanes!(u32; a in a => directed_div(1.0, input(a), r).to_bits()),
        Float::SquareRoot if nearest => lanes!(u32; a in a => input(a).sqrt().to_bits()),
        Float::SquareRoot => lanes!(u32; a in a => directed_sqrt(input(a), r).to_bits()),
        Float::ReciprocalSquareRoot => {
            lanes!(u32; a in a => ((1.0 / f64::from(input(a)).sqrt()) as f32).to_bits())
        }
        Float::Exp2 => lanes!(u32; a in a => numeric::exp2(input(a)).to_bits()),
        Float::Log2 => lanes!(u32; a in a => numeric::log2(input(a)).to_bits()),
        Float::Sin => lanes!(u32; a in a => numeric::sine_cosine(input(a), false).to_bits()),
        Float::Cos => lanes!(u32; a in a => numeric::sine_cosine(input(a), true).to_bits()),
        Float::Tanh => lanes!(u32; a in a => input(a).tanh().to_bits()),
        Float::Min => lanes!(u32; a in a, b in b => smaller(input(a), input(b), false).to_bits()),
        Float::Max => lanes!(u32; a in a, b in b => larger(input(a), input(b), false).to_bits()),
        Float::MinNan => lanes!(u32; a in a, b in b => smaller(input(a), input(b), true).to_bits()),
        Float::MaxNan => lanes!(u32; a in a, b in b => larger(input(a), input(b), true).to_bits()),
        Float::Neg => lanes!(u32; a in a => input(a).to_bits() ^ 1 << 31),
        Float::Abs => lanes!(u32; a in a => input(a).to_bits() & !(1 << 31)),
        // The sign comes from the first operand.
        Float::CopySign => lanes!(u32; a in a, b in b => a & 1 << 31 | b & !(1 << 31)),
    };
    if !mode.flush && !mode.saturate {
        return out;
    }
    lanes!(u32; x in out => {
        let x = if mode.flush { flushed(f(x)) } else { f(x) };
        // A NaN saturates to zero.
        if mode.saturate { if x > 0.0 { x.min(1.0).to_bits() } else { 0 } } else { x.to_bits() }
    })
}

/// The smaller of two numbers. If one is NaN, the other, unless `nan` is set. -0 is smaller than 0.
#[inline(always)]
pub(super) fn smaller(a: f32, b: f32, nan: bool) -> f32 {
    let least = if a < b || a == b && a.is_sign_negative() { a } else { b };
    choose(a, b, least, nan)
}

/// The larger of two.
#[inline(always)]
pub(super) fn larger(a: f32, b: f32, nan: bool) -> f32 {
    let most = if a > b || a == b && a.is_sign_positive() { a } else { b };
    choose(a, b, most, nan)
}

#[inline(always)]
fn choose(a: f32, b: f32, chosen: f32, nan: bool) -> f32 {
    let canonical = f32::from_bits(0x7fff_ffff);
    if nan {
        return if a.is_nan() || b.is_nan() { canonical } else { chosen };
    }
    if a.is_nan() {
        if b.is_nan() { canonical } else { b }
    } else if b.is_nan() {
        a
    } else {
        chosen
    }
}

#[inline(always)]
pub(super) fn float64(op: Float, a: &Longs, b: &Longs, c: &Longs) -> Longs {
    let f = f64::from_bits;
    match op {
        Float::Add => lanes!(u64; a in a, b in b => (f(a) + f(b)).to_bits()),
        Float::Sub => lanes!(u64; a in a, b in b => (f(a) - f(b)).to_bits()),
        Float::Mul => lanes!(u64; a in a, b in b => (f(a) * f(b)).to_bits()),
        Float::Fma => lanes!(u64; a in a, b in b, c in c => f(a).mul_add(f(b), f(c)).to_bits()),
        Float::MulSub => lanes!(u64; a in a, b in b, c in c => f(a).mul_add(f(b), -f(c)).to_bits()),
        Float::NegMulAdd => lanes!(u64; a in a, b in b, c in c => (-f(a)).mul_add(f(b), f(c)).to_bits()),
        Float::Div => lanes!(u64; a in a, b in b => (f(a) / f(b)).to_bits()),
        Float::Reciprocal => lanes!(u64; a in a => (1.0 / f(a)).to_bits()),
        Float::SquareRoot => lanes!(u64; a in a => f(a).sqrt().to_bits()),
        Float::ReciprocalSquareRoot => lanes!(u64; a in a => (1.0 / f(a).sqrt()).to_bits()),
        Float::Exp2 => lanes!(u64; a in a => f(a).exp2().to_bits()),
        Float::Log2 => lanes!(u64; a in a => f(a).log2().to_bits()),
        Float::Sin => lanes!(u64; a in a => f(a).sin().to_bits()),
        Float::Cos => lanes!(u64; a in a => f(a).cos().to_bits()),
        Float::Tanh => lanes!(u64; a in a => f(a).tanh().to_bits()),
        Float::Min | Float::MinNan => lanes!(u64; a in a, b in b => f(a).min(f(b)).to_bits()),
        Float::Max | Float::MaxNan => lanes!(u64; a in a, b in b => f(a).max(f(b)).to_bits()),
        Float::Neg => lanes!(u64; a in a => a ^ 1 << 63),
        Float::Abs => lanes!(u64; a in a => a & !(1 << 63)),
        Float::CopySign => lanes!(u64; a in a, b in b => a & 1 << 63 | b & !(1 << 63)),
    }
}

/// f64 operations in another rounding mode than to nearest, and the gross approximations.
#[inline(never)]
pub(super) fn directed64(op: Float, mode: Mode, a: &Longs, b: &Longs, c: &Longs) -> Longs {
    let f = f64::from_bits;
    let r = mode.rounding;
    match op {
        Float::Reciprocal if mode.flush => lanes!(u64; a in a => numeric::gross(f(a), |x| 1.0 / x).to_bits()),
        Float::ReciprocalSquareRoot if mode.flush => {
            lanes!(u64; a in a => numeric::gross(f(a), |x| 1.0 / x.sqrt()).to_bits())
        }
        Float::Add => lanes!(u64; a in a, b in b => numeric::add64(f(a), f(b), r).to_bits()),
        Float::Sub => lanes!(u64; a in a, b in b => numeric::add64(f(a), -f(b), r).to_bits()),
        Float::Mul => lanes!(u64; a in a, b in b => numeric::mul64(f(a), f(b), r).to_bits()),
        Float::Fma => lanes!(u64; a in a, b in b, c in c => numeric::fma64(f(a), f(b), f(c), r).to_bits()),
        Float::Div => lanes!(u64; a in a, b in b => numeric::div64(f(a), f(b), r).to_bits()),
        Float::Reciprocal => lanes!(u64; a in a => numeric::div64(1.0, f(a), r).to_bits()),
        Float::SquareRoot => lanes!(u64; a in a => numeric::sqrt64(f(a), r).to_bits()),
        _ => float64(op, a, b, c),
    }
}

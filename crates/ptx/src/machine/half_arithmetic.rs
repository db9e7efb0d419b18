//! Arithmetic on single and packed 16-bit numbers: computed in f64, where products and most sums are exact, and rounded once.

use super::{
    alu::lanes,
    floats::{larger, smaller},
    registers::Words,
};
use crate::{
    isa::{Float, Mode},
    numeric::{self, Format, Rounding, bf16_bits, f16_bits, from_bf16, from_f16},
};

/// Runs an operation.
#[inline(always)]
pub(super) fn run(op: Float, mode: Mode, bf16: bool, pair: bool, a: &Words, b: &Words, c: &Words) -> Words {
    let low = one(op, mode, bf16, a, b, c);
    if !pair {
        return low;
    }
    let upper = |x: &Words| lanes!(u32; x in x => x >> 16);
    let high = one(op, mode, bf16, &upper(a), &upper(b), &upper(c));
    lanes!(u32; low in low, high in high => low | high << 16)
}

/// The operation on the lower halves.
#[inline(always)]
fn one(op: Float, mode: Mode, bf16: bool, a: &Words, b: &Words, c: &Words) -> Words {
    let value = |x: u32| if bf16 { from_bf16(x & 0xffff) } else { from_f16(x & 0xffff) };
    let nearest = |x: f32| if bf16 { bf16_bits(x) } else { f16_bits(x) };
    let flush = |x: u32| {
        let smallest = if bf16 { 0x80 } else { 0x400 };
        if mode.flush && x & 0x7fff < smallest { x & 0x8000 } else { x }
    };
    let input = |x: u32| value(flush(x));
    let out = match op {
        Float::Neg => return lanes!(u32; a in a => flush(a & 0xffff) ^ 0x8000),
        Float::Abs => return lanes!(u32; a in a => flush(a & 0xffff) & 0x7fff),
        // f32 has more than twice the digits of either format, so rounding twice gives the same as rounding once.
        Float::Add => lanes!(u32; a in a, b in b => nearest(input(a) + input(b))),
        Float::Sub => lanes!(u32; a in a, b in b => nearest(input(a) - input(b))),
        Float::Mul => lanes!(u32; a in a, b in b => nearest(input(a) * input(b))),
        Float::Fma => lanes!(u32; a in a, b in b, c in c => fused(input(a), input(b), input(c), bf16)),
        Float::MulSub => lanes!(u32; a in a, b in b, c in c => fused(input(a), input(b), -input(c), bf16)),
        Float::NegMulAdd => lanes!(u32; a in a, b in b, c in c => fused(-input(a), input(b), input(c), bf16)),
        Float::Div => lanes!(u32; a in a, b in b => nearest(input(a) / input(b))),
        Float::Min => lanes!(u32; a in a, b in b => nearest(smaller(input(a), input(b), false))),
        Float::Max => lanes!(u32; a in a, b in b => nearest(larger(input(a), input(b), false))),
        Float::MinNan => lanes!(u32; a in a, b in b => nearest(smaller(input(a), input(b), true))),
        Float::MaxNan => lanes!(u32; a in a, b in b => nearest(larger(input(a), input(b), true))),
        Float::Exp2 => lanes!(u32; a in a => nearest(numeric::exp2(input(a)))),
        Float::Log2 => lanes!(u32; a in a => nearest(numeric::log2(input(a)))),
        Float::Tanh => lanes!(u32; a in a => nearest(input(a).tanh())),
        Float::Reciprocal => lanes!(u32; a in a => nearest(1.0 / input(a))),
        Float::SquareRoot => lanes!(u32; a in a => nearest(input(a).sqrt())),
        Float::ReciprocalSquareRoot => lanes!(u32; a in a => nearest(1.0 / input(a).sqrt())),
        Float::Sin | Float::Cos => {
            lanes!(u32; a in a => nearest(numeric::sine_cosine(input(a), op == Float::Cos)))
        }
        Float::CopySign => lanes!(u32; a in a, b in b => a & 0x8000 | b & 0x7fff),
    };
    if !mode.flush && !mode.saturate && !mode.relu {
        return out;
    }
    let one = nearest(1.0);
    lanes!(u32; x in out => {
        let x = flush(x);
        let nan = value(x).is_nan();
        let negative = x & 0x8000 != 0;
        if mode.saturate {
            if nan || negative { 0 } else { x.min(one) }
        } else if mode.relu {
            if nan { 0x7fff } else if negative { 0 } else { x }
        } else {
            x
        }
    })
}

/// a · b + c, rounded once.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32, bf16: bool) -> u32 {
    let format = if bf16 { Format::BF16 } else { Format::F16 };
    numeric::round(numeric::odd_fma(a, b, c), format, Rounding::Nearest, false)
}

//! Arithmetic within lanes. Everything here is compiled twice: for processors with AVX2 and fused multiply-adds, and for any.

use super::{
    bits::{
        bit_mask, dot, dot_halves, extract, find, funnel, insert32, insert64, lookup, mul24, nth_set,
        permute, selector, sign_extend,
    },
    convert,
    floats::{directed64, float32, float64},
    half_arithmetic,
    registers::{Constants, Registers, Words},
    video::video,
};
use crate::{
    isa::{Alu, Int, Operand},
    numeric::Rounding,
};

/// Loops over the lanes.
macro_rules! lanes {
    ($kind:ty; $($x:ident in $source:expr),+ => $result:expr) => {{
        let mut out = [<$kind>::default(); 32];
        for lane in 0..32 {
            $(let $x = $source[lane];)+
            out[lane] = $result;
        }
        out
    }};
}
pub(super) use lanes;

/// Whether this processor can run the AVX2 version.
pub(crate) fn wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Runs an operation on the lanes of `mask`.
#[inline(always)]
pub(crate) fn run(
    wide: bool,
    alu: Alu,
    operands: &[Operand],
    registers: &mut Registers,
    constants: &Constants,
    mask: u32,
) {
    #[cfg(target_arch = "x86_64")]
    if wide {
        // SAFETY: the processor was found to have these instructions.
        return unsafe { run_wide(alu, operands, registers, constants, mask) };
    }
    let _ = wide;
    run_plain(alu, operands, registers, constants, mask);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn run_wide(alu: Alu, operands: &[Operand], registers: &mut Registers, constants: &Constants, mask: u32) {
    body(alu, operands, registers, constants, mask);
}

#[inline(never)]
fn run_plain(alu: Alu, operands: &[Operand], registers: &mut Registers, constants: &Constants, mask: u32) {
    body(alu, operands, registers, constants, mask);
}

#[inline(always)]
fn body(alu: Alu, operands: &[Operand], registers: &mut Registers, constants: &Constants, mask: u32) {
    let d = operands[0];
    let word = |i: usize| registers.word(constants, operands[i]);
    let long = |i: usize| registers.long(constants, operands[i]);
    match alu {
        Alu::Move32 => {
            let a = *word(1);
            registers.set_word(d, &a, mask);
        }
        Alu::Move64 => {
            let a = *long(1);
            registers.set_long(d, &a, mask);
        }
        Alu::Pack64 => {
            let out = lanes!(u64; a in word(1), b in word(2) => u64::from(a) | u64::from(b) << 32);
            registers.set_long(d, &out, mask);
        }
        Alu::Unpack64 => {
            let a = *long(2);
            let (low, high) = (lanes!(u32; a in a => a as u32), lanes!(u32; a in a => (a >> 32) as u32));
            set_pair(registers, operands, &low, &high, mask);
        }
        Alu::Pack32 => {
            let out = lanes!(u32; a in word(1), b in word(2) => a & 0xffff | b << 16);
            registers.set_word(d, &out, mask);
        }
        Alu::Unpack32 => {
            let a = *word(2);
            let (low, high) = (lanes!(u32; a in a => a & 0xffff), lanes!(u32; a in a => a >> 16));
            set_pair(registers, operands, &low, &high, mask);
        }
        Alu::I32(op) => {
            let b = if operands.len() > 2 { word(2) } else { word(1) };
            let out = match op {
                Int::Insert => {
                    lanes!(u32; a in word(1), b in b, c in word(3), n in word(4) => insert32(a, b, c, n))
                }
                Int::Mad | Int::MadHighS | Int::MadHighU | Int::ExtractS | Int::ExtractU => {
                    int32(op, word(1), b, word(3))
                }
                Int::DifferenceS | Int::DifferenceU => int32(op, word(1), b, word(3)),
                _ => int32(op, word(1), b, b),
            };
            registers.set_word(d, &out, mask);
        }
        Alu::I64(op) => int64(op, operands, registers, constants, mask),
        Alu::I16(op) => int16(op, operands, registers, constants, mask),
        Alu::Wide16(signed, add) => {
            let zero = [0; 32];
            let c = if add { word(3) } else { &zero };
            let out = if signed {
                lanes!(u32; a in word(1), b in word(2), c in c
                    => (i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32) as u32)
            } else {
                lanes!(u32; a in word(1), b in word(2), c in c => ((a & 0xffff) * (b & 0xffff)).wrapping_add(c))
            };
            registers.set_word(d, &out, mask);
        }
        Alu::Wide32(signed, add) => {
            let zero = [0; 32];
            let c = if add { long(3) } else { &zero };
            let out = if signed {
                lanes!(u64; a in word(1), b in word(2), c in c
                    => (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64) as u64)
            } else {
                lanes!(u64; a in word(1), b in word(2), c in c => (u64::from(a) * u64::from(b)).wrapping_add(c))
            };
            registers.set_long(d, &out, mask);
        }
        Alu::Permute => {
            let out = lanes!(u32; a in word(1), b in word(2), c in word(3) => permute(a, b, c));
            registers.set_word(d, &out, mask);
        }
        Alu::PermuteMode(mode) => {
            let out =
                lanes!(u32; a in word(1), b in word(2), c in word(3) => permute(a, b, selector(mode, c)));
            registers.set_word(d, &out, mask);
        }
        Alu::Lookup(table) => {
            let out = lanes!(u32; a in word(1), b in word(2), c in word(3) => lookup(table, a, b, c));
            registers.set_word(d, &out, mask);
        }
        Alu::Funnel { left, clamp } => {
            let out = lanes!(u32; a in word(1), b in word(2), c in word(3) => funnel(a, b, c, left, clamp));
            registers.set_word(d, &out, mask);
        }
        Alu::DotBytes(a_signed, b_signed) => {
            let out =
                lanes!(u32; a in word(1), b in word(2), c in word(3) => dot(a, b, c, a_signed, b_signed));
            registers.set_word(d, &out, mask);
        }
        Alu::DotHalves { a: a_signed, b: b_signed, high } => {
            let out = lanes!(u32; a in word(1), b in word(2), c in word(3)
                => dot_halves(a, b, c, a_signed, b_signed, high));
            registers.set_word(d, &out, mask);
        }
        Alu::SignExtend { clamp, signed } => {
            let out = lanes!(u32; a in word(1), b in word(2) => sign_extend(a, b, clamp, signed));
            registers.set_word(d, &out, mask);
        }
        Alu::FindNthSet => {
            let out = lanes!(u32; a in word(1), b in word(2), c in word(3) => nth_set(a, b, c as i32));
            registers.set_word(d, &out, mask);
        }
        Alu::Video(operation) => {
            let c = if operands.len() > 3 { word(3) } else { word(1) };
            let out = lanes!(u32; a in word(1), b in word(2), c in c => video(operation, a, b, c));
            registers.set_word(d, &out, mask);
        }
        Alu::Mul24 { high, signed } => {
            let out = lanes!(u32; a in word(1), b in word(2) => mul24(a, b, high, signed));
            registers.set_word(d, &out, mask);
        }
        Alu::BitMask { clamp } => {
            let out = lanes!(u32; a in word(1), b in word(2) => bit_mask(a, b, clamp));
            registers.set_word(d, &out, mask);
        }
        Alu::F32(op, mode) => {
            let (a, b) = (word(1), if operands.len() > 2 { word(2) } else { word(1) });
            let c = if operands.len() > 3 { word(3) } else { a };
            let out = float32(op, mode, a, b, c);
            registers.set_word(d, &out, mask);
        }
        Alu::F64(op, mode) => {
            let (a, b) = (long(1), if operands.len() > 2 { long(2) } else { long(1) });
            let c = if operands.len() > 3 { long(3) } else { a };
            let plain = mode.rounding == Rounding::Nearest && !mode.flush;
            let out = if plain { float64(op, a, b, c) } else { directed64(op, mode, a, b, c) };
            registers.set_long(d, &out, mask);
        }
        Alu::Half { op, mode, bf16, pair } => {
            let (a, b) = (word(1), if operands.len() > 2 { word(2) } else { word(1) });
            let c = if operands.len() > 3 { word(3) } else { a };
            let out = half_arithmetic::run(op, mode, bf16, pair, a, b, c);
            registers.set_word(d, &out, mask);
        }
        Alu::Select32 => {
            let chosen = registers.predicate(operands[3]);
            let mut out = *word(2);
            let a = word(1);
            for lane in 0..32 {
                out[lane] = if chosen >> lane & 1 == 1 { a[lane] } else { out[lane] };
            }
            registers.set_word(d, &out, mask);
        }
        Alu::Select64 => {
            let chosen = registers.predicate(operands[3]);
            let mut out = *long(2);
            let a = long(1);
            for lane in 0..32 {
                out[lane] = if chosen >> lane & 1 == 1 { a[lane] } else { out[lane] };
            }
            registers.set_long(d, &out, mask);
        }
        Alu::SelectBySign32 { float } => {
            let out = lanes!(u32; a in word(1), b in word(2), c in word(3) => if not_negative(c, float) { a } else { b });
            registers.set_word(d, &out, mask);
        }
        Alu::SelectBySign64 { float } => {
            let out = lanes!(u64; a in long(1), b in long(2), c in word(3) => if not_negative(c, float) { a } else { b });
            registers.set_long(d, &out, mask);
        }
        Alu::Convert(conversion) => convert::run(conversion, operands, registers, constants, mask),
    }
}

#[inline(always)]
fn set_pair(registers: &mut Registers, operands: &[Operand], low: &Words, high: &Words, mask: u32) {
    if !operands[0].is_none() {
        registers.set_word(operands[0], low, mask);
    }
    if !operands[1].is_none() {
        registers.set_word(operands[1], high, mask);
    }
}

#[inline(always)]
fn not_negative(value: u32, float: bool) -> bool {
    if float { f32::from_bits(value) >= 0.0 } else { value as i32 >= 0 }
}

/// One table of operations for all widths.
macro_rules! integers {
    ($name:ident, $unsigned:ident, $signed:ident, $wide_u:ident, $wide_s:ident) => {
        #[inline(always)]
        fn $name(op: Int, a: &[$unsigned; 32], b: &[$unsigned; 32], c: &[$unsigned; 32]) -> [$unsigned; 32] {
            type U = $unsigned;
            type S = $signed;
            const BITS: u32 = U::BITS;
            match op {
                Int::Add => lanes!(U; a in a, b in b => a.wrapping_add(b)),
                Int::Sub => lanes!(U; a in a, b in b => a.wrapping_sub(b)),
                Int::AddSaturated => lanes!(U; a in a, b in b => (a as S).saturating_add(b as S) as U),
                Int::SubSaturated => lanes!(U; a in a, b in b => (a as S).saturating_sub(b as S) as U),
                Int::Mul => lanes!(U; a in a, b in b => a.wrapping_mul(b)),
                Int::MulHighS => {
                    lanes!(U; a in a, b in b => ($wide_s::from(a as S) * $wide_s::from(b as S) >> BITS) as U)
                }
                Int::MulHighU => lanes!(U; a in a, b in b => ($wide_u::from(a) * $wide_u::from(b) >> BITS) as U),
                Int::Mad => lanes!(U; a in a, b in b, c in c => a.wrapping_mul(b).wrapping_add(c)),
                Int::MadHighS => lanes!(U; a in a, b in b, c in c
                    => (($wide_s::from(a as S) * $wide_s::from(b as S) >> BITS) as U).wrapping_add(c)),
                Int::MadHighU => lanes!(U; a in a, b in b, c in c
                    => (($wide_u::from(a) * $wide_u::from(b) >> BITS) as U).wrapping_add(c)),
                // A division by zero gives all ones, as the hardware does.
                Int::DivS => lanes!(U; a in a, b in b => if b == 0 { U::MAX } else { (a as S).wrapping_div(b as S) as U }),
                Int::DivU => lanes!(U; a in a, b in b => a.checked_div(b).unwrap_or(U::MAX)),
                Int::RemS => lanes!(U; a in a, b in b => if b == 0 { a } else { (a as S).wrapping_rem(b as S) as U }),
                Int::RemU => lanes!(U; a in a, b in b => if b == 0 { a } else { a % b }),
                Int::MinS => lanes!(U; a in a, b in b => (a as S).min(b as S) as U),
                Int::MinU => lanes!(U; a in a, b in b => a.min(b)),
                Int::MaxS => lanes!(U; a in a, b in b => (a as S).max(b as S) as U),
                Int::MaxU => lanes!(U; a in a, b in b => a.max(b)),
                Int::Abs => lanes!(U; a in a => (a as S).wrapping_abs() as U),
                Int::Neg => lanes!(U; a in a => a.wrapping_neg()),
                Int::And => lanes!(U; a in a, b in b => a & b),
                Int::Or => lanes!(U; a in a, b in b => a | b),
                Int::Xor => lanes!(U; a in a, b in b => a ^ b),
                Int::Not => lanes!(U; a in a => !a),
                Int::LogicalNot => lanes!(U; a in a => U::from(a == 0)),
                Int::Shl => lanes!(U; a in a, b in b => if b < BITS as U { a << (b as u32 & (BITS - 1)) } else { 0 }),
                Int::ShrU => lanes!(U; a in a, b in b => if b < BITS as U { a >> (b as u32 & (BITS - 1)) } else { 0 }),
                Int::ShrS => lanes!(U; a in a, b in b => ((a as S) >> b.min(BITS as U - 1)) as U),
                Int::PopulationCount => lanes!(U; a in a => a.count_ones() as U),
                Int::LeadingZeros => lanes!(U; a in a => a.leading_zeros() as U),
                Int::Reverse => lanes!(U; a in a => a.reverse_bits()),
                Int::FindU(shift) => lanes!(U; a in a => find(u64::from(a), BITS, shift) as U),
                Int::FindS(shift) => lanes!(U; a in a => {
                    let a = if (a as S) < 0 { !a } else { a };
                    find(u64::from(a), BITS, shift) as U
                }),
                Int::ExtractU => lanes!(U; a in a, b in b, c in c => extract(u64::from(a), b as u32, c as u32, BITS, false) as U),
                Int::ExtractS => lanes!(U; a in a, b in b, c in c => extract(u64::from(a), b as u32, c as u32, BITS, true) as U),
                Int::DifferenceS => lanes!(U; a in a, b in b, c in c => (a as S).abs_diff(b as S).wrapping_add(c)),
                Int::DifferenceU => lanes!(U; a in a, b in b, c in c => a.abs_diff(b).wrapping_add(c)),
                Int::Insert => *a,
            }
        }
    };
}
integers!(int32, u32, i32, u64, i64);
integers!(int64_lanes, u64, i64, u128, i128);

#[inline(always)]
fn int64(op: Int, operands: &[Operand], registers: &mut Registers, constants: &Constants, mask: u32) {
    let d = operands[0];
    let a = registers.long(constants, operands[1]);
    let widened = |i: usize| lanes!(u64; x in registers.word(constants, operands[i]) => u64::from(x));
    let out = match op {
        Int::Shl | Int::ShrS | Int::ShrU => int64_lanes(op, a, &widened(2), a),
        Int::ExtractS | Int::ExtractU => int64_lanes(op, a, &widened(2), &widened(3)),
        Int::Insert => {
            let b = registers.long(constants, operands[2]);
            lanes!(u64; a in a, b in b, c in widened(3), n in widened(4) => insert64(a, b, c as u32, n as u32))
        }
        Int::PopulationCount | Int::LeadingZeros | Int::FindS(_) | Int::FindU(_) => {
            let out = int64_lanes(op, a, a, a);
            let out = lanes!(u32; x in out => x as u32);
            return registers.set_word(d, &out, mask);
        }
        Int::Abs | Int::Neg | Int::Not | Int::LogicalNot | Int::Reverse => int64_lanes(op, a, a, a),
        _ => {
            let b = registers.long(constants, operands[2]);
            let c = if operands.len() > 3 { registers.long(constants, operands[3]) } else { b };
            int64_lanes(op, a, b, c)
        }
    };
    registers.set_long(d, &out, mask);
}

/// 16-bit operations: operands are extended according to their type, results truncated.
#[inline(always)]
fn int16(op: Int, operands: &[Operand], registers: &mut Registers, constants: &Constants, mask: u32) {
    let signed = matches!(
        op,
        Int::MulHighS
            | Int::MadHighS
            | Int::DivS
            | Int::RemS
            | Int::MinS
            | Int::MaxS
            | Int::ShrS
            | Int::Abs
            | Int::DifferenceS
    );
    let narrow = |i: usize| {
        let x = registers.word(constants, operands[i.min(operands.len() - 1)]);
        if signed {
            lanes!(u32; x in x => i32::from(x as i16) as u32)
        } else {
            lanes!(u32; x in x => x & 0xffff)
        }
    };
    let (a, b, c) = (narrow(1), narrow(2), narrow(3));
    let out = match op {
        Int::MulHighS | Int::MulHighU => lanes!(u32; a in a, b in b => a.wrapping_mul(b) >> 16),
        Int::MadHighS | Int::MadHighU => {
            lanes!(u32; a in a, b in b, c in c => (a.wrapping_mul(b) >> 16).wrapping_add(c))
        }
        Int::AddSaturated => lanes!(u32; a in a, b in b => (a as i16).saturating_add(b as i16) as u32),
        Int::SubSaturated => lanes!(u32; a in a, b in b => (a as i16).saturating_sub(b as i16) as u32),
        // The amount is a 32-bit number.
        Int::Shl => {
            lanes!(u32; a in a, b in registers.word(constants, operands[2]) => if b < 16 { a << b } else { 0 })
        }
        Int::ShrU => {
            lanes!(u32; a in a, b in registers.word(constants, operands[2]) => if b < 16 { a >> b } else { 0 })
        }
        Int::ShrS => {
            lanes!(u32; a in a, b in registers.word(constants, operands[2]) => ((a as i32) >> b.min(15)) as u32)
        }
        _ => int32(op, &a, &b, &c),
    };
    let out = lanes!(u32; x in out => x & 0xffff);
    registers.set_word(operands[0], &out, mask);
}

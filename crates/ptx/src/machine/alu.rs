//! What happens within lanes. Everything here is compiled twice: once for processors with wide vectors and fused
//! multiply-adds, once for any.

use super::{
    convert, half_arithmetic,
    registers::{Constants, Longs, Registers, Words},
};
use crate::{
    isa::{Alu, Carry, CarryOp, Compare, Float, Int, Logic, Mode, Operand, PermuteMode, Type},
    numeric::{self, Rounding, directed_add, directed_div, directed_fma, directed_sqrt, flushed},
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

/// Whether the wide version can run here.
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
        Alu::F64(op, _) => {
            let (a, b) = (long(1), if operands.len() > 2 { long(2) } else { long(1) });
            let c = if operands.len() > 3 { long(3) } else { a };
            let out = float64(op, a, b, c);
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

/// One list of operations for all widths.
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

/// 16-bit operations: operands are widened as their type demands, results cut.
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

#[inline(always)]
fn find(value: u64, bits: u32, shift: bool) -> u32 {
    if value == 0 {
        return u32::MAX;
    }
    let place = 63 - value.leading_zeros();
    if shift { bits - 1 - place } else { place }
}

#[inline(always)]
fn extract(value: u64, position: u32, length: u32, bits: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    let sign = position.saturating_add(length - 1).min(bits - 1);
    let negative = signed && value >> sign & 1 == 1;
    let field = if position < bits { value >> position } else { 0 };
    let kept = length.min(bits.saturating_sub(position));
    let ones = if kept >= 64 { u64::MAX } else { (1 << kept) - 1 };
    field & ones | if negative { !ones } else { 0 }
}

#[inline(always)]
fn insert32(a: u32, b: u32, position: u32, length: u32) -> u32 {
    insert64(u64::from(a), u64::from(b), position, length) as u32
}

#[inline(always)]
fn insert64(a: u64, b: u64, position: u32, length: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position >= 64 || length == 0 {
        return b;
    }
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    b & !(ones << position) | (a & ones) << position
}

#[inline(always)]
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    let mut out = 0;
    for i in 0..4 {
        let select = selector >> (4 * i) & 0xf;
        let byte = (bytes >> (8 * (select & 7))) as u32 & 0xff;
        let byte = if select & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
        out |= byte << (8 * i);
    }
    out
}

/// What the special modes of `prmt` select.
fn selector(mode: PermuteMode, c: u32) -> u32 {
    let c = c & 3;
    let four = |f: &dyn Fn(u32) -> u32| (0..4).map(|i| f(i) << (4 * i)).sum();
    match mode {
        PermuteMode::Forward4 => four(&|i| c + i),
        PermuteMode::Backward4 => four(&|i| c.wrapping_sub(i) & 7),
        PermuteMode::Replicate8 => four(&|_| c),
        PermuteMode::EdgeClampLeft => four(&|i| i.max(c)),
        PermuteMode::EdgeClampRight => four(&|i| i.min(c)),
        PermuteMode::Replicate16 => four(&|i| 2 * (c & 1) + (i & 1)),
    }
}

#[inline(always)]
fn lookup(table: u8, a: u32, b: u32, c: u32) -> u32 {
    let mut out = 0;
    for i in 0..8u32 {
        if table >> i & 1 == 1 {
            let a = if i & 4 != 0 { a } else { !a };
            let b = if i & 2 != 0 { b } else { !b };
            let c = if i & 1 != 0 { c } else { !c };
            out |= a & b & c;
        }
    }
    out
}

#[inline(always)]
fn funnel(a: u32, b: u32, c: u32, left: bool, clamp: bool) -> u32 {
    let n = if clamp { c.min(32) } else { c & 31 };
    let both = u64::from(b) << 32 | u64::from(a);
    if left { (both << n >> 32) as u32 } else { (both >> n) as u32 }
}

fn dot(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let byte = |x: u32, i: u32, signed: bool| {
        let byte = (x >> (8 * i)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (0..4).fold(c, |sum, i| sum.wrapping_add((byte(a, i, a_signed) * byte(b, i, b_signed)) as u32))
}

fn mul24(a: u32, b: u32, high: bool, signed: bool) -> u32 {
    let cut = |x: u32| if signed { i64::from((x << 8) as i32 >> 8) } else { i64::from(x & 0xff_ffff) };
    let product = cut(a) * cut(b);
    if high { (product >> 16) as u32 } else { product as u32 }
}

fn bit_mask(position: u32, length: u32, clamp: bool) -> u32 {
    let (position, length) =
        if clamp { (position.min(32), length.min(32)) } else { (position & 31, length & 31) };
    let ones = if length == 32 { u64::from(u32::MAX) } else { (1u64 << length) - 1 };
    (ones << position) as u32
}

/// f32 operations. The common case, to the nearest and nothing else, has loops of its own.
#[inline(always)]
fn float32(op: Float, mode: Mode, a: &Words, b: &Words, c: &Words) -> Words {
    let f = f32::from_bits;
    if mode.rounding == Rounding::Nearest && !mode.flush && !mode.saturate && !mode.relu {
        match op {
            Float::Add => return lanes!(u32; a in a, b in b => (f(a) + f(b)).to_bits()),
            Float::Sub => return lanes!(u32; a in a, b in b => (f(a) - f(b)).to_bits()),
            Float::Mul => return lanes!(u32; a in a, b in b => (f(a) * f(b)).to_bits()),
            Float::Fma => return lanes!(u32; a in a, b in b, c in c => f(a).mul_add(f(b), f(c)).to_bits()),
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

/// The smaller of two: the one that is a number, unless NaN is asked for; -0 is smaller than 0.
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
fn float64(op: Float, a: &Longs, b: &Longs, c: &Longs) -> Longs {
    let f = f64::from_bits;
    match op {
        Float::Add => lanes!(u64; a in a, b in b => (f(a) + f(b)).to_bits()),
        Float::Sub => lanes!(u64; a in a, b in b => (f(a) - f(b)).to_bits()),
        Float::Mul => lanes!(u64; a in a, b in b => (f(a) * f(b)).to_bits()),
        Float::Fma => lanes!(u64; a in a, b in b, c in c => f(a).mul_add(f(b), f(c)).to_bits()),
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

/// Additions, subtractions and products that take or leave a carry.
pub(crate) fn carry(
    carry: Carry,
    operands: &[Operand],
    registers: &mut Registers,
    constants: &Constants,
    mask: u32,
) {
    let before = registers.carry;
    let mut after = 0;
    let (mut words, mut longs) = ([0; 32], [0; 32]);
    for lane in 0..32 {
        let value = |i: usize| {
            let operand = operands[i.min(operands.len() - 1)];
            if carry.wide {
                u128::from(registers.long(constants, operand)[lane])
            } else {
                u128::from(registers.word(constants, operand)[lane])
            }
        };
        let bits = if carry.wide { 64 } else { 32 };
        let ones = (1u128 << bits) - 1;
        let taken = u128::from(carry.takes && before >> lane & 1 == 1);
        let (a, b, c) = (value(1), value(2), value(3));
        let signed = |x: u128| (x << (128 - bits)) as i128 >> (128 - bits);
        let sum = match carry.op {
            CarryOp::Add => a + b + taken,
            // The borrow is the carry turned around within the instructions, and not seen elsewhere.
            CarryOp::Sub => a.wrapping_sub(b).wrapping_sub(taken),
            CarryOp::MadLow => ((a * b) & ones) + c + taken,
            CarryOp::MadHighU => ((a * b) >> bits) + c + taken,
            CarryOp::MadHighS => (((signed(a) * signed(b)) >> bits) as u128 & ones) + c + taken,
        };
        after |= u32::from(sum >> bits & 1 == 1) << lane;
        words[lane] = sum as u32;
        longs[lane] = sum as u64;
    }
    if carry.gives {
        registers.carry = before & !mask | after & mask;
    }
    if operands[0].is_none() {
        return;
    }
    if carry.wide {
        registers.set_long(operands[0], &longs, mask);
    } else {
        registers.set_word(operands[0], &words, mask);
    }
}

/// A comparison of two operands.
#[derive(Clone, Copy)]
pub(crate) struct Comparison {
    pub compare: Compare,
    pub kind: Type,
    pub flush: bool,
    pub a: Operand,
    pub b: Operand,
}

/// The lanes in which a comparison holds.
#[inline(always)]
pub(crate) fn compare(
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
            // Each lane's own bit, and then all of them together: both are vector code.
            let mut bits = [0u32; 32];
            macro_rules! each {
                ($x2:ident, $y2:ident => $holds:expr) => {
                    for lane in 0..32 {
                        let ($x2, $y2) = ($x(lane), $y(lane));
                        bits[lane] = if $holds { 1 << lane } else { 0 };
                    }
                };
            }
            // Comparisons that are true of a NaN are those whose opposite is false of it.
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
pub(crate) fn combine(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
        Logic::Copy => a,
        Logic::Not => !a,
    }
}

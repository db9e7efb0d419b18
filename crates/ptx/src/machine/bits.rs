//! Operations on the bits and bytes of words.

use crate::isa::PermuteMode;

#[inline(always)]
pub(super) fn find(value: u64, bits: u32, shift: bool) -> u32 {
    if value == 0 {
        return u32::MAX;
    }
    let place = 63 - value.leading_zeros();
    if shift { bits - 1 - place } else { place }
}

#[inline(always)]
pub(super) fn extract(value: u64, position: u32, length: u32, bits: u32, signed: bool) -> u64 {
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
pub(super) fn insert32(a: u32, b: u32, position: u32, length: u32) -> u32 {
    insert64(u64::from(a), u64::from(b), position, length) as u32
}

#[inline(always)]
pub(super) fn insert64(a: u64, b: u64, position: u32, length: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position >= 64 || length == 0 {
        return b;
    }
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    b & !(ones << position) | (a & ones) << position
}

#[inline(always)]
pub(super) fn permute(a: u32, b: u32, selector: u32) -> u32 {
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
pub(super) fn selector(mode: PermuteMode, c: u32) -> u32 {
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
pub(super) fn lookup(table: u8, a: u32, b: u32, c: u32) -> u32 {
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
pub(super) fn funnel(a: u32, b: u32, c: u32, left: bool, clamp: bool) -> u32 {
    let n = if clamp { c.min(32) } else { c & 31 };
    let both = u64::from(b) << 32 | u64::from(a);
    if left { (both << n >> 32) as u32 } else { (both >> n) as u32 }
}

pub(super) fn dot(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let byte = |x: u32, i: u32, signed: bool| {
        let byte = (x >> (8 * i)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (0..4).fold(c, |sum, i| sum.wrapping_add((byte(a, i, a_signed) * byte(b, i, b_signed)) as u32))
}

pub(super) fn mul24(a: u32, b: u32, high: bool, signed: bool) -> u32 {
    let cut = |x: u32| if signed { i64::from((x << 8) as i32 >> 8) } else { i64::from(x & 0xff_ffff) };
    let product = cut(a) * cut(b);
    if high { (product >> 16) as u32 } else { product as u32 }
}

pub(super) fn bit_mask(position: u32, length: u32, clamp: bool) -> u32 {
    let (position, length) =
        if clamp { (position.min(32), length.min(32)) } else { (position & 31, length & 31) };
    let ones = if length == 32 { u64::from(u32::MAX) } else { (1u64 << length) - 1 };
    (ones << position) as u32
}

/// A dot product of the halves of one word and two bytes of another.
pub(super) fn dot_halves(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool, high: bool) -> u32 {
    let b = if high { b >> 16 } else { b };
    (0..2).fold(c, |sum, i| {
        let (half, byte) = ((a >> (16 * i)) as u16, (b >> (8 * i)) as u8);
        let half = if a_signed { i64::from(half as i16) } else { i64::from(half) };
        let byte = if b_signed { i64::from(byte as i8) } else { i64::from(byte) };
        sum.wrapping_add((half * byte) as u32)
    })
}

/// The lower `length` bits, extended to a word.
pub(super) fn sign_extend(value: u32, length: u32, clamp: bool, signed: bool) -> u32 {
    let length = if clamp { length.min(32) } else { length & 31 };
    if length == 0 {
        return 0;
    }
    let top = value << (32 - length);
    if signed { (top as i32 >> (32 - length)) as u32 } else { top >> (32 - length) }
}

/// The position of the n-th bit that is set, upwards from `base`, or downwards if n is negative; all ones if there is none.
pub(super) fn nth_set(mask: u32, base: u32, n: i32) -> u32 {
    let base = base & 31;
    let set = |&at: &u32| mask >> at & 1 == 1;
    let found = match n {
        0 => Some(base).filter(set),
        1.. => (base..32).filter(set).nth(n as usize - 1),
        _ => (0..=base).rev().filter(set).nth(n.unsigned_abs() as usize - 1),
    };
    found.unwrap_or(u32::MAX)
}

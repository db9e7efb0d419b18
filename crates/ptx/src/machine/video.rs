//! The video instructions: arithmetic on the bytes and halves of words, wide enough for every result.

use crate::isa::{Compare, Video, VideoOp};

/// The result of one thread.
pub(super) fn video(video: Video, a: u32, b: u32, c: u32) -> u32 {
    if video.lanes == 1 {
        return scalar(video, a, b, c);
    }
    let bits = 32 / u32::from(video.lanes);
    let mut packed = 0;
    let mut sum = i64::from(c);
    for at in (0..32).step_by(bits as usize) {
        let result = one(video, field(a, at, bits, video.signed[1]), field(b, at, bits, video.signed[2]), 0);
        let result = if video.saturate { saturated(result, bits, video.signed[0]) } else { result };
        sum += result;
        packed |= (result as u32 & (u32::MAX >> (32 - bits))) << at;
    }
    if video.second.is_some() { sum as u32 } else { packed }
}

fn scalar(video: Video, a: u32, b: u32, c: u32) -> u32 {
    let [(a_at, a_bits), (b_at, b_bits)] = video.parts;
    let a = field(a, a_at, a_bits, video.signed[1]);
    let b = field(b, b_at, b_bits, video.signed[2]);
    let extended = |word: u32| if video.signed[0] { i64::from(word as i32) } else { i64::from(word) };
    let result = one(video, a, b, extended(c));
    let result = if video.saturate { saturated(result, 32, video.signed[0]) } else { result };
    let (result, c) = (extended(result as u32), extended(c));
    (match video.second {
        Some(VideoOp::Min) => result.min(c),
        Some(VideoOp::Max) => result.max(c),
        Some(_) => result + c,
        None => result,
    }) as u32
}

fn one(video: Video, a: i64, b: i64, c: i64) -> i64 {
    let amount = if video.wrap { b & 31 } else { b.clamp(0, 32) };
    match video.op {
        VideoOp::Add => a + b,
        VideoOp::Sub => a - b,
        VideoOp::AbsoluteDifference => (a - b).abs(),
        VideoOp::Min => a.min(b),
        VideoOp::Max => a.max(b),
        // Rounded away from zero.
        VideoOp::Average => (a + b + i64::from(a + b >= 0)) >> 1,
        VideoOp::ShiftLeft => a << amount,
        VideoOp::ShiftRight => a >> amount,
        VideoOp::Mad => a * b + c,
        VideoOp::Set => i64::from(match video.compare {
            Some(Compare::Eq) => a == b,
            Some(Compare::Ne) => a != b,
            Some(Compare::Lt) => a < b,
            Some(Compare::Le) => a <= b,
            Some(Compare::Gt) => a > b,
            _ => a >= b,
        }),
    }
}

/// Some bits of a word as a number.
fn field(word: u32, at: u32, bits: u32, signed: bool) -> i64 {
    let top = word << (32 - bits - at);
    if signed { i64::from(top as i32 >> (32 - bits)) } else { i64::from(top >> (32 - bits)) }
}

fn saturated(value: i64, bits: u32, signed: bool) -> i64 {
    if signed {
        value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1 << bits) - 1)
    }
}

//! Floating-point arithmetic as the hardware does it.

mod approximate;
mod format;
mod half;
mod texture;

pub(crate) use approximate::{exp2, log2, sine_cosine};
pub(crate) use format::{
    Format, Rounding, directed_add, directed_div, directed_fma, directed_sqrt, odd_fma, round, widen,
};
pub(crate) use half::{bf16_bits, f16_bits, from_bf16, from_f16};
pub(crate) use texture::{Axis, Neighbours, channel, cube_face};

/// Flushes a subnormal to a zero of its sign.
#[inline(always)]
pub(crate) fn flushed(x: f32) -> f32 {
    let bits = x.to_bits();
    if bits & 0x7f80_0000 == 0 { f32::from_bits(bits & 0x8000_0000) } else { x }
}

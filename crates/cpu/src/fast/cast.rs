//! Conversion between element types.

use std::ops::Range;

use half::{bf16, f16};
use kinora_graph::{DType, e4m3::E4M3};

use super::blocks::{BLOCK, Block};
use crate::{
    simd::{Isa, Kernel, Simd, convert},
    tasks,
    view::{View, ViewMut},
};

/// Another element type; the result may overwrite the operand if the two types have the same size.
pub(crate) fn cast(isa: Isa, inputs: &[View<'_>], output: ViewMut<'_>) {
    let cast = Cast {
        from: inputs[0].bytes(),
        from_type: inputs[0].ty().dtype,
        to: output.bytes(),
        to_type: output.ty().dtype,
    };
    tasks::each(output.ty().elements(), tasks::GRAIN, |range| isa.dispatch(CastRange { cast: &cast, range }));
}

struct Cast {
    from: *const u8,
    from_type: DType,
    to: *mut u8,
    to_type: DType,
}

// SAFETY: pointers into views' memory; each task writes its own range.
unsafe impl Sync for Cast {}

struct CastRange<'a> {
    cast: &'a Cast,
    range: Range<usize>,
}

impl Kernel for CastRange<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Cast { from, from_type, to, to_type } = *self.cast;
        let (at, count) = (self.range.start, self.range.len());
        // SAFETY: operand and result have the range's elements of their types, and no other task has it. A block is read
        // whole before it is written.
        unsafe {
            match (from_type, to_type) {
                (from_type, to_type) if from_type == to_type => {
                    let size = from_type.size();
                    std::ptr::copy(from.add(at * size), to.add(at * size), count * size);
                }
                // f32 would lose low bits.
                (DType::I32, DType::U8) => {
                    for i in at..at + count {
                        to.add(i).write((*from.cast::<i32>().add(i)).clamp(0, 255) as u8);
                    }
                }
                _ => {
                    let mut block = Block::uninit();
                    for at in self.range.clone().step_by(BLOCK) {
                        let count = (self.range.end - at).min(BLOCK);
                        widen(simd, from, from_type, at, block.as_mut_ptr(), count);
                        narrow(simd, block.as_mut_ptr(), to, to_type, at, count);
                    }
                }
            }
        }
    }
}

/// # Safety
/// `from` has the elements `at..at + count` of `dtype`, and `to` is valid for `count` values.
#[inline(always)]
unsafe fn widen<S: Simd>(simd: S, from: *const u8, dtype: DType, at: usize, to: *mut f32, count: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        match dtype {
            DType::F32 => std::ptr::copy(from.cast::<f32>().add(at), to, count),
            DType::F16 => convert(simd, from.cast::<f16>().add(at), to, count),
            DType::BF16 => convert(simd, from.cast::<bf16>().add(at), to, count),
            DType::F8E4M3 => {
                for i in 0..count {
                    to.add(i).write(E4M3::from_bits(*from.add(at + i)).to_f32());
                }
            }
            DType::U8 => {
                for i in 0..count {
                    to.add(i).write(f32::from(*from.add(at + i)));
                }
            }
            DType::I32 => {
                for i in 0..count {
                    to.add(i).write(*from.cast::<i32>().add(at + i) as f32);
                }
            }
        }
    }
}

/// # Safety
/// `from` is valid for `count` values, and `to` has the elements `at..at + count` of `dtype`.
#[inline(always)]
unsafe fn narrow<S: Simd>(simd: S, from: *mut f32, to: *mut u8, dtype: DType, at: usize, count: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        match dtype {
            DType::F32 => std::ptr::copy(from, to.cast::<f32>().add(at), count),
            DType::F16 => convert(simd, from.cast_const(), to.cast::<f16>().add(at), count),
            DType::BF16 => convert(simd, from.cast_const(), to.cast::<bf16>().add(at), count),
            DType::F8E4M3 => {
                for i in 0..count {
                    to.add(at + i).write(E4M3::from_f32(*from.add(i)).to_bits());
                }
            }
            // Rust's conversions saturate and turn a NaN into zero.
            DType::U8 => {
                for i in 0..count {
                    to.add(at + i).write((*from.add(i)).round_ties_even() as u8);
                }
            }
            DType::I32 => {
                for i in 0..count {
                    to.cast::<i32>().add(at + i).write((*from.add(i)).round_ties_even() as i32);
                }
            }
        }
    }
}

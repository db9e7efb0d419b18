//! Matrix products: `C[M, N] = A[M, K] · Bᵀ` with sums in f32, and with what follows the product fused in.
//!
//! - B is a weight `[N, K]`, packed once when it is loaded ([`PackedWeights`]).
//! - A is anything that can copy a piece of a row ([`Rows`]): a matrix ([`MatrixRows`]), or the pixels of an
//!   image as a convolution sees them ([`ConvRows`]), so that a convolution is the same product.
//! - What happens to a finished row is an [`Epilogue`]; [`Finish`] has the usual stages (bias, time embedding,
//!   activation, residual, GEGLU) and writes f32, f16 or bf16.
//!
//! The blocking follows Goto and van de Geijn. A task owns a block of C: for each piece of K it takes its rows of A,
//! which stay in L2, in place if they have the type of the arithmetic and copied otherwise, and multiplies them, a register tile at a time,
//! with panels of B that stay in cache. If the output is f32 and only a bias and a residual are added, tiles are
//! written to it from registers; otherwise the sums go through a separate block to the epilogue. The order of additions
//! along K depends on K alone, so a result does not depend on the number of threads.
//!
//! Arithmetic is f32. But if A and B are bfloat16 and the instruction set multiplies pairs of such values ([`Simd::PAIRS`]),
//! it does: K is then counted in pairs, and each line of a panel has two values of every column. The products are exact
//! either way and the sums f32, but they are added in another order, and subnormal values count as zero.
//! Rows that are computed as they are copied are rounded to bfloat16.
//!
//! Where the CPU multiplies tiles ([`TileUnit`](crate::simd::tiles::TileUnit)), products of many such rows run on them, by the same
//! panels and with the same rules. Their rows are always copied, so that each ends with a whole tile.
//!
//! [`Simd::PAIRS`]: crate::simd::Simd::PAIRS

pub(crate) mod aligned;
mod batched;
mod blocking;
mod conv_rows;
mod dots;
mod driver;
mod epilogue;
pub(crate) mod microkernel;
mod panels;
mod rows;
#[cfg(test)]
mod tests;
mod tiles;
mod values;
mod weights;

pub(crate) use aligned::AlignedBuffer;
pub(crate) use batched::{BatchedOperand, Layout, multiply_batched};
pub(crate) use conv_rows::{ConvGeometry, ConvRows};
pub(crate) use driver::multiply;
pub(crate) use epilogue::{Epilogue, Finish, OneOfFour};
pub(crate) use rows::{MatrixRows, Rows, TransposedRows};
pub(crate) use values::Values;
pub(crate) use weights::PackedWeights;

/// Registers the destructors of this thread's scratch memory: see [`crate::threads::register_scratch`].
pub(crate) fn register_scratch() {
    driver::register_scratch();
    batched::register_scratch();
}

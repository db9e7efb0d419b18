//! Matrix products: `C[M, N] = A[M, K] · Bᵀ` in f32 arithmetic, with what follows the product fused in.
//!
//! - B is a weight `[N, K]`, packed once when it is loaded ([`PackedWeights`]).
//! - A is anything that can copy a piece of a row as f32 ([`Rows`]): a matrix ([`MatrixRows`]), or the pixels of an
//!   image as a convolution sees them ([`ConvRows`]), so that a convolution is the same product.
//! - What happens to a finished row is an [`Epilogue`]; [`Finish`] has the usual stages (bias, time embedding,
//!   activation, residual, GEGLU) and writes f32, f16 or bf16.
//!
//! ```
//! use kinora_cpu::gemm::{self, Activation, Finish, MatrixRows, PackedWeights, Stage, Values, ValuesMut};
//! use kinora_cpu::simd::Isa;
//!
//! let (rows, depth, columns) = (5, 3, 4);
//! let input = vec![1.0f32; rows * depth];
//! let weights = vec![half::f16::from_f32(0.5); columns * depth];
//! let bias = vec![-2.0f32; columns];
//! let mut output = vec![half::f16::ZERO; rows * columns];
//!
//! let isa = Isa::detect();
//! let packed = PackedWeights::new(isa, Values::F16(&weights), columns, depth);
//! let finish = Finish::new(ValuesMut::F16(&mut output), rows, columns)
//!     .stage(Stage::Bias(&bias))
//!     .stage(Stage::Activation(Activation::Relu));
//! gemm::multiply(&MatrixRows::new(Values::F32(&input), rows, depth), &packed, &finish);
//! assert!(output.iter().all(|value| value.to_f32() == 0.0));
//! ```
//!
//! The blocking follows Goto and van de Geijn. A task owns a block of C: for each chunk of K it copies its rows of A
//! into a block that stays in L2, and multiplies them, a register tile at a time, with panels of B that stay in L1.
//! The order of additions along K depends on K alone, so a result does not depend on the number of threads.

mod aligned;
mod batched;
mod blocking;
mod conv_rows;
mod driver;
mod epilogue;
pub(crate) mod microkernel;
mod rows;
#[cfg(test)]
mod tests;
mod values;
mod weights;

pub use batched::{BatchedOperand, Layout, multiply_batched};
pub use conv_rows::{ConvGeometry, ConvRows};
pub use driver::multiply;
pub use epilogue::{Activation, Epilogue, Finish, Gate, Stage};
pub use rows::{MatrixRows, Rows};
pub use values::{Values, ValuesMut};
pub use weights::PackedWeights;

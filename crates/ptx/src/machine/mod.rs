//! Executes programs: clusters of blocks, their warps, and what each instruction does.

mod access;
mod addresses;
mod alu;
mod async_copies;
mod atomics;
mod barriers;
mod bits;
mod bulk_copies;
mod calls;
mod carry;
mod comparison;
mod convert;
mod floats;
mod global_access;
mod half_arithmetic;
mod mbarriers;
mod mma;
mod mma_tiles;
mod nonfinite;
mod registers;
mod shared_access;
mod step;
mod system_calls;
mod tensor_copies;
mod timed;
mod unit;
mod warp;
mod warp_collectives;
mod warp_splits;
mod wgmma;
mod wgmma_operands;

pub(crate) use alu::wide;
pub(crate) use registers::Constants;
pub(crate) use timed::{TimedRun, run_timed};
pub(crate) use unit::{Geometry, Launched, Unit};

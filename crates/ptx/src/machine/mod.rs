//! The machine: blocks of warps that execute a program.

mod access;
mod addresses;
mod alu;
mod atomics;
mod barriers;
mod births;
mod bits;
mod carry;
mod comparison;
mod convert;
mod copies;
mod exchange;
mod floats;
mod fragments;
mod global_access;
mod half_arithmetic;
mod matrices;
mod matrix_tiles;
mod mbarriers;
mod registers;
mod shared_access;
mod step;
mod tensor_copies;
mod timed;
mod unit;
mod warp;
mod warpgroup;
mod warpgroup_operands;

pub(crate) use alu::wide;
pub(crate) use registers::Constants;
pub(crate) use timed::{TimedRun, run_timed};
pub(crate) use unit::{Geometry, Launched, Unit};

//! The machine: blocks of warps that execute a program.

mod access;
mod alu;
mod barriers;
mod convert;
mod copies;
mod exchange;
mod fragments;
mod half_arithmetic;
mod matrices;
mod mbarriers;
mod registers;
mod step;
mod tensor_copies;
mod unit;
mod warp;
mod warpgroup;

pub(crate) use alu::wide;
pub(crate) use registers::Constants;
pub(crate) use unit::{Geometry, Launched, Unit};

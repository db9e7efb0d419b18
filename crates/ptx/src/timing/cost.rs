//! What each PTX instruction costs, as far as its kind determines it: its unit, how long it occupies it, and its latency. PTX is not
//! what the chip executes: moves and argument loads disappear, 64-bit integer arithmetic takes two instructions, division many.

use super::multiprocessor::{Rates, Unit};
use crate::isa::{Alu, Conversion, ExactElement, Float, Instruction, Int, Memory, Op, Path, Program, Type};

/// Instructions and clocks of a 32-bit integer division, which chips have no unit for: conversions, a reciprocal and corrections in
/// sequence.
const DIVISION: (f64, f64) = (20.0, 140.0);

/// The same for 64 bits, which is a function call.
const LONG_DIVISION: (f64, f64) = (80.0, 500.0);

/// How the time of an instruction is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The assembler removes it.
    Free,
    /// By its cost alone.
    Plain,
    /// A backward branch: the end of a loop.
    Loop,
    /// After it has executed, by what it accessed or waited for.
    Deferred,
}

/// The cost of an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub kind: Kind,
    /// The unit that executes it, in addition to its scheduler.
    pub unit: Option<Unit>,
    /// Instructions of the chip that it becomes.
    pub slots: f64,
    /// Clocks that it occupies its unit.
    pub interval: f64,
    /// Clocks until its result is ready.
    pub latency: f64,
}

/// The costs of a program's instructions.
pub(crate) fn costs(program: &Program, rates: &Rates) -> Vec<Cost> {
    program.instructions.iter().enumerate().map(|(pc, instruction)| cost(pc, instruction, rates)).collect()
}

fn cost(pc: usize, instruction: &Instruction, rates: &Rates) -> Cost {
    let latency = rates.latencies.arithmetic;
    let free = Cost { kind: Kind::Free, unit: None, slots: 0.0, interval: 0.0, latency: 0.0 };
    let on = |unit: Unit, count: f64| Cost {
        kind: Kind::Plain,
        unit: Some(unit),
        slots: count,
        interval: count * rates.intervals[unit as usize],
        latency: latency * count.max(1.0),
    };
    let alone = |count: f64| Cost { kind: Kind::Plain, unit: None, slots: count, interval: 0.0, latency };
    match instruction.op {
        Op::Alu(alu) => match alu {
            Alu::Move32 | Alu::Move64 | Alu::Pack64 | Alu::Unpack64 | Alu::Unpack32 => free,
            Alu::I16(Int::DivS | Int::DivU | Int::RemS | Int::RemU)
            | Alu::I32(Int::DivS | Int::DivU | Int::RemS | Int::RemU) => {
                Cost { latency: DIVISION.1, ..on(Unit::Integer, DIVISION.0) }
            }
            Alu::I16(op) | Alu::I32(op) => integer(op).map_or(free, |(unit, count)| on(unit, count)),
            Alu::I64(Int::DivS | Int::DivU | Int::RemS | Int::RemU) => {
                Cost { latency: LONG_DIVISION.1, ..on(Unit::Integer, LONG_DIVISION.0) }
            }
            Alu::I64(op) => integer(op).map_or(free, |(unit, count)| on(unit, 2.0 * count)),
            Alu::Wide16(..) | Alu::Wide32(..) | Alu::DotBytes(..) | Alu::Mul24 { .. } => {
                on(Unit::Integer, 1.0)
            }
            Alu::Select64 | Alu::SelectBySign64 { .. } => on(Unit::Integer, 2.0),
            Alu::F32(op, mode) => float(op, mode.flush, rates, on, free),
            Alu::F64(op, mode) => match op {
                Float::Neg | Float::Abs => free,
                Float::Add
                | Float::Sub
                | Float::Mul
                | Float::Fma
                | Float::MulSub
                | Float::NegMulAdd
                | Float::Min
                | Float::Max => on(Unit::Double, 1.0),
                _ => Cost { unit: Some(Unit::Double), ..float(op, mode.flush, rates, on, free) },
            },
            Alu::Half { op, mode, .. } => match op {
                Float::Neg | Float::Abs => free,
                Float::Add
                | Float::Sub
                | Float::Mul
                | Float::Fma
                | Float::MulSub
                | Float::NegMulAdd
                | Float::Min
                | Float::Max
                | Float::MinNan
                | Float::MaxNan => Cost { interval: rates.half, ..on(Unit::Float, 1.0) },
                _ => float(op, mode.flush, rates, on, free),
            },
            Alu::Convert(conversion) => convert(conversion, rates, on, free),
            _ => on(Unit::Integer, 1.0),
        },
        Op::Carry(carry) => on(Unit::Integer, if carry.wide { 2.0 } else { 1.0 }),
        Op::SetPredicate { kind, .. } | Op::SetValue { kind, .. } => {
            on(Unit::Integer, if kind.bytes() == 8 { 2.0 } else { 1.0 })
        }
        Op::TestNumber { .. } | Op::Predicate(_) => on(Unit::Integer, 1.0),
        Op::Special(_)
        | Op::FrameBase
        | Op::AllocateStack { .. }
        | Op::SaveStack
        | Op::RestoreStack
        | Op::ToGeneric(_)
        | Op::FromGeneric(_)
        | Op::IsSpace(_)
        | Op::Nothing
        | Op::Prefetch => free,
        Op::MapShared { .. } | Op::ClusterRankOf { .. } => on(Unit::Integer, 1.0),
        Op::Load(access) if access.memory == Memory::Parameter => free,
        Op::Load(_) | Op::Store(_) if instruction.path == Path::CallParameter => free,
        Op::Branch { target } if target as usize <= pc => Cost { kind: Kind::Loop, ..alone(1.0) },
        Op::Branch { .. }
        | Op::BranchIndexed { .. }
        | Op::Exit
        | Op::Trap
        | Op::Call { .. }
        | Op::Return
        | Op::System(_)
        | Op::Unsupported(_) => alone(1.0),
        Op::Vote(_) | Op::ActiveMask | Op::Elect => on(Unit::Integer, 1.0),
        Op::Fence(_) | Op::SetRegisters { .. } | Op::WgmmaFence => alone(1.0),
        Op::Mma(mma) => {
            let products = f64::from(mma.m) * f64::from(mma.n) * f64::from(mma.k);
            let interval = products / (rates.tensor * rates.tensor_by_warp * speed_of(mma.a));
            let unit = Some(Unit::Tensor);
            Cost { kind: Kind::Plain, unit, slots: 1.0, interval, latency: rates.latencies.tensor }
        }
        Op::ExactMma(mma) => {
            // A 4-bit or 1-bit product takes as long as one of as many bytes of 8-bit elements.
            let (depth, speed) = match mma.element {
                ExactElement::F64 => (f64::from(mma.k), 1.0 / 16.0),
                ExactElement::Int4 { .. } | ExactElement::Bit { .. } => (4.0 * mma.units() as f64, 2.0),
            };
            let products = 8.0 * f64::from(mma.m) * depth;
            let interval = products / (rates.tensor * rates.tensor_by_warp * speed);
            let unit = Some(Unit::Tensor);
            Cost { kind: Kind::Plain, unit, slots: 1.0, interval, latency: rates.latencies.tensor }
        }
        Op::Wgmma(wgmma) => {
            // Each of the four warps computes sixteen rows, on the tensor cores of its own scheduler.
            let products = 16.0 * f64::from(wgmma.n) * f64::from(wgmma.k);
            let interval = products / (rates.tensor * speed_of(wgmma.element));
            let unit = Some(Unit::Tensor);
            Cost { kind: Kind::Deferred, unit, slots: 1.0, interval, latency: rates.latencies.tensor }
        }
        _ => Cost { kind: Kind::Deferred, ..alone(1.0) },
    }
}

/// The tensor cores' rate for an operand type, relative to 16-bit operands.
fn speed_of(kind: Type) -> f64 {
    match kind.bytes() {
        1 => 2.0,
        4 => 0.5,
        8 => 1.0 / 16.0,
        _ => 1.0,
    }
}

/// The unit of an integer operation, and how many instructions it becomes.
fn integer(op: Int) -> Option<(Unit, f64)> {
    Some(match op {
        // Integer multiply-adds run on the floating-point multiply-add units.
        Int::Mul | Int::Mad => (Unit::Float, 2.0),
        Int::MulHighS | Int::MulHighU | Int::MadHighS | Int::MadHighU => (Unit::Float, 2.0),
        Int::PopulationCount | Int::LeadingZeros | Int::Reverse | Int::FindS(_) | Int::FindU(_) => {
            (Unit::Integer, 2.0)
        }
        Int::ExtractS | Int::ExtractU | Int::Insert => (Unit::Integer, 2.0),
        _ => (Unit::Integer, 1.0),
    })
}

fn float(op: Float, flush: bool, rates: &Rates, on: impl Fn(Unit, f64) -> Cost, free: Cost) -> Cost {
    let special = rates.latencies.special;
    match op {
        Float::Neg | Float::Abs => free,
        Float::Add | Float::Sub | Float::Mul | Float::Fma | Float::MulSub | Float::NegMulAdd => {
            on(Unit::Float, 1.0)
        }
        Float::Min | Float::Max | Float::MinNan | Float::MaxNan | Float::CopySign => on(Unit::Integer, 1.0),
        Float::Div => Cost { slots: 8.0, latency: 3.0 * special, ..on(Unit::Special, 1.0) },
        // Without flushing, subnormals are scaled before and after.
        _ => {
            let count = if flush { 1.0 } else { 3.0 };
            Cost { slots: count, latency: special, ..on(Unit::Special, 1.0) }
        }
    }
}

fn convert(conversion: Conversion, rates: &Rates, on: impl Fn(Unit, f64) -> Cost, free: Cost) -> Cost {
    let Conversion { to, from, .. } = conversion;
    match (from.is_float(), to.is_float()) {
        // To and from f64: as many as special functions, and no more than the chip has units of f64 ("Arithmetic Instructions" in the CUDA
        // C++ Programming Guide). By accident they cost more than the arithmetic between them: .55 ms on an H200 where that takes .13.
        (from_float, to_float) if from_float && from.bytes() == 8 || to_float && to.bytes() == 8 => {
            let slow = rates.intervals[Unit::Double as usize] > rates.intervals[Unit::Special as usize];
            on(if slow { Unit::Double } else { Unit::Special }, 1.0)
        }
        // Zero extension is free.
        (false, false) if from.bytes() <= to.bytes() && !from.is_signed() => free,
        (false, false) => on(Unit::Integer, 1.0),
        // From 16 to 32 bits: an addition that reads half of a word.
        (true, true) if from.bytes() == 2 && to.bytes() == 4 => on(Unit::Float, 1.0),
        (true, true) => on(Unit::Integer, 1.0),
        _ => on(Unit::Integer, 2.0),
    }
}

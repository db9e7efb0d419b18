//! Costs that a prediction leaves out, to see what a kernel would gain without them.

use std::collections::HashMap;

use super::{
    cache::{Footprint, SECTOR},
    cost::Cost,
};
use crate::{
    counters::InstructionClass,
    isa::{Alu, Instruction, Memory, Op, Program},
    performance::{Assumed, Assumption},
};

/// Loads that are in flight instead of one.
const LOADS_IN_FLIGHT: f64 = 8.0;

/// Bytes that one load or store of a lane can have.
const WIDEST: f64 = 16.0;

/// Accesses that count only with the bytes that threads asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trimmed {
    pub footprint: Footprint,
    /// Bytes that threads asked for.
    pub asked: u64,
}

impl Trimmed {
    /// The share of the sectors' bytes that threads asked for.
    pub fn share(&self) -> f64 {
        let touched: u64 = self.footprint.pages().map(|(_, bytes)| bytes).sum();
        (self.asked as f64 / touched.max(SECTOR) as f64).min(1.0)
    }
}

/// What is left out, and what the current instruction is.
#[derive(Clone, Debug, Default)]
pub(crate) struct MendedCosts {
    /// By instruction; empty if nothing is left out.
    assumed: Vec<Assumed>,
    /// By instruction: the share of its cost that stays.
    shares: Vec<f64>,
    /// The share of the time between blocks that stays.
    block: f64,
    current: Assumed,
    /// The share of the current instruction's cost that stays.
    share: f64,
    /// The cluster that executes it.
    cluster: u64,
    /// What each cluster has read.
    kept: HashMap<u64, Footprint>,
    /// Coalesced accesses.
    pub reads: Trimmed,
    pub writes: Trimmed,
}

impl MendedCosts {
    pub fn new(program: &Program, assumed: Vec<Assumed>, tensor: f64) -> MendedCosts {
        let wide = wide_share(program, &assumed);
        let shares = shares(program, &assumed, wide, tensor);
        MendedCosts { assumed, shares, block: wide, ..MendedCosts::default() }
    }

    /// Whether anything is left out.
    #[inline(always)]
    pub fn is_some(&self) -> bool {
        !self.assumed.is_empty()
    }

    /// A cluster's warp is at an instruction, which some lanes execute.
    #[inline(always)]
    pub fn at(&mut self, pc: u32, lanes: u32, cluster: u64) {
        if self.is_some() {
            self.current = self.assumed[pc as usize];
            self.share = self.shares[pc as usize];
            if self.assumes(Assumption::FullWarps) {
                self.share *= f64::from(lanes.count_ones()) / 32.0;
            }
            self.cluster = cluster;
        }
    }

    /// Whether something is assumed of the current instruction.
    #[inline(always)]
    pub fn assumes(&self, assumption: Assumption) -> bool {
        self.current.has(assumption)
    }

    /// The share of the current instruction's issue slots and unit that counts.
    #[inline(always)]
    pub fn share(&self) -> f64 {
        if self.is_some() { self.share } else { 1.0 }
    }

    /// The share of the time between blocks that counts: with wider accesses there are fewer blocks.
    pub fn block_share(&self) -> f64 {
        if self.is_some() { self.block } else { 1.0 }
    }

    /// The share of the current load's latency that counts.
    #[inline(always)]
    pub fn latency(&self) -> f64 {
        if self.assumes(Assumption::LoadsInFlight) {
            1.0 / LOADS_IN_FLIGHT
        } else if self.assumes(Assumption::WideAccesses) {
            // A wide load waits as long, for more.
            self.share
        } else {
            1.0
        }
    }

    /// Whether the current cluster has not read a sector yet.
    pub fn is_new_to_block(&mut self, sector: u64) -> bool {
        self.kept.entry(self.cluster).or_default().touch(sector)
    }

    /// Costs of arithmetic without what is assumed to be mended.
    pub fn apply(&self, program: &Program, costs: &mut [Cost], arithmetic: f64) {
        use InstructionClass as C;
        let double = with(program, &self.assumed, Assumption::PlainArithmetic).any(|i| i.class == C::Double);
        for ((cost, assumed), instruction) in costs.iter_mut().zip(&self.assumed).zip(&program.instructions) {
            if !assumed.has(Assumption::PlainArithmetic) {
                continue;
            }
            match instruction.class {
                C::Double | C::Special => {
                    cost.unit = None;
                    cost.slots = cost.slots.min(1.0);
                    cost.latency = cost.latency.min(arithmetic);
                }
                // A conversion from and to f64 is not needed then.
                C::Convert if double => (cost.unit, cost.slots, cost.latency) = (None, 0.0, 0.0),
                _ => {}
            }
        }
    }
}

fn is_arithmetic(instruction: &Instruction) -> bool {
    matches!(
        instruction.op,
        Op::Alu(_)
            | Op::Carry(_)
            | Op::SetPredicate { .. }
            | Op::SetValue { .. }
            | Op::Predicate(_)
            | Op::TestNumber { .. }
            | Op::Branch { .. }
    )
}

fn is_special(instruction: &Instruction) -> bool {
    instruction.class == InstructionClass::Special
}

/// The instructions for which something is assumed.
fn with<'a>(
    program: &'a Program,
    assumed: &'a [Assumed],
    assumption: Assumption,
) -> impl Iterator<Item = &'a Instruction> {
    let all = program.instructions.iter().zip(assumed);
    all.filter(move |(_, assumed)| assumed.has(assumption)).map(|(instruction, _)| instruction)
}

/// The share of accesses that remains when they become wider. The widest of them decides.
fn wide_share(program: &Program, assumed: &[Assumed]) -> f64 {
    let accessed = with(program, assumed, Assumption::WideAccesses).filter_map(bytes_of);
    accessed.max().map_or(1.0, |bytes| (bytes as f64 / WIDEST).min(1.0))
}

/// Arithmetic instructions for each special one from which on a line is taken for a call of a library function.
const LIBRARY_CALL: usize = 12;

/// The share of each instruction's cost that stays.
fn shares(program: &Program, assumed: &[Assumed], wide: f64, tensor: f64) -> Vec<f64> {
    // A call of a library function is many instructions of one line, two or three of them by the special-function units; a
    // multiplication or an addition remains for each of these.
    let arithmetic = || {
        with(program, assumed, Assumption::PlainArithmetic).filter(|instruction| is_arithmetic(instruction))
    };
    let (special, all) =
        (arithmetic().filter(|instruction| is_special(instruction)).count(), arithmetic().count());
    let plain = if all < LIBRARY_CALL * special || special == 0 { 1.0 } else { special as f64 / all as f64 };
    let share = |(instruction, assumed): (&Instruction, &Assumed)| {
        let mut share = 1.0;
        let is_float = matches!(instruction.op, Op::Alu(Alu::F32(..) | Alu::F64(..) | Alu::Half { .. }));
        if assumed.has(Assumption::WideAccesses) && !is_float {
            share *= wide;
        }
        if assumed.has(Assumption::PlainArithmetic) && is_arithmetic(instruction) {
            share *= plain;
        }
        if assumed.has(Assumption::TensorCores) {
            share *= tensor;
        }
        if assumed.has(Assumption::NoLocalMemory) && is_local(instruction) {
            share = 0.0;
        }
        share
    };
    program.instructions.iter().zip(assumed).map(share).collect()
}

/// Bytes of a lane's access to global memory.
fn bytes_of(instruction: &Instruction) -> Option<usize> {
    match instruction.op {
        Op::Load(access) | Op::Store(access) if matches!(access.memory, Memory::Global | Memory::Generic) => {
            Some(access.kind.bytes() * usize::from(access.lanes))
        }
        _ => None,
    }
}

fn is_local(instruction: &Instruction) -> bool {
    matches!(instruction.op, Op::Load(access) | Op::Store(access) if access.memory == Memory::Local)
}

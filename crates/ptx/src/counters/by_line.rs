//! The counters of a launch by instruction, and folded to lines of PTX and of the source.

use std::collections::BTreeMap;

use super::Counters;
use crate::{
    check::SourceLine,
    isa::{Op, Program},
};

/// No instruction yet, or one that was not counted yet.
const NONE: u32 = u32::MAX;

/// The counters of a unit's instructions. Only instructions that were executed take memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountersByInstruction {
    /// The place of each instruction in `counts`.
    places: Vec<u32>,
    counts: Vec<Counters>,
    /// The instruction that is being executed.
    current: usize,
    /// Warp instructions that were attributed.
    pub instructions: u64,
}

impl CountersByInstruction {
    pub fn new(program: &Program) -> CountersByInstruction {
        CountersByInstruction { places: vec![NONE; program.instructions.len()], ..Default::default() }
    }

    /// Attributes what was counted since the last call to the instruction that was executed meanwhile. The next one is `pc`.
    #[inline(never)]
    pub fn next(&mut self, counted: &mut Counters, pc: u32) {
        self.instructions += counted.warp_instructions();
        self.of(self.current).merge(counted);
        *counted = Counters::default();
        self.current = pc as usize;
    }

    fn of(&mut self, pc: usize) -> &mut Counters {
        let place = &mut self.places[pc];
        if *place == NONE {
            *place = self.counts.len() as u32;
            self.counts.push(Counters::default());
        }
        &mut self.counts[*place as usize]
    }

    pub fn merge(&mut self, other: &CountersByInstruction) {
        for pc in other.executed() {
            if let Some(counted) = other.get(pc) {
                self.of(pc).merge(counted);
            }
        }
    }

    /// The instructions that were executed.
    pub fn executed(&self) -> impl Iterator<Item = usize> {
        let counted = self.places.iter().enumerate().filter(|(_, place)| **place != NONE);
        counted.map(|(pc, _)| pc)
    }

    /// The counters of an instruction.
    pub fn get(&self, pc: usize) -> Option<&Counters> {
        self.counts.get(*self.places.get(pc)? as usize)
    }

    /// The counters of all instructions together.
    pub fn total(&self) -> Counters {
        let mut total = Counters::default();
        self.counts.iter().for_each(|counted| total.merge(counted));
        total
    }
}

/// Floating-point operations by their type: two per multiply-add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Flops {
    /// Of threads, in 16 bits.
    pub half: u64,
    /// Of threads, in 32 bits.
    pub single: u64,
    /// Of threads, in 64 bits.
    pub double: u64,
    /// Of matrix instructions.
    pub matrix: u64,
}

impl Flops {
    /// The operations of one instruction.
    fn of(op: &Op, counters: &Counters) -> Flops {
        let threads = counters.thread_flops;
        let bytes = if let Op::Alu(operation) = op { operation.float_bytes() } else { None };
        let of = |wanted: usize| if bytes == Some(wanted) { threads } else { 0 };
        Flops { half: of(2), single: of(4), double: of(8), matrix: counters.matrix_flops }
    }

    fn add(&mut self, other: &Flops) {
        self.half += other.half;
        self.single += other.single;
        self.double += other.double;
        self.matrix += other.matrix;
    }

    fn scaled(&self, factor: f64) -> Flops {
        let scale = |count: u64| (count as f64 * factor).round() as u64;
        Flops {
            half: scale(self.half),
            single: scale(self.single),
            double: scale(self.double),
            matrix: scale(self.matrix),
        }
    }
}

/// What a line of a kernel costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LineCounters {
    /// The source line, if the PTX has line information.
    pub source: Option<SourceLine>,
    /// The line in the PTX. A source line may become several: then it is the first.
    pub ptx_line: u32,
    /// Its counters.
    pub counters: Counters,
    /// Its floating-point operations by type.
    pub flops: Flops,
}

impl LineCounters {
    /// All counts times a factor, to extrapolate from some blocks to the grid.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.counters = self.counters.scaled(factor);
        self.flops = self.flops.scaled(factor);
    }
}

/// Something for every line of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ByLine<T> {
    /// By source line, files in the order of their names. Instructions without one are together, without a source.
    pub source: Vec<T>,
    /// By line of the PTX. A line of a function has what all its calls cost together.
    pub ptx: Vec<T>,
}

impl<T> ByLine<T> {
    /// Folds instructions to lines. `line_of` says where an instruction comes from, `add` adds it to its line.
    pub(crate) fn fold(
        instructions: impl Iterator<Item = usize>,
        line_of: impl Fn(usize) -> (Option<SourceLine>, u32),
        new: impl Fn(LineCounters) -> T,
        add: impl Fn(&mut T, usize),
    ) -> ByLine<T> {
        let mut source: BTreeMap<Option<SourceLine>, T> = BTreeMap::new();
        let mut ptx: BTreeMap<u32, T> = BTreeMap::new();
        for pc in instructions {
            let (line, ptx_line) = line_of(pc);
            // Lines come in order, so the first of a source line is the lowest.
            let empty = || new(LineCounters { source: line.clone(), ptx_line, ..LineCounters::default() });
            add(source.entry(line.clone()).or_insert_with(empty), pc);
            add(ptx.entry(ptx_line).or_insert_with(empty), pc);
        }
        ByLine { source: source.into_values().collect(), ptx: ptx.into_values().collect() }
    }
}

impl LineCounters {
    /// Adds what an instruction counted.
    pub(crate) fn add(&mut self, op: &Op, counters: &Counters) {
        self.counters.merge(counters);
        self.flops.add(&Flops::of(op, counters));
    }
}

impl ByLine<LineCounters> {
    pub(crate) fn of(
        counted: &CountersByInstruction,
        program: &Program,
        line_of: impl Fn(usize) -> (Option<SourceLine>, u32),
    ) -> ByLine<LineCounters> {
        let add = |line: &mut LineCounters, pc: usize| {
            if let Some(counters) = counted.get(pc) {
                line.add(&program.instructions[pc].op, counters);
            }
        };
        ByLine::fold(counted.executed(), line_of, |line| line, add)
    }
}

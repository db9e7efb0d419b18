//! `wgmma`: matrix products of a warpgroup of four warps, each with sixteen rows.
//!
//! A product is computed when it is issued, because compilers put copies of its accumulators before the wait (which the assembler
//! removes). Until the wait its registers are in flight and its operands in shared memory are being read; both are checked.

use std::{collections::VecDeque, ops::Range};

use super::{
    access::{AccessKind, LaneAccess},
    mma_tiles::{NO_LEFT, NO_RIGHT, WarpOperands},
    nonfinite::{NonFinite, first_nonfinite},
    registers::Words,
    step::Step,
    unit::Unit,
    warp::Warp,
    wgmma_operands::{Layout, Pieces, WarpPart},
};
use crate::{
    check::FindingKind,
    decode::SHARED_START,
    isa::{Class, Operand, Type, Wgmma},
};

/// A `wgmma` that was issued and not waited for.
#[derive(Clone, Debug)]
struct InFlight {
    registers: Vec<Operand>,
    /// The 16-byte pieces of shared memory that it reads.
    pieces: Vec<u32>,
    pc: u32,
}

/// The `wgmma` instructions that a warp has issued and not waited for, in groups.
#[derive(Debug, Default)]
pub(crate) struct WgmmaGroups {
    open: Vec<InFlight>,
    groups: VecDeque<Vec<InFlight>>,
    /// Whether `wgmma.fence` was executed since a register of a `wgmma` was written.
    fenced: bool,
    /// The registers of all of them, one bit each.
    busy: Vec<u64>,
}

impl WgmmaGroups {
    fn mark(&mut self, registers: &[Operand]) {
        for register in registers.iter().filter(|register| register.is_register()) {
            let (word, bit) = (register.index() / 64, register.index() % 64);
            if self.busy.len() <= word {
                self.busy.resize(word + 1, 0);
            }
            self.busy[word] |= 1 << bit;
        }
    }

    /// Marks the registers that are still in flight.
    fn mark_again(&mut self) {
        self.busy.fill(0);
        let in_flight = self.groups.iter().flatten().chain(&self.open);
        let registers: Vec<Operand> = in_flight.flat_map(|wgmma| &wgmma.registers).copied().collect();
        self.mark(&registers);
    }

    fn is_busy(&self, register: Operand) -> bool {
        register.is_register()
            && register.class() == Class::Word
            && self
                .busy
                .get(register.index() / 64)
                .is_some_and(|word| word >> (register.index() % 64) & 1 == 1)
    }
}

impl Unit<'_> {
    /// Checks that an instruction accesses no register of a `wgmma` in flight.
    pub(super) fn check_wgmma_registers(&mut self, warp: &mut Warp, step: Step<'_>) {
        let Step { instruction, operands, pc, mask } = step;
        let results = &operands[..instruction.results as usize];
        if results.iter().any(|result| !result.is_none()) {
            warp.wgmma.fenced = false;
        }
        if !operands.iter().any(|&operand| warp.wgmma.is_busy(operand)) {
            return;
        }
        let uses = |wgmma: &&InFlight| operands.iter().any(|operand| wgmma.registers.contains(operand));
        let found =
            warp.wgmma.groups.iter().flatten().chain(&warp.wgmma.open).find(uses).map(|wgmma| wgmma.pc);
        if let Some(issued) = found {
            let line = self.line_of(issued);
            self.report(warp, FindingKind::WgmmaInFlight, pc, mask.trailing_zeros(), None, || {
                format!("accesses a register of the wgmma issued at PTX line {line} before waiting for it")
            });
        }
    }

    fn line_of(&self, pc: u32) -> u32 {
        let program = self.launched.program;
        program.lines[program.instructions[pc as usize].line as usize].ptx
    }

    pub(super) fn wgmma_fence(&mut self, warp: &mut Warp) {
        warp.wgmma.fenced = true;
    }

    pub(super) fn wgmma_commit(&mut self, warp: &mut Warp) {
        let group = std::mem::take(&mut warp.wgmma.open);
        warp.wgmma.groups.push_back(group);
    }

    /// `wgmma.wait_group`: waits until at most `pending` groups are in flight. Their operands have been read by then.
    pub(super) fn wgmma_wait(&mut self, warp: &mut Warp, pending: u32) {
        if warp.wgmma.groups.len() <= pending as usize {
            return;
        }
        while warp.wgmma.groups.len() > pending as usize {
            let Some(group) = warp.wgmma.groups.pop_front() else { break };
            for wgmma in group {
                self.read_pieces(warp, &wgmma.pieces, wgmma.pc);
            }
        }
        warp.wgmma.mark_again();
    }

    /// Records that a `wgmma` reads pieces of shared memory, and reports races.
    fn read_pieces(&mut self, warp: &Warp, pieces: &[u32], pc: u32) {
        if !self.launched.races {
            return;
        }
        let who = self.accessor(warp);
        for &piece in pieces {
            let offset = piece as usize;
            let shared = &mut self.blocks[warp.block].shared;
            let Some(conflict) = shared.records.read(offset, 16, &who, &self.clocks) else { continue };
            let address = offset as u64 + SHARED_START;
            let access = LaneAccess { pc, lane: 0, address, bytes: 16, kind: AccessKind::Read };
            self.report_shared_race(warp, access, conflict, false);
        }
    }

    pub(super) fn wgmma(&mut self, warp: &mut Warp, step: Step<'_>, wgmma: Wgmma) {
        self.whole_warp(warp, step);
        let (n, k) = (wgmma.n as usize, wgmma.k as usize);
        self.counters.matrix_instructions += 1;
        self.counters.matrix_flops += 2 * (16 * n * k) as u64;
        if self.launched.timed {
            return;
        }
        if !warp.wgmma.fenced {
            self.report(warp, FindingKind::WgmmaInFlight, step.pc, 0, None, || {
                "wgmma uses registers that were written after the last wgmma.fence".to_owned()
            });
        }
        let constants = &self.launched.constants;
        let results = step.instruction.results as usize;
        let (d, rest) = step.operands.split_at(results);
        let (a, rest) = rest.split_at(if wgmma.a_in_registers { 4 } else { 1 });
        let (b, adds) = (rest[0], warp.registers.predicate(rest[1]) & 1 == 1);
        let descriptor = warp.registers.long(constants, b)[0];
        let mut spread = NO_RIGHT;
        // The pieces that it reads, for the checks.
        let mut read = Vec::new();
        let mut left = if wgmma.a_in_registers {
            let words: Vec<&Words> =
                a.iter().map(|&operand| warp.registers.word(constants, operand)).collect();
            let operands =
                WarpOperands { a: &words, a_kind: wgmma.element, b: &[], b_kind: wgmma.b_element, m: 16 };
            let mut left = NO_LEFT;
            operands.spread(self.launched.wide, &mut left, &mut spread);
            left
        } else {
            let layout = Layout::new(warp.registers.long(constants, a[0])[0], wgmma.transpose_a);
            let first = warp.number % 4 * 16;
            let Some(pieces) = self.pieces(warp, step, layout, wgmma.element, first..first + 16, k) else {
                return;
            };
            read.extend(&pieces.offsets);
            pieces.left(self.blocks[warp.block].shared.all())
        };
        let layout = Layout::new(descriptor, wgmma.transpose_b);
        let Some(right) = self.pieces(warp, step, layout, wgmma.b_element, 0..n, k) else { return };
        // All four warps read B; each checks a quarter of it.
        for (line, offsets) in right.offsets.chunks_exact(right.per_line).enumerate() {
            read.extend(offsets.iter().skip((warp.number.wrapping_sub(line)) % 4).step_by(4));
        }
        self.check_pieces(warp, step.pc, &read);
        if wgmma.negate_a != wgmma.negate_b {
            left.iter_mut().flatten().for_each(|value| *value = -*value);
        }
        let memory = self.blocks[warp.block].shared.all();
        let part = WarpPart { left: &left, right: &right, memory, k, sum: wgmma.sum };
        let mut nonfinite = Vec::new();
        // 16 rows of eight columns are four registers, or two if the accumulators have 16 bits.
        for (tile, d) in d.chunks_exact(wgmma.sum.bytes()).enumerate() {
            let mut sums = [[0; 32]; 4];
            if adds {
                for (sums, &operand) in sums.iter_mut().zip(d) {
                    *sums = *warp.registers.word(constants, operand);
                }
            }
            let before = if self.launched.nonfinite { Some(sums) } else { None };
            part.add_to(self.launched.wide, tile, &mut spread, &mut sums);
            for (&result, sums) in d.iter().zip(&sums) {
                warp.registers.set_word(result, sums, step.mask);
            }
            if let Some(before) = before {
                let found = first_nonfinite(part.tile(&spread), &before, &sums);
                nonfinite.extend(found.map(|found| found.in_tile(tile)));
            }
        }
        self.report_nonfinite(warp, step.pc, nonfinite.into_iter().min_by_key(NonFinite::place));
        let mut registers: Vec<Operand> = d.to_vec();
        if wgmma.a_in_registers {
            registers.extend(a);
        }
        warp.wgmma.mark(&registers);
        warp.wgmma.open.push(InFlight { registers, pieces: read, pc: step.pc });
    }

    /// Where rows of A or columns of B are in shared memory; `None`, and a finding, if they are out of bounds.
    fn pieces(
        &mut self,
        warp: &Warp,
        step: Step<'_>,
        layout: Layout,
        kind: Type,
        rows: Range<usize>,
        k: usize,
    ) -> Option<Pieces> {
        let each = 16 / kind.bytes();
        let size = self.blocks[warp.block].shared.len();
        let transposed = layout.transposed;
        let (lines, per_line, first) =
            if transposed { (0..k, rows.len() / each, rows.start / each) } else { (rows, k / each, 0) };
        let mut offsets = Vec::with_capacity(lines.len() * per_line);
        let mut outside = None;
        layout.addresses(lines, first..first + per_line, |address| {
            let offset = address.wrapping_sub(SHARED_START as usize);
            if offset.checked_add(16).is_none_or(|end| end > size) {
                outside = Some(address as u64);
            }
            offsets.push(offset as u32);
        });
        if let Some(address) = outside {
            self.report(warp, FindingKind::OutOfBounds, step.pc, 0, Some(address), || {
                format!("a wgmma operand runs past the block's {size} bytes of shared memory")
            });
            return None;
        }
        Some(Pieces { kind, offsets, per_line, transposed })
    }

    /// Checks that the operands of a `wgmma` are written, ordered before it and fenced.
    fn check_pieces(&mut self, warp: &Warp, pc: u32, pieces: &[u32]) {
        for &piece in pieces {
            let offset = piece as usize;
            if !self.blocks[warp.block].shared.is_written(offset, 16) {
                let address = offset as u64 + SHARED_START;
                self.report(warp, FindingKind::Uninitialised, pc, 0, Some(address), || {
                    "wgmma reads shared memory that was never written".to_owned()
                });
            }
            self.check_proxy(warp, pc, 0, (warp.block, offset), 16);
        }
        self.read_pieces(warp, pieces, pc);
    }
}

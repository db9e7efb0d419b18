//! Matrix products of a warpgroup: four warps, of which each has sixteen rows.
//!
//! A product is computed when it is started, so that its sums can be copied as compilers like to. Its registers are in
//! flight until it is waited for, and its operands in shared memory are being read until then: both are checked.

use std::{collections::VecDeque, ops::Range};

use super::{
    access::Touch,
    births::{Birth, product_birth},
    matrix_tiles::{NO_LEFT, NO_RIGHT, WarpOperands},
    registers::Words,
    step::Step,
    unit::Unit,
    warp::Warp,
    warpgroup_operands::{Layout, Pieces, WarpPart},
};
use crate::{
    check::FindingKind,
    decode::SHARED_START,
    isa::{Class, Instruction, Operand, Type, Wgmma},
};

/// A product that was started.
#[derive(Clone, Debug)]
struct InFlight {
    registers: Vec<Operand>,
    /// Pieces of shared memory that it reads.
    pieces: Vec<u32>,
    pc: u32,
}

/// The products that a warp has started and not waited for.
#[derive(Debug, Default)]
pub(crate) struct Products {
    open: Vec<InFlight>,
    groups: VecDeque<Vec<InFlight>>,
    /// Whether a fence has come since a register of products was written.
    fenced: bool,
    /// The registers of all of them, a bit each.
    busy: Vec<u64>,
}

impl Products {
    fn mark(&mut self, registers: &[Operand]) {
        for register in registers.iter().filter(|register| register.is_register()) {
            let (word, bit) = (register.index() / 64, register.index() % 64);
            if self.busy.len() <= word {
                self.busy.resize(word + 1, 0);
            }
            self.busy[word] |= 1 << bit;
        }
    }

    /// Marks what is still under way.
    fn mark_again(&mut self) {
        self.busy.fill(0);
        let under_way = self.groups.iter().flatten().chain(&self.open);
        let registers: Vec<Operand> = under_way.flat_map(|product| &product.registers).copied().collect();
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
    /// An instruction touches a register of products.
    pub(super) fn product_touched(
        &mut self,
        warp: &mut Warp,
        instruction: &Instruction,
        operands: &[Operand],
        pc: u32,
        mask: u32,
    ) {
        let results = &operands[..instruction.results as usize];
        if results.iter().any(|result| !result.is_none()) {
            warp.products.fenced = false;
        }
        if !operands.iter().any(|&operand| warp.products.is_busy(operand)) {
            return;
        }
        let flying = |product: &&InFlight| operands.iter().any(|operand| product.registers.contains(operand));
        let found =
            warp.products.groups.iter().flatten().chain(&warp.products.open).find(flying).map(|p| p.pc);
        if let Some(started) = found {
            let line = self.line_of(started);
            self.report(warp, FindingKind::ProductInFlight, pc, mask.trailing_zeros(), None, || {
                format!("a register is touched whose product, started at PTX line {line}, was not waited for")
            });
        }
    }

    fn line_of(&self, pc: u32) -> u32 {
        let program = self.launched.program;
        program.lines[program.instructions[pc as usize].line as usize].ptx
    }

    pub(super) fn wgmma_fence(&mut self, warp: &mut Warp) {
        warp.products.fenced = true;
    }

    pub(super) fn wgmma_commit(&mut self, warp: &mut Warp) {
        let group = std::mem::take(&mut warp.products.open);
        warp.products.groups.push_back(group);
    }

    /// Waits until at most so many groups are under way: their operands have been read by then.
    pub(super) fn wgmma_wait(&mut self, warp: &mut Warp, pending: u32) {
        if warp.products.groups.len() <= pending as usize {
            return;
        }
        while warp.products.groups.len() > pending as usize {
            let Some(group) = warp.products.groups.pop_front() else { break };
            for product in group {
                self.read_pieces(warp, &product.pieces, product.pc);
            }
        }
        warp.products.mark_again();
    }

    /// Checks the pieces that a product reads.
    fn read_pieces(&mut self, warp: &Warp, pieces: &[u32], pc: u32) {
        if !self.launched.races {
            return;
        }
        let who = self.toucher(warp);
        for &piece in pieces {
            let offset = piece as usize;
            let shared = &mut self.blocks[warp.block].shared;
            let Some(conflict) = shared.touches.read(offset, 16, &who, &self.clocks) else { continue };
            self.report_shared_race(warp, pc, 0, (offset as u64) + SHARED_START, Touch::Read, conflict);
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
        if !warp.products.fenced {
            self.report(warp, FindingKind::ProductInFlight, step.pc, 0, None, || {
                "registers were written since the last wgmma.fence, which a product needs before it"
                    .to_owned()
            });
        }
        let constants = &self.launched.constants;
        let results = step.instruction.results as usize;
        let (d, rest) = step.operands.split_at(results);
        let (a, rest) = rest.split_at(if wgmma.a_in_registers { 4 } else { 1 });
        let (b, adds) = (rest[0], warp.registers.predicate(rest[1]) & 1 == 1);
        let descriptor = warp.registers.long(constants, b)[0];
        let mut spread = NO_RIGHT;
        // What it reads, for the checks.
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
        // Each of the four warps answers for a quarter of what all of them read.
        for (line, offsets) in right.offsets.chunks_exact(right.per_line).enumerate() {
            read.extend(offsets.iter().skip((warp.number.wrapping_sub(line)) % 4).step_by(4));
        }
        self.check_pieces(warp, step.pc, &read);
        if wgmma.negate_a != wgmma.negate_b {
            left.iter_mut().flatten().for_each(|value| *value = -*value);
        }
        let memory = self.blocks[warp.block].shared.all();
        let part = WarpPart { left: &left, right: &right, memory, k, sum: wgmma.sum };
        let mut births = Vec::new();
        // Eight columns of 16 rows are four registers, or two of 16-bit sums.
        for (tile, d) in d.chunks_exact(wgmma.sum.bytes()).enumerate() {
            let mut sums = [[0; 32]; 4];
            if adds {
                for (sums, &operand) in sums.iter_mut().zip(d) {
                    *sums = *warp.registers.word(constants, operand);
                }
            }
            let before = if self.launched.births { Some(sums) } else { None };
            part.add_to(self.launched.wide, tile, &mut spread, &mut sums);
            for (&result, sums) in d.iter().zip(&sums) {
                warp.registers.set_word(result, sums, step.mask);
            }
            if let Some(before) = before {
                let birth = product_birth(part.tile(&spread), &before, &sums);
                births.extend(birth.map(|birth| birth.in_tile(tile)));
            }
        }
        self.report_birth(warp, step.pc, births.into_iter().min_by_key(Birth::place));
        let mut registers: Vec<Operand> = d.to_vec();
        if wgmma.a_in_registers {
            registers.extend(a);
        }
        warp.products.mark(&registers);
        warp.products.open.push(InFlight { registers, pieces: read, pc: step.pc });
    }

    /// Where rows of a, or columns of b, lie in shared memory. `None`, and a report, where they do not.
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
                format!(
                    "an operand of a warpgroup's product goes beyond shared memory, which has {size} bytes"
                )
            });
            return None;
        }
        Some(Pieces { kind, offsets, per_line, transposed })
    }

    /// What a product needs when it starts: everything written, seen and fenced.
    fn check_pieces(&mut self, warp: &Warp, pc: u32, pieces: &[u32]) {
        for &piece in pieces {
            let offset = piece as usize;
            if !self.blocks[warp.block].shared.is_written(offset, 16) {
                let address = offset as u64 + SHARED_START;
                self.report(warp, FindingKind::Uninitialised, pc, 0, Some(address), || {
                    "a warpgroup's product reads shared memory that nobody wrote".to_owned()
                });
            }
            self.check_proxy(warp, pc, 0, (warp.block, offset), 16);
        }
        self.read_pieces(warp, pieces, pc);
    }
}

//! Matrix products of a warpgroup: four warps, of which each has sixteen rows.
//!
//! A product is computed when it is started, so that its sums can be copied as compilers like to. Its registers are in
//! flight until it is waited for, and its operands in shared memory are being read until then: both are checked.

use std::collections::VecDeque;

use super::{
    access::Touch,
    births::{product_birth, sums_of},
    matrices::{element, fragment_a, load_sums, multiply, store_sums},
    registers::Words,
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    decode::SHARED_START,
    isa::{Class, Instruction, Operand, Type, Wgmma},
    memory::Swizzle,
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

/// Where an operand lies: its descriptor, taken apart.
#[derive(Clone, Copy, Debug)]
struct Layout {
    start: usize,
    leading: usize,
    stride: usize,
    swizzle: Swizzle,
    /// Whether rows of the memory are along the depth's other axis.
    transposed: bool,
}

impl Layout {
    fn new(descriptor: u64, transposed: bool) -> Layout {
        let field = |bit: u32| (descriptor >> bit & 0x3fff) as usize * 16;
        let swizzle = match descriptor >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::Bytes128,
            2 => Swizzle::Bytes64,
            _ => Swizzle::Bytes32,
        };
        Layout { start: field(0), leading: field(16), stride: field(32), swizzle, transposed }
    }

    /// The address of 16 bytes: along the depth, of row or column `row`, `piece` pieces into the depth; or, transposed, of
    /// depth `row`, `piece` pieces into the rows or columns.
    fn piece(&self, row: usize, piece: usize) -> usize {
        let Layout { start, leading, stride, swizzle, transposed } = *self;
        let (eight, within) = (row / 8, row % 8);
        let linear = match (swizzle, transposed) {
            (Swizzle::None, false) => eight * stride + piece * leading + within * 16,
            (Swizzle::None, true) => eight * leading + piece * stride + within * 16,
            (_, false) => eight * stride + within * swizzle.bytes() + piece * 16,
            (_, true) => {
                let across = swizzle.bytes() / 16;
                piece / across * leading + eight * stride + within * swizzle.bytes() + piece % across * 16
            }
        };
        swizzle.swizzled(start + linear)
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
            let Some(conflict) = shared.read(offset, 16, &who, &self.clocks) else { continue };
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
        let mut pieces = Vec::new();
        let mut left = vec![0f32; 16 * k];
        if wgmma.a_in_registers {
            let words: Vec<&Words> =
                a.iter().map(|&operand| warp.registers.word(constants, operand)).collect();
            fragment_a(&words, wgmma.element, k, &mut left);
        } else {
            let layout = Layout::new(warp.registers.long(constants, a[0])[0], wgmma.transpose_a);
            let rows = warp.number % 4 * 16..warp.number % 4 * 16 + 16;
            let ok = self.operand(warp, step, layout, wgmma.element, rows, k, &mut left, false, &mut pieces);
            if !ok {
                return;
            }
        }
        let mut right = vec![0f32; k * n];
        let layout = Layout::new(descriptor, wgmma.transpose_b);
        if !self.operand(warp, step, layout, wgmma.b_element, 0..n, k, &mut right, true, &mut pieces) {
            return;
        }
        self.check_pieces(warp, step.pc, &pieces);
        if wgmma.negate_a != wgmma.negate_b {
            left.iter_mut().for_each(|value| *value = -*value);
        }
        let registers = &warp.registers;
        let words: Vec<&Words> = d.iter().map(|&operand| registers.word(constants, operand)).collect();
        let mut birth = None;
        let out: Vec<Words> = if wgmma.sum == Type::S32 {
            integer_sums(&left, &right, n, k, &words, adds)
        } else {
            let mut sums = vec![0f32; 16 * n];
            if adds {
                load_sums(&words, wgmma.sum, n, &mut sums);
            }
            let before = if self.launched.births { sums.clone() } else { Vec::new() };
            multiply(self.launched.wide, &mut sums, &left, &right, n, k);
            let out: Vec<Words> = (0..d.len()).map(|i| store_sums(&sums, wgmma.sum, n, i)).collect();
            if self.launched.births {
                // As they are stored: a sum may leave the range of f16 alone.
                let stored = sums_of(&out.iter().collect::<Vec<_>>(), wgmma.sum, n);
                birth = product_birth(&left, &right, n, &before, &stored);
            }
            out
        };
        for (&result, out) in d.iter().zip(&out) {
            warp.registers.set_word(result, out, step.mask);
        }
        self.report_birth(warp, step.pc, birth);
        let mut registers: Vec<Operand> = d.to_vec();
        if wgmma.a_in_registers {
            registers.extend(a);
        }
        warp.products.mark(&registers);
        warp.products.open.push(InFlight { registers, pieces, pc: step.pc });
    }

    /// Reads an operand out of shared memory, as rows of the depth (a) or as depths of columns (b). False where it does not lie
    /// in shared memory.
    #[allow(clippy::too_many_arguments)]
    fn operand(
        &mut self,
        warp: &Warp,
        step: Step<'_>,
        layout: Layout,
        kind: Type,
        rows: std::ops::Range<usize>,
        k: usize,
        out: &mut [f32],
        by_depth: bool,
        pieces: &mut Vec<u32>,
    ) -> bool {
        let bytes = kind.bytes();
        let each = 16 / bytes;
        let count = rows.len();
        let shared = &self.blocks[warp.block].shared;
        let size = shared.len();
        let mut outside = None;
        let (lines, line_pieces, first_piece) = if layout.transposed {
            (0..k, count / each, rows.start / each)
        } else {
            (rows.clone(), k / each, 0)
        };
        for line in lines {
            for piece in 0..line_pieces {
                let address = layout.piece(line, first_piece + piece);
                let offset = address.wrapping_sub(SHARED_START as usize);
                if offset.checked_add(16).is_none_or(|end| end > size) {
                    outside = Some(address as u64);
                    continue;
                }
                // Each of the four warps answers for a quarter of what all of them read.
                if !by_depth || (line + piece) % 4 == warp.number % 4 {
                    pieces.push(offset as u32);
                }
                let data = shared.bytes(offset, 16);
                if bytes == 2 {
                    let values = eight(kind, data);
                    let (first, step) = match (layout.transposed, by_depth) {
                        (true, true) => (line * count + piece * 8, 1),
                        (true, false) => (piece * 8 * k + line, k),
                        (false, true) => (piece * 8 * count + line - rows.start, count),
                        (false, false) => ((line - rows.start) * k + piece * 8, 1),
                    };
                    for (i, value) in values.into_iter().enumerate() {
                        out[first + i * step] = value;
                    }
                    continue;
                }
                for i in 0..each {
                    let bits = match bytes {
                        1 => u32::from(data[i]),
                        _ => u32::from_le_bytes([
                            data[4 * i],
                            data[4 * i + 1],
                            data[4 * i + 2],
                            data[4 * i + 3],
                        ]),
                    };
                    let (row, depth) = if layout.transposed {
                        (piece * each + i, line)
                    } else {
                        (line - rows.start, piece * each + i)
                    };
                    let place = if by_depth { depth * count + row } else { row * k + depth };
                    out[place] = element(kind, bits);
                }
            }
        }
        if let Some(address) = outside {
            self.report(warp, FindingKind::OutOfBounds, step.pc, 0, Some(address), || {
                format!(
                    "an operand of a warpgroup's product goes beyond shared memory, which has {size} bytes"
                )
            });
        }
        outside.is_none()
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

/// Eight 16-bit numbers.
#[inline(always)]
fn eight(kind: Type, data: &[u8]) -> [f32; 8] {
    let mut bits = [0u32; 8];
    for (bits, pair) in bits.iter_mut().zip(data.chunks_exact(2)) {
        *bits = u32::from(u16::from_le_bytes([pair[0], pair[1]]));
    }
    match kind {
        Type::F16 => bits.map(|bits| element(Type::F16, bits)),
        _ => bits.map(|bits| element(Type::Bf16, bits)),
    }
}

fn integer_sums(a: &[f32], b: &[f32], n: usize, k: usize, before: &[&Words], adds: bool) -> Vec<Words> {
    let sum = |i: usize, lane: usize| {
        let (row, column) = (lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
        let product: f32 = (0..k).map(|depth| a[row * k + depth] * b[depth * n + column]).sum();
        let before = if adds { before[i][lane] } else { 0 };
        before.wrapping_add(product as i32 as u32)
    };
    (0..before.len()).map(|i| std::array::from_fn(|lane| sum(i, lane))).collect()
}

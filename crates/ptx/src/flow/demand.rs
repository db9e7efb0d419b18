//! Which bytes of a loaded value a kernel uses, rather than only copies to memory.
//!
//! A struct has padding that nobody writes, and a copy of the struct loads and stores it all the same. So reading memory that was never
//! written is wrong only if the bytes are used: in arithmetic, an address, a branch or an atomic. Bytes that are only stored take the
//! mark that they were never written to where they are stored.

use super::access_facts::Numbers;
use crate::isa::{Access, AccessFacts, Alu, Int, Op, Operand, Program, Type};

/// The bytes of each register that are used, as a mask.
pub(super) struct Demand(Vec<u8>);

/// The lowest bytes of a type.
fn low(kind: Type) -> u8 {
    u8::MAX >> (8 - kind.bytes().clamp(1, 8))
}

/// The bytes that bits `first` to `first + count` of a value are in.
fn bytes_of_bits(first: u32, count: u32) -> u8 {
    let end = first.saturating_add(count).min(64);
    (0..8).filter(|byte| byte * 8 < end && (byte + 1) * 8 > first).fold(0, |all, byte| all | 1 << byte)
}

impl Demand {
    pub fn of(program: &Program, numbers: &Numbers) -> Demand {
        let mut demand = Demand(vec![0; numbers.count]);
        let mut changed = true;
        while changed {
            changed = false;
            for instruction in program.instructions.iter().rev() {
                changed |= demand.grow(numbers, instruction.guard, 1);
                let (results, operands) = program.results_and_operands(instruction);
                for (i, &operand) in operands.iter().enumerate() {
                    let used = demand.used(program, numbers, instruction.op, (results, operands), i);
                    changed |= demand.grow(numbers, operand, used);
                }
            }
        }
        demand
    }

    fn grow(&mut self, numbers: &Numbers, operand: Operand, used: u8) -> bool {
        let Some(register) = numbers.of(operand) else { return false };
        let grown = self.0[register] | used;
        std::mem::replace(&mut self.0[register], grown) != grown
    }

    /// The bytes of an operand that an instruction uses.
    fn used(
        &self,
        program: &Program,
        numbers: &Numbers,
        op: Op,
        (results, operands): (&[Operand], &[Operand]),
        i: usize,
    ) -> u8 {
        let result = |i: usize| {
            results.get(i).and_then(|&operand| numbers.of(operand)).map_or(0, |register| self.0[register])
        };
        let constant = |i: usize| operands.get(i).and_then(|&operand| program.constant(operand));
        let all = u8::MAX;
        match op {
            Op::Store(_) if i > 0 => 0,
            Op::SetPredicate { kind, .. } | Op::SetValue { kind, .. } if i < 2 => low(kind),
            Op::Alu(alu) => match alu {
                Alu::Move32 | Alu::Move64 => result(0),
                Alu::Pack64 => result(0) >> (4 * i) & 0xf,
                Alu::Unpack64 => result(0) & 0xf | result(1) << 4,
                Alu::Pack32 => result(0) >> (2 * i) & 3,
                Alu::Unpack32 => result(0) & 3 | (result(1) & 3) << 2,
                Alu::I16(Int::And | Int::Or | Int::Xor | Int::Not)
                | Alu::I32(Int::And | Int::Or | Int::Xor | Int::Not)
                | Alu::I64(Int::And | Int::Or | Int::Xor | Int::Not) => {
                    let and = matches!(alu, Alu::I16(Int::And) | Alu::I32(Int::And) | Alu::I64(Int::And));
                    let kept = constant(1 - i.min(1)).filter(|_| and).map_or(all, |mask| {
                        (0..8)
                            .filter(|byte| mask >> (8 * byte) & 0xff != 0)
                            .fold(0, |all, byte| all | 1 << byte)
                    });
                    result(0) & kept
                }
                Alu::Lookup(_) => result(0),
                Alu::I32(Int::ShrU | Int::ShrS | Int::Shl) | Alu::I64(Int::ShrU | Int::ShrS | Int::Shl)
                    if i == 0 =>
                {
                    let width = if matches!(alu, Alu::I32(_)) { 32 } else { 64 };
                    let Some(by) = constant(1).map(|by| by.min(64) as u32) else { return all };
                    let left = matches!(alu, Alu::I32(Int::Shl) | Alu::I64(Int::Shl));
                    let signed = matches!(alu, Alu::I32(Int::ShrS) | Alu::I64(Int::ShrS));
                    let source = |byte: u32| match left {
                        true if byte * 8 + 8 <= by => 0,
                        true => bytes_of_bits((byte * 8).saturating_sub(by), 8.min(byte * 8 + 8 - by)),
                        false if signed => bytes_of_bits((byte * 8 + by).min(width - 1), 8),
                        false => bytes_of_bits(byte * 8 + by, 8),
                    };
                    (0..8).filter(|byte| result(0) >> byte & 1 == 1).fold(0, |all, byte| all | source(byte))
                        & (u8::MAX >> (8 - width / 8))
                }
                Alu::I32(Int::ExtractU | Int::ExtractS) | Alu::I64(Int::ExtractU | Int::ExtractS)
                    if i == 0 =>
                {
                    match (constant(1), constant(2)) {
                        (Some(first), Some(count)) if result(0) != 0 => {
                            bytes_of_bits(first.min(64) as u32, count.clamp(1, 64) as u32)
                        }
                        (Some(_), Some(_)) => 0,
                        _ => all,
                    }
                }
                Alu::Permute if i < 2 => {
                    let Some(selector) = constant(2) else { return all };
                    (0..4).filter(|byte| result(0) >> byte & 1 == 1).fold(0, |all, byte| {
                        let from = (selector >> (4 * byte) & 7) as usize;
                        if from / 4 == i { all | 1 << (from % 4) } else { all }
                    })
                }
                Alu::Select32 | Alu::Select64 if i < 2 => result(0),
                Alu::Convert(conversion) if !conversion.from.is_float() && !conversion.to.is_float() => {
                    let (from, used) = (low(conversion.from), result(0));
                    let sign = conversion.from.is_signed() && used & !from != 0;
                    used & from | if sign { from & !(from >> 1) } else { 0 }
                }
                Alu::Convert(conversion) => low(conversion.from),
                Alu::I16(_) | Alu::Wide16(..) => {
                    if i < 2 {
                        3
                    } else {
                        all
                    }
                }
                _ => all,
            },
            _ => all,
        }
    }

    /// Marks the bytes of each load that are used, and which loads and stores copy bytes that are not.
    pub fn mark(&self, program: &mut Program, numbers: &Numbers, facts: &mut [AccessFacts]) {
        // Registers that only loads write, and that are stored.
        let mut only_loaded = vec![true; numbers.count];
        let mut stored = vec![false; numbers.count];
        let mut read = vec![false; numbers.count];
        for instruction in &program.instructions {
            let (results, operands) = program.results_and_operands(instruction);
            let load = matches!(instruction.op, Op::Load(Access { strong: false, .. }));
            for register in results.iter().filter_map(|&operand| numbers.of(operand)) {
                only_loaded[register] &= load;
            }
            for register in
                operands.iter().chain([&instruction.guard]).filter_map(|&operand| numbers.of(operand))
            {
                read[register] = true;
            }
            if matches!(instruction.op, Op::Store(_)) {
                for register in operands[1..].iter().filter_map(|&operand| numbers.of(operand)) {
                    stored[register] = true;
                }
            }
        }
        let mut copies = std::mem::take(&mut program.copies);
        let mut ids = std::collections::HashMap::new();
        for (pc, (facts, instruction)) in facts.iter_mut().zip(&program.instructions).enumerate() {
            let (results, operands) = program.results_and_operands(instruction);
            let (values, element) = match instruction.op {
                Op::Load(Access { strong: false, kind, .. }) => (results, kind.bytes()),
                Op::Store(Access { strong: false, kind, .. }) => (&operands[1..], kind.bytes()),
                _ => continue,
            };
            if matches!(instruction.op, Op::Load(_)) {
                (facts.used, facts.kept) = (0, 0);
                let whole = u32::from(u8::MAX >> (8 - element.min(8)));
                for (i, register) in values.iter().map(|&value| numbers.of(value)).enumerate() {
                    let Some(register) = register.filter(|&register| read[register]) else { continue };
                    let place = |bytes: u32| bytes.checked_shl((i * element) as u32).unwrap_or(0);
                    facts.used |= place(u32::from(self.0[register]) & whole);
                    facts.kept |= place(whole);
                }
            }
            let mut copied = Vec::new();
            for register in values.iter().map(|&value| numbers.of(value)) {
                let whole = u8::MAX >> (8 - element.min(8));
                copied.push(
                    register.filter(|&r| only_loaded[r] && stored[r] && self.0[r] & whole != whole).map(
                        |r| {
                            let next = ids.len() as u32;
                            *ids.entry(r).or_insert(next)
                        },
                    ),
                );
            }
            if copied.iter().any(Option::is_some) {
                facts.copies = true;
                copies.push((pc as u32, copied));
            }
        }
        program.copy_count = ids.len();
        program.copies = copies;
    }
}

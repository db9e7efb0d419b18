//! Analysis of a program before it runs: where diverged lanes reconverge, which registers can share a slot, and what the checks have to
//! know of memory accesses.

mod access_facts;
mod contraction;
mod demand;
mod graph;
mod order;
mod provenance;
mod registers;
mod undefined;
mod volatile_data;

pub(crate) use undefined::computes;

use std::collections::HashSet;

use crate::isa::{Access, Alu, Memory, Op, Operand, Program};

/// Completes a decoded program. `contract` says whether sums and products are contracted first.
pub(crate) fn prepare(program: &mut Program, contract: bool) {
    if contract {
        contraction::contract(program);
    }
    let graph = graph::Graph::new(program);
    program.reconvergence = graph.reconvergence(program);
    access_facts::gather(program);
    let registers = wgmma_registers(program);
    mark_wgmma_registers(program, &registers);
    registers::allocate(program, &graph, &registers);
    (program.global_granule, program.shared_granule) = granules(program);
    program.depends_on_order = order::depends_on_order(program);
}

/// Registers that `wgmma` instructions read or write.
fn wgmma_registers(program: &Program) -> HashSet<Operand> {
    let mut registers = HashSet::new();
    for instruction in &program.instructions {
        if let Op::Wgmma(wgmma) = instruction.op {
            let first = instruction.first as usize;
            let operand_a = if wgmma.a_in_registers { 4 } else { 0 };
            let end = first + instruction.results as usize + operand_a;
            registers.extend(program.operands[first..end].iter().filter(|operand| operand.is_register()));
        }
    }
    registers
}

/// Marks instructions that must not access the registers of a `wgmma` in flight. Copies are exempt, because compilers emit them and the
/// assembler removes them.
fn mark_wgmma_registers(program: &mut Program, registers: &HashSet<Operand>) {
    for instruction in &mut program.instructions {
        let copy = matches!(instruction.op, Op::Wgmma(_) | Op::Alu(Alu::Move32));
        let first = instruction.first as usize;
        let end = first + instruction.results as usize + instruction.operands as usize;
        instruction.uses_wgmma_registers =
            !copy && program.operands[first..end].iter().any(|operand| registers.contains(operand));
        instruction.watched |= instruction.uses_wgmma_registers;
    }
}

/// The sizes of the smallest accesses to global and to shared memory. Races are looked for in granules of that size, so that
/// neighbours in a word are distinguished.
fn granules(program: &Program) -> (usize, usize) {
    let (mut global, mut shared) = (16, 16);
    let mut see = |memory: Memory, bytes: usize| {
        if matches!(memory, Memory::Generic | Memory::Global) {
            global = global.min(bytes);
        }
        if matches!(memory, Memory::Generic | Memory::Shared | Memory::SharedCluster) {
            shared = shared.min(bytes);
        }
    };
    for instruction in &program.instructions {
        match instruction.op {
            Op::Load(Access { memory, kind, lanes, .. }) | Op::Store(Access { memory, kind, lanes, .. }) => {
                see(memory, kind.bytes() * lanes as usize);
            }
            Op::LoadFragment(access) | Op::StoreFragment(access) => see(access.memory, access.bytes as usize),
            Op::LoadSurface(access) | Op::StoreSurface(access) => {
                see(Memory::Global, access.bytes as usize * access.lanes as usize);
            }
            Op::Atomic { memory, kind, .. } => see(memory, kind.bytes()),
            Op::AsyncCopy { bytes, .. } => see(Memory::Generic, bytes as usize),
            // A tensor's elements may be as small as 2 bytes.
            Op::TensorCopy(copy) if copy.direction != crate::isa::BulkDirection::GlobalToShared => {
                see(Memory::Global, 2);
            }
            _ => {}
        }
    }
    (global, shared)
}

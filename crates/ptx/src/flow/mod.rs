//! What is known of a program before it runs: where lanes that went different ways meet again, and which registers can
//! share a place.

mod graph;
mod registers;

use std::collections::HashSet;

use crate::isa::{Access, Alu, Memory, Op, Operand, Program};

/// Completes a decoded program.
pub(crate) fn prepare(program: &mut Program) {
    let graph = graph::Graph::new(program);
    program.reconvergence = graph.reconvergence(program);
    let products = product_registers(program);
    mark_touches(program, &products);
    registers::allocate(program, &graph, &products);
    (program.global_granule, program.shared_granule) = granules(program);
}

/// Registers that warpgroups' products write, or read as operands.
fn product_registers(program: &Program) -> HashSet<Operand> {
    let mut products = HashSet::new();
    for instruction in &program.instructions {
        if let Op::Wgmma(wgmma) = instruction.op {
            let first = instruction.first as usize;
            let fragments = if wgmma.a_in_registers { 4 } else { 0 };
            let end = first + instruction.results as usize + fragments;
            products.extend(program.operands[first..end].iter().filter(|operand| operand.is_register()));
        }
    }
    products
}

/// Marks instructions that must not run while a product is under way. Copies are let through: compilers place them as they
/// like, and the assembler takes them out.
fn mark_touches(program: &mut Program, products: &HashSet<Operand>) {
    for instruction in &mut program.instructions {
        let copy = matches!(instruction.op, Op::Wgmma(_) | Op::Alu(Alu::Move32));
        let first = instruction.first as usize;
        let end = first + instruction.results as usize + instruction.operands as usize;
        instruction.uses_wgmma_registers =
            !copy && program.operands[first..end].iter().any(|operand| products.contains(operand));
    }
}

/// The smallest accesses to global and to shared memory: races are looked for in pieces of that size, so that neighbours in a
/// word are not taken for one another.
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
            Op::Atomic { memory, kind, .. } => see(memory, kind.bytes()),
            Op::AsyncCopy { bytes, .. } => see(Memory::Generic, bytes as usize),
            // Elements of a tensor may be as small as 2 bytes.
            Op::TensorCopy(copy) if copy.direction != crate::isa::BulkDirection::GlobalToShared => {
                see(Memory::Global, 2);
            }
            _ => {}
        }
    }
    (global, shared)
}

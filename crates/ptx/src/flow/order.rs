//! Whether what a kernel computes may depend on the order in which its blocks run.

use crate::isa::{Access, Atomic, BulkDirection, Memory, Op, Program, Scope, TensorCopy, Type};

/// Whether blocks may learn from each other while they run, or combine numbers in an order that matters. If not, blocks can run in any
/// order, and at the same time, with the same results; unless they race.
pub(super) fn depends_on_order(program: &Program) -> bool {
    program.instructions.iter().any(|instruction| match instruction.op {
        Op::Load(Access { memory, strong, .. }) | Op::Store(Access { memory, strong, .. }) => {
            strong && reaches_global(memory)
        }
        Op::Atomic { memory, op, kind, semantics, .. } => {
            let result = instruction.results > 0 && !program.operands[instruction.first as usize].is_none();
            reaches_global(memory) && (result || !commutes(op, kind) || semantics.scope != Scope::Device)
        }
        Op::BulkCopy { direction, .. } | Op::TensorCopy(TensorCopy { direction, .. }) => match direction {
            BulkDirection::ReduceToGlobal(op, kind) => !commutes(op, kind),
            _ => false,
        },
        _ => false,
    })
}

fn reaches_global(memory: Memory) -> bool {
    matches!(memory, Memory::Generic | Memory::Global)
}

/// Whether several of these atomics leave the same bits in whatever order.
fn commutes(op: Atomic, kind: Type) -> bool {
    let float = matches!(kind, Type::F32 | Type::F64 | Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2);
    match op {
        Atomic::Add => !float,
        Atomic::Min | Atomic::Max | Atomic::And | Atomic::Or | Atomic::Xor => true,
        Atomic::Exchange | Atomic::CompareAndSwap | Atomic::Increment | Atomic::Decrement => false,
    }
}

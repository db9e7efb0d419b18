//! The line of the earlier one of two accesses that race, if only one line can have made it.
//!
//! The records of accesses say who made one and when, not with which instruction. Few kernels write an array at more than one line.

use std::collections::BTreeSet;

use super::{Kernel, Module};
use crate::{
    check::SourceLine,
    isa::{Memory, Op},
    memory::GLOBAL_START,
};

impl Module {
    /// The only line of a kernel that reads, or writes, the state space of an address; none if there are several.
    pub(super) fn only_line(
        &self,
        kernel: &Kernel,
        address: u64,
        writes: bool,
    ) -> Option<(Option<SourceLine>, u32)> {
        let global = address >= GLOBAL_START;
        let fits = |memory: Memory| match memory {
            Memory::Generic => true,
            Memory::Global => global,
            Memory::Shared | Memory::SharedCluster => !global,
            Memory::Constant | Memory::Local | Memory::Parameter => false,
        };
        let may = |op: &Op| match *op {
            Op::Load(access) => !writes && fits(access.memory),
            Op::Store(access) => writes && fits(access.memory),
            Op::Atomic { memory, .. } => writes && fits(memory),
            Op::LoadMatrix { .. } => !writes && !global,
            Op::StoreMatrix { .. } => writes && !global,
            Op::AsyncCopy { .. } => writes != global,
            // They may do either.
            Op::BulkCopy { .. } | Op::TensorCopy(_) | Op::Wgmma(_) | Op::Mbarrier { .. } => true,
            _ => false,
        };
        let instructions = kernel.program.instructions.iter().enumerate();
        let places: BTreeSet<(Option<SourceLine>, u32)> =
            instructions.filter(|(_, it)| may(&it.op)).map(|(pc, _)| self.line_of(kernel, pc)).collect();
        let (first, ptx_line) = places.first()?.clone();
        let one = match &first {
            // A line may become several instructions.
            Some(_) => places.iter().all(|(source, _)| *source == first),
            None => places.len() == 1,
        };
        one.then_some((first, ptx_line))
    }
}

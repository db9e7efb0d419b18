//! What compute-sanitizer calls the same mistakes, so that a search for its words finds them.

use super::FindingKind;
use crate::{
    isa::{Memory, Op},
    memory::{GLOBAL_START, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES},
};

/// What an instruction does to memory: the state space, a word for it, and how many bytes a lane accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryOperation {
    space: &'static str,
    verb: &'static str,
    bytes: usize,
}

fn operation(op: &Op, address: u64) -> Option<MemoryOperation> {
    let (memory, verb, bytes) = match *op {
        Op::Load(access) => (access.memory, "read", access.kind.bytes() * access.lanes as usize),
        Op::Store(access) => (access.memory, "write", access.kind.bytes() * access.lanes as usize),
        Op::Atomic { memory, kind, .. } => (memory, "atomic", kind.bytes()),
        Op::LoadMatrix { .. } => (Memory::Shared, "read", 16),
        Op::StoreMatrix { .. } => (Memory::Shared, "write", 16),
        // It reads one and writes the other.
        Op::AsyncCopy { bytes, .. } if address >= GLOBAL_START => (Memory::Global, "read", bytes as usize),
        Op::AsyncCopy { bytes, .. } => (Memory::Shared, "write", bytes as usize),
        _ => return None,
    };
    let within = |window: u64| address.wrapping_sub(window) < WINDOW_BYTES;
    let space = match memory {
        Memory::Shared | Memory::SharedCluster => "__shared__",
        Memory::Local => "__local__",
        Memory::Constant => "__constant__",
        Memory::Parameter => "__param__",
        // Generic addresses are resolved before they are reported; those of shared memory are small.
        Memory::Generic if within(SHARED_WINDOW) || address < WINDOW_BYTES && address >> 24 != 0 => {
            "__shared__"
        }
        Memory::Generic if within(LOCAL_WINDOW) => "__local__",
        Memory::Global | Memory::Generic => "__global__",
    };
    Some(MemoryOperation { space, verb, bytes })
}

/// The words of compute-sanitizer for a finding. `earlier_wrote`: of a race, whether the earlier access was a write.
pub(super) fn words(
    kind: FindingKind,
    op: &Op,
    address: Option<u64>,
    earlier_wrote: Option<bool>,
) -> Option<String> {
    let operation = operation(op, address.unwrap_or(0));
    let invalid = |why: &str| {
        let MemoryOperation { space, verb, bytes } = operation?;
        Some(format!("Invalid {space} {verb} of size {bytes} bytes{why}"))
    };
    match kind {
        FindingKind::OutOfBounds => invalid(", address is out of bounds"),
        FindingKind::Misaligned => invalid(", address is misaligned"),
        FindingKind::UseAfterFree => invalid(", address is in freed memory"),
        FindingKind::Uninitialised => {
            let MemoryOperation { space, bytes, .. } = operation?;
            Some(format!("Uninitialized {space} memory read of size {bytes} bytes"))
        }
        FindingKind::Race => {
            let MemoryOperation { space, verb, .. } = operation?;
            let hazard = match (earlier_wrote?, verb) {
                (true, "read") => "RAW",
                (true, _) => "WAW",
                (false, _) => "WAR",
            };
            Some(format!("Potential {hazard} hazard detected at {space} {:#x}", address?))
        }
        FindingKind::DivergentBarrier => {
            Some("Barrier error detected. Divergent thread(s) in block".to_owned())
        }
        FindingKind::WarpSyncMismatch => {
            Some("Barrier error detected. Divergent thread(s) in warp".to_owned())
        }
        FindingKind::BarrierMismatch => Some("Barrier error detected. Invalid arguments".to_owned()),
        _ => None,
    }
}

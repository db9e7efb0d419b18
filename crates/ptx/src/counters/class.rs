//! Instructions by the functional unit that executes them.

use crate::isa::{Alu, Float, Int, Memory, Op};

/// Kinds of instructions, by the unit that executes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[repr(u8)]
pub enum InstructionClass {
    /// Integer arithmetic, logic, moves, comparisons.
    Integer,
    /// 32-bit floating point.
    Float,
    /// 16-bit floating point.
    Half,
    /// 64-bit floating point.
    Double,
    /// Exponentials, roots, division, that of integers too.
    Special,
    /// Conversions.
    Convert,
    /// Branches, barriers, fences.
    Control,
    /// Shuffles and votes.
    Warp,
    /// Loads and stores of global memory.
    Global,
    /// Loads and stores of shared memory.
    Shared,
    /// Loads and stores of local memory.
    Local,
    /// Loads of arguments and of constant memory.
    Constant,
    /// Atomics.
    Atomic,
    /// Asynchronous copies (`cp.async`, TMA) and mbarriers.
    Asynchronous,
    /// Matrix instructions (`mma`, `wmma`, `wgmma`).
    Matrix,
    /// Reads of textures, and accesses to surfaces.
    Texture,
}

/// How many classes there are.
pub(super) const CLASSES: usize = InstructionClass::Texture as usize + 1;

impl InstructionClass {
    /// All classes.
    pub const ALL: [InstructionClass; CLASSES] = {
        use InstructionClass as C;
        [
            C::Integer,
            C::Float,
            C::Half,
            C::Double,
            C::Special,
            C::Convert,
            C::Control,
            C::Warp,
            C::Global,
            C::Shared,
            C::Local,
            C::Constant,
            C::Atomic,
            C::Asynchronous,
            C::Matrix,
            C::Texture,
        ]
    };

    /// Its key in JSON.
    pub fn name(self) -> &'static str {
        use InstructionClass as C;
        match self {
            C::Integer => "integer",
            C::Float => "float",
            C::Half => "half",
            C::Double => "double",
            C::Special => "special",
            C::Convert => "convert",
            C::Control => "control",
            C::Warp => "warp",
            C::Global => "global",
            C::Shared => "shared",
            C::Local => "local",
            C::Constant => "constant",
            C::Atomic => "atomic",
            C::Asynchronous => "asynchronous",
            C::Matrix => "matrix",
            C::Texture => "texture",
        }
    }

    pub(crate) fn of(op: &Op) -> InstructionClass {
        use InstructionClass as C;
        match op {
            Op::Alu(alu) => match alu {
                Alu::Convert(_) => C::Convert,
                Alu::F32(op, _) | Alu::F64(op, _) | Alu::Half { op, .. } if special(*op) => C::Special,
                Alu::I16(op) | Alu::I32(op) | Alu::I64(op) if division(*op) => C::Special,
                Alu::F32(..) => C::Float,
                Alu::F64(..) => C::Double,
                Alu::Half { .. } => C::Half,
                _ => C::Integer,
            },
            Op::Load(access) | Op::Store(access) => match access.memory {
                Memory::Shared | Memory::SharedCluster => C::Shared,
                Memory::Local => C::Local,
                Memory::Constant | Memory::Parameter => C::Constant,
                _ => C::Global,
            },
            Op::LoadMatrix { .. } | Op::StoreMatrix { .. } => C::Shared,
            Op::LoadFragment(access) | Op::StoreFragment(access) => match access.memory {
                Memory::Shared | Memory::SharedCluster => C::Shared,
                _ => C::Global,
            },
            Op::Texture(_) | Op::TextureQuery { .. } | Op::LoadSurface(_) | Op::StoreSurface(_) => C::Texture,
            Op::Atomic { .. } => C::Atomic,
            Op::Shuffle(_)
            | Op::TransposeMatrix
            | Op::Vote(_)
            | Op::MatchAny { .. }
            | Op::MatchAll { .. }
            | Op::ActiveMask
            | Op::Elect
            | Op::ReduceWarp { .. } => C::Warp,
            Op::Branch { .. }
            | Op::BranchIndexed { .. }
            | Op::Exit
            | Op::Trap
            | Op::Call { .. }
            | Op::Return
            | Op::System(_)
            | Op::Unsupported(_)
            | Op::Barrier { .. }
            | Op::WarpBarrier
            | Op::ClusterArrive { .. }
            | Op::ClusterWait
            | Op::Fence(_)
            | Op::SetRegisters { .. }
            | Op::Nothing => C::Control,
            Op::Mbarrier { .. }
            | Op::AsyncCopy { .. }
            | Op::AsyncCommit
            | Op::AsyncWait { .. }
            | Op::AsyncArrive { .. }
            | Op::BulkCopy { .. }
            | Op::TensorCopy(_)
            | Op::BulkCommit
            | Op::BulkWait { .. }
            | Op::Prefetch => C::Asynchronous,
            Op::Mma(_)
            | Op::ExactMma(_)
            | Op::Wgmma(_)
            | Op::WgmmaFence
            | Op::WgmmaCommit
            | Op::WgmmaWait { .. } => C::Matrix,
            _ => C::Integer,
        }
    }
}

fn special(op: Float) -> bool {
    matches!(
        op,
        Float::Div
            | Float::Reciprocal
            | Float::SquareRoot
            | Float::ReciprocalSquareRoot
            | Float::Exp2
            | Float::Log2
            | Float::Sin
            | Float::Cos
            | Float::Tanh
    )
}

fn division(op: Int) -> bool {
    matches!(op, Int::DivS | Int::DivU | Int::RemS | Int::RemU)
}

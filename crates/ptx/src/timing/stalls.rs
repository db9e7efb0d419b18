//! Where warps wait, and for what.
//!
//! A warp's time is divided among its instructions: each has the clocks between the start of the latest instruction before it and its
//! own. An instruction that starts while an earlier one still waits has none, because its latency is hidden. The clocks of all
//! instructions add up to the time that warps take.

use super::warp::WarpClock;
use crate::isa::{Alu, Float, Instruction, Memory, Op, Operand, Program};

/// Why a warp does not issue its next instruction; the words are those of Nsight Compute's warp states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum StallReason {
    /// It issues: "Selected".
    Selected,
    /// A result of global, local or constant memory is not there yet: "Stall Long Scoreboard".
    LongScoreboard,
    /// A result of shared memory, a shuffle or a special function is not there yet: "Stall Short Scoreboard".
    ShortScoreboard,
    /// A result of arithmetic is not there yet: "Stall Wait".
    Wait,
    /// A result of a matrix instruction is not there yet: "Stall GMMA" for `wgmma`.
    Matrix,
    /// The other warps have not arrived: "Stall Barrier".
    Barrier,
    /// An asynchronous copy (`cp.async`, TMA) has not landed, or an mbarrier's phase is not complete.
    AsynchronousCopy,
    /// The unit that executes it is busy: "Stall Math Pipe Throttle".
    PipeThrottle,
    /// Too many memory operations wait for the L1 cache or L2 already: "Stall LG Throttle".
    MemoryThrottle,
    /// Its scheduler issues for another warp: "Stall Not Selected".
    NotSelected,
}

const REASONS: usize = StallReason::NotSelected as usize + 1;

impl StallReason {
    /// All reasons.
    pub const ALL: [StallReason; REASONS] = {
        use StallReason as R;
        [
            R::Selected,
            R::LongScoreboard,
            R::ShortScoreboard,
            R::Wait,
            R::Matrix,
            R::Barrier,
            R::AsynchronousCopy,
            R::PipeThrottle,
            R::MemoryThrottle,
            R::NotSelected,
        ]
    };

    /// Its key in JSON.
    pub fn name(self) -> &'static str {
        use StallReason as R;
        match self {
            R::Selected => "selected",
            R::LongScoreboard => "long_scoreboard",
            R::ShortScoreboard => "short_scoreboard",
            R::Wait => "wait",
            R::Matrix => "matrix",
            R::Barrier => "barrier",
            R::AsynchronousCopy => "asynchronous_copy",
            R::PipeThrottle => "pipe_throttle",
            R::MemoryThrottle => "memory_throttle",
            R::NotSelected => "not_selected",
        }
    }

    /// What it means, in words.
    pub fn describe(self) -> &'static str {
        use StallReason as R;
        match self {
            R::Selected => "issuing",
            R::LongScoreboard => "waiting for global or local memory (Stall Long Scoreboard)",
            R::ShortScoreboard => {
                "waiting for shared memory, a shuffle or a special function (Stall Short Scoreboard)"
            }
            R::Wait => "waiting for arithmetic (Stall Wait)",
            R::Matrix => "waiting for a matrix product (Stall GMMA)",
            R::Barrier => "waiting at a barrier (Stall Barrier)",
            R::AsynchronousCopy => "waiting for an asynchronous copy",
            R::PipeThrottle => "waiting for a busy unit (Stall Math Pipe Throttle)",
            R::MemoryThrottle => "waiting for a full memory queue (Stall LG Throttle)",
            R::NotSelected => "waiting for the scheduler (Stall Not Selected)",
        }
    }

    /// What an instruction waits for that needs this one's result, or that waits for its effect itself.
    fn of(instruction: &Instruction) -> StallReason {
        use StallReason as R;
        let of_memory = |memory: Memory| match memory {
            Memory::Shared | Memory::SharedCluster => R::ShortScoreboard,
            _ => R::LongScoreboard,
        };
        match instruction.op {
            Op::Load(access) | Op::Store(access) => of_memory(access.memory),
            Op::Atomic { memory, .. } => of_memory(memory),
            Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. }
            | Op::Shuffle(_)
            | Op::MatchAny { .. }
            | Op::MatchAll { .. }
            | Op::ReduceWarp { .. } => R::ShortScoreboard,
            Op::Alu(Alu::F32(op, _) | Alu::F64(op, _) | Alu::Half { op, .. }) if is_special(op) => {
                R::ShortScoreboard
            }
            Op::Mma(_) | Op::Wgmma(_) | Op::WgmmaFence | Op::WgmmaCommit | Op::WgmmaWait { .. } => R::Matrix,
            Op::Barrier { .. } | Op::ClusterArrive { .. } | Op::ClusterWait | Op::WarpBarrier => R::Barrier,
            Op::AsyncCopy { .. }
            | Op::AsyncCommit
            | Op::AsyncWait { .. }
            | Op::AsyncArrive { .. }
            | Op::BulkCopy { .. }
            | Op::TensorCopy(_)
            | Op::BulkCommit
            | Op::BulkWait { .. }
            | Op::Mbarrier { .. } => R::AsynchronousCopy,
            _ => R::Wait,
        }
    }
}

/// Whether the special-function units compute it.
fn is_special(op: Float) -> bool {
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

fn by_reason<S: serde::Serializer>(clocks: &[f64; REASONS], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(StallReason::ALL.iter().map(|reason| (reason.name(), clocks[*reason as usize])))
}

/// How long warps are at a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Stalls {
    /// Clocks of an average warp by [`StallReason`]. The sum over all lines is how long a warp runs.
    #[serde(serialize_with = "by_reason")]
    pub clocks: [f64; REASONS],
    /// Clocks of an average warp that other instructions, of whatever line, wait for the results of this one: the part of its
    /// latency that nothing hides.
    pub exposed: f64,
}

impl Stalls {
    /// Clocks for one reason.
    pub fn reason(&self, reason: StallReason) -> f64 {
        self.clocks[reason as usize]
    }

    /// Clocks for all reasons, issuing included.
    pub fn total(&self) -> f64 {
        self.clocks.iter().sum()
    }

    pub(crate) fn add(&mut self, other: &Stalls) {
        self.clocks.iter_mut().zip(other.clocks).for_each(|(mine, theirs)| *mine += theirs);
        self.exposed += other.exposed;
    }

    pub(crate) fn scaled(&self, factor: f64) -> Stalls {
        Stalls { clocks: self.clocks.map(|clocks| clocks * factor), exposed: self.exposed * factor }
    }
}

/// When an instruction could have started, step by step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub pc: u32,
    /// When its operands were ready, and the instruction that made the last of them.
    pub operands: (f64, Option<u32>),
    /// When the queue of its memory operations had room.
    pub queued: f64,
    /// When its scheduler issued it.
    pub issued: f64,
    /// When its unit started.
    pub at: f64,
    /// Instructions of the chip that it is.
    pub slots: f64,
}

/// The stalls of all instructions.
#[derive(Clone, Debug)]
pub(crate) struct StallsByInstruction {
    pub all: Vec<Stalls>,
    reasons: Vec<StallReason>,
}

impl StallsByInstruction {
    pub fn new(program: &Program) -> StallsByInstruction {
        StallsByInstruction {
            all: vec![Stalls::default(); program.instructions.len()],
            reasons: program.instructions.iter().map(StallReason::of).collect(),
        }
    }

    pub fn add(&mut self, other: &StallsByInstruction) {
        self.all.iter_mut().zip(&other.all).for_each(|(mine, theirs)| mine.add(theirs));
    }

    /// Divides the time of a warp up to an instruction's start.
    pub(super) fn start(&mut self, warp: &mut WarpClock, start: &Start) {
        let base = warp.base();
        let Some(trace) = &mut warp.trace else { return };
        let mut until = |moment: f64, pc: u32, reason: StallReason| {
            let clocks = (moment - trace.accounted).max(0.0);
            trace.accounted += clocks;
            self.all[pc as usize].clocks[reason as usize] += clocks;
            clocks
        };
        // Barriers and the like hold the whole warp; the instruction that did is the latest one.
        until(base, trace.current, self.reasons[trace.current as usize]);
        let pc = start.pc;
        // The scheduler is busy with what the warp itself issued.
        until(start.at.min(trace.issuing), pc, StallReason::Selected);
        let (operands, producer) = start.operands;
        let reason = producer.map_or(StallReason::Wait, |producer| self.reasons[producer as usize]);
        let exposed = until(operands.min(start.at), pc, reason);
        until(start.queued.min(start.at), pc, StallReason::MemoryThrottle);
        until(start.issued.min(start.at), pc, StallReason::NotSelected);
        until(start.at, pc, StallReason::PipeThrottle);
        trace.issuing = start.at + start.slots;
        trace.current = pc;
        if let Some(producer) = producer {
            self.all[producer as usize].exposed += exposed;
        }
    }
}

/// What a warp's clock remembers to divide its time.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    /// Time up to here is divided.
    accounted: f64,
    /// Until when its scheduler is busy with its latest instruction.
    issuing: f64,
    /// The latest instruction.
    pub current: u32,
    /// The instruction that made each register's value.
    words: Vec<u32>,
    longs: Vec<u32>,
    predicates: Vec<u32>,
}

/// No instruction made a value.
const NONE: u32 = u32::MAX;

impl Trace {
    pub fn new(program: &Program, start: f64) -> Trace {
        Trace {
            accounted: start,
            issuing: start,
            current: 0,
            words: vec![NONE; program.word_count],
            longs: vec![NONE; program.long_count],
            predicates: vec![NONE; program.predicate_count],
        }
    }

    fn of(&mut self, operand: Operand) -> &mut [u32] {
        match operand.class() {
            crate::isa::Class::Word => &mut self.words,
            crate::isa::Class::Long => &mut self.longs,
            crate::isa::Class::Predicate => &mut self.predicates,
        }
    }

    /// The instruction that made a register's value.
    pub fn producer(&mut self, operand: Operand) -> Option<u32> {
        let found = self.of(operand).get(operand.index()).copied();
        found.filter(|&producer| producer != NONE)
    }

    pub fn set_producer(&mut self, operand: Operand, producer: Option<u32>) {
        if let Some(place) = self.of(operand).get_mut(operand.index()) {
            *place = producer.unwrap_or(NONE);
        }
    }
}

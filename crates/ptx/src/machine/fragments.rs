//! Where the lanes of a warp are.
//!
//! Lanes that are at the same place form a fragment. A branch that parts them makes two, which join where all paths from
//! the branch meet. Fragments are independent: one that waits for lanes of its own warp lets the others run, as the
//! hardware has done since Volta. Where lanes wait for others that stand at a join, the join lets them go.

use crate::isa::{Op, Program};

/// No join, no place.
pub(super) const NONE: u32 = u32::MAX;

/// What a fragment waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    /// The other lanes of a mask, at an instruction that they run together. Which of its own lanes run it.
    Lanes {
        mask: u32,
        active: u32,
    },
    /// A barrier of the block.
    Barrier(u32),
    /// A phase of an mbarrier of a block of the cluster.
    Mbarrier {
        block: usize,
        offset: u32,
        phase: Phase,
    },
    /// The barrier of the cluster.
    Cluster {
        phase: u64,
    },
}

/// The phase of an mbarrier whose end is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Parity(bool),
    Number(u64),
}

/// Lanes at one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub pc: u32,
    pub mask: u32,
    pub join: u32,
    pub wait: Wait,
}

#[derive(Clone, Copy, Debug)]
struct Join {
    pc: u32,
    /// Lanes that will come, and those that have.
    expected: u32,
    arrived: u32,
    /// The join outside this one.
    parent: u32,
}

/// The fragments of a warp.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    pub(super) all: Vec<Fragment>,
    joins: Vec<Join>,
    free: Vec<u32>,
    /// Lanes that have not ended.
    pub live: u32,
}

impl Fragments {
    pub fn start(&mut self, lanes: u32) {
        self.all.clear();
        self.joins.clear();
        self.free.clear();
        self.live = lanes;
        if lanes != 0 {
            self.all.push(Fragment { pc: 0, mask: lanes, join: NONE, wait: Wait::Nothing });
        }
    }

    /// Where the lanes of a fragment join others.
    #[inline(always)]
    pub(super) fn stop(&self, fragment: usize) -> u32 {
        match self.all[fragment].join {
            NONE => NONE,
            join => self.joins[join as usize].pc,
        }
    }

    /// Parts a fragment: lanes by where they go, two places at least. They meet at `meet`. The fragment goes on with the
    /// first part that is not there yet.
    pub(super) fn part(&mut self, fragment: usize, parts: &[(u32, u32)], meet: u32) {
        let Fragment { mask, join: outer, .. } = self.all[fragment];
        let join = if meet == NONE || outer != NONE && self.joins[outer as usize].pc == meet {
            outer
        } else {
            self.new_join(Join { pc: meet, expected: mask, arrived: 0, parent: outer })
        };
        let mut kept = false;
        for &(mask, pc) in parts {
            let part = Fragment { pc, mask, join, wait: Wait::Nothing };
            if join != NONE && self.joins[join as usize].pc == pc {
                self.joins[join as usize].arrived |= mask;
            } else if kept {
                self.all.push(part);
            } else {
                self.all[fragment] = part;
                kept = true;
            }
        }
    }

    fn new_join(&mut self, join: Join) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.joins[place as usize] = join;
                place
            }
            None => {
                self.joins.push(join);
                self.joins.len() as u32 - 1
            }
        }
    }

    /// A fragment has come to its join. It goes on with all lanes if it is the last; otherwise it is gone, and false is given.
    pub(super) fn arrive(&mut self, fragment: usize) -> bool {
        let Fragment { mask, join, .. } = self.all[fragment];
        let at = &mut self.joins[join as usize];
        at.arrived |= mask;
        if at.arrived != at.expected {
            self.all.swap_remove(fragment);
            return false;
        }
        let Join { pc, expected, parent, .. } = *at;
        self.all[fragment] = Fragment { pc, mask: expected, join: parent, wait: Wait::Nothing };
        self.free.push(join);
        true
    }

    /// Lanes of a fragment end. Gives whether any of it is left.
    pub(super) fn exit(&mut self, fragment: usize, lanes: u32) -> bool {
        self.live &= !lanes;
        let mut join = self.all[fragment].join;
        self.all[fragment].mask &= !lanes;
        let left = self.all[fragment].mask != 0;
        while join != NONE {
            let at = &mut self.joins[join as usize];
            at.expected &= !lanes;
            let Join { pc, expected, arrived, parent } = *at;
            if expected == 0 {
                self.free.push(join);
            } else if arrived == expected {
                self.all.push(Fragment { pc, mask: expected, join: parent, wait: Wait::Nothing });
                self.free.push(join);
            }
            join = parent;
        }
        if !left {
            self.all.swap_remove(fragment);
        }
        left
    }

    /// Lanes of a fragment wait, and the others of it, which did not run the instruction, go on at `pc` without them.
    pub(super) fn keep(&mut self, lanes: u32, pc: u32) {
        let Some(fragment) = self.all.iter_mut().find(|fragment| fragment.mask & lanes != 0) else { return };
        let rest = Fragment { pc, mask: fragment.mask & !lanes, wait: Wait::Nothing, ..*fragment };
        if rest.mask != 0 {
            fragment.mask = lanes;
            self.all.push(rest);
        }
    }

    /// Whether all lanes that stand at joins have nothing left to do there but to end.
    pub(super) fn joins_end(&self, program: &Program) -> bool {
        let ends = |mut pc: u32| loop {
            let instruction = &program.instructions[pc as usize];
            match instruction.op {
                Op::Exit if instruction.guard.is_none() => return true,
                // Backwards it could go round for ever.
                Op::Branch { target } if instruction.guard.is_none() && target > pc => pc = target,
                _ => return false,
            }
        };
        let standing =
            self.joins.iter().zip(0..).filter(|(join, i)| join.arrived != 0 && !self.free.contains(i));
        standing.into_iter().all(|(join, _)| ends(join.pc))
    }

    /// Lets lanes go that stand at a join while others wait for them. Gives whether there were any.
    pub(super) fn break_joins(&mut self) -> bool {
        let mut any = false;
        for place in 0..self.joins.len() {
            let Join { pc, arrived, parent, .. } = self.joins[place];
            if arrived != 0 && !self.free.contains(&(place as u32)) {
                self.joins[place].arrived = 0;
                self.joins[place].expected &= !arrived;
                self.all.push(Fragment { pc, mask: arrived, join: parent, wait: Wait::Nothing });
                any = true;
            }
        }
        any
    }
}

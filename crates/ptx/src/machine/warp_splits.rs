//! Divergence and reconvergence of the lanes of a warp.
//!
//! Lanes with the same program counter form a warp split. A divergent branch makes several, which reconverge at the branch's
//! immediate post-dominator. Splits are independent, as in hardware since Volta: one that waits for lanes of its own warp lets the
//! others run. If lanes wait for others that have already arrived at a reconvergence point, these are released from it.

use crate::isa::{Op, Program};

/// No reconvergence point.
pub(super) const NONE: u32 = u32::MAX;

/// What a split waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    /// The other lanes of a member mask, at a warp-synchronous instruction; `active` are the split's own lanes that execute it.
    Lanes {
        mask: u32,
        active: u32,
    },
    /// A block barrier.
    Barrier(u32),
    /// A phase of an mbarrier in a block of the cluster.
    Mbarrier {
        block: usize,
        offset: u32,
        phase: Phase,
    },
    /// The cluster barrier.
    Cluster {
        phase: u64,
    },
}

/// The phase of an mbarrier that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Parity(bool),
    Number(u64),
}

/// Lanes with one program counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarpSplit {
    pub pc: u32,
    pub mask: u32,
    /// Where they reconverge with others: an index into the warp's reconvergence points, or [`NONE`].
    pub point: u32,
    pub wait: Wait,
}

/// A point where diverged lanes reconverge.
#[derive(Clone, Copy, Debug)]
struct ReconvergencePoint {
    /// Where they go on.
    pc: u32,
    /// The program counter at which they arrive; [`NONE`] at the end of a call, where they arrive by returning.
    stop: u32,
    /// The lanes that will arrive, and those that have.
    expected: u32,
    arrived: u32,
    /// The enclosing point.
    parent: u32,
}

/// The splits of a warp.
#[derive(Debug, Default)]
pub(crate) struct WarpSplits {
    pub(super) all: Vec<WarpSplit>,
    points: Vec<ReconvergencePoint>,
    free: Vec<u32>,
    /// Lanes that the warp started with, and those that have not exited.
    pub started: u32,
    pub live: u32,
}

impl WarpSplits {
    pub fn start(&mut self, lanes: u32) {
        self.all.clear();
        self.points.clear();
        self.free.clear();
        (self.started, self.live) = (lanes, lanes);
        if lanes != 0 {
            self.all.push(WarpSplit { pc: 0, mask: lanes, point: NONE, wait: Wait::Nothing });
        }
    }

    /// The program counter at which a split reconverges with others.
    #[inline(always)]
    pub(super) fn reconvergence_pc(&self, split: usize) -> u32 {
        match self.all[split].point {
            NONE => NONE,
            point => self.points[point as usize].stop,
        }
    }

    /// The reconvergence point of the innermost call that a split is in.
    pub(super) fn call_point(&self, split: usize) -> Option<u32> {
        let mut point = self.all[split].point;
        while point != NONE && self.points[point as usize].stop != NONE {
            point = self.points[point as usize].parent;
        }
        (point != NONE).then_some(point)
    }

    /// Lanes of a split call functions, which return to `pc`. `paths` are the lanes and first instructions of each function. Returns
    /// the point at which each path's lanes come together again.
    pub(super) fn call(&mut self, split: usize, paths: &[(u32, u32)], pc: u32) -> Vec<u32> {
        let WarpSplit { mask, point: outer, .. } = self.all[split];
        let calling = paths.iter().fold(0, |all, path| all | path.0);
        let parent = if paths.len() == 1 && calling == mask || self.reconvergence_pc(split) == pc {
            outer
        } else {
            self.new_point(ReconvergencePoint { pc, stop: pc, expected: mask, arrived: 0, parent: outer })
        };
        // The others are there already.
        if calling != mask && parent != NONE {
            self.points[parent as usize].arrived |= mask & !calling;
        }
        let mut points = Vec::with_capacity(paths.len());
        for (i, &(mask, entry)) in paths.iter().enumerate() {
            let point =
                self.new_point(ReconvergencePoint { pc, stop: NONE, expected: mask, arrived: 0, parent });
            let path = WarpSplit { pc: entry, mask, point, wait: Wait::Nothing };
            if i == 0 {
                self.all[split] = path;
            } else {
                self.all.push(path);
            }
            points.push(point);
        }
        points
    }

    /// Lanes of a split return from the innermost call that they are in. The last ones go on behind the call with all of its lanes.
    /// Returns whether a split is left in this place.
    pub(super) fn finish_call(&mut self, split: usize, lanes: u32) -> bool {
        let mut point = self.all[split].point;
        self.all[split].mask &= !lanes;
        let left = self.all[split].mask != 0;
        // They no longer arrive at reconvergence points within the call.
        while point != NONE && self.points[point as usize].stop != NONE {
            point = self.leave(point, lanes);
        }
        if point == NONE {
            return left;
        }
        let at = &mut self.points[point as usize];
        at.arrived |= lanes;
        let ReconvergencePoint { pc, expected, arrived, parent, .. } = *at;
        if arrived == expected {
            self.free.push(point);
            self.all[split] = WarpSplit { pc, mask: expected, point: parent, wait: Wait::Nothing };
            return true;
        }
        if !left {
            self.all.swap_remove(split);
        }
        left
    }

    /// Lanes will not arrive at a point. If all others have, they go on. Returns the enclosing point.
    fn leave(&mut self, point: u32, lanes: u32) -> u32 {
        let at = &mut self.points[point as usize];
        at.expected &= !lanes;
        let ReconvergencePoint { pc, expected, arrived, parent, .. } = *at;
        if expected == 0 {
            self.free.push(point);
        } else if arrived == expected {
            self.all.push(WarpSplit { pc, mask: expected, point: parent, wait: Wait::Nothing });
            self.free.push(point);
        }
        parent
    }

    /// Divides a split at a branch. `paths` are the lanes and program counters of at least two paths, which reconverge at
    /// `reconvergence`. The split goes on with the first path that is not there yet.
    pub(super) fn diverge(&mut self, split: usize, paths: &[(u32, u32)], reconvergence: u32) {
        let WarpSplit { mask, point: outer, .. } = self.all[split];
        let is_outer = outer != NONE && self.points[outer as usize].stop == reconvergence;
        let point = if reconvergence == NONE || is_outer {
            outer
        } else {
            let (pc, expected, parent) = (reconvergence, mask, outer);
            self.new_point(ReconvergencePoint { pc, stop: pc, expected, arrived: 0, parent })
        };
        let mut kept = false;
        for &(mask, pc) in paths {
            let path = WarpSplit { pc, mask, point, wait: Wait::Nothing };
            if point != NONE && self.points[point as usize].stop == pc {
                self.points[point as usize].arrived |= mask;
            } else if kept {
                self.all.push(path);
            } else {
                self.all[split] = path;
                kept = true;
            }
        }
    }

    fn new_point(&mut self, point: ReconvergencePoint) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.points[place as usize] = point;
                place
            }
            None => {
                self.points.push(point);
                self.points.len() as u32 - 1
            }
        }
    }

    /// A split arrives at its reconvergence point. The last one goes on with all lanes; otherwise the split is removed, and the
    /// result is false.
    pub(super) fn reconverge(&mut self, split: usize) -> bool {
        let WarpSplit { mask, point, .. } = self.all[split];
        let at = &mut self.points[point as usize];
        at.arrived |= mask;
        if at.arrived != at.expected {
            self.all.swap_remove(split);
            return false;
        }
        let ReconvergencePoint { pc, expected, parent, .. } = *at;
        self.all[split] = WarpSplit { pc, mask: expected, point: parent, wait: Wait::Nothing };
        self.free.push(point);
        true
    }

    /// Lanes of a split exit. Returns whether any of its lanes are left.
    pub(super) fn exit(&mut self, split: usize, lanes: u32) -> bool {
        self.live &= !lanes;
        let mut point = self.all[split].point;
        self.all[split].mask &= !lanes;
        let left = self.all[split].mask != 0;
        while point != NONE {
            point = self.leave(point, lanes);
        }
        if !left {
            self.all.swap_remove(split);
        }
        left
    }

    /// A split waits, and then goes on at `pc`.
    pub(super) fn suspend(&mut self, split: usize, pc: u32, wait: Wait) {
        self.all[split].pc = pc;
        self.all[split].wait = wait;
    }

    /// Some lanes of a split wait; the others, which did not execute the instruction, go on at `pc` as a split of their own.
    pub(super) fn split_off(&mut self, waiting: u32, pc: u32) {
        let Some(split) = self.all.iter_mut().find(|split| split.mask & waiting != 0) else { return };
        let rest = WarpSplit { pc, mask: split.mask & !waiting, wait: Wait::Nothing, ..*split };
        if rest.mask != 0 {
            split.mask = waiting;
            self.all.push(rest);
        }
    }

    /// Some lanes of a split go on, or wait, as a split of their own.
    pub(super) fn part(&mut self, lanes: u32, pc: u32, wait: Wait) {
        let Some(split) = self.all.iter_mut().find(|split| split.mask & lanes != 0) else { return };
        let parted = WarpSplit { pc, mask: lanes, wait, ..*split };
        split.mask &= !lanes;
        self.all.push(parted);
    }

    /// Joins splits that are at the same instruction, wait for nothing, and reconverge at the same point.
    pub(super) fn merge(&mut self) {
        let mut place = 0;
        while place < self.all.len() {
            let WarpSplit { pc, mask, point, wait } = self.all[place];
            let alike = |other: &WarpSplit| other.pc == pc && other.point == point && other.wait == wait;
            let earlier = self.all[..place].iter_mut().find(|other| wait == Wait::Nothing && alike(other));
            match earlier {
                Some(earlier) => {
                    earlier.mask |= mask;
                    self.all.swap_remove(place);
                }
                None => place += 1,
            }
        }
    }

    /// Whether all lanes at reconvergence points have nothing left to do but exit.
    pub(super) fn reconvergence_exits(&self, program: &Program) -> bool {
        let exits = |mut pc: u32| loop {
            let instruction = &program.instructions[pc as usize];
            match instruction.op {
                Op::Exit if instruction.guard.is_none() => return true,
                // A backward branch could loop for ever.
                Op::Branch { target } if instruction.guard.is_none() && target > pc => pc = target,
                _ => return false,
            }
        };
        let mut waiting =
            self.points.iter().zip(0..).filter(|(point, i)| point.arrived != 0 && !self.free.contains(i));
        waiting.all(|(point, _)| exits(point.pc))
    }

    /// Releases lanes from reconvergence points because others wait for them. Returns whether there were any.
    pub(super) fn break_reconvergence(&mut self) -> bool {
        let mut any = false;
        for place in 0..self.points.len() {
            let ReconvergencePoint { pc, arrived, parent, .. } = self.points[place];
            if arrived != 0 && !self.free.contains(&(place as u32)) {
                self.points[place].arrived = 0;
                self.points[place].expected &= !arrived;
                self.all.push(WarpSplit { pc, mask: arrived, point: parent, wait: Wait::Nothing });
                any = true;
            }
        }
        any
    }
}

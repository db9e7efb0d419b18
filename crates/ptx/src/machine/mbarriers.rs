//! Barriers in shared memory that count arrivals and bytes.

use std::collections::BTreeMap;

use super::{
    access::{Touch, for_lanes, set_lane},
    fragments::{Phase, Wait},
    step::{Next, Step},
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::{FindingKind, join},
    isa::{Mbarrier, Op, Operand, Type},
};

/// What an mbarrier takes of shared memory, aligned to as much.
const BYTES: u32 = 8;

/// The most arrivals that a phase can have.
const MOST_ARRIVALS: u32 = (1 << 20) - 1;

#[derive(Clone, Debug)]
struct State {
    /// Arrivals of a phase, and those that are still missing.
    expected: u32,
    missing: u32,
    /// Bytes that were announced and have not come, or the other way round.
    bytes: i64,
    phase: u64,
    /// What those knew that arrived in this phase, and in the last.
    row: Vec<u32>,
    published: Vec<u32>,
    /// When the last arrival of this phase came, and of the last one.
    time: f64,
    published_time: f64,
}

impl State {
    /// Ends the phase where nothing is missing.
    fn settle(&mut self) {
        if self.missing == 0 && self.bytes == 0 {
            self.phase += 1;
            self.missing = self.expected;
            self.published = std::mem::replace(&mut self.row, vec![0; self.published.len()]);
            self.published_time = std::mem::take(&mut self.time);
        }
    }

    fn is_over(&self, phase: Phase) -> bool {
        match phase {
            Phase::Parity(parity) => (self.phase & 1 == 1) != parity,
            Phase::Number(number) => self.phase > number,
        }
    }
}

/// The mbarriers of a block, by their place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mbarriers {
    all: BTreeMap<u32, State>,
    /// Where the first of them begins and the last ends that ever were: most stores lie elsewhere.
    begin: u32,
    end: u32,
}

impl Mbarriers {
    /// What a report says about one.
    pub fn describe(&self, offset: u32) -> String {
        match self.all.get(&offset) {
            None => "which was never made".to_owned(),
            Some(State { missing, expected, bytes, phase, .. }) => {
                format!("phase {phase}, {missing} of {expected} arrivals and {bytes} bytes missing")
            }
        }
    }

    fn make(&mut self, place: u32, state: State) {
        self.begin = if self.end == 0 { place } else { self.begin.min(place) };
        self.end = self.end.max(place + BYTES);
        self.all.insert(place, state);
    }

    /// Whether bytes of shared memory are part of one.
    #[inline(always)]
    pub fn overlap(&self, offset: usize, bytes: usize) -> bool {
        let (begin, end) = (self.begin as usize, self.end as usize);
        offset < end && offset + bytes > begin && self.overlap_some(offset as u32, bytes as u32)
    }

    #[inline(never)]
    fn overlap_some(&self, offset: u32, bytes: u32) -> bool {
        let first = offset / BYTES * BYTES;
        (first..offset + bytes).step_by(BYTES as usize).any(|place| self.all.contains_key(&place))
    }

    /// An arrival, or as many more as the phase then waits for; false where there is no barrier.
    pub fn arrive(&mut self, offset: u32, count: u32, row: &[u32], time: f64) -> bool {
        let Some(state) = self.all.get_mut(&offset) else { return false };
        state.missing = state.missing.saturating_sub(count);
        state.time = state.time.max(time);
        join(&mut state.row, row);
        state.settle();
        true
    }

    /// Bytes have come, and what the copy engine knows with them.
    pub fn complete_bytes(&mut self, offset: u32, bytes: i64, row: &[u32], time: f64) -> bool {
        let Some(state) = self.all.get_mut(&offset) else { return false };
        state.bytes -= bytes;
        state.time = state.time.max(time);
        join(&mut state.row, row);
        state.settle();
        true
    }
}

impl Unit<'_> {
    pub(super) fn mbarrier(&mut self, warp: &mut Warp, step: Step<'_>) -> Next {
        let Op::Mbarrier { op, offset, .. } = step.instruction.op else { return Next::On };
        let results = step.instruction.results as usize;
        let operands = &step.operands[results..];
        let result = if results == 1 { step.operands[0] } else { Operand::NONE };
        if op == Mbarrier::PendingCount {
            let states = *warp.registers.long(&self.launched.constants, operands[0]);
            warp.registers.set_word(
                result,
                &states.map(|state| (state & u64::from(MOST_ARRIVALS)) as u32),
                step.mask,
            );
            return Next::On;
        }
        let addresses = self.addresses(warp, operands[0], offset);
        if let Mbarrier::Wait { parity, sleeps } = op {
            return self.mbarrier_wait(warp, step, &addresses, parity, sleeps);
        }
        for_lanes(step.mask, |lane| {
            // Generic addresses of shared memory are its own with a window in front.
            let address = addresses[lane] & 0xffff_ffff;
            let Some((block, place)) = self.shared_place(warp, step.pc, lane, address, 8, Touch::Write)
            else {
                return;
            };
            let count = operands.get(1).map(|&count| self.lane(warp, count, lane) as u32);
            let state = self.mbarrier_lane(warp, step, op, lane, block, place as u32, count);
            if !result.is_none() {
                set_lane(warp, result, lane, Type::B64, state);
            }
        });
        Next::On
    }

    /// What a lane does; gives the state before.
    #[allow(clippy::too_many_arguments)]
    fn mbarrier_lane(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        op: Mbarrier,
        lane: usize,
        block: usize,
        place: u32,
        count: Option<u32>,
    ) -> u64 {
        let address = Some(u64::from(place) + crate::decode::SHARED_START);
        if op == Mbarrier::Init {
            let count = count.unwrap_or(1);
            if !(1..=MOST_ARRIVALS).contains(&count) {
                self.report(warp, FindingKind::MbarrierMisuse, step.pc, lane as u32, address, || {
                    format!("an mbarrier cannot have {count} arrivals")
                });
            }
            if self.blocks[block].mbarriers.all.contains_key(&place) {
                self.report(warp, FindingKind::MbarrierMisuse, step.pc, lane as u32, address, || {
                    "there is an mbarrier here already, which was not invalidated".to_owned()
                });
            }
            let length = self.warps.len() + 1;
            let state = State {
                expected: count.max(1),
                missing: count.max(1),
                bytes: 0,
                phase: 0,
                row: vec![0; length],
                published: vec![0; length],
                time: 0.0,
                published_time: 0.0,
            };
            self.blocks[block].mbarriers.make(place, state);
            self.blocks[block].shared.store(place as usize, 8, u64::from(count));
            return 0;
        }
        if !self.blocks[block].mbarriers.all.contains_key(&place) {
            self.report(warp, FindingKind::MbarrierMisuse, step.pc, lane as u32, address, || {
                "there is no mbarrier here: it was never made, or was invalidated".to_owned()
            });
            return 0;
        }
        let row = match op {
            Mbarrier::Arrive { .. } => self.clocks.release(warp.id),
            _ => Vec::new(),
        };
        let Some(state) = self.blocks[block].mbarriers.all.get_mut(&place) else { return 0 };
        let before = state.phase << 20 | u64::from(state.missing);
        state.time = state.time.max(warp.now());
        let mut too_many = None;
        match op {
            Mbarrier::Invalidate => {
                self.blocks[block].mbarriers.all.remove(&place);
                return 0;
            }
            Mbarrier::ExpectTx => state.bytes += i64::from(count.unwrap_or(0)),
            Mbarrier::CompleteTx => {
                state.bytes -= i64::from(count.unwrap_or(0));
                state.settle();
            }
            Mbarrier::Arrive { expect, drop, .. } => {
                let arrivals = if expect { 1 } else { count.unwrap_or(1) };
                if expect {
                    state.bytes += i64::from(count.unwrap_or(0));
                }
                if drop {
                    state.expected = state.expected.saturating_sub(arrivals);
                }
                if arrivals > state.missing {
                    too_many = Some((arrivals, state.missing));
                }
                state.missing = state.missing.saturating_sub(arrivals);
                join(&mut state.row, &row);
                state.settle();
            }
            Mbarrier::Init | Mbarrier::Wait { .. } | Mbarrier::PendingCount => {}
        }
        if let Some((arrivals, missing)) = too_many {
            self.report(warp, FindingKind::MbarrierMisuse, step.pc, lane as u32, address, || {
                format!("{arrivals} arrive where only {missing} are missing in this phase")
            });
        }
        before
    }

    fn mbarrier_wait(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        addresses: &[u64; 32],
        parity: bool,
        sleeps: bool,
    ) -> Next {
        let mut over = 0u32;
        let (mut first, mut ended) = (None, None);
        let mut wrong = false;
        for_lanes(step.mask, |lane| {
            let address = addresses[lane] & 0xffff_ffff;
            let value = self.lane(warp, step.operands[2], lane);
            // Lanes mostly wait for the same.
            if ended == Some((address, value)) {
                over |= 1 << lane;
                return;
            }
            let Some((block, place)) = self.shared_place(warp, step.pc, lane, address, 8, Touch::Read) else {
                over |= 1 << lane;
                return;
            };
            let phase = if parity { Phase::Parity(value & 1 == 1) } else { Phase::Number(value >> 20) };
            if !self.blocks[block].mbarriers.all.contains_key(&(place as u32)) {
                self.report(warp, FindingKind::MbarrierMisuse, step.pc, lane as u32, Some(address), || {
                    "the thread waits for an mbarrier that was never made".to_owned()
                });
                wrong = true;
                return;
            }
            if first == Some((block, place as u32, phase)) {
                return;
            }
            if self.phase_is_over(warp, block, place as u32, phase) {
                over |= 1 << lane;
                ended = Some((address, value));
            } else {
                first = first.or(Some((block, place as u32, phase)));
            }
        });
        if wrong {
            // Waiting would never end.
            self.ended = true;
            return Next::On;
        }
        if over != step.mask
            && sleeps
            && let Some((block, offset, phase)) = first
        {
            return Next::Again(Wait::Mbarrier { block, offset, phase });
        }
        warp.registers.set_predicate(step.operands[0], over, step.mask);
        Next::On
    }

    /// Whether a phase has ended; copies that it waits for arrive now. A warp that sees the end learns what those knew that
    /// made it.
    pub(super) fn phase_is_over(&mut self, warp: &mut Warp, block: usize, offset: u32, phase: Phase) -> bool {
        let over = |unit: &Self| {
            unit.blocks[block].mbarriers.all.get(&offset).is_some_and(|state| state.is_over(phase))
        };
        if !over(self) {
            self.land(block, offset);
        }
        if !over(self) {
            return false;
        }
        if let Some(state) = self.blocks[block].mbarriers.all.get(&offset) {
            self.clocks.acquire(warp.id, &state.published);
            warp.wait_until(state.published_time);
            self.learnt(warp);
        }
        true
    }
}

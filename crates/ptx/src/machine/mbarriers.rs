//! mbarriers: barriers in shared memory that count arrivals and bytes.

use std::collections::BTreeMap;

use super::{
    access::{AccessKind, LaneAccess, for_lanes, set_lane},
    step::{Next, Step},
    unit::Unit,
    warp::Warp,
    warp_splits::{Phase, Wait},
};
use crate::{
    check::{FindingKind, join},
    decode::SHARED_START,
    isa::{Mbarrier, Op, Operand, Type},
};

/// The size and alignment of an mbarrier.
const BYTES: u32 = 8;

/// The highest number of arrivals per phase.
const MOST_ARRIVALS: u32 = (1 << 20) - 1;

#[derive(Clone, Debug)]
struct State {
    /// Arrivals per phase, and those that are still pending in this one.
    expected: u32,
    pending: u32,
    /// The transaction count: bytes that are expected minus bytes that have come.
    bytes: i64,
    phase: u64,
    /// The clocks that arrivals of this phase released, and those of the last phase.
    row: Vec<u32>,
    published: Vec<u32>,
    /// The time of the last arrival in this phase, and in the last one.
    time: f64,
    published_time: f64,
}

impl State {
    /// Completes the phase if nothing is pending.
    fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase += 1;
            self.pending = self.expected;
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

/// The mbarriers of a block, by their offset in shared memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mbarriers {
    all: BTreeMap<u32, State>,
    /// The range that all of them were ever in. Most stores are outside of it, which saves a search.
    begin: u32,
    end: u32,
}

impl Mbarriers {
    /// The state of one, for a finding.
    pub fn describe(&self, offset: u32) -> String {
        match self.all.get(&offset) {
            None => "never initialised".to_owned(),
            Some(State { pending, expected, bytes, phase, .. }) => {
                format!("phase {phase}, {pending} of {expected} arrivals and {bytes} bytes pending")
            }
        }
    }

    fn insert(&mut self, place: u32, state: State) {
        self.begin = if self.end == 0 { place } else { self.begin.min(place) };
        self.end = self.end.max(place + BYTES);
        self.all.insert(place, state);
    }

    /// Whether bytes of shared memory overlap one.
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

    /// Arrives `count` times; false if there is no mbarrier.
    pub fn arrive(&mut self, offset: u32, count: u32, row: &[u32], time: f64) -> bool {
        let Some(state) = self.all.get_mut(&offset) else { return false };
        state.pending = state.pending.saturating_sub(count);
        state.time = state.time.max(time);
        join(&mut state.row, row);
        state.settle();
        true
    }

    /// Completes bytes of a bulk copy, which releases the TMA unit's clock; false if there is no mbarrier.
    pub fn complete_bytes(&mut self, offset: u32, bytes: i64, row: &[u32], time: f64) -> bool {
        let Some(state) = self.all.get_mut(&offset) else { return false };
        state.bytes -= bytes;
        state.time = state.time.max(time);
        join(&mut state.row, row);
        state.settle();
        true
    }
}

/// The mbarrier that a lane names.
#[derive(Clone, Copy)]
struct Target {
    block: usize,
    place: u32,
    access: LaneAccess,
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
            // A generic address of shared memory is its shared address plus the window's base.
            let address = addresses[lane] & 0xffff_ffff;
            let access =
                LaneAccess { pc: step.pc, lane, address, bytes: BYTES as usize, kind: AccessKind::Write };
            let Some((block, place)) = self.shared_place(warp, access) else { return };
            let count = operands.get(1).map(|&count| self.lane(warp, count, lane) as u32);
            let address = u64::from(place as u32) + SHARED_START;
            let target = Target { block, place: place as u32, access: LaneAccess { address, ..access } };
            let state = match op {
                Mbarrier::Init => {
                    self.mbarrier_init(warp, target, count.unwrap_or(1));
                    0
                }
                _ => self.mbarrier_update(warp, target, op, count),
            };
            if !result.is_none() {
                set_lane(warp, result, lane, Type::B64, state);
            }
        });
        Next::On
    }

    fn mbarrier_init(&mut self, warp: &Warp, target: Target, count: u32) {
        let Target { block, place, access } = target;
        if !(1..=MOST_ARRIVALS).contains(&count) {
            self.report_access(warp, FindingKind::MbarrierMisuse, access, || {
                format!("initialises an mbarrier with {count} arrivals; 1 to {MOST_ARRIVALS} are allowed")
            });
        }
        if self.blocks[block].mbarriers.all.contains_key(&place) {
            self.report_access(warp, FindingKind::MbarrierMisuse, access, || {
                "initialises an mbarrier where one already exists that was not invalidated".to_owned()
            });
        }
        let length = self.warps.len() + 1;
        let state = State {
            expected: count.max(1),
            pending: count.max(1),
            bytes: 0,
            phase: 0,
            row: vec![0; length],
            published: vec![0; length],
            time: 0.0,
            published_time: 0.0,
        };
        self.blocks[block].mbarriers.insert(place, state);
        self.blocks[block].shared.store(place as usize, BYTES as usize, u64::from(count));
    }

    /// An operation on an existing mbarrier; returns the state before it.
    fn mbarrier_update(&mut self, warp: &Warp, target: Target, op: Mbarrier, count: Option<u32>) -> u64 {
        let Target { block, place, access } = target;
        if !self.blocks[block].mbarriers.all.contains_key(&place) {
            self.report_access(warp, FindingKind::MbarrierMisuse, access, || {
                "uses an mbarrier that was never initialised, or was invalidated".to_owned()
            });
            return 0;
        }
        let row = match op {
            Mbarrier::Arrive { .. } => self.clocks.release(warp.id),
            _ => Vec::new(),
        };
        let Some(state) = self.blocks[block].mbarriers.all.get_mut(&place) else { return 0 };
        let before = state.phase << 20 | u64::from(state.pending);
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
                if arrivals > state.pending {
                    too_many = Some((arrivals, state.pending));
                }
                state.pending = state.pending.saturating_sub(arrivals);
                join(&mut state.row, &row);
                state.settle();
            }
            Mbarrier::Init | Mbarrier::Wait { .. } | Mbarrier::PendingCount => {}
        }
        if let Some((arrivals, pending)) = too_many {
            self.report_access(warp, FindingKind::MbarrierMisuse, access, || {
                format!("arrives {arrivals} times, but only {pending} arrivals are pending in this phase")
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
            // The common case: all lanes wait for the same phase.
            if ended == Some((address, value)) {
                over |= 1 << lane;
                return;
            }
            let access =
                LaneAccess { pc: step.pc, lane, address, bytes: BYTES as usize, kind: AccessKind::Read };
            let Some((block, place)) = self.shared_place(warp, access) else {
                over |= 1 << lane;
                return;
            };
            let phase = if parity { Phase::Parity(value & 1 == 1) } else { Phase::Number(value >> 20) };
            if !self.blocks[block].mbarriers.all.contains_key(&(place as u32)) {
                self.report_access(warp, FindingKind::MbarrierMisuse, access, || {
                    "waits on an mbarrier that was never initialised".to_owned()
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
            // The wait would never end.
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

    /// Whether a phase is complete; bulk copies that it waits for land now. A warp that sees it complete acquires what its
    /// arrivals released.
    pub(super) fn phase_is_over(&mut self, warp: &mut Warp, block: usize, offset: u32, phase: Phase) -> bool {
        let over = |unit: &Self| {
            unit.blocks[block].mbarriers.all.get(&offset).is_some_and(|state| state.is_over(phase))
        };
        if !over(self) {
            self.complete_bulk_copies(block, offset);
        }
        if !over(self) {
            return false;
        }
        if let Some(state) = self.blocks[block].mbarriers.all.get(&offset) {
            self.clocks.acquire(warp.id, &state.published);
            warp.wait_until(state.published_time);
            self.update_floor(warp);
        }
        true
    }
}

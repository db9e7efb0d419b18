//! Records of the last accesses to shared memory, for the race check.
//!
//! Every granule, as large as the kernel's smallest access, has a record. Since most accesses have 16 bytes, the granules of a 16-byte
//! line share one record until an access covers only part of the line.

use std::ops::Range;

use crate::check::{Clocks, LaneClocks};

/// Who accesses memory, and what is ordered before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor<'a> {
    /// The warp's index in its cluster, or the TMA unit's row.
    pub warp: usize,
    pub lane: usize,
    /// The warp's index in the block that owns the memory; `None` for warps of other blocks and the TMA unit.
    pub own: Option<u32>,
    /// Everything before this time is ordered before the warp.
    pub floor: u32,
    /// When all lanes of the warp last synchronised.
    pub last_sync: u32,
    /// What the lanes of the warp have seen of each other, if some of them synchronised since.
    pub lane_clocks: Option<&'a LaneClocks>,
}

impl Accessor<'_> {
    /// Whether a write is not ordered before this access.
    #[inline(always)]
    fn misses(&self, write: u64, clocks: &Clocks) -> bool {
        if write == 0 || (write as u32) < self.floor {
            return false;
        }
        let (warp, lane, at) = (Write(write).warp(), Write(write).lane(), Write(write).at());
        if warp == self.warp && at != PENDING {
            lane != self.lane
                && at >= self.last_sync
                && self.lane_clocks.is_none_or(|clocks| clocks.misses(self.lane, lane, at))
        } else {
            write & VOLATILE == 0 && clocks.seen(self.warp, warp) < at
        }
    }

    /// Whether some of the recorded reads may not be ordered before this access.
    #[inline(always)]
    fn may_miss_reads(&self, reads: u64) -> bool {
        ((reads >> 32) as u32 >= self.floor) & (reads != 0)
    }
}

/// An earlier access that is not ordered before the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Whether the earlier access was a write.
    pub write: bool,
    /// The warp that made it.
    pub warp: usize,
    /// Its lane, if known.
    pub lane: Option<usize>,
    /// Whether it is an asynchronous copy in flight.
    pub in_flight: bool,
}

/// The time of an asynchronous copy in flight.
const PENDING: u32 = u32::MAX;

/// Flag of a write: it was an atomic.
const ATOMIC: u64 = 1 << 39;

/// Flag of a write: it was volatile. Other warps may access what it writes, as they do with flags, but it does not order the lanes of
/// its own warp.
const VOLATILE: u64 = 1 << 38;

/// The last write to a granule: the warp plus one, the flags, the lane and the time; zero for none.
#[derive(Clone, Copy)]
struct Write(u64);

impl Write {
    fn new(warp: usize, lane: usize, at: u32) -> Write {
        Write((warp as u64 + 1) << 40 | (lane as u64) << 32 | u64::from(at))
    }

    fn warp(self) -> usize {
        (self.0 >> 40) as usize - 1
    }

    fn lane(self) -> usize {
        (self.0 >> 32 & 0x1f) as usize
    }

    fn at(self) -> u32 {
        self.0 as u32
    }

    fn conflict(self) -> Conflict {
        let in_flight = self.at() == PENDING;
        Conflict { write: true, warp: self.warp(), lane: Some(self.lane()), in_flight }
    }
}

/// The record of a granule or a line.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Its last [`Write`].
    write: u64,
    /// A mask of the warps that read since then, and the time of the first read.
    reads: u64,
}

/// Bytes of a line.
const LINE: usize = 16;

/// In place of a line's last write: its granules have their own records. No warp index is that high.
const DIVIDED: u64 = u64::MAX;

/// The records of a block's shared memory.
#[derive(Clone, Debug)]
pub(crate) struct AccessRecords {
    lines: Vec<Record>,
    /// The granules of lines that are [`DIVIDED`].
    parts: Vec<Record>,
    /// The offset bits within a granule.
    granule_bits: u32,
}

impl AccessRecords {
    /// `granule` must be a power of two, at most 16 bytes.
    pub fn new(bytes: usize, granule: usize) -> AccessRecords {
        debug_assert!(granule.is_power_of_two() && granule <= LINE);
        let lines = bytes.div_ceil(LINE);
        AccessRecords {
            lines: vec![Record::default(); lines],
            parts: vec![Record::default(); lines * (LINE / granule)],
            granule_bits: granule.trailing_zeros(),
        }
    }

    pub fn clear(&mut self) {
        self.lines.fill(Record::default());
    }

    /// The lines of a range of bytes; none if no records are kept.
    #[inline(always)]
    fn lines(&self, offset: usize, bytes: usize) -> Range<usize> {
        if self.lines.is_empty() { 0..0 } else { offset / LINE..(offset + bytes).div_ceil(LINE) }
    }

    /// The granules of a line within a range of bytes.
    #[inline(always)]
    fn granules(&self, line: usize, offset: usize, bytes: usize) -> Range<usize> {
        let (first, end) = (offset.max(line * LINE), (offset + bytes).min((line + 1) * LINE));
        first >> self.granule_bits..(end + (1 << self.granule_bits) - 1) >> self.granule_bits
    }

    /// Changes the records of a range of bytes. If the change leaves them all `alike`, whole lines share one record again.
    #[inline(always)]
    fn change(&mut self, offset: usize, bytes: usize, alike: bool, mut change: impl FnMut(&mut Record)) {
        for line in self.lines(offset, bytes) {
            let whole = offset <= line * LINE && (line + 1) * LINE <= offset + bytes;
            let record = &mut self.lines[line];
            let divided = record.write == DIVIDED;
            if whole && !divided {
                change(record);
                continue;
            }
            if !divided {
                let before = std::mem::replace(record, Record { write: DIVIDED, reads: 0 });
                let all = self.granules(line, line * LINE, LINE);
                self.parts[all].fill(before);
            }
            let granules = self.granules(line, offset, bytes);
            let first = granules.start;
            self.parts[granules].iter_mut().for_each(&mut change);
            if whole && alike {
                self.lines[line] = self.parts[first];
            }
        }
    }

    /// Records a read, and returns a write that is not ordered before it.
    #[inline(always)]
    pub fn read(
        &mut self,
        offset: usize,
        bytes: usize,
        who: &Accessor<'_>,
        clocks: &Clocks,
    ) -> Option<Conflict> {
        let mut found = None;
        let first = u64::from(clocks.now()) << 32;
        let mine = who.own.map_or(0, |own| 1 << own);
        self.change(offset, bytes, false, |record| {
            if who.misses(record.write, clocks) {
                found = found.or(Some(Write(record.write).conflict()));
            }
            if mine != 0 {
                let since = if who.may_miss_reads(record.reads) { record.reads } else { first };
                record.reads = since | mine;
            }
        });
        found
    }

    /// Records a write, and returns an access that is not ordered before it.
    #[inline(always)]
    pub fn write(
        &mut self,
        offset: usize,
        bytes: usize,
        who: &Accessor<'_>,
        clocks: &Clocks,
    ) -> Option<Conflict> {
        let mut found = None;
        let mine = Record { write: Write::new(who.warp, who.lane, clocks.now()).0, reads: 0 };
        self.change(offset, bytes, true, |record| {
            if who.misses(record.write, clocks) {
                found = found.or(Some(Write(record.write).conflict()));
            }
            if who.may_miss_reads(record.reads) && found.is_none() {
                found = unordered_reads(record.reads, who, clocks);
            }
            *record = mine;
        });
        found
    }

    /// Records an atomic, and returns a plain access that is not ordered before it.
    pub fn atomic(
        &mut self,
        offset: usize,
        bytes: usize,
        who: &Accessor<'_>,
        clocks: &Clocks,
    ) -> Option<Conflict> {
        let mut found = None;
        self.change(offset, bytes, false, |record| {
            let write = record.write;
            if write & (ATOMIC | VOLATILE) == 0 && who.misses(write, clocks) {
                found = found.or(Some(Write(write).conflict()));
            }
            if who.may_miss_reads(record.reads) && found.is_none() {
                found = unordered_reads(record.reads, who, clocks);
            }
            record.reads = 0;
            // A plain write that the warp has not released yet stays recorded: other warps' atomics race with it too.
            let plain = write != 0 && write & (ATOMIC | VOLATILE) == 0 && Write(write).at() != PENDING;
            let last = Write(write);
            if !(plain && last.warp() == who.warp && !clocks.is_released(who.warp, last.at())) {
                record.write = Write::new(who.warp, who.lane, clocks.now()).0 | ATOMIC;
            }
        });
        found
    }

    /// A volatile read of data. Returns a write by another lane of the same warp that is not ordered before it.
    pub fn volatile_read(
        &mut self,
        offset: usize,
        bytes: usize,
        who: &Accessor<'_>,
        clocks: &Clocks,
    ) -> Option<Conflict> {
        let mut found = None;
        self.change(offset, bytes, false, |record| {
            let write = record.write;
            let own = write != 0 && write & ATOMIC == 0 && Write(write).warp() == who.warp;
            if own && Write(write).at() != PENDING && who.misses(write, clocks) {
                found = found.or(Some(Write(write).conflict()));
            }
        });
        found
    }

    /// Records a volatile write. A write of another warp that is not ordered before it stays recorded.
    pub fn volatile_write(&mut self, offset: usize, bytes: usize, who: &Accessor<'_>, clocks: &Clocks) {
        let mine = Write::new(who.warp, who.lane, clocks.now()).0 | VOLATILE;
        self.change(offset, bytes, false, |record| {
            let write = record.write;
            if write == 0 || Write(write).warp() == who.warp || !who.misses(write, clocks) {
                record.write = mine;
            }
        });
    }

    /// Marks memory as the target of an asynchronous copy.
    pub fn begin_copy(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) {
        self.end_copy(offset, bytes, warp, lane, PENDING);
    }

    /// Records that an asynchronous copy has landed.
    pub fn end_copy(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize, now: u32) {
        let copied = Record { write: Write::new(warp, lane, now).0, reads: 0 };
        self.change(offset, bytes, true, |record| *record = copied);
    }

    /// The first warp that last wrote some of these bytes and for which `wrong` holds, given the warp and the time. Writes of the TMA
    /// unit are ignored.
    #[inline(always)]
    pub fn find_writer(
        &self,
        offset: usize,
        bytes: usize,
        clocks: &Clocks,
        wrong: impl Fn(usize, u32) -> bool,
    ) -> Option<usize> {
        let mut last = 0;
        for line in self.lines(offset, bytes) {
            let records = match self.lines[line].write {
                DIVIDED => &self.parts[self.granules(line, offset, bytes)],
                _ => &self.lines[line..line + 1],
            };
            for &Record { write, .. } in records {
                if write == last || write == 0 {
                    continue;
                }
                last = write;
                let warp = Write(write).warp();
                if warp != clocks.tma() && wrong(warp, Write(write).at()) {
                    return Some(warp);
                }
            }
        }
        None
    }
}

#[inline(never)]
fn unordered_reads(reads: u64, who: &Accessor<'_>, clocks: &Clocks) -> Option<Conflict> {
    let first = (reads >> 32) as u32;
    let mut warps = reads as u32;
    // The warps of a block are contiguous in the clocks.
    let base = who.own.map_or(0, |own| who.warp - own as usize);
    while warps != 0 {
        let warp = base + warps.trailing_zeros() as usize;
        warps &= warps - 1;
        // All of them read at `first` or later.
        if warp != who.warp && who.own.is_some() && clocks.seen(who.warp, warp) < first {
            return Some(Conflict { write: false, warp, lane: None, in_flight: false });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recording a range at once is the same as recording it granule by granule, for ranges that start and end anywhere, warps of the
    /// block and of others, accesses and copies in flight.
    #[test]
    fn lines_agree_with_their_granules() {
        for granule in [1, 2, 4, 8, 16] {
            let conflicts = compare(granule, granule as u64);
            assert!((1000..19_000).contains(&conflicts), "{conflicts} of granules of {granule}");
        }
    }

    fn compare(granule: usize, seed: u64) -> usize {
        const BYTES: usize = 80;
        let mut state = seed;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) as usize % below
        };
        let mut clocks = Clocks::new(4);
        let [mut lines, mut granules] =
            [AccessRecords::new(BYTES, granule), AccessRecords::new(BYTES, granule)];
        let mut conflicts = 0;
        for _ in 0..20_000 {
            let all = BYTES / granule;
            let first = random(all);
            let most = (all - first).min(1 + 40 / granule);
            // A whole line half of the time.
            let (offset, bytes) = match random(2) {
                0 => (random(BYTES / LINE) * LINE, LINE),
                _ => (first * granule, (1 + random(most)) * granule),
            };
            let warp = random(4);
            let (lane, last_sync, floor) =
                (random(2), clocks.now() / 2, clocks.floor(warp).min(clocks.now() / 2));
            let own = (random(5) > 0).then_some(warp as u32);
            let who = Accessor { warp, lane, own, floor, last_sync, lane_clocks: None };
            let kind = random(12);
            let now = clocks.now();
            let touch = |records: &mut AccessRecords, offset: usize, bytes: usize| match kind {
                0..5 => records.read(offset, bytes, &who, &clocks),
                5..8 => records.write(offset, bytes, &who, &clocks),
                8 | 9 => records.atomic(offset, bytes, &who, &clocks),
                10 => {
                    records.begin_copy(offset, bytes, warp, lane);
                    None
                }
                _ => {
                    records.end_copy(offset, bytes, warp, lane, now);
                    None
                }
            };
            let at_once = touch(&mut lines, offset, bytes);
            let mut each = None;
            for part in (offset..offset + bytes).step_by(granule) {
                let found = touch(&mut granules, part, granule);
                each = each.or(found);
            }
            assert_eq!(at_once, each);
            conflicts += usize::from(each.is_some());
            let early =
                |records: &AccessRecords| records.find_writer(0, BYTES, &clocks, |_, at| at < now / 4 * 3);
            assert_eq!(early(&lines), early(&granules));
            if random(3) == 0 {
                let row = clocks.release(warp);
                clocks.acquire(random(4), &row);
            }
        }
        conflicts
    }
}

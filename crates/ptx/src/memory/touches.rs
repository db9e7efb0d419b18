//! What is known of who touched shared memory last.
//!
//! A granule, as large as the smallest access of the kernel, has a record. Most accesses are of 16 bytes: the granules of such a
//! line share one record until something touches a part of them.

use std::ops::Range;

use crate::check::Clocks;

/// Who touches memory, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toucher {
    /// The warp's number in its cluster, or the copy engine's.
    pub warp: usize,
    pub lane: usize,
    /// The warp's number in the block whose memory it is; none for those of other blocks and for the copy engine.
    pub own: Option<u32>,
    /// Everything before is known to this warp.
    pub floor: u32,
    /// When the lanes of this warp last waited for each other.
    pub met: u32,
}

impl Toucher {
    /// Whether this access does not come after a write.
    #[inline(always)]
    fn misses(&self, write: u64, clocks: &Clocks) -> bool {
        if write == 0 || (write as u32) < self.floor {
            return false;
        }
        let (warp, lane, at) = (Write(write).warp(), Write(write).lane(), Write(write).at());
        if warp == self.warp && at != PENDING {
            lane != self.lane && at >= self.met
        } else {
            clocks.seen(self.warp, warp) < at
        }
    }

    /// Whether reads may be such that this access does not come after.
    #[inline(always)]
    fn may_miss_reads(&self, reads: u64) -> bool {
        ((reads >> 32) as u32 >= self.floor) & (reads != 0)
    }
}

/// An access that nothing orders with the one that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// What the earlier access was.
    pub write: bool,
    /// The warp that made it.
    pub warp: usize,
    /// The lane, where it is known.
    pub lane: Option<usize>,
    /// Whether it is a copy that is still under way.
    pub under_way: bool,
}

/// A moment that has not come: a copy is under way.
const PENDING: u32 = u32::MAX;

/// Of a write: it was an atomic's.
const ATOMIC: u64 = 1 << 39;

/// The last write to a granule: the warp plus one, whether it was an atomic's, the lane, the moment; zero for none.
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
        (self.0 >> 32 & 0x7f) as usize
    }

    fn at(self) -> u32 {
        self.0 as u32
    }

    fn conflict(self) -> Conflict {
        let under_way = self.at() == PENDING;
        Conflict { write: true, warp: self.warp(), lane: Some(self.lane()), under_way }
    }
}

/// What is known of a piece of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Its last [`Write`].
    write: u64,
    /// Which warps read since, and when the first of them did.
    reads: u64,
}

/// Bytes of a line.
const LINE: usize = 16;

/// In place of a line's last write: its granules have records of their own. No warp has so high a number.
const PARTED: u64 = u64::MAX;

/// The records of a block's shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Touches {
    lines: Vec<Record>,
    /// Those of the granules of lines that are [`PARTED`].
    parts: Vec<Record>,
    /// The bits of an offset within a granule, whose bytes are a power of two.
    granule_bits: u32,
}

impl Touches {
    /// A granule is a power of two, of 16 bytes at most.
    pub fn new(bytes: usize, granule: usize) -> Touches {
        debug_assert!(granule.is_power_of_two() && granule <= LINE);
        let lines = bytes.div_ceil(LINE);
        Touches {
            lines: vec![Record::default(); lines],
            parts: vec![Record::default(); lines * (LINE / granule)],
            granule_bits: granule.trailing_zeros(),
        }
    }

    pub fn clear(&mut self) {
        self.lines.fill(Record::default());
    }

    /// The lines under bytes; none where no records are kept.
    #[inline(always)]
    fn lines(&self, offset: usize, bytes: usize) -> Range<usize> {
        if self.lines.is_empty() { 0..0 } else { offset / LINE..(offset + bytes).div_ceil(LINE) }
    }

    /// The granules of a line under bytes.
    #[inline(always)]
    fn granules(&self, line: usize, offset: usize, bytes: usize) -> Range<usize> {
        let (first, end) = (offset.max(line * LINE), (offset + bytes).min((line + 1) * LINE));
        first >> self.granule_bits..(end + (1 << self.granule_bits) - 1) >> self.granule_bits
    }

    /// Changes the records of bytes. Where they are left `alike`, a line has one again.
    #[inline(always)]
    fn change(&mut self, offset: usize, bytes: usize, alike: bool, mut change: impl FnMut(&mut Record)) {
        for line in self.lines(offset, bytes) {
            let whole = offset <= line * LINE && (line + 1) * LINE <= offset + bytes;
            let record = &mut self.lines[line];
            let parted = record.write == PARTED;
            if whole && !parted {
                change(record);
                continue;
            }
            if !parted {
                let before = std::mem::replace(record, Record { write: PARTED, reads: 0 });
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

    /// Notes a read, and gives a write that it is not ordered with.
    #[inline(always)]
    pub fn read(&mut self, offset: usize, bytes: usize, who: &Toucher, clocks: &Clocks) -> Option<Conflict> {
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

    /// Notes a write, and gives an access that it is not ordered with.
    #[inline(always)]
    pub fn write(&mut self, offset: usize, bytes: usize, who: &Toucher, clocks: &Clocks) -> Option<Conflict> {
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

    /// Notes an atomic, and gives an access that is none and that it is not ordered with.
    pub fn atomic(
        &mut self,
        offset: usize,
        bytes: usize,
        who: &Toucher,
        clocks: &Clocks,
    ) -> Option<Conflict> {
        let mut found = None;
        self.change(offset, bytes, false, |record| {
            let write = record.write;
            if write & ATOMIC == 0 && who.misses(write, clocks) {
                found = found.or(Some(Write(write).conflict()));
            }
            if who.may_miss_reads(record.reads) && found.is_none() {
                found = unordered_reads(record.reads, who, clocks);
            }
            record.reads = 0;
            // A warp's plain write that it has told nobody of stays: other warps' atomics race with that as well.
            let plain = write != 0 && write & ATOMIC == 0 && Write(write).at() != PENDING;
            let last = Write(write);
            if !(plain && last.warp() == who.warp && !clocks.is_released(who.warp, last.at())) {
                record.write = Write::new(who.warp, who.lane, clocks.now()).0 | ATOMIC;
            }
        });
        found
    }

    /// Marks memory that a copy will write.
    pub fn begin_copy(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) {
        self.end_copy(offset, bytes, warp, lane, PENDING);
    }

    /// Notes that a copy has arrived.
    pub fn end_copy(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize, now: u32) {
        let copied = Record { write: Write::new(warp, lane, now).0, reads: 0 };
        self.change(offset, bytes, true, |record| *record = copied);
    }

    /// The first of the warps that last wrote these bytes for which, and for the moment when it did, `wrong` holds. The copy
    /// engine's writes are left out.
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
                PARTED => &self.parts[self.granules(line, offset, bytes)],
                _ => &self.lines[line..line + 1],
            };
            for &Record { write, .. } in records {
                if write == last || write == 0 {
                    continue;
                }
                last = write;
                let warp = Write(write).warp();
                if warp != clocks.engine() && wrong(warp, Write(write).at()) {
                    return Some(warp);
                }
            }
        }
        None
    }
}

#[inline(never)]
fn unordered_reads(reads: u64, who: &Toucher, clocks: &Clocks) -> Option<Conflict> {
    let first = (reads >> 32) as u32;
    let mut warps = reads as u32;
    // The memory's own warps follow each other in the clocks: those of a block begin at its first.
    let base = who.own.map_or(0, |own| who.warp - own as usize);
    while warps != 0 {
        let warp = base + warps.trailing_zeros() as usize;
        warps &= warps - 1;
        // Every one of them read at `first` or later.
        if warp != who.warp && who.own.is_some() && clocks.seen(who.warp, warp) < first {
            return Some(Conflict { write: false, warp, lane: None, under_way: false });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is noted at once is the same as noted granule by granule, where no line has one record for long: of ranges that begin and
    /// end anywhere, by warps of the block and by others, of accesses and of copies that are under way.
    #[test]
    fn lines_know_what_their_granules_know() {
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
        let [mut lines, mut granules] = [Touches::new(BYTES, granule), Touches::new(BYTES, granule)];
        let mut conflicts = 0;
        for _ in 0..20_000 {
            let all = BYTES / granule;
            let first = random(all);
            let most = (all - first).min(1 + 40 / granule);
            // As often a whole line as anything else.
            let (offset, bytes) = match random(2) {
                0 => (random(BYTES / LINE) * LINE, LINE),
                _ => (first * granule, (1 + random(most)) * granule),
            };
            let warp = random(4);
            let (lane, met, floor) = (random(2), clocks.now() / 2, clocks.floor(warp).min(clocks.now() / 2));
            let own = (random(5) > 0).then_some(warp as u32);
            let who = Toucher { warp, lane, own, floor, met };
            let kind = random(12);
            let now = clocks.now();
            let touch = |touches: &mut Touches, offset: usize, bytes: usize| match kind {
                0..5 => touches.read(offset, bytes, &who, &clocks),
                5..8 => touches.write(offset, bytes, &who, &clocks),
                8 | 9 => touches.atomic(offset, bytes, &who, &clocks),
                10 => {
                    touches.begin_copy(offset, bytes, warp, lane);
                    None
                }
                _ => {
                    touches.end_copy(offset, bytes, warp, lane, now);
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
            let early = |touches: &Touches| touches.find_writer(0, BYTES, &clocks, |_, at| at < now / 4 * 3);
            assert_eq!(early(&lines), early(&granules));
            if random(3) == 0 {
                let row = clocks.release(warp);
                clocks.acquire(random(4), &row);
            }
        }
        conflicts
    }
}

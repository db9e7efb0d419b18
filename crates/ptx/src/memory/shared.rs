//! The shared memory of a block, with what is known of who touched it last.

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
}

/// A block's shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    data: Vec<u8>,
    written: Vec<u8>,
    writes: Vec<u64>,
    /// Which warps read since the last write, and when the first of them did.
    reads: Vec<u64>,
    granule: usize,
}

impl Shared {
    pub fn new(bytes: usize, granule: usize, races: bool) -> Shared {
        let granules = if races { bytes.div_ceil(granule) } else { 0 };
        Shared {
            data: vec![0; bytes],
            written: vec![0; bytes],
            writes: vec![0; granules],
            reads: vec![0; granules],
            granule,
        }
    }

    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Forgets everything, for the next block.
    pub fn clear(&mut self) {
        self.data.fill(0);
        self.written.fill(0);
        self.writes.fill(0);
        self.reads.fill(0);
    }

    pub fn all(&self) -> &[u8] {
        &self.data
    }

    pub fn bytes(&self, offset: usize, bytes: usize) -> &[u8] {
        &self.data[offset..offset + bytes]
    }

    /// A little-endian value of 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub fn load(&self, offset: usize, bytes: usize) -> u64 {
        let at = &self.data[offset..offset + bytes];
        match *at {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        }
    }

    #[inline(always)]
    pub fn store(&mut self, offset: usize, bytes: usize, value: u64) {
        self.data[offset..offset + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        self.written[offset..offset + bytes].fill(1);
    }

    pub fn store_bytes(&mut self, offset: usize, bytes: &[u8]) {
        self.data[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.written[offset..offset + bytes.len()].fill(1);
    }

    #[inline(always)]
    pub fn is_written(&self, offset: usize, bytes: usize) -> bool {
        let at = &self.written[offset..offset + bytes];
        match *at {
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) == 0x0101_0101,
            _ if bytes == 16 => at == [1; 16],
            _ => at.iter().all(|&byte| byte == 1),
        }
    }

    fn granules(&self, offset: usize, bytes: usize) -> std::ops::Range<usize> {
        if self.writes.is_empty() {
            return 0..0;
        }
        offset / self.granule..(offset + bytes).div_ceil(self.granule)
    }

    /// Notes a read, and gives a write that it is not ordered with.
    #[inline(always)]
    pub fn read(&mut self, offset: usize, bytes: usize, who: &Toucher, clocks: &Clocks) -> Option<Conflict> {
        let range = self.granules(offset, bytes);
        let writes = &self.writes[range.clone()];
        let &first = writes.first()?;
        let recent = |write: u64| write as u32 >= who.floor && write != 0;
        // A wide access mostly reads what one thread wrote at once.
        let found = if writes.iter().all(|&write| write == first) {
            if recent(first) { unordered(Write(first), who, clocks) } else { None }
        } else {
            writes
                .iter()
                .filter(|&&write| recent(write))
                .find_map(|&write| unordered(Write(write), who, clocks))
        };
        if let Some(own) = who.own {
            for reads in &mut self.reads[range] {
                let recent = (*reads >> 32) as u32 >= who.floor && *reads != 0;
                if !recent || *reads >> own & 1 == 0 {
                    *reads = if recent { *reads } else { u64::from(clocks.now()) << 32 } | 1 << own;
                }
            }
        }
        found
    }

    /// Notes a write, and gives an access that it is not ordered with.
    #[inline(always)]
    pub fn write(&mut self, offset: usize, bytes: usize, who: &Toucher, clocks: &Clocks) -> Option<Conflict> {
        let mut found = None;
        for granule in self.granules(offset, bytes) {
            let write = self.writes[granule];
            if write as u32 >= who.floor && write != 0 {
                found = found.or(unordered(Write(write), who, clocks));
            }
            let reads = self.reads[granule];
            if (reads >> 32) as u32 >= who.floor && reads != 0 {
                found = found.or(unordered_reads(reads, who, clocks));
            }
            self.writes[granule] = Write::new(who.warp, who.lane, clocks.now()).0;
            self.reads[granule] = 0;
        }
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
        for granule in self.granules(offset, bytes) {
            let write = self.writes[granule];
            if write as u32 >= who.floor && write != 0 && write & ATOMIC == 0 {
                found = found.or(unordered(Write(write), who, clocks));
            }
            let reads = self.reads[granule];
            if (reads >> 32) as u32 >= who.floor && reads != 0 {
                found = found.or(unordered_reads(reads, who, clocks));
            }
            self.reads[granule] = 0;
            // A warp's plain write that it has told nobody of stays: other warps' atomics race with that as well.
            let plain = write != 0 && write & ATOMIC == 0 && Write(write).at() != PENDING;
            let last = Write(write);
            if !(plain && last.warp() == who.warp && !clocks.is_released(who.warp, last.at())) {
                self.writes[granule] = Write::new(who.warp, who.lane, clocks.now()).0 | ATOMIC;
            }
        }
        found
    }

    /// Marks memory that a copy will write.
    pub fn begin_copy(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) {
        for granule in self.granules(offset, bytes) {
            self.writes[granule] = Write::new(warp, lane, PENDING).0;
            self.reads[granule] = 0;
        }
    }

    /// Notes that a copy has arrived.
    pub fn end_copy(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize, now: u32) {
        for granule in self.granules(offset, bytes) {
            self.writes[granule] = Write::new(warp, lane, now).0;
            self.reads[granule] = 0;
        }
    }

    /// The warps, and the moments, that last wrote these bytes; the copy engine's are left out.
    pub fn writers(
        &self,
        offset: usize,
        bytes: usize,
        clocks: &Clocks,
    ) -> impl Iterator<Item = (usize, u32)> {
        let engine = clocks.engine();
        let mut last = 0;
        self.granules(offset, bytes).filter_map(move |granule| {
            let write = self.writes[granule];
            if write == last || write == 0 {
                return None;
            }
            last = write;
            let write = Write(write);
            (write.warp() != engine).then_some((write.warp(), write.at()))
        })
    }
}

#[inline(never)]
fn unordered(write: Write, who: &Toucher, clocks: &Clocks) -> Option<Conflict> {
    let (warp, lane, at) = (write.warp(), write.lane(), write.at());
    let under_way = at == PENDING;
    let ordered = if warp == who.warp && !under_way {
        lane == who.lane || at < who.met
    } else {
        clocks.seen(who.warp, warp) >= at
    };
    (!ordered).then_some(Conflict { write: true, warp, lane: Some(lane), under_way })
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

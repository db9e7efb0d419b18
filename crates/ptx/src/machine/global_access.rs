//! Global memory as warps access it: which allocation, and what is wrong with that.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::{
    access::{Touch, for_lanes},
    unit::Unit,
    warp::Warp,
};
use crate::{check::FindingKind, memory::Missing};

/// The last moment that the records of global memory know, in 29 bits. What is later is taken for it, and for ordered.
const MOMENT: u32 = (1 << 29) - 1;

/// Blocks that the records know, in 23 bits with none. In those behind them no races in global memory are looked for.
const BLOCKS: u64 = (1 << 23) - 1;

/// Of a write: it was an atomic's.
const ATOMIC: u64 = 1 << 63;

/// Of a read: several threads have.
const MANY: u64 = 1 << 63;

/// Of a read: threads of several blocks have.
const MANY_BLOCKS: u64 = 1 << 62;

const READ_FLAGS: u64 = MANY | MANY_BLOCKS;

/// What to do about a race between blocks, which no barrier of a block helps against.
const BETWEEN_BLOCKS: &str = "blocks do not wait for each other: write from one block alone, or by atomics, or read in a \
                              later launch or behind the barrier of a cooperative grid";

/// Notes a read. Where everything before `floor` is known to the reader, an older record of its block tells nothing more.
#[inline(always)]
fn note_read(record: &AtomicU64, mine: u64, floor: u32) {
    let mut read = record.load(SeqCst);
    loop {
        let known = read & !READ_FLAGS;
        let same_block = known >> 39 == mine >> 39;
        let old = same_block && read & MANY_BLOCKS == 0 && (known as u32 & MOMENT) < floor;
        let new = if read == 0 || old {
            mine
        } else if known >> 29 == mine >> 29 {
            return;
        } else {
            read | MANY | if same_block { 0 } else { MANY_BLOCKS }
        };
        if new == read {
            return;
        }
        match record.compare_exchange_weak(read, new, SeqCst, SeqCst) {
            Ok(_) => return,
            Err(now) => read = now,
        }
    }
}

impl Unit<'_> {
    /// Hands on the lanes whose accesses are allowed, in groups of one allocation.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn global_groups(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: usize,
        touch: Touch,
        mut each: impl FnMut(&mut Self, &mut Warp, usize, u32),
    ) {
        if self.launched.timed {
            self.time_global(addresses, mask, bytes as u64, touch);
        }
        // Vectors of 32 bytes are two accesses to the checks.
        let align = bytes.min(32) as u64;
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            let views = &self.launched.views;
            let contains = |view: usize, address: u64| {
                let allocation = views[view].allocation;
                !allocation.freed && allocation.contains(address, bytes)
            };
            let view = if warp.last_view < views.len() && contains(warp.last_view, addresses[lane]) {
                warp.last_view
            } else {
                match self.launched.global.find(addresses[lane], bytes) {
                    Ok(view) => view,
                    Err(missing) => {
                        self.report_missing(warp, pc, lane as u32, addresses[lane], bytes, touch, missing);
                        rest &= !(1 << lane);
                        continue;
                    }
                }
            };
            warp.last_view = view;
            let allocation = views[view].allocation;
            let (base, end) = (allocation.base, allocation.base + allocation.bytes as u64 - bytes as u64);
            let mut group = 0u32;
            let mut low = 0;
            for (lane, &address) in addresses.iter().enumerate() {
                let inside = address >= base && address <= end;
                group |= u32::from(inside) << lane;
                low |= if inside { address } else { 0 };
            }
            group &= rest;
            rest &= !group;
            if low & (align - 1) != 0 {
                group = self.aligned_lanes(warp, pc, addresses, group, align);
            }
            if touch.reads() && !self.launched.timed {
                self.check_written(warp, pc, view, addresses, group, bytes);
            }
            if self.launched.races {
                self.check_races(warp, pc, view, addresses, group, bytes, touch);
            }
            each(self, warp, view, group);
        }
    }

    /// The lanes of a group whose addresses are aligned; the others are reported.
    fn aligned_lanes(&mut self, warp: &Warp, pc: u32, addresses: &[u64; 32], group: u32, align: u64) -> u32 {
        let mut kept = group;
        for_lanes(group, |lane| {
            let address = addresses[lane];
            if address & (align - 1) != 0 {
                kept &= !(1 << lane);
                self.report(warp, FindingKind::Misaligned, pc, lane as u32, Some(address), || {
                    format!("an access of {align} bytes is {} bytes off", address & (align - 1))
                });
            }
        });
        kept
    }

    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    pub(super) fn report_missing(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: u32,
        address: u64,
        bytes: usize,
        touch: Touch,
        missing: Missing,
    ) {
        let does = if touch.reads() { "read" } else { "written" };
        let kind = match missing {
            Missing::Freed { .. } => FindingKind::UseAfterFree,
            _ => FindingKind::OutOfBounds,
        };
        self.report(warp, kind, pc, lane, Some(address), || match missing {
            Missing::Freed { bytes: size } => {
                format!("{bytes} bytes are {does} in an allocation of {size} bytes that was freed")
            }
            Missing::Outside { base, bytes: size } if address < base => {
                format!("{bytes} bytes are {does}, {} bytes before an allocation of {size}", base - address)
            }
            Missing::Outside { base, bytes: size } => format!(
                "{bytes} bytes are {does}, {} bytes behind the begin of an allocation of {size}",
                address - base
            ),
            Missing::Nowhere => format!("{bytes} bytes are {does} where nothing was ever allocated"),
        });
    }

    fn check_written(
        &mut self,
        warp: &Warp,
        pc: u32,
        view: usize,
        addresses: &[u64; 32],
        group: u32,
        bytes: usize,
    ) {
        let allocation = self.launched.views[view].allocation;
        for_lanes(group, |lane| {
            let offset = (addresses[lane] - allocation.base) as usize;
            if !allocation.is_written(offset, bytes) {
                self.report(warp, FindingKind::Uninitialised, pc, lane as u32, Some(addresses[lane]), || {
                    format!(
                        "{bytes} bytes are read at {offset} of an allocation of {}, which nobody wrote",
                        allocation.bytes
                    )
                });
            }
        });
    }

    /// Looks for accesses of other threads that nothing orders with these. A record is a block and one, a warp, a lane and a
    /// moment; of writes also whether it was an atomic's, of reads whether there are several.
    ///
    /// Blocks run on several threads of the host, which share the records: who writes puts its record in place before it looks
    /// for readers, and who reads before it looks for a writer, so that one of the two sees the other.
    #[allow(clippy::too_many_arguments)]
    fn check_races(
        &mut self,
        warp: &Warp,
        pc: u32,
        view: usize,
        addresses: &[u64; 32],
        group: u32,
        bytes: usize,
        touch: Touch,
    ) {
        let block = self.blocks[warp.block].number;
        if block >= BLOCKS || matches!(touch, Touch::StrongRead | Touch::StrongWrite) {
            return;
        }
        let launched = self.launched;
        let view = &launched.views[view];
        let base = view.allocation.base;
        let now = u64::from(self.clocks.now().min(MOMENT));
        let own = (block + 1) << 39 | (warp.number as u64) << 34 | now;
        let atomic = if touch.is_atomic() { ATOMIC } else { 0 };
        for_lanes(group, |lane| {
            let offset = (addresses[lane] - base) as usize;
            let mine = own | (lane as u64) << 29;
            for piece in view.granules(offset, bytes) {
                let write = if touch == Touch::Read {
                    note_read(&view.reads[piece], mine, warp.floor);
                    view.writes[piece].load(SeqCst)
                } else {
                    let write = match view.writes[piece].load(SeqCst) {
                        write if touch.is_atomic() && self.is_untold(warp, write, mine) => write,
                        _ => view.writes[piece].swap(mine | atomic, SeqCst),
                    };
                    let read = view.reads[piece].load(SeqCst);
                    if read != 0 && self.read_races(warp, read, mine) {
                        self.report_race(warp, pc, lane, addresses[lane], touch, "read", read & !READ_FLAGS);
                    }
                    write
                };
                // Atomics are ordered among each other, each place for itself.
                if write & atomic == 0 && write != 0 && self.races_with(warp, write & !ATOMIC, mine) {
                    let other = if write & ATOMIC == 0 { "written" } else { "changed by an atomic" };
                    self.report_race(warp, pc, lane, addresses[lane], touch, other, write & !ATOMIC);
                }
            }
        });
    }

    /// Whether a record is a plain write of the warp that it has told nobody of. An atomic of the same warp leaves that in its
    /// place: other warps' atomics race with it as well.
    fn is_untold(&self, warp: &Warp, record: u64, mine: u64) -> bool {
        record != 0
            && record & ATOMIC == 0
            && record >> 34 == mine >> 34
            && !self.clocks.is_released(warp.id, record as u32 & MOMENT)
    }

    fn races_with(&self, warp: &Warp, record: u64, mine: u64) -> bool {
        if record >> 29 == mine >> 29 {
            return false;
        }
        let block = (record >> 39) - 1;
        let here = &self.blocks[warp.block];
        if block != here.number {
            // Blocks of a cluster can wait for each other, and any blocks can by atomics.
            let cluster = self.blocks.len() > 1 && self.blocks.iter().any(|b| b.number == block);
            return !here.acquired && !cluster;
        }
        let other = (record >> 34 & 0x1f) as usize;
        let at = record as u32 & MOMENT;
        if other == warp.number {
            return at >= warp.met;
        }
        let per_block = self.launched.geometry.warps();
        self.clocks.seen(warp.id, warp.block * per_block + other) < at
    }

    /// Whether a write races with reads. Of several within a block the first is known, and that the others came no earlier: they
    /// are compared by it.
    fn read_races(&self, warp: &Warp, record: u64, mine: u64) -> bool {
        let here = &self.blocks[warp.block];
        if record & MANY_BLOCKS != 0 {
            return !here.acquired && self.blocks.len() == 1;
        }
        let first = record & !READ_FLAGS;
        if record & MANY != 0 && first >> 29 == mine >> 29 {
            // The writer read first. Whoever else did is not known: it is a race where nobody could have told the writer since.
            let at = first as u32 & MOMENT;
            let per_block = self.launched.geometry.warps();
            let others = (warp.block * per_block..(warp.block + 1) * per_block).filter(|&id| id != warp.id);
            return at >= warp.met && others.into_iter().all(|id| self.clocks.seen(warp.id, id) < at);
        }
        self.races_with(warp, first, mine)
    }

    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    fn report_race(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        address: u64,
        touch: Touch,
        other: &str,
        record: u64,
    ) {
        let block = (record >> 39) - 1;
        let thread = (record >> 34 & 0x1f) * 32 + (record >> 29 & 0x1f);
        let does = match touch {
            Touch::Read | Touch::StrongRead => "reads",
            Touch::Write | Touch::StrongWrite => "writes",
            Touch::Atomic | Touch::AtomicWrite => "changes by an atomic",
        };
        let here = self.blocks[warp.block].number;
        self.report(warp, FindingKind::Race, pc, lane as u32, Some(address), || {
            let whose = if block == here { "the same block".to_owned() } else { format!("block {block}") };
            format!(
                "the thread {does} what thread {thread} of {whose} has {other}, and nothing orders the two"
            )
        });
        if block != here {
            self.findings.advise(FindingKind::Race, pc, BETWEEN_BLOCKS);
        }
    }
}

//! Loads, stores and atomics, with their checks.

use std::sync::atomic::Ordering::Relaxed;

use super::{step::Step, unit::Unit, warp::Warp};
use crate::{
    check::FindingKind,
    counters,
    decode::SHARED_START,
    isa::{Access, Atomic, Class, Memory, Op, Operand, Type},
    memory::{
        CLUSTER_SHIFT, Conflict, LOCAL_WINDOW, Missing, PARAMETER_WINDOW, SHARED_WINDOW, Toucher,
        WINDOW_BYTES,
    },
    numeric,
};

/// What an access does to memory, for the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Write,
    /// Reads and writes at once; others may do the same.
    Atomic,
    /// A read or write that others are expected beside.
    StrongRead,
    StrongWrite,
}

impl Touch {
    fn reads(self) -> bool {
        !matches!(self, Touch::Write | Touch::StrongWrite)
    }
}

/// A place in shared memory: the block of the cluster and the offset in its memory.
pub(super) type SharedPlace = (usize, usize);

impl Unit<'_> {
    /// The addresses of an access.
    pub(super) fn addresses(&self, warp: &Warp, base: Operand, offset: i64) -> [u64; 32] {
        let constants = &self.launched.constants;
        match base.class() {
            Class::Long => {
                warp.registers.long(constants, base).map(|address| address.wrapping_add(offset as u64))
            }
            _ => warp
                .registers
                .word(constants, base)
                .map(|a| u64::from(a).wrapping_add(offset as u64) & 0xffff_ffff),
        }
    }

    /// Which space generic addresses are of, and the addresses in it. Lanes are handed on in groups of one space.
    fn by_space(
        &mut self,
        warp: &mut Warp,
        memory: Memory,
        addresses: &[u64; 32],
        mask: u32,
        mut each: impl FnMut(&mut Self, &mut Warp, Memory, &[u64; 32], u32),
    ) {
        if memory != Memory::Generic {
            return each(self, warp, memory, addresses, mask);
        }
        let space = |address: u64| match address {
            _ if address.wrapping_sub(SHARED_WINDOW) < WINDOW_BYTES => (Memory::SharedCluster, SHARED_WINDOW),
            _ if address.wrapping_sub(LOCAL_WINDOW) < WINDOW_BYTES => (Memory::Local, LOCAL_WINDOW),
            _ if address.wrapping_sub(PARAMETER_WINDOW) < WINDOW_BYTES => {
                (Memory::Parameter, PARAMETER_WINDOW)
            }
            _ => (Memory::Global, 0),
        };
        let mut rest = mask;
        while rest != 0 {
            let (memory, window) = space(addresses[rest.trailing_zeros() as usize]);
            let group = (0..32).filter(|&lane| rest >> lane & 1 == 1 && space(addresses[lane]).0 == memory);
            let group = group.fold(0u32, |all, lane| all | 1 << lane);
            let inner = addresses.map(|address| address.wrapping_sub(window));
            each(self, warp, memory, &inner, group);
            rest &= !group;
        }
    }

    pub(super) fn load(&mut self, warp: &mut Warp, step: Step<'_>, access: Access) {
        let (results, address) = step.operands.split_at(access.lanes as usize);
        if access.memory == Memory::Parameter && address[0].is_constant() {
            return self.load_argument(warp, step, access, address[0]);
        }
        let addresses = self.addresses(warp, address[0], access.offset);
        let touch = if access.strong { Touch::StrongRead } else { Touch::Read };
        let bytes = access.kind.bytes();
        let total = bytes * access.lanes as usize;
        if access.ordering {
            self.blocks[warp.block].acquired = true;
        }
        self.by_space(warp, access.memory, &addresses, step.mask, |unit, warp, memory, addresses, mask| {
            match memory {
                Memory::Global | Memory::Constant | Memory::Generic => {
                    unit.global_groups(
                        warp,
                        step.pc,
                        addresses,
                        mask,
                        total,
                        touch,
                        |unit, warp, view, group| {
                            let allocation = unit.launched.views[view].allocation;
                            let base = allocation.base;
                            for (i, &result) in
                                results.iter().enumerate().filter(|(_, result)| !result.is_none())
                            {
                                for_lanes(group, |lane| {
                                    let offset = (addresses[lane] - base) as usize + i * bytes;
                                    set_lane(
                                        warp,
                                        result,
                                        lane,
                                        access.kind,
                                        allocation.load(offset, bytes.min(8)),
                                    );
                                });
                            }
                        },
                    );
                }
                Memory::Shared | Memory::SharedCluster => {
                    let mut places = [(0, 0); 32];
                    let ok = unit.shared_places(warp, step.pc, addresses, mask, total, touch, &mut places);
                    unit.count_shared(addresses, mask, total, false);
                    for (i, &result) in results.iter().enumerate().filter(|(_, result)| !result.is_none()) {
                        for_lanes(ok, |lane| {
                            let (block, offset) = places[lane];
                            let value = unit.blocks[block].shared.load(offset + i * bytes, bytes);
                            set_lane(warp, result, lane, access.kind, value);
                        });
                    }
                }
                Memory::Local | Memory::Parameter => {
                    for_lanes(mask, |lane| {
                        for (i, &result) in results.iter().enumerate().filter(|(_, result)| !result.is_none())
                        {
                            let at = addresses[lane] + (i * bytes) as u64;
                            let value = if memory == Memory::Local {
                                unit.local(warp, step.pc, lane, at, bytes, None)
                            } else {
                                unit.argument(warp, step.pc, lane, at, bytes)
                            };
                            set_lane(warp, result, lane, access.kind, value);
                        }
                    });
                }
            }
        });
    }

    /// Arguments are the same for all lanes.
    fn load_argument(&mut self, warp: &mut Warp, step: Step<'_>, access: Access, address: Operand) {
        let bytes = access.kind.bytes();
        let first =
            warp.registers.long(&self.launched.constants, address)[0].wrapping_add(access.offset as u64);
        for i in 0..access.lanes as usize {
            let result = step.operands[i];
            if result.is_none() {
                continue;
            }
            let value = self.argument(warp, step.pc, 0, first + (i * bytes) as u64, bytes);
            let value = widened(access.kind, value);
            match result.class() {
                Class::Long => warp.registers.set_long(result, &[value; 32], step.mask),
                _ => warp.registers.set_word(result, &[value as u32; 32], step.mask),
            }
        }
    }

    fn argument(&mut self, warp: &Warp, pc: u32, lane: usize, address: u64, bytes: usize) -> u64 {
        let there = usize::try_from(address)
            .ok()
            .and_then(|at| self.launched.parameters.get(at..at.checked_add(bytes)?));
        match there {
            Some(value) => value.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
            None => {
                let size = self.launched.parameters.len();
                self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(address), || {
                    format!("{bytes} bytes are read at {address} of the arguments, which have {size}")
                });
                0
            }
        }
    }

    /// Reads local memory, or writes it.
    fn local(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        value: Option<u64>,
    ) -> u64 {
        let size = self.launched.program.local_bytes;
        if address.checked_add(bytes as u64).is_none_or(|end| end > size as u64) {
            self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(address), || {
                format!("{bytes} bytes are accessed at {address} of local memory, which has {size}")
            });
            return 0;
        }
        let at = lane * size + address as usize;
        let place = &mut warp.local[at..at + bytes];
        match value {
            Some(value) => {
                place.copy_from_slice(&value.to_le_bytes()[..bytes]);
                value
            }
            None => place.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
        }
    }

    pub(super) fn store(&mut self, warp: &mut Warp, step: Step<'_>, access: Access) {
        let (address, values) = step.operands.split_at(1);
        let addresses = self.addresses(warp, address[0], access.offset);
        let touch = if access.strong { Touch::StrongWrite } else { Touch::Write };
        let bytes = access.kind.bytes();
        let total = bytes * access.lanes as usize;
        self.by_space(warp, access.memory, &addresses, step.mask, |unit, warp, memory, addresses, mask| {
            match memory {
                Memory::Global | Memory::Generic | Memory::Constant => {
                    unit.global_groups(
                        warp,
                        step.pc,
                        addresses,
                        mask,
                        total,
                        touch,
                        |unit, warp, view, group| {
                            let allocation = unit.launched.views[view].allocation;
                            let base = allocation.base;
                            for (i, &value) in values.iter().enumerate() {
                                for_lanes(group, |lane| {
                                    let offset = (addresses[lane] - base) as usize + i * bytes;
                                    allocation.store(offset, bytes.min(8), unit.lane(warp, value, lane));
                                });
                            }
                            for_lanes(group, |lane| {
                                allocation.mark_written((addresses[lane] - base) as usize, total)
                            });
                        },
                    );
                }
                Memory::Shared | Memory::SharedCluster => {
                    let mut places = [(0, 0); 32];
                    let ok = unit.shared_places(warp, step.pc, addresses, mask, total, touch, &mut places);
                    unit.count_shared(addresses, mask, total, true);
                    for (i, &value) in values.iter().enumerate() {
                        for_lanes(ok, |lane| {
                            let (block, offset) = places[lane];
                            let value = unit.lane(warp, value, lane);
                            unit.blocks[block].shared.store(offset + i * bytes, bytes, value);
                        });
                    }
                }
                Memory::Local => {
                    for_lanes(mask, |lane| {
                        for (i, &value) in values.iter().enumerate() {
                            let value = unit.lane(warp, value, lane);
                            let at = addresses[lane] + (i * bytes) as u64;
                            unit.local(warp, step.pc, lane, at, bytes, Some(value));
                        }
                    });
                }
                Memory::Parameter => {
                    let lane = mask.trailing_zeros();
                    let address = addresses[lane as usize];
                    unit.report(warp, FindingKind::OutOfBounds, step.pc, lane, Some(address), || {
                        "the kernel writes to its arguments".to_owned()
                    });
                }
            }
        });
    }

    /// One lane of an operand.
    #[inline(always)]
    pub(super) fn lane(&self, warp: &Warp, operand: Operand, lane: usize) -> u64 {
        match operand.class() {
            Class::Long => warp.registers.long(&self.launched.constants, operand)[lane],
            _ => u64::from(warp.registers.word(&self.launched.constants, operand)[lane]),
        }
    }

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
        let traffic = match touch {
            Touch::Write | Touch::StrongWrite => &mut self.counters.global_stores,
            _ => &mut self.counters.global_loads,
        };
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        traffic.requests += 1;
        traffic.transactions += counters::sectors(addresses, mask, bytes as u64);
        traffic.ideal_transactions += asked.div_ceil(32);
        traffic.bytes += asked;
        // Vectors of 32 bytes are two accesses to the checks.
        let align = bytes.min(32) as u64;
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            let views = &self.launched.views;
            let contains = |view: usize, address: u64| {
                let allocation = views[view].allocation;
                !allocation.freed
                    && address >= allocation.base
                    && address + bytes as u64 <= allocation.base + allocation.bytes as u64
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
            if touch.reads() {
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
    /// moment; of reads also whether there are several.
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
        let launched = self.launched;
        let view = &launched.views[view];
        let (granule, base) = (view.granule, view.allocation.base);
        let block = self.blocks[warp.block].number;
        let now = u64::from(self.clocks.now() & MOMENT);
        let own = (u64::from(block) + 1) << 39 | (warp.number as u64) << 34 | now;
        let weak = matches!(touch, Touch::Read | Touch::Write);
        for_lanes(group, |lane| {
            let offset = (addresses[lane] - base) as usize;
            let mine = own | (lane as u64) << 29;
            for piece in offset / granule..(offset + bytes).div_ceil(granule) {
                let write = view.writes[piece].load(Relaxed);
                if write != 0 && weak && write >> 29 != mine >> 29 && self.races_with(warp, write, lane) {
                    self.report_race(warp, pc, lane, addresses[lane], touch, "written", write);
                }
                match touch {
                    Touch::Read => {
                        let read = view.reads[piece].load(Relaxed);
                        if read == 0 {
                            view.reads[piece].store(mine, Relaxed);
                        } else if read & (MANY | MANY_BLOCKS) != MANY | MANY_BLOCKS
                            && read >> 29 != mine >> 29
                        {
                            let other_block = (read & !(MANY | MANY_BLOCKS)) >> 39 != mine >> 39;
                            let flags = MANY | if other_block { MANY_BLOCKS } else { 0 };
                            view.reads[piece].store(read | flags, Relaxed);
                        }
                    }
                    Touch::Write => {
                        let read = view.reads[piece].load(Relaxed);
                        if read != 0 && read >> 29 != mine >> 29 && self.read_races(warp, read, lane) {
                            self.report_race(warp, pc, lane, addresses[lane], touch, "read", read);
                        }
                        view.writes[piece].store(mine, Relaxed);
                    }
                    Touch::Atomic | Touch::StrongRead | Touch::StrongWrite => {}
                }
            }
        });
    }

    fn races_with(&self, warp: &Warp, record: u64, lane: usize) -> bool {
        let block = (record >> 39) - 1;
        let here = &self.blocks[warp.block];
        if block != u64::from(here.number) {
            // Blocks of a cluster can wait for each other, and any blocks can by atomics.
            let cluster = self.blocks.len() > 1 && self.blocks.iter().any(|b| u64::from(b.number) == block);
            return !here.acquired && !cluster;
        }
        let other = (record >> 34 & 0x1f) as usize;
        let at = record as u32 & MOMENT;
        if other == warp.number {
            return (record >> 29 & 0x1f) as usize != lane && at >= warp.met;
        }
        let per_block = self.launched.geometry.warps();
        self.clocks.seen(warp.id, warp.block * per_block + other) < at
    }

    /// Whether a write races with reads: several are only compared by the first of them, and not at all where warps may be
    /// ordered by other means than barriers of the block.
    fn read_races(&self, warp: &Warp, record: u64, lane: usize) -> bool {
        if record & MANY_BLOCKS != 0 {
            return !self.blocks[warp.block].acquired && self.blocks.len() == 1;
        }
        let clean = record & !MANY;
        let same_block = (clean >> 39) - 1 == u64::from(self.blocks[warp.block].number);
        if record & MANY != 0 && same_block {
            return false;
        }
        self.races_with(warp, clean, lane)
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
        let record = record & !(MANY | MANY_BLOCKS);
        let block = (record >> 39) - 1;
        let thread = (record >> 34 & 0x1f) * 32 + (record >> 29 & 0x1f);
        let does = if touch.reads() { "reads" } else { "writes" };
        let here = self.blocks[warp.block].number;
        self.report(warp, FindingKind::Race, pc, lane as u32, Some(address), || {
            let whose =
                if block == u64::from(here) { "the same block".to_owned() } else { format!("block {block}") };
            format!(
                "the thread {does} what thread {thread} of {whose} has {other}, and nothing orders the two"
            )
        });
    }

    /// Where addresses of shared memory lie, for the lanes whose accesses are allowed.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn shared_places(
        &mut self,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: usize,
        touch: Touch,
        places: &mut [SharedPlace; 32],
    ) -> u32 {
        let mut ok = 0;
        let mut who = self.toucher(warp);
        for_lanes(mask, |lane| {
            let Some((block, offset)) = self.shared_place(warp, pc, lane, addresses[lane], bytes, touch)
            else {
                return;
            };
            places[lane] = (block, offset);
            ok |= 1 << lane;
            who.lane = lane;
            who.own = (block == warp.block).then_some(warp.number as u32);
            let shared = &mut self.blocks[block].shared;
            let conflict = match touch {
                Touch::Read => shared.read(offset, bytes, &who, &self.clocks),
                Touch::Write => shared.write(offset, bytes, &who, &self.clocks),
                Touch::Atomic | Touch::StrongRead | Touch::StrongWrite => None,
            };
            let unwritten = touch.reads() && !shared.is_written(offset, bytes);
            // What a race leaves unwritten is the race's doing.
            if let Some(conflict) = conflict {
                self.report_shared_race(warp, pc, lane, addresses[lane], touch, conflict);
            } else if unwritten {
                self.report(warp, FindingKind::Uninitialised, pc, lane as u32, Some(addresses[lane]), || {
                    format!("{bytes} bytes of shared memory are read that nobody wrote")
                });
            }
        });
        ok
    }

    /// Who a warp is to shared memory.
    pub(super) fn toucher(&self, warp: &Warp) -> Toucher {
        Toucher { warp: warp.id, lane: 0, own: Some(warp.number as u32), floor: warp.floor, met: warp.met }
    }

    /// Where an address of shared memory lies, if the access is allowed.
    #[inline(always)]
    pub(super) fn shared_place(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        address: u64,
        bytes: usize,
        touch: Touch,
    ) -> Option<SharedPlace> {
        let rank = (address >> CLUSTER_SHIFT) as usize;
        let block = if rank == 0 { warp.block } else { rank - 1 };
        let offset = (address & ((1 << CLUSTER_SHIFT) - 1)).wrapping_sub(SHARED_START) as usize;
        let size = self.blocks.get(block).map_or(0, |block| block.shared.len());
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            let does = if touch.reads() { "read" } else { "written" };
            self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(address), || {
                format!("{bytes} bytes are {does} at {} of shared memory, which has {size}", offset as i64)
            });
            return None;
        }
        if offset & (bytes.next_power_of_two().min(16) - 1) != 0 {
            self.report(warp, FindingKind::Misaligned, pc, lane as u32, Some(address), || {
                format!("an access of {bytes} bytes to shared memory is {} bytes off", offset % bytes)
            });
            return None;
        }
        Some((block, offset))
    }

    #[inline(never)]
    pub(super) fn report_shared_race(
        &mut self,
        warp: &Warp,
        pc: u32,
        lane: usize,
        address: u64,
        touch: Touch,
        conflict: Conflict,
    ) {
        let engine = self.clocks.engine();
        let per_block = self.launched.geometry.warps();
        self.report(warp, FindingKind::Race, pc, lane as u32, Some(address), || {
            let does = if touch.reads() { "reads" } else { "writes" };
            let who = match conflict {
                Conflict { warp, .. } if warp == engine => "the copy engine".to_owned(),
                Conflict { warp, lane: Some(lane), .. } => format!("thread {}", warp % per_block * 32 + lane),
                Conflict { warp, .. } => format!("warp {}", warp % per_block),
            };
            match conflict {
                Conflict { under_way: true, .. } => {
                    format!("the thread {does} shared memory that a copy started by {who} has not arrived in: nobody waited for it")
                }
                Conflict { write: true, .. } => {
                    format!("the thread {does} shared memory that {who} has written, and nothing orders the two")
                }
                _ => format!("the thread {does} shared memory that {who} has read, and nothing orders the two"),
            }
        });
    }

    fn count_shared(&mut self, addresses: &[u64; 32], mask: u32, bytes: usize, store: bool) {
        let traffic = if store { &mut self.counters.shared_stores } else { &mut self.counters.shared_loads };
        let asked = u64::from(mask.count_ones()) * bytes as u64;
        traffic.requests += 1;
        traffic.transactions += counters::bank_rounds(addresses, mask, bytes as u64);
        traffic.ideal_transactions += asked.div_ceil(128);
        traffic.bytes += asked;
    }

    pub(super) fn atomic(&mut self, warp: &mut Warp, step: Step<'_>) {
        let Op::Atomic { memory, op, kind, offset, reduction } = step.instruction.op else { return };
        let at = usize::from(!reduction);
        let operands = &step.operands[at..];
        let result = if reduction { Operand::NONE } else { step.operands[0] };
        let addresses = self.addresses(warp, operands[0], offset);
        let bytes = kind.bytes();
        self.counters.atomics += u64::from(step.mask.count_ones());
        self.blocks[warp.block].acquired = true;
        self.by_space(
            warp,
            memory,
            &addresses,
            step.mask,
            |unit, warp, memory, addresses, mask| match memory {
                Memory::Shared | Memory::SharedCluster => {
                    let mut places = [(0, 0); 32];
                    let ok =
                        unit.shared_places(warp, step.pc, addresses, mask, bytes, Touch::Atomic, &mut places);
                    for_lanes(ok, |lane| {
                        let (block, offset) = places[lane];
                        let value = unit.lane(warp, operands[1], lane);
                        let other = operands.get(2).map_or(0, |&other| unit.lane(warp, other, lane));
                        let old = unit.blocks[block].shared.load(offset, bytes);
                        let new = combine(op, kind, old, value, other);
                        unit.blocks[block].shared.store(offset, bytes, new);
                        if !result.is_none() {
                            set_lane(warp, result, lane, kind, old);
                        }
                    });
                }
                _ => unit.global_groups(
                    warp,
                    step.pc,
                    addresses,
                    mask,
                    bytes,
                    Touch::Atomic,
                    |unit, warp, view, group| {
                        let allocation = unit.launched.views[view].allocation;
                        for_lanes(group, |lane| {
                            let offset = (addresses[lane] - allocation.base) as usize;
                            let value = unit.lane(warp, operands[1], lane);
                            let other = operands.get(2).map_or(0, |&other| unit.lane(warp, other, lane));
                            let old =
                                allocation.update(offset, bytes, |old| combine(op, kind, old, value, other));
                            if !result.is_none() {
                                set_lane(warp, result, lane, kind, old);
                            }
                        });
                    },
                ),
            },
        );
    }

    pub(super) fn make_generic(&mut self, warp: &mut Warp, step: Step<'_>, memory: Memory) {
        self.map_addresses(warp, step, |address| address.wrapping_add(window(memory)));
    }

    pub(super) fn make_specific(&mut self, warp: &mut Warp, step: Step<'_>, memory: Memory) {
        self.map_addresses(warp, step, |address| address.wrapping_sub(window(memory)));
    }

    fn map_addresses(&mut self, warp: &mut Warp, step: Step<'_>, map: impl Fn(u64) -> u64) {
        let out = warp.registers.long(&self.launched.constants, step.operands[1]).map(map);
        warp.registers.set_long(step.operands[0], &out, step.mask);
    }

    pub(super) fn is_space(&mut self, warp: &mut Warp, step: Step<'_>, memory: Memory) {
        let addresses = warp.registers.long(&self.launched.constants, step.operands[1]);
        let within = |address: u64, memory| address.wrapping_sub(window(memory)) < WINDOW_BYTES;
        let holds = |&address: &u64| match memory {
            Memory::Global => ![Memory::Shared, Memory::Local, Memory::Parameter]
                .iter()
                .any(|&other| within(address, other)),
            Memory::Constant => false,
            _ => within(address, memory),
        };
        let mask = addresses
            .iter()
            .enumerate()
            .fold(0, |all, (lane, address)| all | u32::from(holds(address)) << lane);
        warp.registers.set_predicate(step.operands[0], mask, step.mask);
    }

    /// The same place in the shared memory of another block.
    pub(super) fn map_shared(&mut self, warp: &mut Warp, step: Step<'_>, generic: bool) {
        let window = if generic { SHARED_WINDOW } else { 0 };
        let ranks = *warp.registers.word(&self.launched.constants, step.operands[2]);
        let d = step.operands[0];
        for_lanes(step.mask, |lane| {
            let own =
                self.lane(warp, step.operands[1], lane).wrapping_sub(window) & ((1 << CLUSTER_SHIFT) - 1);
            let mapped = (u64::from(ranks[lane]) + 1) << CLUSTER_SHIFT | own;
            set_lane(warp, d, lane, Type::B64, mapped.wrapping_add(window));
        });
    }

    pub(super) fn cluster_rank_of(&mut self, warp: &mut Warp, step: Step<'_>, generic: bool) {
        let window = if generic { SHARED_WINDOW } else { 0 };
        for_lanes(step.mask, |lane| {
            let rank = self.lane(warp, step.operands[1], lane).wrapping_sub(window) >> CLUSTER_SHIFT;
            let rank = if rank == 0 { warp.block as u64 } else { rank - 1 };
            set_lane(warp, step.operands[0], lane, Type::B32, rank);
        });
    }
}

/// Moments in the records of global memory have 29 bits.
const MOMENT: u32 = (1 << 29) - 1;
/// Several threads have read.
const MANY: u64 = 1 << 63;
/// Threads of several blocks have.
const MANY_BLOCKS: u64 = 1 << 62;

/// Where a space begins among generic addresses.
fn window(memory: Memory) -> u64 {
    match memory {
        Memory::Shared | Memory::SharedCluster => SHARED_WINDOW,
        Memory::Local => LOCAL_WINDOW,
        Memory::Parameter => PARAMETER_WINDOW,
        Memory::Global | Memory::Constant | Memory::Generic => 0,
    }
}

/// Calls for every lane of a mask.
#[inline(always)]
pub(super) fn for_lanes(mask: u32, mut each: impl FnMut(usize)) {
    if mask == u32::MAX {
        (0..32).for_each(each);
        return;
    }
    let mut rest = mask;
    while rest != 0 {
        each(rest.trailing_zeros() as usize);
        rest &= rest - 1;
    }
}

/// A loaded value as its type has it in a register.
#[inline(always)]
fn widened(kind: Type, value: u64) -> u64 {
    match kind {
        Type::S8 => i64::from(value as i8) as u64,
        Type::S16 => i64::from(value as i16) as u64,
        Type::S32 => i64::from(value as i32) as u64,
        _ => value,
    }
}

#[inline(always)]
pub(super) fn set_lane(warp: &mut Warp, result: Operand, lane: usize, kind: Type, value: u64) {
    let value = widened(kind, value);
    match result.class() {
        Class::Long => warp.registers.long_mut(result)[lane] = value,
        _ => warp.registers.word_mut(result)[lane] = value as u32,
    }
}

/// What an atomic leaves in memory.
pub(super) fn combine(op: Atomic, kind: Type, old: u64, value: u64, other: u64) -> u64 {
    let (single, double) = (|x: u64| f32::from_bits(x as u32), f64::from_bits);
    let pair = |f: &dyn Fn(u32, u32) -> u32| {
        let (a, b) = (old as u32, value as u32);
        u64::from(f(a & 0xffff, b & 0xffff) | f(a >> 16, b >> 16) << 16)
    };
    let f16 = |a, b| numeric::f16_bits(numeric::from_f16(a) + numeric::from_f16(b));
    let bf16 = |a, b| numeric::bf16_bits(numeric::from_bf16(a) + numeric::from_bf16(b));
    match (op, kind) {
        (Atomic::Add, Type::F32) => u64::from((single(old) + single(value)).to_bits()),
        (Atomic::Add, Type::F64) => (double(old) + double(value)).to_bits(),
        (Atomic::Add, Type::F16x2) => pair(&f16),
        (Atomic::Add, Type::Bf16x2) => pair(&bf16),
        (Atomic::Add, Type::F16) => u64::from(f16(old as u32 & 0xffff, value as u32 & 0xffff)),
        (Atomic::Add, Type::Bf16) => u64::from(bf16(old as u32 & 0xffff, value as u32 & 0xffff)),
        (Atomic::Add, _) => old.wrapping_add(value),
        (Atomic::Min, Type::S32) => (old as i32).min(value as i32) as u32 as u64,
        (Atomic::Max, Type::S32) => (old as i32).max(value as i32) as u32 as u64,
        (Atomic::Min, Type::S64) => (old as i64).min(value as i64) as u64,
        (Atomic::Max, Type::S64) => (old as i64).max(value as i64) as u64,
        (Atomic::Min, _) => old.min(value),
        (Atomic::Max, _) => old.max(value),
        (Atomic::And, _) => old & value,
        (Atomic::Or, _) => old | value,
        (Atomic::Xor, _) => old ^ value,
        (Atomic::Exchange, _) => value,
        (Atomic::CompareAndSwap, _) => {
            if old == value {
                other
            } else {
                old
            }
        }
        (Atomic::Increment, _) => {
            if old >= value {
                0
            } else {
                old + 1
            }
        }
        (Atomic::Decrement, _) => {
            if old == 0 || old > value {
                value
            } else {
                old - 1
            }
        }
    }
}

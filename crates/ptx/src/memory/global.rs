//! Global memory: allocations that many blocks access concurrently.

use std::alloc::{Layout, alloc_zeroed};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::GLOBAL_START;
use crate::error::PtxError;

/// The alignment of allocations, as the driver has it.
const ALIGNMENT: u64 = 256;

/// The smallest gap between allocations, so that an index slightly out of bounds hits nothing.
const GAP: u64 = 4096;

/// An address further than this from the start of an allocation is unrelated to it: a null pointer with a negative index, or a number
/// that is not a pointer.
const FAR: u64 = 1 << 44;

/// An allocation. Addresses are never reused, so that a stale one is recognised.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub bytes: usize,
    pub freed: bool,
    data: Box<[AtomicU64]>,
    /// Which bytes were written.
    written: Box<[AtomicU64]>,
    /// Whether all bytes were written.
    whole: AtomicBool,
    /// Whether it has no memory: it reads as zeros, and writes are ignored.
    reserved: bool,
}

/// Zeros, which cost nothing until they are accessed; `None` if the host does not have the memory.
fn zeros(count: usize) -> Option<Box<[AtomicU64]>> {
    if count == 0 {
        return Some(Box::default());
    }
    let layout = Layout::array::<AtomicU64>(count).ok()?;
    // SAFETY: the layout is not empty. The allocation has one owner and the layout that a box of this length frees, and zeros are
    // valid values. (A vector's reserve would fail in the same way, but filling it would touch every page.)
    unsafe {
        let first = alloc_zeroed(layout).cast::<AtomicU64>();
        (!first.is_null()).then(|| Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, count)))
    }
}

macro_rules! sized {
    ($self:ident, $memory:ident, $offset:ident, $bytes:ident, |$cell:ident| $then:expr) => {{
        assert!($offset + $bytes <= $self.$memory.len() * 8 && $offset % $bytes == 0);
        // SAFETY: the access is within the memory, which is aligned to 8 bytes, and the offset is aligned to the access. Every access
        // is atomic. Accesses of different sizes overlap only if a kernel races with itself.
        unsafe {
            let pointer = $self.$memory.as_ptr().cast::<u8>().cast_mut().add($offset);
            match $bytes {
                1 => {
                    let $cell = AtomicU8::from_ptr(pointer);
                    $then
                }
                2 => {
                    let $cell = AtomicU16::from_ptr(pointer.cast());
                    $then
                }
                4 => {
                    let $cell = AtomicU32::from_ptr(pointer.cast());
                    $then
                }
                _ => {
                    let $cell = AtomicU64::from_ptr(pointer.cast());
                    $then
                }
            }
        }
    }};
}

impl Allocation {
    fn new(base: u64, bytes: usize) -> Option<Allocation> {
        let words = bytes.div_ceil(8);
        Some(Allocation {
            base,
            bytes,
            freed: false,
            data: zeros(words)?,
            written: zeros(words)?,
            whole: AtomicBool::new(bytes == 0),
            reserved: false,
        })
    }

    /// Addresses without memory.
    fn reserved(base: u64, bytes: usize) -> Allocation {
        Allocation {
            base,
            bytes,
            freed: false,
            data: Box::default(),
            written: Box::default(),
            whole: AtomicBool::new(true),
            reserved: true,
        }
    }

    /// Whether it contains all bytes of an access.
    #[inline(always)]
    pub fn contains(&self, address: u64, bytes: usize) -> bool {
        let room = (self.bytes as u64).checked_sub(bytes as u64);
        room.is_some_and(|room| address >= self.base && address - self.base <= room)
    }

    /// Loads an aligned value of 1, 2, 4 or 8 bytes.
    #[inline(always)]
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    pub fn load(&self, offset: usize, bytes: usize) -> u64 {
        if self.reserved {
            return 0;
        }
        sized!(self, data, offset, bytes, |cell| u64::from(cell.load(Relaxed)))
    }

    #[inline(always)]
    #[allow(clippy::unnecessary_cast)]
    pub fn store(&self, offset: usize, bytes: usize, value: u64) {
        if self.reserved {
            return;
        }
        sized!(self, data, offset, bytes, |cell| cell.store(value as _, Relaxed));
    }

    /// Atomically replaces a value by what `change` makes of it; returns the old value.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    pub fn update(&self, offset: usize, bytes: usize, change: impl Fn(u64) -> u64) -> u64 {
        if self.reserved {
            return 0;
        }
        sized!(self, data, offset, bytes, |cell| {
            let mut old = cell.load(Relaxed);
            loop {
                let new = change(u64::from(old));
                match cell.compare_exchange_weak(old, new as _, Relaxed, Relaxed) {
                    Ok(old) => break u64::from(old),
                    Err(now) => old = now,
                }
            }
        })
    }

    /// Whether all bytes of an access were written.
    #[inline(always)]
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    pub fn is_written(&self, offset: usize, bytes: usize) -> bool {
        if self.whole.load(Relaxed) {
            return true;
        }
        let piece = bytes.min(8);
        let all = u64::MAX >> (64 - 8 * piece) & 0x0101_0101_0101_0101;
        (offset..offset + bytes)
            .step_by(piece)
            .all(|offset| sized!(self, written, offset, piece, |cell| u64::from(cell.load(Relaxed)) == all))
    }

    /// The bytes of an access that were never written, as a mask.
    pub fn unwritten(&self, offset: usize, bytes: usize) -> u32 {
        let unwritten = |&byte: &usize| !self.is_written(offset + byte, 1);
        (0..bytes.min(32)).filter(unwritten).fold(0, |all, byte| all | 1 << byte)
    }

    /// A byte takes a value that was never written anywhere.
    pub fn mark_unwritten(&self, offset: usize) {
        if self.reserved {
            return;
        }
        self.written_bytes()[offset].store(0, Relaxed);
        self.whole.store(false, Relaxed);
    }

    /// One byte for each of the memory: whether it was written.
    fn written_bytes(&self) -> &[AtomicU8] {
        // SAFETY: the words are that many bytes, which have no padding, and every access to them is atomic.
        unsafe { std::slice::from_raw_parts(self.written.as_ptr().cast(), self.written.len() * 8) }
    }

    #[inline(always)]
    #[allow(clippy::unnecessary_cast)]
    pub fn mark_written(&self, offset: usize, bytes: usize) {
        if self.whole.load(Relaxed) {
            return;
        }
        let piece = bytes.min(8);
        for offset in (offset..offset + bytes).step_by(piece) {
            sized!(self, written, offset, piece, |cell| cell.store(0x0101_0101_0101_0101u64 as _, Relaxed));
        }
    }
}

/// Why there is no memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It was freed.
    Freed {
        /// The allocation's size.
        bytes: usize,
    },
    /// It is before the start or past the end of this allocation.
    Outside {
        /// The allocation's start.
        base: u64,
        /// Its size.
        bytes: usize,
    },
    /// There is no allocation nearby.
    Nowhere,
}

/// All allocations of a device, by address.
#[derive(Debug, Default)]
pub(crate) struct Global {
    allocations: Vec<Allocation>,
}

impl Global {
    pub fn allocate(&mut self, bytes: usize) -> Result<u64, PtxError> {
        let base = self.free_address();
        let Some(allocation) = Allocation::new(base, bytes) else {
            return Err(PtxError::Memory(format!(
                "this machine cannot allocate {bytes} bytes plus as many to track which of them were written; make the tensors \
                 smaller, or only reserve addresses if you need just a prediction (`kinora sim --predict-only`)"
            )));
        };
        self.allocations.push(allocation);
        Ok(base)
    }

    /// Reserves addresses without memory.
    pub fn reserve(&mut self, bytes: usize) -> u64 {
        let base = self.free_address();
        self.allocations.push(Allocation::reserved(base, bytes));
        base
    }

    fn free_address(&self) -> u64 {
        let end = self.allocations.last().map_or(GLOBAL_START, |last| last.base + last.bytes as u64 + GAP);
        end.next_multiple_of(ALIGNMENT)
    }

    /// The address and size of each allocation, by address.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        self.allocations.iter().map(|allocation| (allocation.base, allocation.bytes as u64))
    }

    pub fn free(&mut self, address: u64) -> Result<(), PtxError> {
        let found =
            self.allocations.iter_mut().find(|allocation| allocation.base == address && !allocation.freed);
        let Some(allocation) = found else {
            return Err(PtxError::Memory(format!(
                "cannot free {address:#x}: it is not the start of an allocation, or was freed before"
            )));
        };
        allocation.freed = true;
        allocation.data = Box::default();
        allocation.written = Box::default();
        Ok(())
    }

    /// For every granule of every allocation a word that is zero; `None` if the host does not have the memory.
    pub fn granule_words(&self, granule: usize) -> Option<Vec<Box<[AtomicU64]>>> {
        let live = |allocation: &Allocation| if allocation.freed { 0 } else { allocation.bytes };
        self.allocations.iter().map(|allocation| zeros(live(allocation).div_ceil(granule))).collect()
    }

    /// The allocation that contains an access.
    pub fn find(&self, address: u64, bytes: usize) -> Result<usize, Missing> {
        let after = self.allocations.partition_point(|allocation| allocation.base <= address);
        let Some(index) = after.checked_sub(1) else {
            return Err(match self.allocations.first() {
                Some(first) if first.base - address <= GAP => {
                    Missing::Outside { base: first.base, bytes: first.bytes }
                }
                _ => Missing::Nowhere,
            });
        };
        let allocation = &self.allocations[index];
        // An address may be so high that its end overflows.
        if !allocation.contains(address, bytes) {
            if address - allocation.base > FAR {
                return Err(Missing::Nowhere);
            }
            // It may be closer to the next allocation.
            if let Some(next) = self.allocations.get(after)
                && next.base - address < 256
                && address >= allocation.base + allocation.bytes as u64 + 256
            {
                return Err(Missing::Outside { base: next.base, bytes: next.bytes });
            }
            return Err(Missing::Outside { base: allocation.base, bytes: allocation.bytes });
        }
        if allocation.freed {
            return Err(Missing::Freed { bytes: allocation.bytes });
        }
        Ok(index)
    }

    fn of_host(&self, address: u64, bytes: usize) -> Result<(&Allocation, usize), PtxError> {
        match self.find(address, bytes) {
            Ok(index) => {
                let allocation = &self.allocations[index];
                Ok((allocation, (address - allocation.base) as usize))
            }
            Err(missing) => {
                let why = match missing {
                    Missing::Freed { bytes } => format!("the {bytes}-byte allocation was freed"),
                    Missing::Outside { base, bytes } => {
                        format!("the nearest allocation is {bytes} bytes at {base:#x}")
                    }
                    Missing::Nowhere => "there is no allocation nearby".to_owned(),
                };
                Err(PtxError::Memory(format!("no allocation holds the {bytes} bytes at {address:#x}: {why}")))
            }
        }
    }

    pub fn copy_in(&mut self, address: u64, from: &[u8]) -> Result<(), PtxError> {
        if from.is_empty() {
            return Ok(());
        }
        let (allocation, offset) = self.of_host(address, from.len())?;
        if allocation.reserved {
            return Ok(());
        }
        // SAFETY: the bytes are within the allocation, and nobody else uses it, because the device is borrowed exclusively.
        unsafe {
            let data = allocation.data.as_ptr().cast::<u8>().cast_mut().add(offset);
            std::ptr::copy_nonoverlapping(from.as_ptr(), data, from.len());
            let written = allocation.written.as_ptr().cast::<u8>().cast_mut().add(offset);
            std::ptr::write_bytes(written, 1, from.len());
        }
        if from.len() == allocation.bytes {
            allocation.whole.store(true, Relaxed);
        }
        Ok(())
    }

    pub fn copy_out(&self, address: u64, to: &mut [u8]) -> Result<(), PtxError> {
        if to.is_empty() {
            return Ok(());
        }
        let (allocation, offset) = self.of_host(address, to.len())?;
        for (i, byte) in to.iter_mut().enumerate() {
            *byte = allocation.load(offset + i, 1) as u8;
        }
        Ok(())
    }

    /// Calls a function with every word of every allocation but the one at `heap`.
    pub fn words(&self, heap: u64, see: &mut dyn FnMut(u64)) {
        let usable = |allocation: &&Allocation| !allocation.freed && !allocation.reserved;
        for allocation in self.allocations.iter().filter(usable).filter(|other| other.base != heap) {
            for offset in (0..allocation.bytes / 8 * 8).step_by(8) {
                see(allocation.load(offset, 8));
            }
        }
    }

    /// Which of some bytes were written.
    pub fn written(&self, address: u64, bytes: usize) -> Result<Vec<bool>, PtxError> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let (allocation, offset) = self.of_host(address, bytes)?;
        Ok((offset..offset + bytes).map(|at| allocation.is_written(at, 1)).collect())
    }

    /// Memory as a launch sees it. If races are looked for, every `granule` bytes have a record.
    pub fn views(&self, granule: usize, races: bool) -> Result<Vec<View<'_>>, PtxError> {
        let mut views = Vec::with_capacity(self.allocations.len());
        for allocation in &self.allocations {
            views.push(View::new(allocation, granule, races).ok_or_else(|| {
                PtxError::Memory(format!(
                    "this machine cannot allocate access records for every {granule} bytes of a {}-byte allocation; launch \
                     without the search for races, or with smaller tensors",
                    allocation.bytes
                ))
            })?);
        }
        Ok(views)
    }
}

/// An allocation during a launch.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub allocation: &'a Allocation,
    /// The last write to each granule, and the reads since.
    pub writes: Box<[AtomicU64]>,
    pub reads: Box<[AtomicU64]>,
    /// The offset bits within a granule.
    granule_bits: u32,
    /// What it held before the launch first wrote to it.
    saved: OnceLock<Saved>,
}

/// What an allocation held.
#[derive(Debug)]
struct Saved {
    data: Vec<u64>,
    written: Vec<u64>,
    whole: bool,
}

impl View<'_> {
    fn new(allocation: &Allocation, granule: usize, races: bool) -> Option<View<'_>> {
        let count = if races && !allocation.freed { allocation.bytes.div_ceil(granule) } else { 0 };
        let granule_bits = granule.trailing_zeros();
        let saved = OnceLock::new();
        Some(View { allocation, writes: zeros(count)?, reads: zeros(count)?, granule_bits, saved })
    }

    /// Keeps what the allocation holds, unless that was done before. Whoever writes calls this first.
    #[inline(always)]
    pub fn save(&self) {
        if self.saved.get().is_none() {
            self.saved.get_or_init(|| {
                let copy = |words: &[AtomicU64]| words.iter().map(|word| word.load(Relaxed)).collect();
                let Allocation { data, written, whole, .. } = self.allocation;
                Saved { data: copy(data), written: copy(written), whole: whole.load(Relaxed) }
            });
        }
    }

    /// Brings back what the allocation held before the launch.
    pub fn restore(&mut self) {
        let Some(saved) = self.saved.take() else { return };
        let Allocation { data, written, whole, .. } = self.allocation;
        let copy = |from: &[u64], to: &[AtomicU64]| {
            from.iter().zip(to).for_each(|(from, to)| to.store(*from, Relaxed));
        };
        copy(&saved.data, data);
        copy(&saved.written, written);
        whole.store(saved.whole, Relaxed);
    }

    /// Makes a range of bytes as new: neither written nor accessed. Its start is a multiple of 8.
    pub fn forget(&self, offset: usize, bytes: usize) {
        let words = offset / 8..(offset + bytes).div_ceil(8);
        self.allocation.written[words].iter().for_each(|flags| flags.store(0, Relaxed));
        let records = self.granules(offset, bytes);
        let records = records.start.min(self.writes.len())..records.end.min(self.writes.len());
        self.writes[records.clone()].iter().for_each(|record| record.store(0, Relaxed));
        self.reads[records].iter().for_each(|record| record.store(0, Relaxed));
    }

    /// The granules of a range of bytes.
    #[inline(always)]
    pub fn granules(&self, offset: usize, bytes: usize) -> Range<usize> {
        offset >> self.granule_bits..(offset + bytes + (1 << self.granule_bits) - 1) >> self.granule_bits
    }
}

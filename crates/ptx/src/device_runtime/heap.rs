//! The device's heap: what `malloc` and `free` know of it. The bytes are in an allocation of global memory.
//!
//! Blocks have a gap between them, and freed ones are not used again before the heap has no fresh space, so that most accesses
//! beyond a block's end and to freed blocks are recognised.

use std::{collections::BTreeMap, sync::Mutex};

/// The alignment of blocks.
const ALIGNMENT: u64 = 16;

/// The smallest gap after a block.
const GAP: u64 = 16;

/// A block, and who allocated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapBlock {
    pub bytes: u64,
    pub freed: bool,
    /// The launch that allocated it.
    pub launch: u64,
    pub pc: u32,
    pub block: u64,
    pub thread: u32,
}

/// Why an access to the heap is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeapMiss {
    /// It is in a block that was freed.
    Freed { bytes: u64 },
    /// It is beyond the end of a block of `bytes`, at this offset from its start.
    Beyond { bytes: u64, offset: u64 },
    /// There is no block before it.
    Nowhere,
}

/// Why an address cannot be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeError {
    /// The block was freed before.
    Twice { bytes: u64 },
    /// The address is within a block, but not its start.
    Inside { bytes: u64, offset: u64 },
    /// The address is in no block.
    Unknown,
}

#[derive(Debug, Default)]
struct Blocks {
    /// By their offset in the heap.
    all: BTreeMap<u64, HeapBlock>,
    /// Free space, in the order of addresses.
    free: Vec<(u64, u64)>,
    /// Blocks that were freed since the free space was last collected.
    freed: usize,
}

/// The heap.
#[derive(Debug)]
pub(crate) struct DeviceHeap {
    /// Its address in global memory, and its size.
    pub base: u64,
    pub bytes: u64,
    blocks: Mutex<Blocks>,
}

impl DeviceHeap {
    pub fn new(base: u64, bytes: u64) -> DeviceHeap {
        let blocks = Blocks { free: vec![(0, bytes)], ..Blocks::default() };
        DeviceHeap { base, bytes, blocks: Mutex::new(blocks) }
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, Blocks> {
        // A panic elsewhere leaves the blocks as they were between two of their operations.
        self.blocks.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The offset of a new block; `None` if there is no space.
    pub fn allocate(&self, block: HeapBlock, align: u64) -> Option<u64> {
        if !align.is_power_of_two() || align > self.bytes || block.bytes > self.bytes {
            return None;
        }
        let align = align.max(ALIGNMENT);
        let mut blocks = self.blocks();
        let offset = blocks.take(block.bytes, align).or_else(|| {
            blocks.collect(self.bytes);
            blocks.take(block.bytes, align)
        })?;
        blocks.all.insert(offset, block);
        Some(offset)
    }

    /// Frees the block at an offset.
    pub fn free(&self, offset: u64) -> Result<(), FreeError> {
        let mut blocks = self.blocks();
        let (start, found) = blocks.all.range_mut(..=offset).next_back().ok_or(FreeError::Unknown)?;
        let within = offset - start;
        if within >= found.bytes.max(1) {
            return Err(FreeError::Unknown);
        }
        match (found.freed, within) {
            (true, _) => Err(FreeError::Twice { bytes: found.bytes }),
            (false, 0) => {
                found.freed = true;
                blocks.freed += 1;
                Ok(())
            }
            _ => Err(FreeError::Inside { bytes: found.bytes, offset: within }),
        }
    }

    /// Why an access of some bytes at an offset is not within a block; nothing if it is.
    pub fn miss(&self, offset: u64, bytes: u64) -> Option<HeapMiss> {
        let blocks = self.blocks();
        let Some((start, block)) = blocks.all.range(..=offset).next_back() else {
            return Some(HeapMiss::Nowhere);
        };
        let within = offset - start;
        if within + bytes > block.bytes {
            return Some(match block.freed && within < block.bytes {
                true => HeapMiss::Freed { bytes: block.bytes },
                false => HeapMiss::Beyond { bytes: block.bytes, offset: within },
            });
        }
        block.freed.then_some(HeapMiss::Freed { bytes: block.bytes })
    }

    /// Blocks that a launch allocated and that nothing points to: neither global memory, nor a block that something points to.
    /// `words` calls a function with every word of global memory outside the heap, `inner` with every word of a range of the heap.
    pub fn leaks(
        &self,
        launch: u64,
        words: impl FnOnce(&mut dyn FnMut(u64)),
        inner: impl Fn(u64, u64, &mut dyn FnMut(u64)),
    ) -> Vec<HeapBlock> {
        let blocks = self.blocks();
        let live = |block: &&HeapBlock| !block.freed;
        if !blocks.all.values().filter(live).any(|block| block.launch == launch) {
            return Vec::new();
        }
        let mut reached: BTreeMap<u64, u64> = BTreeMap::new();
        let mut todo = Vec::new();
        let mut see = |word: u64, todo: &mut Vec<(u64, u64)>| {
            let offset = word.wrapping_sub(self.base);
            if offset < self.bytes
                && let Some((&start, block)) = blocks.all.range(..=offset).next_back()
                && !block.freed
                && offset - start <= block.bytes
                && reached.insert(start, block.bytes).is_none()
            {
                todo.push((start, block.bytes));
            }
        };
        words(&mut |word| see(word, &mut todo));
        // The host alone may have the address of a block of an earlier launch.
        let earlier = blocks.all.iter().filter(|(_, block)| !block.freed && block.launch != launch);
        todo.extend(earlier.map(|(&start, block)| (start, block.bytes)));
        while let Some((start, bytes)) = todo.pop() {
            inner(start, bytes, &mut |word| see(word, &mut todo));
        }
        let lost = blocks
            .all
            .iter()
            .filter(|(start, block)| !block.freed && block.launch == launch && !reached.contains_key(start));
        lost.map(|(_, block)| *block).collect()
    }
}

impl Blocks {
    /// Takes space for a block and its gap.
    fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let (place, offset, end) = self.free.iter().enumerate().find_map(|(place, &(start, end))| {
            let offset = start.next_multiple_of(align);
            let after = offset.checked_add(bytes)?.checked_add(GAP)?.next_multiple_of(ALIGNMENT);
            // The last block of the heap needs no gap behind it.
            (offset + bytes <= end).then_some((place, offset, after.min(end)))
        })?;
        self.free[place].0 = end;
        if self.free[place].0 >= self.free[place].1 {
            self.free.remove(place);
        }
        Some(offset)
    }

    /// Forgets freed blocks, so that their space can be used again.
    fn collect(&mut self, heap: u64) {
        if self.freed == 0 {
            return;
        }
        self.freed = 0;
        self.all.retain(|_, block| !block.freed);
        self.free.clear();
        let mut end = 0;
        for (&start, block) in &self.all {
            if start > end {
                self.free.push((end, start));
            }
            end = (start + block.bytes + GAP).next_multiple_of(ALIGNMENT);
        }
        if end < heap {
            self.free.push((end, heap));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: HeapBlock = HeapBlock { bytes: 40, freed: false, launch: 1, pc: 0, block: 0, thread: 0 };

    #[test]
    fn blocks_are_apart_and_end() {
        let heap = DeviceHeap::new(1 << 20, 1 << 16);
        let a = heap.allocate(BLOCK, 1).unwrap();
        let b = heap.allocate(BLOCK, 256).unwrap();
        assert!(b >= a + 56 && b.is_multiple_of(256));
        assert_eq!(heap.miss(a, 40), None);
        assert_eq!(heap.miss(a + 36, 8), Some(HeapMiss::Beyond { bytes: 40, offset: 36 }));
        assert_eq!(heap.miss(a + 40, 4), Some(HeapMiss::Beyond { bytes: 40, offset: 40 }));
        assert_eq!(heap.free(a + 8), Err(FreeError::Inside { bytes: 40, offset: 8 }));
        assert_eq!(heap.free(a + 48), Err(FreeError::Unknown));
        assert_eq!(heap.free(a), Ok(()));
        assert_eq!(heap.free(a), Err(FreeError::Twice { bytes: 40 }));
        assert_eq!(heap.miss(a + 4, 4), Some(HeapMiss::Freed { bytes: 40 }));
        assert_eq!(heap.allocate(BLOCK, 3), None);
    }

    #[test]
    fn a_full_heap_uses_freed_space_again() {
        let heap = DeviceHeap::new(0, 1024);
        let all: Vec<u64> = std::iter::from_fn(|| heap.allocate(BLOCK, 1)).collect();
        assert_eq!(all.len(), 1024 / 64);
        heap.free(all[3]).unwrap();
        heap.free(all[7]).unwrap();
        assert_eq!(heap.allocate(BLOCK, 1), Some(all[3]));
        assert_eq!(heap.allocate(BLOCK, 1), Some(all[7]));
        assert_eq!(heap.allocate(BLOCK, 1), None);
        assert_eq!(heap.allocate(HeapBlock { bytes: u64::MAX, ..BLOCK }, 1), None);
    }

    #[test]
    fn what_something_points_to_is_no_leak() {
        let heap = DeviceHeap::new(1 << 20, 1 << 16);
        let offsets: Vec<u64> =
            (0..4).map(|pc| heap.allocate(HeapBlock { pc, ..BLOCK }, 1).unwrap()).collect();
        // Global memory points to the first, the first to the second, the third to itself.
        let leaks = heap.leaks(
            1,
            |see| see((1 << 20) + offsets[0]),
            |start, _, see| {
                if start == offsets[0] {
                    see((1 << 20) + offsets[1]);
                }
                if start == offsets[2] {
                    see((1 << 20) + offsets[2]);
                }
            },
        );
        assert_eq!(leaks.iter().map(|block| block.pc).collect::<Vec<_>>(), [2, 3]);
        assert!(heap.leaks(2, |_| {}, |_, _, _| {}).is_empty());
    }
}

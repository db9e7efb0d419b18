//! The memory of tensors: aligned, and handed back to the system when it is freed.

use std::{
    fmt, mem,
    ops::{Deref, DerefMut},
};

use memmap2::MmapMut;

use super::recycling;

/// Alignment of a tensor's first byte: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// From this size on, memory comes from the system itself. An allocator keeps what is freed for later, so that the memory of
/// one network would still be held while the next one runs.
const MAPPED: usize = 128 << 10;

/// From this size on, memory is asked for in huge pages, where the system has them. To fault in a page and fill it with zeros takes
/// longer than to read a weight into it: with pages of 4 KiB that was most of the time of loading weights.
#[cfg(target_os = "linux")]
const HUGE: usize = 4 << 20;

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// A byte buffer whose first byte is aligned to [`ALIGNMENT`].
///
/// A large one takes memory only as it is written to, and none of it is left behind when it is dropped, unless its thread is
/// [recycling](super::Recycling).
#[derive(Default)]
pub struct AlignedBytes {
    memory: Memory,
    len: usize,
}

enum Memory {
    /// From the allocator.
    Lines(Vec<Line>),
    /// From the system, in whole pages. If they were used before, there may be more of them than the length takes.
    Pages(MmapMut),
}

impl Default for Memory {
    fn default() -> Self {
        Memory::Lines(Vec::new())
    }
}

impl AlignedBytes {
    /// A buffer without memory.
    pub const fn new() -> Self {
        AlignedBytes { memory: Memory::Lines(Vec::new()), len: 0 }
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        // If there is not enough memory, the allocator reports it.
        AlignedBytes::try_zeroed(len).unwrap_or_else(|| {
            let lines = vec![Line([0; ALIGNMENT]); len.div_ceil(ALIGNMENT)];
            AlignedBytes { memory: Memory::Lines(lines), len }
        })
    }

    /// `len` zero bytes, or `None` if they cannot be allocated.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        if len >= MAPPED {
            isize::try_from(len).ok()?;
            if let Some(mut pages) = recycling::take(len) {
                pages[..len].fill(0);
                return Some(AlignedBytes { memory: Memory::Pages(pages), len });
            }
            let pages = MmapMut::map_anon(len).ok()?;
            #[cfg(target_os = "linux")]
            if len >= HUGE {
                // Without huge pages it is the same memory, only slower.
                let _ = pages.advise(memmap2::Advice::HugePage);
            }
            return Some(AlignedBytes { memory: Memory::Pages(pages), len });
        }
        let count = len.div_ceil(ALIGNMENT);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).ok()?;
        lines.resize(count, Line([0; ALIGNMENT]));
        Some(AlignedBytes { memory: Memory::Lines(lines), len })
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> Self {
        let mut copy = AlignedBytes::zeroed(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Lines(lines) => &bytemuck::cast_slice(lines)[..self.len],
            Memory::Pages(pages) => &pages[..self.len],
        }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Lines(lines) => &mut bytemuck::cast_slice_mut(lines)[..self.len],
            Memory::Pages(pages) => &mut pages[..self.len],
        }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if let Memory::Pages(pages) = mem::take(&mut self.memory) {
            recycling::give(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_are_aligned_zeroed_and_of_their_length() {
        for len in [0, 1, 63, 64, 65, MAPPED - 1, MAPPED, MAPPED + 1, 5 * MAPPED + 7, (4 << 20) + 4099] {
            let mut bytes = AlignedBytes::zeroed(len);
            assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == 0), "{len}");
            assert!(bytes.as_ptr().addr().is_multiple_of(ALIGNMENT), "{len}");
            bytes.fill(7);
            let copy = bytes.clone();
            bytes.fill(8);
            assert!(copy.len() == len && copy.iter().all(|&byte| byte == 7), "{len}");
        }
    }

    #[test]
    fn what_no_machine_has_is_none() {
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert!(AlignedBytes::try_zeroed(len).is_none(), "{len}");
        }
    }
}

//! The sectors that a multiprocessor has accessed, and its L1 cache.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Bytes of a sector, the smallest unit that caches and memory move.
pub(crate) const SECTOR: u64 = 32;

/// Sectors per page, one bit each.
const PAGE_SECTORS: u64 = 128;

/// Page numbers are consecutive; a multiplication spreads them.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(20);
    }
}

/// The set of sectors that were accessed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    pages: HashMap<u64, u128, BuildHasherDefault<PageHasher>>,
}

impl Footprint {
    /// Adds a sector, and returns whether it is new.
    pub fn touch(&mut self, sector: u64) -> bool {
        let page = self.pages.entry(sector / PAGE_SECTORS).or_default();
        let bit = 1u128 << (sector % PAGE_SECTORS);
        let new = *page & bit == 0;
        *page |= bit;
        new
    }

    /// The address of every page, and the bytes that were accessed in it.
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pages
            .iter()
            .map(|(&page, bits)| (page * PAGE_SECTORS * SECTOR, u64::from(bits.count_ones()) * SECTOR))
    }
}

const WAYS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Line {
    tag: u64,
    /// A mask of its four sectors that are valid.
    sectors: u8,
    used: u32,
}

/// The L1 cache: lines of 128 bytes, least recently used replacement.
#[derive(Clone, Debug)]
pub(super) struct L1 {
    sets: Vec<[Line; WAYS]>,
    now: u32,
}

impl L1 {
    pub fn new(bytes: usize) -> L1 {
        let empty = Line { tag: u64::MAX, sectors: 0, used: 0 };
        L1 { sets: vec![[empty; WAYS]; (bytes / 128 / WAYS).max(1)], now: 0 }
    }

    /// Reads a sector, and returns whether it was a hit.
    pub fn read(&mut self, sector: u64) -> bool {
        self.now += 1;
        let (tag, bit) = (sector / 4, 1 << (sector % 4));
        let count = self.sets.len() as u64;
        // Chips spread lines over sets, so that powers of two between rows do not meet in one.
        let hash = tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let set = &mut self.sets[(hash % count) as usize];
        if let Some(line) = set.iter_mut().find(|line| line.tag == tag) {
            let hit = line.sectors & bit != 0;
            line.sectors |= bit;
            line.used = self.now;
            return hit;
        }
        if let Some(oldest) = set.iter_mut().min_by_key(|line| line.used) {
            *oldest = Line { tag, sectors: bit, used: self.now };
        }
        false
    }
}

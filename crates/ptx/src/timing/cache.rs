//! What a multiprocessor has touched of memory, and what of it is still in its first-level cache.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Bytes of a sector: what caches and memory move at least.
pub(crate) const SECTOR: u64 = 32;

/// Sectors of a page, a bit each.
const PAGE_SECTORS: u64 = 128;

/// Pages are numbers that follow each other: a multiplication spreads them.
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

/// The sectors that were touched, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    pages: HashMap<u64, u128, BuildHasherDefault<PageHasher>>,
}

impl Footprint {
    /// Notes a sector, and gives whether it is new.
    pub fn touch(&mut self, sector: u64) -> bool {
        let page = self.pages.entry(sector / PAGE_SECTORS).or_default();
        let bit = 1u128 << (sector % PAGE_SECTORS);
        let new = *page & bit == 0;
        *page |= bit;
        new
    }

    /// Pages with the address that each begins at and the bytes that were touched in it.
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
    /// Which of its four sectors are there.
    sectors: u8,
    used: u32,
}

/// The first-level cache: lines of 128 bytes, of which the least recently used goes.
#[derive(Clone, Debug)]
pub(super) struct FirstLevel {
    sets: Vec<[Line; WAYS]>,
    now: u32,
}

impl FirstLevel {
    pub fn new(bytes: usize) -> FirstLevel {
        let empty = Line { tag: u64::MAX, sectors: 0, used: 0 };
        FirstLevel { sets: vec![[empty; WAYS]; (bytes / 128 / WAYS).max(1)], now: 0 }
    }

    /// Reads a sector, and gives whether it was there.
    pub fn read(&mut self, sector: u64) -> bool {
        self.now += 1;
        let (tag, bit) = (sector / 4, 1 << (sector % 4));
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(tag % count) as usize];
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

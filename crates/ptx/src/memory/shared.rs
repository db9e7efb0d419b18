//! The shared memory of a block.

use super::AccessRecords;

/// A block's shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    data: Vec<u8>,
    /// For each byte: 0 if nothing was stored to it, 1 if it has a value, 2 if what was stored has none.
    written: Vec<u8>,
    /// The last accesses to it.
    pub records: AccessRecords,
}

impl Shared {
    pub fn new(bytes: usize, granule: usize, races: bool) -> Shared {
        let records = AccessRecords::new(if races { bytes } else { 0 }, granule);
        Shared { data: vec![0; bytes], written: vec![0; bytes], records }
    }

    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Resets it for the next block.
    pub fn clear(&mut self) {
        self.data.fill(0);
        self.written.fill(0);
        self.records.clear();
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

    /// The bytes of an access that have no value, and those of them that were not stored to either, as masks.
    pub fn unwritten(&self, offset: usize, bytes: usize) -> (u32, u32) {
        let written = self.written[offset..offset + bytes].iter().zip(0..32);
        written.fold((0, 0), |(unwritten, untouched), (&written, byte)| {
            (unwritten | u32::from(written != 1) << byte, untouched | u32::from(written == 0) << byte)
        })
    }

    /// A byte was stored to, but takes a value that was never written anywhere.
    pub fn mark_without_value(&mut self, offset: usize) {
        self.written[offset] = 2;
    }

    #[inline(always)]
    pub fn is_written(&self, offset: usize, bytes: usize) -> bool {
        let at = &self.written[offset..offset + bytes];
        match *at {
            [a] => a == 1,
            [a, b] => [a, b] == [1; 2],
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) == 0x0101_0101,
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]) == 0x0101_0101_0101_0101,
            _ if bytes == 16 => at == [1; 16],
            _ => at.iter().all(|&byte| byte == 1),
        }
    }
}

//! What a grid moves from and to memory, by what some of its blocks touched.
//!
//! Blocks share much of what they read, and find it in the second-level cache. A tensor is read from memory once, unless the
//! blocks that run at a time touch more than the cache holds: then what the next ones read again has gone by then, in
//! proportion.

use crate::timing::Footprint;

/// The bytes of each allocation that a footprint has.
pub(super) fn by_allocation(footprint: &Footprint, extents: &[(u64, u64)]) -> Vec<f64> {
    let mut bytes = vec![0.0; extents.len()];
    for (address, touched) in footprint.pages() {
        // A page may begin before the allocation that it ends in.
        let after = extents.partition_point(|&(base, _)| base < address + 4096);
        if let Some(place) = after.checked_sub(1) {
            bytes[place] += touched as f64;
        }
    }
    bytes
}

/// The bytes that a whole grid of `blocks` touches of each allocation, each once, where `sampled` of them touched `touched`:
/// never more than there is.
pub(super) fn whole(touched: &[f64], extents: &[(u64, u64)], sampled: f64, blocks: f64) -> Vec<f64> {
    let each =
        |(touched, &(_, size)): (&f64, &(u64, u64))| (touched / sampled.max(1.0) * blocks).min(size as f64);
    touched.iter().zip(extents).map(each).collect()
}

/// The bytes that come from memory: every one once, and again what the cache could not keep.
///
/// `whole` are the bytes of the grid, each once; `each` those of one block, `blocks` all blocks and `resident` those that
/// run at a time.
pub(super) fn reads(whole: &[f64], each: f64, blocks: f64, resident: f64, cache: f64) -> f64 {
    let once: f64 = whole.iter().sum();
    let asked = each * blocks;
    let at_a_time = (each * resident).min(once);
    let lost = if at_a_time > 0.0 { (1.0 - cache / at_a_time).max(0.0) } else { 0.0 };
    once + lost * (asked - once).max(0.0)
}

//! The DRAM traffic of a grid, from what a sample of its blocks accessed.
//!
//! Blocks share much of what they read, and find it in L2. A tensor is read from DRAM once, unless the blocks that run at a time access
//! more than L2 holds; then a proportional share of it has been evicted when the next blocks read it again.

use crate::timing::Footprint;

/// The bytes of each allocation that a footprint contains.
pub(super) fn by_allocation(footprint: &Footprint, extents: &[(u64, u64)]) -> Vec<f64> {
    let mut bytes = vec![0.0; extents.len()];
    for (address, touched) in footprint.pages() {
        // A page may start before its allocation.
        let after = extents.partition_point(|&(base, _)| base < address + 4096);
        if let Some(place) = after.checked_sub(1) {
            bytes[place] += touched as f64;
        }
    }
    bytes
}

/// The distinct bytes of each allocation that a grid of `blocks` accesses, if `sampled` of them accessed `touched`; at most its size.
pub(super) fn whole(touched: &[f64], extents: &[(u64, u64)], sampled: f64, blocks: f64) -> Vec<f64> {
    let each =
        |(touched, &(_, size)): (&f64, &(u64, u64))| (touched / sampled.max(1.0) * blocks).min(size as f64);
    touched.iter().zip(extents).map(each).collect()
}

/// The bytes that are read from DRAM: every distinct byte once, and again what L2 could not keep.
///
/// `whole` are the distinct bytes of the grid, `each` those of one block; `resident` of the `blocks` run at a time.
pub(super) fn reads(whole: &[f64], each: f64, blocks: f64, resident: f64, cache: f64) -> f64 {
    let once: f64 = whole.iter().sum();
    let asked = each * blocks;
    let at_a_time = (each * resident).min(once);
    let lost = if at_a_time > 0.0 { (1.0 - cache / at_a_time).max(0.0) } else { 0.0 };
    once + lost * (asked - once).max(0.0)
}

//! Keeping the values of hidden keys out of the result.
//!
//! A hidden key has a weight of zero, and in a product zero times a NaN or an infinity is a NaN. Such values are rare,
//! so the product stays as it is; if a block contains one, its values are added one by one, without those of hidden
//! keys.

use std::ops::Range;

use super::visibility::Visibility;
use crate::simd::Simd;

/// Values of a block of keys in panels of columns, as [`Rows::pack`](super::operand::Rows::pack) leaves them.
#[derive(Clone, Copy)]
pub(super) struct PackedValues<'a> {
    pub(super) values: &'a [f32],
    /// Columns of a panel.
    pub(super) columns: usize,
    /// Rows that a panel has room for.
    pub(super) capacity: usize,
    /// The keys of the block.
    pub(super) keys: usize,
    /// Channels of a head.
    pub(super) head_dim: usize,
}

impl PackedValues<'_> {
    /// Whether there is a NaN or an infinity among them.
    #[inline(always)]
    pub(super) fn has_non_finite<S: Simd>(&self, simd: S) -> bool {
        // Zero times anything finite is zero.
        let mut zero = simd.zero();
        for panel in 0..self.head_dim.div_ceil(self.columns) {
            let lines = &self.values[panel * self.capacity * self.columns..][..self.keys * self.columns];
            let used = (self.head_dim - panel * self.columns).min(self.columns).next_multiple_of(S::LANES);
            for line in lines.chunks_exact(self.columns) {
                for vector in line[..used].chunks_exact(S::LANES) {
                    // SAFETY: `chunks_exact` yields LANES values.
                    zero = simd.mul_add(unsafe { simd.load(vector.as_ptr()) }, simd.zero(), zero);
                }
            }
        }
        simd.reduce_sum(zero) != 0.0
    }

    pub(super) fn value(&self, key: usize, channel: usize) -> f32 {
        let panel = channel / self.columns;
        self.values[(panel * self.capacity + key) * self.columns + channel % self.columns]
    }
}

/// Rows of weights, one per query, `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    pub(super) weights: &'a [f32],
    pub(super) stride: usize,
}

/// Adds to the row of `sums` of each query its weights times the values of the keys it sees, of which the block's first
/// is `first_key`.
#[cold]
#[inline(never)]
pub(super) fn add_visible(
    visibility: &Visibility<'_>,
    queries: Range<usize>,
    first_key: usize,
    weights: Weights<'_>,
    packed: PackedValues<'_>,
    sums: &mut [f32],
    sum_width: usize,
) {
    for (row, query) in queries.enumerate() {
        let sums = &mut sums[row * sum_width..][..packed.head_dim];
        for key in (0..packed.keys).filter(|&key| visibility.sees(query, first_key + key)) {
            let weight = weights.weights[row * weights.stride + key];
            for (channel, sum) in sums.iter_mut().enumerate() {
                let value = packed.value(key, channel);
                // A weight that underflows f32 still belongs to a visible key.
                *sum += value * if value.is_finite() { weight } else { weight.max(f32::MIN_POSITIVE) };
            }
        }
    }
}

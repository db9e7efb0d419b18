//! Which keys a query sees, and what the mask adds to their scores.

use std::ops::Range;

use kinora_graph::op::Mask;

use super::operand::Sequence;
use crate::simd::{Float, Simd, load_up_to, store_up_to};
use crate::view::{View, with_float};

/// What the queries of one sequence and head see of its keys.
#[derive(Clone, Copy)]
pub(super) struct Visibility<'a> {
    mask: Mask,
    operand: Option<View<'a>>,
    /// The mask's element for the first query and key.
    start: usize,
    /// Keys of a row of the mask.
    keys: usize,
    /// Leading keys that exist.
    length: usize,
    /// Where the sequences of queries and of keys begin, and where the last ends.
    boundaries: Option<[&'a [i32]; 2]>,
}

impl<'a> Visibility<'a> {
    /// `extents` are the queries and keys of the mask, `length` is how many of the keys exist.
    pub(super) fn new(
        mask: Mask,
        operand: Option<View<'a>>,
        sequence: Sequence,
        (queries, keys): (usize, usize),
        length: usize,
        boundaries: Option<[&'a [i32]; 2]>,
    ) -> Self {
        let start = operand.map_or(0, |view| {
            let shape = &view.ty().shape;
            let batch = if shape[0] == 1 { 0 } else { sequence.batch };
            let head = if shape[1] == 1 { 0 } else { sequence.head };
            let start = (batch * shape[1] + head) * queries * keys;
            // The unsafe accesses below rest on this.
            assert!(start + queries * keys <= view.ty().elements());
            start
        });
        Visibility { mask, operand, start, keys, length: length.min(keys), boundaries }
    }

    /// How many leading keys `query` may see, by their number and by causality; it grows with the query.
    #[inline(always)]
    pub(super) fn leading(&self, query: usize) -> usize {
        self.range(query).end
    }

    /// How many of them are too far behind it; this grows with the query too.
    #[inline(always)]
    pub(super) fn behind(&self, query: usize) -> usize {
        self.range(query).start
    }

    /// The keys that `query` may see by its number.
    #[inline(always)]
    fn range(&self, query: usize) -> Range<usize> {
        match self.boundaries {
            Some([queries, keys]) => self.range_within(query, queries, keys),
            None => self.mask.range(query, self.length),
        }
    }

    /// As `range`, between boundaries. None that they hold leads beyond the keys.
    fn range_within(&self, query: usize, queries: &[i32], keys: &[i32]) -> Range<usize> {
        let boundary = |values: &[i32], index: usize| usize::try_from(values[index]).unwrap_or(0);
        let begun = queries.partition_point(|&first| i64::from(first) <= query as i64);
        let Some(sequence) = begun.checked_sub(1) else { return 0..0 };
        let first = boundary(keys, sequence).min(self.length);
        if begun == queries.len() {
            return first..first;
        }
        let count = boundary(keys, begun).clamp(first, self.length) - first;
        let range = self.mask.range(query.saturating_sub(boundary(queries, sequence)), count);
        first + range.start..first + range.end
    }

    /// Whether some of these queries may see a key that others of them do not.
    #[inline(always)]
    pub(super) fn differs(&self) -> bool {
        self.mask != Mask::None || self.boundaries.is_some()
    }

    /// Whether `query` sees `key`.
    pub(super) fn sees(&self, query: usize, key: usize) -> bool {
        let Some(view) = self.operand else { return self.range(query).contains(&key) };
        let at = self.start + query * self.keys + key;
        assert!(at < view.ty().elements());
        // SAFETY: the element exists, and the output overlaps no operand, so nothing writes it.
        let masked = unsafe {
            match self.mask {
                Mask::Boolean => *view.ptr::<u8>().add(at) != 0,
                _ => {
                    with_float!(view.ty().dtype, T => (*view.ptr::<T>().add(at)).to_f32() != f32::NEG_INFINITY)
                }
            }
        };
        masked && self.range(query).contains(&key)
    }

    /// Applies the mask to the scores of `query` with the keys from `first` on; those of keys it does not see become
    /// -∞, those beyond the last key included.
    ///
    /// # Safety
    /// `query` is one of the mask's queries.
    #[inline(always)]
    pub(super) unsafe fn apply<S: Simd>(&self, simd: S, query: usize, first: usize, scores: &mut [f32]) {
        let count = self.leading(query).saturating_sub(first).min(scores.len());
        let (seen, hidden) = scores.split_at_mut(count);
        hidden.fill(f32::NEG_INFINITY);
        if let Some(view) = self.operand {
            let row = self.start + query * self.keys + first;
            // SAFETY: the row is within the mask, as `new` has checked for every query, and `first + count` within the row.
            unsafe {
                match self.mask {
                    Mask::Boolean => {
                        let mask = std::slice::from_raw_parts(view.ptr::<u8>().add(row), count);
                        for (score, &mask) in seen.iter_mut().zip(mask) {
                            *score = if mask == 0 { f32::NEG_INFINITY } else { *score };
                        }
                    }
                    _ => with_float!(view.ty().dtype, T => add(simd, seen, view.ptr::<T>().add(row))),
                }
            }
        }
        // After the mask, which may hold a NaN or an infinity for a key that a boundary hides.
        let behind = self.behind(query).saturating_sub(first).min(count);
        seen[..behind].fill(f32::NEG_INFINITY);
    }
}

/// `scores += mask`, and -∞ where the mask is -∞, whatever the score.
///
/// # Safety
/// `mask` is valid for reading as many values as there are scores.
#[inline(always)]
unsafe fn add<S: Simd, T: Float>(simd: S, scores: &mut [f32], mask: *const T) {
    let hidden = simd.splat(f32::NEG_INFINITY);
    for (index, scores) in scores.chunks_mut(S::LANES).enumerate() {
        let lanes = scores.len();
        // SAFETY: the chunk holds `lanes` scores, at most LANES, and the mask as many values.
        unsafe {
            let mask = load_up_to(simd, mask.add(index * S::LANES), lanes);
            let sum = simd.add(load_up_to(simd, scores.as_ptr(), lanes), mask);
            // Not by the sum: a hidden key may hold a NaN.
            let is_hidden = simd.less_than(mask, simd.splat(f32::MIN));
            store_up_to(simd, scores.as_mut_ptr(), simd.select(is_hidden, hidden, sum), lanes);
        }
    }
}

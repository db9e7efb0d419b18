//! Group norm over channels-last memory.
//!
//! The images that share statistics lie one after the other: a slab of rows of channels. One pass over a slab computes
//! the sums of each channel, which add up to those of the groups; a second pass normalises. Slabs are processed one
//! after the other, so that the second pass finds what the cache still holds from the first.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    blocks::{BLOCK, Block, Source, Target},
    elementwise::{Operand, Results, elementwise},
    norm::{Learned, NormaliseChannels},
    sums::{Moments, wide_moments},
};
use crate::{
    simd::{Isa, Kernel, Simd, activation::Function, load_up_to, store_up_to},
    tasks,
};

/// The memory of a group norm and its extents: source and target have `slabs · rows · channels` elements.
pub(crate) struct Groups<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) target: Target<'a>,
    /// Sets of images that share statistics.
    pub(crate) slabs: usize,
    /// Channel vectors of a slab.
    pub(crate) rows: usize,
    pub(crate) channels: usize,
    pub(crate) groups: usize,
    pub(crate) epsilon: f32,
}

/// Rows summed in f32 before the sums continue in f64.
const MOST_ROWS_OF_CHUNK: usize = 256;
/// Elements of a chunk where rows are long.
const CHUNK: usize = 64 * 1024;
/// Slabs of up to this many elements stay in a core's own cache, and each is one task.
const SMALL_SLAB: usize = 128 * 1024;
/// Rows sampled for a first estimate of the means.
const SAMPLED_ROWS: usize = 4;
/// Rows summed at a time: each loaded and stored sum then serves as many elements.
const ROWS_AT_ONCE: usize = 8;

/// Normalises every slab.
pub(crate) fn group_norm<A: Function>(isa: Isa, groups: &Groups<'_>, learned: &Learned) {
    let small = groups.rows * groups.channels <= SMALL_SLAB;
    tasks::each(groups.slabs, if small { 1 } else { groups.slabs }, |slabs| {
        for slab in slabs {
            let start = slab * groups.rows * groups.channels;
            let Channels { pivot, factor, offset } = channels_of_slab(isa, groups, learned, start);
            let channel = |values| Operand::rows(Source::of_f32(values), 0);
            let x = Operand::rows(groups.source, groups.channels).offset(start);
            let operands = [x, channel(&pivot), channel(&factor), channel(&offset)];
            let results = Results { target: groups.target, start };
            let function = NormaliseChannels::<A>::default();
            // SAFETY: the slab's elements exist by what `Groups` promises, each vector has `channels`.
            unsafe { elementwise(isa, &function, operands, results, groups.rows, groups.channels) };
        }
    });
}

/// What normalises each channel of a slab: `(x - pivot) · factor + offset`.
struct Channels {
    pivot: Vec<f32>,
    factor: Vec<f32>,
    offset: Vec<f32>,
}

fn channels_of_slab(isa: Isa, groups: &Groups<'_>, learned: &Learned, start: usize) -> Channels {
    let width = groups.channels / groups.groups;
    let count = (groups.rows * width) as f64;
    let mut shifts = sampled_means(groups, start);
    let mut sums = slab_sums(isa, groups, &shifts, start);
    if sums.iter().any(|group| group.is_far(count)) {
        for (shift, group) in shifts.iter_mut().zip(&sums) {
            *shift = (f64::from(*shift) + group.beyond(count)) as f32;
        }
        sums = slab_sums(isa, groups, &shifts, start);
    }
    let mut channels = Channels {
        pivot: vec![0.0; groups.channels],
        factor: vec![0.0; groups.channels],
        offset: vec![0.0; groups.channels],
    };
    for (group, (&shift, sums)) in shifts.iter().zip(&sums).enumerate() {
        let beyond = sums.beyond(count);
        let inverse = 1.0 / (sums.variance(count) + f64::from(groups.epsilon)).sqrt();
        for c in group * width..(group + 1) * width {
            let factor = inverse * f64::from(learned.scale[c]);
            channels.pivot[c] = shift;
            channels.factor[c] = factor as f32;
            channels.offset[c] = (f64::from(learned.shift[c]) - beyond * factor) as f32;
        }
    }
    channels
}

/// The mean of each group over a few rows spread over the slab.
fn sampled_means(groups: &Groups<'_>, start: usize) -> Vec<f32> {
    let width = groups.channels / groups.groups;
    let sampled = groups.rows.min(SAMPLED_ROWS);
    let mean = |group: usize| {
        let mut sum = 0.0;
        for sample in 0..sampled {
            let row = (2 * sample + 1) * groups.rows / (2 * sampled);
            let at = start + row * groups.channels + group * width;
            for i in at..at + width {
                // SAFETY: the slab's elements exist by what `Groups` promises, and `row` < `rows`.
                sum += f64::from(unsafe { groups.source.get(i) });
            }
        }
        (sum / (sampled * width) as f64) as f32
    };
    (0..groups.groups).map(mean).collect()
}

/// The sums of each group of the slab that begins at `start`, relative to a shift per group.
fn slab_sums(isa: Isa, groups: &Groups<'_>, shifts: &[f32], start: usize) -> Vec<Moments> {
    let width = groups.channels / groups.groups;
    let shift: Vec<f32> = (0..groups.channels).map(|c| shifts[c / width]).collect();
    let chunk = (CHUNK / groups.channels).clamp(1, MOST_ROWS_OF_CHUNK);
    let of_chunk = |index: usize| {
        let rows = index * chunk..((index + 1) * chunk).min(groups.rows);
        let mut sums = vec![0.0; groups.channels];
        let mut squares = vec![0.0; groups.channels];
        isa.dispatch(ChannelSums {
            groups,
            start,
            rows,
            shift: &shift,
            sums: &mut sums,
            squares: &mut squares,
        });
        let total = |values: &[f32]| values.iter().map(|&v| f64::from(v)).sum();
        sums.chunks_exact(width)
            .zip(squares.chunks_exact(width))
            .map(|(sums, squares)| Moments { sum: total(sums), squares: total(squares) })
            .collect()
    };
    let chunks = groups.rows.div_ceil(chunk);
    let by_chunk: Vec<Vec<Moments>> = if groups.rows * groups.channels <= SMALL_SLAB {
        (0..chunks).map(of_chunk).collect()
    } else {
        (0..chunks).into_par_iter().map(of_chunk).collect()
    };
    let mut totals = vec![Moments::default(); groups.groups];
    for chunk in by_chunk {
        for (total, sums) in totals.iter_mut().zip(chunk) {
            total.sum += sums.sum;
            total.squares += sums.squares;
        }
    }
    for (group, total) in totals.iter_mut().enumerate().filter(|(_, total)| !total.squares.is_finite()) {
        *total = wide_moments(values_of_group(groups, start, group), shifts[group]);
    }
    totals
}

/// The elements of a group of the slab that begins at `start`.
fn values_of_group(groups: &Groups<'_>, start: usize, group: usize) -> impl Iterator<Item = f32> {
    let width = groups.channels / groups.groups;
    (0..groups.rows).flat_map(move |row| {
        let first = start + row * groups.channels + group * width;
        // SAFETY: the slab's elements exist by what `Groups` promises.
        (first..first + width).map(move |at| unsafe { groups.source.get(at) })
    })
}

/// Sums each channel over a range of a slab's rows.
struct ChannelSums<'a> {
    groups: &'a Groups<'a>,
    start: usize,
    rows: Range<usize>,
    shift: &'a [f32],
    sums: &'a mut [f32],
    squares: &'a mut [f32],
}

impl Kernel for ChannelSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let mut row = self.rows.start;
        while row + ROWS_AT_ONCE <= self.rows.end {
            self.add_rows::<S, ROWS_AT_ONCE>(simd, row);
            row += ROWS_AT_ONCE;
        }
        for row in row..self.rows.end {
            self.add_rows::<S, 1>(simd, row);
        }
    }
}

impl ChannelSums<'_> {
    #[inline(always)]
    fn add_rows<S: Simd, const R: usize>(&mut self, simd: S, row: usize) {
        let channels = self.groups.channels;
        let mut buffers = [const { Block::uninit() }; R];
        let mut rows = [std::ptr::null(); R];
        for column in (0..channels).step_by(BLOCK) {
            let count = (channels - column).min(BLOCK);
            // SAFETY: the rows exist by what `Groups` promises, a buffer holds `count` <= BLOCK values, and the three
            // vectors have `channels`.
            unsafe {
                for i in 0..R {
                    let at = self.start + (row + i) * channels + column;
                    rows[i] = self.groups.source.read(simd, at, count, buffers[i].as_mut_ptr());
                }
                let shift = self.shift.as_ptr().add(column);
                let sums = self.sums.as_mut_ptr().add(column);
                let squares = self.squares.as_mut_ptr().add(column);
                let sums = Sums { shift, sums, squares };
                let whole = count / S::LANES * S::LANES;
                let mut at = 0;
                while at < whole {
                    sums.add(simd, rows, at, S::LANES);
                    at += S::LANES;
                }
                if at < count {
                    sums.add(simd, rows, at, count - at);
                }
            }
        }
    }
}

/// The sums of a run of channels.
struct Sums {
    shift: *const f32,
    sums: *mut f32,
    squares: *mut f32,
}

impl Sums {
    /// Adds one vector of each row, or the `lanes` of it that are left.
    ///
    /// # Safety
    /// Every pointer is valid for `at + lanes` values, `lanes` at most `S::LANES`.
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize>(&self, simd: S, rows: [*const f32; R], at: usize, lanes: usize) {
        // SAFETY: passed on from the caller.
        unsafe {
            let offset = load_up_to(simd, self.shift.add(at), lanes);
            let mut sum = load_up_to(simd, self.sums.add(at).cast_const(), lanes);
            let mut square = load_up_to(simd, self.squares.add(at).cast_const(), lanes);
            for row in rows {
                let d = simd.sub(load_up_to(simd, row.add(at), lanes), offset);
                sum = simd.add(sum, d);
                square = simd.mul_add(d, d, square);
            }
            store_up_to(simd, self.sums.add(at), sum, lanes);
            store_up_to(simd, self.squares.add(at), square, lanes);
        }
    }
}

//! Splitting work into tasks for the thread pool.
//!
//! The split depends on extents alone, never on the number of threads, so that sums are always added in the same order.

use std::ops::Range;

use rayon::prelude::*;

/// Elements per task: 32 to 64 KiB, enough to make the cost of handing it to a thread negligible.
pub(crate) const GRAIN: usize = 16 * 1024;

/// Calls `body` for ranges of at most `grain` that make up `0..count`; on this thread if there is only one range.
pub(crate) fn each(count: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
    let grain = grain.max(1);
    match count.div_ceil(grain) {
        0 => {}
        1 => body(0..count),
        tasks => {
            (0..tasks).into_par_iter().for_each(|task| body(task * grain..((task + 1) * grain).min(count)))
        }
    }
}

/// As [`each`], and returns the results of `body`, in order.
pub(crate) fn map<T: Send>(count: usize, grain: usize, body: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let grain = grain.max(1);
    let range = |task: usize| task * grain..((task + 1) * grain).min(count);
    match count.div_ceil(grain) {
        1 => vec![body(0..count)],
        tasks => (0..tasks).into_par_iter().map(|task| body(range(task))).collect(),
    }
}

/// How many rows of `len` elements make a task.
pub(crate) fn rows_of_task(len: usize) -> usize {
    (GRAIN / len.max(1)).max(1)
}

/// Calls `body` for rectangles, a range of rows and a range of columns, that make up `rows × len` elements.
pub(crate) fn rectangles(rows: usize, len: usize, body: impl Fn(Range<usize>, Range<usize>) + Sync) {
    if len == 0 {
        return;
    }
    if len <= 2 * GRAIN {
        return each(rows, rows_of_task(len), |rows| body(rows, 0..len));
    }
    let segments = len.div_ceil(GRAIN);
    each(rows * segments, 1, |task| {
        let (row, from) = (task.start / segments, task.start % segments * GRAIN);
        body(row..row + 1, from..(from + GRAIN).min(len));
    });
}

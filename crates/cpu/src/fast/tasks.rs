//! Cutting work into tasks for the thread pool.
//!
//! Cuts depend on extents alone, never on the number of threads, so that every sum is added in one order.

use std::ops::Range;

use rayon::prelude::*;

/// Elements of a task: 32 to 64 KiB, enough that handing it to a thread costs nothing beside it.
pub(crate) const GRAIN: usize = 16 * 1024;

/// Calls `body` for ranges of at most `grain` that make up `0..count`; on this thread where one range is all.
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

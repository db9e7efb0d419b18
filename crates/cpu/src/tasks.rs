//! Splitting work into tasks for the thread pool.
//!
//! The split depends on extents alone, never on the number of threads, so that sums are always added in the same order.
//!
//! A layer of a large picture may take minutes. So loops that write results ask before each task whether the work was stopped, and then leave
//! out the rest: their results are not defined, and the caller must not use them.

use std::{cell::RefCell, ops::Range};

use kinora_runtime::Stop;
use rayon::prelude::*;

thread_local! {
    /// What stops the loops that this thread begins.
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// Does work whose loops a request ends early. The caller asks afterwards whether there was one.
pub(crate) fn stoppable<T>(stop: &Stop, work: impl FnOnce() -> T) -> T {
    /// Puts back what was there before, also if the work panics.
    struct Before(Option<Stop>);
    impl Drop for Before {
        fn drop(&mut self) {
            STOP.set(self.0.take());
        }
    }
    let _before = Before(STOP.replace(Some(stop.clone())));
    work()
}

/// Calls `body` for every number below `count`, each a task of its own that a free thread takes; on this thread if there is only one.
pub(crate) fn blocks(count: usize, body: impl Fn(usize) + Sync) {
    if count == 1 {
        return body(0);
    }
    let numbers = (0..count).into_par_iter().with_max_len(1);
    match STOP.with_borrow(Clone::clone) {
        Some(stop) => numbers.filter(|_| !stop.is_requested()).for_each(&body),
        None => numbers.for_each(&body),
    }
}

/// Elements per task: 32 to 64 KiB, enough to make the cost of handing it to a thread negligible.
pub(crate) const GRAIN: usize = 16 * 1024;

/// Calls `body` for ranges of at most `grain` that make up `0..count`; on this thread if there is only one range.
pub(crate) fn each(count: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
    let grain = grain.max(1);
    match count.div_ceil(grain) {
        0 => {}
        1 => body(0..count),
        tasks => {
            let range = |task: usize| task * grain..((task + 1) * grain).min(count);
            let numbers = (0..tasks).into_par_iter();
            match STOP.with_borrow(Clone::clone) {
                Some(stop) => {
                    numbers.filter(|_| !stop.is_requested()).for_each(|task| body(range(task)));
                }
                None => numbers.for_each(|task| body(range(task))),
            }
        }
    }
}

/// As [`each`] without a stop, and returns the results of `body`, in order.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_request_ends_the_loops_of_this_work_and_of_no_other() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        pool.install(|| {
            let run = |stop: &Stop, request: bool| {
                let count = AtomicUsize::new(0);
                blocks(10, |number| {
                    count.fetch_add(1, Ordering::Relaxed);
                    if request && number == 3 {
                        stop.request();
                    }
                });
                each(10, 1, |_| {
                    count.fetch_add(100, Ordering::Relaxed);
                });
                count.into_inner()
            };
            let stop = Stop::new();
            assert_eq!(stoppable(&stop, || run(&stop, false)), 1010);
            // One thread takes the tasks in order.
            assert_eq!(stoppable(&stop, || run(&stop, true)), 4);
            assert_eq!(stoppable(&stop, || run(&stop, false)), 0);
            assert_eq!(run(&stop, false), 1010);
        });
    }
}

//! The threads that all CPU kernels share.

use std::{
    env, io,
    num::NonZero,
    sync::{OnceLock, mpsc},
    thread,
};

use kinora_graph::tensor::AlignedBytes;
use kinora_runtime::RunError;
use rayon::{ThreadBuilder, ThreadPoolBuilder};

use crate::{fast, gemm};

/// More threads than this for each processor only take memory.
const MOST_PER_PROCESSOR: usize = 4;
/// More than a thread takes when it starts: its stack, another for signals, and what the C library keeps.
const ROOM: usize = 4 << 20;

/// Starts the threads, unless they run already: as many as there are processors or as `RAYON_NUM_THREADS` asks for, within
/// reason, and fewer if the system does not allow as many.
///
/// rayon would start them on first use, and end the program if it could not.
///
/// # Errors
/// [`RunError::Threads`] if the system does not allow a single one.
pub fn start() -> Result<(), RunError> {
    static STARTED: OnceLock<()> = OnceLock::new();
    // The caller may have a pool of its own.
    if STARTED.get().is_some() || rayon::current_thread_index().is_some() {
        return Ok(());
    }
    register_scratch();
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let asked = env::var("RAYON_NUM_THREADS").ok();
    let count = bounded(asked.as_deref(), processors);
    // They are started before the pool is built: rayon's first attempt to build it is its last.
    let mut workers = Vec::new();
    let mut refused = None;
    while workers.len() < count && refused.is_none() {
        match worker(workers.len()) {
            Ok(worker) => workers.push(worker),
            Err(error) => refused = Some(error),
        }
    }
    if let (true, Some(error)) = (workers.is_empty(), refused) {
        return Err(RunError::Threads { reason: error.to_string() });
    }
    let (count, mut workers) = (workers.len(), workers.into_iter());
    let hand_over = |thread: ThreadBuilder| {
        let worker = workers.next().ok_or(io::ErrorKind::WouldBlock)?;
        worker.send(thread).map_err(|_| io::ErrorKind::BrokenPipe.into())
    };
    // An error means that the pool is there already, and that the new threads, given nothing to do, end.
    let _ = ThreadPoolBuilder::new().num_threads(count).spawn_handler(hand_over).build_global();
    STARTED.get_or_init(|| ());
    Ok(())
}

/// A thread that waits for what it is to do in the pool. It runs when this returns.
fn worker(number: usize) -> io::Result<mpsc::SyncSender<ThreadBuilder>> {
    // The standard library ends the program if a new thread finds no memory for what it needs beside its stack.
    drop(AlignedBytes::try_zeroed(ROOM).ok_or(io::ErrorKind::OutOfMemory)?);
    let (sender, receiver) = mpsc::sync_channel::<ThreadBuilder>(1);
    let (running, runs) = mpsc::sync_channel(1);
    let run = move || {
        register_scratch();
        let _ = running.send(());
        if let Ok(thread) = receiver.recv() {
            thread.run();
        }
    };
    thread::Builder::new().name(format!("kinora {number}")).spawn(run)?;
    // One at a time, so that the room is for this one alone.
    let _ = runs.recv();
    Ok(sender)
}

/// Registers the destructors of what a thread keeps, as long as there is memory: the C library ends the program if it has none for
/// that, and would be asked only when the first layer runs.
fn register_scratch() {
    gemm::register_scratch();
    fast::register_scratch();
}

/// How many threads to start. As for rayon, 0 and what is no number ask for nothing.
fn bounded(asked: Option<&str>, processors: usize) -> usize {
    let asked = asked.and_then(|asked| asked.parse::<usize>().ok()).filter(|&asked| asked > 0);
    asked.unwrap_or(processors).min(processors.saturating_mul(MOST_PER_PROCESSOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_threads_as_asked_for_within_reason() {
        for (asked, threads) in [
            (None, 8),
            (Some("1"), 1),
            (Some("12"), 12),
            (Some("100000"), 32),
            (Some("99999999999999999999999"), 8),
            (Some("0"), 8),
            (Some("many"), 8),
        ] {
            assert_eq!(bounded(asked, 8), threads, "{asked:?}");
        }
    }

    #[test]
    fn starting_again_does_nothing() {
        start().unwrap();
        let threads = rayon::current_num_threads();
        start().unwrap();
        assert_eq!(rayon::current_num_threads(), threads);
        let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(pool.install(|| (start().is_ok(), rayon::current_num_threads())), (true, 1));
    }
}

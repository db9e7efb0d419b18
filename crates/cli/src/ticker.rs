//! Draws a progress bar again while nothing else does.

use std::{
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{Builder, JoinHandle},
    time::Duration,
};

use indicatif::ProgressBar;

/// How often.
const EVERY: Duration = Duration::from_millis(200);

/// Draws a bar again until it is dropped. Steps may take minutes: the clock shows that the program is alive.
pub struct Ticker {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts a thread. If the system allows no further one, the bar moves only when its stage does; indicatif's own ticker would
    /// panic.
    pub fn start(bar: &ProgressBar) -> Ticker {
        let (end, ended) = mpsc::channel();
        let bar = bar.downgrade();
        let tick = move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let Some(bar) = bar.upgrade() else { break };
                bar.tick();
            }
        };
        Ticker { end: Some(end), thread: Builder::new().name("ticker".to_owned()).spawn(tick).ok() }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Nothing is drawn after this.
            let _ = thread.join();
        }
    }
}

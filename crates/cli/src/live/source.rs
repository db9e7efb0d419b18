//! Where frames come from: one after the other, or the newest of those that have come.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use kinora::{
    image_to_video::GenerateError,
    video::input::{Frame, FrameSource, InputError},
};

use crate::{failure::Failure, interrupt};

/// How often a reader that waits for a frame looks whether the program is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The next frame, and the times of those before it that nobody took.
pub struct Next {
    pub frame: Frame,
    pub dropped: Vec<Duration>,
}

/// Frames that are read in a thread of their own, so that a camera that stands still does not keep the program from ending.
pub struct Source(Arc<Mailbox>);

/// Room for one frame.
#[derive(Default)]
struct Mailbox {
    /// The newest frame takes the place of one that nobody took; otherwise it waits for it to be taken.
    newest: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    frame: Option<Frame>,
    dropped: Vec<Duration>,
    /// The end, or why there are no more.
    end: Option<Result<(), InputError>>,
    /// Nobody will take any more.
    closed: bool,
}

/// Begins to read.
pub fn start(mut source: Box<dyn FrameSource>, newest: bool) -> Result<Source, Failure> {
    let mailbox = Arc::new(Mailbox { newest, ..Mailbox::default() });
    let to = mailbox.clone();
    let read = move || {
        let end = loop {
            let wanted = match source.next_frame() {
                Ok(Some(frame)) => to.put(frame),
                Ok(None) => false,
                Err(error) => break Err(error),
            };
            if !wanted {
                break Ok(());
            }
        };
        to.state().end = Some(end);
        to.changed.notify_all();
    };
    let thread = thread::Builder::new().name("frames".to_owned()).spawn(read);
    thread.map_err(|source| GenerateError::Thread { source })?;
    Ok(Source(mailbox))
}

impl Source {
    /// The next frame; `None` at the end, or if the program is to end.
    pub fn next(&mut self) -> Result<Option<Next>, InputError> {
        self.0.take(interrupt::requested)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.changed.notify_all();
    }
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a frame; says whether more are wanted.
    fn put(&self, frame: Frame) -> bool {
        let mut state = self.state();
        while !self.newest && state.frame.is_some() && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(before) = state.frame.replace(frame) {
            state.dropped.push(before.time);
        }
        self.changed.notify_all();
        !state.closed
    }

    fn take(&self, stopped: impl Fn() -> bool) -> Result<Option<Next>, InputError> {
        let mut state = self.state();
        loop {
            if let Some(frame) = state.frame.take() {
                self.changed.notify_all();
                return Ok(Some(Next { frame, dropped: std::mem::take(&mut state.dropped) }));
            }
            if let Some(end) = state.end.take() {
                state.end = Some(Ok(()));
                return end.map(|()| None);
            }
            if stopped() {
                return Ok(None);
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use kinora::RgbImage;

    use super::*;

    fn frame(number: u64) -> Frame {
        Frame { image: RgbImage::new(1, 1, vec![0; 3]).unwrap(), time: Duration::from_secs(number) }
    }

    fn seconds(next: &Next) -> (u64, Vec<u64>) {
        (next.frame.time.as_secs(), next.dropped.iter().map(Duration::as_secs).collect())
    }

    #[test]
    fn the_newest_frame_wins_and_the_others_are_known() {
        let mailbox = Mailbox { newest: true, ..Mailbox::default() };
        (0..4).for_each(|number| assert!(mailbox.put(frame(number))));
        assert_eq!(seconds(&mailbox.take(|| false).unwrap().unwrap()), (3, vec![0, 1, 2]));
        mailbox.put(frame(4));
        mailbox.state().end = Some(Ok(()));
        assert_eq!(seconds(&mailbox.take(|| false).unwrap().unwrap()), (4, vec![]));
        assert!(mailbox.take(|| false).unwrap().is_none());
        assert!(mailbox.take(|| false).unwrap().is_none());
    }

    #[test]
    fn every_frame_comes_if_all_are_wanted() {
        let mailbox = Mailbox::default();
        thread::scope(|scope| {
            scope.spawn(|| (0..5).for_each(|number| assert!(mailbox.put(frame(number)))));
            for number in 0..5 {
                assert_eq!(seconds(&mailbox.take(|| false).unwrap().unwrap()), (number, vec![]));
            }
        });
    }

    #[test]
    fn whoever_waits_is_told_to_stop() {
        assert!(Mailbox::default().take(|| true).unwrap().is_none());
    }
}

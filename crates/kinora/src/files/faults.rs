//! File operations that fail, or after which the process is no more.

use std::{cell::Cell, io};

use super::system::Operation;

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It fails with this error.
    Fails(i32),
    /// It fails with this error, and so do all that follow.
    FailsFromThereOn(i32),
    /// As far as files are concerned, the process ends: nothing that follows has an effect, and destructors neither.
    Dies,
    /// The process does end.
    Killed,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    fault: Fault,
    /// The number of the operation, from 1.
    at: usize,
    begun: usize,
    struck: Option<Operation>,
}

thread_local! {
    /// For the operations of this thread.
    static PLAN: Cell<Option<Plan>> = const { Cell::new(None) };
}

/// Does some work in which the operation number `at` goes wrong. Returns which one that was; `None` if there were fewer.
pub(super) fn with_fault<T>(fault: Fault, at: usize, work: impl FnOnce() -> T) -> (T, Option<Operation>) {
    PLAN.set(Some(Plan { fault, at, begun: 0, struck: None }));
    let result = work();
    (result, PLAN.take().and_then(|plan| plan.struck))
}

/// Called before every operation.
pub(super) fn begin(operation: Operation) -> io::Result<()> {
    let Some(mut plan) = PLAN.get() else { return Ok(()) };
    plan.begun += 1;
    let now = plan.begun == plan.at;
    if now {
        plan.struck = Some(operation);
    }
    PLAN.set(Some(plan));
    match plan.fault {
        // The system interrupts no other operation than this, or begins it again itself.
        Fault::Fails(libc::EINTR) if operation != Operation::Write => Ok(()),
        Fault::Fails(code) if now => Err(io::Error::from_raw_os_error(code)),
        Fault::FailsFromThereOn(code) if plan.begun >= plan.at => Err(io::Error::from_raw_os_error(code)),
        Fault::Dies if plan.begun >= plan.at => Err(io::Error::other("the process has ended")),
        Fault::Killed if now => {
            // SAFETY: both calls take numbers alone. The second does not return.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            unreachable!("the process has ended")
        }
        _ => Ok(()),
    }
}

/// Whether the operation that comes now is to write only a part before it fails.
pub(super) fn cuts_a_write_short() -> bool {
    PLAN.get().is_some_and(|plan| plan.begun + 1 == plan.at && plan.fault != Fault::Fails(libc::EINTR))
}

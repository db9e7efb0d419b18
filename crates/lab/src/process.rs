//! Programs that the lab starts. Each leads a process group of its own, which ends as a whole.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// The programs that run, and their folders.
static RUNNING: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

/// How long a program that is asked to end may take to end what it has started. After that it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Ends every program that the lab has started, with all that it has started itself, and removes its files: a Python that waits for the
/// next reference, one that computes, a compiler, a profiler. For a program that is about to end. One that runs on may use the lab
/// again.
pub fn end_programs() {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for (process, folder) in running.drain(..) {
        end_group(process);
        let _ = fs::remove_dir_all(folder);
    }
}

/// A program that does not outlive its owner.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    status: Option<ExitStatus>,
}

impl Program {
    /// Starts a program. `folder` has its files, and goes with it if [`end_programs`] ends it.
    pub(crate) fn start(command: &mut Command, folder: &Path) -> io::Result<Program> {
        #[cfg(unix)]
        {
            use std::os::unix::process::CommandExt;

            // Ctrl-C reaches Kinora alone, which ends the whole group.
            command.process_group(0);
            // SAFETY: it only makes a system call, which allocates nothing and takes no lock.
            unsafe { command.pre_exec(listen_to_signals) };
        }
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        running.push((child.id(), folder.to_owned()));
        Ok(Program { child, status: None })
    }

    /// Its standard input and output, if they are pipes and nobody has taken them.
    pub(crate) fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// Waits until it has ended, but not beyond the time. What it has started ends with it.
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_millis(1);
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(10));
        }
        Ok(self.end())
    }

    /// Whether it has ended. It is not waited for, so that its number stays its own.
    pub(crate) fn has_ended(&mut self) -> bool {
        #[cfg(unix)]
        return self.status.is_some() || is_over(self.child.id());
        #[cfg(not(unix))]
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Ends it with all that it has started. How it ended, if that is known.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // Whoever holds this lock may signal the process by its number, which is another's once it has been waited for.
            let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            end_group(self.child.id());
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
            running.retain(|(process, _)| *process != self.child.id());
        }
        self.status
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a program to its end, but not beyond the time: then it is ended with all that it has started.
pub(crate) fn ended(command: &mut Command, folder: &Path, limit: Duration) -> io::Result<Option<ExitStatus>> {
    Program::start(command, folder)?.wait(limit)
}

/// Lets signals through. Kinora blocks those that ask it to end, for a thread that waits for them, and a child inherits that.
#[cfg(unix)]
fn listen_to_signals() -> io::Result<()> {
    // SAFETY: the set is plain data, which `sigemptyset` makes valid.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both sets live longer than the calls; the old one is not asked for.
    let set = unsafe {
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut())
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a child of this program has ended. It is not waited for.
#[cfg(unix)]
fn is_over(process: u32) -> bool {
    // SAFETY: the structure is plain data, for which zeros are valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` lives longer than the call, which writes nothing else.
    let asked = unsafe { libc::waitid(libc::P_PID, libc::id_t::from(process), &mut info, how) };
    // SAFETY: `waitid` has filled the structure, or left its zeros.
    asked != 0 || unsafe { info.si_pid() } != 0
}

/// Ends a group. Its leader is asked first, because it knows of processes that have left the group.
#[cfg(unix)]
fn end_group(leader: u32) {
    let Ok(group) = i32::try_from(leader) else { return };
    // SAFETY: a plain system call without pointers. The leader has not been waited for, so that the number is not another's.
    let _ = unsafe { libc::kill(group, libc::SIGTERM) };
    let deadline = Instant::now() + GRACE;
    while !is_over(leader) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: as above.
    let _ = unsafe { libc::kill(-group, libc::SIGKILL) };
}

#[cfg(not(unix))]
fn end_group(_leader: u32) {}

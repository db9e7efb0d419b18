//! How much memory this machine has left.

mod groups;
mod process;

use std::{fmt, fs, path::Path};

use serde::Serialize;

/// The memory that may be used, and what says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryLimit {
    /// The bytes that may be used.
    pub bytes: u64,
    /// What says so.
    pub source: LimitSource,
}

/// What sets a limit on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// The user asked for it.
    Asked,
    /// The machine has no more that is free or can be freed.
    Machine,
    /// The control group that the process belongs to, as of a container, may not take more.
    ControlGroup,
    /// The process itself may not take more, as `ulimit` sets it.
    Process,
    /// The GPU has no more that is free.
    Gpu,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitSource::Asked => "what was asked for",
            LimitSource::Machine => "what the machine has available",
            LimitSource::ControlGroup => "what its control group leaves it",
            LimitSource::Process => "what its own limit (`ulimit -v` or `-d`) leaves it",
            LimitSource::Gpu => "what the GPU has free",
        })
    }
}

/// The memory that is available now, without anything being swapped out or killed for it: the least of what the machine has
/// available, what its control groups leave the process, and what its own limits do. `None` if the system does not say; only
/// Linux is asked.
pub fn available() -> Option<MemoryLimit> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kilobytes(&text, "MemAvailable:"));
    let groups = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| groups::available(Path::new("/sys/fs/cgroup"), &text));
    let limits = [
        (machine, LimitSource::Machine),
        (groups, LimitSource::ControlGroup),
        (process::available(), LimitSource::Process),
    ];
    let limits = limits.into_iter().filter_map(|(bytes, source)| Some(MemoryLimit { bytes: bytes?, source }));
    limits.min_by_key(|limit| limit.bytes)
}

/// Hands what was freed back to the system, if the allocator is one that would keep it. Tensors go back by themselves; this is
/// for everything else.
pub(crate) fn hand_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes the allocator's own locks, and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A line of `/proc/meminfo` or `/proc/self/status`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_is_available() {
        let available = |text: &str| kilobytes(text, "MemAvailable:");
        let text = "MemTotal:       24600000 kB\nMemFree:         100 kB\nMemAvailable:    2000 kB\n";
        assert_eq!(available(text), Some(2_048_000));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_some() {
        assert!(available().is_some_and(|limit| limit.bytes > 1 << 20));
    }
}

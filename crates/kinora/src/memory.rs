//! How much memory this machine has left.

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
    /// The GPU has no more that is free.
    Gpu,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitSource::Asked => "what was asked for",
            LimitSource::Machine => "what the machine has available",
            LimitSource::ControlGroup => "what its control group leaves it",
            LimitSource::Gpu => "what the GPU has free",
        })
    }
}

/// The memory that is available now, without anything being swapped out or killed for it: the smaller of what the machine has
/// available and what control groups leave. `None` if the system does not say; only Linux is asked.
pub fn available() -> Option<MemoryLimit> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_available(&text));
    let groups = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| groups_available(Path::new("/sys/fs/cgroup"), &text));
    let limit = |source| move |bytes| MemoryLimit { bytes, source };
    let limits = [machine.map(limit(LimitSource::Machine)), groups.map(limit(LimitSource::ControlGroup))];
    limits.into_iter().flatten().min_by_key(|limit| limit.bytes)
}

/// `MemAvailable` of `/proc/meminfo`.
fn machine_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the control groups (version 2) of a process leave it, by `/proc/self/cgroup`: a limit may stand at the group
/// itself and at every one around it.
fn groups_available(root: &Path, text: &str) -> Option<u64> {
    let own = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = root.join(own.trim_start_matches('/'));
    own.ancestors().take_while(|group| group.starts_with(root)).filter_map(group_available).min()
}

fn group_available(group: &Path) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    // Without a limit this is the word "max", or no file at all.
    let (most, used) = (number("memory.max")?, number("memory.current")?);
    // Pages of files that were read, a model's above all, count as used but make way.
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let files = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let freed = files("inactive_file").saturating_add(files("active_file"));
    Some(most.saturating_sub(used.saturating_sub(freed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_is_available() {
        let text = "MemTotal:       24600000 kB\nMemFree:         100 kB\nMemAvailable:    2000 kB\n";
        assert_eq!(machine_available(text), Some(2_048_000));
        assert_eq!(machine_available("MemTotal: 1 kB\n"), None);
        assert_eq!(machine_available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, files: &[(&str, &str)]| {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        };
        group("outer", &[("memory.max", "1000\n"), ("memory.current", "300\n")]);
        group("outer/inner", &[("memory.max", "max\n"), ("memory.current", "200\n")]);
        let of = |path: &str| groups_available(root.path(), &format!("1:name=systemd:/\n0::{path}\n"));
        assert_eq!(of("/outer/inner"), Some(700));
        // Cached files make way.
        let stat = "anon 50\ninactive_file 200\ninactive_file_more 7\nactive_file 50\n";
        group("outer/inner/own", &[("memory.max", "500"), ("memory.current", "400"), ("memory.stat", stat)]);
        assert_eq!(of("/outer/inner/own"), Some(350));
        assert_eq!(of("/elsewhere"), None);
        assert_eq!(groups_available(root.path(), "4:memory:/x\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_some() {
        assert!(available().is_some_and(|limit| limit.bytes > 1 << 20));
    }
}

//! The limits of the process itself, as `ulimit` sets them.

/// What `ulimit -v` and `ulimit -d` leave: the limits on the addresses and on the data of the process, less what it has.
#[cfg(target_os = "linux")]
pub(super) fn available() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    // SAFETY: `soft_limit` gives the calls a place for one `rlimit`.
    let addresses = soft_limit(|limit| unsafe { libc::getrlimit(libc::RLIMIT_AS, limit) });
    // SAFETY: as above.
    let data = soft_limit(|limit| unsafe { libc::getrlimit(libc::RLIMIT_DATA, limit) });
    let addresses = addresses.and_then(|most| left(most, &status, "VmSize:"));
    let data = data.and_then(|most| left(most, &status, "VmData:"));
    addresses.into_iter().chain(data).min()
}

/// Only Linux is asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn available() -> Option<u64> {
    None
}

/// A soft limit, in bytes. `None` if it is not set.
#[cfg(target_os = "linux")]
fn soft_limit(ask: impl FnOnce(*mut libc::rlimit) -> libc::c_int) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    (ask(&raw mut limit) == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// A limit less what a line of `/proc/self/status` says is taken.
#[cfg(any(target_os = "linux", test))]
fn left(most: u64, status: &str, line: &str) -> Option<u64> {
    Some(most.saturating_sub(super::kilobytes(status, line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_has_is_not_left() {
        let status = "Name:\tkinora\nVmPeak:\t    9000 kB\nVmSize:\t    1000 kB\nVmData:\t     200 kB\n";
        assert_eq!(left(2_000_000, status, "VmSize:"), Some(976_000));
        assert_eq!(left(2_000_000, status, "VmData:"), Some(1_795_200));
        assert_eq!(left(5, status, "VmData:"), Some(0));
        assert_eq!(left(5, "", "VmData:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_limit_counts_if_it_is_set_and_known() {
        let asked = |answer: libc::c_int, most: u64| {
            soft_limit(|limit| {
                // SAFETY: `soft_limit` gives a place for one `rlimit`.
                unsafe { (*limit).rlim_cur = most };
                answer
            })
        };
        assert_eq!(asked(0, 5), Some(5));
        assert_eq!(asked(-1, 5), None);
        assert_eq!(asked(0, libc::RLIM_INFINITY), None);
    }

    /// The limits of this process are nobody's to set: a child has some.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_limits_of_the_process_are_asked_for() {
        const CHILD: &str = "KINORA_TEST_LIMITED";
        if let Ok(kilobytes) = std::env::var(CHILD) {
            let most = kilobytes.parse::<u64>().unwrap() * 1024;
            let left = available();
            assert!(left.is_some_and(|left| (most / 2..most).contains(&left)), "{left:?} of {most}");
            return;
        }
        let _one_at_a_time = crate::children::alone();
        for (option, kilobytes) in [("-v", "4000000"), ("-d", "3000000")] {
            let script = format!("ulimit {option} {kilobytes}; exec \"$0\" \"$@\"");
            let mut child = std::process::Command::new("sh");
            child.args(["-c", &script]).arg(std::env::current_exe().unwrap()).env(CHILD, kilobytes);
            child.args(["--exact", "memory::process::tests::the_limits_of_the_process_are_asked_for"]);
            let ended = child.output().unwrap();
            let said = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && said.contains("1 passed"), "{option}: {said}");
        }
    }
}

//! What the control groups of a process leave it. Containers are made of them.

use std::{fs, path::Path};

/// How one version of control groups names its files.
struct Version {
    /// What a group may take: in bytes, or a word or a huge number if there is no limit.
    limits: &'static [&'static str],
    used: &'static str,
    /// The lines of `memory.stat` that count the pages of files.
    files: [&'static str; 2],
}

const V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
};

/// Above `memory.high` a group is slowed down until it stands still, so it is a limit as well.
const V2: Version = Version {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    files: ["inactive_file", "active_file"],
};

/// Version 1 writes "no limit" as the largest multiple of a page. No machine has half of it.
const NO_LIMIT: u64 = 1 << 62;

/// What the control groups of a process leave it, by its `/proc/self/cgroup`. `root` is where control groups are mounted.
pub(super) fn available(root: &Path, text: &str) -> Option<u64> {
    let v1 = text.lines().find_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(path)
    });
    let v2 = text.lines().find_map(|line| line.strip_prefix("0::"));
    let v1 = v1.and_then(|path| tightest(&root.join("memory"), path, &V1));
    let v2 = v2.and_then(|path| tightest(root, path, &V2));
    v1.into_iter().chain(v2).min()
}

/// A limit may stand at the group itself and at every one around it. A container may not see its own group but only the
/// root of what is mounted, which then is its own.
fn tightest(root: &Path, path: &str, version: &Version) -> Option<u64> {
    let own = root.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(root));
    groups.filter_map(|group| left(group, version)).min()
}

/// What one group leaves. `None` if it has no limit.
fn left(group: &Path, version: &Version) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    let most = version.limits.iter().filter_map(|file| number(file)).min().filter(|&most| most < NO_LIMIT)?;
    let used = number(version.used)?;
    // Pages of files that were read, a model's above all, count as used but make way.
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let files = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let freed = version.files.into_iter().map(files).fold(0, u64::saturating_add);
    Some(most.saturating_sub(used.saturating_sub(freed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of groups, each with its files.
    fn groups(groups: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, files) in groups {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        }
        root
    }

    #[test]
    fn the_tightest_group_counts() {
        let stat = "anon 50\ninactive_file 200\ninactive_file_more 7\nactive_file 50\n";
        let root = groups(&[
            ("outer", &[("memory.max", "1000\n"), ("memory.current", "300\n")]),
            ("outer/inner", &[("memory.max", "max\n"), ("memory.current", "200\n")]),
            // Cached files make way.
            ("outer/inner/own", &[("memory.max", "500"), ("memory.current", "400"), ("memory.stat", stat)]),
            ("slowed", &[("memory.max", "900\n"), ("memory.high", "600\n"), ("memory.current", "100\n")]),
        ]);
        let of = |path: &str| available(root.path(), &format!("1:name=systemd:/\n0::{path}\n"));
        assert_eq!(of("/outer/inner"), Some(700));
        assert_eq!(of("/outer/inner/own"), Some(350));
        assert_eq!(of("/slowed"), Some(500));
        assert_eq!(of("/elsewhere"), None);
    }

    #[test]
    fn the_first_version_is_asked_as_well() {
        let none = "9223372036854771712\n";
        let stat = "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 20\n";
        let files = |most: &'static str, used: &'static str| {
            [("memory.limit_in_bytes", most), ("memory.usage_in_bytes", used), ("memory.stat", stat)]
        };
        let root = groups(&[
            ("memory", &files(none, "5000")),
            ("memory/box", &files("1000", "500")),
            ("memory/box/inner", &files(none, "400")),
            ("unlimited/memory", &files(none, "400")),
            ("edge/memory", &files("4611686018427387904", "400")),
            ("container/memory", &files("800", "120")),
        ]);
        let of = |root: &Path, line: &str| available(root, &format!("5:cpu,cpuacct:/x\n{line}\n0::/\n"));
        assert_eq!(of(root.path(), "4:memory:/box/inner"), Some(620));
        assert_eq!(of(root.path(), "4:hugetlb,memory:/box"), Some(620));
        assert_eq!(of(root.path(), "4:memory_recursive:/box"), None);
        assert_eq!(of(&root.path().join("unlimited"), "4:memory:/"), None);
        assert_eq!(of(&root.path().join("edge"), "4:memory:/"), None);
        // The path is the host's, which a container does not see.
        assert_eq!(of(&root.path().join("container"), "4:memory:/docker/8a5f"), Some(800));
    }
}

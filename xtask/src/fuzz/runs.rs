//! Running the targets, and the table of what they did.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use super::{BUILT, Options, TARGET, Target, corpora};
use crate::{
    files::{copy, entries, io_error, make_folder},
    shell::{TaskError, command, command_line, root},
};

/// What a target did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Progress {
    runs: u64,
    /// Edges of the program that some input passed.
    coverage: u64,
    /// Inputs that cover something of their own.
    corpus: u64,
    /// Inputs that ran out of memory, out of time, and crashed.
    failed: [u64; 3],
}

/// Runs every target for its share of the time.
pub fn run(driver: &Path, targets: &[Target], options: &Options) -> Result<(), TaskError> {
    let seconds = (options.minutes * 60.0 / targets.len() as f64).ceil().max(1.0);
    println!("\n{} targets, {seconds:.0} s each, {} at a time", targets.len(), options.jobs);
    println!("{:16} {:>12} {:>9} {:>8} {:>8}", "target", "runs", "coverage", "corpus", "crashes");
    let mut crashes = Vec::new();
    for target in targets {
        let (progress, found) = run_one(driver, target, seconds, options.jobs)?;
        let Progress { runs, coverage, corpus, .. } = progress;
        println!("{:16} {runs:>12} {coverage:>9} {corpus:>8} {:>8}", target.name, found.len());
        crashes.extend(found.into_iter().map(|path| (target.name.clone(), path)));
    }
    for (target, path) in &crashes {
        println!("{}: again with `{TARGET}={target} {} {0}`", path.display(), driver.display());
    }
    match crashes.len() {
        0 => Ok(()),
        count => Err(TaskError::Failed {
            command: "cargo xtask fuzz".to_owned(),
            status: format!("{count} inputs crash, hang or take too much memory; they are listed above"),
        }),
    }
}

/// Runs a target, and returns what it did and the inputs that it could not take.
fn run_one(
    driver: &Path,
    target: &Target,
    seconds: f64,
    jobs: usize,
) -> Result<(Progress, Vec<PathBuf>), TaskError> {
    let [kept, new] = corpora(target);
    let folder = |name: &str| root().join(BUILT).join(name).join(&target.name);
    let (crashes, log) = (folder("crashes"), folder("logs").with_extension("txt"));
    for path in [&new, &crashes, &folder("logs").with_file_name("")] {
        make_folder(path)?;
    }
    // What once failed is a good place to start from.
    let regressions = root().join("fuzz/regressions").join(&target.name);
    if regressions.is_dir() {
        copy(&regressions, &new)?;
    }
    let before = entries(&crashes)?;
    let text = fs::File::create(&log).map_err(io_error(&log))?;
    // Processes that crash are replaced by others until the time is over.
    let mut fuzzer = command(
        driver,
        &["-ignore_crashes=1", "-ignore_timeouts=1", "-ignore_ooms=1", "-timeout=10", "-rss_limit_mb=2048"],
    );
    fuzzer.arg(format!("-fork={jobs}")).arg(format!("-max_total_time={seconds:.0}"));
    fuzzer
        .arg(format!("-max_len={}", target.max_bytes))
        .arg(format!("-artifact_prefix={}/", crashes.display()));
    fuzzer.arg(&new).arg(&kept).env(TARGET, &target.name).stdout(Stdio::null()).stderr(text);
    let line = command_line(&fuzzer);
    // It ends with an error if an input failed; the inputs say so too.
    fuzzer.status().map_err(|source| TaskError::Start { command: line.clone(), source })?;
    let text = String::from_utf8_lossy(&fs::read(&log).map_err(io_error(&log))?).into_owned();
    let progress = text.lines().rev().find_map(parse).ok_or_else(|| TaskError::Failed {
        command: line,
        status: format!("it ran no input; see {}", log.display()),
    })?;
    let mut found = entries(&crashes)?;
    found.retain(|path| !before.contains(path));
    Ok((progress, found))
}

/// A line of libFuzzer's log: `#1234: cov: 56 ft: 78 corp: 9 exec/s: 10 oom/timeout/crash: 0/0/1 time: 5s job: 2`.
fn parse(line: &str) -> Option<Progress> {
    let (runs, rest) = line.strip_prefix('#')?.split_once(": cov: ")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    let failed: Vec<u64> =
        after("oom/timeout/crash:")?.split('/').filter_map(|count| count.parse().ok()).collect();
    Some(Progress {
        runs: runs.parse().ok()?,
        coverage: words.first()?.parse().ok()?,
        corpus: after("corp:")?.parse().ok()?,
        failed: failed.try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_log_is_understood() {
        let line = "#6432: cov: 1205 ft: 3321 corp: 210 exec/s: 321 oom/timeout/crash: 1/0/2 time: 12s job: 4 dft_time: 0";
        let progress = Progress { runs: 6432, coverage: 1205, corpus: 210, failed: [1, 0, 2] };
        assert_eq!(parse(line), Some(progress));
        for other in ["", "INFO: -fork=1: 53 seed inputs", "#12\tNEW    cov: 4", "#x: cov: 1"] {
            assert_eq!(parse(other), None);
        }
    }
}

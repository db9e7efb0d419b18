//! `kinora lab watch`: a task, again at every save.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use kinora_lab::{GpuChoice, Options, Task};
use kinora_outside::printable;
use kinora_ptx::Calibration;

use super::{arguments::WatchArgs, observed};
use crate::{failure::Failure, interrupt, standard_output::print_styled};

/// How often the files are looked at. An editor's save is seen well within what a person notices.
const EVERY: Duration = Duration::from_millis(150);

/// A save may take several steps: a file that has just changed is read a little later.
const SETTLE: Duration = Duration::from_millis(50);

/// What is known of a file: when it was changed, and its length. `None` while it is not there.
type Seen = Vec<(PathBuf, Option<(SystemTime, u64)>)>;

/// Runs a task until the program is asked to end.
pub fn run(arguments: &WatchArgs) -> Result<(), Failure> {
    let options = Options {
        calibration: Calibration::of(&arguments.device_profile),
        chip: arguments.device_profile.clone(),
        gpu: GpuChoice::Never,
        quick: !arguments.all,
        // Explaining takes as long as everything else together, and longer.
        explain: arguments.all,
        ..Options::default()
    };
    // It has no other end.
    interrupt::set_words("interrupted");
    let mut runs = 0;
    loop {
        let started = Instant::now();
        let opened = Task::open(&arguments.task);
        // What is saved while the task runs is seen afterwards.
        let files = match &opened {
            Ok(task) => task.files(),
            Err(_) => Vec::new(),
        };
        let seen = look(&arguments.task, files);
        match opened {
            Ok(task) => {
                print_styled(&observed(&task, &options, false).text())?;
            }
            // It is watched all the same: the next save may mend it.
            Err(error) => print_styled(&format!("{}\n", printable(&error.to_string())))?,
        }
        print_styled(&format!("{:.1} s; waiting for a save\n\n", started.elapsed().as_secs_f64()))?;
        runs += 1;
        if arguments.runs.is_some_and(|most| runs >= most) {
            return Ok(());
        }
        let known: Vec<PathBuf> = seen.iter().map(|(path, _)| path.clone()).collect();
        while known.iter().map(|path| state(path)).eq(seen.iter().map(|(_, state)| *state)) {
            thread::sleep(EVERY);
        }
        thread::sleep(SETTLE);
    }
}

/// The files of a task as they are: the description, what it names, and what lies beside it, such as headers.
fn look(task: &Path, mut files: Vec<PathBuf>) -> Seen {
    let folder = if task.is_dir() { Some(task) } else { task.parent() };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_source = |path: &PathBuf| {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        matches!(extension.as_deref(), Some("toml" | "cu" | "cuh" | "h" | "hpp" | "ptx" | "py" | "npy"))
    };
    let beside = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.extend(beside.filter(is_source));
    files.push(if task.is_dir() { task.join("task.toml") } else { task.to_owned() });
    files.sort();
    files.dedup();
    files.into_iter().map(|path| (path.clone(), state(&path))).collect()
}

fn state(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

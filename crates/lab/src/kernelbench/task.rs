//! The tasks of a checkout: `KernelBench/level1/19_ReLU.py` and the like.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::KernelBenchError;

/// A task of the benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number within the level.
    pub number: u32,
    /// Its name, as `ReLU`.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
}

/// The tasks of a level by their numbers; `only` chooses some of them.
///
/// # Errors
/// If the folder has none, or not one that was asked for.
pub fn tasks(folder: &Path, level: u32, only: &[u32]) -> Result<Vec<Task>, KernelBenchError> {
    let inner = Path::new("KernelBench").join(format!("level{level}"));
    // The checkout, or the folder in it that has the levels.
    let places = [folder.join(&inner), folder.join(format!("level{level}"))];
    let mut found: Vec<Task> = places
        .iter()
        .find(|place| place.is_dir())
        .map(|place| listed(place))
        .transpose()?
        .unwrap_or_default();
    found.sort_by_key(|task| task.number);
    let (Some(first), Some(last)) =
        (found.first().map(|task| task.number), found.last().map(|task| task.number))
    else {
        let example = inner.join("19_ReLU.py").display().to_string();
        return Err(KernelBenchError::NoTasks { folder: folder.to_owned(), level, example });
    };
    if let Some(&number) = only.iter().find(|&&number| found.iter().all(|task| task.number != number)) {
        return Err(KernelBenchError::NoTask { number, level, first, last });
    }
    found.retain(|task| only.is_empty() || only.contains(&task.number));
    Ok(found)
}

fn listed(folder: &Path) -> Result<Vec<Task>, KernelBenchError> {
    let unreadable = |source| KernelBenchError::file("read", folder, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_none_or(|extension| extension != "py") {
            continue;
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((number, name)) = stem.split_once('_')
            && let Ok(number) = number.parse()
        {
            found.push(Task { number, name: name.trim_matches('_').to_owned(), file });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_found_by_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let level = folder.path().join("KernelBench/level1");
        fs::create_dir_all(&level).unwrap();
        for name in ["10_Ten_.py", "2_Two_by_two.py", "notes.txt", "helper.py"] {
            fs::write(level.join(name), "").unwrap();
        }
        let names = |only: &[u32]| -> Vec<(u32, String)> {
            tasks(folder.path(), 1, only).unwrap().into_iter().map(|task| (task.number, task.name)).collect()
        };
        assert_eq!(names(&[]), [(2, "Two_by_two".to_owned()), (10, "Ten".to_owned())]);
        assert_eq!(names(&[10]), [(10, "Ten".to_owned())]);
        let missing = tasks(folder.path(), 1, &[3]).unwrap_err().to_string();
        assert_eq!(missing, "level 1 has no task 3: choose from those that it has, 2 to 10");
        let other = tasks(folder.path(), 2, &[]).unwrap_err().to_string();
        assert!(other.contains("has no tasks of level 2: give a checkout of KernelBench"), "{other}");
    }
}

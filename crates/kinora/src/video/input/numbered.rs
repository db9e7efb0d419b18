//! The names of pictures that belong together.

use std::{
    cmp::Ordering,
    fs,
    path::{Path, PathBuf},
};

use super::error::Fault;
use crate::files;

/// The most files of a sequence: nine hours of video at 30 frames a second.
const MAX_FILES: usize = 1_000_000;

/// How the names of pictures end.
const EXTENSIONS: [&str; 8] = ["png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff"];

/// Pictures in their order.
pub(super) struct Found {
    pub(super) paths: Vec<PathBuf>,
    pub(super) notes: Vec<String>,
}

/// A name with a place for a number.
struct Pattern {
    before: String,
    /// How many digits a number has at least.
    digits: usize,
    after: String,
}

/// The pictures that a path with `%d` or `%04d` in its name stands for; or, for `clip.png`, `clip-0001.png` and so on.
pub(super) fn by_number(path: &Path) -> Result<Found, Fault> {
    let mut found = Found { paths: Vec::new(), notes: Vec::new() };
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(pattern) = name.and_then(|name| Pattern::parse(name).or_else(|| Pattern::of_output(path)))
    else {
        return Ok(found);
    };
    let names = names(files::folder(path)).unwrap_or_default();
    let mut numbers: Vec<(u64, &String)> =
        names.iter().filter_map(|name| Some((pattern.number(name)?, name))).collect();
    numbers.sort_unstable();
    check_count(numbers.len())?;
    let missing = numbers.windows(2).find(|pair| pair[1].0 > pair[0].0.saturating_add(1));
    if let Some([(before, _), (after, _)]) = missing {
        found.notes.push(format!("Between number {before} and number {after} pictures are missing."));
    }
    found.paths = numbers.into_iter().map(|(_, name)| path.with_file_name(name)).collect();
    Ok(found)
}

/// The pictures in a folder, in the order of their names, but numbers by their value: `2.png` comes before `10.png`.
pub(super) fn in_folder(folder: &Path) -> Result<Found, Fault> {
    let picture = |name: &String| {
        let extension = Path::new(name).extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
        !name.starts_with('.') && extension.is_some_and(|end| EXTENSIONS.contains(&end.as_str()))
    };
    let mut names: Vec<String> = names(folder)?.into_iter().filter(picture).collect();
    check_count(names.len())?;
    names.sort_unstable_by(|a, b| natural(a, b));
    Ok(Found { paths: names.iter().map(|name| folder.join(name)).collect(), notes: Vec::new() })
}

/// The names of the files in a folder that are text.
fn names(folder: &Path) -> Result<Vec<String>, Fault> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Asked of what a link leads to; what has vanished is no picture.
        if fs::metadata(entry.path()).is_ok_and(|found| found.is_file()) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

fn check_count(count: usize) -> Result<(), Fault> {
    if count > MAX_FILES {
        return Err(Fault::damaged(format!("more than {MAX_FILES} pictures")));
    }
    Ok(())
}

impl Pattern {
    /// A name with `%d`, or `%04d` for at least four digits.
    fn parse(name: &str) -> Option<Self> {
        let (before, rest) = name.split_once('%')?;
        let (width, after) = rest.split_once('d')?;
        let digits = match width {
            "" => 1,
            width if width.starts_with('0') && width.len() <= 3 => width.parse().ok()?,
            _ => return None,
        };
        Some(Self { before: before.into(), digits: usize::max(digits, 1), after: after.into() })
    }

    /// How a video is named that is written as numbered pictures.
    fn of_output(path: &Path) -> Option<Self> {
        let stem = path.file_stem()?.to_str()?;
        let extension = path.extension()?.to_str()?;
        EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()).then(|| Self {
            before: format!("{stem}-"),
            digits: 4,
            after: format!(".{extension}"),
        })
    }

    /// The number in a name.
    fn number(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        let filled = digits.len() == self.digits || (digits.len() > self.digits && !digits.starts_with('0'));
        let number = filled && digits.bytes().all(|digit| digit.is_ascii_digit());
        number.then(|| digits.parse().ok()).flatten()
    }
}

/// By runs of digits and runs of other characters.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while let (Some(first), Some(second)) = (left.chars().next(), right.chars().next()) {
        let digits = first.is_ascii_digit();
        if digits != second.is_ascii_digit() {
            break;
        }
        let run = |text: &str| text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
        let (x, rest_left) = left.split_at(run(left));
        let (y, rest_right) = right.split_at(run(right));
        let order = if digits {
            let value = |text: &'_ str| text.trim_start_matches('0').len();
            value(x).cmp(&value(y)).then_with(|| x.trim_start_matches('0').cmp(y.trim_start_matches('0')))
        } else {
            x.cmp(y)
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (rest_left, rest_right);
    }
    left.cmp(right).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_names() {
        let number = |pattern: &str, name: &str| Pattern::parse(pattern).unwrap().number(name);
        assert_eq!(number("in-%04d.png", "in-0012.png"), Some(12));
        assert_eq!(number("in-%04d.png", "in-12345.png"), Some(12_345));
        assert_eq!(number("in-%d.png", "in-7.png"), Some(7));
        assert_eq!(number("%02d", "00"), Some(0));
        for (pattern, name) in [
            ("in-%04d.png", "in-12.png"),
            ("in-%04d.png", "in-00012.png"),
            ("in-%04d.png", "in-0012.jpg"),
            ("in-%d.png", "in-.png"),
            ("in-%d.png", "in-07.png"),
            ("in-%d.png", "in-+7.png"),
            ("in-%d.png", "in-99999999999999999999999.png"),
        ] {
            assert_eq!(number(pattern, name), None, "{pattern} {name}");
        }
        for name in ["in.png", "in-%4d.png", "in-%s.png", "100%.png", "in-%0000d.png"] {
            assert!(Pattern::parse(name).is_none(), "{name}");
        }
        let output = Pattern::of_output(Path::new("a/my.clip.PNG")).unwrap();
        assert_eq!(output.number("my.clip-0003.PNG"), Some(3));
        assert!(Pattern::of_output(Path::new("clip.mp4")).is_none());
    }

    #[test]
    fn names_are_in_the_order_that_people_expect() {
        let sorted = [
            "1.png",
            "2.png",
            "10.png",
            "a1b2.png",
            "a1b10.png",
            "a01c.png",
            "a2.png",
            "a10.png",
            "b.png",
            "ä.png",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(natural(a, b), at.cmp(&other), "{a} {b}");
            }
        }
        assert_eq!(natural("007", "7"), "007".cmp("7"));
    }
}

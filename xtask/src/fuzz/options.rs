//! The arguments of `cargo xtask fuzz`.

use std::path::PathBuf;

use crate::shell::TaskError;

const USAGE: &str =
    "cargo xtask fuzz [--minutes N] [--target NAME] [--jobs N] [--minimise | --package FOLDER]";

/// What to do with the targets.
#[derive(Debug, PartialEq)]
pub struct Options {
    /// For how long all targets run together.
    pub minutes: f64,
    /// The only one that runs.
    pub target: Option<String>,
    /// How many processes work on a target.
    pub jobs: usize,
    /// Replace the kept corpus by the fewest inputs that cover as much.
    pub minimise: bool,
    /// Where to put what another machine needs to run them.
    pub package: Option<PathBuf>,
}

impl Options {
    pub fn parse(arguments: &[String]) -> Result<Options, TaskError> {
        let mut options = Options { minutes: 15.0, target: None, jobs: 1, minimise: false, package: None };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(TaskError::Usage(USAGE));
            match word.as_str() {
                "--minutes" => options.minutes = number(value()?)?,
                "--target" => options.target = Some(value()?.clone()),
                "--jobs" => options.jobs = number(value()?)?,
                "--minimise" => options.minimise = true,
                "--package" => options.package = Some(value()?.into()),
                _ => return Err(TaskError::Usage(USAGE)),
            }
        }
        let sound = options.minutes.is_finite() && options.minutes > 0.0 && options.jobs > 0;
        if sound { Ok(options) } else { Err(TaskError::Usage(USAGE)) }
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, TaskError> {
    word.parse().map_err(|_| TaskError::Usage(USAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words).map_err(|error| error.to_string())
        };
        let options = parse("--minutes 0.5 --target photo --jobs 3 --package there").unwrap();
        assert_eq!((options.minutes, options.jobs, options.minimise), (0.5, 3, false));
        assert_eq!((options.target.as_deref(), options.package), (Some("photo"), Some("there".into())));
        assert_eq!(parse("").unwrap().minutes, 15.0);
        for wrong in ["--minutes", "--minutes x", "--minutes 0", "--minutes inf", "--jobs 0", "photo"] {
            assert!(parse(wrong).unwrap_err().contains("usage: cargo xtask fuzz"), "{wrong}");
        }
    }
}

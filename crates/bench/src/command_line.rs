//! The command line of the benchmarks that `cargo bench` starts: options with a value each, and patterns that choose
//! among what they measure.

use std::{error::Error, fmt::Display, process::ExitCode, str::FromStr};

use crate::{BenchError, Filter};

/// The words of a command line that have not been asked for yet.
#[derive(Debug)]
pub struct CommandLine {
    words: Vec<String>,
}

impl CommandLine {
    /// That of this process.
    pub fn of_process() -> Self {
        Self::of(std::env::args().skip(1))
    }

    /// Of these words.
    pub fn of(words: impl IntoIterator<Item = String>) -> Self {
        // `cargo bench` adds this word.
        CommandLine { words: words.into_iter().filter(|word| word != "--bench").collect() }
    }

    /// The value of an option, if it is given. If it is given twice, the last value counts.
    ///
    /// # Errors
    /// If no value follows the option, or the value cannot be read.
    pub fn option<T>(&mut self, name: &str) -> Result<Option<T>, BenchError>
    where
        T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>>,
    {
        let mut found = None;
        while let Some(place) = self.words.iter().position(|word| word == name) {
            if place + 1 == self.words.len() {
                return Err(BenchError::MissingValue(name.to_owned()));
            }
            let value: String = self.words.drain(place..place + 2).skip(1).collect();
            found = Some(value.parse().map_err(|source: T::Err| BenchError::BadValue {
                option: name.to_owned(),
                value: value.clone(),
                source: source.into(),
            })?);
        }
        Ok(found)
    }

    /// The value of an option, or a default.
    ///
    /// # Errors
    /// As [`CommandLine::option`].
    pub fn option_or<T>(&mut self, name: &str, default: T) -> Result<T, BenchError>
    where
        T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>>,
    {
        Ok(self.option(name)?.unwrap_or(default))
    }

    /// The patterns: what is left after all options have been asked for.
    ///
    /// # Errors
    /// If an option is left: this benchmark does not have it.
    pub fn rest(self) -> Result<Filter, BenchError> {
        match self.words.iter().find(|word| word.starts_with("--")) {
            Some(option) => Err(BenchError::UnknownOption(option.clone())),
            None => Ok(Filter::new(self.words)),
        }
    }
}

/// The GPU that a benchmark needs. Without one it prints why it does not run; this is an error only if `KINORA_REQUIRE_GPU`
/// is 1.
///
/// # Errors
/// Why there is no GPU, if one is required.
pub fn gpu_if_any<D, E: Display>(benchmark: &str, found: Result<D, E>) -> Result<Option<D>, E> {
    match found {
        Err(error) if std::env::var_os("KINORA_REQUIRE_GPU").is_none_or(|value| value != "1") => {
            println!("{benchmark} not run: no GPU ({error})");
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// The exit code of a benchmark. A failure is printed on standard error.
pub fn exit_code(result: Result<(), impl Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandLine {
        CommandLine::of(text.split(' ').map(str::to_owned))
    }

    #[test]
    fn options_and_patterns_stand_in_any_order() {
        let mut line = line("unet --turns 3 --bench decode --json out.json --turns 4");
        assert_eq!(line.option_or("--turns", 1).unwrap(), 4);
        assert_eq!(line.option("--json").unwrap(), Some("out.json".to_owned()));
        assert_eq!(line.option_or("--seconds", 0.5).unwrap(), 0.5);
        let filter = line.rest().unwrap();
        let chosen = ["unet", "vae decode", "clip"].map(|name| filter.chooses(name));
        assert_eq!(chosen, [true, true, false]);
        assert!(CommandLine::of([]).rest().unwrap().chooses("anything"));
    }

    #[test]
    fn a_wrong_option_is_refused_by_name() {
        let missing = line("unet --turns").option::<usize>("--turns").unwrap_err();
        assert_eq!(missing.to_string(), "--turns needs a value");
        let problem = line("--turns many").option::<usize>("--turns").unwrap_err();
        assert!(problem.to_string().starts_with("--turns many: ") && problem.source().is_some(), "{problem}");
        let mut unknown = line("unet --turns 3 --colour red");
        assert_eq!(unknown.option("--turns").unwrap(), Some(3));
        assert_eq!(unknown.rest().unwrap_err().to_string(), "there is no option --colour");
    }
}

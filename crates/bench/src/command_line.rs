//! The command line of a benchmark: options with a value each, and words that choose among what it measures.

use std::{fmt::Display, process::ExitCode, str::FromStr};

/// The words of a command line that no one has asked for yet.
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
        // Cargo's own word for "this is a benchmark run".
        CommandLine { words: words.into_iter().filter(|word| word != "--bench").collect() }
    }

    /// The value of an option, where it is given; of two, the last.
    ///
    /// # Errors
    /// Where there is no value after it, or it cannot be read.
    pub fn option<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Option<T>, String> {
        let mut value = None;
        while let Some(place) = self.words.iter().position(|word| word == name) {
            if place + 1 == self.words.len() {
                return Err(format!("{name} needs a value"));
            }
            let text: String = self.words.drain(place..place + 2).skip(1).collect();
            value = Some(text.parse().map_err(|problem| format!("{name} {text}: {problem}"))?);
        }
        Ok(value)
    }

    /// The value of an option, or another where it is not given.
    ///
    /// # Errors
    /// As [`CommandLine::option`].
    pub fn option_or<T: FromStr<Err: Display>>(&mut self, name: &str, otherwise: T) -> Result<T, String> {
        Ok(self.option(name)?.unwrap_or(otherwise))
    }

    /// What is left when all options have been asked for.
    ///
    /// # Errors
    /// Where an option is left: it is none of this benchmark's.
    pub fn rest(self) -> Result<Filter, String> {
        match self.words.iter().find(|word| word.starts_with("--")) {
            Some(option) => Err(format!("{option} is no option")),
            None => Ok(Filter { words: self.words }),
        }
    }
}

/// Words that choose by name.
#[derive(Clone, Debug)]
pub struct Filter {
    words: Vec<String>,
}

impl Filter {
    /// Whether a name has one of the words in it; without words, every name is chosen.
    pub fn chooses(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }
}

/// The GPU that a benchmark needs. Where there is none that is said, and is no failure unless `KINORA_REQUIRE_GPU=1`.
///
/// # Errors
/// Why there is none, where one is required.
pub fn gpu_if_any<D, E: Display>(benchmark: &str, found: Result<D, E>) -> Result<Option<D>, E> {
    match found {
        Err(error) if std::env::var_os("KINORA_REQUIRE_GPU").is_none_or(|value| value != "1") => {
            println!("{benchmark} not run: no GPU ({error})");
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// How a benchmark ends: a failure is told on standard error.
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
    fn options_and_words_stand_in_any_order() {
        let mut line = line("unet --turns 3 --bench decode --json out.json --turns 4");
        assert_eq!(line.option_or("--turns", 1), Ok(4));
        assert_eq!(line.option("--json"), Ok(Some("out.json".to_owned())));
        assert_eq!(line.option_or("--seconds", 0.5), Ok(0.5));
        let filter = line.rest().unwrap();
        let chosen = ["unet", "vae decode", "clip"].map(|name| filter.chooses(name));
        assert_eq!(chosen, [true, true, false]);
        assert!(CommandLine::of([]).rest().unwrap().chooses("anything"));
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        assert_eq!(line("unet --turns").option::<usize>("--turns"), Err("--turns needs a value".to_owned()));
        let problem = line("--turns many").option::<usize>("--turns").unwrap_err();
        assert!(problem.starts_with("--turns many: "), "{problem}");
        let mut unknown = line("unet --turns 3 --colour red");
        assert_eq!(unknown.option("--turns"), Ok(Some(3)));
        assert_eq!(unknown.rest().map(drop), Err("--colour is no option".to_owned()));
    }
}

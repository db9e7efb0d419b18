//! Reading `scheduler_config.json`, one field at a time, so that an error can name it.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::SchedulerError;

/// The numbers that Python writes into JSON and JSON does not know.
const PYTHON_NUMBERS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Noise levels between these can be squared and inverted as an `f32`. Published ones are from 0.002 to 700.
const SMALLEST: f64 = 1e-8;
const LARGEST: f64 = 1e8;

/// Reads a `scheduler_config.json`. Python writes `-Infinity` into it (DPM-Solver's `lambda_min_clipped`), which is not
/// JSON; such numbers become strings, which the schedulers understand.
///
/// # Errors
/// If the text is not JSON.
pub fn parse_config(text: &str) -> Result<Value, SchedulerError> {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let Some(character) = rest.chars().next() {
        let number = PYTHON_NUMBERS.into_iter().find(|number| !in_string && rest.starts_with(number));
        let taken = match (number, character) {
            (Some(number), _) => {
                json.extend(['"', '"']);
                json.insert_str(json.len() - 1, number);
                rest = &rest[number.len()..];
                continue;
            }
            // An escaped character, whatever it is, does not end the string.
            (None, '\\') if in_string => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (None, '"') => {
                in_string = !in_string;
                1
            }
            (None, character) => character.len_utf8(),
        };
        json.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    Ok(serde_json::from_str(&json)?)
}

/// The fields of one scheduler's configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    pub(super) class: &'static str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(class: &'static str, map: &'a Map<String, Value>) -> Self {
        Fields { class, map }
    }

    /// The value of a field, unless it is absent, or marked as the default of the class that wrote it: such a value
    /// does not carry over to another class.
    fn value(&self, field: &str) -> Option<&'a Value> {
        let defaults = self.map.get("_use_default_values").and_then(Value::as_array);
        let is_default = defaults.is_some_and(|names| names.iter().any(|name| name == field));
        self.map.get(field).filter(|_| !is_default)
    }

    /// The value, or the default if the field is absent.
    pub(super) fn get<T: DeserializeOwned>(
        &self,
        field: &'static str,
        default: T,
        expected: &str,
    ) -> Result<T, SchedulerError> {
        let Some(value) = self.value(field) else { return Ok(default) };
        T::deserialize(value).map_err(|_| self.bad(field, value.clone(), expected))
    }

    /// A flag; diffusers takes null for false.
    pub(super) fn flag(&self, field: &'static str, default: bool) -> Result<bool, SchedulerError> {
        Ok(self.get(field, Some(default), "true or false")?.unwrap_or(false))
    }

    /// A finite number.
    pub(super) fn number(&self, field: &'static str, default: f64) -> Result<f64, SchedulerError> {
        self.get(field, default, "a number")
    }

    /// A whole number.
    pub(super) fn integer(&self, field: &'static str, default: i64) -> Result<i64, SchedulerError> {
        self.get(field, default, "a whole number")
    }

    /// What is added to timesteps: small enough that no sum overflows.
    pub(super) fn steps_offset(&self) -> Result<i64, SchedulerError> {
        const FIELD: &str = "steps_offset";
        let offset = self.integer(FIELD, 0)?;
        let small = i32::try_from(offset).is_ok();
        if small { Ok(offset) } else { Err(self.bad(FIELD, offset.into(), "a timestep")) }
    }

    /// A positive number that can be squared as an `f32`, or nothing.
    pub(super) fn optional_positive(&self, field: &'static str) -> Result<Option<f64>, SchedulerError> {
        let value: Option<f64> = self.get(field, None, "a number above 0, or null")?;
        match value {
            Some(number) if !(SMALLEST..=LARGEST).contains(&number) => {
                let expected = format!("a number from {SMALLEST:e} to {LARGEST:e}, or null");
                Err(self.bad(field, number.into(), &expected))
            }
            value => Ok(value),
        }
    }

    /// A number that may be infinite, as [`parse_config`] leaves it.
    pub(super) fn extended_number(&self, field: &'static str, default: f64) -> Result<f64, SchedulerError> {
        match self.value(field).and_then(Value::as_str) {
            Some("-Infinity") => Ok(f64::NEG_INFINITY),
            Some("Infinity") => Ok(f64::INFINITY),
            _ => self.number(field, default),
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &self,
        field: &'static str,
        default: &str,
        choices: &[(&str, T)],
    ) -> Result<T, SchedulerError> {
        let words = || {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            words.join(", ").replacen(", ", " or ", usize::from(words.len() == 2))
        };
        let expected = || if choices.len() > 2 { format!("one of {}", words()) } else { words() };
        let chosen: String = self.get(field, default.to_owned(), &expected())?;
        choices
            .iter()
            .find(|(word, _)| *word == chosen)
            .map(|&(_, choice)| choice)
            .ok_or_else(|| self.bad(field, chosen.into(), &expected()))
    }

    /// Refuses a flag that is set.
    pub(super) fn refuse_flag(
        &self,
        field: &'static str,
        supported: &'static str,
    ) -> Result<(), SchedulerError> {
        if self.flag(field, false)? { Err(self.unsupported(field, true, supported)) } else { Ok(()) }
    }

    pub(super) fn bad(&self, field: &'static str, value: Value, expected: &str) -> SchedulerError {
        SchedulerError::BadValue { class: self.class, field, value, expected: expected.to_owned() }
    }

    pub(super) fn unsupported(
        &self,
        field: &'static str,
        value: impl Into<Value>,
        supported: &'static str,
    ) -> SchedulerError {
        SchedulerError::Unsupported { class: self.class, field, value: value.into(), supported }
    }
}

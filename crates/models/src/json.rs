//! Settings from JSON files, read so that an error names the one that is wrong, in plain words.

use kinora_outside::shortened;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error};
use serde_json::{Map, Value};

/// The most characters of a value that an error shows.
const SHOWN: usize = 60;

/// Why settings could not be read.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON.
    #[error("this is not valid JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The text is not an object.
    #[error("this must be a JSON object, settings by their names, but it is {0}")]
    NotAnObject(&'static str),
    /// A setting that is not known, or whose value is of the wrong kind.
    #[error("{setting} is {value}, but {rule}")]
    Setting {
        /// Its name.
        setting: String,
        /// The beginning of its value.
        value: String,
        /// What it has to be.
        rule: String,
    },
}

/// The settings in a text, by name.
///
/// # Errors
/// If the text is not a JSON object.
pub fn object(text: &str) -> Result<Map<String, Value>, JsonError> {
    into_object(serde_json::from_str(text)?)
}

/// The settings in a value, by name.
///
/// # Errors
/// If the value is not an object.
pub fn into_object(value: Value) -> Result<Map<String, Value>, JsonError> {
    match value {
        Value::Object(object) => Ok(object),
        other => Err(JsonError::NotAnObject(kind(&other))),
    }
}

/// Reads settings into a type all of whose fields have defaults.
///
/// # Errors
/// Names the setting that is wrong.
pub fn settings<T: DeserializeOwned>(object: Map<String, Value>) -> Result<T, JsonError> {
    T::deserialize(&Value::Object(object.clone())).map_err(|whole| {
        // The reader does not say which setting it was reading. On its own, only the wrong one fails.
        let alone = |(name, value): (String, Value)| {
            let one = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
            let error = T::deserialize(&one).err()?;
            let rule = rule(&error.to_string(), &value);
            Some(JsonError::Setting { setting: shown(&name), value: shown_value(&value), rule })
        };
        object.into_iter().find_map(alone).unwrap_or(JsonError::Syntax(whole))
    })
}

/// A number that is finite as an `f32`. For serde's `deserialize_with`.
pub(crate) fn finite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    match f64::deserialize(deserializer)? as f32 {
        number if number.is_finite() => Ok(number),
        _ => Err(D::Error::custom("expected a number from -3.4e38 to 3.4e38")),
    }
}

/// A value for an error: a file may hold megabytes of it.
pub(crate) fn shown_value(value: &Value) -> String {
    shown(&value.to_string())
}

fn shown(text: &str) -> String {
    shortened(text, SHOWN).into_owned()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// What a value must be, by what serde says of it, which is in the words of Rust.
fn rule(error: &str, value: &Value) -> String {
    if let Some((_, known)) =
        error.split_once("unknown field").and_then(|(_, rest)| rest.split_once("expected"))
    {
        let known = known.trim_start().trim_start_matches("one of ").replace('`', "");
        return format!("there is no such setting; there are {known}");
    }
    let Some((_, expected)) = error.rsplit_once("expected ") else { return error.to_owned() };
    let expected = match expected {
        "usize" | "u64" | "u32" => "a whole number, at least 0",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    };
    // A list where none belongs, or a list with something in it that does not belong there.
    let itself = error.contains("invalid type: sequence");
    match value {
        Value::Array(entries) if entries.iter().any(|entry| !itself || entry.is_array()) => {
            format!("each of its entries must be {expected}")
        }
        _ => format!("it must be {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Example {
        count: usize,
        list: Vec<usize>,
        name: String,
        flag: bool,
        #[serde(deserialize_with = "finite")]
        factor: f32,
        perhaps: Option<f64>,
    }

    fn read(text: &str) -> Result<Example, JsonError> {
        settings(object(text)?)
    }

    #[test]
    fn an_error_names_the_setting_in_plain_words() {
        for (text, said) in [
            (
                r#"{"name": "x", "count": "four"}"#,
                r#"count is "four", but it must be a whole number, at least 0"#,
            ),
            (r#"{"count": -1}"#, "count is -1, but it must be a whole number, at least 0"),
            (r#"{"count": 1e308}"#, "count is 1e+308, but it must be a whole number, at least 0"),
            (r#"{"count": null}"#, "count is null, but it must be a whole number, at least 0"),
            (r#"{"list": 7}"#, "list is 7, but it must be a list"),
            (
                r#"{"list": [1, "expected"]}"#,
                r#"list is [1,"expected"], but each of its entries must be a whole number, at least 0"#,
            ),
            (r#"{"name": 1.5}"#, "name is 1.5, but it must be a text"),
            (r#"{"flag": "yes"}"#, r#"flag is "yes", but it must be true or false"#),
            (r#"{"factor": {}}"#, "factor is {}, but it must be a number"),
            (r#"{"factor": 1e39}"#, "factor is 1e+39, but it must be a number from -3.4e38 to 3.4e38"),
            (r#"{"perhaps": []}"#, "perhaps is [], but it must be a number"),
            (
                r#"{"other": 1}"#,
                "other is 1, but there is no such setting; there are count, list, name, flag, factor, perhaps",
            ),
            ("[]", "this must be a JSON object, settings by their names, but it is a list"),
            ("null", "this must be a JSON object, settings by their names, but it is null"),
            ("{", "this is not valid JSON: EOF while parsing an object at line 1 column 1"),
        ] {
            assert_eq!(read(text).err().map(|error| error.to_string()).as_deref(), Some(said), "{text}");
        }
        assert_eq!(read("{}").ok(), Some(Example::default()));
    }

    #[test]
    fn no_value_makes_an_error_long_or_the_stack_deep() {
        let long = format!(r#"{{"count": "{}"}}"#, "a".repeat(1 << 20));
        assert!(read(&long).is_err_and(|error| error.to_string().chars().count() < 200));
        let deep = format!(r#"{{"count": {}{}}}"#, "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert!(read(&deep).is_err_and(|error| error.to_string().contains("recursion limit")));
    }
}

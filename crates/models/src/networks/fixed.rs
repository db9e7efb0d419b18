//! Settings of which a network knows one value.

use serde_json::{Map, Value};

use super::error::{NetworkError, Settings};

/// A setting, and the only value with which a network is built, as JSON.
pub(super) type Fixed = (&'static str, &'static str);

/// Refuses settings that ask for another value of a fixed setting. A setting that is missing has that value.
pub(super) fn check_fixed(
    settings: &Settings,
    given: &Map<String, Value>,
    fixed: &[Fixed],
) -> Result<(), NetworkError> {
    for &(setting, known) in fixed {
        let built: Value = serde_json::from_str(known).map_err(|error| settings.unreadable(error))?;
        if let Some(value) = given.get(setting) {
            let rule = || format!("only {known} is supported");
            settings.require(means(value, &built), setting, value, rule)?;
        }
    }
    Ok(())
}

/// Whether a value means what is built: 1.0 is 1, a list means the value that all its entries have, and null is false, as
/// Python takes them.
fn means(value: &Value, built: &Value) -> bool {
    let absent = |value: &Value| matches!(value, Value::Null | Value::Bool(false));
    match value {
        Value::Array(entries) => entries.iter().all(|entry| means(entry, built)),
        Value::Number(number) => built.is_number() && number.as_f64() == built.as_f64(),
        _ => value == built || (absent(value) && absent(built)),
    }
}

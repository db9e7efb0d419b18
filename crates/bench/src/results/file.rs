//! Files of results.

use std::path::Path;

use serde_json::Value;

use crate::BenchError;

/// Writes a run's results as JSON, indented so that two files can be compared line by line.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(path: &Path, document: &Value) -> Result<(), BenchError> {
    std::fs::write(path, format!("{document:#}\n")).map_err(BenchError::file("write", path))
}

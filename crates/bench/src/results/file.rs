//! What a run leaves behind.

use std::path::Path;

use serde_json::Value;

/// Writes a run's results as JSON, indented for the people who compare two of them.
///
/// # Errors
/// Where the file cannot be written.
pub fn write_json(path: &Path, document: &Value) -> Result<(), String> {
    std::fs::write(path, format!("{document:#}\n")).map_err(|e| format!("{}: {e}", path.display()))
}

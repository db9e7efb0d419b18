//! The machine that was measured.

/// The CPU's name, if the system knows it, and the vector instructions used.
pub fn processor(instructions: &str) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |key: &str| {
        info.lines()
            .find(|line| line.starts_with(key))
            .and_then(|line| line.split(':').nth(1))
            .map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
    };
    format!(
        "{} family {} model {}, {instructions}",
        field("model name"),
        field("cpu family"),
        field("model\t"),
    )
}

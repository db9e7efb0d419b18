//! Quantities as people read them.

/// Three digits and a decimal prefix: `1.52 GB`.
pub fn prefixed(value: f64, unit: &str) -> String {
    let mut value = value;
    let mut prefix = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        // What would be rounded to 1000 belongs to the next prefix.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        prefix = next;
    }
    let decimals = match value {
        _ if prefix.is_empty() => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {prefix}{unit}")
}

/// A number of bytes: `999 B`, `12.3 MB`.
pub fn bytes(count: u64) -> String {
    prefixed(count as f64, "B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shown_with_three_digits() {
        for (count, text) in
            [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (999_600, "1.00 MB"), (12_345_678, "12.3 MB")]
        {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(prefixed(3.82e13, "FLOP"), "38.2 TFLOP");
    }
}

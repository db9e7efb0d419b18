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

/// A time given in nanoseconds: `420 ns`, `1.25 ms`, `2.05 s`, `3 min 20 s`.
pub fn time(nanoseconds: u64) -> String {
    const MINUTE: u64 = 60_000_000_000;
    // What would be rounded to 60.0 s belongs to the minutes.
    if nanoseconds >= MINUTE - 50_000_000 {
        let seconds = nanoseconds.saturating_add(500_000_000) / 1_000_000_000;
        return format!("{} min {} s", seconds / 60, seconds % 60);
    }
    let (value, unit) = match nanoseconds {
        ns if ns < 1000 => return format!("{ns} ns"),
        ns if ns < 999_500 => (ns as f64 / 1e3, "µs"),
        ns if ns < 999_500_000 => (ns as f64 / 1e6, "ms"),
        ns => (ns as f64 / 1e9, "s"),
    };
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// A change of a time, in nanoseconds: `+1.25 ms`, `−420 ns`.
pub fn change(nanoseconds: i64) -> String {
    let sign = match nanoseconds {
        0 => "",
        n if n < 0 => "−",
        _ => "+",
    };
    format!("{sign}{}", time(nanoseconds.unsigned_abs()))
}

/// A change in percent: `+12.5 %`, `−3.0 %`, and from ten times as much on `+1000 %`.
pub fn change_percent(percent: f64) -> String {
    let decimals = if percent.abs() < 999.5 { 1 } else { 0 };
    let amount = format!("{:.decimals$}", percent.abs());
    let sign = match percent {
        _ if amount == "0.0" => "",
        p if p < 0.0 => "−",
        _ => "+",
    };
    format!("{sign}{amount} %")
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
        for (nanoseconds, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.00 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (59_900_000_000, "59.9 s"),
            (59_950_000_000, "1 min 0 s"),
            (200_000_000_000, "3 min 20 s"),
        ] {
            assert_eq!(time(nanoseconds), text);
        }
    }

    #[test]
    fn changes_have_a_sign() {
        for (nanoseconds, text) in [(0, "0 ns"), (1_250_000, "+1.25 ms"), (-420, "−420 ns")] {
            assert_eq!(change(nanoseconds), text);
        }
        for (percent, text) in
            [(0.0, "0.0 %"), (-0.04, "0.0 %"), (12.52, "+12.5 %"), (-3.0, "−3.0 %"), (1234.4, "+1234 %")]
        {
            assert_eq!(change_percent(percent), text);
        }
    }
}

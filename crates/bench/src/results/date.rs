//! The date, as in files.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in UTC: `2026-01-31T12:00:00Z`.
pub fn now() -> String {
    date_of(SystemTime::now())
}

/// A time, in the same form. Before 1970 there were no files.
pub fn date_of(time: SystemTime) -> String {
    text(time.duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs()))
}

/// The date of seconds since 1970. Years are counted from March, so that a leap day is the last of its year.
fn text(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `date -u -d @SECONDS` prints them.
    #[test]
    fn dates_are_those_of_the_system() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(text(seconds), date);
        }
    }
}

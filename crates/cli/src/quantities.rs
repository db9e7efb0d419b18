//! Quantities as people write and read them: sizes, bytes, counts and times.

use std::{
    ffi::OsString,
    fmt,
    num::{IntErrorKind, ParseIntError},
    str::FromStr,
    time::Duration,
};

use clap::builder::{OsStringValueParser, TypedValueParser};
use kinora_profile::quantity;

/// A picture's size, written `1024x576`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSize {
    pub width: usize,
    pub height: usize,
}

impl FromStr for PictureSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a size is a width and a height in pixels, such as 1024x576".to_owned();
        let (width, height) = text.split_once(['x', 'X', '×']).ok_or_else(wrong)?;
        let extent = |text: &str| text.trim().parse().ok().filter(|&pixels: &usize| pixels > 0);
        let (width, height) = extent(width).zip(extent(height)).ok_or_else(wrong)?;
        Ok(PictureSize { width, height })
    }
}

impl fmt::Display for PictureSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}×{}", self.width, self.height))
    }
}

/// A number of bytes, written `8GB`, `512MiB` or plainly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "an amount of memory is a number and a unit, such as 8GB, 7.5GiB or 512MB".to_owned();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit: f64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "t" | "tb" => 1e12,
            "kib" => 1024.0,
            "mib" => 1024f64.powi(2),
            "gib" => 1024f64.powi(3),
            "tib" => 1024f64.powi(4),
            _ => return Err(wrong()),
        };
        let bytes = (number * unit).round();
        // 2⁵³: beyond it a float no longer counts single bytes, and no machine has that many.
        if (1.0..=9e15).contains(&bytes) { Ok(Bytes(bytes as u64)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&quantity::bytes(self.0))
    }
}

/// A number of floating-point operations.
#[derive(Clone, Copy, Debug)]
pub struct Flops(pub f64);

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&quantity::prefixed(self.0, "FLOP"))
    }
}

/// A count with thousands separators: `1,524,623,082`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time as a clock shows it, or in seconds if it is short: `0.8 s`, `12 s`, `3:07`, `2:05:09`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m}:{s:02}"),
        (h, m, s) => format!("{h}:{m:02}:{s:02}"),
    }
}

/// A fraction, written `5%` or `0.05`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part(pub f64);

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (text, 1.0),
        };
        let part = number.parse::<f64>().ok().map(|number| number / unit);
        // Someone who writes 5 means five per cent, not five times as much.
        let most = if unit == 1.0 { 1.0 } else { 100.0 };
        part.filter(|part| (0.0..=most).contains(part))
            .map(Part)
            .ok_or_else(|| "this must be a percentage, such as 5%, or a fraction, such as 0.05".to_owned())
    }
}

/// A time in seconds, of at most a minute.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 60.0);
    seconds.ok_or_else(|| "this must be a number of seconds, more than 0 and at most 60".to_owned())
}

/// A number of at least one: frames, steps and the like.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match whole(text, "at least 1") {
        Ok(0) => Err("this must be at least 1".to_owned()),
        number => number,
    }
}

/// A whole number of any size.
pub fn whole_number<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    whole(text, "0 or more")
}

fn whole<T: FromStr<Err = ParseIntError>>(text: &str, least: &str) -> Result<T, String> {
    text.trim().parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "this number is too large".to_owned(),
        _ => format!("this must be a whole number, {least}"),
    })
}

/// A number that may have a fraction. Whether it makes sense is not looked at here.
pub fn number(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| "this must be a number, such as 0.5".to_owned())
}

/// The name of a model: anything but nothing, as an unset variable of a script would give.
pub fn model_name() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|name| match name.is_empty() {
        true => Err("the name is empty; give the path of a model folder, or a name on the hub (owner/name)"),
        false => Ok(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let size = PictureSize { width: 1024, height: 576 };
        for text in ["1024x576", "1024X576", "1024×576", "1024 x 576"] {
            assert_eq!(text.parse(), Ok(size), "{text}");
        }
        assert_eq!(size.to_string(), "1024×576");
        for text in ["", "1024", "x", "0x64", "64x0", "-1x2", "1024x576x3", "99999999999999999999x1"] {
            assert!(text.parse::<PictureSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn memory_has_decimal_and_binary_units() {
        for (text, bytes) in [
            ("8GB", 8_000_000_000),
            ("8G", 8_000_000_000),
            ("8 gb", 8_000_000_000),
            ("7.5GiB", 8_053_063_680),
            ("512mib", 536_870_912),
            ("1", 1),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GB", "8 cows", "-1GB", "0", "1e3", "999999999TB", "1.2.3GB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn parts_are_percentages_or_numbers() {
        for (text, part) in [("5%", 0.05), ("12.5 %", 0.125), ("0.05", 0.05), ("0", 0.0)] {
            assert_eq!(text.parse(), Ok(Part(part)), "{text}");
        }
        for text in ["", "%", "five", "-5%", "NaN", "inf"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "-1", "61", "NaN", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_that_is_none_is_told_from_one_that_is_too_large() {
        assert_eq!(whole_number("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(whole_number::<u64>("18446744073709551616").unwrap_err(), "this number is too large");
        for text in ["", "x", "-1", "1.5"] {
            assert_eq!(whole_number::<u64>(text).unwrap_err(), "this must be a whole number, 0 or more");
            assert_eq!(at_least_one(text).unwrap_err(), "this must be a whole number, at least 1");
        }
        assert_eq!(at_least_one("99999999999999999999").unwrap_err(), "this number is too large");
        assert_eq!((number("1e3"), number("x").is_err()), (Ok(1000.0), true));
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!(grouped(1_524_623_082), "1,524,623,082");
        assert_eq!((grouped(0), grouped(999), grouped(1000)), ("0".into(), "999".into(), "1,000".into()));
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in [
            (0.04, "0.0 s"),
            (9.94, "9.9 s"),
            (9.96, "10 s"),
            (59.6, "1:00"),
            (187.0, "3:07"),
            (7509.0, "2:05:09"),
        ] {
            assert_eq!(clock(Duration::from_secs_f64(seconds)), text);
        }
    }
}

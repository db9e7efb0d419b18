//! `printf`'s formats, as C and CUDA define them. A malformed format prints as it is written, and never fails.

/// The largest width and precision; larger ones, which hostile formats have, count as this one.
const WIDEST: usize = 4096;

/// What a conversion takes from the packed arguments, in which every argument is aligned to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    /// Four bytes: an `int`, or anything that C promotes to one.
    Word,
    /// Eight bytes: a `long`, a `double`, a pointer.
    Long,
    /// Eight bytes: the address of a text.
    Text,
}

/// A number that a format gives, or takes from an argument: `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Given(usize),
    Argument,
}

/// A conversion such as `%-8.3f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zeros: bool,
    width: Option<Amount>,
    precision: Option<Amount>,
    /// The bits of an integer: 8, 16, 32 or 64.
    bits: u32,
    letter: u8,
}

/// A part of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Bytes to print as they are.
    Literal(&'a [u8]),
    Conversion(Conversion),
}

impl Conversion {
    /// What it takes, in order.
    pub fn arguments(&self) -> impl Iterator<Item = ArgumentKind> + use<> {
        let star = |amount: Option<Amount>| (amount == Some(Amount::Argument)).then_some(ArgumentKind::Word);
        let value = match self.letter {
            b's' => ArgumentKind::Text,
            b'd' | b'i' | b'o' | b'u' | b'x' | b'X' | b'c' if self.bits <= 32 => ArgumentKind::Word,
            _ => ArgumentKind::Long,
        };
        star(self.width).into_iter().chain(star(self.precision)).chain([value])
    }
}

/// The parts of a format.
pub(crate) fn pieces(format: &[u8]) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while !rest.is_empty() {
        let literal = rest.iter().position(|&byte| byte == b'%').unwrap_or(rest.len());
        if literal > 0 {
            pieces.push(Piece::Literal(&rest[..literal]));
            rest = &rest[literal..];
            continue;
        }
        match conversion(&rest[1..]) {
            Some((Some(conversion), length)) => {
                pieces.push(Piece::Conversion(conversion));
                rest = &rest[1 + length..];
            }
            // `%%`.
            Some((None, length)) => {
                pieces.push(Piece::Literal(b"%"));
                rest = &rest[1 + length..];
            }
            None => {
                pieces.push(Piece::Literal(&rest[..1]));
                rest = &rest[1..];
            }
        }
    }
    pieces
}

/// The conversion after a `%`, and how many bytes it takes; `None` for the conversion of `%%`. Nothing if it is malformed.
fn conversion(text: &[u8]) -> Option<(Option<Conversion>, usize)> {
    let mut at = 0;
    let peek = |at: usize| text.get(at).copied().unwrap_or(0);
    let mut found = Conversion {
        left: false,
        plus: false,
        space: false,
        alternate: false,
        zeros: false,
        width: None,
        precision: None,
        bits: 32,
        letter: 0,
    };
    loop {
        match peek(at) {
            b'-' => found.left = true,
            b'+' => found.plus = true,
            b' ' => found.space = true,
            b'#' => found.alternate = true,
            b'0' => found.zeros = true,
            _ => break,
        }
        at += 1;
    }
    let amount = |at: &mut usize| {
        if peek(*at) == b'*' {
            *at += 1;
            return Some(Amount::Argument);
        }
        let start = *at;
        let mut value = 0usize;
        while peek(*at).is_ascii_digit() {
            value = (value * 10 + usize::from(peek(*at) - b'0')).min(WIDEST);
            *at += 1;
        }
        (*at > start).then_some(Amount::Given(value))
    };
    found.width = amount(&mut at);
    if peek(at) == b'.' {
        at += 1;
        found.precision = Some(amount(&mut at).unwrap_or(Amount::Given(0)));
    }
    loop {
        match peek(at) {
            b'h' => found.bits = if found.bits == 16 { 8 } else { 16 },
            b'l' | b'j' | b'z' | b't' | b'q' => found.bits = 64,
            b'L' => {}
            _ => break,
        }
        at += 1;
    }
    found.letter = peek(at);
    at += 1;
    match found.letter {
        b'%' => Some((None, at)),
        b'c' => Some((Some(Conversion { bits: 32, ..found }), at)),
        b'd' | b'i' | b'o' | b'u' | b'x' | b'X' | b'p' | b's' | b'f' | b'F' | b'e' | b'E' | b'g' | b'G'
        | b'a' | b'A' => Some((Some(found), at)),
        _ => None,
    }
}

/// Appends a conversion of values, one for each of its arguments. `text` is what the last one points to, if it is a text.
pub(crate) fn format(out: &mut Vec<u8>, conversion: &Conversion, values: &[u64], text: Option<&[u8]>) {
    let mut values = values.iter().copied();
    let mut found = *conversion;
    let mut amount = |amount: Option<Amount>| match amount {
        Some(Amount::Given(value)) => Some(value as i64),
        Some(Amount::Argument) => Some(i64::from(values.next().unwrap_or(0) as i32)),
        None => None,
    };
    let width = amount(found.width).unwrap_or(0);
    found.left |= width < 0;
    let width = width.unsigned_abs().min(WIDEST as u64) as usize;
    // A negative precision counts as none.
    let precision = amount(found.precision)
        .filter(|&precision| precision >= 0)
        .map(|precision| (precision as usize).min(WIDEST));
    let value = values.next().unwrap_or(0);
    let number = match found.letter {
        b'c' => return pad(out, &found, width, b"", &[value as u8], false),
        b's' => {
            let text = text.unwrap_or(b"(null)");
            let shown = &text[..text.len().min(precision.unwrap_or(usize::MAX))];
            return pad(out, &found, width, b"", shown, false);
        }
        b'p' if value == 0 => return pad(out, &found, width, b"", b"(nil)", false),
        b'p' => (b"0x".as_slice(), format!("{value:x}")),
        b'd' | b'i' | b'o' | b'u' | b'x' | b'X' => integer(&found, precision, value),
        _ => floating(&found, precision, f64::from_bits(value)),
    };
    let is_number = !["nan", "inf", "NAN", "INF"].contains(&number.1.as_str());
    let whole = matches!(found.letter, b'd' | b'i' | b'o' | b'u' | b'x' | b'X');
    // A precision switches the zeros of an integer off.
    let zeros = found.zeros && is_number && !(whole && precision.is_some());
    pad(out, &found, width, number.0, number.1.as_bytes(), zeros);
}

/// Appends a prefix and digits, filled up to a width.
fn pad(out: &mut Vec<u8>, found: &Conversion, width: usize, prefix: &[u8], digits: &[u8], zeros: bool) {
    let fill = width.saturating_sub(prefix.len() + digits.len());
    let repeat = |out: &mut Vec<u8>, byte| out.resize(out.len() + fill, byte);
    if !found.left && !zeros {
        repeat(out, b' ');
    }
    out.extend_from_slice(prefix);
    if !found.left && zeros {
        repeat(out, b'0');
    }
    out.extend_from_slice(digits);
    if found.left {
        repeat(out, b' ');
    }
}

/// The sign of a number that is printed with one.
fn sign(found: &Conversion, negative: bool) -> &'static [u8] {
    match (negative, found.plus, found.space) {
        (true, ..) => b"-",
        (false, true, _) => b"+",
        (false, false, true) => b" ",
        _ => b"",
    }
}

fn integer(found: &Conversion, precision: Option<usize>, value: u64) -> (&'static [u8], String) {
    let unused = 64 - found.bits;
    let (prefix, mut digits) = match found.letter {
        b'd' | b'i' => {
            let value = (value << unused) as i64 >> unused;
            (sign(found, value < 0), value.unsigned_abs().to_string())
        }
        letter => {
            let value = value << unused >> unused;
            let (prefix, digits) = match letter {
                b'o' => (b"".as_slice(), format!("{value:o}")),
                b'x' => (b"0x".as_slice(), format!("{value:x}")),
                b'X' => (b"0X".as_slice(), format!("{value:X}")),
                _ => (b"".as_slice(), value.to_string()),
            };
            (if found.alternate && value != 0 { prefix } else { b"" }, digits)
        }
    };
    match precision {
        Some(0) if digits == "0" => digits.clear(),
        Some(precision) if digits.len() < precision => {
            digits.insert_str(0, &"0".repeat(precision - digits.len()));
        }
        _ => {}
    }
    if found.letter == b'o' && found.alternate && !digits.starts_with('0') {
        digits.insert(0, '0');
    }
    (prefix, digits)
}

fn floating(found: &Conversion, precision: Option<usize>, value: f64) -> (&'static [u8], String) {
    let negative = value.is_sign_negative();
    let magnitude = value.abs();
    let mut prefix = sign(found, negative);
    let digits = if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        "inf".to_owned()
    } else {
        match found.letter.to_ascii_lowercase() {
            b'f' => fixed(magnitude, precision.unwrap_or(6), found.alternate),
            b'e' => scientific(magnitude, precision.unwrap_or(6), found.alternate).0,
            b'g' => general(magnitude, precision.unwrap_or(6), found.alternate),
            _ => {
                prefix = match (prefix, found.letter) {
                    (b"-", b'a') => b"-0x",
                    (b"+", b'a') => b"+0x",
                    (b" ", b'a') => b" 0x",
                    (_, b'a') => b"0x",
                    (b"-", _) => b"-0X",
                    (b"+", _) => b"+0X",
                    (b" ", _) => b" 0X",
                    _ => b"0X",
                };
                hexadecimal(magnitude, precision, found.alternate)
            }
        }
    };
    let upper = found.letter.is_ascii_uppercase();
    (prefix, if upper { digits.to_ascii_uppercase() } else { digits })
}

fn fixed(value: f64, precision: usize, point: bool) -> String {
    let mut digits = format!("{value:.precision$}");
    if point && precision == 0 {
        digits.push('.');
    }
    digits
}

/// A digit, a fraction and a decimal exponent of at least two digits; also that exponent.
fn scientific(value: f64, precision: usize, point: bool) -> (String, i32) {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let point = if point && precision == 0 { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    (format!("{digits}{point}e{sign}{:02}", exponent.abs()), exponent)
}

/// The shorter of the two above, with `precision` significant digits and without zeros at the end.
fn general(value: f64, precision: usize, alternate: bool) -> String {
    let significant = precision.max(1);
    let (text, exponent) = scientific(value, significant - 1, alternate);
    let is_fixed = exponent >= -4 && exponent < significant as i32;
    let text =
        if is_fixed { fixed(value, (significant as i32 - 1 - exponent) as usize, alternate) } else { text };
    if alternate {
        return text;
    }
    let (digits, tail) = match text.find('e') {
        Some(at) => text.split_at(at),
        None => (text.as_str(), ""),
    };
    if !digits.contains('.') {
        return text;
    }
    format!("{}{tail}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// The digits of `%a`, without the prefix.
fn hexadecimal(value: f64, precision: Option<usize>, point: bool) -> String {
    let bits = value.to_bits();
    let (mut mantissa, biased) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    let mut lead = u64::from(biased != 0);
    let exponent = match (biased, mantissa) {
        (0, 0) => 0,
        (0, _) => -1022,
        _ => biased - 1023,
    };
    let mut count = 13;
    match precision {
        Some(precision) if precision < 13 => {
            // Round to nearest, ties to even.
            let dropped = 4 * (13 - precision) as u32;
            let all = lead << 52 | mantissa;
            let (kept, rest) = (all >> dropped, all & ((1 << dropped) - 1));
            let half = 1 << (dropped - 1);
            let kept = kept + u64::from(rest > half || rest == half && kept & 1 == 1);
            lead = kept >> (52 - dropped);
            mantissa = kept & ((1 << (52 - dropped)) - 1);
            count = precision;
        }
        Some(_) => {}
        None => {
            while count > 0 && mantissa & 15 == 0 {
                mantissa >>= 4;
                count -= 1;
            }
        }
    }
    let mut fraction = if count == 0 { String::new() } else { format!("{mantissa:0count$x}") };
    if let Some(precision) = precision {
        fraction.push_str(&"0".repeat(precision - count));
    }
    let point = if point || !fraction.is_empty() { "." } else { "" };
    format!("{lead}{point}{fraction}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats one value.
    fn one(format_text: &str, value: u64) -> String {
        let mut out = Vec::new();
        for piece in pieces(format_text.as_bytes()) {
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text),
                Piece::Conversion(conversion) => format(&mut out, &conversion, &[value], None),
            }
        }
        String::from_utf8(out).unwrap()
    }

    /// What glibc's `printf` prints.
    #[test]
    fn integers_as_in_c() {
        for (format, value, expected) in [
            ("%d", u64::MAX, "-1"),
            ("%u", u64::MAX, "4294967295"),
            ("%lld", 1 << 63, "-9223372036854775808"),
            ("%lu", u64::MAX, "18446744073709551615"),
            ("%hhd", 0x1ff, "-1"),
            ("%hu", 0x1_2345, "9029"),
            ("%5d|", 42, "   42|"),
            ("%-5d|", 42, "42   |"),
            ("%05d", 42, "00042"),
            ("%+d", 42, "+42"),
            ("% d", 42, " 42"),
            ("%.4d", 42, "0042"),
            ("%07.4d", 42, "   0042"),
            ("%.0d", 0, ""),
            ("%x", 0xbeef, "beef"),
            ("%#X", 0xbeef, "0XBEEF"),
            ("%#010x", 0xbeef, "0x0000beef"),
            ("%#o", 8, "010"),
            ("%#x", 0, "0"),
            ("%c%%", 65, "A%"),
            ("%p", 0x7f00_0000_0000, "0x7f0000000000"),
            ("%3c|", 65, "  A|"),
        ] {
            assert_eq!(one(format, value), expected, "{format}");
        }
    }

    #[test]
    fn floating_point_as_in_c() {
        for (format, value, expected) in [
            ("%f", 1.5, "1.500000"),
            ("%.0f", 2.5, "2"),
            ("%.0f", 3.5, "4"),
            ("%#.0f", 2.5, "2."),
            ("%.1f", 0.25, "0.2"),
            ("%8.3f|", -2.71858, "  -2.719|"),
            ("%-8.3f|", 2.71858, "2.719   |"),
            ("%08.3f", -2.71858, "-002.719"),
            ("%e", 0.0, "0.000000e+00"),
            ("%e", 12345.678, "1.234568e+04"),
            ("%.2E", 1e-300, "1.00E-300"),
            ("%g", 100000.0, "100000"),
            ("%g", 1000000.0, "1e+06"),
            ("%g", 0.0001, "0.0001"),
            ("%g", 0.00001, "1e-05"),
            ("%g", 0.1, "0.1"),
            ("%#g", 0.1, "0.100000"),
            ("%.3g", 1234.5, "1.23e+03"),
            ("%g", 999999.5, "1e+06"),
            ("%G", 1e-10, "1E-10"),
            ("%a", 1.0, "0x1p+0"),
            ("%a", -0.1, "-0x1.999999999999ap-4"),
            ("%.2a", 1.999, "0x2.00p+0"),
            ("%a", 5e-324, "0x0.0000000000001p-1022"),
            ("%f", f64::INFINITY, "inf"),
            ("%F", f64::NEG_INFINITY, "-INF"),
            ("%06f", f64::NAN, "   nan"),
            ("%f", -0.0, "-0.000000"),
            ("%.10f", 1e15 + 0.3, "1000000000000000.2500000000"),
        ] {
            assert_eq!(one(format, f64::to_bits(value)), expected, "{format} of {value}");
        }
    }

    #[test]
    fn widths_and_precisions_from_arguments() {
        let shown = |format_text: &str, values: &[u64]| {
            let Some(Piece::Conversion(conversion)) = pieces(format_text.as_bytes()).first().copied() else {
                panic!("{format_text} is no conversion");
            };
            assert_eq!(conversion.arguments().count(), values.len());
            let mut out = Vec::new();
            format(&mut out, &conversion, values, Some(b"text"));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown("%*d", &[5, 42]), "   42");
        assert_eq!(shown("%*d", &[-5i32 as u32 as u64, 42]), "42   ");
        assert_eq!(shown("%.*f", &[2, 1.0f64.to_bits()]), "1.00");
        assert_eq!(shown("%.*f", &[-1i32 as u32 as u64, 1.0f64.to_bits()]), "1.000000");
        assert_eq!(shown("%*.*s|", &[6, 2, 1]), "    te");
        assert_eq!(shown("%*d", &[i32::MAX as u64, 1]).len(), WIDEST);
    }

    #[test]
    fn malformed_formats_print_as_they_are() {
        for format in ["%", "100 %", "%y", "%-", "%5", "%.", "%ll", "%.*", "%n"] {
            assert_eq!(one(format, 7), format);
        }
        assert_eq!(one("%99999999999999999999d", 7).len(), WIDEST);
        assert_eq!(one("%.99999999999999999999f", 0).len(), WIDEST + 2);
    }
}

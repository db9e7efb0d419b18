//! Splits PTX into tokens.

use crate::error::{Place, PtxError};

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// A directive, an opcode with its modifiers, a register or a symbol: a word that starts with a letter or one of `._$%`.
    Word(&'a str),
    /// An integer, its value modulo 2^64.
    Integer(u64),
    /// The bits of a 32-bit number: `0f3F800000`.
    Single(u32),
    /// A 64-bit number: `0d3FF0000000000000`, or in decimal.
    Double(u64),
    /// A quoted string, unprocessed.
    Text(&'a str),
    /// A punctuation mark.
    Mark(u8),
}

/// A token and its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub token: Token<'a>,
    pub place: Place,
}

/// Splits a text.
pub(crate) fn tokens(text: &str) -> Result<Vec<Placed<'_>>, PtxError> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0, line: 1, line_start: 0 };
    let mut all = Vec::with_capacity(text.len() / 4);
    while let Some(placed) = lexer.next()? {
        all.push(placed);
    }
    Ok(all)
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
}

fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn continues_word(byte: u8) -> bool {
    begins_word(byte) || byte.is_ascii_digit()
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn place(&self) -> Place {
        let column = self.at - self.line_start + 1;
        Place { line: self.line, column: u32::try_from(column).unwrap_or(u32::MAX) }
    }

    fn new_line(&mut self) {
        self.line = self.line.saturating_add(1);
        self.line_start = self.at;
    }

    fn next(&mut self) -> Result<Option<Placed<'a>>, PtxError> {
        self.skip_space()?;
        let place = self.place();
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let byte = self.peek(0);
        let token = match byte {
            _ if begins_word(byte) => self.word(),
            b'0'..=b'9' => self.number(place)?,
            b'"' => self.quoted(place)?,
            b'@' | b'{' | b'}' | b'[' | b']' | b'(' | b')' | b',' | b';' | b':' | b'+' | b'-' | b'|'
            | b'=' | b'<' | b'>' | b'!' | b'~' | b'*' => {
                self.at += 1;
                Token::Mark(byte)
            }
            _ => {
                let found = self.text.get(self.at..).and_then(|rest| rest.chars().next()).unwrap_or('?');
                return Err(PtxError::syntax(place, format!("unexpected character {found:?}")));
            }
        };
        Ok(Some(Placed { token, place }))
    }

    fn skip_space(&mut self) -> Result<(), PtxError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.at += 1;
                    self.new_line();
                }
                (b' ' | b'\t' | b'\r' | 0x0c, _) => self.at += 1,
                // NVRTC terminates its PTX with a zero byte.
                (0, _) if self.at < self.bytes.len() => self.at += 1,
                (b'/', b'/') => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => {
                    let place = self.place();
                    self.at += 2;
                    while (self.peek(0), self.peek(1)) != (b'*', b'/') {
                        if self.at >= self.bytes.len() {
                            return Err(PtxError::syntax(place, "unterminated comment".to_owned()));
                        }
                        self.at += 1;
                        if self.bytes[self.at - 1] == b'\n' {
                            self.new_line();
                        }
                    }
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    /// A word may contain `::` (`shared::cta`), but ends before the colon of a label. A directive ends before the next one, which may
    /// follow without a space: `.reg.b16`.
    fn word(&mut self) -> Token<'a> {
        let start = self.at;
        let is_directive = self.peek(0) == b'.';
        loop {
            if is_directive && self.at > start && self.peek(0) == b'.' {
                return Token::Word(&self.text[start..self.at]);
            }
            if continues_word(self.peek(0)) {
                self.at += 1;
            } else if self.peek(0) == b':' && self.peek(1) == b':' {
                self.at += 2;
            } else {
                return Token::Word(&self.text[start..self.at]);
            }
        }
    }

    fn quoted(&mut self, place: Place) -> Result<Token<'a>, PtxError> {
        let start = self.at + 1;
        self.at = start;
        while self.peek(0) != b'"' {
            if self.at >= self.bytes.len() || self.peek(0) == b'\n' {
                return Err(PtxError::syntax(place, "unterminated string".to_owned()));
            }
            self.at += if self.peek(0) == b'\\' && self.at + 1 < self.bytes.len() { 2 } else { 1 };
        }
        let text = self.text.get(start..self.at);
        self.at += 1;
        text.map(Token::Text).ok_or_else(|| PtxError::syntax(place, "invalid string".to_owned()))
    }

    fn number(&mut self, place: Place) -> Result<Token<'a>, PtxError> {
        let start = self.at;
        let mut decimal_point = false;
        loop {
            let byte = self.peek(0);
            let exponent_sign = matches!(byte, b'+' | b'-')
                && decimal_point
                && matches!(self.bytes[self.at - 1], b'e' | b'E');
            if byte == b'.' {
                decimal_point = true;
            }
            if byte.is_ascii_alphanumeric() || byte == b'.' || exponent_sign {
                self.at += 1;
            } else {
                break;
            }
        }
        let text = &self.text[start..self.at];
        parse_number(text).ok_or_else(|| PtxError::syntax(place, format!("{text} is not a PTX number")))
    }
}

fn parse_number(text: &str) -> Option<Token<'static>> {
    let radix = |digits: &str, radix| {
        let digits = digits.strip_suffix(['U', 'u']).unwrap_or(digits);
        u64::from_str_radix(digits, radix).ok().map(Token::Integer)
    };
    let (prefix, rest) = text.split_at_checked(2).unwrap_or((text, ""));
    match prefix {
        "0f" | "0F" if rest.len() == 8 => u32::from_str_radix(rest, 16).ok().map(Token::Single),
        "0d" | "0D" if rest.len() == 16 => u64::from_str_radix(rest, 16).ok().map(Token::Double),
        "0x" | "0X" => radix(rest, 16),
        "0b" | "0B" => radix(rest, 2),
        _ if text.contains('.') => text.parse().ok().map(|value: f64| Token::Double(value.to_bits())),
        _ if text.len() > 1 && text.starts_with('0') => radix(&text[1..], 8),
        _ => radix(text, 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Token<'_>> {
        tokens(text).unwrap().into_iter().map(|placed| placed.token).collect()
    }

    #[test]
    fn words_marks_and_numbers() {
        use Token::{Double, Integer, Mark, Single, Word};
        assert_eq!(
            all("mbarrier.init.shared::cta.b64 [%r1+8], 0x1fU; // x"),
            [
                Word("mbarrier.init.shared::cta.b64"),
                Mark(b'['),
                Word("%r1"),
                Mark(b'+'),
                Integer(8),
                Mark(b']'),
                Mark(b','),
                Integer(31),
                Mark(b';')
            ]
        );
        assert_eq!(all(".reg.b16 a;"), [Word(".reg"), Word(".b16"), Word("a"), Mark(b';')]);
        assert_eq!(
            all("over: 0f3F800000 0d3FF0000000000000 017 0b11 1.5"),
            [
                Word("over"),
                Mark(b':'),
                Single(0x3f80_0000),
                Double(0x3ff0_0000_0000_0000),
                Integer(15),
                Integer(3),
                Double(1.5f64.to_bits())
            ]
        );
    }

    #[test]
    fn errors_have_a_place() {
        let error = tokens("add\n  ^").unwrap_err();
        assert_eq!(error.place(), Some(Place { line: 2, column: 3 }));
        assert!(tokens("0xfffffffffffffffff").is_err());
        assert!(tokens("/* open").is_err());
        assert!(tokens("\"open").is_err());
        assert!(tokens("\"é\\").is_err());
    }
}

//! Text of unknown origin.

use std::{borrow::Cow, fmt::Write};

/// Text without anything that a terminal would obey: control characters other than line breaks and tabs, and the characters
/// that change the direction of what follows, become escapes like `\u001b`. JSON text stays the same JSON, because such
/// characters are only in its strings.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_command(character) {
            // All of them have at most four digits. Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// The beginning of a text, if it has more than `limit` characters.
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

fn is_command(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // Embeddings, overrides and isolates; separators of lines and paragraphs.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => true,
        character => character.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_a_terminal_are_shown() {
        for (text, shown) in [
            ("plain, übermäßig 日本 العربية\n\tas it is", "plain, übermäßig 日本 العربية\n\tas it is"),
            ("\u{1b}[31mred\u{1b}[0m", "\\u001b[31mred\\u001b[0m"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("over\rwritten\u{8}\u{7f}", "over\\u000dwritten\\u0008\\u007f"),
            ("\u{9b}2J\u{85}", "\\u009b2J\\u0085"),
            ("photo\u{202e}gpj.exe\u{2066}", "photo\\u202egpj.exe\\u2066"),
            ("two\u{2028}lines\0", "two\\u2028lines\\u0000"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn no_character_that_moves_a_cursor_is_left() {
        let all: String = ('\0'..=char::MAX).collect();
        let shown = printable(&all);
        let left = |character: &char| character.is_control() && !['\n', '\t'].contains(character);
        assert_eq!(shown.chars().find(left), None);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöü", 2), "äö…");
        assert_eq!(shortened("", 0), "");
    }
}

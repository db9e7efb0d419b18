//! Bytes as characters that can be seen: the alphabet of byte-level encodings, from GPT-2.

use serde_json::{Map, Value};

use super::{BEGIN, END, WORD_END};

/// The character of each byte of a word, and whether it is the last.
pub(super) fn characters(word: &str) -> impl Iterator<Item = (char, bool)> {
    let last = word.len().saturating_sub(1);
    word.bytes().enumerate().map(move |(i, byte)| (character(byte), i == last))
}

/// A vocabulary that has every byte and no words, as `vocab.json` and `merges.txt` have it.
pub(crate) fn byte_vocabulary() -> (String, String) {
    let mut letters: Vec<char> = (0..=u8::MAX).map(character).collect();
    letters.sort_unstable();
    let inside = letters.iter().map(char::to_string);
    let last = letters.iter().map(|letter| format!("{letter}{WORD_END}"));
    let tokens = inside.chain(last).chain([BEGIN.to_owned(), END.to_owned()]);
    let vocabulary: Map<String, Value> =
        tokens.zip(0..).map(|(token, id): (_, u32)| (token, id.into())).collect();
    (Value::Object(vocabulary).to_string(), "#version: 0.2\n".to_owned())
}

/// Printable bytes of Latin-1 are themselves; the others follow, in order, from U+0100.
fn character(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&byte| !printable(byte)).count();
    char::from_u32(0x100 + before as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        let all: BTreeSet<char> = (0..=255).map(character).collect();
        assert_eq!(all.len(), 256);
        // As in every vocabulary of this kind.
        assert_eq!([b'a', b' ', b'\n', 0xA0, 0xAD, 0xFF].map(character), ['a', 'Ġ', 'Ċ', 'ł', 'Ń', 'ÿ']);
        assert_eq!(characters("aé").collect::<Vec<_>>(), [('a', false), ('Ã', false), ('©', true)]);
    }
}

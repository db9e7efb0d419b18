//! A text in one spelling, and the words in it.

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Letters and their accents composed, every run of white space one space, all in lower case.
///
/// A letter's lower case does not depend on its neighbours, as in the `tokenizers` library.
pub(super) fn normalised(text: &str) -> String {
    let mut normalised = String::with_capacity(text.len());
    let mut in_space = false;
    for c in text.nfc() {
        match c.is_whitespace() {
            true if in_space => {}
            true => normalised.push(' '),
            false => normalised.extend(c.to_lowercase()),
        }
        in_space = c.is_whitespace();
    }
    normalised
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Letter,
    Number,
    Other,
}

fn kind(c: char) -> Kind {
    match c.general_category_group() {
        _ if c.is_whitespace() => Kind::Space,
        GeneralCategoryGroup::Letter => Kind::Letter,
        GeneralCategoryGroup::Number => Kind::Number,
        _ => Kind::Other,
    }
}

/// What follows an apostrophe as a word of its own.
const CONTRACTIONS: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];

/// The words: contractions, runs of letters, single numerals, and runs of anything else but white space.
pub(super) fn split(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        text = text.trim_start();
        let first = kind(text.chars().next()?);
        let length = match CONTRACTIONS.iter().find(|contraction| text.starts_with(**contraction)) {
            Some(contraction) => contraction.len(),
            None if first == Kind::Number => text.chars().next().map_or(0, char::len_utf8),
            None => text.find(|c| kind(c) != first).unwrap_or(text.len()),
        };
        let (word, rest) = text.split_at(length);
        text = rest;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_letters_single_numerals_and_the_rest() {
        let words = |text: &str| split(&normalised(text)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words("A  photo of\ta CAT."), ["a", "photo", "of", "a", "cat", "."]);
        assert_eq!(words("4K, 8½!!"), ["4", "k", ",", "8", "½", "!!"]);
        assert_eq!(words("it's we'll 'tis can't"), ["it", "'s", "we", "'ll", "'t", "is", "can", "'t"]);
        assert_eq!(words("<b>猫</b>"), ["<", "b", ">", "猫", "</", "b", ">"]);
        // The last character before an accent is composed with it; a lone accent is no letter.
        assert_eq!(words("e\u{301}te\u{301}"), ["\u{e9}t\u{e9}"]);
        assert_eq!(words("\u{301}a"), ["\u{301}", "a"]);
        assert_eq!(words(" \u{3000}\n"), Vec::<String>::new());
        assert_eq!(words(""), Vec::<String>::new());
    }
}

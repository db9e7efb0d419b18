//! Choosing cases by their names.

use std::fmt::Write as _;

/// The most names that are suggested for a pattern without a match.
const SUGGESTIONS: usize = 3;

/// Patterns that choose by name. A pattern is plain text: it matches every name that contains it.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    patterns: Vec<String>,
}

/// A pattern that matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// The pattern.
    pub pattern: String,
    /// The names that come nearest to it, the nearest first.
    pub near: Vec<String>,
}

impl Filter {
    /// Each word is a pattern, or several with commas between them. A comma that a space follows belongs to the pattern,
    /// since names have such commas.
    pub fn new<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> Filter {
        let mut patterns: Vec<String> = Vec::new();
        for word in words {
            for (place, part) in word.as_ref().split(',').enumerate() {
                match patterns.last_mut() {
                    Some(last) if place > 0 && part.starts_with(' ') => _ = write!(last, ",{part}"),
                    _ => patterns.push(part.to_owned()),
                }
            }
        }
        patterns.retain(|pattern| !pattern.is_empty());
        Filter { patterns }
    }

    /// Whether there is no pattern, so that every name is chosen.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether one of the patterns matches a name, in upper or lower case, and with `x` for `×`. Without patterns, every name is
    /// chosen.
    pub fn chooses(&self, name: &str) -> bool {
        self.is_empty() || self.patterns.iter().any(|pattern| contains(name, pattern))
    }

    /// The patterns that match none of these names.
    pub fn unmatched<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Vec<Unmatched> {
        let matches = |pattern: &String| names.clone().any(|name| contains(name, pattern));
        let without = self.patterns.iter().filter(|pattern| !matches(pattern));
        without
            .map(|pattern| Unmatched { pattern: pattern.clone(), near: nearest(pattern, names.clone()) })
            .collect()
    }
}

impl Unmatched {
    /// All of them as a part of a sentence: `'a' (nearest: 'ab', 'ac') or 'b'`.
    pub fn list(all: &[Unmatched]) -> String {
        let quoted =
            |names: &[String]| names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        let one = |unmatched: &Unmatched| match unmatched.near.as_slice() {
            [] => format!("'{}'", unmatched.pattern),
            near => format!("'{}' (nearest: {})", unmatched.pattern, quoted(near)),
        };
        all.iter().map(one).collect::<Vec<_>>().join(" or ")
    }
}

/// Whether a name contains a pattern as someone would type it.
fn contains(name: &str, pattern: &str) -> bool {
    let typed = |text: &str| text.to_lowercase().replace('×', "x");
    typed(name).contains(&typed(pattern))
}

/// The names that have at least half of the pattern's pairs of neighbouring characters.
fn nearest<'a>(pattern: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted = pairs(pattern);
    let shared = |name: &str| {
        let found = pairs(name);
        wanted.iter().filter(|pair| found.contains(pair)).count()
    };
    let mut scored: Vec<(usize, &str)> = names
        .map(|name| (shared(name), name))
        .filter(|(count, _)| *count > 0 && 2 * count >= wanted.len())
        .collect();
    scored.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    scored.into_iter().take(SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
}

fn pairs(text: &str) -> Vec<[char; 2]> {
    let characters: Vec<char> = text.to_lowercase().chars().collect();
    characters.windows(2).map(|pair| [pair[0], pair[1]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["conv 3×3 8→128, 8×32×32", "conv 1×1", "linear (qkv)", "attention.svd0"];

    fn chosen(words: &[&str]) -> Vec<&'static str> {
        let filter = Filter::new(words);
        NAMES.into_iter().filter(|name| filter.chooses(name)).collect()
    }

    #[test]
    fn commas_and_words_give_several_patterns() {
        assert_eq!(chosen(&[]), NAMES);
        assert_eq!(chosen(&["1×1,qkv"]), NAMES[1..3]);
        assert_eq!(chosen(&["1×1", "qkv"]), NAMES[1..3]);
        assert_eq!(chosen(&["CONV 1x1", "Qkv"]), NAMES[1..3]);
        assert_eq!(chosen(&["qkv,"]), NAMES[2..3]);
        // A whole name is one pattern, though it has a comma.
        assert_eq!(chosen(&[NAMES[0]]), NAMES[..1]);
        assert_eq!(chosen(&["3×3 8→128, 8×32×32,qkv"]), [NAMES[0], NAMES[2]]);
    }

    #[test]
    fn a_pattern_without_a_match_is_named_with_what_comes_near() {
        let unmatched = |word: &str| Filter::new([word]).unmatched(NAMES.into_iter());
        assert_eq!(unmatched("conv,qkv"), []);
        let found = unmatched("conv,attentoin,zzz");
        assert_eq!(Unmatched::list(&found), "'attentoin' (nearest: 'attention.svd0') or 'zzz'");
        // No regular expressions: the bar is a character as any other.
        assert_eq!(unmatched("conv|linear")[0].near, ["linear (qkv)"]);
    }
}

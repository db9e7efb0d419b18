//! Changes of texts that are made of lines and words.

use super::random::Random;

/// The text with lines moved, repeated or dropped, or with words of it in other places; `None` if it is not text.
pub fn change(text: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    if random.below(2) == 0 {
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        for _ in 0..=random.below(3) {
            change_parts(&mut lines, random);
        }
        return Some(lines.concat().into_bytes());
    }
    let mut words: Vec<&str> = text.split_inclusive([' ', ',', '.', '\n', '[', ']', '<', ';']).collect();
    let number = random.hostile_integer().to_string();
    for _ in 0..=random.below(4) {
        let at = random.below(words.len());
        match (random.below(3), words.get_mut(at)) {
            (0, Some(word)) if word.starts_with(|first: char| first.is_ascii_digit()) => *word = &number,
            _ => change_parts(&mut words, random),
        }
    }
    Some(words.concat().into_bytes())
}

fn change_parts(parts: &mut Vec<&str>, random: &mut Random) {
    let (from, to) = (random.below(parts.len()), random.below(parts.len()));
    let Some(&part) = parts.get(from) else { return };
    match random.below(4) {
        0 => drop(parts.remove(from)),
        1 => parts.insert(to, part),
        2 => parts.swap(from, to),
        _ => parts[to] = part,
    }
}

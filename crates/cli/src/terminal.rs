//! The width of a terminal, and text that is wrapped for it.

use std::io::{self, IsTerminal};

/// The width of text that nobody looks at on a terminal, or on one that does not say how wide it is.
pub const USUAL_WIDTH: usize = 80;

/// The width of the terminal at standard error; `None` if it is something else.
pub fn error_width() -> Option<usize> {
    let stderr = io::stderr();
    stderr.is_terminal().then(|| width_of(terminal_size::terminal_size_of(&stderr)))
}

/// The width of the terminal at standard output; `None` if it is something else.
pub fn output_width() -> Option<usize> {
    let stdout = io::stdout();
    stdout.is_terminal().then(|| width_of(terminal_size::terminal_size_of(&stdout)))
}

fn width_of(size: Option<(terminal_size::Width, terminal_size::Height)>) -> usize {
    // Some terminals say 0.
    size.map(|(width, _)| usize::from(width.0)).filter(|&width| width > 0).unwrap_or(USUAL_WIDTH)
}

/// Breaks lines that are too long between words. What follows a break is indented. Escape sequences for colours take no room.
pub fn wrapped(text: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width else { return text.to_owned() };
    let indent = if indent < width / 2 { indent } else { 0 };
    let lines: Vec<String> = text.split('\n').map(|line| wrapped_line(line, width, indent)).collect();
    lines.join("\n")
}

fn wrapped_line(line: &str, width: usize, indent: usize) -> String {
    if visible_width(line) <= width {
        return line.to_owned();
    }
    let (mut text, mut used) = (String::new(), 0);
    // The blanks before a word belong to it, so that columns keep their places.
    for word in line.split_inclusive(' ') {
        let (bare, blanks) = (visible_width(word.trim_end_matches(' ')), visible_width(word));
        if used > indent && used + bare > width {
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            used = indent;
        }
        text.push_str(word);
        used += blanks;
    }
    text
}

/// The columns that a text takes, without its escape sequences. Every other character takes one: names of files in wider scripts
/// are wrapped a little late.
pub fn visible_width(text: &str) -> usize {
    let mut width = 0;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' => drop(characters.by_ref().find(char::is_ascii_alphabetic)),
            _ => width += 1,
        }
    }
    width
}

/// The beginning of a text that fits a width.
pub fn cut(text: &str, width: usize) -> String {
    match text.chars().count() {
        count if count <= width => text.to_owned(),
        _ => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let text = "warning: the photo is cropped a lot";
        assert_eq!(wrapped(text, Some(20), 9), "warning: the photo\n         is cropped\n         a lot");
        assert_eq!(wrapped(text, None, 9), text);
        assert_eq!(wrapped(text, Some(80), 9), text);
        // A narrow terminal has no room for an indent, and a word is not broken.
        assert_eq!(wrapped("a incomprehensibilities b", Some(8), 5), "a\nincomprehensibilities\nb");
        assert_eq!(wrapped("one\ntwo three", Some(6), 2), "one\ntwo\n  three");
    }

    #[test]
    fn colours_take_no_room() {
        let text = "\x1b[1m\x1b[33mwarning\x1b[0m: it";
        assert_eq!(visible_width(text), 11);
        assert_eq!(wrapped(text, Some(11), 2), text);
        assert_eq!(cut("denoising", 5), "deno…");
        assert_eq!(cut("denoising", 9), "denoising");
    }
}

//! The source line of a finding, as text.

/// Lines that are shown before and after.
const AROUND: u32 = 1;

/// The characters of a line that are shown.
const LONGEST: usize = 160;

/// A line of a text with its neighbours, numbered and marked; nothing if the text does not have it.
pub fn excerpt(text: &str, line: u32) -> String {
    let first = line.saturating_sub(AROUND).max(1);
    let count = line.saturating_add(AROUND).saturating_sub(first) as usize + 1;
    let shown: Vec<(u32, &str)> = (first..).zip(text.lines().skip(first as usize - 1).take(count)).collect();
    if !shown.iter().any(|(number, _)| *number == line) {
        return String::new();
    }
    let width = shown.iter().map(|(number, _)| number.to_string().len()).max().unwrap_or(1);
    let each = shown.into_iter().map(|(number, text)| {
        let mark = if number == line { '>' } else { ' ' };
        let text: String = text.replace('\t', "    ").chars().take(LONGEST).collect();
        format!("  {mark} {number:width$} | {}\n", text.trim_end())
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_marked_between_its_neighbours() {
        let text: String = (1..=12).map(|line| format!("\tline {line}\n")).collect();
        assert_eq!(excerpt(&text, 9), "     8 |     line 8\n  >  9 |     line 9\n    10 |     line 10\n");
        assert_eq!(excerpt("a\nb", 1), "  > 1 | a\n    2 | b\n");
        assert_eq!(excerpt("a\nb", 2), "    1 | a\n  > 2 | b\n");
        for line in [0, 3, u32::MAX] {
            assert_eq!(excerpt("a\nb", line), "", "{line}");
        }
        assert!(excerpt(&"x".repeat(9999), 1).len() < 200);
    }
}

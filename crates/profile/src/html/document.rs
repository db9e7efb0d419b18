//! Assembling a page: templates, and data inside HTML.

use kinora_outside::printable;
use serde::Serialize;

/// A template with its `{{names}}` replaced, in one pass: a value may hold braces of its own.
pub(super) fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let mut text =
        String::with_capacity(template.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let Some((name, after)) = after.split_once("}}") else {
            rest = after;
            break;
        };
        if let Some((_, value)) = values.iter().find(|(known, _)| *known == name) {
            text.push_str(value);
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

/// Text as HTML shows it, between tags or in a quoted attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// Data for a `<script type="application/json">`. Whatever ends such an element, or begins a comment in it, starts with
/// `<`, which JSON has only in strings, where it may be escaped. So may what a terminal would obey if someone prints the page.
pub(super) fn data(value: &impl Serialize) -> String {
    // Serialising cannot fail: all keys are strings, and floats that are not finite become null.
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    printable(&json).replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_in_one_pass() {
        assert_eq!(filled("a {{x}} b {{y}}{{z}} c", &[("x", "{{y}}"), ("y", "2")]), "a {{y}} b 2 c");
        assert_eq!(filled("no end {{x", &[("x", "1")]), "no end x");
    }

    #[test]
    fn names_cannot_leave_their_place() {
        assert_eq!(escaped("<b title=\"x\">&'"), "&lt;b title=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(escaped("\u{1b}[2J\u{202e}"), "\\u001b[2J\\u202e");
        let hostile = "</script><!--\u{2028}\0\"\\😀";
        let json = data(&[hostile]);
        assert!(!json.contains('<'), "{json}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [hostile]);
        assert_eq!(data(&f64::NAN), "null");
    }
}

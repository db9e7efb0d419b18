//! Sources with host code in them, as those of CUDA samples: their device part alone.
//!
//! NVRTC compiles device code. A function that neither `__global__` nor `__device__` marks counts as device code for it too, so that small
//! kernels need no marks; but a `main` that calls `cudaMalloc` does not compile. So a source that is refused is tried again without its
//! host functions. Lines keep their numbers.

use super::{CompileError, Compiled, Source};

/// How many headers that are not there may be left out.
const MOST_HEADERS: usize = 24;

/// Compiles a source as it is and, if it is refused, without its host code and without headers that are not there.
///
/// # Errors
/// If it does not compile either way. The error is the device part's, or the whole source's if leaving something out does not help.
pub(super) fn without_host_code(
    source: &Source,
    compile: impl Fn(&Source, &[(&str, &str)]) -> Result<Compiled, CompileError>,
) -> Result<Compiled, CompileError> {
    let whole = compile(source, &[]);
    let Err(CompileError::Rejected { missing_header, .. }) = &whole else { return whole };
    let (text, left_out) = device_part(&source.text);
    if left_out == 0 && missing_header.is_none() {
        return whole;
    }
    let device = Source { text, ..source.clone() };
    let mut absent: Vec<String> = Vec::new();
    loop {
        let headers: Vec<(&str, &str)> = absent.iter().map(|header| (header.as_str(), "")).collect();
        match compile(&device, &headers) {
            Ok(mut compiled) => {
                if left_out > 0 {
                    let plural = if left_out == 1 { "" } else { "s" };
                    compiled.notes.push(format!("{left_out} host function{plural} left out"));
                }
                if !absent.is_empty() {
                    compiled
                        .notes
                        .push(format!("headers that are not there left out: {}", absent.join(", ")));
                }
                return Ok(compiled);
            }
            Err(CompileError::Rejected { missing_header: Some(header), .. })
                if absent.len() < MOST_HEADERS && !absent.contains(&header) =>
            {
                absent.push(header);
            }
            // Nothing but a header is missing, and leaving it out does not help.
            Err(CompileError::Rejected { .. }) if left_out == 0 => return whole,
            Err(CompileError::Rejected { name, mut log, .. }) => {
                for header in &absent {
                    log += &format!("\nnote: the header {header} was not found");
                }
                let missing_header = absent.into_iter().next();
                return Err(CompileError::Rejected { name, log, missing_header });
            }
            Err(other) => return Err(other),
        }
    }
}

/// The source with blanks in the place of its host functions, and how many there were.
fn device_part(text: &str) -> (String, usize) {
    let bytes = text.as_bytes();
    let mut blank = vec![false; bytes.len()];
    let (mut at, mut left_out) = (0, 0);
    let mut head = Head::default();
    while at < bytes.len() {
        let next = skip(bytes, at);
        if next > at {
            // A comment, a text or a directive. What belongs to a declaration goes with it.
            head.begin(at, bytes[at] == b'"');
            at = next;
            continue;
        }
        match bytes[at] {
            b'{' if head.is_scope(text) => head = Head::default(),
            b'{' => {
                let end = closing(bytes, at);
                if head.is_host_function(text, at) {
                    let start = head.start.unwrap_or(at);
                    blank[start..end].fill(true);
                    left_out += 1;
                }
                // What follows the body of a struct or an initialiser belongs to the same declaration.
                let ends = head.is_function(text, at);
                at = end;
                if ends {
                    head = Head::default();
                }
                continue;
            }
            b';' => {
                if head.is_host_declaration(text, at) {
                    let start = head.start.unwrap_or(at);
                    blank[start..at].fill(true);
                }
                head = Head::default();
            }
            b'}' => head = Head::default(),
            byte => head.begin(at, !byte.is_ascii_whitespace()),
        }
        at += 1;
    }
    let keep = |(at, character): (usize, char)| match blank[at] && character != '\n' {
        true => " ".repeat(character.len_utf8()),
        false => character.to_string(),
    };
    (text.char_indices().map(keep).collect(), left_out)
}

/// The beginning of a declaration: where it starts.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    start: Option<usize>,
}

impl Head {
    fn begin(&mut self, at: usize, counts: bool) {
        if counts && self.start.is_none() {
            self.start = Some(at);
        }
    }

    /// The declaration's text up to a place, without its comments.
    fn text(self, text: &str, end: usize) -> String {
        let bytes = text.as_bytes();
        let (mut plain, mut at) = (Vec::new(), self.start.unwrap_or(end));
        while at < end {
            let next = skip(bytes, at);
            if next > at {
                // A text in quotation marks is kept for `extern "C"`.
                if bytes[at] == b'"' {
                    plain.extend_from_slice(&bytes[at..next.min(end)]);
                }
                plain.push(b' ');
                at = next;
            } else {
                plain.push(bytes[at]);
                at += 1;
            }
        }
        String::from_utf8_lossy(&plain).into_owned()
    }

    /// Whether what follows in braces is a scope of further declarations.
    fn is_scope(self, text: &str) -> bool {
        let end = self.end(text);
        let head = self.text(text, end);
        has_word(&head, "namespace") || (head.trim_start().starts_with("extern \"C\"") && !head.contains('('))
    }

    /// Where the head ends: at the first brace.
    fn end(self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let mut at = self.start.unwrap_or(bytes.len());
        while at < bytes.len() {
            let next = skip(bytes, at);
            if next > at {
                at = next;
            } else if bytes[at] == b'{' {
                return at;
            } else {
                at += 1;
            }
        }
        at
    }

    fn is_function(self, text: &str, brace: usize) -> bool {
        let head = self.text(text, brace);
        let Some(parenthesis) = head.find('(') else { return false };
        // An initialiser has its sign before any parenthesis.
        !head[..parenthesis].contains('=') || has_word(&head, "operator")
    }

    fn is_host_function(self, text: &str, brace: usize) -> bool {
        self.is_function(text, brace) && is_of_host(&self.text(text, brace))
    }

    /// A prototype of a host function, or a variable of a type that only the host has.
    fn is_host_declaration(self, text: &str, end: usize) -> bool {
        let head = self.text(text, end);
        let starts = |word: &str| head.trim_start().starts_with(word);
        is_of_host(&head)
            && !starts("template")
            && !starts("using")
            && !starts("typedef")
            && !starts("static_assert")
            && (self.is_function(text, end) || head.contains("std::"))
            && !head.contains('{')
    }
}

/// Whether a declaration is for the host alone.
fn is_of_host(head: &str) -> bool {
    let device =
        ["__device__", "__global__", "__constant__", "__managed__", "__shared__", "constexpr", "consteval"];
    !device.iter().any(|word| has_word(head, word))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

/// The end of the comment, text, character or directive that begins at a place; the place itself if none does.
fn skip(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let until = |found: Option<usize>| found.map_or(bytes.len(), |found| at + found);
    match rest {
        [b'/', b'/', ..] => until(rest.iter().position(|&byte| byte == b'\n')),
        [b'/', b'*', ..] => {
            until(rest.windows(2).skip(2).position(|pair| pair == b"*/").map(|found| found + 4))
        }
        [b'R', b'"', ..] if at == 0 || !is_word(bytes[at - 1]) => raw_text(bytes, at),
        [b'"', ..] => quoted(bytes, at, b'"'),
        // A digit separator is no quotation mark.
        [b'\'', ..] if at == 0 || !is_word(bytes[at - 1]) => quoted(bytes, at, b'\''),
        [b'#', ..] if starts_line(bytes, at) => directive(bytes, at),
        _ => at,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn starts_line(bytes: &[u8], at: usize) -> bool {
    let before = bytes[..at].iter().rev().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    before.is_none_or(|&byte| byte == b'\n')
}

/// A directive ends with its line, unless that is continued.
fn directive(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        if bytes[at] == b'\n' && !bytes[..at].strip_suffix(b"\r").unwrap_or(&bytes[..at]).ends_with(b"\\") {
            return at;
        }
        at += 1;
    }
    at
}

fn quoted(bytes: &[u8], start: usize, mark: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if byte == mark => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `R"name(…)name"`.
fn raw_text(bytes: &[u8], at: usize) -> usize {
    let start = at + 2;
    let Some(open) = bytes[start..].iter().take(17).position(|&byte| byte == b'(') else { return at };
    let close = [b")", &bytes[start..start + open], b"\""].concat();
    let body = start + open + 1;
    let found = bytes[body..].windows(close.len()).position(|window| window == close);
    found.map_or(bytes.len(), |found| body + found + close.len())
}

/// The place after the brace that closes the one at a place.
fn closing(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while at < bytes.len() {
        let next = skip(bytes, at);
        if next > at {
            at = next;
            continue;
        }
        match bytes[at] {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
#include <stdio.h>
#define BODY { int unused; \
    }
// A comment with { and "quotes.
static const char *name = "a { in a text";
namespace inner {
__device__ float twice(float x) { return 2.0f * x; }
int on_the_host(int argc) {
    if (argc) { return '}'; }
    return 1'000;
}
}
struct Pair { int a; int sum() { return a; } };
constexpr int tiles(int n) { return n / 16; }
extern "C" {
__global__ void scale(float *x) { if (threadIdx.x) { *x = inner::twice(*x); } }
}
extern "C" void prototype(int argc, char **argv);
std::vector<int> everything;
__host__ void check(const float *x = nullptr)
{
}
template <typename T> __host__ __device__ T half(T x) { return x / 2; }
int table[] = { 1, 2, 3 };
int main(int argc, char **argv) { /* } */ scale<<<1, 1>>>(0); return R"x(})x"[0]; }
"#;

    #[test]
    fn host_functions_become_blanks_and_lines_stay() {
        let (text, left_out) = device_part(SAMPLE);
        assert_eq!(left_out, 3, "{text}");
        assert_eq!((text.len(), text.lines().count()), (SAMPLE.len(), SAMPLE.lines().count()));
        for gone in ["main", "on_the_host", "check", "prototype", "std::vector", "<<<"] {
            assert!(!text.contains(gone), "{gone} is in {text}");
        }
        for kept in [
            "scale",
            "inner",
            "twice",
            "struct Pair",
            "sum()",
            "tiles",
            "half",
            "int table[] = { 1, 2, 3 }",
            "BODY",
        ] {
            assert!(text.contains(kept), "{kept} is not in {text}");
        }
    }

    #[test]
    fn unbalanced_sources_are_no_trouble() {
        for text in [
            "{",
            "}",
            "\"",
            "'",
            "R\"",
            "R\"(",
            "/*",
            "//",
            "#",
            "#define a \\\n",
            "int f() {",
            "x{{",
            "\\",
            "ä{ö",
        ] {
            assert_eq!(device_part(text).0.len(), text.len(), "{text}");
        }
    }
}

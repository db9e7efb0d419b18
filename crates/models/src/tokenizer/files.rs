//! A tokenizer from its files.

use std::{collections::HashMap, path::Path};

use serde::Deserialize;
use serde_json::Value;

use super::{BEGIN, ClipTokenizer, END, TokenizerError, WORD_END, merge::Merges};
use crate::weights::PartFiles;

const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";
/// Both in one file.
const WHOLE: &str = "tokenizer.json";
/// What names the padding.
const SETTINGS: [&str; 2] = ["tokenizer_config.json", "special_tokens_map.json"];

#[derive(Deserialize)]
struct TokenizerJson {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<Pair>,
}

/// Older files join the two with a space.
#[derive(Deserialize)]
#[serde(untagged)]
enum Pair {
    Two(String, String),
    Joined(String),
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
}

impl ClipTokenizer {
    /// Reads a model's `tokenizer` folder: `vocab.json` and `merges.txt`, or `tokenizer.json`; and the padding of
    /// `tokenizer_config.json` or `special_tokens_map.json`.
    ///
    /// # Errors
    /// If a file is missing, cannot be read, or is not such a tokenizer.
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        Self::of(&PartFiles::Folder(folder.to_owned()))
    }

    /// The same from files that may be in the program.
    pub(crate) fn of(files: &PartFiles) -> Result<Self, TokenizerError> {
        let names = files.names()?;
        let found = Self::files(|file| names.iter().any(|name| name == file));
        let tokenizer = match found.as_slice() {
            [VOCABULARY, MERGES, ..] => {
                Self::from_vocabulary(&files.text(VOCABULARY)?, &files.text(MERGES)?)?
            }
            [WHOLE, ..] if names.iter().any(|name| name == WHOLE) => Self::from_json(&files.text(WHOLE)?)?,
            _ => return Err(TokenizerError::NoFiles { folder: files.folder().to_owned() }),
        };
        for file in SETTINGS {
            if names.iter().any(|name| name == file)
                && let Some(pad) = pad_token(&files.text(file)?, file)?
            {
                return tokenizer.padded_with(&pad);
            }
        }
        Ok(tokenizer)
    }

    /// The files that a tokenizer is read from, of those that there are: the vocabulary first, which it cannot do without.
    pub(crate) fn files(has: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let vocabulary = if has(VOCABULARY) && has(MERGES) { vec![VOCABULARY, MERGES] } else { vec![WHOLE] };
        vocabulary.into_iter().chain(SETTINGS.into_iter().filter(|file| has(file))).collect()
    }

    /// A tokenizer of the texts of `vocab.json` and `merges.txt`. It pads with the end of a text.
    ///
    /// # Errors
    /// If the texts are not those of such a tokenizer.
    pub fn from_vocabulary(vocabulary: &str, merges: &str) -> Result<Self, TokenizerError> {
        let vocabulary = serde_json::from_str(vocabulary)
            .map_err(|source| TokenizerError::Json { file: "vocab.json", source })?;
        let lines = merges.lines().filter(|line| !line.starts_with("#version") && !line.is_empty());
        let pairs = lines.enumerate().map(|(index, line)| halves(index, line));
        Self::new(vocabulary, pairs.collect::<Result<_, _>>()?)
    }

    /// A tokenizer of the text of `tokenizer.json`. It pads with the end of a text.
    ///
    /// # Errors
    /// If the text is not that of such a tokenizer.
    pub fn from_json(text: &str) -> Result<Self, TokenizerError> {
        let TokenizerJson { model, added_tokens } = serde_json::from_str(text)
            .map_err(|source| TokenizerError::Json { file: "tokenizer.json", source })?;
        let checked = [
            ("model type", model.kind.as_deref().unwrap_or("BPE"), "BPE"),
            ("end_of_word_suffix", model.end_of_word_suffix.as_deref().unwrap_or("null"), WORD_END),
        ];
        for (setting, value, expected) in checked {
            if value != expected {
                return Err(TokenizerError::Kind { setting, value: value.to_owned(), expected });
            }
        }
        let mut vocabulary = model.vocab;
        vocabulary.extend(added_tokens.into_iter().map(|added| (added.content, added.id)));
        let pairs = model.merges.into_iter().enumerate().map(|(index, pair)| match pair {
            Pair::Two(left, right) => Ok((left, right)),
            Pair::Joined(line) => halves(index, &line),
        });
        Self::new(vocabulary, pairs.collect::<Result<_, _>>()?)
    }

    fn new(vocabulary: HashMap<String, u32>, pairs: Vec<(String, String)>) -> Result<Self, TokenizerError> {
        if let Some((token, &id)) = vocabulary.iter().find(|&(_, &id)| i32::try_from(id).is_err()) {
            return Err(TokenizerError::TooLarge { token: token.clone(), id });
        }
        let mut tokenizer =
            ClipTokenizer { vocabulary, merges: Merges::default(), begin: 0, end: 0, pad: 0, pad_name: None };
        tokenizer.begin = tokenizer.id(BEGIN)?;
        tokenizer.end = tokenizer.id(END)?;
        tokenizer.pad = tokenizer.end;
        for (rank, (left, right)) in pairs.iter().enumerate() {
            let token = tokenizer.id(&format!("{left}{right}"))?;
            let pair = (tokenizer.id(left)?, tokenizer.id(right)?);
            tokenizer.merges.push(rank, pair, token);
        }
        Ok(tokenizer)
    }
}

fn halves(index: usize, line: &str) -> Result<(String, String), TokenizerError> {
    match line.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok((left.to_owned(), right.to_owned())),
        _ => Err(TokenizerError::Merge { index }),
    }
}

/// The padding that a file of settings names, as a string or as an object with the string in it.
fn pad_token(text: &str, file: &'static str) -> Result<Option<String>, TokenizerError> {
    let settings: Value =
        serde_json::from_str(text).map_err(|source| TokenizerError::Json { file, source })?;
    let pad = settings.get("pad_token");
    let pad = pad.and_then(|pad| pad.get("content")).or(pad).and_then(Value::as_str);
    Ok(pad.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const WORDS: &str = r#"{"!": 0, "c": 1, "a": 2, "t</w>": 3, "ca": 4, "cat</w>": 5, "<|startoftext|>": 6, "<|endoftext|>": 7}"#;
    const PAIRS: &str = "#version: 0.2\nc a\nca t</w>\n";

    #[test]
    fn a_folder_says_what_it_pads_with() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let tokens = || ClipTokenizer::from_folder(folder.path()).unwrap().prompt("cat", 5).tokens;
        let error = ClipTokenizer::from_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has neither vocab.json with merges.txt nor tokenizer.json"), "{error}");
        write("vocab.json", WORDS);
        write("merges.txt", PAIRS);
        assert_eq!(tokens(), [6, 5, 7, 7, 7]);
        write(
            "special_tokens_map.json",
            r#"{"pad_token": "!", "bos_token": {"content": "<|startoftext|>"}}"#,
        );
        assert_eq!(tokens(), [6, 5, 7, 0, 0]);
        write("tokenizer_config.json", r#"{"pad_token": {"content": "<|endoftext|>"}}"#);
        assert_eq!(tokens(), [6, 5, 7, 7, 7]);
        write("tokenizer_config.json", r#"{"pad_token": "[PAD]"}"#);
        let error = ClipTokenizer::from_folder(folder.path()).unwrap_err().to_string();
        assert_eq!(error, "the tokenizer's vocabulary does not have [PAD]");
    }

    #[test]
    fn one_file_does_as_well() {
        let json = |merges: &str| {
            format!(
                r#"{{"added_tokens": [{{"id": 9, "content": "<|startoftext|>", "special": true}}], "model": {{"type":
                "BPE", "end_of_word_suffix": "</w>", "vocab": {WORDS}, "merges": {merges}}}}}"#
            )
        };
        for merges in [r#"["c a", "ca t</w>"]"#, r#"[["c", "a"], ["ca", "t</w>"]]"#] {
            let tokenizer = ClipTokenizer::from_json(&json(merges)).unwrap();
            assert_eq!(tokenizer.prompt("CAT cat", 4).tokens, [9, 5, 5, 7]);
        }
    }

    #[test]
    fn too_long_a_text_is_cut_and_said() {
        let tokenizer = ClipTokenizer::from_vocabulary(WORDS, PAIRS).unwrap();
        let prompt = tokenizer.prompt("cat cat cat cat", 4);
        assert_eq!((prompt.tokens, prompt.left_out), (vec![6, 5, 5, 7], 2));
        let prompt = tokenizer.prompt("", 4);
        assert_eq!((prompt.tokens, prompt.left_out), (vec![6, 7, 7, 7], 0));
        assert_eq!(tokenizer.prompt("cat", 1).tokens, [6]);
        assert_eq!(tokenizer.prompt("cat", 0).tokens, Vec::<i32>::new());
    }

    #[test]
    fn what_is_no_tokenizer_is_said_in_words() {
        let error = |vocabulary: &str, merges: &str| {
            ClipTokenizer::from_vocabulary(vocabulary, merges).unwrap_err().to_string()
        };
        assert!(error("[]", "").starts_with("the tokenizer's vocab.json cannot be read: "));
        assert_eq!(error("{}", ""), "the tokenizer's vocabulary does not have <|startoftext|>");
        assert_eq!(
            error(WORDS, "c a\nc"),
            "merge 1 of the tokenizer is not two tokens with a space between them"
        );
        assert_eq!(error(WORDS, "c x"), "the tokenizer's vocabulary does not have cx");
        let large = WORDS.replace(": 5", ": 4294967295");
        assert!(error(&large, "").starts_with("the tokenizer numbers cat</w> 4294967295, but"));
        let other = r#"{"model": {"type": "WordPiece", "vocab": {}, "merges": []}}"#;
        let error = ClipTokenizer::from_json(other).unwrap_err().to_string();
        assert_eq!(error, "the tokenizer's model type is WordPiece, but only BPE is supported");
        let error = ClipTokenizer::from_json("{}").unwrap_err().to_string();
        assert!(error.starts_with("the tokenizer's tokenizer.json cannot be read: "), "{error}");
    }
}

//! CLIP's tokenizer: from a prompt to the numbers that a text encoder reads, equal to `CLIPTokenizer` of transformers.
//!
//! A text is normalised, split into words, and each word into the longest pieces that its byte-pair encoding has learned.

mod bytes;
mod error;
mod files;
mod merge;
mod words;

pub(crate) use bytes::byte_vocabulary;
pub use error::TokenizerError;

use std::collections::HashMap;

use merge::Merges;

const BEGIN: &str = "<|startoftext|>";
const END: &str = "<|endoftext|>";
/// Ends the last piece of every word.
const WORD_END: &str = "</w>";

/// A tokenizer with its vocabulary.
#[derive(Clone, Debug)]
pub struct ClipTokenizer {
    vocabulary: HashMap<String, u32>,
    merges: Merges,
    begin: u32,
    end: u32,
    pad: u32,
    /// The padding's name, if it is another token than the end.
    pad_name: Option<String>,
}

/// The tokens of a prompt, as a text encoder reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Begin, the text's tokens, end, and padding.
    pub tokens: Vec<i32>,
    /// How many of the text's tokens did not fit, and were left out at its end.
    pub left_out: usize,
}

impl ClipTokenizer {
    /// Pads with another token than the end: Stable Diffusion 2.1, Turbo and XL's second encoder pad with `!`. Wherever a
    /// text has that token's name, it then means the token, as for all special tokens of transformers.
    ///
    /// # Errors
    /// If the vocabulary does not have it.
    pub fn padded_with(mut self, token: &str) -> Result<Self, TokenizerError> {
        self.pad = self.id(token)?;
        self.pad_name = (!token.is_empty()).then(|| token.to_owned());
        Ok(self)
    }

    /// The tokens of a text alone, however many.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut rest = text;
        // The names of the special tokens mean the tokens, if they are spelled exactly.
        while let Some((at, name, id)) = self.next_special(rest) {
            self.encode_words(&rest[..at], &mut tokens);
            tokens.push(id);
            rest = &rest[at + name.len()..];
        }
        self.encode_words(rest, &mut tokens);
        tokens
    }

    /// A text as `length` tokens: between begin and end, cut or padded.
    pub fn prompt(&self, text: &str, length: usize) -> Prompt {
        let text = self.encode(text);
        let kept = text.len().min(length.saturating_sub(2));
        let tokens = [self.begin].into_iter().chain(text[..kept].iter().copied()).chain([self.end]);
        let tokens = tokens.chain(std::iter::repeat(self.pad)).take(length);
        // `files` refuses a larger number.
        let tokens = tokens.map(|token| i32::try_from(token).unwrap_or(i32::MAX)).collect();
        Prompt { tokens, left_out: text.len() - kept }
    }

    fn next_special(&self, text: &str) -> Option<(usize, &str, u32)> {
        let pad = self.pad_name.as_deref().map(|name| (name, self.pad));
        [(BEGIN, self.begin), (END, self.end)]
            .into_iter()
            .chain(pad)
            .filter_map(|(name, id)| Some((text.find(name)?, name, id)))
            .min_by_key(|&(at, ..)| at)
    }

    fn encode_words(&self, text: &str, tokens: &mut Vec<u32>) {
        let text = words::normalised(text);
        for word in words::split(&text) {
            let pieces = bytes::characters(word).map(|(piece, last)| {
                let piece = if last { format!("{piece}{WORD_END}") } else { piece.to_string() };
                // As transformers does with what it does not know.
                self.vocabulary.get(&piece).copied().unwrap_or(self.end)
            });
            tokens.extend(self.merges.apply(pieces.collect()));
        }
    }

    fn id(&self, token: &str) -> Result<u32, TokenizerError> {
        let id = self.vocabulary.get(token).copied();
        id.ok_or_else(|| TokenizerError::MissingToken { token: token.to_owned() })
    }
}

//! Why a tokenizer could not be read.

use std::path::PathBuf;

use crate::weights::WeightsError;

/// Why a tokenizer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The folder has no vocabulary.
    #[error(
        "{} has neither vocab.json with merges.txt nor tokenizer.json, so there is no tokenizer in it",
        .folder.display()
    )]
    NoFiles {
        /// The folder.
        folder: PathBuf,
    },
    /// A file could not be read.
    #[error(transparent)]
    Read(#[from] WeightsError),
    /// A file is not what its name says.
    #[error("the tokenizer's {file} cannot be read: {source}")]
    Json {
        /// The file.
        file: &'static str,
        /// What the reader says.
        source: serde_json::Error,
    },
    /// The tokenizer is of another kind.
    #[error("the tokenizer's {setting} is {value}, but only {expected} is supported")]
    Kind {
        /// What is different.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A merge that is not two tokens.
    #[error("merge {index} of the tokenizer is not two tokens with a space between them")]
    Merge {
        /// Which one, from 0.
        index: usize,
    },
    /// A token that must be in the vocabulary is not.
    #[error("the tokenizer's vocabulary does not have {token}")]
    MissingToken {
        /// The token.
        token: String,
    },
    /// A number that no text encoder can look up.
    #[error("the tokenizer numbers {token} {id}, but numbers go up to {}", i32::MAX)]
    TooLarge {
        /// The token.
        token: String,
        /// Its number.
        id: u32,
    },
}

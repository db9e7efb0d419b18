//! CLIP's tokenizer against transformers.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::fs;

use kinora_models::tokenizer::ClipTokenizer;
use serde::Deserialize;
use serde_json::{Value, json};
use support::fixtures::folder;

#[derive(Deserialize)]
struct Case {
    text: String,
    tokens: Vec<u32>,
}

fn cases() -> Vec<Case> {
    read("cases.json")
}

fn read(file: &str) -> Vec<Case> {
    serde_json::from_str(&fs::read_to_string(folder("tokenizer").join(file)).unwrap()).unwrap()
}

#[test]
fn a_thousand_strings_have_the_tokens_of_transformers() {
    let tokenizer = ClipTokenizer::from_folder(&folder("tokenizer")).unwrap();
    let cases = cases();
    assert_eq!(cases.len(), 1000);
    for Case { text, tokens } in &cases {
        assert_eq!(tokenizer.encode(text), *tokens, "{text:?}");
    }
    assert!(cases.iter().any(|case| case.text.split(' ').count() >= 300), "some are far too long");
}

#[test]
fn a_prompt_is_cut_and_padded_as_transformers_does() {
    let tokenizer = ClipTokenizer::from_folder(&folder("tokenizer")).unwrap();
    let [begin, end] = ["<|startoftext|>", "<|endoftext|>"].map(|text| tokenizer.encode(text)[0] as i32);
    for Case { text, tokens } in cases() {
        let prompt = tokenizer.prompt(&text, 77);
        let mut expected = vec![begin];
        expected.extend(tokens.iter().take(75).map(|&token| token as i32));
        // The end, and then padding, which is the end too.
        expected.push(end);
        expected.resize(77, end);
        assert_eq!(prompt.tokens, expected, "{text:?}");
        assert_eq!(prompt.left_out, tokens.len().saturating_sub(75), "{text:?}");
    }
}

#[test]
fn padding_that_a_text_has_is_a_token_of_its_own_as_in_transformers() {
    let plain = ClipTokenizer::from_folder(&folder("tokenizer")).unwrap();
    let padded = plain.clone().padded_with("!").unwrap();
    let cases = read("padded.json");
    assert_eq!(cases.len(), 240);
    for Case { text, tokens } in &cases {
        assert_eq!(padded.encode(text), *tokens, "{text:?}");
    }
    assert!(cases.iter().any(|case| plain.encode(&case.text) != case.tokens));
}

#[test]
fn one_file_gives_the_same_tokens_as_two() {
    let read = |name: &str| fs::read_to_string(folder("tokenizer").join(name)).unwrap();
    let vocabulary: Value = serde_json::from_str(&read("vocab.json")).unwrap();
    let merges = read("merges.txt");
    let merges: Vec<&str> = merges.lines().skip(1).collect();
    let model = json!({"type": "BPE", "end_of_word_suffix": "</w>", "vocab": vocabulary, "merges": merges});
    let tokenizer = ClipTokenizer::from_json(&json!({ "model": model }).to_string()).unwrap();
    for Case { text, tokens } in cases() {
        assert_eq!(tokenizer.encode(&text), tokens, "{text:?}");
    }
}

//! From a prompt to what the denoising network attends to.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kinora_graph::{DType, Graph, Tensor};
use kinora_models::{
    lora::LoraPart,
    networks::clip_text::{self, ClipTextConfig, TextEncode},
    tokenizer::ClipTokenizer,
    weights::{Variant, Weights},
};
use kinora_runtime::Tensors;

use super::{
    LiveConfigs, LiveModel,
    loading::{Loaded, Loading},
    memory,
};
use crate::image_to_video::{GenerateError, Observe};

/// How many prompts are remembered: going back to one costs nothing.
const REMEMBERED: usize = 64;
const PART: &str = "text encoder";
/// The name of the second one, of Stable Diffusion XL.
const SECOND: &str = "text encoder 2";

/// A prompt as numbers.
#[derive(Clone, Debug)]
pub(super) struct Embedding {
    /// `[tokens, channels]`, f32.
    pub hidden: Tensor,
    /// `[channels]`, f32, of Stable Diffusion XL.
    pub pooled: Option<Tensor>,
    /// How many tokens did not fit, and were left out at the end of the prompt.
    pub left_out: usize,
}

/// The bytes of all prompts that may be remembered.
pub(super) fn remembered_bytes(configs: &LiveConfigs) -> usize {
    let second = configs.text_encoder_2.as_ref();
    let channels = configs.text_encoder.hidden_size + second.map_or(0, |second| second.hidden_size);
    let pooled = second.map_or(0, |second| second.projection_dim);
    let numbers = configs.tokens().saturating_mul(channels).saturating_add(pooled);
    numbers.saturating_mul(REMEMBERED * size_of::<f32>())
}

/// The network of a text encoder, and what it is made for.
pub(super) struct EncoderGraph<'a> {
    pub part: LoraPart,
    /// Its name in errors, estimates and profiles.
    pub name: &'static str,
    /// The part that has its tokenizer.
    tokenizer: &'static str,
    config: &'a ClipTextConfig,
    request: TextEncode,
    pub graph: Graph,
}

/// The networks of a model's text encoders.
pub(super) fn graphs(configs: &LiveConfigs, dtype: DType) -> Result<Vec<EncoderGraph<'_>>, GenerateError> {
    let first = (LoraPart::TextEncoder, "tokenizer", &configs.text_encoder);
    let second = configs.text_encoder_2.as_ref();
    let second = second.map(|config| (LoraPart::TextEncoder2, "tokenizer_2", config));
    let large = second.is_some();
    let graph = |(part, tokenizer, config): (LoraPart, &'static str, _)| {
        let request = TextEncode {
            prompts: 1,
            tokens: configs.tokens(),
            dtype,
            // Stable Diffusion XL reads the last layer but one, without the norm.
            skip: usize::from(large),
            final_norm: !large,
            pooled: part == LoraPart::TextEncoder2,
        };
        let graph = clip_text::encoder(config, &request)?;
        let name = if part == LoraPart::TextEncoder2 { SECOND } else { PART };
        Ok(EncoderGraph { part, name, tokenizer, config, request, graph })
    };
    [Some(first), second].into_iter().flatten().map(graph).collect()
}

/// The text encoders of a model.
#[derive(Debug)]
pub(super) struct Text {
    encoders: Vec<Encoder>,
    /// The last prompts, the newest first.
    remembered: Mutex<VecDeque<(String, Arc<Embedding>)>>,
}

#[derive(Debug)]
struct Encoder {
    name: &'static str,
    config: ClipTextConfig,
    tokenizer: ClipTokenizer,
    tokens: usize,
    pooled: bool,
    loaded: Mutex<Loaded>,
}

impl Text {
    /// Reads tokenizers and weights.
    pub fn load(
        configs: &LiveConfigs,
        folders: &LiveModel,
        dtype: DType,
        loading: Loading<'_>,
        observe: &mut Observe<'_>,
    ) -> Result<Text, GenerateError> {
        let mut encoders = Vec::new();
        let mut remembered = remembered_bytes(configs);
        for EncoderGraph { part, name, tokenizer, config, request, graph } in graphs(configs, dtype)? {
            let weights: Weights = folders.model.weights(part.name(), &Variant::For(dtype))?;
            let weights = folders.adapted(&weights, part)?;
            let beside = memory::beside(&graph) + std::mem::take(&mut remembered);
            let loaded = loading.load((name, beside), &graph, &weights, None, observe)?;
            encoders.push(Encoder {
                name,
                config: config.clone(),
                tokenizer: folders.model.tokenizer(tokenizer)?,
                tokens: request.tokens,
                pooled: request.pooled,
                loaded: Mutex::new(loaded),
            });
        }
        Ok(Text { encoders, remembered: Mutex::default() })
    }

    /// Encodes a prompt, unless it is remembered.
    pub fn encode(&self, prompt: &str) -> Result<Arc<Embedding>, GenerateError> {
        if let Some((_, known)) = self.remembered().iter().find(|(text, _)| text == prompt) {
            return Ok(known.clone());
        }
        let mut hidden: Vec<Tensor> = Vec::new();
        let (mut pooled, mut left_out) = (None, 0);
        for encoder in &self.encoders {
            let (rows, whole, left) = encoder.encode(prompt)?;
            hidden.push(rows);
            pooled = whole.or(pooled);
            left_out = left_out.max(left);
        }
        let embedding = Arc::new(Embedding { hidden: side_by_side(&hidden)?, pooled, left_out });
        let mut remembered = self.remembered();
        remembered.push_front((prompt.to_owned(), embedding.clone()));
        remembered.truncate(REMEMBERED);
        Ok(embedding)
    }

    /// The memory that the encoders hold, in bytes.
    pub fn bytes(&self) -> usize {
        self.encoders.iter().map(|encoder| encoder.loaded().bytes()).sum()
    }

    fn remembered(&self) -> MutexGuard<'_, VecDeque<(String, Arc<Embedding>)>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Encoder {
    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The prompt's tokens, the whole of it if the model reads that, and how many tokens were left out.
    fn encode(&self, prompt: &str) -> Result<(Tensor, Option<Tensor>, usize), GenerateError> {
        let prompt = self.tokenizer.prompt(prompt, self.tokens);
        let mut inputs = Tensors::new();
        if self.pooled {
            let ends = self.config.ends(&prompt.tokens, self.tokens);
            inputs.insert("ends".to_owned(), Tensor::from_slice([ends.len()], &ends)?);
        }
        inputs.insert("tokens".to_owned(), Tensor::from_slice([1, self.tokens], &prompt.tokens)?);
        let mut results = self
            .loaded()
            .network
            .run_step(&inputs)
            .map_err(|source| GenerateError::run(self.name, source))?;
        let mut take = |name| results.remove(name).ok_or(GenerateError::NoResult { part: self.name, name });
        let hidden = take("hidden")?.cast(DType::F32);
        let channels = hidden.shape().elements() / self.tokens;
        let pooled = match self.pooled {
            true => Some(take("pooled")?.cast(DType::F32)),
            false => None,
        };
        Ok((hidden.reshape([self.tokens, channels])?, pooled, prompt.left_out))
    }
}

/// The channels of several embeddings of the same tokens, one after the other.
fn side_by_side(parts: &[Tensor]) -> Result<Tensor, GenerateError> {
    if let [only] = parts {
        return Ok(only.clone());
    }
    let tokens = parts.first().map_or(0, |part| part.shape()[0]);
    let rows: Vec<(Vec<f32>, usize)> = parts.iter().map(|part| (part.to_f32(), part.shape()[1])).collect();
    let mut values = Vec::new();
    for token in 0..tokens {
        for (numbers, width) in &rows {
            values.extend_from_slice(&numbers[token * width..(token + 1) * width]);
        }
    }
    let width = rows.iter().map(|(_, width)| width).sum();
    Ok(Tensor::from_slice([tokens, width], &values)?)
}

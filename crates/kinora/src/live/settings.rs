//! The settings of live video. All of them can change from one frame to the next.

use std::{collections::BTreeMap, fmt, str::FromStr};

use kinora_models::{
    image::{Colour, Fit},
    networks::frame::MAX_MEMORY,
};
use serde::{Deserialize, Serialize};

use super::LiveConfigs;
use crate::{
    image_to_video::{GenerateError, Precision, random_seed},
    setters::setters,
};

/// The largest strength of a LoRA that is turned. Beyond it weights overflow, and what a frame hands on stays lost.
const MAX_LORA: f64 = 16.0;
/// More steps than a frame has time for.
pub const MAX_STEPS: usize = 8;
/// The longest side of a frame: far more than any model makes sense of, and far below where sizes overflow.
pub const MAX_SIDE: usize = 1 << 12;
/// Far longer than any text that is encoded: a prompt has 75 tokens.
const MAX_TEXT: usize = 1 << 20;
/// An hour at 60 frames per second.
const MAX_GLIDE: usize = 60 * 60 * 60;

/// The settings of live video.
///
/// ```no_run
/// # use kinora::live::{Guidance, LiveSettings};
/// # fn example(settings: LiveSettings) -> LiveSettings {
/// settings.prompt("a watercolour of a harbour").strength(0.6).steps(2).guidance(Guidance::None)
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LiveSettings {
    /// What to draw.
    pub prompt: String,
    /// What to avoid. It is read only under guidance.
    pub negative_prompt: String,
    /// Width in pixels, a multiple of [`LiveConfigs::side_unit`].
    pub width: usize,
    /// Height in pixels, a multiple of [`LiveConfigs::side_unit`].
    pub height: usize,
    /// How far a frame may be from its input: 0 leaves it as it is, 1 leaves nothing of it.
    pub strength: f64,
    /// Denoising steps of a frame.
    pub steps: usize,
    /// The timesteps of a frame, each below the one before, instead of those that strength and steps give.
    pub timesteps: Option<Vec<usize>>,
    /// Whether, and how, a frame is pushed away from the negative prompt.
    pub guidance: Guidance,
    /// How far it is pushed.
    pub guidance_scale: f64,
    /// Advances several frames at once, each by a step: as many frames per second as with one step, but each frame is seen as many
    /// frames later as there are steps after the first.
    pub stream_batch: bool,
    /// How much a ControlNet steers, if the model has one.
    pub control_scale: f64,
    /// The seed of the noise, the same for every frame. As PyTorch's CPU generator understands it: only its low 32 bits count.
    pub seed: u64,
    /// How much of the frame before is kept: 0 none of it, below 1. Calms flicker; what moves leaves a trail. Nothing is kept over
    /// a cut.
    pub blend: f64,
    /// How many previous frames self-attention sees, 0 to 4. Meant to calm flicker; each frame costs as much attention as the one that
    /// is drawn. Not in a stream batch.
    pub memory_frames: usize,
    /// Over how many frames a new prompt takes the place of the old one.
    pub glide: usize,
    /// The strengths of the LoRAs that can be turned ([`LiveModel::adjustable_lora`](super::LiveModel::adjustable_lora)), by
    /// name: 0 is without, 1 as it was trained. One that is not named has the strength that it began with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lora: BTreeMap<String, f64>,
    /// What to do with an input of another shape.
    #[serde(skip)]
    pub fit: Fit,
    /// The colour around an input that is [padded](Fit::Pad).
    #[serde(skip, default = "black")]
    pub background: Colour,
}

/// Classifier-free guidance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guidance {
    /// None: what distilled models such as Turbo are made for.
    #[default]
    None,
    /// By the noise that is in the frames, which costs nothing. Only in a stream batch, which it therefore is.
    #[serde(rename = "self")]
    SelfNegative,
    /// By the negative prompt for the newest frame, and by noise for the others. Only in a stream batch, which it therefore is.
    Initialize,
    /// By the negative prompt: twice the work.
    Full,
}

impl Guidance {
    /// All of them.
    pub const ALL: [Guidance; 4] =
        [Guidance::None, Guidance::SelfNegative, Guidance::Initialize, Guidance::Full];

    /// The name, as in `--guidance`.
    pub fn name(self) -> &'static str {
        match self {
            Guidance::None => "none",
            Guidance::SelfNegative => "self",
            Guidance::Initialize => "initialize",
            Guidance::Full => "full",
        }
    }
}

impl fmt::Display for Guidance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Guidance {
    type Err = GenerateError;

    fn from_str(text: &str) -> Result<Self, GenerateError> {
        Self::ALL.into_iter().find(|guidance| guidance.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Guidance::name).join(", ");
            refused("guidance", text, format!("it must be one of {names}"))
        })
    }
}

impl LiveSettings {
    setters! {
        prompt: impl Into<String>,
        negative_prompt: impl Into<String>,
        width: usize,
        height: usize,
        strength: f64,
        steps: usize,
        timesteps: impl Into<Option<Vec<usize>>>,
        guidance: Guidance,
        guidance_scale: f64,
        stream_batch: bool,
        control_scale: f64,
        seed: u64,
        blend: f64,
        memory_frames: usize,
        glide: usize,
        lora: impl Into<BTreeMap<String, f64>>,
        fit: Fit,
        background: Colour,
    }

    /// The same with another strength of one LoRA.
    #[must_use]
    pub fn lora_strength(mut self, name: impl Into<String>, strength: f64) -> Self {
        self.lora.insert(name.into(), strength);
        self
    }

    /// The settings that suit a model, with a fresh seed and an empty prompt.
    pub fn for_configs(configs: &LiveConfigs) -> Self {
        let [height, width] = configs.default_size;
        LiveSettings {
            prompt: String::new(),
            negative_prompt: String::new(),
            width,
            height,
            strength: 0.5,
            steps: 1,
            timesteps: None,
            guidance: Guidance::None,
            guidance_scale: 1.2,
            stream_batch: false,
            control_scale: 1.0,
            seed: random_seed(),
            blend: 0.0,
            memory_frames: 0,
            glide: 0,
            lora: BTreeMap::new(),
            fit: Fit::default(),
            background: Colour::BLACK,
        }
    }

    /// Whether several frames are in work at once.
    pub fn is_batched(&self) -> bool {
        self.stream_batch || matches!(self.guidance, Guidance::SelfNegative | Guidance::Initialize)
    }

    /// Refuses settings that a model of these configurations cannot draw a frame with.
    ///
    /// # Errors
    /// Names the setting, its value and the rule that it breaks.
    pub fn check(&self, configs: &LiveConfigs, precision: Precision) -> Result<(), GenerateError> {
        let unit = configs.side_unit();
        for (setting, side) in [("width", self.width), ("height", self.height)] {
            if !(side.is_multiple_of(unit) && (unit..=MAX_SIDE).contains(&side)) {
                let rule = format!("it must be a multiple of {unit}, from {unit} to {MAX_SIDE}");
                return Err(refused(setting, side, rule));
            }
        }
        for (setting, text) in [("prompt", &self.prompt), ("negative prompt", &self.negative_prompt)] {
            if text.len() > MAX_TEXT {
                let rule = format!("it may have at most {MAX_TEXT}");
                return Err(refused(setting, format_args!("{} bytes long", text.len()), rule));
            }
        }
        if !(1..=MAX_STEPS).contains(&self.steps) {
            return Err(refused("steps", self.steps, format!("it must be from 1 to {MAX_STEPS}")));
        }
        if let Some(timesteps) = &self.timesteps
            && !(1..=MAX_STEPS).contains(&timesteps.len())
        {
            let rule = format!("there must be from 1 to {MAX_STEPS}");
            return Err(refused("timesteps", format_args!("a list of {}", timesteps.len()), rule));
        }
        if self.glide > MAX_GLIDE {
            return Err(refused("glide", self.glide, format!("it must be from 0 to {MAX_GLIDE} frames")));
        }
        if !(0.0..=1.0).contains(&self.strength) {
            return Err(refused("strength", self.strength, "it must be from 0 to 1".to_owned()));
        }
        if !(0.0..1.0).contains(&self.blend) {
            return Err(refused("blend", self.blend, "it must be from 0 to below 1".to_owned()));
        }
        if self.memory_frames > MAX_MEMORY {
            let rule = format!("it must be from 0 to {MAX_MEMORY} frames");
            return Err(refused("memory_frames", self.memory_frames, rule));
        }
        if self.memory_frames > 0 && self.is_batched() {
            return Err(refused(
                "memory_frames",
                self.memory_frames,
                "it must be 0 in a stream batch".to_owned(),
            ));
        }
        let sane = |strength: f64| (-MAX_LORA..=MAX_LORA).contains(&strength);
        if let Some((name, strength)) = self.lora.iter().find(|(_, strength)| !sane(**strength)) {
            let rule = format!("it must be from -{MAX_LORA} to {MAX_LORA}");
            return Err(refused("LoRA", format_args!("{name} = {strength}"), rule));
        }
        for (setting, scale) in
            [("guidance scale", self.guidance_scale), ("control scale", self.control_scale)]
        {
            if !precision.holds(scale) {
                let rule = format!("it must be finite, and {precision} must be able to hold it");
                return Err(refused(setting, scale, rule));
            }
        }
        Ok(())
    }
}

fn refused(setting: &'static str, value: impl fmt::Display, rule: String) -> GenerateError {
    GenerateError::Setting { setting, value: value.to_string(), rule }
}

fn black() -> Colour {
    Colour::BLACK
}

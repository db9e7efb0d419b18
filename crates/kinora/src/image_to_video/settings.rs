//! The settings of a clip.

use std::hash::{BuildHasher, RandomState};

use kinora_cpu::CpuBackend;
use kinora_models::{
    folder::ModelFolder,
    image::{Colour, Fit},
    networks::{step_cache::DEFAULT_BLOCKS, unet::UnetConfig, vae::VaeConfig},
    schedulers::{Scheduler, SchedulerKind},
};
use serde::Serialize;

use super::{Configs, GenerateError, Precision, plans::Request};
use crate::setters::setters;

/// Sides are multiples of this: the autoencoder divides by 8, and the UNet by another 8.
const SIDE_UNIT: usize = 64;
/// Far more than any model makes sense of, and far below where sizes overflow.
pub(super) const MAX_SIDE: usize = 1 << 13;
const MAX_STEPS: usize = 10_000;
const MAX_FRAMES: usize = 1 << 10;
const MAX_CONDITION: usize = 1 << 20;

/// The settings of a clip. The names are those of diffusers' pipeline, in full words, and so are the defaults if
/// a model has none of its own, except for [`fit`](field@Self::fit).
///
/// ```no_run
/// # use kinora::{ModelFolder, Settings, image_to_video::GenerateError};
/// # fn example(model: &ModelFolder) -> Result<(), GenerateError> {
/// let settings = Settings::for_model(model)?.steps(10).seed(42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Settings {
    /// Frames of the clip.
    pub frames: usize,
    /// Denoising steps.
    pub steps: usize,
    /// Height in pixels, a multiple of [`Configs::side_unit`].
    pub height: usize,
    /// Width in pixels, a multiple of [`Configs::side_unit`].
    pub width: usize,
    /// The frame rate that the model is conditioned on: it shapes the motion. [`Clip::save`](super::Clip::save) plays at it too.
    pub fps: usize,
    /// How much motion the model is asked for; it was trained on 1 to 255.
    pub motion_bucket: usize,
    /// How much noise is added to the photo before it is encoded: more noise frees the clip from the photo.
    pub noise_augmentation: f64,
    /// Guidance of the first frame.
    pub min_guidance: f64,
    /// Guidance of the last frame. If neither is above 1, no guidance runs, and a step costs half.
    pub max_guidance: f64,
    /// Frames that are decoded together. They influence each other, so the chunk size changes the pixels; smaller
    /// chunks need less memory.
    pub decode_chunk: usize,
    /// Step caching (DeepCache): the deep blocks of the network are computed in the first step and in every one that is so many
    /// steps after such a step; the steps in between take what they gave then. 1 computes all blocks in every step.
    pub cache: usize,
    /// The outer blocks, which every step computes even so: see [`Extent`](kinora_models::networks::step_cache::Extent). With
    /// more of them a clip is closer to the uncached one, and slower: [`DEFAULT_BLOCKS`] says how much.
    pub cache_blocks: usize,
    /// The seed of all noise, as PyTorch's CPU generator understands it: only its low 32 bits count.
    pub seed: u64,
    /// The scheduler; `None` is the model's own.
    pub scheduler: Option<SchedulerKind>,
    /// What to do with a photo that has another shape than the clip. diffusers stretches it.
    pub fit: Fit,
    /// The colour around a photo that is [padded](Fit::Pad).
    pub background: Colour,
}

impl Settings {
    setters! {
        frames: usize,
        steps: usize,
        height: usize,
        width: usize,
        fps: usize,
        motion_bucket: usize,
        noise_augmentation: f64,
        min_guidance: f64,
        max_guidance: f64,
        decode_chunk: usize,
        cache: usize,
        cache_blocks: usize,
        seed: u64,
        scheduler: impl Into<Option<SchedulerKind>>,
        fit: Fit,
        background: Colour,
    }

    /// The settings that suit a model, with a fresh seed: set [`seed`](field@Self::seed) to make a clip again.
    ///
    /// # Errors
    /// If the model's configurations cannot be read.
    pub fn for_model(model: &ModelFolder) -> Result<Self, GenerateError> {
        Ok(Self::for_configs(&Configs::read(model)?))
    }

    /// As [`Settings::for_model`], for configurations that have been read.
    pub fn for_configs(configs: &Configs) -> Self {
        let [height, width] = configs.default_size;
        let frames = configs.unet.num_frames;
        let mut settings = Settings {
            frames,
            steps: steps(configs),
            height,
            width,
            fps: 7,
            motion_bucket: 127,
            noise_augmentation: 0.02,
            min_guidance: 1.0,
            max_guidance: 3.0,
            decode_chunk: frames,
            cache: 1,
            cache_blocks: DEFAULT_BLOCKS,
            seed: random_seed(),
            scheduler: None,
            fit: Fit::default(),
            background: Colour::BLACK,
        };
        configs.defaults.apply(&mut settings);
        settings
    }

    /// Whether guidance is on: the network runs with and without the photo, and the difference is amplified.
    pub fn guided(&self) -> bool {
        self.min_guidance.max(self.max_guidance) > 1.0
    }

    /// Whether some steps take what the deep blocks gave in an earlier one.
    pub fn cached(&self) -> bool {
        self.cache > 1 && self.steps > 1
    }

    /// How many steps compute all blocks.
    pub fn whole_steps(&self) -> usize {
        self.steps.div_ceil(self.cache.max(1))
    }

    /// Refuses settings that a model of these configurations cannot make a clip with in this precision.
    ///
    /// # Errors
    /// Names the setting, its value and the rule that it breaks.
    pub fn check(&self, configs: &Configs, precision: Precision) -> Result<(), GenerateError> {
        let within = |setting, value: usize, least: usize, most: usize| {
            let rule = || format!("it must be from {least} to {most}");
            require((least..=most).contains(&value), setting, &value, rule)
        };
        let at_least_one = |setting, value: usize| {
            require(value > 0, setting, &value, || "it must be at least 1".to_owned())
        };
        within("frames", self.frames, 1, MAX_FRAMES)?;
        within("steps", self.steps, 1, MAX_STEPS)?;
        within("cache", self.cache, 1, MAX_STEPS)?;
        let blocks = configs.unet.block_count().map_err(|error| configs.named("unet", error))?;
        within("cache blocks", self.cache_blocks, 1, blocks)?;
        let unit = configs.side_unit();
        for (setting, side) in [("height", self.height), ("width", self.width)] {
            let fits = side.is_multiple_of(unit) && (unit..=MAX_SIDE).contains(&side);
            require(fits, setting, &side, || {
                format!("it must be a multiple of {unit}, from {unit} to {MAX_SIDE}")
            })?;
        }
        within("fps", self.fps, 1, MAX_CONDITION)?;
        within("motion bucket", self.motion_bucket, 0, MAX_CONDITION)?;
        let noise = self.noise_augmentation;
        require((noise as f32).is_finite() && noise >= 0.0, "noise augmentation", &noise, || {
            "it must be 0 or more, and at most 3.4e38".to_owned()
        })?;
        for (setting, guidance) in [("min guidance", self.min_guidance), ("max guidance", self.max_guidance)]
        {
            let finite = (guidance as f32).is_finite();
            require(finite, setting, &guidance, || "it must be finite, and at most 3.4e38".to_owned())?;
        }
        // The network gets these in its own precision.
        for (setting, value) in [
            ("fps", self.fps as f64),
            ("motion bucket", self.motion_bucket as f64),
            ("noise augmentation", noise),
            ("min guidance", self.min_guidance),
            ("max guidance", self.max_guidance),
        ] {
            require(precision.holds(value), setting, &value, || {
                format!("{precision} cannot represent it; make it smaller or use another precision")
            })?;
        }
        at_least_one("decode chunk", self.decode_chunk)
    }

    /// Refuses more steps than the scheduler of a model of these configurations can take.
    ///
    /// # Errors
    /// Says how many it can take.
    pub fn check_steps(&self, configs: &Configs) -> Result<(), GenerateError> {
        let (precision, backend) = (Precision::default(), &CpuBackend::default());
        Request { configs, settings: self, precision, backend, photo: [0; 2] }.schedule().map(drop)
    }
}

/// diffusers' number of steps, or as many as the model's scheduler takes if that is fewer.
fn steps(configs: &Configs) -> usize {
    const STEPS: usize = 25;
    Scheduler::from_config(&configs.scheduler).map_or(STEPS, |scheduler| scheduler.most_steps().min(STEPS))
}

/// A random seed.
pub fn random_seed() -> u64 {
    // The standard library seeds its hash maps from the system's randomness.
    RandomState::new().hash_one(0u8) & u64::from(u32::MAX)
}

/// What height and width must be multiples of.
pub(super) fn side_unit(unet: &UnetConfig, vae: &VaeConfig) -> usize {
    let halvings = unet.block_out_channels.len().saturating_sub(1).min(MAX_SIDE.ilog2() as usize);
    // Both are powers of two, so the larger is a multiple of the smaller.
    SIDE_UNIT.max(vae.pixels_per_latent() << halvings)
}

/// As many pixels as a square with sides of `side`, in the shape that the model was trained on, 16:9.
pub(super) fn wide(side: usize, unit: usize) -> [usize; 2] {
    // A wrong file may ask for any number, so it is limited before it is multiplied.
    let side = side.min(MAX_SIDE);
    [side / 4 * 3, side / 3 * 4].map(|side| nearest_side(side, unit))
}

/// The valid multiple of the unit that is nearest to a side.
pub(crate) fn nearest_side(side: usize, unit: usize) -> usize {
    let units = (side.min(MAX_SIDE) + unit / 2) / unit;
    units.clamp(1, (MAX_SIDE / unit).max(1)) * unit
}

fn require(
    holds: bool,
    setting: &'static str,
    value: &dyn std::fmt::Display,
    rule: impl FnOnce() -> String,
) -> Result<(), GenerateError> {
    if holds {
        return Ok(());
    }
    Err(GenerateError::Setting { setting, value: value.to_string(), rule: rule() })
}

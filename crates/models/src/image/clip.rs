//! What the CLIP image encoder reads.

use serde_json::Value;

use super::{CHANNELS, ImageError, RgbImage, antialias};

/// The side of the encoder's input in pixels.
pub const CLIP_SIZE: usize = 224;

/// The steps before the image encoder, as Stable Video Diffusion's pipeline takes them: the antialiased resize to
/// [`CLIP_SIZE`], and the normalisation of `preprocessor_config.json`. The file's other steps are not used there.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipPreprocessor {
    mean: [f64; CHANNELS],
    deviation: [f64; CHANNELS],
}

impl Default for ClipPreprocessor {
    /// With the mean and deviation that CLIP was trained with.
    fn default() -> Self {
        ClipPreprocessor {
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            deviation: [0.268_629_54, 0.261_302_58, 0.275_777_11],
        }
    }
}

impl ClipPreprocessor {
    /// By a `preprocessor_config.json`; what it does not say has CLIP's default.
    ///
    /// # Errors
    /// If the mean or the deviation makes no sense.
    pub fn from_config(config: &Value) -> Result<Self, ImageError> {
        const MEAN: &str = "three numbers from -1e6 to 1e6";
        const DEVIATION: &str = "three numbers from 1e-6 to 1e6";
        let read = |field: &'static str, default: [f64; CHANNELS], fits: fn(&f64) -> bool, expected| {
            let Some(value) = config.get(field) else { return Ok(default) };
            let numbers = value.as_array().map_or(&[][..], Vec::as_slice);
            let numbers: Vec<f64> = numbers.iter().filter_map(Value::as_f64).filter(fits).collect();
            let wrong = |_| ImageError::Config { field, value: value.clone(), expected };
            <[f64; CHANNELS]>::try_from(numbers).map_err(wrong)
        };
        let default = ClipPreprocessor::default();
        Ok(ClipPreprocessor {
            mean: read("image_mean", default.mean, |mean| mean.abs() <= 1e6, MEAN)?,
            deviation: read("image_std", default.deviation, |x| (1e-6..=1e6).contains(x), DEVIATION)?,
        })
    }

    /// The encoder's input, `[CLIP_SIZE, CLIP_SIZE, 3]`.
    pub fn pixels(&self, image: &RgbImage) -> Vec<f32> {
        let resized = antialias::resize(image, CLIP_SIZE, CLIP_SIZE);
        let normalised = resized.as_chunks::<CHANNELS>().0.iter().flat_map(|pixel| {
            let channel = |c: usize| (((pixel[c] + 1.0) / 2.0 - self.mean[c]) / self.deviation[c]) as f32;
            [0, 1, 2].map(channel)
        });
        normalised.collect()
    }
}

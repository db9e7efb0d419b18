//! The photo that a clip starts from, and what is said about it.

use std::path::Path;

use kinora::{
    RgbImage,
    image_to_video::{ClipDefaults, Configs, Settings},
    memory,
    photo::{Colour, Fit, Photo},
};
use serde_json::{Value, json};

use super::arguments::RequestArgs;
use crate::{
    failure::Failure,
    model,
    quantities::{Bytes, PictureSize},
};

/// A photo that loses more than this is warned of.
const MUCH: f64 = 0.25;

/// The photo that a clip starts from, without transparency.
pub struct Still {
    pub image: RgbImage,
    /// Whether something of the background can be seen.
    transparent: bool,
    background: Colour,
}

impl Still {
    /// The photo that was named, or the still of the model in the box if neither a photo nor another model was.
    pub fn open(photo: Option<&Path>, request: &RequestArgs) -> Result<Still, Failure> {
        let photo = match (photo, &request.model) {
            (Some(path), _) => Photo::open_within(path, memory(request))?,
            (None, None) => return Ok(Still::new(model::still()?, false, request)),
            (None, Some(_)) => {
                let problem = "only the model in the box comes with a still; with --model, name a photo";
                return Err(Failure::Usage(problem.to_owned()));
            }
        };
        let transparent = photo.is_transparent();
        Ok(Still::new(photo.on(background(request, transparent)), transparent, request))
    }

    /// A picture that was drawn for the clip.
    pub fn drawn(image: RgbImage, request: &RequestArgs) -> Still {
        Still::new(image, false, request)
    }

    fn new(image: RgbImage, transparent: bool, request: &RequestArgs) -> Still {
        Still { image, transparent, background: background(request, transparent) }
    }

    /// The settings for a clip of this photo.
    pub fn settings(&self, settings: &Settings) -> Settings {
        settings.clone().background(self.background)
    }

    /// What was done with the photo that its owner may want to know.
    pub fn notes(&self) -> Vec<String> {
        let note =
            || format!("the photo is transparent and lies on {}; --background changes that", self.background);
        self.transparent.then(note).into_iter().collect()
    }

    /// What the user may not have meant.
    pub fn warnings(&self, settings: &Settings, configs: &Configs) -> Vec<String> {
        let scheduler = settings.scheduler.and_then(|kind| configs.scheduler_warning(kind));
        let cropped = cropped(&self.image, settings, configs);
        cropped.into_iter().chain(untrained(settings, configs)).chain(scheduler).collect()
    }

    /// The photo, for a program. `file` is its name, and null for the still of the model in the box.
    pub fn json(&self, file: Option<&Path>) -> Value {
        json!({
            "file": file.map(Path::to_string_lossy),
            "width": self.image.width(),
            "height": self.image.height(),
            "transparent": self.transparent,
            "background": self.transparent.then_some(self.background),
        })
    }
}

/// A photo of so few bytes is never why a clip does not fit.
const SMALL_PHOTO: u64 = 8_000_000;

/// The memory that opening a photo may take: the requested limit, otherwise what the machine has available.
fn memory(request: &RequestArgs) -> u64 {
    let asked = request.machine.memory_limit.map(|Bytes(bytes)| bytes);
    let limit = asked.or_else(|| memory::available().map(|limit| limit.bytes));
    limit.unwrap_or(u64::MAX).max(SMALL_PHOTO)
}

/// The colour that was asked for. Otherwise a transparent photo, such as a logo, lies on white, and bars are black.
fn background(request: &RequestArgs, transparent: bool) -> Colour {
    request.background.unwrap_or(if transparent { Colour::WHITE } else { Colour::BLACK })
}

/// The size of the clips that a model was made for, if it was made for one size alone.
fn only_size(configs: &Configs) -> Option<(usize, PictureSize)> {
    let ClipDefaults { frames: Some(frames), width: Some(width), height: Some(height), .. } =
        configs.defaults
    else {
        return None;
    };
    Some((frames, PictureSize { width, height }))
}

/// Warns if the model says which clips it was made for, and this is a different one.
fn untrained(settings: &Settings, configs: &Configs) -> Option<String> {
    let (frames, size) = only_size(configs)?;
    let same = [frames, size.width, size.height] == [settings.frames, settings.width, settings.height];
    (!same).then(|| format!("the model was made only for {frames} frames of {size}; expect a poor clip"))
}

/// Warns if much of the photo is cut off. The advice to give another size is not for a model that was made for one.
fn cropped(photo: &RgbImage, settings: &Settings, configs: &Configs) -> Option<String> {
    let asked = PictureSize { width: settings.width, height: settings.height };
    let given = PictureSize { width: photo.width(), height: photo.height() };
    let visible = settings.fit.visible_part(photo, asked.width, asked.height);
    if settings.fit != Fit::Crop || visible >= 1.0 - MUCH {
        return None;
    }
    let better = same_shape(given, asked, configs.side_unit());
    let advice = if better == asked || only_size(configs).is_some() {
        String::new()
    } else {
        format!(", --size {}x{} keeps its shape", better.width, better.height)
    };
    let percent = 100.0 * visible;
    Some(format!(
        "the photo ({given}) is cropped to {asked}: {percent:.0} % of it can be seen; --fit pad keeps all of it{advice}"
    ))
}

/// A size with the photo's aspect ratio and about as many pixels as requested, in multiples of the model's unit.
fn same_shape(photo: PictureSize, asked: PictureSize, unit: usize) -> PictureSize {
    let pixels = (asked.width * asked.height) as f64;
    let shape = photo.width as f64 / photo.height as f64;
    let most = (4096 / unit).max(1);
    let rounded = |side: f64| ((side / unit as f64).round() as usize).clamp(1, most) * unit;
    PictureSize { width: rounded((pixels * shape).sqrt()), height: rounded((pixels / shape).sqrt()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(width: usize, height: usize, configs: &Configs, fit: Fit) -> Vec<String> {
        let image = RgbImage::new(width, height, vec![0; width * height * 3]).unwrap();
        let still = Still { image, transparent: false, background: Colour::BLACK };
        still.warnings(&Settings::for_configs(configs).fit(fit), configs)
    }

    #[test]
    fn a_photo_that_loses_much_is_warned_of_once() {
        let svd = Configs::svd();
        let portrait = warnings(300, 400, &svd, Fit::Crop);
        assert_eq!(
            portrait,
            [
                "the photo (300×400) is cropped to 1024×576: 42 % of it can be seen; --fit pad keeps all of it, \
              --size 640x896 keeps its shape"
            ]
        );
        // 84 and 75 of 100 pixels: an ordinary photo is no reason to warn.
        assert_eq!(warnings(1600, 1067, &svd, Fit::Crop), [""; 0]);
        assert_eq!(warnings(400, 300, &svd, Fit::Crop), [""; 0]);
        for fit in [Fit::Pad, Fit::Stretch] {
            assert_eq!(warnings(300, 400, &svd, fit), [""; 0], "it was asked for");
        }
    }

    /// Another size would be warned of as well.
    #[test]
    fn a_model_made_for_one_size_is_not_given_another() {
        let mut configs = Configs::svd();
        let (frames, width, height) = (Some(14), Some(1024), Some(576));
        configs.defaults = ClipDefaults { frames, width, height, ..ClipDefaults::default() };
        let portrait = warnings(300, 400, &configs, Fit::Crop);
        assert!(portrait.len() == 1 && !portrait[0].contains("--size"), "{portrait:?}");
    }
}

//! How a photo of one shape becomes a picture of another.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::Serialize;
use thiserror::Error;

use super::{CHANNELS, Colour, ImageError, RgbImage};

/// What to do with a photo that has another shape than the clip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fit {
    /// Keep the middle of the photo and cut off what is too wide or too high.
    #[default]
    Crop,
    /// Keep all of the photo, and fill the rest of the picture with a colour.
    Pad,
    /// Keep all of the photo and distort it, as diffusers does.
    Stretch,
}

/// Some of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: usize,
    pub len: usize,
}

impl Span {
    /// The middle of an axis.
    fn middle(len: usize, extent: usize) -> Self {
        Span { start: (extent - len) / 2, len }
    }
}

/// Where a photo lies in a picture, across and down: the part of it that is seen fills a part of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub seen: [Span; 2],
    pub filled: [Span; 2],
}

/// A name other than these three.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no way to fit a photo; it must be crop, pad or stretch")]
pub struct UnknownFit(String);

impl Fit {
    /// All of them.
    pub const ALL: [Fit; 3] = [Fit::Crop, Fit::Pad, Fit::Stretch];

    /// The name: `crop`, `pad` or `stretch`.
    pub fn name(self) -> &'static str {
        match self {
            Fit::Crop => "crop",
            Fit::Pad => "pad",
            Fit::Stretch => "stretch",
        }
    }

    /// Where a photo of some width and height lies in a picture of `width`×`height`.
    pub(crate) fn placed(self, photo: [usize; 2], width: usize, height: usize) -> Placed {
        let picture = [width, height];
        let visible = visible(photo, width, height);
        let (seen, filled) = match self {
            _ if visible == photo => (photo, picture),
            Fit::Stretch => (photo, picture),
            Fit::Crop => (visible, picture),
            Fit::Pad => (photo, inner(photo, width, height)),
        };
        let middle = |parts: [usize; 2], extents: [usize; 2]| {
            [0, 1].map(|axis| Span::middle(parts[axis], extents[axis]))
        };
        Placed { seen: middle(seen, photo), filled: middle(filled, picture) }
    }

    /// The photo in the shape of `width`×`height`, ready to be resized to it. Its own size is kept if it is cropped; if it is padded it
    /// has the size asked for. A photo that has the shape already, and any photo that is to be stretched, comes back as it is.
    ///
    /// # Errors
    /// If [`RgbImage::check_size`] refuses the size.
    pub fn apply<'a>(
        self,
        photo: &'a RgbImage,
        width: usize,
        height: usize,
        background: Colour,
    ) -> Result<Cow<'a, RgbImage>, ImageError> {
        RgbImage::check_size(width, height)?;
        if visible(photo.size(), width, height) == photo.size() {
            return Ok(Cow::Borrowed(photo));
        }
        let Placed { seen, filled } = self.placed(photo.size(), width, height);
        match self {
            Fit::Stretch => Ok(Cow::Borrowed(photo)),
            Fit::Crop => Ok(Cow::Owned(cropped(photo, seen))),
            Fit::Pad => Ok(Cow::Owned(padded(photo, [width, height], filled, background)?)),
        }
    }

    /// How much of a picture of `width`×`height` a photo fills: the width and height in the middle of the picture that are no padding.
    pub fn filled(self, photo: [usize; 2], width: usize, height: usize) -> [usize; 2] {
        self.placed(photo, width.max(1), height.max(1)).filled.map(|span| span.len)
    }

    /// How many pixels [`apply`](Self::apply) copies of a photo of this width and height; 0 if the photo comes back as it is.
    pub fn copied_pixels(self, photo: [usize; 2], width: usize, height: usize) -> usize {
        let visible = visible(photo, width.max(1), height.max(1));
        match self {
            _ if visible == photo => 0,
            Fit::Stretch => 0,
            Fit::Crop => visible[0].saturating_mul(visible[1]),
            Fit::Pad => width.saturating_mul(height),
        }
    }

    /// How much of a photo can be seen in a picture of `width`×`height`, from 0 to 1.
    pub fn visible_part(self, photo: &RgbImage, width: usize, height: usize) -> f64 {
        match self {
            Fit::Pad | Fit::Stretch => 1.0,
            Fit::Crop => {
                let [across, down] = visible(photo.size(), width.max(1), height.max(1));
                across as f64 / photo.width as f64 * (down as f64 / photo.height as f64)
            }
        }
    }
}

/// The largest part of a photo that has the shape of `width`×`height`: its width and height.
fn visible([photo_width, photo_height]: [usize; 2], width: usize, height: usize) -> [usize; 2] {
    let across = scaled(photo_height, width, height);
    if across <= photo_width {
        [across, photo_height]
    } else {
        [photo_width, scaled(photo_width, height, width).min(photo_height)]
    }
}

/// `side · numerator / denominator`, rounded, and at least 1.
fn scaled(side: usize, numerator: usize, denominator: usize) -> usize {
    ((side as f64 * numerator as f64 / denominator as f64).round() as usize).max(1)
}

/// A part of a photo.
fn cropped(photo: &RgbImage, [across, down]: [Span; 2]) -> RgbImage {
    let rows = (down.start..down.start + down.len).flat_map(|y| &photo.row(y)[across.start..][..across.len]);
    RgbImage { width: across.len, height: down.len, bytes: rows.flatten().copied().collect() }
}

/// The largest part of a picture of `width`×`height` that has the photo's shape.
fn inner([photo_width, photo_height]: [usize; 2], width: usize, height: usize) -> [usize; 2] {
    let across = scaled(height, photo_width.max(1), photo_height.max(1)).min(width);
    [across, scaled(width, photo_height.max(1), photo_width.max(1)).min(height)]
}

/// A picture of which the whole photo fills a part.
fn padded(
    photo: &RgbImage,
    [width, height]: [usize; 2],
    [across, down]: [Span; 2],
    background: Colour,
) -> Result<RgbImage, ImageError> {
    let inner = photo.resize_lanczos(across.len, down.len)?;
    let mut bytes = background.0.repeat(width * height);
    for y in 0..down.len {
        let start = ((down.start + y) * width + across.start) * CHANNELS;
        bytes[start..][..across.len * CHANNELS].copy_from_slice(inner.row(y).as_flattened());
    }
    RgbImage::new(width, height, bytes)
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fit {
    type Err = UnknownFit;

    fn from_str(text: &str) -> Result<Self, UnknownFit> {
        let named = |fit: &Fit| fit.name() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| UnknownFit(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEN: Colour = Colour([0, 200, 0]);

    /// Every pixel says where it lies.
    fn photo(width: usize, height: usize) -> RgbImage {
        let pixel = |at: usize| [(at % width) as u8, (at / width) as u8, 7];
        RgbImage::new(width, height, (0..width * height).flat_map(pixel).collect()).unwrap()
    }

    #[test]
    fn a_crop_keeps_the_middle_in_the_photos_own_pixels() {
        let wide = photo(10, 4);
        let square = Fit::Crop.apply(&wide, 64, 64, GREEN).unwrap();
        assert_eq!((square.width(), square.height()), (4, 4));
        assert_eq!(square.row(0), [[3, 0, 7], [4, 0, 7], [5, 0, 7], [6, 0, 7]]);
        assert_eq!(square.row(3)[0], [3, 3, 7]);
        let high = photo(4, 9);
        let flat = Fit::Crop.apply(&high, 128, 64, GREEN).unwrap();
        assert_eq!((flat.width(), flat.height()), (4, 2));
        assert_eq!(flat.row(0)[0], [0, 3, 7]);
        // 1600 of 1067 lines fit 16:9, which is 84 of 100 pixels.
        let part = Fit::Crop.visible_part(&photo(160, 107), 1024, 576);
        assert!((part - 90.0 / 107.0).abs() < 1e-9, "{part}");
    }

    #[test]
    fn a_padded_photo_is_whole_and_lies_in_the_middle() {
        let wide = photo(8, 4);
        let square = Fit::Pad.apply(&wide, 8, 8, GREEN).unwrap();
        assert_eq!((square.width(), square.height()), (8, 8));
        assert!((0..2).chain(6..8).all(|y| square.row(y).iter().all(|pixel| *pixel == GREEN.0)));
        for y in 0..4 {
            assert_eq!(square.row(2 + y), wide.row(y));
        }
        let high = photo(2, 8);
        let square = Fit::Pad.apply(&high, 8, 8, GREEN).unwrap();
        assert_eq!(square.row(5)[..3], [GREEN.0; 3]);
        assert_eq!(square.row(5)[3..5], *high.row(5));
        assert_eq!(Fit::Pad.filled([2, 8], 8, 8), [2, 8]);
        assert_eq!(Fit::Pad.filled([8, 4], 8, 8), [8, 4]);
        assert_eq!(Fit::Crop.filled([8, 4], 8, 8), [8, 8]);
        assert_eq!(square.row(5)[5..], [GREEN.0; 3]);
    }

    #[test]
    fn a_photo_of_the_right_shape_is_left_as_it_is() {
        for fit in Fit::ALL {
            let same = photo(32, 18);
            assert!(matches!(fit.apply(&same, 1024, 576, GREEN).unwrap(), Cow::Borrowed(_)), "{fit}");
            assert_eq!(fit.visible_part(&same, 1024, 576), 1.0, "{fit}");
        }
        for (fit, pixels) in [(Fit::Crop, 32 * 18), (Fit::Pad, 1024 * 576), (Fit::Stretch, 0)] {
            assert_eq!(fit.copied_pixels([32, 32], 1024, 576), pixels, "{fit}");
            assert_eq!(fit.copied_pixels([32, 18], 1024, 576), 0, "{fit}");
        }
        let other = photo(32, 32);
        assert!(matches!(Fit::Stretch.apply(&other, 1024, 576, GREEN).unwrap(), Cow::Borrowed(_)));
    }

    #[test]
    fn the_thinnest_photos_have_a_pixel_left() {
        for (width, height) in [(1, 300), (300, 1), (1, 1)] {
            for fit in Fit::ALL {
                let fitted = photo(width, height);
                let fitted = fit.apply(&fitted, 1024, 64, GREEN).unwrap();
                assert!(fitted.width() > 0 && fitted.height() > 0, "{fit} {width}×{height}");
            }
        }
        assert!(Fit::Pad.apply(&photo(2, 1), 0, 64, GREEN).is_err());
    }

    #[test]
    fn names_are_read_and_written() {
        for fit in Fit::ALL {
            assert_eq!(fit.to_string().parse(), Ok(fit));
        }
        let message = "zoom".parse::<Fit>().unwrap_err().to_string();
        assert!(message.contains("zoom") && message.contains("crop, pad or stretch"), "{message}");
    }
}

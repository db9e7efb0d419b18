//! Frames of any size in the size of a model, and back.

use std::borrow::Cow;

use kinora_models::image::{Colour, Fit, ImageError, RgbImage};

/// Where a frame of one size lies in a picture of another.
///
/// | fit | to the model | back |
/// | --- | --- | --- |
/// | crop | the middle of the frame fills the picture | the picture is scaled into the middle; the borders that were cut off stay as they were in the frame |
/// | pad | the whole frame lies in the middle, between bars | the bars are cut off, and the rest is scaled |
/// | stretch | the frame is distorted | the distortion is undone |
///
/// ```
/// use kinora::{RgbImage, photo::{Colour, Fit}, video::fit::Placement};
///
/// let frame = RgbImage::new(64, 36, vec![90; 64 * 36 * 3])?;
/// let placement = Placement::new(Fit::Pad, frame.size(), [32, 32])?;
/// let picture = placement.forward(&frame, Colour::BLACK)?;
/// assert_eq!(picture.size(), [32, 32]);
/// assert_eq!(placement.back(&picture, &frame)?.size(), [64, 36]);
/// # Ok::<(), kinora::models::ImageError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    fit: Fit,
    frame: [usize; 2],
    picture: [usize; 2],
}

impl Placement {
    /// For frames and pictures of these widths and heights.
    ///
    /// # Errors
    /// If [`RgbImage::check_size`] refuses a size.
    pub fn new(fit: Fit, frame: [usize; 2], picture: [usize; 2]) -> Result<Self, ImageError> {
        for [width, height] in [frame, picture] {
            RgbImage::check_size(width, height)?;
        }
        Ok(Self { fit, frame, picture })
    }

    /// The frames' width and height. A frame of another size needs another placement.
    pub fn frame_size(&self) -> [usize; 2] {
        self.frame
    }

    /// A frame in the picture's size.
    ///
    /// # Errors
    /// If the frame has another size.
    pub fn forward(&self, frame: &RgbImage, background: Colour) -> Result<RgbImage, ImageError> {
        check(frame, self.frame)?;
        let [width, height] = self.picture;
        resized(self.fit.apply(frame, width, height, background)?, self.picture)
    }

    /// A picture in the frames' size; `frame` is the one that it was made from.
    ///
    /// # Errors
    /// If one of the two has another size.
    pub fn back(&self, picture: &RgbImage, frame: &RgbImage) -> Result<RgbImage, ImageError> {
        check(picture, self.picture)?;
        check(frame, self.frame)?;
        let [width, height] = self.picture;
        match self.fit {
            Fit::Stretch => resized(Cow::Borrowed(picture), self.frame),
            Fit::Pad => {
                let filled = self.fit.filled(self.frame, width, height);
                resized(Cow::Owned(middle(picture, filled)?), self.frame)
            }
            Fit::Crop => {
                let seen = Fit::Crop.apply(frame, width, height, Colour::BLACK)?.size();
                let seen_of_picture = resized(Cow::Borrowed(picture), seen)?;
                if seen == self.frame { Ok(seen_of_picture) } else { Ok(inside(frame, &seen_of_picture)) }
            }
        }
    }
}

fn check(image: &RgbImage, [width, height]: [usize; 2]) -> Result<(), ImageError> {
    if image.size() == [width, height] {
        return Ok(());
    }
    Err(ImageError::Bytes { width, height, expected: width * height * 3, got: image.bytes().len() })
}

fn resized(image: Cow<'_, RgbImage>, size: [usize; 2]) -> Result<RgbImage, ImageError> {
    if image.size() == size { Ok(image.into_owned()) } else { image.resize_lanczos(size[0], size[1]) }
}

/// The middle of an image.
fn middle(image: &RgbImage, [width, height]: [usize; 2]) -> Result<RgbImage, ImageError> {
    let (left, top) = ((image.width() - width) / 2, (image.height() - height) / 2);
    let rows = (top..top + height).flat_map(|y| &image.row(y)[left..left + width]);
    RgbImage::new(width, height, rows.flatten().copied().collect())
}

/// A frame with its middle replaced.
fn inside(frame: &RgbImage, middle: &RgbImage) -> RgbImage {
    let mut whole = frame.clone();
    let [width, height] = frame.size();
    let (left, top) = ((width - middle.width()) / 2, (height - middle.height()) / 2);
    for y in 0..middle.height() {
        let start = (top + y) * width + left;
        whole.pixels_mut()[start..][..middle.width()].copy_from_slice(middle.row(y));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEN: Colour = Colour([0, 200, 0]);

    /// Every pixel says where it lies.
    fn frame(width: usize, height: usize) -> RgbImage {
        let pixel = |at: usize| [(at % width * 3) as u8, (at / width * 5) as u8, 7];
        RgbImage::new(width, height, (0..width * height).flat_map(pixel).collect()).unwrap()
    }

    fn there_and_back(fit: Fit, frame: &RgbImage, picture: [usize; 2]) -> (RgbImage, RgbImage) {
        let placement = Placement::new(fit, frame.size(), picture).unwrap();
        let there = placement.forward(frame, GREEN).unwrap();
        assert_eq!(there.size(), picture);
        let back = placement.back(&there, frame).unwrap();
        (there, back)
    }

    #[test]
    fn what_needs_no_scaling_comes_back_as_it_was() {
        let wide = frame(48, 16);
        for (fit, picture) in [(Fit::Crop, [16, 16]), (Fit::Pad, [48, 48]), (Fit::Stretch, [48, 16])] {
            let (_, back) = there_and_back(fit, &wide, picture);
            assert!(back == wide, "{fit}");
        }
    }

    #[test]
    fn pads_bars_are_cut_off_and_crops_borders_stay() {
        let wide = frame(48, 16);
        let placement = Placement::new(Fit::Pad, [48, 16], [24, 24]).unwrap();
        let drawn = RgbImage::new(24, 24, [250, 1, 2].repeat(24 * 24)).unwrap();
        // Scaled, but without a trace of a bar.
        let (padded, _) = there_and_back(Fit::Pad, &wide, [24, 24]);
        assert!((0..8).chain(16..24).all(|y| padded.row(y).iter().all(|pixel| *pixel == GREEN.0)));
        assert!(placement.back(&drawn, &wide).unwrap().pixels().iter().all(|pixel| *pixel == [250, 1, 2]));

        let placement = Placement::new(Fit::Crop, [48, 16], [8, 8]).unwrap();
        let drawn = RgbImage::new(8, 8, [250, 1, 2].repeat(64)).unwrap();
        let back = placement.back(&drawn, &wide).unwrap();
        for y in 0..16 {
            assert_eq!(back.row(y)[..16], wide.row(y)[..16]);
            assert!(back.row(y)[16..32].iter().all(|pixel| *pixel == [250, 1, 2]));
            assert_eq!(back.row(y)[32..], wide.row(y)[32..]);
        }
    }

    /// Whatever the rounding of the shapes, a bar never comes back.
    #[test]
    fn no_bar_is_left_at_any_size() {
        for (width, height) in (1..40).flat_map(|width| (1..40).map(move |height| (width, height))) {
            let frame = RgbImage::new(width, height, vec![250; width * height * 3]).unwrap();
            let (_, back) = there_and_back(Fit::Pad, &frame, [13, 29]);
            assert!(back == frame, "{width}×{height}");
        }
    }

    #[test]
    fn every_size_has_a_placement() {
        for size in [[1, 1], [1, 300], [300, 1], [31, 17], [640, 480]] {
            for fit in Fit::ALL {
                let (_, back) = there_and_back(fit, &frame(size[0], size[1]), [64, 40]);
                assert_eq!(back.size(), size, "{fit}");
            }
        }
        assert!(Placement::new(Fit::Crop, [0, 1], [8, 8]).is_err());
        let placement = Placement::new(Fit::Crop, [4, 4], [8, 8]).unwrap();
        assert!(placement.forward(&frame(4, 5), GREEN).is_err());
        assert!(placement.back(&frame(8, 8), &frame(5, 4)).is_err());
    }
}

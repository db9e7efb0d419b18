//! A photo with its transparency.

use std::path::Path;

use kinora_models::image::{Colour, RgbImage};

use super::{PhotoError, decode_named, read};

/// A photo as its file has it, with its transparency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Photo {
    image: RgbImage,
    /// A byte for each pixel: 0 where nothing of it can be seen. `None` if all of it can be.
    alpha: Option<Vec<u8>>,
}

impl Photo {
    /// Reads an image file, as [`open`](super::open) does.
    ///
    /// # Errors
    /// As [`open`](super::open).
    pub fn open(path: impl AsRef<Path>) -> Result<Photo, PhotoError> {
        Photo::open_within(path, u64::MAX)
    }

    /// The same, for a photo that may take at most so much memory while it is opened, as
    /// [`open_within`](super::open_within) does.
    ///
    /// # Errors
    /// As [`open_within`](super::open_within).
    pub fn open_within(path: impl AsRef<Path>, memory: u64) -> Result<Photo, PhotoError> {
        let path = path.as_ref();
        decode_named(&read(path, memory)?, &format!("`{}`", path.display()), memory)
    }

    /// Decodes an image file that is already in memory.
    ///
    /// # Errors
    /// As [`open`](super::open).
    pub fn decode(bytes: &[u8]) -> Result<Photo, PhotoError> {
        decode_named(bytes, "the photo", u64::MAX)
    }

    /// Colours, and an alpha for each of them. Some programs write a channel of zeros that means nothing: an image of which nothing
    /// could be seen counts as opaque.
    pub(super) fn new(image: RgbImage, alpha: Option<Vec<u8>>) -> Photo {
        let seen_through =
            |alpha: &Vec<u8>| alpha.iter().any(|&byte| byte < u8::MAX) && alpha.iter().any(|&byte| byte > 0);
        Photo { image, alpha: alpha.filter(seen_through) }
    }

    /// Whether a background would be seen through it.
    pub fn is_transparent(&self) -> bool {
        self.alpha.is_some()
    }

    /// Its width in pixels.
    pub fn width(&self) -> usize {
        self.image.width()
    }

    /// Its height in pixels.
    pub fn height(&self) -> usize {
        self.image.height()
    }

    /// The photo laid on a background.
    pub fn on(self, background: Colour) -> RgbImage {
        let Photo { mut image, alpha } = self;
        for (pixel, alpha) in image.pixels_mut().iter_mut().zip(alpha.into_iter().flatten()) {
            *pixel = mixed(*pixel, background, alpha);
        }
        image
    }

    /// The colours alone, also those that cannot be seen.
    pub fn without_alpha(self) -> RgbImage {
        self.image
    }
}

/// A colour over a background, rounded to the nearest byte.
fn mixed(pixel: [u8; 3], Colour(background): Colour, alpha: u8) -> [u8; 3] {
    let (over, under) = (u32::from(alpha), u32::from(u8::MAX - alpha));
    let mix = |channel: usize| {
        let sum = u32::from(pixel[channel]) * over + u32::from(background[channel]) * under;
        ((sum + 127) / 255) as u8
    };
    [mix(0), mix(1), mix(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_through_is_opaque() {
        let image = RgbImage::new(2, 1, vec![9; 6]).unwrap();
        let photo = |alpha: [u8; 2]| Photo::new(image.clone(), Some(alpha.to_vec()));
        assert!(photo([255, 254]).is_transparent() && photo([0, 1]).is_transparent());
        assert!(!photo([255, 255]).is_transparent());
        // A channel that means nothing.
        assert!(!photo([0, 0]).is_transparent());
        assert_eq!(photo([0, 0]).on(Colour::WHITE), image);
    }
}

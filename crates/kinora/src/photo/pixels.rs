//! Decoded pixels of any kind as 8-bit RGB, by Pillow's rules.

use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};

use super::Fault;

/// A format's name as people know it.
pub(super) fn format_name(format: ImageFormat) -> &'static str {
    match format {
        ImageFormat::Png => "PNG",
        ImageFormat::Jpeg => "JPEG",
        ImageFormat::WebP => "WebP",
        ImageFormat::Gif => "GIF",
        ImageFormat::Bmp => "BMP",
        ImageFormat::Tiff => "TIFF",
        _ => "image",
    }
}

/// The colours and, if the pixels have any, the alpha of an image: of 16 bits the upper 8 are kept, and gray is repeated.
pub(super) fn rgb_and_alpha(image: DynamicImage) -> Result<(RgbImage, Option<GrayImage>), Fault> {
    let (width, height) = (image.width(), image.height());
    let (colours, alpha) = match image {
        DynamicImage::ImageRgb8(image) => return Ok((image, None)),
        DynamicImage::ImageLuma8(image) => (gray::<1, _>(&image, |value| value), None),
        DynamicImage::ImageLumaA8(image) => {
            (gray::<2, _>(&image, |value| value), Some(last::<2, _>(&image, |value| value)))
        }
        DynamicImage::ImageRgba8(image) => {
            (colour::<4, _>(&image, |value| value), Some(last::<4, _>(&image, |value| value)))
        }
        DynamicImage::ImageLuma16(image) => (gray::<1, _>(&image, high_byte), None),
        DynamicImage::ImageLumaA16(image) => {
            (gray::<2, _>(&image, high_byte), Some(last::<2, _>(&image, high_byte)))
        }
        DynamicImage::ImageRgb16(image) => (colour::<3, _>(&image, high_byte), None),
        DynamicImage::ImageRgba16(image) => {
            (colour::<4, _>(&image, high_byte), Some(last::<4, _>(&image, high_byte)))
        }
        other => return Err(Fault::Unsupported(format!("{:?} pixels", other.color()).into())),
    };
    let too_few = || Fault::Damaged(format!("fewer pixels than its {width}×{height}").into());
    let colours = RgbImage::from_raw(width, height, colours).ok_or_else(too_few)?;
    let alpha = alpha.map(|alpha| GrayImage::from_raw(width, height, alpha).ok_or_else(too_few));
    Ok((colours, alpha.transpose()?))
}

fn high_byte(value: u16) -> u8 {
    (value >> 8) as u8
}

fn gray<const CHANNELS: usize, T: Copy>(samples: &[T], byte: impl Fn(T) -> u8) -> Vec<u8> {
    samples.as_chunks::<CHANNELS>().0.iter().flat_map(|pixel| [byte(pixel[0]); 3]).collect()
}

fn colour<const CHANNELS: usize, T: Copy>(samples: &[T], byte: impl Fn(T) -> u8) -> Vec<u8> {
    samples
        .as_chunks::<CHANNELS>()
        .0
        .iter()
        .flat_map(|pixel| [byte(pixel[0]), byte(pixel[1]), byte(pixel[2])])
        .collect()
}

/// The last channel of every pixel.
fn last<const CHANNELS: usize, T: Copy>(samples: &[T], byte: impl Fn(T) -> u8) -> Vec<u8> {
    samples.as_chunks::<CHANNELS>().0.iter().map(|pixel| byte(pixel[CHANNELS - 1])).collect()
}

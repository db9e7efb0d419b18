//! Decoded pixels of any kind as 8-bit RGB, by Pillow's rules.

use image::{DynamicImage, ImageFormat, RgbImage};

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

/// Alpha is dropped, not blended; of 16 bits the upper 8 are kept; gray is repeated.
pub(super) fn rgb(image: DynamicImage) -> Result<RgbImage, Fault> {
    let (width, height) = (image.width(), image.height());
    let data = match image {
        DynamicImage::ImageRgb8(image) => return Ok(image),
        DynamicImage::ImageLuma8(image) => gray::<1, _>(&image, |value| value),
        DynamicImage::ImageLumaA8(image) => gray::<2, _>(&image, |value| value),
        DynamicImage::ImageRgba8(image) => colour::<4, _>(&image, |value| value),
        DynamicImage::ImageLuma16(image) => gray::<1, _>(&image, high_byte),
        DynamicImage::ImageLumaA16(image) => gray::<2, _>(&image, high_byte),
        DynamicImage::ImageRgb16(image) => colour::<3, _>(&image, high_byte),
        DynamicImage::ImageRgba16(image) => colour::<4, _>(&image, high_byte),
        other => return Err(Fault::Unsupported(format!("{:?} pixels", other.color()).into())),
    };
    RgbImage::from_raw(width, height, data)
        .ok_or_else(|| Fault::Damaged(format!("fewer pixels than its {width}×{height}").into()))
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

//! Photos that people bring: any common image file, as upright RGB pixels.
//!
//! ```no_run
//! let photo = kinora::photo::open("photo.jpg")?;
//! println!("{}×{}", photo.width(), photo.height());
//! # Ok::<(), kinora::photo::PhotoError>(())
//! ```
//!
//! The pixels are those that diffusers' `load_image` (Pillow: EXIF transpose, then `convert("RGB")`) would give, so that
//! a clip starts from the same image in both. Two differences are meant: 16-bit grayscale is scaled to 8 bits, where
//! Pillow clips it to white, and a truncated JPEG is always refused.
//!
//! Pillow drops transparency, and shows whatever colour lies under it. A [`Photo`] keeps it, to be laid on a background:
//!
//! ```no_run
//! use kinora::photo::{Colour, Photo};
//!
//! let logo = Photo::open("logo.png")?.on(Colour::WHITE);
//! # Ok::<(), kinora::photo::PhotoError>(())
//! ```

mod error;
mod first_frame;
mod jpeg;
mod orientation;
mod pixels;
mod transparent;

use std::{
    io::{self, Cursor},
    path::Path,
};

use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use kinora_models::image::RgbImage;
use kinora_outside::Refused;

pub use error::PhotoError;
pub use kinora_models::image::{Colour, Fit, MAX_PIXELS, MAX_SIDE};
pub use transparent::Photo;

/// What a decoder may allocate beside the pixels: profiles and other notes about the photo, which may be compressed, and
/// lines of it.
const MAX_NOTES: u64 = 64 << 20;
/// The most bytes of a pixel: four channels of 16 bits.
const MAX_PIXEL_BYTES: u64 = 8;

/// The most bytes a photo's file may have.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Reads a PNG, JPEG, WebP, GIF (its first frame), BMP or TIFF file. The content decides, not the file's name. Transparency is
/// dropped, as Pillow does; [`Photo::open`] keeps it.
///
/// # Errors
///
/// Says what is wrong with the file and what to do: it is missing, a folder, unreadable, empty, not an image,
/// damaged, of a kind that is not supported, or larger than [`MAX_PIXELS`] or [`MAX_SIDE`].
pub fn open(path: impl AsRef<Path>) -> Result<RgbImage, PhotoError> {
    Photo::open(path).map(Photo::without_alpha)
}

/// As [`open`], but refuses a photo that would take more memory than this while it is opened, before it is decoded: a file of a
/// kilobyte may hold a gigabyte of pixels.
///
/// # Errors
/// As [`open`], and [`PhotoError::Memory`].
pub fn open_within(path: impl AsRef<Path>, memory: u64) -> Result<RgbImage, PhotoError> {
    Photo::open_within(path, memory).map(Photo::without_alpha)
}

/// A picture as the bytes of a PNG file.
///
/// # Errors
/// If it is wider or higher than such a file can say.
pub fn to_png(picture: &RgbImage) -> io::Result<Vec<u8>> {
    crate::video::png::encode(picture)
}

/// Decodes an image file that is already in memory.
///
/// # Errors
/// As [`open`].
pub fn decode(bytes: &[u8]) -> Result<RgbImage, PhotoError> {
    Photo::decode(bytes).map(Photo::without_alpha)
}

/// Decodes `bytes` if that takes at most so much memory; errors call them `name`.
fn decode_named(bytes: &[u8], name: &str, memory: u64) -> Result<Photo, PhotoError> {
    if bytes.is_empty() {
        return Err(PhotoError::Empty { name: name.into() });
    }
    let Some(format) = format(bytes) else {
        return Err(PhotoError::NotAnImage { name: name.into() });
    };
    decode_as(bytes, format, memory).map_err(|fault| fault.named(name, format))
}

/// Whether the first bytes of a file are those of an image that is read.
pub(crate) fn is_image(head: &[u8]) -> bool {
    format(head).is_some()
}

fn format(bytes: &[u8]) -> Option<ImageFormat> {
    image::guess_format(bytes).ok().filter(|format| READ.contains(format))
}

/// The formats of the files that are read.
const READ: [ImageFormat; 6] = [
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::WebP,
    ImageFormat::Gif,
    ImageFormat::Bmp,
    ImageFormat::Tiff,
];

/// An error of a decoder.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What is wrong with the content of a file, before its name is known.
enum Fault {
    /// More pixels than [`MAX_PIXELS`], or a side longer than [`MAX_SIDE`].
    TooLarge { width: u64, height: u64 },
    /// More memory than may be used.
    Memory { need: u64, limit: u64 },
    /// A sound file that uses something we do not read.
    Unsupported(BoxError),
    /// The file breaks its format's rules or ends too early.
    Damaged(BoxError),
}

impl Fault {
    fn named(self, name: &str, format: ImageFormat) -> PhotoError {
        let (name, format) = (name.to_owned(), pixels::format_name(format));
        match self {
            Self::TooLarge { width, height } => PhotoError::TooLarge { name, width, height },
            Self::Memory { need, limit } => PhotoError::Memory { name, need, limit },
            Self::Unsupported(source) => PhotoError::Unsupported { name, format, source },
            Self::Damaged(source) => PhotoError::Damaged { name, format, source },
        }
    }
}

impl From<ImageError> for Fault {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Unsupported(error) => Self::Unsupported(error.into()),
            error => Self::Damaged(error.into()),
        }
    }
}

fn decode_as(bytes: &[u8], format: ImageFormat, memory: u64) -> Result<Photo, Fault> {
    if format == ImageFormat::Gif {
        return first_frame::decode(bytes, memory);
    }
    if format == ImageFormat::Jpeg && !jpeg::is_complete(bytes) {
        return Err(Fault::Damaged("the file ends before the image does".into()));
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    // The decoders' own bounds differ from format to format; the size is checked below, before pixels are allocated. A PNG
    // decoder counts no pixels here, but inflates a profile before the size is known.
    let pixels = if format == ImageFormat::Png { 0 } else { MAX_PIXELS as u64 * MAX_PIXEL_BYTES };
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(pixels + MAX_NOTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into())?;
    check_memory(bytes, decoder.total_bytes(), [width.into(), height.into()], memory)?;
    let orientation = orientation::read(&mut decoder, format)?;
    let (colours, alpha) = pixels::rgb_and_alpha(DynamicImage::from_decoder(decoder)?)?;
    let upright = |mut image: DynamicImage| {
        image.apply_orientation(orientation);
        image
    };
    let image = upright(colours.into());
    let alpha = alpha.map(|alpha| upright(alpha.into()).into_bytes());
    let (width, height) = (image.width() as usize, image.height() as usize);
    let image =
        RgbImage::new(width, height, image.into_bytes()).map_err(|error| Fault::Damaged(error.into()))?;
    Ok(Photo::new(image, alpha))
}

/// Refuses a size before memory is allocated for it.
fn check_size(width: u64, height: u64) -> Result<(), Fault> {
    if width == 0 || height == 0 {
        return Err(Fault::Damaged(format!("its size is {width}×{height}").into()));
    }
    let extent = |side: u64| usize::try_from(side).unwrap_or(usize::MAX);
    match RgbImage::check_size(extent(width), extent(height)) {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::TooLarge { width, height }),
    }
}

/// Refuses a photo that takes more memory than may be used: its file, its pixels as they are decoded, and those that are kept.
fn check_memory(file: &[u8], decoded: u64, [width, height]: [u64; 2], limit: u64) -> Result<(), Fault> {
    // Colours and alpha.
    let kept = width.saturating_mul(height).saturating_mul(4);
    let need = decoded.saturating_add(kept).saturating_add(file.len() as u64);
    if need > limit { Err(Fault::Memory { need, limit }) } else { Ok(()) }
}

/// The bytes of a file or a pipe, with errors in the user's words.
fn read(path: &Path, memory: u64) -> Result<Vec<u8>, PhotoError> {
    let refused = |source: &io::Error| source.get_ref()?.downcast_ref::<Refused>().copied();
    let unreadable = |source: io::Error| match (source.kind(), refused(&source)) {
        (io::ErrorKind::NotFound, _) => PhotoError::Missing { path: path.into() },
        (_, Some(Refused::Kind("folder"))) => PhotoError::Folder { path: path.into() },
        (_, Some(Refused::Kind(kind))) => PhotoError::NotAFile { path: path.into(), kind },
        (_, Some(Refused::TooLong { limit })) if limit == memory => {
            let name = format!("`{}`", path.display());
            PhotoError::Memory { name, need: limit.saturating_add(1), limit }
        }
        (_, Some(Refused::TooLong { limit })) => PhotoError::TooManyBytes { path: path.into(), limit },
        _ => PhotoError::Unreadable { path: path.into(), source },
    };
    kinora_outside::read_stream(path, MAX_FILE_BYTES.min(memory)).map_err(unreadable)
}

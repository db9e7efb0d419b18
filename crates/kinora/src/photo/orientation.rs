//! The orientation of a photo: from EXIF, or from XMP if EXIF is silent, as Pillow does.

use image::{ImageDecoder, ImageFormat, metadata::Orientation};

use super::Fault;

/// The orientation a file asks for.
pub(super) fn read(decoder: &mut impl ImageDecoder, format: ImageFormat) -> Result<Orientation, Fault> {
    // A TIFF's orientation is a tag of the image itself.
    if format == ImageFormat::Tiff {
        return Ok(decoder.orientation()?);
    }
    if let Some(exif) = decoder.exif_metadata()?
        && let Some(orientation) = from_exif(&exif)
    {
        return Ok(orientation);
    }
    let xmp = decoder.xmp_metadata()?.unwrap_or_default();
    Ok(from_xmp(&xmp).unwrap_or(Orientation::NoTransforms))
}

fn from_exif(mut exif: &[u8]) -> Option<Orientation> {
    // Some writers put JPEG's segment header into PNG and WebP as well.
    while let Some(rest) = exif.strip_prefix(b"Exif\0\0") {
        exif = rest;
    }
    Orientation::from_exif_chunk(exif)
}

/// The digit in `tiff:Orientation="6"` or `<tiff:Orientation>6<`.
fn from_xmp(xmp: &[u8]) -> Option<Orientation> {
    const KEY: &[u8] = b"tiff:Orientation";
    let digit =
        xmp.windows(KEY.len()).enumerate().filter(|(_, window)| *window == KEY).find_map(|(at, _)| {
            let value = &xmp[at + KEY.len()..];
            let digit = value.strip_prefix(b"=\"").or_else(|| value.strip_prefix(b">"))?.first()?;
            digit.checked_sub(b'0').filter(|digit| *digit <= 9)
        })?;
    Orientation::from_exif(digit)
}

//! Photos.

use std::io::Cursor;

use image::ImageReader;
use kinora::photo;

/// The most pixels of an image that is decoded here. Larger ones are legal, and slow.
const PIXELS: u64 = 1 << 20;

/// Any bytes as a photo.
pub fn decode(bytes: &[u8]) {
    if pixels(bytes).is_none_or(|pixels| pixels <= PIXELS) {
        let _ = photo::decode(bytes);
    }
}

/// How many pixels a file says it has, as far as that is known without decoding it.
fn pixels(bytes: &[u8]) -> Option<u64> {
    if let (Some(b"GIF8"), Some(&[a, b, c, d])) = (bytes.get(..4), bytes.get(6..10)) {
        return Some(u64::from(u16::from_le_bytes([a, b])) * u64::from(u16::from_le_bytes([c, d])));
    }
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().ok()?;
    let (width, height) = reader.into_dimensions().ok()?;
    Some(u64::from(width) * u64::from(height))
}

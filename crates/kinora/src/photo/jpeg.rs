//! Whether a JPEG file is whole.

/// The code, the byte after `0xFF`, of the marker that ends an image.
const END_OF_IMAGE: u8 = 0xD9;

/// Walks the segments and the compressed data to the end-of-image marker.
///
/// The decoder fills what a truncated file lacks with gray and reports nothing. Searching for the marker's two bytes would
/// not do: an EXIF thumbnail is a JPEG with a marker of its own.
pub(super) fn is_complete(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(2..).unwrap_or_default();
    while let Some(marker) = next_marker(&mut rest) {
        match marker {
            END_OF_IMAGE => return true,
            // Markers without a segment: restarts inside a scan, and TEM.
            0xD0..=0xD7 | 0x01 => {}
            _ => {
                let Some(length) = rest.first_chunk::<2>().map(|length| u16::from_be_bytes(*length)) else {
                    return false;
                };
                // What follows the header of a scan is compressed data, which the search for a marker skips.
                let Some(next) = rest.get(usize::from(length)..) else { return false };
                rest = next;
            }
        }
    }
    false
}

/// The next marker, and `rest` moved behind it. Compressed data writes `0xFF` as `0xFF 0x00`; `0xFF` also pads.
fn next_marker(rest: &mut &[u8]) -> Option<u8> {
    loop {
        let at = rest.iter().position(|byte| *byte == 0xFF)?;
        let code = *rest.get(at + 1)?;
        match code {
            0xFF => *rest = &rest[at + 1..],
            0x00 => *rest = &rest[at + 2..],
            _ => {
                *rest = &rest[at + 2..];
                return Some(code);
            }
        }
    }
}

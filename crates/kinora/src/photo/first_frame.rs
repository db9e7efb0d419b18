//! The first frame of a GIF, on its screen.

use gif::{ColorOutput, DecodeOptions, DecodingError};

use kinora_models::image::RgbImage;

use super::{Fault, Photo, check_memory, check_size};

impl From<DecodingError> for Fault {
    fn from(error: DecodingError) -> Self {
        Self::Damaged(error.into())
    }
}

/// Transparent pixels keep their palette's colour, and have an alpha of 0. The screen around a smaller frame has the transparent colour, or
/// colour 0, and a frame that reaches beyond the screen enlarges it: Pillow's rules.
pub(super) fn decode(bytes: &[u8], memory: u64) -> Result<Photo, Fault> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let mut decoder = options.read_info(bytes)?;
    let frame = decoder.next_frame_info()?.ok_or_else(|| Fault::Damaged("it has no frame".into()))?;
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (frame_width, frame_height) = (usize::from(frame.width), usize::from(frame.height));
    let transparent = frame.transparent;
    let background = transparent.unwrap_or(0);
    let width = usize::from(decoder.width()).max(left + frame_width);
    let height = usize::from(decoder.height()).max(top + frame_height);
    check_size(width as u64, height as u64)?;
    // The indices of the frame, and those of the screen.
    let indices = (frame_width * frame_height + width * height) as u64;
    check_memory(bytes, indices, [width as u64, height as u64], memory)?;

    // Without any palette an index is a gray level.
    let palette = decoder.palette().map(<[u8]>::to_vec).unwrap_or_default();
    let colour = |index: u8| match palette.as_chunks::<3>().0.get(usize::from(index)) {
        Some(colour) => *colour,
        None if palette.is_empty() => [index; 3],
        None => [0; 3],
    };
    let mut indices = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut indices)?;
    let mut screen = vec![background; width * height];
    if frame_width > 0 {
        for (y, row) in indices.chunks_exact(frame_width).enumerate() {
            screen[(top + y) * width + left..][..frame_width].copy_from_slice(row);
        }
    }
    let colours = screen.iter().flat_map(|&index| colour(index)).collect();
    let alpha = transparent.map(|transparent| {
        screen.iter().map(|&index| if index == transparent { 0 } else { u8::MAX }).collect()
    });
    let image = RgbImage::new(width, height, colours).map_err(|error| Fault::Damaged(error.into()))?;
    Ok(Photo::new(image, alpha))
}

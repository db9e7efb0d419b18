//! The first frame of a GIF, on its screen.

use gif::{ColorOutput, DecodeOptions, DecodingError};

use kinora_models::image::RgbImage;

use super::{Fault, check_memory, check_size};

impl From<DecodingError> for Fault {
    fn from(error: DecodingError) -> Self {
        Self::Damaged(error.into())
    }
}

/// Transparent pixels keep their palette's colour. The screen around a smaller frame has the transparent colour, or
/// colour 0, and a frame that reaches beyond the screen enlarges it: Pillow's rules.
pub(super) fn decode(bytes: &[u8], memory: u64) -> Result<RgbImage, Fault> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let mut decoder = options.read_info(bytes)?;
    let frame = decoder.next_frame_info()?.ok_or_else(|| Fault::Damaged("it has no frame".into()))?;
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (frame_width, frame_height) = (usize::from(frame.width), usize::from(frame.height));
    let background = frame.transparent.unwrap_or(0);
    let width = usize::from(decoder.width()).max(left + frame_width);
    let height = usize::from(decoder.height()).max(top + frame_height);
    check_size(width as u64, height as u64)?;
    check_memory(bytes, (frame_width * frame_height) as u64, [width as u64, height as u64], memory)?;

    // Without any palette an index is a gray level.
    let palette = decoder.palette().map(<[u8]>::to_vec).unwrap_or_default();
    let colour = |index: u8| match palette.as_chunks::<3>().0.get(usize::from(index)) {
        Some(colour) => *colour,
        None if palette.is_empty() => [index; 3],
        None => [0; 3],
    };
    let mut indices = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut indices)?;
    let mut data = colour(background).repeat(width * height);
    if frame_width > 0 {
        for (y, row) in indices.chunks_exact(frame_width).enumerate() {
            let start = ((top + y) * width + left) * 3;
            for (pixel, index) in data[start..][..frame_width * 3].as_chunks_mut::<3>().0.iter_mut().zip(row)
            {
                *pixel = colour(*index);
            }
        }
    }
    RgbImage::new(width, height, data).map_err(|error| Fault::Damaged(error.into()))
}

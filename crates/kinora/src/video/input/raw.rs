//! Raw RGB: three bytes for every pixel, frame after frame, and nothing else.

use kinora_models::image::RgbImage;

use super::{
    Decode, Frame, InputOptions, Opened, Timing, VideoInfo,
    error::{Fault, zeroed},
    stream::Stream,
};
use crate::video::FrameRate;

pub(super) struct Raw {
    stream: Stream,
    size: [usize; 2],
    bytes: usize,
    rate: FrameRate,
    frames: u64,
}

pub(super) fn open(stream: Stream, size: [usize; 2], options: &InputOptions) -> Opened<Raw> {
    let bytes = RgbImage::check_size(size[0], size[1]).map_err(|_| Fault::Size(size))?;
    let rate = options.rate();
    let info = VideoInfo::new("raw RGB", size, Timing::Constant(rate));
    Ok((info, Raw { stream, size, bytes, rate, frames: 0 }))
}

impl Decode for Raw {
    fn decode(&mut self) -> Result<Option<Frame>, Fault> {
        let mut pixels = zeroed(self.bytes)?;
        if !self.stream.fill(&mut pixels)? {
            return Ok(None);
        }
        let time = self.rate.time_of(self.frames);
        self.frames += 1;
        Ok(Some(Frame { image: RgbImage::new(self.size[0], self.size[1], pixels)?, time }))
    }
}

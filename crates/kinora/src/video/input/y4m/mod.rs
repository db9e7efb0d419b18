//! YUV4MPEG2: a line of text, then every frame's planes as they are.

mod header;

use kinora_models::image::RgbImage;

use super::{
    Decode, Frame, InputOptions, Opened, Timing, VideoInfo,
    error::{Fault, zeroed},
    stream::Stream,
};
use crate::video::{
    FrameRate,
    ycbcr::{BT601, Chroma, Colours, Picture, Place, Plane},
};
use header::{Header, Sampling};

/// The most bytes of a line of text.
const MAX_LINE: u64 = 4096;

pub(super) struct Y4m {
    stream: Stream,
    header: Header,
    rate: FrameRate,
    /// A frame's planes, one after another.
    planes: Vec<u8>,
    frames: u64,
}

pub(super) fn open(mut stream: Stream, options: &InputOptions) -> Opened<Y4m> {
    let line = stream.line(MAX_LINE)?.ok_or(Fault::Truncated)?;
    let header = Header::parse(&line)?;
    let timing = header.rate.map_or(Timing::Unknown, Timing::Constant);
    let mut info = VideoInfo::new("Y4M", header.size, timing);
    info.notes.clone_from(&header.notes);
    let planes = zeroed(header.frame_bytes()?)?;
    let rate = header.rate.unwrap_or_else(|| options.rate());
    Ok((info, Y4m { stream, header, rate, planes, frames: 0 }))
}

impl Decode for Y4m {
    fn decode(&mut self) -> Result<Option<Frame>, Fault> {
        let Some(line) = self.stream.line(MAX_LINE)? else { return Ok(None) };
        // What follows the word are parameters of this frame: how it is interlaced, and remarks.
        if line != b"FRAME" && !line.starts_with(b"FRAME ") {
            return Err(Fault::damaged("a frame does not begin with the word FRAME"));
        }
        if !self.stream.fill(&mut self.planes)? {
            return Err(Fault::Truncated);
        }
        let time = self.rate.time_of(self.frames);
        self.frames += 1;
        Ok(Some(Frame { image: self.image()?, time }))
    }
}

impl Y4m {
    fn image(&self) -> Result<RgbImage, Fault> {
        let Header { size: [width, height], sampling, full_range, .. } = self.header;
        let (luma, rest) = self.planes.split_at(width * height);
        let chroma = match sampling {
            Sampling::Mono => None,
            Sampling::Colour { across, down } => {
                let stride = across.samples(width);
                let (blue, red) = rest.split_at(stride * down.samples(height));
                let planes = [blue, red].map(|bytes| Plane { bytes, stride });
                Some(Chroma { planes, across, down })
            }
        };
        let picture = Picture::new([width, height], Plane { bytes: luma, stride: width }, chroma)
            .ok_or_else(|| Fault::damaged("its planes are too short"))?;
        let mut pixels = zeroed(width * height * 3)?;
        // The format has no field for the matrix; this one is what ffmpeg and players assume.
        picture.write_rgb(Colours { matrix: BT601, full_range }, &mut pixels);
        Ok(RgbImage::new(width, height, pixels)?)
    }
}

impl Header {
    /// How many bytes a frame has. The size has been checked, so that nothing overflows.
    fn frame_bytes(&self) -> Result<usize, Fault> {
        let [width, height] = self.size;
        let chroma = match self.sampling {
            Sampling::Mono => 0,
            Sampling::Colour { across, down } => 2 * across.samples(width) * down.samples(height),
        };
        Ok(width * height + chroma)
    }
}

/// The places of chroma that the names of 4:2:0 stand for, as in ffmpeg.
const BETWEEN: Sampling = Sampling::Colour { across: Place::Between, down: Place::Between };
const LEFT: Sampling = Sampling::Colour { across: Place::First, down: Place::Between };
const TOP_LEFT: Sampling = Sampling::Colour { across: Place::First, down: Place::First };
const HALF: Sampling = Sampling::Colour { across: Place::First, down: Place::Every };
const FULL: Sampling = Sampling::Colour { across: Place::Every, down: Place::Every };

//! Animated GIF: frames that change parts of a screen.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
    time::Duration,
};

use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, DisposalMethod};
use kinora_models::image::{Colour, MAX_PIXELS, RgbImage};

use super::{
    Decode, Frame, InputOptions, Opened, Timing, VideoInfo,
    error::{Fault, zeroed},
    stream::Stream,
};
use crate::video::FrameRate;

/// What a delay of less than two hundredths of a second means to browsers and ffmpeg, in hundredths.
const UNSAID_DELAY: u64 = 10;

pub(super) struct Gif<R: Read> {
    decoder: Decoder<R>,
    size: [usize; 2],
    background: Colour,
    /// Three bytes for every pixel of the screen.
    screen: Vec<u8>,
    /// What the next frame finds where this one was.
    disposal: Option<(Area, Disposal)>,
    /// When the next frame is shown, in hundredths of a second.
    hundredths: u64,
}

enum Disposal {
    Background,
    /// The screen before the frame.
    Screen(Vec<u8>),
}

/// A part of the screen: its left, top, width and height.
#[derive(Clone, Copy)]
struct Area {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
}

/// Opens an animation whose frames come one after another.
pub(super) fn open(stream: Stream, options: &InputOptions) -> Opened<Gif<Stream>> {
    let decoder = decoder(stream, false)?;
    let size = [decoder.width().into(), decoder.height().into()];
    RgbImage::check_size(size[0], size[1]).map_err(|_| Fault::Size(size))?;
    let Colour(background) = options.background;
    let screen = zeroed(size[0] * size[1] * 3)?;
    let info = VideoInfo::new("GIF", size, Timing::Unknown);
    let mut gif =
        Gif { decoder, size, background: options.background, screen, disposal: None, hundredths: 0 };
    gif.screen.as_chunks_mut::<3>().0.fill(background);
    Ok((info, gif))
}

/// Opens a file, which is looked through for its delays first.
pub(super) fn open_file(path: &Path, options: &InputOptions) -> Opened<Gif<Stream>> {
    let open = || Ok::<_, Fault>(kinora_outside::open(path)?);
    let (mut info, gif) = self::open(Stream::new(Box::new(open()?)), options)?;
    survey(BufReader::new(open()?), &mut info)?;
    Ok((info, gif))
}

/// Counts the frames and their delays. What is wrong with them is said when they are read.
fn survey(file: BufReader<File>, info: &mut VideoInfo) -> Result<(), Fault> {
    let mut decoder = decoder(file, true)?;
    let (mut frames, mut hundredths, mut first, mut constant) = (0, 0, None, true);
    while let Ok(Some(frame)) = decoder.next_frame_info() {
        let delay = delay(frame.delay);
        constant &= *first.get_or_insert(delay) == delay;
        info.has_alpha |= frames == 0 && frame.transparent.is_some();
        frames += 1;
        hundredths += delay;
    }
    info.frames = Some(frames);
    if let Ok(mean) = FrameRate::from_fraction(frames * 100, hundredths) {
        info.timing = if constant { Timing::Constant(mean) } else { Timing::Variable { mean } };
    }
    Ok(())
}

fn decoder<R: Read>(reader: R, skip: bool) -> Result<Decoder<R>, Fault> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.skip_frame_decoding(skip);
    Ok(options.read_info(reader)?)
}

fn delay(hundredths: u16) -> u64 {
    if hundredths < 2 { UNSAID_DELAY } else { hundredths.into() }
}

impl<R: Read + Send> Decode for Gif<R> {
    fn decode(&mut self) -> Result<Option<Frame>, Fault> {
        let Some(frame) = self.decoder.next_frame_info()? else { return Ok(None) };
        let area = Area {
            left: frame.left.into(),
            top: frame.top.into(),
            width: frame.width.into(),
            height: frame.height.into(),
        };
        let (transparent, dispose, shown) = (frame.transparent, frame.dispose, delay(frame.delay));
        if area.width * area.height > MAX_PIXELS {
            return Err(Fault::Size([area.width, area.height]));
        }
        let mut indices = zeroed(self.decoder.buffer_size())?;
        self.decoder.read_into_buffer(&mut indices)?;
        match self.disposal.take() {
            Some((area, Disposal::Background)) => self.clear(area),
            Some((_, Disposal::Screen(before))) => self.screen = before,
            None => {}
        }
        self.disposal = match dispose {
            DisposalMethod::Any | DisposalMethod::Keep => None,
            DisposalMethod::Background => Some((area, Disposal::Background)),
            DisposalMethod::Previous => Some((area, Disposal::Screen(copied(&self.screen)?))),
        };
        self.draw(area, &indices, transparent);
        let time = Duration::from_millis(self.hundredths * 10);
        self.hundredths = self.hundredths.saturating_add(shown);
        let image = RgbImage::new(self.size[0], self.size[1], copied(&self.screen)?)?;
        Ok(Some(Frame { image, time }))
    }
}

impl<R: Read> Gif<R> {
    /// The pixels of the screen that lie in an area: row by row, with the number of the row within the area.
    fn rows(&mut self, area: Area) -> impl Iterator<Item = &mut [[u8; 3]]> {
        let [width, _] = self.size;
        let columns = area.left.min(width)..area.left.saturating_add(area.width).min(width);
        let rows = self.screen.as_chunks_mut::<3>().0.chunks_exact_mut(width);
        rows.skip(area.top).take(area.height).map(move |row| &mut row[columns.clone()])
    }

    fn clear(&mut self, area: Area) {
        let Colour(background) = self.background;
        self.rows(area).for_each(|row| row.fill(background));
    }

    /// Draws what is not transparent. What lies beyond the screen is not seen.
    fn draw(&mut self, area: Area, indices: &[u8], transparent: Option<u8>) {
        // Without any palette an index is a gray level.
        let palette = self.decoder.palette().map(<[u8]>::to_vec).unwrap_or_default();
        let colour = |index: u8| match palette.as_chunks::<3>().0.get(usize::from(index)) {
            Some(colour) => *colour,
            None if palette.is_empty() => [index; 3],
            None => [0; 3],
        };
        let lines = indices.chunks_exact(area.width.max(1));
        for (row, line) in self.rows(area).zip(lines) {
            for (pixel, index) in row.iter_mut().zip(line) {
                if Some(*index) != transparent {
                    *pixel = colour(*index);
                }
            }
        }
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Fault::Memory(bytes.len()))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl From<DecodingError> for Fault {
    fn from(error: DecodingError) -> Self {
        match error {
            DecodingError::Io(error) => error.into(),
            DecodingError::UnexpectedEof => Self::Truncated,
            other => Self::damaged(other.to_string()),
        }
    }
}

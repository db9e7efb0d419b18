//! Animated GIF: for every frame the 256 colours that suit it best, dithered.

use std::{collections::HashMap, io, io::Write, time::Duration};

use color_quant::NeuQuant;
use gif::{Encoder, EncodingError, Repeat};

use super::{FrameRate, RgbImage, VideoError, error::EncodeError};

/// The palette is learned from one pixel in ten: all of them look no better and take much longer. Of a small frame it is learned from so many at the
/// least, or white would come out as cream.
const SPARSEST: usize = 10;
const LEARNED_FROM: usize = 5_000;

/// How far dithering moves a colour at most, of 255. About half the distance between neighbours in a palette that was
/// learned from a photo; more shows as a grid, less leaves bands in skies. A palette that is nearer to its frame needs less: as much as its colours are off.
const DITHERING: i32 = 6;

/// An 8×8 Bayer matrix: thresholds that stay where they are, so that still parts of a video do not flicker as they do with
/// error diffusion.
const THRESHOLDS: [[i32; 8]; 8] = [
    [0, 32, 8, 40, 2, 34, 10, 42],
    [48, 16, 56, 24, 50, 18, 58, 26],
    [12, 44, 4, 36, 14, 46, 6, 38],
    [60, 28, 52, 20, 62, 30, 54, 22],
    [3, 35, 11, 43, 1, 33, 9, 41],
    [51, 19, 59, 27, 49, 17, 57, 25],
    [15, 47, 7, 39, 13, 45, 5, 37],
    [63, 31, 55, 23, 61, 29, 53, 21],
];

/// The shortest delay that players keep, in hundredths of a second. They take less for a tenth of a second.
const SHORTEST: u64 = 2;

/// Writes frames as they come, each when it is known how long it is shown.
pub(super) struct GifEncoder<W: Write> {
    stage: Stage<W>,
    /// The last frame, and when it is shown, in hundredths of a second.
    waiting: Option<(gif::Frame<'static>, u64)>,
    left_out: usize,
}

enum Stage<W: Write> {
    /// The size is known with the first frame.
    Waiting(W),
    Writing(Encoder<W>),
    /// A write failed.
    Broken,
}

impl<W: Write> GifEncoder<W> {
    pub(super) fn new(sink: W) -> Self {
        Self { stage: Stage::Waiting(sink), waiting: None, left_out: 0 }
    }

    /// How many frames came so soon after the one before that no player would show them.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    pub(super) fn write_frame(&mut self, frame: &RgbImage, time: Duration) -> Result<(), EncodeError> {
        let (width, height) = (frame.width(), frame.height());
        let (Ok(short_width), Ok(short_height)) = (u16::try_from(width), u16::try_from(height)) else {
            let bounds = "at most 65535 pixels wide and high";
            return Err(EncodeError::UnsupportedSize { format: "GIF", width, height, bounds });
        };
        let start = hundredths(time);
        if self.waiting.as_ref().is_some_and(|(_, last)| start < last + SHORTEST) {
            self.left_out += 1;
            return Ok(());
        }
        self.write_waiting(start)?;
        let (palette, indices) = quantise(frame);
        let frame = gif::Frame {
            width: short_width,
            height: short_height,
            palette: Some(palette),
            buffer: indices.into(),
            ..gif::Frame::default()
        };
        self.waiting = Some((frame, start));
        Ok(())
    }

    /// Writes the frame that is shown until `end`.
    fn write_waiting(&mut self, end: u64) -> Result<(), EncodeError> {
        let Some((mut frame, start)) = self.waiting.take() else { return Ok(()) };
        let mut encoder = match std::mem::replace(&mut self.stage, Stage::Broken) {
            Stage::Waiting(sink) => {
                let mut encoder = Encoder::new(sink, frame.width, frame.height, &[]).map_err(failure)?;
                encoder.set_repeat(Repeat::Infinite).map_err(failure)?;
                encoder
            }
            Stage::Writing(encoder) => encoder,
            Stage::Broken => return Err(io::Error::other("an earlier frame failed").into()),
        };
        let mut shown = end.saturating_sub(start).max(SHORTEST);
        // A delay has 16 bits: a frame that is shown longer is there again.
        loop {
            let longest = u64::from(u16::MAX) - SHORTEST;
            frame.delay = if shown > longest + SHORTEST { longest as u16 } else { shown as u16 };
            encoder.write_frame(&frame).map_err(failure)?;
            shown -= u64::from(frame.delay);
            if shown == 0 {
                break;
            }
        }
        self.stage = Stage::Writing(encoder);
        Ok(())
    }

    /// The last frame is shown until `end`.
    pub(super) fn finish(mut self, end: Duration) -> Result<W, EncodeError> {
        self.write_waiting(hundredths(end))?;
        match self.stage {
            Stage::Waiting(sink) => Ok(sink),
            Stage::Writing(encoder) => encoder.into_inner().map_err(failure),
            Stage::Broken => Err(io::Error::other("an earlier frame failed").into()),
        }
    }
}

fn failure(error: EncodingError) -> EncodeError {
    match error {
        EncodingError::Io(error) => error.into(),
        other => io::Error::other(other).into(),
    }
}

/// Whether a GIF can keep a rate.
pub(super) fn check_rate(rate: FrameRate) -> Result<(), VideoError> {
    let asked = rate.as_f64();
    if asked > 50.0 {
        return Err(VideoError::GifFrameRate { asked });
    }
    if 100.0 / asked > f64::from(u16::MAX) {
        return Err(VideoError::GifTooSlow { asked });
    }
    Ok(())
}

/// A time in hundredths of a second, rounded to the nearest, so that delays add up to it. What lies half-way but for the rounding
/// of nanoseconds counts as half-way.
fn hundredths(time: Duration) -> u64 {
    u64::try_from((time.as_micros() + 5_001) / 10_000).unwrap_or(u64::MAX)
}

/// A palette, and the index of every pixel's colour in it.
fn quantise(frame: &RgbImage) -> (Vec<u8>, Vec<u8>) {
    exact(frame).unwrap_or_else(|| learned(frame))
}

/// A frame of at most 256 colours needs no approximation.
fn exact(frame: &RgbImage) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut known = HashMap::new();
    let mut palette = Vec::new();
    let mut indices = Vec::with_capacity(frame.width() * frame.height());
    for pixel in frame.pixels() {
        let next = known.len();
        let index = *known.entry(*pixel).or_insert(next);
        if index == next {
            palette.extend_from_slice(pixel);
        }
        indices.push(u8::try_from(index).ok()?);
    }
    Some((palette, indices))
}

fn learned(frame: &RgbImage) -> (Vec<u8>, Vec<u8>) {
    let opaque = |[red, green, blue]: [u8; 3]| [red, green, blue, 255];
    let pixels: Vec<u8> = frame.pixels().iter().flat_map(|pixel| opaque(*pixel)).collect();
    let sampling = (pixels.len() / 4 / LEARNED_FROM).clamp(1, SPARSEST);
    let network = NeuQuant::new(sampling as i32, 256, &pixels);
    // A search takes 0.4 µs, and neighbours in a photo ask for the same colours: one answer serves a cell of 4×4×4.
    let mut known: Vec<Option<u8>> = vec![None; 1 << 18];
    let mut nearest = |colour: [u8; 3]| {
        let cell = colour.iter().fold(0, |cell, value| cell << 6 | usize::from(value >> 2));
        *known[cell]
            .get_or_insert_with(|| network.index_of(&opaque(colour.map(|value| value & !3 | 2))) as u8)
    };
    let palette = network.color_map_rgb();
    let colours = palette.as_chunks::<3>().0;
    let mut off = |pixel: &[u8; 3]| {
        let own = colours[usize::from(nearest(*pixel))];
        pixel.iter().zip(own).map(|(a, b)| u64::from(a.abs_diff(b))).sum::<u64>()
    };
    let shown = frame.pixels();
    let channels = 3 * shown.len() as u64;
    let mean = (shown.iter().map(&mut off).sum::<u64>() + channels / 2) / channels;
    let dithering = (mean as i32).min(DITHERING);
    let mut indices = Vec::with_capacity(frame.width() * frame.height());
    for y in 0..frame.height() {
        for (x, pixel) in frame.row(y).iter().enumerate() {
            let shift = (THRESHOLDS[y % 8][x % 8] * 2 - 63) * dithering / 63;
            indices.push(nearest(pixel.map(|value| (i32::from(value) + shift).clamp(0, 255) as u8)));
        }
    }
    (palette, indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The delays of frames that are shown at these times.
    fn delays(times: impl Iterator<Item = Duration>, end: Duration) -> Vec<u16> {
        let frame = RgbImage::new(1, 1, vec![7; 3]).unwrap();
        let mut gif = GifEncoder::new(Vec::new());
        times.for_each(|time| gif.write_frame(&frame, time).unwrap());
        let bytes = gif.finish(end).unwrap();
        let mut decoder = gif::DecodeOptions::new().read_info(&bytes[..]).unwrap();
        let mut delays = Vec::new();
        while let Some(frame) = decoder.read_next_frame().unwrap() {
            delays.push(frame.delay);
        }
        delays
    }

    #[test]
    fn delays_add_up_to_the_rate() {
        for (rate, frames, hundredths) in
            [(7.0, 14, 200), (24.0, 24, 100), (30.0, 300, 1000), (50.0, 50, 100)]
        {
            let rate = FrameRate::new(rate).unwrap();
            let all = delays((0..frames).map(|frame| rate.time_of(frame)), rate.time_of(frames));
            assert_eq!(
                all.iter().map(|delay| u32::from(*delay)).sum::<u32>(),
                hundredths,
                "{rate:?}: {all:?}"
            );
            assert!(all.len() as u64 == frames && all.iter().all(|delay| *delay >= 2), "{rate:?}: {all:?}");
        }
    }

    #[test]
    fn frames_keep_their_own_times() {
        let millis = |all: &[u64]| all.iter().map(|at| Duration::from_millis(*at)).collect::<Vec<_>>();
        let shown = |all: &[u64], end: u64| delays(millis(all).into_iter(), Duration::from_millis(end));
        assert_eq!(shown(&[0, 50, 250], 300), [5, 20, 5]);
        // Too soon for any player: left out.
        assert_eq!(shown(&[0, 10, 20, 30, 40], 41), [2, 2, 2]);
        // Longer than a delay can be.
        assert_eq!(shown(&[0], 1_000_000), [65_533, 34_467]);
        assert_eq!(shown(&[0], 655_350), [65_535]);
        assert_eq!(shown(&[0], 655_360), [65_533, 3]);
    }

    /// A picture of smooth colours, with two small white eyes.
    fn small() -> RgbImage {
        let inside =
            |x: usize, y: usize| [40, 80].iter().any(|at| x.abs_diff(*at).pow(2) + y.abs_diff(50).pow(2) < 8);
        let pixels = (0..128 * 128).map(|at| (at % 128, at / 128));
        let colour = |(x, y): (usize, usize)| {
            if inside(x, y) { [255; 3] } else { [x as u8, y as u8, (255 - x) as u8] }
        };
        RgbImage::new(128, 128, pixels.flat_map(colour).collect()).unwrap()
    }

    #[test]
    fn a_small_frame_is_near_its_palette() {
        let frame = small();
        let (palette, indices) = quantise(&frame);
        let shown = palette.as_chunks::<3>().0[usize::from(indices[50 * 128 + 40])];
        assert!(shown.iter().all(|value| *value >= 240), "{shown:?}");
        let pairs = frame.pixels().iter().zip(&indices);
        let off = |(own, index): (&[u8; 3], &u8)| {
            let other = palette.as_chunks::<3>().0[usize::from(*index)];
            own.iter().zip(other).map(|(a, b)| f64::from(a.abs_diff(b))).sum::<f64>()
        };
        let mean = pairs.map(off).sum::<f64>() / frame.bytes().len() as f64;
        // 3.0; learned from one pixel in ten it would be 3.8, and fully dithered 3.2.
        assert!(mean < 3.1, "{mean} off on average");
    }
}

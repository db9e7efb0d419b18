//! Animated GIF: for every frame the 256 colours that suit it best, dithered.

use std::{collections::HashMap, io, io::Write};

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

/// Writes frames as they come.
pub(super) struct GifEncoder<W: Write> {
    stage: Stage<W>,
    delays: Delays,
}

enum Stage<W: Write> {
    /// The size is known with the first frame.
    Waiting(W),
    Writing(Encoder<W>),
    /// A write failed.
    Broken,
}

impl<W: Write> GifEncoder<W> {
    pub(super) fn new(sink: W, delays: Delays) -> Self {
        Self { stage: Stage::Waiting(sink), delays }
    }

    pub(super) fn write_frame(&mut self, frame: &RgbImage) -> Result<(), EncodeError> {
        let (width, height) = (frame.width(), frame.height());
        let (Ok(short_width), Ok(short_height)) = (u16::try_from(width), u16::try_from(height)) else {
            let bounds = "at most 65535 pixels wide and high";
            return Err(EncodeError::UnsupportedSize { format: "GIF", width, height, bounds });
        };
        let mut encoder = match std::mem::replace(&mut self.stage, Stage::Broken) {
            Stage::Waiting(sink) => {
                let mut encoder = Encoder::new(sink, short_width, short_height, &[]).map_err(failure)?;
                encoder.set_repeat(Repeat::Infinite).map_err(failure)?;
                encoder
            }
            Stage::Writing(encoder) => encoder,
            Stage::Broken => return Err(io::Error::other("an earlier frame failed").into()),
        };
        let (palette, indices) = quantise(frame);
        let frame = gif::Frame {
            width: short_width,
            height: short_height,
            delay: self.delays.next_delay(),
            palette: Some(palette),
            buffer: indices.into(),
            ..gif::Frame::default()
        };
        encoder.write_frame(&frame).map_err(failure)?;
        self.stage = Stage::Writing(encoder);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<W, EncodeError> {
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

/// Delays in hundredths of a second that add up to the rate: 24 frames per second are 4, 4, 4, 5, 4, 4 …
pub(super) struct Delays {
    rate: FrameRate,
    frames: u64,
}

impl Delays {
    pub(super) fn new(rate: FrameRate) -> Result<Self, VideoError> {
        let asked = rate.as_f64();
        if asked > 50.0 {
            return Err(VideoError::GifFrameRate { asked });
        }
        if 100.0 / asked > f64::from(u16::MAX) {
            return Err(VideoError::GifTooSlow { asked });
        }
        Ok(Self { rate, frames: 0 })
    }

    fn next_delay(&mut self) -> u16 {
        let start = self.hundredths();
        self.frames += 1;
        (self.hundredths() - start) as u16
    }

    /// When the next frame begins, rounded to the nearest.
    fn hundredths(&self) -> u64 {
        let numerator = u64::from(self.rate.numerator());
        (self.frames * 100 * u64::from(self.rate.denominator()) + numerator / 2) / numerator
    }
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

    #[test]
    fn delays_add_up_to_the_rate() {
        for (rate, frames, hundredths) in
            [(7.0, 14, 200), (24.0, 24, 100), (30.0, 300, 1000), (50.0, 50, 100)]
        {
            let mut delays = Delays::new(FrameRate::new(rate).unwrap()).unwrap();
            let all: Vec<u16> = (0..frames).map(|_| delays.next_delay()).collect();
            assert_eq!(all.iter().map(|delay| u32::from(*delay)).sum::<u32>(), hundredths, "{rate}: {all:?}");
            assert!(all.iter().all(|delay| *delay >= 2), "{rate}: {all:?}");
        }
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

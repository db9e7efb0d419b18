//! Luma and chroma as RGB.
//!
//! Chroma that is stored for every second pixel is interpolated linearly, by where its samples lie among the pixels.

use rayon::prelude::*;

use super::Matrix;

/// A plane of a picture.
#[derive(Debug, Clone, Copy)]
pub(in crate::video) struct Plane<'a> {
    /// Its rows.
    pub bytes: &'a [u8],
    /// Bytes from one row to the next.
    pub stride: usize,
}

/// Where samples for every second pixel lie along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::video) enum Place {
    /// There is a sample for every pixel.
    Every,
    /// On the first of two pixels.
    First,
    /// Midway between two pixels.
    Between,
}

/// Blue and red difference.
#[derive(Debug, Clone, Copy)]
pub(in crate::video) struct Chroma<'a> {
    /// The two planes.
    pub planes: [Plane<'a>; 2],
    /// Along a row.
    pub across: Place,
    /// Along a column.
    pub down: Place,
}

/// A picture as a video holds it.
#[derive(Debug, Clone, Copy)]
pub(in crate::video) struct Picture<'a> {
    width: usize,
    height: usize,
    luma: Plane<'a>,
    /// `None` if it is gray.
    chroma: Option<Chroma<'a>>,
}

/// What the numbers mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::video) struct Colours {
    /// How they were mixed.
    pub matrix: Matrix,
    /// 0 to 255, instead of 16 to 235 and 240.
    pub full_range: bool,
}

/// Fractional bits of the factors.
const BITS: u32 = 16;

/// Factors of the inverse matrix, with [`BITS`] fractional bits; of chroma four less, since it comes in sixteenths.
struct Factors {
    black: i32,
    luma: i32,
    red: i32,
    green: [i32; 2],
    blue: i32,
}

impl Colours {
    fn factors(self) -> Factors {
        let Matrix { red, blue } = self.matrix;
        let (red, blue) = (f64::from(red), f64::from(blue));
        let green = 1.0 - red - blue;
        let (luma, chroma) =
            if self.full_range { (1.0, 255.0 / 127.5) } else { (255.0 / 219.0, 255.0 / 112.0) };
        let of_red = (1.0 - red) * chroma;
        let of_blue = (1.0 - blue) * chroma;
        let fixed = |factor: f64, bits: u32| (factor * f64::from(1_u32 << bits)).round() as i32;
        Factors {
            black: if self.full_range { 0 } else { 16 },
            luma: fixed(luma, BITS),
            red: fixed(of_red, BITS - 4),
            green: [fixed(-of_blue * blue / green, BITS - 4), fixed(-of_red * red / green, BITS - 4)],
            blue: fixed(of_blue, BITS - 4),
        }
    }
}

impl Factors {
    /// A pixel from its luma, and its chroma in sixteenths around zero.
    fn pixel(&self, luma: u8, blue: i32, red: i32) -> [u8; 3] {
        let luma = (i32::from(luma) - self.black) * self.luma + (1 << (BITS - 1));
        let byte = |value: i32| (value >> BITS).clamp(0, 255) as u8;
        [
            byte(luma + self.red * red),
            byte(luma + self.green[0] * blue + self.green[1] * red),
            byte(luma + self.blue * blue),
        ]
    }
}

impl Place {
    /// How many samples there are for so many pixels.
    pub(in crate::video) fn samples(self, pixels: usize) -> usize {
        if self == Place::Every { pixels } else { pixels.div_ceil(2) }
    }

    /// The two rows of samples around a row of pixels, and the quarters that the second one counts; `last` is the last sample.
    fn around(self, pixel: usize, last: usize) -> (usize, usize, i32) {
        let sample = pixel / 2;
        match (self, pixel % 2) {
            (Place::Every, _) => (pixel, pixel, 0),
            (Place::First, 0) => (sample, sample, 0),
            (Place::First, _) => (sample, (sample + 1).min(last), 2),
            (Place::Between, 0) => (sample, sample.saturating_sub(1), 1),
            (Place::Between, _) => (sample, (sample + 1).min(last), 1),
        }
    }

    /// A row of samples as one value for every pixel, times four.
    fn expand(self, samples: &[i32], pixels: &mut [i32]) {
        let Some(last) = samples.last() else { return };
        let next = samples.iter().skip(1).chain([last]);
        let pairs = samples.iter().zip(next).zip(pixels.chunks_mut(2));
        match self {
            Place::Every => pixels.iter_mut().zip(samples).for_each(|(pixel, sample)| *pixel = 4 * sample),
            Place::First => pairs.for_each(|((own, next), pair)| write(pair, [4 * own, 2 * own + 2 * next])),
            Place::Between => {
                let mut before = samples[0];
                pairs.for_each(|((own, next), pair)| {
                    write(pair, [3 * own + before, 3 * own + next]);
                    before = *own;
                });
            }
        }
    }
}

/// Two pixels, or the one that there is at the end of an odd row.
fn write(pair: &mut [i32], values: [i32; 2]) {
    pair.iter_mut().zip(values).for_each(|(pixel, value)| *pixel = value);
}

/// What a thread needs for a row: a row of samples, and both kinds of chroma for every pixel.
#[derive(Default)]
struct Scratch {
    samples: Vec<i32>,
    chroma: [Vec<i32>; 2],
}

impl<'a> Picture<'a> {
    /// A picture of planes that hold its pixels; `None` if one of them is too short, or the size is zero.
    pub(in crate::video) fn new(
        [width, height]: [usize; 2],
        luma: Plane<'a>,
        chroma: Option<Chroma<'a>>,
    ) -> Option<Self> {
        if width == 0 || height == 0 {
            return None;
        }
        let holds = |plane: &Plane<'_>, width: usize, height: usize| {
            let needed = plane.stride.checked_mul(height - 1).and_then(|bytes| bytes.checked_add(width));
            width <= plane.stride && needed.is_some_and(|needed| needed <= plane.bytes.len())
        };
        let fits = holds(&luma, width, height)
            && chroma.iter().all(|Chroma { planes, across, down }| {
                planes.iter().all(|plane| holds(plane, across.samples(width), down.samples(height)))
            });
        fits.then_some(Self { width, height, luma, chroma })
    }

    /// Its pixels, into `rgb`, which has three bytes for each.
    pub(in crate::video) fn write_rgb(&self, colours: Colours, rgb: &mut [u8]) {
        let factors = colours.factors();
        // A thread takes some rows at a time: a row alone is not worth handing over.
        rgb.par_chunks_exact_mut(self.width * 3)
            .with_min_len(16)
            .enumerate()
            .for_each_init(Scratch::default, |scratch, (y, rgb)| self.write_row(y, &factors, scratch, rgb));
    }

    fn write_row(&self, y: usize, factors: &Factors, scratch: &mut Scratch, rgb: &mut [u8]) {
        let luma = &self.luma.bytes[y * self.luma.stride..][..self.width];
        let pixels = rgb.as_chunks_mut::<3>().0.iter_mut().zip(luma);
        let Some(Chroma { planes, across, down }) = &self.chroma else {
            pixels.for_each(|(pixel, luma)| *pixel = factors.pixel(*luma, 0, 0));
            return;
        };
        let columns = across.samples(self.width);
        let (near, far, quarters) = down.around(y, down.samples(self.height) - 1);
        for (chroma, plane) in scratch.chroma.iter_mut().zip(planes) {
            let of = |y: usize| &plane.bytes[y * plane.stride..][..columns];
            let blended = of(near).iter().zip(of(far)).map(|(near, far)| {
                (4 - quarters) * (i32::from(*near) - 128) + quarters * (i32::from(*far) - 128)
            });
            scratch.samples.clear();
            scratch.samples.extend(blended);
            chroma.resize(self.width, 0);
            across.expand(&scratch.samples, chroma);
        }
        let [blue, red] = &scratch.chroma;
        for ((pixel, luma), (blue, red)) in pixels.zip(blue.iter().zip(red)) {
            *pixel = factors.pixel(*luma, *blue, *red);
        }
    }
}

#[cfg(test)]
mod tests;

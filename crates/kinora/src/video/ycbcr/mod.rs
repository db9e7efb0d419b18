//! RGB as luma and chroma in the limited range (16 to 235, 16 to 240) that video players expect; and [back](to_rgb).

mod to_rgb;

pub(super) use to_rgb::{Chroma, Colours, Picture, Place, Plane};

use super::RgbImage;

/// The share of red and blue in the luma.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Matrix {
    red: f32,
    blue: f32,
}

/// High-definition video.
pub(super) const BT709: Matrix = Matrix { red: 0.2126, blue: 0.0722 };
/// Ultra-high-definition video.
pub(super) const BT2020: Matrix = Matrix { red: 0.2627, blue: 0.0593 };
/// Standard-definition video, and what programs assume if a file does not say.
pub(super) const BT601: Matrix = Matrix { red: 0.299, blue: 0.114 };

/// Three planes, one after another.
pub(super) struct Planes {
    /// Luma, width × height.
    pub luma: Vec<u8>,
    /// Blue difference.
    pub blue: Vec<u8>,
    /// Red difference.
    pub red: Vec<u8>,
}

impl Matrix {
    fn luma(self, rgb: [f32; 3]) -> f32 {
        self.red * rgb[0] + (1.0 - self.red - self.blue) * rgb[1] + self.blue * rgb[2]
    }

    /// Blue and red difference.
    fn chroma(self, rgb: [f32; 3]) -> (u8, u8) {
        let luma = self.luma(rgb);
        let scaled = |part: f32, share: f32| 128.0 + (part - luma) * (112.0 / 255.0) / (1.0 - share);
        (round(scaled(rgb[2], self.blue)), round(scaled(rgb[0], self.red)))
    }

    fn luma_byte(self, rgb: [f32; 3]) -> u8 {
        round(16.0 + self.luma(rgb) * (219.0 / 255.0))
    }

    /// Chroma for every pixel.
    pub(super) fn full(self, frame: &RgbImage) -> Planes {
        let pixels = frame.width() * frame.height();
        let mut planes = Planes {
            luma: Vec::with_capacity(pixels),
            blue: Vec::with_capacity(pixels),
            red: Vec::with_capacity(pixels),
        };
        for pixel in frame.pixels() {
            let rgb = pixel.map(f32::from);
            let (blue, red) = self.chroma(rgb);
            planes.luma.push(self.luma_byte(rgb));
            planes.blue.push(blue);
            planes.red.push(red);
        }
        planes
    }

    /// Chroma for every two by two pixels, on an even size: an odd width or height repeats its last column or row.
    ///
    /// A chroma sample lies on the left column of its square, midway between its rows, which is where H.264 puts it
    /// unless told otherwise; hence the weights 1, 2, 1 around that column.
    pub(super) fn half(self, frame: &RgbImage) -> Planes {
        let (width, height) = even_size(frame);
        let mut planes = Planes {
            luma: Vec::with_capacity(width * height),
            blue: Vec::with_capacity(width * height / 4),
            red: Vec::with_capacity(width * height / 4),
        };
        let last = frame.width() - 1;
        for y in 0..height {
            let row = frame.row(y.min(frame.height() - 1));
            planes.luma.extend(row.iter().map(|pixel| self.luma_byte(pixel.map(f32::from))));
            if width > row.len() {
                planes.luma.push(self.luma_byte(row[last].map(f32::from)));
            }
        }
        for y in (0..height).step_by(2) {
            let rows = [frame.row(y), frame.row((y + 1).min(frame.height() - 1))];
            for x in (0..width).step_by(2) {
                let mut rgb = [0.0; 3];
                for row in rows {
                    for (column, weight) in [(x.saturating_sub(1), 1.0), (x, 2.0), ((x + 1).min(last), 1.0)] {
                        for (sum, value) in rgb.iter_mut().zip(row[column]) {
                            *sum += weight * f32::from(value);
                        }
                    }
                }
                let (blue, red) = self.chroma(rgb.map(|sum| sum / 8.0));
                planes.blue.push(blue);
                planes.red.push(red);
            }
        }
        planes
    }
}

/// A frame's width and height, each rounded up to an even number.
pub(super) fn even_size(frame: &RgbImage) -> (usize, usize) {
    (frame.width().next_multiple_of(2), frame.height().next_multiple_of(2))
}

fn round(value: f32) -> u8 {
    // The cast saturates, and no value is below zero by more than rounding.
    (value + 0.5) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The studio values of the colour bars in ITU-R BT.709 and BT.601 (100 %, 8 bits).
    #[test]
    fn colour_bars_have_their_standard_values() {
        let bars = [
            ([255, 255, 255], [235, 128, 128], [235, 128, 128]),
            ([255, 255, 0], [219, 16, 138], [210, 16, 146]),
            ([0, 255, 255], [188, 154, 16], [170, 166, 16]),
            ([0, 255, 0], [173, 42, 26], [145, 54, 34]),
            ([255, 0, 255], [78, 214, 230], [106, 202, 222]),
            ([255, 0, 0], [63, 102, 240], [81, 90, 240]),
            ([0, 0, 255], [32, 240, 118], [41, 240, 110]),
            ([0, 0, 0], [16, 128, 128], [16, 128, 128]),
        ];
        for (rgb, high, standard) in bars {
            let frame = RgbImage::new(3, 3, rgb.repeat(9)).unwrap();
            for (matrix, expected) in [(BT709, high), (BT601, standard)] {
                let (full, half) = (matrix.full(&frame), matrix.half(&frame));
                assert_eq!([full.luma[0], full.blue[0], full.red[0]], expected, "{rgb:?}");
                assert_eq!((half.luma, half.blue.len()), (vec![expected[0]; 16], 4), "{rgb:?}");
                assert_eq!([half.blue[3], half.red[3]], [expected[1], expected[2]], "{rgb:?}");
            }
        }
    }
}

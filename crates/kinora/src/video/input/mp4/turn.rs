//! Pictures that were filmed with the camera turned.

use kinora_models::image::RgbImage;

use super::super::error::{Fault, zeroed};

/// A turn by a multiple of 90°, or a reflection: the matrix that takes a place in the picture as it is stored to the place where it is shown.
/// Each entry is −1, 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn([i8; 4]);

impl Turn {
    /// The picture is shown as it is stored.
    pub(super) const NONE: Turn = Turn([1, 0, 0, 1]);

    /// From the track's matrix, in which 1 is 65536.
    pub(super) fn from_matrix(matrix: [i32; 4]) -> Result<Self, Fault> {
        // Writers of a quarter turn may leave a rounding error where a zero should be.
        let entry = |value: i32| match value {
            -66_000..=-65_000 => Some(-1),
            -500..=500 => Some(0),
            65_000..=66_000 => Some(1),
            _ => None,
        };
        let [a, b, c, d] = matrix.map(entry);
        let (Some(a), Some(b), Some(c), Some(d)) = (a, b, c, d) else { return Err(unknown()) };
        let straight = a != 0 && d != 0 && b == 0 && c == 0;
        let across = a == 0 && d == 0 && b != 0 && c != 0;
        if straight || across { Ok(Turn([a, b, c, d])) } else { Err(unknown()) }
    }

    /// The width and height of a picture that is turned.
    pub(super) fn size(self, [width, height]: [usize; 2]) -> [usize; 2] {
        if self.0[0] == 0 { [height, width] } else { [width, height] }
    }

    /// A picture as it is shown.
    pub(super) fn apply(self, image: RgbImage) -> Result<RgbImage, Fault> {
        if self == Self::NONE {
            return Ok(image);
        }
        let [a, b, c, d] = self.0.map(isize::from);
        let [width, height] = image.size();
        let [shown_width, shown_height] = self.size([width, height]);
        // The matrix turned over is its inverse; what it makes negative counts from the other side.
        let from = |first: isize, second: isize, side: usize, x: usize, y: usize| {
            let start = if first + second < 0 { side.cast_signed() - 1 } else { 0 };
            (start + first * x.cast_signed() + second * y.cast_signed()).cast_unsigned()
        };
        let mut pixels = zeroed(image.bytes().len())?;
        for (y, row) in pixels.as_chunks_mut::<3>().0.chunks_exact_mut(shown_width).enumerate() {
            for (x, pixel) in row.iter_mut().enumerate() {
                *pixel = image.row(from(c, d, height, x, y))[from(a, b, width, x, y)];
            }
        }
        Ok(RgbImage::new(shown_width, shown_height, pixels)?)
    }
}

fn unknown() -> Fault {
    Fault::unsupported("a video that is turned by another angle than a quarter")
        .with_remedy("ffmpeg -i INPUT -c:a copy OUTPUT.mp4")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six pixels with a number each, as they are shown.
    fn shown(matrix: [i32; 4]) -> (usize, Vec<u8>) {
        let numbers = RgbImage::new(3, 2, (1..=6).flat_map(|number| [number; 3]).collect()).unwrap();
        let turn = Turn::from_matrix(matrix.map(|entry| entry * 65_536)).unwrap();
        let turned = turn.apply(numbers).unwrap();
        (turned.width(), turned.pixels().iter().map(|pixel| pixel[0]).collect())
    }

    #[test]
    fn quarters_and_reflections() {
        assert_eq!(shown([1, 0, 0, 1]), (3, vec![1, 2, 3, 4, 5, 6]));
        // A quarter to the right: what was at the left bottom is at the left top.
        assert_eq!(shown([0, 1, -1, 0]), (2, vec![4, 1, 5, 2, 6, 3]));
        assert_eq!(shown([-1, 0, 0, -1]), (3, vec![6, 5, 4, 3, 2, 1]));
        assert_eq!(shown([0, -1, 1, 0]), (2, vec![3, 6, 2, 5, 1, 4]));
        assert_eq!(shown([-1, 0, 0, 1]), (3, vec![3, 2, 1, 6, 5, 4]));
        assert_eq!(shown([1, 0, 0, -1]), (3, vec![4, 5, 6, 1, 2, 3]));
        assert_eq!(Turn::from_matrix([65_536, 0, 0, 65_535]).unwrap(), Turn::NONE);
    }

    #[test]
    fn other_turns_are_refused() {
        for matrix in [[46_341, 46_341, -46_341, 46_341], [65_536, 65_536, 0, 65_536], [0; 4], [i32::MIN; 4]]
        {
            assert!(Turn::from_matrix(matrix).is_err(), "{matrix:?}");
        }
    }
}

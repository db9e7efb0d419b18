//! How far apart two pictures can be, by how far apart the photos are that they are made from.

use kinora_graph::op::Resample;

use super::{
    CHANNELS,
    fit::{Fit, Placed, Span},
    lanczos::Tables,
};

/// A bound on the difference of two pictures that are [fitted](Fit) from photos of the same size: it takes one look at the
/// photos, while making the pictures takes many.
///
/// A filter is linear, so a difference in a pixel of the photo is a difference of at most its weight in each pixel of the
/// picture that reads it. Rounding to bytes adds at most 1 after each of the two passes.
#[derive(Clone, Debug)]
pub struct DifferenceBound {
    /// Bytes of a photo's row.
    row: usize,
    /// How much a difference in each row of the photos counts.
    rows: Vec<f64>,
    rounding: f64,
}

impl DifferenceBound {
    /// For photos and pictures of these widths and heights; of the pictures every so many rows are compared.
    pub fn new(fit: Fit, photo: [usize; 2], [width, height]: [usize; 2], every: usize) -> Self {
        let Placed { seen, filled } = fit.placed(photo, width.max(1), height.max(1));
        let across = Gains::new(photo[0], seen[0], filled[0], 1);
        let down = Gains::new(photo[1], seen[1], filled[1], every.max(1));
        let widest = across.of_pixels.iter().copied().fold(0.0, f64::max);
        let compared = (filled[0].len * CHANNELS * down.compared) as f64;
        DifferenceBound {
            row: photo[0] * CHANNELS,
            rows: down.of_pixels.iter().map(|gain| gain * widest).collect(),
            rounding: compared * (1.0 + across.largest.max(down.largest)),
        }
    }

    /// The bytes of the rows that are compared differ by no more than this, all together.
    pub fn of(&self, before: &[u8], photo: &[u8]) -> f64 {
        let rows = before.chunks(self.row.max(1)).zip(photo.chunks(self.row.max(1)));
        let apart = |(before, photo): (&[u8], &[u8])| -> u32 {
            before.iter().zip(photo).map(|(before, photo)| u32::from(before.abs_diff(*photo))).sum()
        };
        let sum: f64 = rows.zip(&self.rows).map(|(rows, gain)| gain * f64::from(apart(rows))).sum();
        // Sums of floats are a little off.
        (self.rounding + sum) * (1.0 + 1e-9)
    }
}

/// What a difference in each pixel of an axis counts.
struct Gains {
    of_pixels: Vec<f64>,
    /// The weights of a result, without their signs, at most.
    largest: f64,
    /// Results that are compared.
    compared: usize,
}

impl Gains {
    fn new(extent: usize, seen: Span, filled: Span, every: usize) -> Self {
        let mut gains = Gains { of_pixels: vec![0.0; extent], largest: 1.0, compared: 0 };
        let compared = |i: &usize| (filled.start + i).is_multiple_of(every);
        if seen.len == filled.len {
            for i in (0..filled.len).filter(compared) {
                gains.of_pixels[seen.start + i] = 1.0;
                gains.compared += 1;
            }
            return gains;
        }
        let Tables { first, weights, taps } = Tables::new(seen.len, filled.len);
        for i in (0..filled.len).filter(compared) {
            let mut sum = 0.0;
            let neighbours = seen.start + first[i] as usize..;
            for (neighbour, weight) in neighbours.zip(&weights[i * taps..][..taps]) {
                let weight = f64::from(weight.unsigned_abs()) / f64::from(1 << Resample::FRACTION_BITS);
                // Behind the last neighbour the weights are 0.
                if let Some(gain) = gains.of_pixels.get_mut(neighbour) {
                    *gain += weight;
                }
                sum += weight;
            }
            gains.largest = gains.largest.max(sum);
            gains.compared += 1;
        }
        gains
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Colour, RgbImage},
        *,
    };

    /// Photos that differ in noise, in hard edges or in everything, by an amount.
    fn photos([width, height]: [usize; 2], kind: usize, amount: usize) -> [RgbImage; 2] {
        let byte = |i: usize| (i * i % 251 + i / 7) as u8;
        let other = |i: usize| {
            let apart = match kind {
                0 => i * 7919 % (amount + 1),
                1 => (i / 9 % 2) * amount,
                _ => amount,
            };
            if byte(i) < 128 { byte(i) + apart.min(127) as u8 } else { byte(i) - apart.min(127) as u8 }
        };
        let bytes = width * height * 3;
        [(0..bytes).map(byte).collect(), (0..bytes).map(other).collect()]
            .map(|bytes: Vec<u8>| RgbImage::new(width, height, bytes).unwrap())
    }

    #[test]
    fn no_pictures_are_further_apart() {
        for photo in [[1, 1], [33, 20], [64, 48], [90, 61], [24, 95]] {
            for picture in [[64, 48], [40, 40], [16, 32]] {
                for fit in Fit::ALL {
                    for (kind, amount) in [(0, 0), (0, 9), (1, 120), (2, 30), (2, 127)] {
                        let photos = photos(photo, kind, amount);
                        let fitted = photos.each_ref().map(|photo| {
                            let [width, height] = picture;
                            let shaped = fit.apply(photo, width, height, Colour::BLACK).unwrap();
                            shaped.resize_lanczos(width, height).unwrap().into_bytes()
                        });
                        let rows = fitted.each_ref().map(|bytes| bytes.chunks(picture[0] * 3).step_by(4));
                        let [before, after] = rows.map(Iterator::flatten);
                        let apart: u64 = before.zip(after).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
                        let bound = DifferenceBound::new(fit, photo, picture, 4);
                        let bound = bound.of(photos[0].bytes(), photos[1].bytes());
                        let what = format!("{photo:?} to {picture:?} by {fit}, {kind} {amount}");
                        assert!(apart as f64 <= bound, "{what}: {apart} {bound}");
                        // It is of use: small differences stay small.
                        let compared = picture[0] * 3 * picture[1].div_ceil(4);
                        assert!(amount > 9 || bound <= 40.0 * compared as f64, "{what}: {bound}");
                    }
                }
            }
        }
    }
}

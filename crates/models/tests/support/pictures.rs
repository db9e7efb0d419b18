//! Pictures that the scripts make too.

use kinora_models::image::RgbImage;

/// The picture of the fixtures' script.
pub fn picture(width: usize, height: usize) -> RgbImage {
    let value = |x: usize, y: usize, c: usize| match (x / 16 + y / 16) % 3 {
        0 => x * 3 / 2 + y + 40 * c,
        1 => (x / 7 + y / 5 + c) % 2 * 255,
        _ => (x * x * 31 + y * y * 17 + x * y * 7 + c * 101) / 3,
    };
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            pixels.extend([0, 1, 2].map(|c| value(x, y, c) as u8));
        }
    }
    RgbImage::new(width, height, pixels).unwrap()
}

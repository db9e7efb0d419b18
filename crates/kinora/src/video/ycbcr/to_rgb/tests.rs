//! Colours and places of chroma.

use super::{super::*, *};

fn rgb(picture: &Picture<'_>, colours: Colours) -> Vec<u8> {
    let mut bytes = vec![0; picture.width * picture.height * 3];
    picture.write_rgb(colours, &mut bytes);
    bytes
}

fn plane(bytes: &[u8], stride: usize) -> Plane<'_> {
    Plane { bytes, stride }
}

/// The matrices of BT.601 and BT.709, in the digits that the standards' readers print, and in f64.
#[test]
fn every_colour_is_that_of_the_inverse_matrix() {
    let inverse = |[luma, blue, red]: [u8; 3], colours: Colours| -> [u8; 3] {
        let (blue, red) = (f64::from(blue) - 128.0, f64::from(red) - 128.0);
        let luma = f64::from(luma);
        let high = colours.matrix == BT709;
        let channels = match (high, colours.full_range) {
            (false, false) => {
                let luma = (luma - 16.0) * 1.164_383_56;
                [
                    luma + 1.596_026_79 * red,
                    luma - 0.391_762_29 * blue - 0.812_967_65 * red,
                    luma + 2.017_232_14 * blue,
                ]
            }
            (true, false) => {
                let luma = (luma - 16.0) * 1.164_383_56;
                [
                    luma + 1.792_741_07 * red,
                    luma - 0.213_248_61 * blue - 0.532_909_33 * red,
                    luma + 2.112_401_79 * blue,
                ]
            }
            (false, true) => {
                [luma + 1.402 * red, luma - 0.344_136 * blue - 0.714_136 * red, luma + 1.772 * blue]
            }
            (true, true) => {
                [luma + 1.5748 * red, luma - 0.187_324 * blue - 0.468_124 * red, luma + 1.8556 * blue]
            }
        };
        channels.map(|value| value.round().clamp(0.0, 255.0) as u8)
    };
    for (matrix, full_range) in [(BT601, false), (BT601, true), (BT709, false), (BT709, true)] {
        let colours = Colours { matrix, full_range };
        let every = |step: usize| (0..=255_u8).step_by(step);
        for luma in every(5) {
            let pairs: Vec<[u8; 2]> =
                every(15).flat_map(|blue| every(15).map(move |red| [blue, red])).collect();
            let (blue, red): (Vec<u8>, Vec<u8>) = pairs.iter().map(|[blue, red]| (*blue, *red)).unzip();
            let width = pairs.len();
            let chroma = Chroma {
                planes: [plane(&blue, width), plane(&red, width)],
                across: Place::Every,
                down: Place::Every,
            };
            let gray = vec![luma; width];
            let picture = Picture::new([width, 1], plane(&gray, width), Some(chroma)).unwrap();
            for (found, [blue, red]) in rgb(&picture, colours).chunks(3).zip(pairs) {
                let expected = inverse([luma, blue, red], colours);
                let off = found.iter().zip(expected).map(|(a, b)| a.abs_diff(b)).max();
                assert!(off <= Some(1), "{colours:?} {luma} {blue} {red}: {found:?}, not {expected:?}");
            }
        }
    }
}

/// A ramp of chroma that is linear in the pixels' places comes back as that ramp, wherever its samples lie.
#[test]
fn chroma_is_interpolated_by_where_its_samples_lie() {
    let (width, height) = (9, 7);
    let luma = vec![126; width * height];
    for (across, down) in
        [(Place::First, Place::Between), (Place::Between, Place::Between), (Place::First, Place::First)]
    {
        let middle =
            |place: Place, at: usize| 2.0 * at as f64 + if place == Place::Between { 0.5 } else { 0.0 };
        let (columns, rows) = (across.samples(width), down.samples(height));
        let value = |x: f64, y: f64| 100.0 + 4.0 * x + 6.0 * y;
        let samples: Vec<u8> = (0..rows)
            .flat_map(|y| (0..columns).map(move |x| (x, y)))
            .map(|(x, y)| value(middle(across, x), middle(down, y)) as u8)
            .collect();
        let none = vec![128; columns * rows];
        let planes = [plane(&none, columns), plane(&samples, columns)];
        let chroma = Chroma { planes, across, down };
        let picture = Picture::new([width, height], plane(&luma, width), Some(chroma)).unwrap();
        let found = rgb(&picture, Colours { matrix: BT601, full_range: true });
        // Away from the edges, beyond which there is no sample to go to.
        for (x, y) in (1..6).flat_map(|y| (1..8).map(move |x| (x, y))) {
            let red = 126.0 + 1.402 * (value(x as f64, y as f64) - 128.0);
            let off = (f64::from(found[(y * width + x) * 3]) - red).abs();
            assert!(off <= 1.0, "{across:?} {down:?} at {x},{y}: off by {off}");
        }
    }
}

#[test]
fn planes_that_are_too_short_are_no_picture() {
    let bytes = [0; 12];
    let chroma = |stride: usize| Chroma {
        planes: [plane(&bytes[..stride * 2], stride); 2],
        across: Place::Between,
        down: Place::Between,
    };
    assert!(Picture::new([4, 3], plane(&bytes, 4), Some(chroma(2))).is_some());
    assert!(Picture::new([4, 3], plane(&bytes[1..], 4), Some(chroma(2))).is_none());
    assert!(Picture::new([4, 3], plane(&bytes, 4), Some(chroma(1))).is_none());
    assert!(Picture::new([5, 2], plane(&bytes, 4), None).is_none());
    assert!(Picture::new([0, 3], plane(&bytes, 4), None).is_none());
    assert!(Picture::new([4, usize::MAX], plane(&bytes, usize::MAX), None).is_none());
}

#[test]
fn what_becomes_luma_and_chroma_comes_back() {
    let bytes: Vec<u8> = (0..16 * 9 * 3).map(|at| (at * 89 % 256) as u8).collect();
    let frame = RgbImage::new(16, 9, bytes).unwrap();
    for matrix in [BT601, BT709] {
        let Planes { luma, blue, red } = matrix.full(&frame);
        let planes = [plane(&blue, 16), plane(&red, 16)];
        let chroma = Chroma { planes, across: Place::Every, down: Place::Every };
        let picture = Picture::new([16, 9], plane(&luma, 16), Some(chroma)).unwrap();
        let back = rgb(&picture, Colours { matrix, full_range: false });
        let most = back.iter().zip(frame.bytes()).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(most <= Some(3), "off by {most:?}");
    }
}

//! Edges against OpenCV (`golden/make_canny.py`).
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_models::{image::RgbImage, synthetic::uniform};
use serde::Deserialize;
use support::{fixtures::Fixture, pictures::picture};

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    width: usize,
    height: usize,
    low: u16,
    high: u16,
}

impl Case {
    fn picture(&self) -> RgbImage {
        let Case { width, height, .. } = *self;
        match &*self.kind {
            "picture" => picture(width, height),
            "hill" => hill(width, height),
            "noise" => {
                let numbers = uniform(&format!("photo {width}×{height}")).take(width * height * 3);
                RgbImage::new(width, height, numbers.map(|u| ((u + 1.0) * 128.0) as u8).collect()).unwrap()
            }
            kind => panic!("{kind}"),
        }
    }
}

/// Slopes in every direction, as the script makes them.
fn hill(width: usize, height: usize) -> RgbImage {
    let mut bytes = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let (dx, dy) = (x.abs_diff(width / 2), y.abs_diff(height / 2));
            bytes.extend([0, 1, 2].map(|c| 255 - ((dx * dx * 3 + dy * dy * 5) / (c + 4)).min(255) as u8));
        }
    }
    RgbImage::new(width, height, bytes).unwrap()
}

#[test]
fn edges_are_those_of_opencv_in_every_pixel() {
    let fixture: Fixture<Case> = Fixture::load("canny");
    assert_eq!(fixture.cases.len(), 11);
    let mut edges = 0;
    for case in &fixture.cases {
        let bits = fixture.expected(&case.name, "edges");
        let expected = (0..case.width * case.height).map(|i| bits.bytes()[i / 8] >> (7 - i % 8) & 1 == 1);
        let expected: Vec<[u8; 3]> = expected.map(|edge| if edge { [255; 3] } else { [0; 3] }).collect();
        let got = case.picture().canny(case.low, case.high);
        assert_eq!(got.size(), [case.width, case.height]);
        assert_eq!(got.pixels(), expected, "{}", case.name);
        edges += expected.iter().filter(|pixel| pixel[0] > 0).count();
    }
    assert!(edges > 1000);
}

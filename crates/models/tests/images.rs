//! Image processing against Pillow, diffusers and transformers (`golden/make_images.py`).
#![allow(clippy::unwrap_used)]

mod support;

use std::{collections::BTreeMap, fs};

use kinora_graph::Tensor;
use kinora_models::image::{
    CLIP_SIZE, ClipPreprocessor, ImageError, MAX_PIXELS, MAX_SIDE, RgbImage, preprocess,
};
use serde::Deserialize;
use serde_json::{Value, json};
use support::{fixtures, pictures::picture};

/// Of the encoder's input every so many values are in the fixtures.
const CLIP_STRIDE: usize = 197;

#[derive(Deserialize)]
struct Manifest {
    resizes: Vec<Resize>,
    clips: Vec<Clip>,
}

#[derive(Deserialize)]
struct Resize {
    name: String,
    before: [usize; 2],
    after: [usize; 2],
    stride: usize,
    checksum: u64,
}

#[derive(Deserialize)]
struct Clip {
    name: String,
    size: [usize; 2],
    config: Value,
}

fn golden() -> (Manifest, BTreeMap<String, Tensor>) {
    let manifest = fs::read_to_string(fixtures::folder("images").join("images.json")).unwrap();
    (serde_json::from_str(&manifest).unwrap(), fixtures::results("images"))
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |sum: u64, (place, &byte)| {
        let weight = (place as u64).wrapping_mul(2_654_435_761).wrapping_add(1);
        sum.wrapping_add(weight.wrapping_mul(byte.into()))
    })
}

#[test]
fn the_resize_is_pillows_in_every_byte() {
    let (manifest, tensors) = golden();
    assert!(manifest.resizes.len() >= 12);
    for case in manifest.resizes {
        let resized = picture(case.before[0], case.before[1]).resize_lanczos(case.after[0], case.after[1]);
        let resized = resized.unwrap();
        assert_eq!([resized.width(), resized.height()], case.after);
        let sample: Vec<u8> = resized.bytes().iter().copied().step_by(case.stride).collect();
        let expected = tensors[&case.name].bytes();
        let wrong = sample.iter().zip(expected).filter(|(a, b)| a != b).count();
        assert_eq!((sample.len(), wrong), (expected.len(), 0), "{}", case.name);
        assert_eq!(checksum(resized.bytes()), case.checksum, "{}", case.name);
    }
}

#[test]
fn the_autoencoders_input_is_diffusers() {
    let (_, tensors) = golden();
    let input = preprocess(&picture(37, 53), 16, 24).unwrap();
    assert_eq!(input, tensors["preprocess"].to_f32());
}

#[test]
fn the_image_encoders_input_is_diffusers() {
    let (manifest, tensors) = golden();
    assert!(manifest.clips.len() >= 9);
    let mut worst: f32 = 0.0;
    for case in manifest.clips {
        let preprocessor = ClipPreprocessor::from_config(&case.config).unwrap();
        let input = preprocessor.pixels(&picture(case.size[0], case.size[1]));
        assert_eq!(input.len(), CLIP_SIZE * CLIP_SIZE * 3);
        let expected = tensors[&case.name].to_f32();
        let sample: Vec<f32> = input.into_iter().step_by(CLIP_STRIDE).collect();
        assert_eq!(sample.len(), expected.len());
        for (a, b) in expected.iter().zip(sample) {
            worst = worst.max((a - b).abs());
            assert!((a - b).abs() <= 1e-5, "{}: {a} {b}", case.name);
        }
    }
    println!("largest error: {worst:.1e}");
}

#[test]
fn one_pixel_is_an_image() {
    let image = RgbImage::new(1, 1, vec![255, 0, 51]).unwrap();
    let even = json!({"image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0]});
    let input = ClipPreprocessor::from_config(&even).unwrap().pixels(&image);
    for pixel in input.as_chunks::<3>().0 {
        for (value, expected) in pixel.iter().zip([1.0, 0.0, 0.2]) {
            assert!((value - expected).abs() < 1e-6);
        }
    }
    // One row, and one column.
    for (width, height) in [(500, 1), (1, 500)] {
        assert_eq!(
            ClipPreprocessor::default().pixels(&picture(width, height)).len(),
            CLIP_SIZE * CLIP_SIZE * 3
        );
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    assert!(matches!(RgbImage::new(0, 5, Vec::new()), Err(ImageError::Empty { .. })));
    assert!(matches!(RgbImage::new(2, 2, vec![0; 11]), Err(ImageError::Bytes { expected: 12, got: 11, .. })));
    assert!(matches!(RgbImage::check_size(20_000, 20_000), Err(ImageError::TooLarge { .. })));
    assert!(matches!(RgbImage::check_size(usize::MAX, 2), Err(ImageError::TooLarge { .. })));
    assert_eq!(RgbImage::check_size(MAX_SIDE, 1).unwrap(), 3 * MAX_SIDE);
    // Resized in one direction, a thin image of so many rows would take a thousand times its own memory.
    assert!(matches!(RgbImage::check_size(1, 200_000), Err(ImageError::TooLarge { .. })));
    let image = picture(1, 1000);
    for (width, height) in [(0, 64), (64, 0), (MAX_PIXELS, 2), (usize::MAX, 1)] {
        assert!(image.resize_lanczos(width, height).is_err(), "{width}×{height}");
        assert!(preprocess(&image, width, height).is_err());
    }
}

#[test]
fn a_normalisation_that_makes_no_sense_is_refused() {
    for (field, value) in [
        ("image_mean", json!([0.1, 0.2])),
        ("image_mean", json!("grey")),
        ("image_mean", json!([0.1, 0.2, "c"])),
        ("image_std", json!([0.1, 0.0, 0.1])),
        ("image_std", Value::Null),
    ] {
        let error = ClipPreprocessor::from_config(&json!({field: value})).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
    assert_eq!(ClipPreprocessor::from_config(&json!({})).unwrap(), ClipPreprocessor::default());
}

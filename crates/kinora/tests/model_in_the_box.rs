//! The model in the box gives the clip that diffusers makes with it. `golden/make_box.py` made that.
#![cfg(feature = "model-in-the-box")]
#![allow(clippy::unwrap_used)]

use std::path::Path;

use kinora::{
    Device, ImageToVideo,
    image_to_video::{LoadOptions, Precision, Settings},
    model_in_the_box, photo,
};

#[test]
fn a_seed_gives_the_clip_of_diffusers_and_it_moves() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/box/seed-7.png");
    let expected = photo::open(file).unwrap();
    let model = model_in_the_box::open().unwrap();
    let settings = Settings::for_model(&model).unwrap().seed(7);
    assert_eq!([expected.width(), expected.height()], [settings.width, settings.frames * settings.height]);
    let options = LoadOptions::default().precision(Precision::F32);
    let pipeline = ImageToVideo::new(model, options).unwrap();
    let still = model_in_the_box::still().unwrap();
    let clip = pipeline.generate(&still, &settings).unwrap();
    let got: Vec<u8> = clip.frames.iter().flat_map(|frame| frame.bytes()).copied().collect();
    let pairs = || expected.bytes().iter().zip(&got);
    assert_eq!(expected.bytes().len(), got.len());
    let equal = pairs().filter(|(e, g)| e.abs_diff(**g) <= 1).count() as f64 / got.len() as f64;
    let furthest = pairs().map(|(e, g)| e.abs_diff(*g)).max().unwrap();
    println!("{:.4} % of bytes within 1, the furthest {furthest} off", 100.0 * equal);
    assert!(equal >= 0.999, "only {:.3} % of bytes are within 1 of diffusers'", 100.0 * equal);

    // It begins with the still, at 30 dB or more, and moves away from it.
    let away = |frame: usize| {
        let squares = clip.frames[frame].bytes().iter().zip(still.bytes());
        let squares = squares.map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
        (squares.sum::<f64>() / still.bytes().len() as f64).sqrt()
    };
    let (first, last) = (away(0), away(settings.frames - 1));
    assert!(first < 255.0 / 10f64.powf(1.5), "the first frame is {first} from the still");
    assert!(last > 2.0 * first, "the last frame is {last} from the still, the first {first}");
}

/// The first clip measures the activations, in f16; then products are done in 8 bits.
#[test]
fn products_in_8_bits_change_little() {
    let model = model_in_the_box::open().unwrap();
    let settings = Settings::for_model(&model).unwrap().seed(7);
    let still = model_in_the_box::still().unwrap();
    let clip = |precision| {
        let options = LoadOptions::default().device(Device::Cpu).precision(precision);
        let pipeline = ImageToVideo::new(model.clone(), options).unwrap();
        pipeline.generate(&still, &settings).unwrap()
    };
    let (f16, fp8) = (clip(Precision::F16), clip(Precision::Fp8));
    assert!(!model.path().exists(), "the model is in the program, and nothing lies beside it");
    let bytes = |frames: &[kinora::RgbImage]| -> Vec<u8> {
        frames.iter().flat_map(|frame| frame.bytes()).copied().collect()
    };
    let (expected, got) = (bytes(&f16.frames), bytes(&fp8.frames));
    assert_eq!(expected.len(), got.len());
    assert_ne!(expected, got, "nothing was done in 8 bits");
    let squares = expected.iter().zip(&got).map(|(&e, &g)| (f64::from(e) - f64::from(g)).powi(2));
    let noise = squares.sum::<f64>() / expected.len() as f64;
    let decibels = 10.0 * (255.0f64.powi(2) / noise).log10();
    println!("{decibels:.2} dB between f16 and fp8");
    assert!(decibels >= 35.0, "{decibels:.2} dB");
}

//! Flicker as a number: how much live video changes from frame to frame beyond what its input changes.
//!
//!     cargo run --release -p kinora --example flicker [-- MODEL TINY_AUTOENCODER]
//!
//! Two scenes: one that stands still under a camera's noise, and one that pans. Each is drawn plainly, blended with the frame
//! before, with a memory of the frame before in self-attention, and with both. Without a model, a tiny untrained one draws.

use std::{error::Error, f64::consts::TAU, path::PathBuf};

use kinora::{Device, Live, LiveModel, LiveSettings, LoadOptions, ModelFolder, RgbImage};
use kinora_models::synthetic::{SyntheticImageModel, uniform};
use serde_json::json;

const SIDE: usize = 128;
const FRAMES: usize = 24;
/// The standard deviation of the camera's noise, of 255.
const NOISE: f64 = 4.0;
/// Pixels that the panning scene moves in a frame.
const PAN: usize = 2;

/// A smooth picture, wider than a frame: waves of a few lengths.
fn scene(x: usize, y: usize, colour: usize) -> f64 {
    let waves = [(0.013, 0.021), (0.041, -0.017), (0.008, 0.055), (-0.067, 0.034)];
    let wave = |(i, (a, b)): (usize, &(f64, f64))| {
        (TAU * (a * x as f64 + b * y as f64) + (i * 5 + colour * 2) as f64).sin()
    };
    127.5 + 30.0 * waves.iter().enumerate().map(wave).sum::<f64>()
}

fn frame(number: usize, panning: bool) -> Result<RgbImage, Box<dyn Error>> {
    let shift = if panning { PAN * number } else { 0 };
    // The sum of four uniform numbers is near enough to a normal one; their variance is a third each.
    let noise: Vec<f64> = uniform(&format!("noise of frame {number}")).take(SIDE * SIDE * 12).collect();
    let noise = |i: usize| noise[4 * i..4 * i + 4].iter().sum::<f64>() * (3.0_f64 / 4.0).sqrt() * NOISE;
    let byte = |i: usize| {
        let (x, y) = (i / 3 % SIDE, i / 3 / SIDE);
        (scene(x + shift, y, i % 3) + if panning { 0.0 } else { noise(i) }).round().clamp(0.0, 255.0) as u8
    };
    Ok(RgbImage::new(SIDE, SIDE, (0..SIDE * SIDE * 3).map(byte).collect())?)
}

/// The mean change from frame to frame, of 255.
fn change(frames: &[RgbImage]) -> f64 {
    let of = |pair: &[RgbImage]| {
        let apart: u64 =
            pair[0].bytes().iter().zip(pair[1].bytes()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        apart as f64 / pair[0].bytes().len() as f64
    };
    frames.windows(2).map(of).sum::<f64>() / (frames.len() - 1) as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let given: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [model, tiny] = match given.as_slice() {
        [model, tiny] => [model.clone(), tiny.clone()],
        _ => {
            let [model, tiny] = ["model", "tiny"].map(|name| folder.path().join(name));
            let synthetic = SyntheticImageModel::preset("live").ok_or("there is no such preset")?;
            synthetic.write(&model)?;
            synthetic.write_tiny_vae(&tiny)?;
            [model, tiny]
        }
    };
    let model = LiveModel::new(ModelFolder::open(model)?).tiny_autoencoder(ModelFolder::open(tiny)?);
    let live = Live::new(model, LoadOptions::default().device(Device::Auto))?;
    let plain = live.settings().prompt("a harbour").seed(7).strength(0.5).width(SIDE).height(SIDE);
    let ways: [(&str, LiveSettings); 4] = [
        ("plain", plain.clone()),
        ("blend 0.5", plain.clone().blend(0.5)),
        ("memory 1", plain.clone().memory_frames(1)),
        ("both", plain.blend(0.5).memory_frames(1)),
    ];
    let mut report = Vec::new();
    for (scene, panning) in [("still, with noise", false), ("panning", true)] {
        let inputs: Vec<RgbImage> =
            (0..FRAMES).map(|number| frame(number, panning)).collect::<Result<_, _>>()?;
        let own = change(&inputs);
        for (way, settings) in &ways {
            let mut stream = live.begin(settings.clone())?;
            let drawn: Vec<RgbImage> =
                inputs.iter().map(|input| stream.frame(input)).collect::<Result<_, _>>()?;
            let drawn = change(&drawn);
            println!("{scene:<18} {way:<10} input {own:6.3}  drawn {drawn:6.3}  beyond {:6.3}", drawn - own);
            report.push(
                json!({ "scene": scene, "way": way, "input": own, "drawn": drawn, "beyond": drawn - own }),
            );
        }
    }
    println!("{}", json!({ "device": live.device(), "side": SIDE, "frames": FRAMES, "results": report }));
    Ok(())
}

//! Flicker as a number: how much live video changes from frame to frame beyond what its input changes.
//!
//!     cargo run --release -p kinora --example flicker -- JSON PICTURES [MODEL TINY_AUTOENCODER]
//!
//! Two scenes: one that stands still under a camera's noise, and one that pans. Each is drawn plainly, blended with the frame
//! before, with a memory of the frame before in self-attention, and with both. Without a model, a tiny untrained one draws.
//! The figures go to the file JSON, and the last frames to the folder PICTURES, to look at.
//!
//! `beyond` is the change from frame to frame beyond the input's own; it is negative for an untrained model, whose drawings hardly
//! follow the input, and then says nothing. `of_plain` is the change over that of the plain way: less is calmer. `trail` is how far a way's last frame is from the plain
//! one: what blending and memory cost where something moves. `contrast` is the standard deviation of the last frame's bytes: a
//! model whose pictures are flat, or all black and white, has no flicker to speak of.

use std::{error::Error, f64::consts::TAU, fs, path::PathBuf, time::Instant};

use kinora::{Device, Live, LiveModel, LiveSettings, LoadOptions, ModelFolder, RgbImage, photo};
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

/// The mean difference of two frames, of 255.
fn apart(a: &RgbImage, b: &RgbImage) -> f64 {
    let sum: u64 = a.bytes().iter().zip(b.bytes()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.bytes().len() as f64
}

/// The mean change from frame to frame.
fn change(frames: &[RgbImage]) -> f64 {
    frames.windows(2).map(|pair| apart(&pair[0], &pair[1])).sum::<f64>() / (frames.len() - 1) as f64
}

/// The standard deviation of a frame's bytes.
fn contrast(frame: &RgbImage) -> f64 {
    let (count, bytes) = (frame.bytes().len() as f64, frame.bytes().iter().map(|&byte| f64::from(byte)));
    let mean = bytes.clone().sum::<f64>() / count;
    (bytes.map(|byte| (byte - mean).powi(2)).sum::<f64>() / count).sqrt()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let given: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (output, pictures, [model, tiny]) = match given.as_slice() {
        [output, pictures, model, tiny] => (output, pictures, [model.clone(), tiny.clone()]),
        [output, pictures] => {
            let [model, tiny] = ["model", "tiny"].map(|name| folder.path().join(name));
            let synthetic = SyntheticImageModel::preset("live").ok_or("there is no such preset")?;
            synthetic.write(&model)?;
            synthetic.write_tiny_vae(&tiny)?;
            (output, pictures, [model, tiny])
        }
        _ => return Err("give a file for the figures and a folder for the pictures".into()),
    };
    fs::create_dir_all(pictures)?;
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
        let name =
            |what: &str| pictures.join(format!("{} {what}.png", if panning { "panning" } else { "still" }));
        fs::write(name("input"), photo::to_png(&inputs[FRAMES - 1])?)?;
        let mut first: Option<(RgbImage, f64)> = None;
        for (way, settings) in &ways {
            let mut stream = live.begin(settings.clone())?;
            let start = Instant::now();
            let frames: Vec<RgbImage> =
                inputs.iter().map(|input| stream.frame(input)).collect::<Result<_, _>>()?;
            let milliseconds = start.elapsed().as_secs_f64() * 1e3 / FRAMES as f64;
            let (drawn, last) = (change(&frames), &frames[FRAMES - 1]);
            fs::write(name(way), photo::to_png(last)?)?;
            let (plain, plain_change) = first.get_or_insert_with(|| (last.clone(), drawn));
            let (trail, of_plain) = (apart(last, plain), drawn / *plain_change);
            let (beyond, contrast) = (drawn - own, contrast(last));
            println!(
                "{scene:<18} {way:<10} input {own:6.3}  drawn {drawn:6.3}  beyond {beyond:6.3}  of plain {of_plain:.2}  trail {trail:6.3}  contrast \
                 {contrast:5.1}  {milliseconds:.1} ms"
            );
            report.push(json!({
                "scene": scene, "way": way, "input": own, "drawn": drawn, "beyond": beyond, "of_plain": of_plain, "trail": trail,
                "contrast": contrast, "frame_ms": milliseconds,
            }));
        }
    }
    let model = if given.len() > 2 { "given" } else { "untrained" };
    let report =
        json!({ "model": model, "device": live.device(), "side": SIDE, "frames": FRAMES, "results": report });
    fs::write(output, format!("{report:#}\n"))?;
    Ok(())
}

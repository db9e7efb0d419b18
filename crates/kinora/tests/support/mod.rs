//! Clips to write, how close what was written comes to them, and a device that does little.
// Every test file uses a part of it.
#![allow(dead_code)]

use std::{f64::consts::TAU, path::Path};

use kinora::{
    RgbImage,
    runtime::{Backend, PlannedNetwork, RunError},
    video::{FrameRate, VideoOptions},
};
use kinora_graph::Graph;

/// A photo-like clip: soft gradients and texture of several scales that move, and a bright disc that crosses them.
pub fn clip(width: usize, height: usize, frames: usize) -> Vec<RgbImage> {
    (0..frames).map(|time| picture(width, height, time as f64)).collect()
}

fn picture(width: usize, height: usize, time: f64) -> RgbImage {
    let mut data = Vec::with_capacity(width * height * 3);
    let (disc_x, disc_y) = (width as f64 * 0.3 + 3.0 * time, height as f64 * 0.4 + time);
    let radius = height as f64 / 6.0;
    for y in 0..height {
        for x in 0..width {
            let (x, y) = (x as f64, y as f64);
            let wave = |period: f64, phase: f64| ((x + y * 0.6) / period * TAU + phase).sin();
            let texture = 6.0 * wave(9.0, time * 0.2) * ((y - x * 0.3) / 14.0 * TAU).cos();
            let distance = ((x - disc_x).powi(2) + (y - disc_y).powi(2)).sqrt();
            let disc = (radius - distance).clamp(0.0, 1.0);
            let colour = [
                120.0 + 80.0 * wave(width as f64 * 1.3, time * 0.1) + texture,
                110.0 + 70.0 * (y / height as f64 * TAU * 0.6 + time * 0.05).cos() + texture,
                130.0 + 60.0 * wave(width as f64 * 0.9, 1.0 - time * 0.07),
            ];
            for (channel, bright) in colour.into_iter().zip([245.0, 225.0, 150.0]) {
                data.push((channel * (1.0 - disc) + bright * disc).round().clamp(0.0, 255.0) as u8);
            }
        }
    }
    RgbImage::new(width, height, data).unwrap()
}

pub fn at_rate(frames_per_second: f64) -> VideoOptions {
    VideoOptions::new(FrameRate::new(frames_per_second).unwrap())
}

/// Peak signal-to-noise ratio in decibels.
pub fn psnr(ours: &[u8], theirs: &[u8]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let squares: f64 = ours.iter().zip(theirs).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    10.0 * (255.0 * 255.0 * ours.len() as f64 / squares.max(1e-9)).log10()
}

/// The names in a folder, sorted; hidden ones too.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A device that multiplies in 16 bits at least.
#[derive(Debug)]
pub struct Older;

impl Backend for Older {
    fn describe(&self) -> String {
        "an older card".to_owned()
    }

    fn plan(&self, _: &Graph, _: Option<usize>) -> Result<Box<dyn PlannedNetwork>, RunError> {
        Err(RunError::Internal("nothing is planned".to_owned()))
    }
}

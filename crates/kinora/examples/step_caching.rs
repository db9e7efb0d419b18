//! What step caching gains and costs: the time of a step, and how far the frames are from those of the same clip without it.
//!
//!     cargo run --release -p kinora --example step_caching -- JSON [STILLS]
//!
//! The model in the box animates its first STILLS stills (3 unless said otherwise) in 25 steps with one seed: with every step
//! whole, and with every second, third and fifth one. The figures go to the file JSON:
//!
//! - `psnr` is that of all frames against those of the clip whose steps are all whole, in decibels, by still. Another seed gives
//!   `psnr_of_another_seed`, to compare: that is another clip of the same still.
//! - `step_ms` is the mean of a step, from the medians of whole and of shallow ones; `faster` compares it with the uncached clip,
//!   and `faster_by_flops` the operations.

use std::{error::Error, fs};

use kinora::{
    Device, ImageToVideo, LoadOptions, RgbImage, Settings,
    image_to_video::{Clip, PartEstimate, Report, Stage},
    model_in_the_box, photo,
};
use serde_json::{Value, json};

const INTERVALS: [usize; 4] = [1, 2, 3, 5];
/// Of the outer blocks, with every third step whole.
const BLOCKS: [usize; 3] = [1, 2, 3];
const INTERVAL: usize = 3;
const STEPS: usize = 25;
const SEED: u64 = 7;

/// How near two clips are, in decibels: the peak signal over the noise. `None` if they are equal.
fn psnr(a: &[RgbImage], b: &[RgbImage]) -> Option<f64> {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.bytes().iter().zip(b.bytes()));
    let (mut sum, mut count) = (0u64, 0u64);
    for (a, b) in pairs {
        sum += u64::from(a.abs_diff(*b)).pow(2);
        count += 1;
    }
    (sum > 0).then(|| 10.0 * (255.0f64.powi(2) * count as f64 / sum as f64).log10())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The mean of a step in seconds.
fn step_seconds(settings: &Settings, reports: &[Report]) -> f64 {
    let of = |whole: bool| {
        let steps = reports.iter().flat_map(|report| report.step_seconds.iter().enumerate());
        median(
            steps.filter(|(step, _)| (step % settings.cache == 0) == whole).map(|(_, &time)| time).collect(),
        )
    };
    let (whole, steps) = (settings.whole_steps() as f64, settings.steps as f64);
    (of(true) * whole + of(false) * (steps - whole)) / steps
}

/// The operations of all steps.
fn step_flops(report: &Report) -> f64 {
    let steps = report.plan.parts.iter().filter(|part| part.stage == Stage::Denoise);
    steps.map(|part: &PartEstimate| part.flops as f64 * part.runs as f64).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let (output, count) = match given.as_slice() {
        [output] => (output, 3),
        [output, count] => (output, count.parse()?),
        _ => {
            return Err(
                "give a file for the figures, and perhaps how many stills there are to animate".into()
            );
        }
    };
    let model = model_in_the_box::open()?;
    let base = Settings::for_model(&model)?.steps(STEPS).seed(SEED);
    let pipeline = ImageToVideo::new(model, LoadOptions::default().device(Device::Auto))?;
    let stills: Vec<(&str, RgbImage)> = model_in_the_box::stills()
        .take(count)
        .map(|(name, bytes)| Ok((name, photo::decode(bytes)?)))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let make = |settings: &Settings| -> Result<Vec<Clip>, Box<dyn Error>> {
        let clips = stills.iter().map(|(_, still)| Ok(pipeline.generate(still, settings)?));
        clips.collect()
    };
    let plain = make(&base)?;
    let by_still = |clips: &[Clip]| -> Value {
        let near = |(clip, plain): (&Clip, &Clip)| json!(psnr(&clip.frames, &plain.frames));
        let near = stills.iter().map(|(name, _)| (*name).to_owned()).zip(clips.iter().zip(&plain).map(near));
        Value::Object(near.collect())
    };
    let reports = |clips: &[Clip]| -> Vec<Report> { clips.iter().map(|clip| clip.report.clone()).collect() };
    let plain_step = step_seconds(&base, &reports(&plain));
    let mut results = Vec::new();
    let choices = INTERVALS.map(|interval| (interval, base.cache_blocks)).into_iter();
    let choices = choices.chain(
        BLOCKS.into_iter().filter(|&blocks| blocks != base.cache_blocks).map(|blocks| (INTERVAL, blocks)),
    );
    for (interval, blocks) in choices {
        let settings = base.clone().cache(interval).cache_blocks(blocks);
        let clips = if interval == 1 { plain.clone() } else { make(&settings)? };
        let step = step_seconds(&settings, &reports(&clips));
        let faster_by_flops = step_flops(&plain[0].report) / step_flops(&clips[0].report);
        let near = by_still(&clips);
        println!(
            "interval {interval}, {blocks} outer blocks: {:.1} ms a step, {:.2} times as fast ({faster_by_flops:.2} by operations), \
             {near} dB",
            step * 1e3,
            plain_step / step,
        );
        results.push(json!({
            "interval": interval, "blocks": blocks, "step_ms": step * 1e3, "faster": plain_step / step,
            "faster_by_flops": faster_by_flops, "psnr": near,
        }));
    }
    let other = by_still(&make(&base.clone().seed(SEED + 1))?);
    println!("another seed: {other} dB");
    let Settings { frames, width, height, steps, .. } = base;
    let report = json!({
        "model": "in the box", "device": pipeline.device(), "precision": pipeline.precision(), "frames": frames,
        "width": width, "height": height, "steps": steps, "seed": SEED, "results": results,
        "psnr_of_another_seed": other,
    });
    fs::write(output, format!("{report:#}\n"))?;
    Ok(())
}

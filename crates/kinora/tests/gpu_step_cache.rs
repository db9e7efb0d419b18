//! A cached clip on a GPU is the CPU's.
//!
//! Without a GPU the test says so and does nothing; with `KINORA_REQUIRE_GPU=1` that is a failure.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)]

use std::io::Write;

use kinora::{
    ImageToVideo, RgbImage,
    device::Device,
    image_to_video::{LoadOptions, Precision, Settings},
};
use kinora_models::{folder::ModelFolder, synthetic::SyntheticModel};

#[test]
fn a_cached_clip_is_the_cpus() {
    if let Err(error) = kinora_cuda::driver::Device::open(0) {
        assert!(std::env::var_os("KINORA_REQUIRE_GPU").is_none_or(|value| value != "1"), "{error}");
        // Not by `println`, which a passing test keeps to itself.
        let _ = writeln!(std::io::stderr(), "a_cached_clip_is_the_cpus not run: no GPU ({error})");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    SyntheticModel::preset("tiny").unwrap().write(folder.path()).unwrap();
    let model = ModelFolder::open(folder.path()).unwrap();
    let photo = RgbImage::new(64, 64, (0..64 * 64 * 3).map(|at| (at % 251) as u8).collect()).unwrap();
    let on = |device, precision| {
        let options = LoadOptions::default().device(device).precision(precision).keep_loaded(true);
        ImageToVideo::new(model.clone(), options).unwrap()
    };
    let base = Settings::for_model(&model).unwrap().steps(5).frames(2).decode_chunk(2).seed(1);
    for (precision, bar) in [(Precision::F32, 2e-3), (Precision::F16, 1e-1)] {
        // In the same precision, which draws the same noise.
        let (cpu, gpu) = (on(Device::Cpu, precision), on(Device::Cuda(0), precision));
        for (cache, blocks) in [(2, 1), (3, 2), (5, 4), (1, 2)] {
            // Guided, and with a history.
            for scheduler in [None, Some("dpm++".parse().unwrap())] {
                let settings = base.clone().cache(cache).cache_blocks(blocks).scheduler(scheduler);
                let expected = cpu.generate(&photo, &settings).unwrap();
                let got = gpu.generate(&photo, &settings).unwrap();
                let pairs = got.latents.to_f32().into_iter().zip(expected.latents.to_f32());
                let furthest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                println!("{precision}, cache {cache}, {blocks} blocks: {furthest:.1e} off");
                assert!(furthest <= bar, "{precision}, cache {cache}, {blocks} blocks: {furthest:e} off");
                let again = gpu.generate(&photo, &settings).unwrap();
                assert!(again.latents == got.latents, "{precision}, cache {cache}, {blocks} blocks");
            }
        }
    }
}

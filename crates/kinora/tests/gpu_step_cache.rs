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
    for precision in [Precision::F32, Precision::F16] {
        // In the same precision, which draws the same noise.
        let (cpu, gpu) = (on(Device::Cpu, precision), on(Device::Cuda(0), precision));
        // Guided, and with a history.
        for scheduler in [None, Some("dpm++".parse().unwrap())] {
            let base = base.clone().scheduler(scheduler);
            let distance = |cache, blocks| {
                let settings = base.clone().cache(cache).cache_blocks(blocks);
                let (expected, got) =
                    (cpu.generate(&photo, &settings).unwrap(), gpu.generate(&photo, &settings).unwrap());
                let again = gpu.generate(&photo, &settings).unwrap();
                assert!(again.latents == got.latents, "{precision}, cache {cache}, {blocks} blocks");
                let pairs = got.latents.to_f32().into_iter().zip(expected.latents.to_f32());
                let furthest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                println!("{precision}, cache {cache}, {blocks} blocks: {furthest:.1e} off");
                furthest
            };
            // Steps enlarge what rounding leaves. A clip of whole steps, which other tests compare, says by how much.
            let whole = distance(1, 2);
            assert!(precision == Precision::F16 || whole <= 2e-3, "{whole:e}");
            for (cache, blocks) in [(2, 1), (3, 2), (5, 4)] {
                let cached = distance(cache, blocks);
                assert!(cached <= 2.0 * whole, "{precision}, cache {cache}: {cached:e}, whole {whole:e}");
            }
        }
    }
}

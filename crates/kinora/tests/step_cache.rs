//! Clips whose steps take what the deep blocks gave in an earlier one. That such steps are diffusers' is tested in
//! `crates/models/tests/step_cache.rs`.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;

use kinora::{
    ImageToVideo, RgbImage,
    device::Device,
    image_to_video::{
        Clip, Configs, GenerateError, LoadOptions, Precision, Settings, Stage, estimate_configs,
    },
};
use kinora_models::{folder::ModelFolder, synthetic::SyntheticModel};
use tempfile::TempDir;

struct Studio {
    folder: TempDir,
    settings: Settings,
    photo: RgbImage,
}

impl Studio {
    fn new() -> Studio {
        let folder = tempfile::tempdir().unwrap();
        SyntheticModel::preset("tiny").unwrap().write(folder.path()).unwrap();
        let model = ModelFolder::open(folder.path()).unwrap();
        let settings = Settings::for_model(&model).unwrap().steps(5).frames(2).decode_chunk(2).seed(1);
        let photo = RgbImage::new(64, 64, (0..64 * 64 * 3).map(|at| (at % 251) as u8).collect()).unwrap();
        Studio { folder, settings, photo }
    }

    fn pipeline(&self, options: LoadOptions) -> ImageToVideo {
        ImageToVideo::new(ModelFolder::open(self.folder.path()).unwrap(), options.device(Device::Cpu))
            .unwrap()
    }

    fn make(&self, settings: &Settings) -> Clip {
        self.pipeline(LoadOptions::default()).generate(&self.photo, settings).unwrap()
    }
}

#[test]
fn a_clip_that_caches_nothing_is_the_same_as_ever() {
    let studio = Studio::new();
    let plain = studio.make(&studio.settings);
    assert_eq!((plain.report.settings.cache, plain.report.plan.parts.len()), (1, 4));
    // Neither do outer blocks make a difference then, nor a single step.
    let one = studio.settings.clone().steps(1);
    for (settings, expected) in [
        (studio.settings.clone().cache(1).cache_blocks(1), &plain),
        (one.clone().cache(3), &studio.make(&one)),
    ] {
        let clip = studio.make(&settings);
        assert!(clip.frames == expected.frames && clip.latents == expected.latents);
        assert_eq!(clip.report.plan, expected.report.plan);
    }
}

#[test]
fn a_cached_clip_is_another_one_every_time_the_same() {
    let studio = Studio::new();
    let base = &studio.settings;
    for settings in [
        base.clone(),
        base.clone().max_guidance(1.0),
        // With a history, and with fresh noise.
        base.clone().scheduler(Some("dpm++".parse().unwrap())),
        base.clone().scheduler(Some("lcm".parse().unwrap())),
        base.clone().cache_blocks(1),
    ] {
        let plain = studio.make(&settings.clone().cache(1));
        let cached = settings.cache(3);
        let clip = studio.make(&cached);
        assert!(clip.latents != plain.latents, "{cached:?}");
        assert_eq!(clip.latents.first_non_finite(), None);
        let again = studio.make(&cached);
        assert!(again.latents == clip.latents && again.frames == clip.frames, "{cached:?}");
        assert_eq!(clip.report.step_seconds.len(), 5);
    }
    // Another interval and other outer blocks are other clips, in any precision.
    let of = |cache, blocks| studio.make(&base.clone().cache(cache).cache_blocks(blocks)).latents;
    assert!(of(2, 2) != of(3, 2) && of(3, 1) != of(3, 2));
    let half = studio.pipeline(LoadOptions::default().precision(Precision::F16));
    assert_eq!(
        half.generate(&studio.photo, &base.clone().cache(3)).unwrap().latents.first_non_finite(),
        None
    );
}

#[test]
fn a_cached_clip_can_be_stopped_at_any_step() {
    let studio = Studio::new();
    let pipeline = studio.pipeline(LoadOptions::default());
    for last in 1..=5 {
        let stopped =
            pipeline.generate_with(
                &studio.photo,
                &studio.settings.clone().cache(3),
                |progress| match progress.stage == Stage::Denoise && progress.done == last {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                },
            );
        assert!(matches!(stopped, Err(GenerateError::Cancelled)), "step {last}");
    }
}

#[test]
fn both_networks_stay_for_the_next_clip() {
    let studio = Studio::new();
    let kept = studio.pipeline(LoadOptions::default().keep_loaded(true));
    let cached = studio.settings.clone().cache(2);
    let expected = studio.make(&cached);
    let mut loads = Vec::new();
    for settings in [&cached, &cached, &cached.clone().cache(3), &studio.settings, &cached] {
        let clip = kept.generate(&studio.photo, settings).unwrap();
        loads.push(clip.report.loads.len());
        if *settings == cached {
            assert!(clip.latents == expected.latents);
        }
    }
    assert_eq!(loads, [5, 0, 5, 4, 5]);
}

#[test]
fn the_plan_has_both_networks_and_their_weights_once() {
    for (configs, precision) in [
        (Configs::svd(), Precision::F16),
        (Configs::svd_xt(), Precision::F32),
        (Configs::svd(), Precision::BF16),
    ] {
        let settings = Settings::for_configs(&configs).decode_chunk(2);
        let estimate = |settings: &Settings| estimate_configs(&configs, settings, precision).unwrap();
        let (plain, cached) = (estimate(&settings), estimate(&settings.clone().cache(3)));
        let [whole, shallow] = [2, 3].map(|at| &cached.parts[at]);
        assert_eq!((whole.name, whole.runs), ("UNet", 9));
        assert_eq!((shallow.name, shallow.runs, shallow.stage), ("UNet, shallow", 16, Stage::Denoise));
        assert_eq!(cached.unet(), Some(whole));
        // They are those of whole steps, but for embeddings of the frames' numbers.
        assert!(shallow.weight_bytes < whole.weight_bytes / 10_000, "{}", shallow.weight_bytes);
        let before = plain.unet().unwrap();
        assert_eq!((whole.flops, whole.parameters), (before.flops, before.parameters));
        assert!(whole.weight_bytes == before.weight_bytes && shallow.parameters < whole.parameters);
        assert_eq!(cached.parameters(), plain.parameters());
        // 25 steps, 9 of them whole: 1.9 times as fast by the operations.
        let steps = (whole.flops * 9 + shallow.flops * 16) as f64;
        let faster = (before.flops * 25) as f64 / steps;
        assert!((1.85..2.0).contains(&faster), "{faster}");
        // Both are there at once, with what is kept: 28 or 50 images of 72 × 128 and 320 channels.
        let kept = 2 * settings.frames * 72 * 128 * 320 * if precision == Precision::F32 { 4 } else { 2 };
        assert!(shallow.arena_bytes > 2 * kept);
        let denoising = whole.peak_bytes() + shallow.peak_bytes();
        assert_eq!(cached.peak_bytes(), denoising + cached.working_bytes);
        assert!(plain.peak_bytes() < cached.peak_bytes());
    }
}

#[test]
fn a_cached_clip_takes_no_more_than_its_budget() {
    let studio = Studio::new();
    // The UNet needs the most.
    let settings = studio.settings.clone().cache(2).frames(24).decode_chunk(1);
    let free = studio.pipeline(LoadOptions::default());
    let need = free.estimate(&settings).unwrap().peak_bytes();
    let plain = free.estimate(&settings.clone().cache(1)).unwrap().peak_bytes();
    assert!(plain < need);
    let within = |budget| {
        studio.pipeline(LoadOptions::default().memory_budget(budget)).generate(&studio.photo, &settings)
    };
    let clip = within(need).unwrap();
    assert_eq!(clip.report.plan.peak_bytes(), need);
    let Err(GenerateError::OverBudget { over, suggestion }) = within(need - 1) else {
        panic!("it does not fit")
    };
    assert_eq!((over.part, over.need, over.budget), ("UNet", need, need - 1));
    assert_eq!(over.weights + over.activations + over.working, need);
    let suggestion = suggestion.unwrap();
    assert_eq!((suggestion.cache, suggestion.decode_chunk), (Some(1), None));
    assert_eq!((suggestion.peak_bytes, suggestion.to_string().as_str()), (plain, "no step caching"));
}

#[test]
fn intervals_and_blocks_that_make_no_sense_are_refused() {
    let configs = Configs::svd();
    let refused = |change: fn(&mut Settings)| {
        let mut settings = Settings::for_configs(&configs);
        change(&mut settings);
        estimate_configs(&configs, &settings, Precision::F32).unwrap_err().to_string()
    };
    assert_eq!(refused(|s| s.cache = 0), "cache is 0, but it must be from 1 to 10000");
    assert!(refused(|s| s.cache = usize::MAX).starts_with("cache is "));
    assert_eq!(refused(|s| s.cache_blocks = 0), "cache blocks is 0, but it must be from 1 to 12");
    assert_eq!(refused(|s| s.cache_blocks = 13), "cache blocks is 13, but it must be from 1 to 12");
}

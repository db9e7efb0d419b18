//! Networks that stay in memory from one clip to the next.
#![allow(clippy::unwrap_used)]

use std::{ops::ControlFlow, path::Path};

use kinora::{
    RgbImage,
    device::Device,
    image_to_video::{Clip, GenerateError, ImageToVideo, LoadOptions, Settings, Stage},
};
use kinora_models::{folder::ModelFolder, synthetic::SyntheticModel};
use tempfile::TempDir;

/// On the CPU, in f32.
fn fresh() -> LoadOptions {
    LoadOptions::default().device(Device::Cpu)
}

fn keep() -> LoadOptions {
    fresh().keep_loaded(true)
}

fn tiny() -> (TempDir, Settings) {
    let folder = tempfile::tempdir().unwrap();
    SyntheticModel::preset("tiny").unwrap().write(folder.path()).unwrap();
    let model = ModelFolder::open(folder.path()).unwrap();
    // A chunk and a rest: two decoders.
    let settings = Settings::for_model(&model).unwrap().steps(2).frames(3).decode_chunk(2).seed(1);
    (folder, settings)
}

fn pipeline(folder: &Path, options: LoadOptions) -> ImageToVideo {
    ImageToVideo::new(ModelFolder::open(folder).unwrap(), options).unwrap()
}

fn photo(level: u8) -> RgbImage {
    RgbImage::new(2, 1, vec![0, 50, 100, 150, 200, level]).unwrap()
}

/// A clip, and how many networks were loaded for it.
fn clip(pipeline: &ImageToVideo, photo: &RgbImage, settings: &Settings) -> (Clip, usize) {
    let mut loaded = 0;
    let clip = pipeline.generate_with(photo, settings, |progress| {
        if progress.stage == Stage::Load {
            loaded = loaded.max(progress.done);
        }
        ControlFlow::Continue(())
    });
    (clip.unwrap(), loaded)
}

#[test]
fn a_clip_of_the_same_shape_loads_nothing_and_is_the_same() {
    let (folder, settings) = tiny();
    let kept = pipeline(folder.path(), keep());
    let fresh = || pipeline(folder.path(), fresh());
    assert_eq!(clip(&kept, &photo(250), &settings).1, 5);
    // What does not shape the networks may differ.
    let other = settings
        .clone()
        .seed(2)
        .fps(12)
        .motion_bucket(40)
        .noise_augmentation(0.3)
        .min_guidance(1.5)
        .max_guidance(2.0);
    for (level, settings) in [(250, &settings), (10, &settings), (10, &other)] {
        let (again, loaded) = clip(&kept, &photo(level), settings);
        let (expected, all) = clip(&fresh(), &photo(level), settings);
        assert_eq!((loaded, all), (0, 5));
        assert!(again.frames == expected.frames && again.latents == expected.latents);
        assert!(again.report.stages.iter().all(|time| time.stage != Stage::Load));
    }
}

#[test]
fn without_the_option_every_clip_loads() {
    let (folder, settings) = tiny();
    let pipeline = pipeline(folder.path(), fresh());
    let first = clip(&pipeline, &photo(250), &settings);
    let second = clip(&pipeline, &photo(250), &settings);
    assert_eq!((first.1, second.1), (5, 5));
    assert!(first.0.frames == second.0.frames);
}

#[test]
fn another_shape_is_loaded_again() {
    let (folder, settings) = tiny();
    let kept = pipeline(folder.path(), keep());
    let shapes = [
        (settings.clone().frames(2), 4),
        (settings.clone().steps(3), 5),
        (settings.clone().width(128), 5),
        (settings.clone().height(128), 5),
        (settings.clone().decode_chunk(3), 4),
        (settings.clone().max_guidance(1.0), 5),
        (settings.clone().scheduler(Some("lcm".parse().unwrap())), 5),
        (settings, 5),
    ];
    for (settings, networks) in shapes {
        let (made, loaded) = clip(&kept, &photo(250), &settings);
        assert_eq!(loaded, networks, "{settings:?}");
        let (expected, _) = clip(&pipeline(folder.path(), fresh()), &photo(250), &settings);
        assert!(made.frames == expected.frames, "{settings:?}");
    }
}

/// Two ways to ask for the same clip, and a clip that cannot be made: neither throws away what was kept.
#[test]
fn what_is_kept_is_not_thrown_away_for_nothing() {
    let (folder, settings) = tiny();
    let all = settings.decode_chunk(3);
    let need = pipeline(folder.path(), keep()).estimate(&all).unwrap().peak_bytes();
    let kept = pipeline(folder.path(), keep().memory_budget(need));
    assert_eq!(clip(&kept, &photo(250), &all).1, 4);
    let more = all.clone().decode_chunk(8);
    let named = all.clone().scheduler(Some("euler".parse().unwrap()));
    assert_eq!((clip(&kept, &photo(250), &more).1, clip(&kept, &photo(250), &named).1), (0, 0));
    let huge = all.clone().width(1024).height(1024);
    let refused = kept.generate(&photo(250), &huge);
    assert!(matches!(refused, Err(GenerateError::OverBudget { .. })));
    assert_eq!(clip(&kept, &photo(250), &all).1, 0);
}

#[test]
fn a_budget_that_does_not_hold_all_networks_keeps_none() {
    let (folder, settings) = tiny();
    let together = pipeline(folder.path(), keep()).estimate(&settings).unwrap();
    let networks = together.parts.iter().map(|part| part.peak_bytes()).sum::<usize>();
    assert_eq!(together.peak_bytes(), networks + together.working_bytes);
    for (budget, second) in [(together.peak_bytes(), 0), (together.peak_bytes() - 1, 5)] {
        let limited = pipeline(folder.path(), keep().memory_budget(budget));
        let (first, _) = clip(&limited, &photo(250), &settings);
        assert_eq!(clip(&limited, &photo(250), &settings).1, second);
        assert!(first.report.plan.peak_bytes() <= budget);
        assert_eq!(first.report.plan, limited.estimate(&settings).unwrap());
    }
}

#[test]
fn a_clip_that_was_stopped_leaves_what_it_had_loaded() {
    let (folder, settings) = tiny();
    for (options, left) in [(keep(), 2), (fresh(), 5)] {
        let pipeline = pipeline(folder.path(), options);
        let stopped = pipeline.generate_with(&photo(250), &settings, |progress| {
            match progress.stage == Stage::Denoise && progress.done == 1 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        assert!(matches!(stopped, Err(GenerateError::Cancelled)));
        assert_eq!(clip(&pipeline, &photo(250), &settings).1, left);
    }
}

#[test]
fn two_clips_at_a_time_do_not_disturb_each_other() {
    let (folder, settings) = tiny();
    let kept = pipeline(folder.path(), keep());
    let other = settings.clone().seed(2);
    let alone = [&settings, &other].map(|settings| clip(&kept, &photo(250), settings).0.frames);
    let together = std::thread::scope(|scope| {
        [&settings, &other]
            .map(|settings| scope.spawn(|| clip(&kept, &photo(250), settings).0.frames))
            .map(|thread| thread.join().unwrap())
    });
    assert!(alone == together);
}

//! A finished clip as a file, and a look at it before it is finished.
#![allow(clippy::unwrap_used)]

use std::fs;

use kinora::{
    ImageToVideo, RgbImage,
    image_to_video::{Clip, LoadOptions, Settings},
    video::VideoError,
};
use kinora_models::{folder::ModelFolder, synthetic::SyntheticModel};

fn clip(fps: usize) -> Clip {
    let folder = tempfile::tempdir().unwrap();
    SyntheticModel::preset("tiny").unwrap().write(folder.path()).unwrap();
    let model = ModelFolder::open(folder.path()).unwrap();
    let settings = Settings::for_model(&model).unwrap().steps(1).frames(3).seed(1).fps(fps);
    let photo = RgbImage::new(2, 1, vec![0, 50, 100, 150, 200, 250]).unwrap();
    ImageToVideo::new(model, LoadOptions::default()).unwrap().generate(&photo, &settings).unwrap()
}

#[test]
fn a_clip_saves_itself_and_never_over_a_file_unless_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let clip = clip(9);
    let written = clip.save(path("clip.y4m")).unwrap();
    assert_eq!((written.frames, &*written.files), (3, &[path("clip.y4m")][..]));
    assert!(fs::read(path("clip.y4m")).unwrap().starts_with(b"YUV4MPEG2 W64 H64 F9:1"));
    assert_eq!(clip.save(path("clip.png")).unwrap().files.len(), 3);

    fs::write(path("clip.gif"), "mine").unwrap();
    assert!(matches!(clip.save(path("clip.gif")), Err(VideoError::Exists { .. })));
    assert_eq!(fs::read(path("clip.gif")).unwrap(), b"mine");
    clip.save_with(path("clip.gif"), &clip.video_options().unwrap().overwrite(true)).unwrap();
    assert!(fs::read(path("clip.gif")).unwrap().starts_with(b"GIF89a"));
    assert!(matches!(clip.save(path("clip.avi")), Err(VideoError::UnknownFormat { .. })));
}

#[test]
fn a_frame_rate_that_no_file_has_is_refused_when_saving() {
    let folder = tempfile::tempdir().unwrap();
    let refused = clip(2000).save(folder.path().join("clip.mp4"));
    assert!(matches!(refused, Err(VideoError::FrameRate { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_report_has_the_rate_of_generation() {
    let clip = clip(7);
    let report = serde_json::to_value(&clip.report).unwrap();
    let figure = |name: &str| report[name].as_f64().unwrap();
    let seconds = figure("seconds");
    assert!((figure("seconds_per_frame") * 3.0 / seconds - 1.0).abs() < 1e-9);
    assert!((figure("generated_frames_per_second") * seconds / 3.0 - 1.0).abs() < 1e-9);
}

/// Of a trained model, the preview of the last step is the clip in small.
#[test]
#[cfg(feature = "model-in-the-box")]
fn previews_are_small_pictures_of_the_clip() {
    use kinora::model_in_the_box;

    let model = model_in_the_box::open().unwrap();
    let settings = Settings::for_model(&model).unwrap().seed(7);
    let pipeline = ImageToVideo::new(model, LoadOptions::default()).unwrap();
    let mut previews = Vec::new();
    let clip = pipeline
        .generate_with(&model_in_the_box::still().unwrap(), &settings, |progress| {
            previews.extend(progress.preview.map(|preview| preview.frames()));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(previews.len(), settings.steps);
    let last = previews.last().unwrap();
    assert_eq!(last.len(), clip.frames.len());
    let distance = |preview: &RgbImage, frame: &RgbImage| {
        let small = frame.resize_lanczos(preview.width(), preview.height()).unwrap();
        let squares =
            small.bytes().iter().zip(preview.bytes()).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2));
        (squares.sum::<f64>() / small.bytes().len() as f64).sqrt()
    };
    for (preview, frame) in last.iter().zip(&clip.frames) {
        assert_eq!((preview.width(), preview.height()), (16, 16));
        assert!(distance(preview, frame) < 25.0, "off by {:.1} of 255", distance(preview, frame));
    }
    // A grey picture is much further away.
    let grey = RgbImage::new(16, 16, vec![128; 16 * 16 * 3]).unwrap();
    assert!(distance(&grey, &clip.frames[0]) > 2.0 * distance(&last[0], &clip.frames[0]));
}

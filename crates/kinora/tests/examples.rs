//! The examples do what they say.
#![cfg(feature = "model-in-the-box")]
#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code)]
#[path = "../examples/clip.rs"]
mod clip;

#[test]
fn the_clip_in_ten_lines_is_a_video() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    clip::make_clip(&path).unwrap();
    let video = re_mp4::Mp4::read_bytes(&std::fs::read(&path).unwrap()).unwrap();
    let track = video.tracks().values().next().unwrap();
    assert_eq!((track.width, track.height, track.samples.len()), (128, 128, 14));
}

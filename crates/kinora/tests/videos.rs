//! GIF, PNG and Y4M files read back, and everything that can be wrong with a place to write to.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{fs, path::Path};

use kinora::{
    RgbImage,
    video::{FrameRate, VideoError, VideoFile, VideoFormat, VideoOptions, WrittenVideo},
};
use support::{at_rate, clip, names, psnr};

fn write(path: &Path, frames: &[RgbImage], options: &VideoOptions) -> Result<WrittenVideo, VideoError> {
    let mut file = VideoFile::create(path, options)?;
    for frame in frames {
        file.write_frame(frame)?;
    }
    file.finish()
}

fn overwriting() -> VideoOptions {
    at_rate(7.0).overwrite(true)
}

#[test]
fn a_gif_repeats_for_ever_and_looks_like_its_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.gif");
    let frames = clip(160, 90, 8);
    write(&path, &frames, &at_rate(24.0)).unwrap();
    assert_eq!(names(folder.path()), ["clip.gif"]);

    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::RGBA);
    let mut decoder = options.read_info(fs::File::open(&path).unwrap()).unwrap();
    let mut delays = Vec::new();
    let mut worst = f64::INFINITY;
    for frame in &frames {
        let found = decoder.read_next_frame().unwrap().unwrap();
        assert_eq!((found.width, found.height), (160, 90));
        delays.push(found.delay);
        let rgb: Vec<u8> = found.buffer.chunks(4).flat_map(|pixel| &pixel[..3]).copied().collect();
        worst = worst.min(psnr(&rgb, frame.bytes()));
    }
    assert!(decoder.read_next_frame().unwrap().is_none());
    assert_eq!(decoder.repeat(), gif::Repeat::Infinite);
    assert_eq!(delays, [4, 4, 5, 4, 4, 4, 4, 4]);
    println!("worst frame {worst:.2} dB");
    assert!(worst > 30.0, "{worst} dB");
}

#[test]
fn a_gif_of_few_colours_is_exact() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.gif");
    let data: Vec<u8> = (0..=255_u8).flat_map(|value| [value, 255 - value, value / 2]).collect();
    let frames = [RgbImage::new(16, 16, data).unwrap(), RgbImage::new(16, 16, vec![7; 768]).unwrap()];
    write(&path, &frames, &at_rate(10.0)).unwrap();
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::RGBA);
    let mut decoder = options.read_info(fs::File::open(&path).unwrap()).unwrap();
    for frame in &frames {
        let found = decoder.read_next_frame().unwrap().unwrap();
        let rgb: Vec<u8> = found.buffer.chunks(4).flat_map(|pixel| &pixel[..3]).copied().collect();
        assert!(rgb == frame.bytes());
    }
}

#[test]
fn rates_that_a_gif_cannot_keep_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (rate, words) in [(60.0, "at most 50"), (0.001, "at most 655 seconds")] {
        let message =
            VideoFile::create(folder.path().join("clip.gif"), &at_rate(rate)).err().unwrap().to_string();
        assert!(message.contains(words) && message.contains(".mp4"), "{message}");
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn png_files_are_numbered_and_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let frames = clip(33, 21, 3);
    let written = write(&folder.path().join("my.clip.PNG"), &frames, &at_rate(7.0)).unwrap();
    let frames_and_manifest = names(folder.path());
    assert_eq!(
        frames_and_manifest,
        [".my.clip.PNG.kinora", "my.clip-0001.PNG", "my.clip-0002.PNG", "my.clip-0003.PNG"]
    );
    assert_eq!(
        written.files,
        frames_and_manifest[1..].iter().map(|name| folder.path().join(name)).collect::<Vec<_>>()
    );
    for (path, frame) in written.files.iter().zip(&frames) {
        let image = image::load_from_memory(&fs::read(path).unwrap()).unwrap();
        assert_eq!(image.color(), image::ColorType::Rgb8);
        assert!(image.as_bytes() == frame.bytes());
    }
}

#[test]
fn overwriting_numbered_files_replaces_the_whole_clip_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.png");
    write(&path, &clip(20, 20, 5), &at_rate(7.0)).unwrap();
    for name in
        ["clip-1.png", "clip-00001.png", "clip-0002.jpg", "other-0004.png", "clip-0000.png", "clip-0007.png"]
    {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let new = clip(10, 12, 2);
    assert!(matches!(write(&path, &new, &at_rate(7.0)), Err(VideoError::Exists { .. })));
    write(&path, &new, &overwriting()).unwrap();
    assert_eq!(
        names(folder.path()),
        [
            ".clip.png.kinora",
            "clip-0000.png",
            "clip-00001.png",
            "clip-0001.png",
            "clip-0002.jpg",
            "clip-0002.png",
            // Beyond a gap: no part of the clip.
            "clip-0007.png",
            "clip-1.png",
            "other-0004.png"
        ]
    );
    assert_eq!(image::open(folder.path().join("clip-0002.png")).unwrap().height(), 12);
}

/// Only a number that will be written is in the way, and it is found before the work where the frames are known.
#[test]
fn numbered_files_are_in_the_way_where_the_clip_reaches_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.png");
    fs::write(folder.path().join("clip-0003.png"), "mine").unwrap();
    let counted = |frames| at_rate(7.0).frames(Some(frames));
    let error = VideoFile::create(&path, &counted(3)).err().unwrap();
    assert!(matches!(&error, VideoError::Exists { path } if path.ends_with("clip-0003.png")), "{error}");
    write(&path, &clip(20, 20, 2), &counted(2)).unwrap();
    assert_eq!(names(folder.path()), [".clip.png.kinora", "clip-0001.png", "clip-0002.png", "clip-0003.png"]);
    // A gap does not protect what the clip itself replaces.
    fs::remove_file(folder.path().join("clip-0002.png")).unwrap();
    write(&path, &clip(20, 20, 4), &overwriting()).unwrap();
    assert_eq!(image::open(folder.path().join("clip-0003.png")).unwrap().height(), 20);
    assert_eq!(names(folder.path()).len(), 5);
}

#[cfg(target_os = "linux")]
#[test]
fn names_need_not_be_unicode() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let path = |bytes: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(bytes));
    // Another file, though the two are the same to someone who cannot read them.
    fs::write(path(b"clip\xFE-0001.png"), "mine").unwrap();
    for _ in 0..2 {
        write(&path(b"clip\xFF.png"), &clip(20, 20, 2), &overwriting()).unwrap();
    }
    assert_eq!(fs::read(path(b"clip\xFE-0001.png")).unwrap(), b"mine");
    // And the manifest.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

/// A file that takes a frame's name while the clip is computed is kept, and no other frame of the clip stays.
#[test]
fn numbered_files_appear_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.png");
    let mut file = VideoFile::create(&path, &at_rate(7.0)).unwrap();
    clip(20, 20, 4).iter().for_each(|frame| file.write_frame(frame).unwrap());
    fs::write(folder.path().join("clip-0003.png"), "mine").unwrap();
    let error = file.finish().unwrap_err();
    assert!(matches!(&error, VideoError::Exists { path } if path.ends_with("clip-0003.png")), "{error}");
    assert_eq!(names(folder.path()), ["clip-0003.png"]);
    assert_eq!(fs::read(folder.path().join("clip-0003.png")).unwrap(), b"mine");

    // A folder cannot be replaced even when overwriting; the old clip comes back.
    fs::write(folder.path().join("clip-0001.png"), "old").unwrap();
    fs::remove_file(folder.path().join("clip-0003.png")).unwrap();
    let mut file = VideoFile::create(&path, &overwriting()).unwrap();
    clip(20, 20, 4).iter().for_each(|frame| file.write_frame(frame).unwrap());
    fs::create_dir(folder.path().join("clip-0002.png")).unwrap();
    assert!(file.finish().is_err());
    assert_eq!(names(folder.path()), ["clip-0001.png", "clip-0002.png"]);
    assert_eq!(fs::read(folder.path().join("clip-0001.png")).unwrap(), b"old");
}

#[test]
fn y4m_has_its_header_and_planes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.y4m");
    let frames = clip(31, 17, 2);
    write(&path, &frames, &at_rate(23.976)).unwrap();
    let bytes = fs::read(&path).unwrap();
    let header = b"YUV4MPEG2 W31 H17 F24000:1001 Ip A1:1 C444 XCOLORRANGE=LIMITED\n";
    let mut rest = bytes.strip_prefix(header).unwrap();
    for frame in &frames {
        let (planes, after) = rest.strip_prefix(b"FRAME\n").unwrap().split_at(31 * 17 * 3);
        rest = after;
        let plane =
            |number: usize| planes.chunks(31 * 17).nth(number).unwrap().iter().map(|value| f64::from(*value));
        // Back to RGB by the inverse of BT.601.
        let rgb: Vec<u8> = plane(0)
            .zip(plane(1).zip(plane(2)))
            .flat_map(|(luma, (blue, red))| {
                let (luma, blue, red) = (1.164384 * (luma - 16.0), blue - 128.0, red - 128.0);
                [luma + 1.596027 * red, luma - 0.391762 * blue - 0.812968 * red, luma + 2.017232 * blue]
            })
            .map(|value| value.round().clamp(0.0, 255.0) as u8)
            .collect();
        let most = rgb.iter().zip(frame.bytes()).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        assert!(most <= 2, "off by {most}");
    }
    assert!(rest.is_empty());
}

#[test]
fn raw_rgb_is_the_frames_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.rgb");
    let frames = clip(31, 17, 2);
    write(&path, &frames, &at_rate(7.0)).unwrap();
    assert!(fs::read(&path).unwrap() == [frames[0].bytes(), frames[1].bytes()].concat());
    // The name says one thing, the options another.
    let path = folder.path().join("clip.data");
    write(&path, &frames[..1], &at_rate(7.0).format(VideoFormat::Raw)).unwrap();
    assert!(fs::read(&path).unwrap() == frames[0].bytes());
}

#[test]
fn what_a_pipe_cannot_hold_is_refused() {
    for format in [VideoFormat::Mp4, VideoFormat::Gif, VideoFormat::Png] {
        let error = VideoFile::create("-", &at_rate(7.0).format(format)).err().unwrap().to_string();
        assert!(error.contains(format.name()) && error.contains("standard output"), "{error}");
    }
}

#[test]
fn one_pixel_is_a_picture_too() {
    let folder = tempfile::tempdir().unwrap();
    let frame = RgbImage::new(1, 1, vec![1, 2, 3]).unwrap();
    for name in ["clip.gif", "clip.png", "clip.y4m"] {
        write(&folder.path().join(name), std::slice::from_ref(&frame), &at_rate(7.0)).unwrap();
    }
    assert_eq!(names(folder.path()), [".clip.png.kinora", "clip-0001.png", "clip.gif", "clip.y4m"]);
}

#[test]
fn what_is_dropped_before_it_is_finished_leaves_nothing() {
    for name in ["clip.mp4", "clip.gif", "clip.png", "clip.y4m", "clip.rgb"] {
        let folder = tempfile::tempdir().unwrap();
        let mut file = VideoFile::create(folder.path().join(name), &at_rate(7.0)).unwrap();
        clip(32, 32, 2).iter().for_each(|frame| file.write_frame(frame).unwrap());
        let waiting = names(folder.path());
        assert!(waiting.len() == 1 && waiting[0].starts_with(".kinora-"), "{waiting:?}");
        assert!(waiting[0].ends_with(".partial"), "{waiting:?}");
        drop(file);
        assert!(names(folder.path()).is_empty(), "{name}");
    }
}

#[test]
fn an_existing_file_is_kept_unless_asked() {
    for name in ["clip.mp4", "clip.gif", "clip.y4m", "clip.rgb"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, "mine").unwrap();
        let error = VideoFile::create(&path, &at_rate(7.0)).err().unwrap();
        assert!(error.to_string().contains("exists already"), "{error}");
        assert_eq!(
            (names(folder.path()), fs::read(&path).unwrap()),
            (vec![name.to_owned()], b"mine".to_vec())
        );
        // Until the end the old file stays.
        let mut file = VideoFile::create(&path, &overwriting()).unwrap();
        file.write_frame(&clip(32, 32, 1)[0]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        file.finish().unwrap();
        assert!(fs::read(&path).unwrap().len() > 100);
        assert_eq!(names(folder.path()), [name]);
    }
}

#[test]
fn a_file_that_appears_meanwhile_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    let mut file = VideoFile::create(&path, &at_rate(7.0)).unwrap();
    file.write_frame(&clip(32, 32, 1)[0]).unwrap();
    fs::write(&path, "mine").unwrap();
    assert!(matches!(file.finish(), Err(VideoError::Exists { .. })));
    assert_eq!(
        (names(folder.path()), fs::read(&path).unwrap()),
        (vec!["clip.mp4".to_owned()], b"mine".to_vec())
    );
}

#[test]
fn places_that_cannot_be_written_to_are_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "").unwrap();
    fs::create_dir(path("folder.mp4")).unwrap();
    let before = names(folder.path());
    let long = format!("{}.mp4", "x".repeat(300));
    for (path, words) in [
        (path("clip.avi"), [".mp4, .gif", "clip.avi"]),
        (path("clip"), [".mp4, .gif", "clip"]),
        (path("absent/clip.mp4"), ["no folder", "create it first"]),
        (path("absent/clip.png"), ["no folder", "create it first"]),
        (path("file/clip.mp4"), ["cannot write", "clip.mp4"]),
        (path("file/clip.png"), ["cannot write", "clip-0001.png"]),
        (path("folder.mp4"), ["is a folder", "name of a file"]),
        (path("new.mp4/"), ["is a folder", "new.mp4/"]),
        (path("new.png/."), ["is a folder", "new.png/."]),
        (path(&long), ["cannot write", "choose another"]),
    ] {
        let message = VideoFile::create(&path, &overwriting()).err().unwrap().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    assert_eq!(names(folder.path()), before);
}

#[cfg(unix)]
#[test]
fn a_folder_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let locked = folder.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    // The administrator may write there all the same.
    if fs::write(locked.join("probe"), "").is_err() {
        for name in ["clip.mp4", "clip.png"] {
            let message = VideoFile::create(locked.join(name), &at_rate(7.0)).err().unwrap().to_string();
            assert!(message.contains("cannot write") && message.contains(name), "{message}");
        }
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
#[test]
fn the_result_has_the_permissions_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    fs::write(folder.path().join("usual"), "").unwrap();
    for name in ["clip.mp4", "clip.png"] {
        write(&folder.path().join(name), &clip(32, 32, 1), &at_rate(7.0)).unwrap();
    }
    assert_eq!((mode("clip.mp4"), mode("clip-0001.png")), (mode("usual"), mode("usual")));
}

#[test]
fn frames_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = VideoFile::create(folder.path().join("clip.gif"), &at_rate(7.0)).unwrap();
    file.write_frame(&clip(32, 32, 1)[0]).unwrap();
    let message = file.write_frame(&clip(32, 31, 1)[0]).unwrap_err().to_string();
    assert!(message.contains("frame 2 has 32×31") && message.contains("32×32"), "{message}");
    assert!(names(folder.path()).is_empty(), "an error ends the video");
    assert!(matches!(file.write_frame(&clip(32, 32, 1)[0]), Err(VideoError::Abandoned { .. })));
    assert!(matches!(file.finish(), Err(VideoError::Abandoned { .. })));

    assert_eq!(RgbImage::new(1, 1, vec![1, 2, 3]).unwrap().into_bytes(), [1, 2, 3]);
    for (width, height, bytes) in [(2, 2, 11), (0, 4, 0), (usize::MAX, 2, 6)] {
        let message = RgbImage::new(width, height, vec![0; bytes]).unwrap_err().to_string();
        assert!(message.contains(&format!("{width}×{height}")), "{message}");
    }
}

#[test]
fn options_out_of_range_and_empty_videos_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for quality in [0, 101] {
        let options = at_rate(7.0).quality(quality);
        let message = VideoFile::create(folder.path().join("clip.mp4"), &options).err().unwrap().to_string();
        assert!(message.contains("1 (smallest file) to 100"), "{message}");
    }
    assert!(FrameRate::new(0.0).is_err());
    for name in ["clip.mp4", "clip.gif", "clip.png", "clip.y4m", "clip.rgb"] {
        let message = write(&folder.path().join(name), &[], &at_rate(7.0)).unwrap_err().to_string();
        assert!(message.contains("at least one"), "{message}");
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn the_extension_chooses_the_format() {
    for (path, format) in [
        ("a.mp4", VideoFormat::Mp4),
        ("a.b.GIF", VideoFormat::Gif),
        ("/x/a.Png", VideoFormat::Png),
        ("a.y4m", VideoFormat::Y4m),
        ("-", VideoFormat::Y4m),
    ] {
        assert_eq!(VideoFormat::from_path(Path::new(path)).unwrap(), format);
    }
    assert!(VideoFormat::from_path(Path::new("mp4")).is_err());
}

//! Videos that ffmpeg made, beside what ffmpeg's own decoder sees in them; and sound that is copied.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
};

use kinora::{
    RgbImage,
    video::{
        FrameRate, VideoError, VideoFile, VideoOptions,
        input::{self, Frame, InputError, InputOptions, Timing, VideoInfo},
    },
};
use re_mp4::{Mp4, TrackKind};
use support::{at_rate, clip, psnr};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/videos").join(name)
}

/// What is known of a video, its frames, and how it ended.
fn read(path: &Path) -> (VideoInfo, Vec<Frame>, Result<(), InputError>) {
    let mut video = input::open(path, &InputOptions::new()).unwrap();
    let info = video.info().clone();
    let mut frames = Vec::new();
    let end = loop {
        match video.next_frame() {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    assert!(video.next_frame().unwrap().is_none(), "nothing comes after the end");
    (info, frames, end)
}

fn read_whole(name: &str) -> (VideoInfo, Vec<Frame>) {
    let (info, frames, end) = read(&fixture(name));
    end.unwrap();
    (info, frames)
}

/// The times that ffmpeg gives the frames of a video, in seconds.
fn times(name: &str) -> Vec<f64> {
    let cases: serde_json::Value =
        serde_json::from_slice(&fs::read(fixture("videos.json")).unwrap()).unwrap();
    let case = cases.as_array().unwrap().iter().find(|case| case["name"] == name).unwrap();
    case["times"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect()
}

fn assert_times(name: &str, frames: &[Frame]) {
    let expected = times(name);
    assert_eq!(frames.len(), expected.len(), "{name}");
    for (frame, time) in frames.iter().zip(&expected) {
        let off = (frame.time.as_secs_f64() - (time - expected[0])).abs();
        assert!(off < 2e-6, "{name}: {:?}, not {time}", frame.time);
    }
}

/// The frames that ffmpeg shows, each `height` high.
fn shown(name: &str, height: u32) -> Vec<Vec<u8>> {
    let all = image::open(fixture(name)).unwrap().into_rgb8();
    let bytes = (all.width() * height * 3) as usize;
    all.into_raw().chunks(bytes).map(<[u8]>::to_vec).collect()
}

/// The planes that ffmpeg's decoder gives, as a Y4M file that says the same about chroma and range.
fn planes_as_y4m(name: &str, [width, height]: [usize; 2], range: &str, folder: &Path) -> PathBuf {
    let planes = image::open(fixture(name)).unwrap().into_luma8().into_raw();
    let mut bytes =
        format!("YUV4MPEG2 W{width} H{height} F25:1 C420mpeg2 XCOLORRANGE={range}\n").into_bytes();
    for frame in planes.chunks(width * height * 3 / 2) {
        bytes.extend(b"FRAME\n");
        bytes.extend(frame);
    }
    let path = folder.join("planes.y4m");
    fs::write(&path, bytes).unwrap();
    path
}

/// H.264 decoders agree in every bit. Both sets of planes take the same way to RGB, so the frames are equal, luma and chroma.
#[test]
fn every_bit_is_what_ffmpeg_decodes() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plain", "reordered"] {
        let (info, frames) = read_whole(&format!("{name}.mp4"));
        assert_eq!((info.format, info.width, info.height, info.frames), ("MP4", 48, 32, Some(8)));
        assert_eq!(info.timing, Timing::Constant(FrameRate::new(25.0).unwrap()));
        assert!(info.notes.is_empty() && !info.has_audio, "{info:?}");
        assert_times(&format!("{name}.mp4"), &frames);
        let planes = planes_as_y4m(&format!("{name}.yuv.png"), [48, 32], "LIMITED", folder.path());
        let (_, expected, _) = read(&planes);
        assert_eq!(expected.len(), 8);
        for (number, (ours, theirs)) in frames.iter().zip(&expected).enumerate() {
            assert!(ours.image == theirs.image, "{name}: frame {number}");
        }
    }
}

/// The largest difference of two pictures' channels, and how many differ.
fn difference(ours: &[u8], theirs: &[u8]) -> (u8, usize) {
    assert_eq!(ours.len(), theirs.len());
    let off = ours.iter().zip(theirs).map(|(a, b)| a.abs_diff(*b));
    (off.clone().max().unwrap(), off.filter(|off| *off > 0).count())
}

/// OpenH264 rounds the implicit weights of some bidirectional blocks in another way than the standard.
#[test]
fn weighted_prediction_is_off_by_little() {
    let folder = tempfile::tempdir().unwrap();
    let (_, frames) = read_whole("weighted.mp4");
    let (_, expected, _) = read(&planes_as_y4m("weighted.yuv.png", [48, 32], "LIMITED", folder.path()));
    for (ours, theirs) in frames.iter().zip(&expected) {
        let quality = psnr(ours.image.bytes(), theirs.image.bytes());
        let (most, _) = difference(ours.image.bytes(), theirs.image.bytes());
        assert!(quality > 45.0 && most <= 8, "{quality} dB, at most {most} off");
    }
}

/// The conversion to RGB beside that of zimg, in ffmpeg: at most one off, by rounding.
#[test]
fn colours_are_those_that_ffmpeg_shows() {
    let mp4 = [("full_range.mp4", [48, 32]), ("cut_to_size.mp4", [50, 38])];
    let y4m = ["kind_420.y4m", "kind_422.y4m", "kind_444.y4m", "kind_mono.y4m"].map(|name| (name, [18, 12]));
    for (name, size) in mp4.into_iter().chain(y4m) {
        let (_, frames) = read_whole(name);
        let stem = Path::new(name).file_stem().unwrap().to_str().unwrap();
        let expected = shown(&format!("{stem}.rgb.png"), size[1] as u32);
        assert_eq!(frames.len(), expected.len());
        for (frame, expected) in frames.iter().zip(&expected) {
            assert_eq!(frame.image.size(), size);
            let (most, differ) = difference(frame.image.bytes(), expected);
            println!("{name}: {differ} of {} bytes differ, by at most {most}", expected.len());
            assert!(most <= 1 && differ * 50 < expected.len(), "{name}: {differ} differ, by at most {most}");
        }
    }
}

#[test]
fn a_gif_of_parts_is_what_ffmpeg_shows() {
    let (_, frames) = read_whole("parts.gif");
    assert_times("parts.gif", &frames);
    for (frame, expected) in frames.iter().zip(shown("parts.rgb.png", 32)) {
        assert!(frame.image.bytes() == expected);
    }
}

#[test]
fn a_turned_video_stands_upright() {
    let (info, frames) = read_whole("turned.mp4");
    assert_eq!((info.width, info.height), (32, 48));
    for (frame, expected) in frames.iter().zip(shown("turned.rgb.png", 48)) {
        let (most, _) = difference(frame.image.bytes(), &expected);
        assert!(frame.image.size() == [32, 48] && most <= 1, "off by {most}");
    }
}

#[test]
fn frames_keep_the_times_that_they_have() {
    let (info, frames) = read_whole("variable.mp4");
    assert!(matches!(info.timing, Timing::Variable { .. }), "{:?}", info.timing);
    assert_times("variable.mp4", &frames);
    // And through a file of our own.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.mp4");
    let mut file = VideoFile::create(&path, &at_rate(25.0)).unwrap();
    frames.iter().for_each(|frame| file.write_frame_at(&frame.image, frame.time).unwrap());
    file.finish().unwrap();
    let (_, copied, _) = read(&path);
    for (copy, frame) in copied.iter().zip(&frames) {
        assert!(copy.time.abs_diff(frame.time).as_micros() < 12, "{:?} {:?}", copy.time, frame.time);
        assert!(psnr(copy.image.bytes(), frame.image.bytes()) > 30.0);
    }
}

#[test]
fn a_change_of_size_is_a_frame_of_another_size() {
    let (_, frames) = read_whole("resized.mp4");
    let sizes: Vec<[usize; 2]> = frames.iter().map(|frame| frame.image.size()).collect();
    assert_eq!(sizes, [[48, 32], [48, 32], [48, 32], [32, 48], [32, 48], [32, 48]]);
}

#[test]
fn what_our_own_writer_wrote_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    for (width, height) in [(64, 48), (101, 67), (1280, 720)] {
        let path = folder.path().join(format!("{width}.mp4"));
        let written = clip(width, height, 3);
        let mut file = VideoFile::create(&path, &at_rate(29.97).quality(95)).unwrap();
        written.iter().for_each(|frame| file.write_frame(frame).unwrap());
        file.finish().unwrap();
        let (info, frames, end) = read(&path);
        end.unwrap();
        assert_eq!(info.timing, Timing::Constant(FrameRate::new(29.97).unwrap()));
        for (frame, written) in frames.iter().zip(&written) {
            // An odd side gained a column or a row.
            let rows = (0..height).flat_map(|y| &frame.image.row(y)[..width]);
            let same: Vec<u8> = rows.flatten().copied().collect();
            let quality = psnr(&same, written.bytes());
            assert!(quality > 35.0, "{width}×{height}: {quality} dB");
        }
    }
}

/// Samples that pieces of the index describe are those that a whole index describes.
#[test]
fn a_file_in_pieces_is_the_same_video() {
    for (whole, pieces) in [("reordered.mp4", "pieces.mp4"), ("sound.mp4", "sound_pieces.mp4")] {
        let ((info, expected), (found, frames)) = (read_whole(whole), read_whole(pieces));
        assert_eq!((found.frames, found.timing, found.has_audio), (info.frames, info.timing, info.has_audio));
        assert!(frames == expected, "{pieces}");
    }
    // Cut within a piece's index, the pieces before are there.
    let bytes = fs::read(fixture("pieces.mp4")).unwrap();
    let last = bytes.windows(4).rposition(|window| window == b"moof").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.mp4");
    fs::write(&path, &bytes[..last + 20]).unwrap();
    let (_, frames, end) = read(&path);
    assert_eq!(frames.len(), 6);
    assert!(end.unwrap_err().to_string().contains("truncated after frame 6"));
}

/// Cut anywhere behind its index, a video gives the frames that are whole, then says that it is cut.
#[test]
fn a_file_that_is_cut_gives_its_whole_frames() {
    let whole = fs::read(fixture("plain.mp4")).unwrap();
    let (_, all) = read_whole("plain.mp4");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.mp4");
    let samples: Vec<usize> = {
        let mp4 = Mp4::read_bytes(&whole).unwrap();
        let track = mp4.tracks().values().next().unwrap();
        track.samples.iter().map(|sample| sample.byte_range().end).collect()
    };
    for (number, end) in samples.iter().enumerate() {
        fs::write(&path, &whole[..end - 1]).unwrap();
        let (_, frames, end) = read(&path);
        assert!(frames == all[..number], "{number}");
        let error = end.unwrap_err();
        assert!(error.to_string().contains(&format!("truncated after frame {number}")), "{error}");
        assert_eq!(error.is_truncation(), number > 0);
    }
    // The index lies at the end of this one.
    let whole = fs::read(fixture("reordered.mp4")).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = input::open(&path, &InputOptions::new()).err().unwrap();
    assert!(error.to_string().contains("no index (moov)"), "{error}");
}

/// Whatever happens to a byte or a number of the index, there is an answer, and the file's length bounds the memory.
#[test]
fn a_damaged_file_is_never_more_than_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.mp4");
    for (name, step) in [("plain.mp4", 3), ("sound.mov", 11), ("pieces.mp4", 11)] {
        let whole = fs::read(fixture(name)).unwrap();
        let index = whole.windows(4).position(|window| window == b"moov").unwrap();
        // Bytes all over the index, and some of the pictures; the fuzzer tries the others.
        for at in
            (0..whole.len()).step_by(step).filter(|at| *at >= index && *at < index + 900 || at % 48 == 0)
        {
            let mut bytes = whole.clone();
            bytes[at] = if at % 2 == 0 { 0xFF } else { whole[at] ^ 0x10 };
            fs::write(&path, &bytes).unwrap();
            if let Ok(mut video) = input::open(&path, &InputOptions::new()) {
                while let Ok(Some(_)) = video.next_frame() {}
            }
        }
    }
}

#[test]
fn other_videos_are_refused_by_name() {
    for (name, words) in [
        ("hevc.mp4", ["HEVC (H.265)", "libx264"]),
        ("ten_bits.mp4", ["10 bits", "yuv420p"]),
        ("interlaced.mp4", ["interlaced", "ffmpeg"]),
    ] {
        let message = input::open(fixture(name), &InputOptions::new()).err().unwrap().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    // The first picture is none that a decoder can start from.
    let mut bytes = fs::read(fixture("plain.mp4")).unwrap();
    let instant = bytes.windows(2).rposition(|window| window == [0x65, 0x88]).unwrap();
    bytes[instant] = 0x61;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("middle.mp4");
    fs::write(&path, bytes).unwrap();
    let (_, frames, end) = read(&path);
    assert!(frames.is_empty() && end.unwrap_err().to_string().contains("(IDR)"));

    let piped = fs::File::open(fixture("plain.mp4")).unwrap();
    let refused = input::from_reader(Box::new(piped), "standard input", &InputOptions::new());
    let message = refused.err().unwrap().to_string();
    assert!(message.contains("pipe") && message.contains("yuv4mpegpipe"), "{message}");
}

/// The samples of a file's sound: their bytes, and their ticks.
fn sound(bytes: &[u8]) -> (u64, Vec<(Vec<u8>, u64)>) {
    let mp4 = Mp4::read_bytes(bytes).unwrap();
    let track = mp4.tracks().values().find(|track| track.kind == Some(TrackKind::Audio)).unwrap();
    let samples = track.samples.iter().map(|sample| (bytes[sample.byte_range()].to_vec(), sample.duration));
    (track.timescale, samples.collect())
}

fn copy_with_sound(from: &str, to: &Path, frames: usize) -> Vec<u8> {
    let mut video = input::open(fixture(from), &InputOptions::new()).unwrap();
    assert!(video.info().has_audio);
    let audio = video.audio().unwrap();
    assert_eq!(audio.codec(), "AAC");
    let options = VideoOptions::new(video.info().timing.frame_rate().unwrap()).audio(audio);
    let mut file = VideoFile::create(to, &options).unwrap();
    for _ in 0..frames {
        let frame = video.next_frame().unwrap().unwrap();
        file.write_frame_at(&frame.image, frame.time).unwrap();
    }
    file.finish().unwrap();
    fs::read(to).unwrap()
}

#[test]
fn sound_is_copied_as_it_is_and_ends_with_the_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.mp4");
    let pieces = copy_with_sound("sound_pieces.mp4", &folder.path().join("pieces.mp4"), 16);
    let bytes = copy_with_sound("sound.mp4", &path, 16);
    assert!(sound(&pieces) == sound(&bytes));
    let ((scale, copied), (own_scale, own)) =
        (sound(&bytes), sound(&fs::read(fixture("sound.mp4")).unwrap()));
    assert_eq!((scale, own_scale), (44_100, 44_100));
    // 16 frames are 0.64 s, and 1024 ticks are not heard: 28.6 samples of 1024 ticks.
    assert_eq!(copied.len(), 29);
    assert!(copied.iter().zip(&own).all(|(copy, own)| copy.0 == own.0), "every byte is the same");
    assert!(own.len() > 40, "there was more");
    // It can be read again, and copied again.
    let mut again = input::open(&path, &InputOptions::new()).unwrap();
    assert!(
        again.audio().unwrap()
            != input::open(fixture("sound.mp4"), &InputOptions::new()).unwrap().audio().unwrap()
    );
    assert!(again.next_frame().unwrap().is_some());
}

#[test]
fn sound_from_a_quicktime_file_fits_into_an_mp4_file() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = copy_with_sound("sound.mov", &folder.path().join("copy.mp4"), 4);
    let (scale, copied) = sound(&bytes);
    assert_eq!((scale, copied.len()), (44_100, 8));
}

#[test]
fn sound_where_it_cannot_go_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let audio = input::open(fixture("sound.mp4"), &InputOptions::new()).unwrap().audio();
    for name in ["clip.gif", "clip.y4m", "clip.png"] {
        let error =
            VideoFile::create(folder.path().join(name), &at_rate(7.0).audio(audio.clone())).err().unwrap();
        assert!(matches!(error, VideoError::NoAudio { .. }), "{error}");
    }
}

/// A file that shrinks while its sound is copied is an error, and nothing is left.
#[test]
fn sound_that_vanishes_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.mp4");
    fs::copy(fixture("sound.mp4"), &path).unwrap();
    let mut video = input::open(&path, &InputOptions::new()).unwrap();
    let out = folder.path().join("out.mp4");
    let mut file = VideoFile::create(&out, &at_rate(25.0).audio(video.audio())).unwrap();
    let frame: RgbImage = video.next_frame().unwrap().unwrap().image;
    fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    file.write_frame(&frame).unwrap();
    let error = file.finish().unwrap_err();
    assert!(matches!(error, VideoError::Audio { .. }) && !out.exists(), "{error}");
}

//! MP4 files, read by parsers and decoders that are not ours.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use kinora::{
    RgbImage,
    video::{VideoFile, VideoOptions},
};
use openh264::{decoder::Decoder, formats::YUVSource};
use re_mp4::{Mp4, StsdBoxContent};
use support::{at_rate, clip, names, psnr};

fn write(path: &Path, frames: &[RgbImage], options: &VideoOptions) -> Vec<u8> {
    let mut file = VideoFile::create(path, options).unwrap();
    for frame in frames {
        file.write_frame(frame).unwrap();
    }
    let written = file.finish().unwrap();
    assert_eq!((written.files.as_slice(), written.frames), (&[path.to_owned()][..], frames.len()));
    fs::read(path).unwrap()
}

/// The samples of a file, decoded to RGB of the coded size.
fn decode(bytes: &[u8]) -> Vec<(usize, usize, Vec<u8>)> {
    let mp4 = Mp4::read_bytes(bytes).unwrap();
    let track = mp4.tracks().values().next().unwrap();
    let StsdBoxContent::Avc1(entry) = &track.trak(&mp4).mdia.minf.stbl.stsd.contents else {
        panic!("not avc1")
    };
    let configuration = &entry.avcc.contents;
    let mut decoder = Decoder::new().unwrap();
    let sets = configuration.sequence_parameter_sets.iter().chain(&configuration.picture_parameter_sets);
    for set in sets {
        decoder.decode(&[&[0, 0, 0, 1], &set.bytes[..]].concat()).unwrap();
    }
    let mut pictures = Vec::new();
    for sample in &track.samples {
        let mut stream = Vec::new();
        let mut rest = &bytes[sample.byte_range()];
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (unit, after) = after.split_at(u32::from_be_bytes(*length) as usize);
            stream.extend([0, 0, 0, 1]);
            stream.extend(unit);
            rest = after;
        }
        let picture = decoder.decode(&stream).unwrap().expect("a picture for every sample");
        pictures.push(rgb(&picture));
    }
    pictures
}

/// BT.709, limited range, nearest chroma.
fn rgb(picture: &impl YUVSource) -> (usize, usize, Vec<u8>) {
    let (width, height) = picture.dimensions();
    let (luma_stride, blue_stride, red_stride) = picture.strides();
    let mut data = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let luma = 1.1643836 * (f64::from(picture.y()[y * luma_stride + x]) - 16.0);
            let blue = f64::from(picture.u()[y / 2 * blue_stride + x / 2]) - 128.0;
            let red = f64::from(picture.v()[y / 2 * red_stride + x / 2]) - 128.0;
            let channels =
                [luma + 1.7927411 * red, luma - 0.2132486 * blue - 0.5329093 * red, luma + 2.1124018 * blue];
            data.extend(channels.map(|channel| channel.round().clamp(0.0, 255.0) as u8));
        }
    }
    (width, height, data)
}

/// The boxes at one level: kind, and body.
fn boxes(mut bytes: &[u8]) -> Vec<(String, &[u8])> {
    let mut found = Vec::new();
    while let Some((header, _)) = bytes.split_first_chunk::<8>() {
        let length = u32::from_be_bytes(header[..4].try_into().unwrap()) as usize;
        found.push((String::from_utf8_lossy(&header[4..]).into_owned(), &bytes[8..length]));
        bytes = &bytes[length..];
    }
    found
}

#[test]
fn a_clip_comes_back_in_time_and_in_good_quality() {
    let folder = tempfile::tempdir().unwrap();
    let frames = clip(256, 144, 25);
    let bytes = write(&folder.path().join("clip.mp4"), &frames, &at_rate(7.0));
    assert_eq!(names(folder.path()), ["clip.mp4"]);

    let mp4 = Mp4::read_bytes(&bytes).unwrap();
    let track = mp4.tracks().values().next().unwrap();
    assert_eq!((track.width, track.height, track.samples.len()), (256, 144, 25));
    // 25 frames at 7 a second, a seventh of a second each, exactly.
    assert_eq!(track.duration * 7, track.timescale * 25);
    for (number, sample) in track.samples.iter().enumerate() {
        assert_eq!(sample.duration * 7, track.timescale);
        assert_eq!(sample.composition_timestamp as u64 * 7, track.timescale * number as u64);
    }
    assert!(track.samples[0].is_sync);
    let sync = track.samples.iter().filter(|sample| sample.is_sync).count();
    assert_eq!(sync, 2, "one at the start and one after two seconds");

    let decoded = decode(&bytes);
    let worst = decoded
        .iter()
        .zip(&frames)
        .map(|((width, height, data), frame)| {
            assert_eq!((*width, *height), (256, 144));
            psnr(data, frame.bytes())
        })
        .fold(f64::INFINITY, f64::min);
    println!("{} bytes, worst frame {worst:.2} dB", bytes.len());
    // Most of the loss is chroma at the edge of the disc, which four pixels share.
    assert!(worst > 36.0, "{worst} dB");
}

#[test]
fn frames_keep_their_own_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mp4");
    let mut file = VideoFile::create(&path, &at_rate(25.0)).unwrap();
    // From a camera that does not start at zero, and is late once.
    let millis = [5000, 5040, 5111, 5120, 7000];
    for (frame, at) in clip(64, 48, 5).iter().zip(millis) {
        file.write_frame_at(frame, Duration::from_millis(at)).unwrap();
    }
    file.finish().unwrap();
    let mp4 = Mp4::read_bytes(&fs::read(&path).unwrap()).unwrap();
    let track = mp4.tracks().values().next().unwrap();
    let starts: Vec<f64> = track
        .samples
        .iter()
        .map(|sample| sample.composition_timestamp as f64 / track.timescale as f64)
        .collect();
    for (start, at) in starts.iter().zip(millis) {
        assert!((start - (at as f64 / 1000.0 - 5.0)).abs() < 1e-4, "{starts:?}");
    }
    // The last one is shown as long as the rate says.
    assert!((track.duration as f64 / track.timescale as f64 - 2.04).abs() < 1e-4);
}

#[test]
fn times_that_do_not_increase_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = VideoFile::create(folder.path().join("clip.mp4"), &at_rate(25.0)).unwrap();
    let frame = &clip(64, 48, 1)[0];
    file.write_frame_at(frame, Duration::from_millis(10)).unwrap();
    let error = file.write_frame_at(frame, Duration::from_millis(10)).unwrap_err();
    assert!(error.to_string().contains("frame 2 is not shown later"), "{error}");
    assert!(names(folder.path()).is_empty());
}

/// Times that are whole microseconds, as many programs give them, still make a file of a constant rate.
#[test]
fn rounded_times_are_a_constant_rate() {
    let folder = tempfile::tempdir().unwrap();
    let frames = clip(64, 48, 4);
    let plain = write(&folder.path().join("plain.mp4"), &frames, &at_rate(29.97));
    let path = folder.path().join("timed.mp4");
    let mut file = VideoFile::create(&path, &at_rate(29.97)).unwrap();
    for (frame, at) in frames.iter().zip([0, 33_366, 66_733, 100_100]) {
        file.write_frame_at(frame, Duration::from_micros(at)).unwrap();
    }
    file.finish().unwrap();
    assert!(fs::read(&path).unwrap() == plain);
}

#[test]
fn the_index_comes_first_and_says_the_colours() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = write(&folder.path().join("clip.mp4"), &clip(64, 48, 3), &at_rate(29.97));
    let top = boxes(&bytes);
    let kinds: Vec<&str> = top.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["ftyp", "moov", "mdat"]);
    let children: BTreeMap<String, &[u8]> = ["trak", "mdia", "minf", "stbl"]
        .iter()
        .fold(boxes(top[1].1), |level, kind| boxes(level.iter().find(|(found, _)| found == kind).unwrap().1))
        .into_iter()
        .collect();
    // Behind the header of the table and the 78 bytes of a visual sample entry.
    let entry = boxes(&children["stsd"][8..]);
    let details: BTreeMap<String, &[u8]> = boxes(&entry[0].1[78..]).into_iter().collect();
    assert_eq!(details["colr"], b"nclx\0\x01\0\x01\0\x01\0");
    assert_eq!(details["avcC"][4..6], [0xFF, 0xE1]);
    assert_eq!(children["stts"], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0x03, 0xE9]);
    let mp4 = Mp4::read_bytes(&bytes).unwrap();
    assert_eq!(mp4.tracks().values().next().unwrap().timescale, 30_000);
}

#[test]
fn odd_sizes_gain_a_repeated_column_and_row() {
    let folder = tempfile::tempdir().unwrap();
    let frames = clip(101, 67, 4);
    let bytes = write(&folder.path().join("odd.mp4"), &frames, &at_rate(24.0));
    for ((width, height, data), frame) in decode(&bytes).iter().zip(&frames) {
        assert_eq!((*width, *height), (102, 68));
        let cropped: Vec<u8> =
            data.chunks(102 * 3).take(67).flat_map(|row| &row[..101 * 3]).copied().collect();
        assert!(psnr(&cropped, frame.bytes()) > 35.0);
    }
}

#[test]
fn quality_trades_size_for_picture() {
    let folder = tempfile::tempdir().unwrap();
    let frames = clip(128, 96, 6);
    let results: Vec<(usize, f64)> = [20, 80, 100]
        .into_iter()
        .map(|quality| {
            let path = folder.path().join(format!("{quality}.mp4"));
            let bytes = write(&path, &frames, &at_rate(8.0).quality(quality));
            (bytes.len(), psnr(&decode(&bytes)[5].2, frames[5].bytes()))
        })
        .collect();
    assert!(results.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{results:?}");
}

#[test]
fn the_same_frames_make_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let frames = clip(96, 64, 5);
    let [first, second] =
        ["a.mp4", "b.mp4"].map(|name| write(&folder.path().join(name), &frames, &at_rate(12.0)));
    assert!(first == second);
}

#[test]
fn sizes_that_h264_cannot_hold_are_refused_and_leave_nothing() {
    for (width, height) in [(8, 64), (64, 14), (4000, 16), (2200, 2200)] {
        let folder = tempfile::tempdir().unwrap();
        let frame = RgbImage::new(width, height, vec![90; width * height * 3]).unwrap();
        let mut file = VideoFile::create(folder.path().join("clip.mp4"), &at_rate(7.0)).unwrap();
        let message = file.write_frame(&frame).unwrap_err().to_string();
        assert!(message.contains(&format!("{width}×{height}")) && message.contains("3840×2160"), "{message}");
        assert!(names(folder.path()).is_empty());
    }
}

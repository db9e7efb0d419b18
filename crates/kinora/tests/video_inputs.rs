//! Y4M, GIF, raw RGB and pictures as videos: what our writers and other libraries wrote, and everything that can be wrong with it.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{fs, io::Cursor, path::Path, time::Duration};

use kinora::{
    RgbImage,
    photo::Colour,
    video::{
        FrameRate, VideoFile,
        input::{self, Frame, FrameSource, InputError, InputOptions, Timing},
    },
};
use support::{at_rate, clip, psnr};

fn from_bytes(bytes: Vec<u8>, options: &InputOptions) -> Result<Box<dyn FrameSource>, InputError> {
    input::from_reader(Box::new(Cursor::new(bytes)), "the stream", options)
}

/// All frames, and how it ended.
fn frames(source: &mut dyn FrameSource) -> (Vec<Frame>, Result<(), InputError>) {
    let mut frames = Vec::new();
    loop {
        match source.next_frame() {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, Ok(())),
            Err(error) => {
                assert!(source.next_frame().unwrap().is_none(), "nothing comes after an error");
                return (frames, Err(error));
            }
        }
    }
}

fn write(path: &Path, frames: &[RgbImage], rate: f64) {
    let mut file = VideoFile::create(path, &at_rate(rate)).unwrap();
    frames.iter().for_each(|frame| file.write_frame(frame).unwrap());
    file.finish().unwrap();
}

fn millis(frame: &Frame) -> u128 {
    frame.time.as_millis()
}

#[test]
fn y4m_comes_back_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.y4m");
    let written = clip(31, 17, 4);
    write(&path, &written, 23.976);
    let mut video = input::open(&path, &InputOptions::new()).unwrap();
    let info = video.info();
    assert_eq!((info.format, info.width, info.height, info.frames), ("Y4M", 31, 17, None));
    assert_eq!(info.timing, Timing::Constant(FrameRate::new(23.976).unwrap()));
    assert!(!info.has_audio && !info.has_alpha && info.notes.is_empty() && info.files == [path]);
    let (read, end) = frames(&mut *video);
    end.unwrap();
    assert_eq!(read.iter().map(millis).collect::<Vec<_>>(), [0, 41, 83, 125]);
    for (read, written) in read.iter().zip(&written) {
        let most = read.image.bytes().iter().zip(written.bytes()).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(most <= Some(3), "off by {most:?}");
    }
}

#[test]
fn y4m_of_every_kind_has_its_planes_where_they_lie() {
    // Blue, red and gray of 4×2 pixels; the chroma of every kind is the same everywhere.
    for (kind, chroma) in
        [("420jpeg", 2), ("420mpeg2", 2), ("420paldv", 2), ("420", 2), ("422", 4), ("444", 8)]
    {
        let mut bytes =
            format!("YUV4MPEG2 W4 H2 F30:1 C{kind} XCOLORRANGE=FULL\nFRAME Ip XSOMETHING\n").into_bytes();
        bytes.extend([29; 8]);
        bytes.extend(vec![255; chroma]);
        bytes.extend(vec![107; chroma]);
        let (read, end) = frames(&mut *from_bytes(bytes, &InputOptions::new()).unwrap());
        end.unwrap();
        // BT.601: 29 + 1.772 · 127 is blue, 29 − 1.402 · 21 nearly nothing of red.
        assert!(read[0].image.pixels().iter().all(|pixel| *pixel == [0, 0, 254]), "{kind} {:?}", read[0]);
    }
    let mono = b"YUV4MPEG2 W2 H1 F30:1 Cmono\nFRAME\n\x10\xEB".to_vec();
    let (read, _) = frames(&mut *from_bytes(mono, &InputOptions::new()).unwrap());
    assert_eq!(read[0].image.pixels(), [[0; 3], [255; 3]]);
}

#[test]
fn y4m_without_a_rate_takes_the_one_that_is_given() {
    let bytes = b"YUV4MPEG2 W1 H1 F0:0 Cmono\nFRAME\n1FRAME\n2".to_vec();
    let options = InputOptions::new();
    let mut video = from_bytes(bytes.clone(), &options).unwrap();
    assert_eq!(video.info().timing, Timing::Unknown);
    assert_eq!(millis(&frames(&mut *video).0[1]), 40);
    let options = options.frame_rate(FrameRate::new(10.0).unwrap());
    assert_eq!(millis(&frames(&mut *from_bytes(bytes, &options).unwrap()).0[1]), 100);
}

/// Cut at every byte, a video gives the frames before the cut, and says that it is cut unless that is between two frames.
#[test]
fn a_video_that_is_cut_gives_its_whole_frames() {
    let header = b"YUV4MPEG2 W3 H2 F25:1 C444\n";
    let frame = [&b"FRAME\n"[..], &[90; 18]].concat();
    let whole = [&header[..], &frame, &frame, &frame].concat();
    for length in header.len()..whole.len() {
        let (read, end) = frames(&mut *from_bytes(whole[..length].to_vec(), &InputOptions::new()).unwrap());
        let (expected, rest) = ((length - header.len()) / frame.len(), (length - header.len()) % frame.len());
        assert_eq!(read.len(), expected, "{length}");
        match (expected, rest) {
            (0, 0) => assert!(matches!(end, Err(InputError::NoFrames { .. })), "{length}"),
            (_, 0) => end.unwrap(),
            _ => {
                let error = end.unwrap_err();
                assert_eq!(error.is_truncation(), expected > 0, "{error}");
                assert!(
                    error.to_string().contains(&format!("the stream is truncated after frame {expected}"))
                );
            }
        }
    }
    for length in 0..header.len() {
        assert!(from_bytes(whole[..length].to_vec(), &InputOptions::new()).is_err(), "{length}");
    }
}

#[test]
fn what_y4m_cannot_be_is_said() {
    for (bytes, words) in [
        (&b"YUV4MPEG2 W3 H2 C420p10\n"[..], ["C420p10", "ffmpeg"]),
        (b"YUV4MPEG2 W70000 H2\n", ["70000×2", "scale"]),
        (b"YUV4MPEG2 W60000 H60000\n", ["60000×60000", "scale"]),
        (b"YUV4MPEG2 W0 H2\n", ["0×2", "at least 1"]),
        (b"YUV4MPEG2 H2\n", ["damaged", "no width"]),
        (b"", ["not a video", "Y4M"]),
        (b"hello, world, this is text", ["not a video", "Y4M"]),
        (b"\x1A\x45\xDF\xA3\0\0\0\0\0\0\0\0\0\0\0\0\0\0", ["Matroska", "ffmpeg"]),
    ] {
        let message = from_bytes(bytes.to_vec(), &InputOptions::new()).err().unwrap().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    let long = [&b"YUV4MPEG2 W3 H2 X"[..], &[b'x'; 5000], b"\n"].concat();
    let message = from_bytes(long, &InputOptions::new()).err().unwrap().to_string();
    assert!(message.contains("longer than 4096"), "{message}");
    let other = b"YUV4MPEG2 W1 H1 Cmono\nFRAME\n1FRAMED\n2".to_vec();
    let (read, end) = frames(&mut *from_bytes(other, &InputOptions::new()).unwrap());
    assert!(read.len() == 1 && end.unwrap_err().to_string().contains("damaged after frame 1"));
}

#[test]
fn raw_rgb_is_as_large_as_it_is_said_to_be() {
    let options = InputOptions::new().raw_size([2, 1]).frame_rate(FrameRate::new(50.0).unwrap());
    let bytes: Vec<u8> = (0..14).collect();
    let mut video = from_bytes(bytes, &options).unwrap();
    assert_eq!((video.info().format, video.info().width, video.info().height), ("raw RGB", 2, 1));
    let (read, end) = frames(&mut *video);
    assert_eq!(read[1].image.bytes(), [6, 7, 8, 9, 10, 11]);
    assert_eq!(read[1].time, Duration::from_millis(20));
    let message = end.unwrap_err().to_string();
    assert!(message.contains("truncated after frame 2"), "{message}");
    for size in [[0, 5], [usize::MAX, 2], [1 << 16, 1]] {
        let message = from_bytes(vec![0; 9], &InputOptions::new().raw_size(size)).err().unwrap().to_string();
        assert!(message.contains(&format!("{}×{}", size[0], size[1])), "{message}");
    }
}

#[test]
fn a_gif_comes_back_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.gif");
    let written = clip(48, 30, 3);
    write(&path, &written, 24.0);
    let mut video = input::open(&path, &InputOptions::new()).unwrap();
    let info = video.info();
    assert_eq!((info.format, info.width, info.height, info.frames), ("GIF", 48, 30, Some(3)));
    // 4, 4 and 5 hundredths.
    assert_eq!(info.timing, Timing::Variable { mean: FrameRate::from_fraction(300, 13).unwrap() });
    let (read, end) = frames(&mut *video);
    end.unwrap();
    assert_eq!(read.iter().map(millis).collect::<Vec<_>>(), [0, 40, 80]);
    for (read, written) in read.iter().zip(&written) {
        assert!(psnr(read.image.bytes(), written.bytes()) > 30.0);
    }
    // From a pipe nothing is known beforehand, and the frames are the same.
    let mut piped = from_bytes(fs::read(&path).unwrap(), &InputOptions::new()).unwrap();
    assert_eq!((piped.info().frames, piped.info().timing), (None, Timing::Unknown));
    assert_eq!(frames(&mut *piped).0, read);
}

/// Frames that cover a part of a 3×2 screen, with each disposal, by the `gif` crate's encoder.
fn patches() -> Vec<u8> {
    use gif::DisposalMethod::{Background, Keep, Previous};
    let palette = [255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9];
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, 3, 2, &palette).unwrap();
    for (left, top, width, height, dispose, delay, indices) in [
        (0, 0, 3, 2, Keep, 10, &[0_u8, 0, 0, 0, 0, 3][..]),
        (1, 0, 2, 1, Previous, 0, &[1, 1]),
        (0, 1, 2, 1, Background, 1, &[2, 3]),
        // Reaches beyond the screen.
        (2, 1, 2, 2, Keep, 30, &[1, 1, 1, 1]),
    ] {
        let frame = gif::Frame {
            left,
            top,
            width,
            height,
            dispose,
            delay,
            transparent: Some(3),
            buffer: indices.into(),
            ..gif::Frame::default()
        };
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    bytes
}

#[test]
fn parts_of_a_gif_are_drawn_over_what_was_there() {
    let (r, g, b, w) = ([255, 0, 0], [0, 255, 0], [0, 0, 255], [255; 3]);
    let mut video = from_bytes(patches(), &InputOptions::new().background(Colour::WHITE)).unwrap();
    let (read, end) = frames(&mut *video);
    end.unwrap();
    let pixels: Vec<&[[u8; 3]]> = read.iter().map(|frame| frame.image.pixels()).collect();
    assert_eq!(pixels[0], [r, r, r, r, r, w], "what is transparent shows the background");
    assert_eq!(pixels[1], [r, g, g, r, r, w]);
    assert_eq!(pixels[2], [r, r, r, b, r, w], "the frame before went away");
    assert_eq!(pixels[3], [r, r, r, w, w, g], "the frame before became background");
    // A delay of less than 20 ms is 100 to browsers.
    assert_eq!(read.iter().map(millis).collect::<Vec<_>>(), [0, 100, 200, 300]);
}

#[test]
fn a_gif_that_is_cut_gives_its_whole_frames() {
    let whole = patches();
    let all = frames(&mut *from_bytes(whole.clone(), &InputOptions::new()).unwrap()).0;
    let mut most = 0;
    for length in 13..whole.len() {
        let Ok(mut video) = from_bytes(whole[..length].to_vec(), &InputOptions::new()) else { continue };
        let (read, end) = frames(&mut *video);
        assert!(read == all[..read.len()] && read.len() >= most, "{length}");
        most = read.len();
        let error = end.unwrap_err();
        assert!(most == 0 || error.is_truncation(), "{length}: {error}");
    }
    assert_eq!(most, 4);
}

#[test]
fn numbered_pictures_are_a_video() {
    let folder = tempfile::tempdir().unwrap();
    let written = clip(20, 12, 3);
    write(&folder.path().join("clip.png"), &written, 7.0);
    let options = InputOptions::new().frame_rate(FrameRate::new(10.0).unwrap());
    // As they are named when they are written, by a pattern, and by the folder.
    for path in ["clip.png", "clip-%04d.png", ""] {
        let mut video = input::open(folder.path().join(path), &options).unwrap();
        let info = video.info();
        assert_eq!((info.format, info.width, info.height, info.frames), ("pictures", 20, 12, Some(3)));
        assert!(info.notes.is_empty() && info.files[2].ends_with("clip-0003.png"), "{info:?}");
        let (read, end) = frames(&mut *video);
        end.unwrap();
        assert!(read.iter().map(|frame| &frame.image).eq(&written));
        assert_eq!(read.iter().map(millis).collect::<Vec<_>>(), [0, 100, 200]);
    }
    // One of them alone is a picture.
    let mut still = input::open(folder.path().join("clip-0002.png"), &InputOptions::new()).unwrap();
    assert_eq!((still.info().format, still.info().frames), ("picture", Some(1)));
    let (read, _) = frames(&mut *still);
    assert!(read.len() == 1 && read[0].image == written[1]);

    fs::remove_file(folder.path().join("clip-0002.png")).unwrap();
    let gap = input::open(folder.path().join("clip.png"), &options).unwrap();
    assert_eq!(gap.info().frames, Some(2));
    assert!(gap.info().notes[0].contains("number 1 and number 3"), "{:?}", gap.info().notes);
}

#[test]
fn pictures_of_other_sizes_and_kinds_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    image::RgbaImage::from_pixel(2, 2, image::Rgba([200, 0, 0, 0]))
        .save(folder.path().join("9.png"))
        .unwrap();
    let mut half = image::RgbaImage::from_pixel(4, 1, image::Rgba([0, 0, 0, 255]));
    half.put_pixel(0, 0, image::Rgba([255, 255, 255, 0]));
    half.save(folder.path().join("8.png")).unwrap();
    image::RgbImage::from_pixel(1, 1, image::Rgb([1, 2, 3])).save(folder.path().join("10.bmp")).unwrap();
    fs::write(folder.path().join("notes.txt"), "no picture").unwrap();
    fs::write(folder.path().join(".11.png"), "hidden").unwrap();
    let options = InputOptions::new().background(Colour([0, 0, 250]));
    let mut video = input::open(folder.path(), &options).unwrap();
    assert!(video.info().has_alpha);
    let (read, end) = frames(&mut *video);
    end.unwrap();
    let sizes: Vec<[usize; 2]> = read.iter().map(|frame| frame.image.size()).collect();
    assert_eq!(sizes, [[4, 1], [2, 2], [1, 1]]);
    assert_eq!(read[0].image.pixels()[..2], [[0, 0, 250], [0; 3]]);

    // A damaged one ends the video, and is named.
    fs::write(folder.path().join("10.bmp"), "BM").unwrap();
    let (read, end) = frames(&mut *input::open(folder.path(), &options).unwrap());
    let message = end.unwrap_err().to_string();
    assert!(read.len() == 2 && message.contains("10.bmp"), "{message}");
}

#[test]
fn places_without_a_video_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (path, words) in [
        (path("absent.mp4"), "no video at"),
        (path("absent.png"), "no video at"),
        (path("absent-%04d.png"), "no video at"),
        (path("absent/in-%d.png"), "no video at"),
        (path(""), "no picture"),
    ] {
        let message = input::open(&path, &InputOptions::new()).err().unwrap().to_string();
        assert!(message.contains(words), "{message}");
    }
    #[cfg(unix)]
    {
        let message =
            input::open("/dev/zero", &InputOptions::new().raw_size([2, 2])).err().unwrap().to_string();
        assert!(message.contains("device"), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn a_named_pipe_is_read_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let written = b"YUV4MPEG2 W1 H1 F30:1 Cmono\nFRAME\n1FRAME\n2";
    std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&pipe, written).unwrap());
        let (read, end) = frames(&mut *input::open(&pipe, &InputOptions::new()).unwrap());
        end.unwrap();
        assert_eq!(read.len(), 2);
    });
}

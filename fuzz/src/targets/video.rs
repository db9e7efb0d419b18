//! Videos.

use std::{cell::OnceCell, io::Cursor};

use image::ImageFormat;
use kinora::video::input::{self, FrameSource, InputOptions};

use crate::scratch::Scratch;

/// The most pixels of a frame that is decoded here. Larger ones are legal, and slow.
const PIXELS: usize = 1 << 18;
/// The most frames of a video that are decoded here.
const FRAMES: usize = 16;

thread_local! {
    static FOLDER: OnceCell<Scratch> = const { OnceCell::new() };
}

/// Any bytes as what comes from a pipe: Y4M or GIF. Other pictures have a target of their own.
pub fn stream(bytes: &[u8]) {
    if image::guess_format(bytes).is_ok_and(|format| format != ImageFormat::Gif) {
        return;
    }
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    if let Ok(video) = input::from_reader(reader, "the stream", &InputOptions::new()) {
        decode(video);
    }
}

/// Any bytes as an MP4 file, which is gone back and forth in.
pub fn mp4(bytes: &[u8]) {
    let path = FOLDER.with(|folder| folder.get_or_init(Scratch::new).write("video.mp4", bytes));
    if let Ok(video) = input::open(&path, &InputOptions::new())
        && video.info().format == "MP4"
    {
        assert!(
            video.info().frames.is_none_or(|frames| frames <= bytes.len() as u64),
            "more frames than bytes"
        );
        decode(video);
    }
}

fn decode(mut video: Box<dyn FrameSource>) {
    if video.info().width * video.info().height > PIXELS {
        return;
    }
    let mut last = None;
    for _ in 0..FRAMES {
        let Ok(Some(frame)) = video.next_frame() else { break };
        assert!(last.is_none_or(|last| frame.time > last), "times increase");
        last = Some(frame.time);
    }
}

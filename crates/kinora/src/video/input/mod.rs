//! Videos that people bring, frame by frame: each frame is decoded when it is asked for, so a video may be of any length.
//!
//! ```no_run
//! use kinora::video::input::{self, InputOptions};
//!
//! let mut video = input::open("in.mp4", &InputOptions::new())?;
//! println!("{}×{}", video.info().width, video.info().height);
//! while let Some(frame) = video.next_frame()? {
//!     println!("{:?}", frame.time);
//! }
//! # Ok::<(), kinora::video::input::InputError>(())
//! ```
//!
//! | name | what is read |
//! | --- | --- |
//! | `in.mp4`, `in.mov` | H.264, 8-bit 4:2:0, turned and cut as the file says, also in fragments; its sound can be [copied](FrameSource::audio) |
//! | `in.y4m` | uncompressed 8-bit 4:2:0, 4:2:2, 4:4:4 or gray |
//! | `in.gif` | an animation; what is transparent shows the background |
//! | `in-%04d.png` | numbered pictures, from the lowest number to the highest |
//! | `in.png` | the numbered pictures `in-0001.png`, `in-0002.png` … as [`VideoFile`](super::VideoFile) names them; or, if it exists, the one picture |
//! | `frames/` | all pictures in a folder, in the order of their names, numbers by their value |
//! | any file, if [`raw_size`](InputOptions::raw_size) is given | raw RGB, three bytes a pixel |
//! | `-` | standard input: Y4M, GIF, a picture, or raw RGB |
//!
//! H.264 is refused, by name and with the command that converts it, if it is interlaced, deeper than 8 bits, not 4:2:0, larger than about
//! 4096×2304 or encrypted; so are other codecs. In pictures with bidirectional prediction a few blocks may differ a little from what the
//! standard asks for, because the decoder does; `ffmpeg -i in.mp4 -f yuv4mpegpipe - | …` is exact.
//!
//! The content of a file decides, not its name. Nothing is allocated before the size that a header claims has been checked.
//!
//! A video that ends in the middle of a frame gives all frames that are whole, then an error that
//! [says so](InputError::is_truncation).

mod error;
mod gif;
mod info;
mod mp4;
mod numbered;
mod options;
mod pictures;
mod raw;
mod sniff;
mod stream;
mod y4m;

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

pub use error::InputError;
pub use info::{Frame, Timing, VideoInfo};
pub use options::InputOptions;

use super::{AudioTrack, is_standard_stream};
use error::{Fault, unreadable};
use sniff::Kind;
use stream::Stream;

/// A video that is being read.
pub trait FrameSource: Send {
    /// What is known about it.
    fn info(&self) -> &VideoInfo;

    /// The next frame; `None` if there is no other.
    ///
    /// # Errors
    /// If the video is damaged, or [ends in the middle of a frame](InputError::is_truncation). There is no frame after an
    /// error.
    fn next_frame(&mut self) -> Result<Option<Frame>, InputError>;

    /// Its sound, if it can be copied to another file: see [`VideoOptions::audio`](super::VideoOptions::audio).
    fn audio(&self) -> Option<AudioTrack> {
        self.info().audio.clone()
    }
}

/// A decoder of one format: what it finds wrong has no name yet.
trait Decode: Send {
    /// The next frame's pixels and time.
    fn decode(&mut self) -> Result<Option<Frame>, Fault>;
}

/// A decoder, and what is known about its video.
struct Source<D> {
    name: String,
    info: VideoInfo,
    decoder: D,
    frames: u64,
    ended: bool,
}

impl<D: Decode> FrameSource for Source<D> {
    fn info(&self) -> &VideoInfo {
        &self.info
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, InputError> {
        if self.ended {
            return Ok(None);
        }
        let found = self.decoder.decode();
        self.ended = !matches!(found, Ok(Some(_)));
        match found {
            Ok(None) if self.frames == 0 => Err(InputError::NoFrames { name: self.name.clone() }),
            Ok(frame) => {
                self.frames += u64::from(frame.is_some());
                Ok(frame)
            }
            Err(fault) => Err(fault.named(&self.name, self.frames)),
        }
    }
}

/// What a format's `open` found: see [`Source`].
type Opened<D> = Result<(VideoInfo, D), Fault>;

fn source<D: Decode + 'static>(
    name: &str,
    files: Vec<PathBuf>,
    opened: Opened<D>,
) -> Result<Box<dyn FrameSource>, InputError> {
    let (mut info, decoder) = opened.map_err(|fault| fault.named(name, 0))?;
    info.files = files;
    Ok(Box::new(Source { name: name.into(), info, decoder, frames: 0, ended: false }))
}

/// Opens a video: see the [table](self) for what a path may be.
///
/// # Errors
/// If there is nothing at the path, it is of no kind that is read, or its beginning is damaged or claims a size beyond
/// [`MAX_PIXELS`](crate::photo::MAX_PIXELS) or [`MAX_SIDE`](crate::photo::MAX_SIDE).
pub fn open(path: impl AsRef<Path>, options: &InputOptions) -> Result<Box<dyn FrameSource>, InputError> {
    let path = path.as_ref();
    if is_standard_stream(path) {
        return from_reader(Box::new(io::stdin()), "standard input", options);
    }
    let name = format!("`{}`", path.display());
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => pictures::folder(path, &name, options),
        Err(error) if error.kind() == io::ErrorKind::NotFound => pictures::numbered(path, &name, options),
        _ => open_file(path, &name, options),
    }
}

fn open_file(path: &Path, name: &str, options: &InputOptions) -> Result<Box<dyn FrameSource>, InputError> {
    let refused = |error| unreadable(name, error);
    let file = kinora_outside::open_stream(path).map_err(refused)?;
    let is_file = file.metadata().map_err(refused)?.is_file();
    let files = vec![path.to_owned()];
    if options.raw_size.is_some() || !is_file {
        return from_stream(Stream::new(Box::new(file)), name, files, options);
    }
    let mut stream = Stream::new(Box::new(file));
    match stream.kind().map_err(|fault| fault.named(name, 0))? {
        Kind::Gif => source(name, files, gif::open_file(path, options)),
        Kind::Mp4 => source(name, files, mp4::open(kinora_outside::open(path).map_err(refused)?, path)),
        _ => from_stream(stream, name, files, options),
    }
}

/// Reads a video from a stream: Y4M, GIF, a picture, or raw RGB.
///
/// # Errors
/// As [`open`]. Errors call the stream by its name.
pub fn from_reader(
    reader: Box<dyn Read + Send>,
    name: &str,
    options: &InputOptions,
) -> Result<Box<dyn FrameSource>, InputError> {
    from_stream(Stream::new(reader), name, Vec::new(), options)
}

fn from_stream(
    mut stream: Stream,
    name: &str,
    files: Vec<PathBuf>,
    options: &InputOptions,
) -> Result<Box<dyn FrameSource>, InputError> {
    if let Some(size) = options.raw_size {
        return source(name, files, raw::open(stream, size, options));
    }
    match stream.kind().map_err(|fault| fault.named(name, 0))? {
        Kind::Y4m => source(name, files, y4m::open(stream, options)),
        Kind::Gif => source(name, files, gif::open(stream, options)),
        Kind::Picture => source(name, files, pictures::one(stream, options)),
        Kind::Mp4 => Err(Fault::unsupported("an MP4 file from a pipe, whose index may come last")
            .with_remedy("ffmpeg -i INPUT -f yuv4mpegpipe -, or give the file itself")
            .named(name, 0)),
        Kind::Other(what) => Err(Fault::unsupported(what).named(name, 0)),
        Kind::Unknown => Err(InputError::NotAVideo { name: name.into() }),
    }
}

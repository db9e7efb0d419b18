//! Pictures as the frames of a video: numbered ones, a folder of them, or one.

use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use kinora_models::image::Colour;

use super::{
    Decode, Frame, FrameSource, InputError, InputOptions, Opened, Timing, VideoInfo,
    error::Fault,
    numbered::{self, Found},
    source,
    stream::Stream,
};
use crate::{photo::Photo, video::FrameRate};

/// The most bytes of one picture from a stream, as for a photo.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Pictures that are opened one after another.
struct Pictures {
    /// The first one, which has been opened to see its size.
    first: Option<Frame>,
    paths: std::vec::IntoIter<PathBuf>,
    background: Colour,
    rate: FrameRate,
    frames: u64,
}

/// The one picture of a stream.
pub(super) struct Picture(Option<Frame>);

/// All pictures in a folder.
pub(super) fn folder(
    path: &Path,
    name: &str,
    options: &InputOptions,
) -> Result<Box<dyn FrameSource>, InputError> {
    let found = numbered::in_folder(path).map_err(|fault| fault.named(name, 0))?;
    if found.paths.is_empty() {
        return Err(InputError::NoPictures { name: name.into() });
    }
    sequence(found, name, options)
}

/// The numbered pictures that a path stands for which is no file itself.
pub(super) fn numbered(
    path: &Path,
    name: &str,
    options: &InputOptions,
) -> Result<Box<dyn FrameSource>, InputError> {
    let found = numbered::by_number(path).map_err(|fault| fault.named(name, 0))?;
    if found.paths.is_empty() {
        return Err(InputError::Missing { name: name.into() });
    }
    sequence(found, name, options)
}

fn sequence(found: Found, name: &str, options: &InputOptions) -> Result<Box<dyn FrameSource>, InputError> {
    let Found { paths, notes } = found;
    let first = Photo::open(&paths[0])?;
    let rate = options.rate();
    let timing = options.frame_rate.map_or(Timing::Unknown, Timing::Constant);
    let mut info = VideoInfo::new("pictures", [first.width(), first.height()], timing);
    info.frames = Some(paths.len() as u64);
    info.has_alpha = first.is_transparent();
    info.notes = notes;
    let first = Frame { image: first.on(options.background), time: Duration::ZERO };
    let mut rest = paths.clone().into_iter();
    rest.next();
    let pictures =
        Pictures { first: Some(first), paths: rest, background: options.background, rate, frames: 1 };
    source(name, paths, Ok((info, pictures)))
}

impl Decode for Pictures {
    fn decode(&mut self) -> Result<Option<Frame>, Fault> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(path) = self.paths.next() else { return Ok(None) };
        let image = Photo::open(path)?.on(self.background);
        let time = self.rate.time_of(self.frames);
        self.frames += 1;
        Ok(Some(Frame { image, time }))
    }
}

/// A picture is a video of one frame.
pub(super) fn one(stream: Stream, options: &InputOptions) -> Opened<Picture> {
    let mut bytes = Vec::new();
    stream.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Fault::damaged(format!("a picture of more than {MAX_FILE_BYTES} bytes")));
    }
    let photo = Photo::decode(&bytes)?;
    let timing = options.frame_rate.map_or(Timing::Unknown, Timing::Constant);
    let mut info = VideoInfo::new("picture", [photo.width(), photo.height()], timing);
    info.frames = Some(1);
    info.has_alpha = photo.is_transparent();
    let frame = Frame { image: photo.on(options.background), time: Duration::ZERO };
    Ok((info, Picture(Some(frame))))
}

impl Decode for Picture {
    fn decode(&mut self) -> Result<Option<Frame>, Fault> {
        Ok(self.0.take())
    }
}

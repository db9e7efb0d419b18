//! Numbered PNG files, which appear together or not at all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use image::{
    ExtendedColorType, ImageEncoder,
    codecs::png::{CompressionType, FilterType, PngEncoder},
};
use tempfile::{TempDir, TempPath};

use super::{
    RgbImage, VideoError, VideoOptions,
    error::EncodeError,
    output::{check_free, folder, rename, sync_folder, temporary, unwritable},
};

/// Frames as `clip-0001.png`, `clip-0002.png` … for the path `clip.png`.
///
/// They wait in a temporary folder until all are there. Overwriting replaces the whole clip: files that follow each other
/// from the first number on are removed if the new clip does not reach them, since programs that read the sequence would
/// take them for its end. Files beyond a gap do not belong to it.
pub(super) struct PngSequence {
    path: PathBuf,
    overwrite: bool,
    waiting: TempDir,
    frames: usize,
}

impl PngSequence {
    pub(super) fn create(path: &Path, options: &VideoOptions) -> Result<Self, VideoError> {
        let overwrite = options.overwrite;
        for number in 1..=options.frames.unwrap_or(1) {
            check_free(&numbered(path, number), overwrite)?;
        }
        let mut builder = temporary(path);
        // A folder needs the right to be entered.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let waiting = builder.tempdir_in(folder(path)).map_err(|error| unwritable(path, error))?;
        Ok(Self { path: path.into(), overwrite, waiting, frames: 0 })
    }

    pub(super) fn write_frame(&mut self, frame: &RgbImage) -> Result<(), EncodeError> {
        let mut file = File::create(self.waiting(self.frames + 1))?;
        write(frame, &mut file)?;
        file.sync_all()?;
        self.frames += 1;
        Ok(())
    }

    /// Gives every file its name; on an error, puts back what was there before.
    pub(super) fn publish(self) -> Result<Vec<PathBuf>, VideoError> {
        let mut replaced = Replaced { folder: self.waiting.path().to_owned(), ..Replaced::default() };
        match self.move_in(&mut replaced) {
            Ok(()) => {
                sync_folder(&self.path);
                Ok(replaced.new)
            }
            Err(error) => Err(self.give_up(replaced, error)),
        }
    }

    fn move_in(&self, replaced: &mut Replaced) -> Result<(), VideoError> {
        if self.overwrite {
            let mut number = 1;
            while is_file(&numbered(&self.path, number)) {
                number += 1;
            }
            let beyond = (number..=self.frames).filter(|&number| is_file(&numbered(&self.path, number)));
            for number in (1..number).chain(beyond) {
                replaced.set_aside(numbered(&self.path, number))?;
            }
        }
        for number in 1..=self.frames {
            let path = numbered(&self.path, number);
            let file = TempPath::try_from_path(self.waiting(number));
            rename(file.map_err(|error| VideoError::io(&path, error))?, &path, false)?;
            replaced.new.push(path);
        }
        Ok(())
    }

    /// Puts back what was there before. What cannot be put back is kept where it is, and the error says where.
    fn give_up(self, replaced: Replaced, failure: VideoError) -> VideoError {
        match replaced.undo() {
            Ok(()) => failure,
            Err(source) => {
                VideoError::NotRestored { failure: Box::new(failure), folder: self.waiting.keep(), source }
            }
        }
    }

    fn waiting(&self, number: usize) -> PathBuf {
        self.waiting.path().join(format!("{number}.png"))
    }
}

/// What moving in has changed so far.
#[derive(Default)]
struct Replaced {
    /// Where old files wait.
    folder: PathBuf,
    /// Files of the new clip under their names.
    new: Vec<PathBuf>,
    /// Files of the old clip: where they were, where they are.
    old: Vec<(PathBuf, PathBuf)>,
}

impl Replaced {
    fn set_aside(&mut self, file: PathBuf) -> Result<(), VideoError> {
        // Under its own name, since it may have to be found there; new frames wait as numbers alone.
        let aside = self.folder.join(file.file_name().unwrap_or_default());
        fs::rename(&file, &aside).map_err(|error| VideoError::io(&file, error))?;
        self.old.push((file, aside));
        Ok(())
    }

    /// As far as the system lets us: all that can be put back is; an error is of one that cannot.
    fn undo(self) -> io::Result<()> {
        for file in self.new {
            let _ = fs::remove_file(file);
        }
        let put_back = |(file, aside): (PathBuf, PathBuf)| fs::rename(aside, file);
        // All of them are tried before one is reported.
        let results: Vec<io::Result<()>> = self.old.into_iter().map(put_back).collect();
        results.into_iter().collect()
    }
}

/// Writes a file of one frame.
pub(super) fn write(frame: &RgbImage, sink: &mut impl Write) -> Result<(), EncodeError> {
    Ok(sink.write_all(&encode(frame)?)?)
}

/// The bytes of a file. In memory, since the encoder would hide the kind of an I/O error.
fn encode(frame: &RgbImage) -> io::Result<Vec<u8>> {
    let (Ok(width), Ok(height)) = (u32::try_from(frame.width()), u32::try_from(frame.height())) else {
        return Err(io::Error::other("the frame is wider or higher than 2³² pixels"));
    };
    let mut bytes = Vec::new();
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive)
        .write_image(frame.bytes(), width, height, ExtendedColorType::Rgb8)
        .map_err(io::Error::other)?;
    Ok(bytes)
}

/// `clip.png` with a number: `clip-0001.png`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let (mut name, extension) = stem(path);
    name.push(format!("-{number:04}"));
    name.push(extension);
    path.with_file_name(name)
}

/// A name before its extension, and the extension with its dot.
fn stem(path: &Path) -> (OsString, OsString) {
    let mut extension = OsString::from(".");
    extension.push(path.extension().unwrap_or_default());
    (path.file_stem().unwrap_or_default().to_owned(), extension)
}

/// Whether there is something at the path that a file can take the place of.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::FrameRate;

    #[test]
    fn what_cannot_be_put_back_is_kept_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clip.png");
        for number in [1, 2] {
            fs::write(numbered(&path, number), format!("old {number}")).unwrap();
        }
        let options = VideoOptions { overwrite: true, ..VideoOptions::new(FrameRate::new(7.0).unwrap()) };
        let sequence = PngSequence::create(&path, &options).unwrap();
        let mut replaced = Replaced { folder: sequence.waiting.path().to_owned(), ..Replaced::default() };
        for number in [1, 2] {
            replaced.set_aside(numbered(&path, number)).unwrap();
        }
        // Nothing can take the place of a folder.
        fs::create_dir(numbered(&path, 1)).unwrap();
        let error = sequence.give_up(replaced, VideoError::DiskFull { path: path.clone() });
        let VideoError::NotRestored { folder: kept, .. } = &error else { panic!("{error}") };
        assert!(error.to_string().contains(&*kept.to_string_lossy()), "{error}");
        assert_eq!(fs::read(kept.join("clip-0001.png")).unwrap(), b"old 1");
        assert_eq!(fs::read(numbered(&path, 2)).unwrap(), b"old 2");
    }
}

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
    Frame, VideoError,
    error::EncodeError,
    output::{check_free, folder, rename, sync_folder, temporary, unwritable},
};

/// Frames as `clip-0001.png`, `clip-0002.png` … for the path `clip.png`.
///
/// They wait in a temporary folder until all are there. Overwriting replaces the whole clip: numbered files of the same name
/// that the new clip does not reach are removed too, since programs that read the sequence would take them for its end.
pub(super) struct PngSequence {
    path: PathBuf,
    overwrite: bool,
    waiting: TempDir,
    frames: usize,
}

impl PngSequence {
    pub(super) fn create(path: &Path, overwrite: bool) -> Result<Self, VideoError> {
        check_free(&numbered(path, 1), overwrite)?;
        let old = existing(path).map_err(|error| unwritable(path, error))?;
        if let Some(file) = old.into_iter().next()
            && !overwrite
        {
            return Err(VideoError::Exists { path: file });
        }
        let mut builder = temporary(path);
        // A folder needs the right to be entered.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let waiting = builder.tempdir_in(folder(path)).map_err(|error| unwritable(path, error))?;
        Ok(Self { path: path.into(), overwrite, waiting, frames: 0 })
    }

    pub(super) fn write_frame(&mut self, frame: &Frame) -> Result<(), EncodeError> {
        let bytes = encode(frame)?;
        let mut file = File::create(self.waiting(self.frames + 1))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        self.frames += 1;
        Ok(())
    }

    /// Gives every file its name; on an error, puts back what was there before.
    pub(super) fn publish(self) -> Result<Vec<PathBuf>, VideoError> {
        let mut replaced = Replaced { folder: self.waiting.path(), new: Vec::new(), old: Vec::new() };
        let result = self.move_in(&mut replaced);
        match result {
            Ok(()) => {
                let files = replaced.new;
                sync_folder(&self.path);
                Ok(files)
            }
            Err(error) => {
                replaced.undo();
                Err(error)
            }
        }
    }

    fn move_in(&self, replaced: &mut Replaced<'_>) -> Result<(), VideoError> {
        if self.overwrite {
            for file in existing(&self.path).map_err(|error| VideoError::io(&self.path, error))? {
                replaced.set_aside(file)?;
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

    fn waiting(&self, number: usize) -> PathBuf {
        self.waiting.path().join(format!("{number}.png"))
    }
}

/// What moving in has changed so far.
struct Replaced<'a> {
    /// Where old files wait.
    folder: &'a Path,
    /// Files of the new clip under their names.
    new: Vec<PathBuf>,
    /// Files of the old clip: where they were, where they are.
    old: Vec<(PathBuf, PathBuf)>,
}

impl Replaced<'_> {
    fn set_aside(&mut self, file: PathBuf) -> Result<(), VideoError> {
        let aside = self.folder.join(format!("old-{}.png", self.old.len()));
        fs::rename(&file, &aside).map_err(|error| VideoError::io(&file, error))?;
        self.old.push((file, aside));
        Ok(())
    }

    /// As far as the system lets us: the error that led here is the one to report.
    fn undo(self) {
        for file in self.new {
            let _ = fs::remove_file(file);
        }
        for (file, aside) in self.old {
            let _ = fs::rename(aside, file);
        }
    }
}

/// The bytes of a file. In memory, since the encoder would hide the kind of an I/O error.
fn encode(frame: &Frame) -> io::Result<Vec<u8>> {
    let (Ok(width), Ok(height)) = (u32::try_from(frame.width()), u32::try_from(frame.height())) else {
        return Err(io::Error::other("the frame is wider or higher than 2³² pixels"));
    };
    let mut bytes = Vec::new();
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive)
        .write_image(frame.data(), width, height, ExtendedColorType::Rgb8)
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

/// The numbered files of this name that are there, in the order of their numbers.
fn existing(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (name, extension) = stem(path);
    let (name, extension) = (name.to_string_lossy(), extension.to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder(path))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            continue;
        }
        let entry = entry.file_name();
        let number = entry.to_str().and_then(|entry| {
            let digits = entry.strip_prefix(&*name)?.strip_prefix('-')?.strip_suffix(&*extension)?;
            let written = digits.parse::<usize>().ok().filter(|number| *number > 0)?;
            // Only names that we would write ourselves: not `clip-1.png`, which is someone else's.
            (digits == format!("{written:04}")).then_some(written)
        });
        if let Some(number) = number {
            found.push((number, path.with_file_name(entry)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

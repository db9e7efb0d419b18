//! Files that a video must not touch: its inputs, what others wrote, and what other processes are writing.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use kinora::video::{VideoError, VideoFile, VideoOptions, WrittenVideo};
use support::{at_rate, clip, names};

/// A folder with a name for everything in it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, name).unwrap();
        path
    }

    fn holds(&self, name: &str) -> bool {
        fs::read(self.path(name)).is_ok_and(|bytes| bytes == name.as_bytes())
    }

    fn write(&self, name: &str, frames: usize) -> Result<WrittenVideo, VideoError> {
        write(&self.path(name), frames, &at_rate(7.0).overwrite(true))
    }

    fn names(&self) -> Vec<String> {
        names(self.0.path())
    }
}

fn write(path: &Path, frames: usize, options: &VideoOptions) -> Result<WrittenVideo, VideoError> {
    let mut file = VideoFile::create(path, options)?;
    for frame in clip(32, 32, frames) {
        file.write_frame(&frame)?;
    }
    file.finish()
}

fn protecting(path: &Path) -> VideoOptions {
    at_rate(7.0).overwrite(true).protect([path.to_owned()])
}

#[test]
fn an_input_is_refused_by_every_name() {
    let folder = Folder::new();
    for (input, output) in [
        ("photo.gif", "photo.gif"),
        ("photo.mp4", "./photo.mp4"),
        ("photo.y4m", "soft.y4m"),
        ("photo.gif", "hard.gif"),
        ("IMG-0001.png", "IMG.png"),
        ("IMG-0001.png", "soft.png"),
    ] {
        let input = folder.put(input);
        #[cfg(unix)]
        {
            let linked = output.replace("soft.png", "soft-0001.png");
            let _ = match linked.get(..4) {
                Some("soft") => std::os::unix::fs::symlink(&input, folder.path(&linked)),
                Some("hard") => fs::hard_link(&input, folder.path(&linked)),
                _ => Ok(()),
            };
        }
        if cfg!(not(unix)) && output.contains("hard") {
            continue;
        }
        let error = VideoFile::create(folder.path(output), &protecting(&input)).err().unwrap();
        assert!(matches!(error, VideoError::IsInput { .. }), "{error}");
        assert!(error.to_string().contains("choose another name"), "{error}");
        assert!(folder.holds(input.file_name().unwrap().to_str().unwrap()), "{output}");
    }
    assert!(!folder.names().iter().any(|name| name.ends_with(".partial")));
}

/// How many frames there will be need not be known at the start.
#[test]
fn an_input_among_the_later_numbers_is_refused_when_it_is_reached() {
    let folder = Folder::new();
    let input = folder.put("IMG-0003.png");
    folder.put("IMG-0001.png");
    let before = folder.names();
    let error = write(&folder.path("IMG.png"), 4, &protecting(&input)).unwrap_err();
    assert!(matches!(&error, VideoError::IsInput { path } if *path == input), "{error}");
    assert_eq!(folder.names(), before);
    assert!(folder.holds("IMG-0001.png") && folder.holds("IMG-0003.png"));
    // Known, it is refused at once.
    let error = VideoFile::create(folder.path("IMG.png"), &protecting(&input).frames(3)).err().unwrap();
    assert!(matches!(&error, VideoError::IsInput { path } if *path == input), "{error}");
    // A clip that does not reach it may be written, and says what follows.
    folder.put("IMG-0002.png");
    let written = write(&folder.path("IMG.png"), 2, &protecting(&input)).unwrap();
    assert_eq!(written.left, [input]);
    assert!(folder.holds("IMG-0003.png"));
}

#[test]
fn an_input_that_appears_under_the_outputs_name_is_refused() {
    let folder = Folder::new();
    let input = folder.put("photo.png");
    for name in ["clip.gif", "clip.png"] {
        let mut file = VideoFile::create(folder.path(name), &protecting(&input)).unwrap();
        file.write_frame(&clip(32, 32, 1)[0]).unwrap();
        let taken = folder.path(if name == "clip.png" { "clip-0001.png" } else { name });
        fs::rename(&input, &taken).unwrap();
        assert!(matches!(file.finish(), Err(VideoError::IsInput { .. })), "{name}");
        fs::rename(&taken, &input).unwrap();
        assert!(folder.holds("photo.png"));
        assert_eq!(folder.names(), ["photo.png"]);
    }
}

/// Photos of a camera are numbered, too.
#[test]
fn files_that_no_clip_wrote_are_not_removed() {
    let folder = Folder::new();
    (1..=20).for_each(|number| drop(folder.put(&format!("IMG-{number:04}.png"))));
    let written = folder.write("IMG.png", 4).unwrap();
    assert!((5..=20).all(|number| folder.holds(&format!("IMG-{number:04}.png"))));
    assert_eq!(written.left.len(), 16);
    assert_eq!(written.left[0], folder.path("IMG-0005.png"));
}

#[test]
fn only_unchanged_frames_of_an_earlier_clip_are_removed() {
    let folder = Folder::new();
    folder.write("clip.png", 6).unwrap();
    // One was edited in place and another replaced; a third only looks older.
    folder.put("clip-0004.png");
    let later = SystemTime::now() - Duration::from_secs(1000);
    File::options().write(true).open(folder.path("clip-0006.png")).unwrap().set_modified(later).unwrap();
    let written = folder.write("clip.png", 2).unwrap();
    assert_eq!(
        folder.names(),
        [".clip.png.kinora", "clip-0001.png", "clip-0002.png", "clip-0004.png", "clip-0006.png"]
    );
    // A gap ends the clip for whoever reads it.
    assert!(written.left.is_empty() && folder.holds("clip-0004.png"));
    // The new manifest does not know them any more.
    assert_eq!(folder.write("clip.png", 3).unwrap().left, [folder.path("clip-0004.png")]);
    folder.write("clip.png", 1).unwrap();
    assert_eq!(folder.names(), [".clip.png.kinora", "clip-0001.png", "clip-0004.png", "clip-0006.png"]);
}

#[test]
fn a_damaged_or_hostile_manifest_removes_nothing() {
    let folder = Folder::new();
    folder.write("clip.png", 3).unwrap();
    let manifest = folder.path(".clip.png.kinora");
    let text = fs::read_to_string(&manifest).unwrap();
    for damaged in
        ["", "{", "[]", &text.replace("files", "fiels"), &text.replace("\"bytes\":", "\"bytes\":1")]
    {
        fs::write(&manifest, damaged).unwrap();
        assert_eq!(folder.write("clip.png", 1).unwrap().left.len(), 2, "{damaged}");
    }
    // It is written again, but not over someone else's file.
    let manifest = folder.path(".other.png.kinora");
    fs::write(&manifest, "mine").unwrap();
    let error = VideoFile::create(folder.path("other.png"), &at_rate(7.0)).err().unwrap();
    assert!(matches!(&error, VideoError::Exists { path } if *path == manifest), "{error}");
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o7777;
    for (name, file) in [("clip.mp4", "clip.mp4"), ("clip.gif", "clip.gif"), ("clip.png", "clip-0002.png")] {
        for bits in [0o600, 0o640, 0o666, 0o400] {
            fs::write(folder.path(file), "old").unwrap();
            fs::set_permissions(folder.path(file), fs::Permissions::from_mode(bits)).unwrap();
            folder.write(name, 2).unwrap();
            assert_eq!(mode(file), bits, "{file}");
            fs::remove_file(folder.path(file)).unwrap();
        }
    }
    // While it waits, it is not open to more people than the file that it replaces.
    fs::write(folder.path("clip.gif"), "old").unwrap();
    fs::set_permissions(folder.path("clip.gif"), fs::Permissions::from_mode(0o600)).unwrap();
    let file = VideoFile::create(folder.path("clip.gif"), &at_rate(7.0).overwrite(true)).unwrap();
    let waiting = folder.names().into_iter().find(|name| name.ends_with(".partial")).unwrap();
    assert_eq!(mode(&waiting), 0o600);
    drop(file);
}

/// Only the administrator can give files away, and so see this.
#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_owner() {
    use std::os::unix::fs::{MetadataExt, chown};
    let folder = Folder::new();
    for (name, file) in [("clip.gif", "clip.gif"), ("clip.png", "clip-0001.png")] {
        let path = folder.put(file);
        let Ok(()) = chown(&path, Some(12345), Some(23456)) else { return };
        folder.write(name, 1).unwrap();
        let found = fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid()), (12345, 23456), "{file}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_is_replaced_and_what_it_points_to_stays() {
    let folder = Folder::new();
    folder.put("precious");
    for (name, link) in [("clip.gif", "clip.gif"), ("clip.png", "clip-0001.png")] {
        std::os::unix::fs::symlink("precious", folder.path(link)).unwrap();
        folder.write(name, 1).unwrap();
        assert!(!folder.path(link).is_symlink() && folder.holds("precious"));
    }
}

/// What dead processes left is removed; what living ones write is not, nor what only looks like it.
#[cfg(unix)]
#[test]
fn leftovers_of_dead_processes_are_removed() {
    let folder = Folder::new();
    folder.put(".kinora-dead.mp4.partial");
    fs::create_dir(folder.path(".kinora-dead.png.partial")).unwrap();
    folder.put(".kinora-dead.png.partial/clip-0001.png");
    // A folder inside is not ours.
    fs::create_dir_all(folder.path(".kinora-strange.partial/inner")).unwrap();
    folder.put(".kinora-strange.partial/inner/file");
    fs::create_dir(folder.path("elsewhere")).unwrap();
    folder.put("elsewhere/file");
    std::os::unix::fs::symlink("elsewhere", folder.path(".kinora-link.partial")).unwrap();
    folder.put(".kinora-note");
    folder.put("video.partial");
    let kept =
        [".kinora-link.partial", ".kinora-note", ".kinora-strange.partial", "elsewhere", "video.partial"];
    // This process is alive.
    let living = ["a.gif", "a.png"].map(|name| VideoFile::create(folder.path(name), &at_rate(7.0)).unwrap());
    let waiting = folder.names();
    assert_eq!(waiting.len(), kept.len() + 2, "{waiting:?}");
    drop(VideoFile::create(folder.path("b.gif"), &at_rate(7.0)).unwrap());
    assert_eq!(folder.names(), waiting);
    for mut file in living {
        file.write_frame(&clip(32, 32, 1)[0]).unwrap();
        file.finish().unwrap();
    }
    ["a.gif", "a-0001.png", ".a.png.kinora"]
        .iter()
        .for_each(|name| fs::remove_file(folder.path(name)).unwrap());
    assert_eq!(folder.names(), kept);
    assert!(folder.holds("elsewhere/file") && folder.holds(".kinora-strange.partial/inner/file"));
}

/// A clip whose writer was killed while its files took their names, and into whose place someone has put a file since.
#[cfg(unix)]
#[test]
fn a_killed_clip_is_put_back_unless_its_names_are_taken() {
    let folder = Folder::new();
    let dead = ".kinora-dead.png.partial";
    // It has set two old frames aside, and given a name to the first of two new ones.
    let begin = || {
        for name in [".clip.png.kinora", "clip-0001.png", "clip-0002.png"] {
            let _ = fs::remove_file(folder.path(name));
        }
        folder.write("clip.png", 2).unwrap();
        fs::create_dir_all(folder.path(&format!("{dead}/old"))).unwrap();
        for name in ["clip-0001.png", "clip-0002.png"] {
            fs::write(folder.path(&format!("{dead}/old/{name}")), name).unwrap();
        }
        fs::rename(folder.path(".clip.png.kinora"), folder.path(&format!("{dead}/clip.png.kinora"))).unwrap();
        fs::rename(folder.path("clip-0002.png"), folder.path(&format!("{dead}/clip-0002.png"))).unwrap();
    };
    begin();
    drop(VideoFile::create(folder.path("other.gif"), &at_rate(7.0)).unwrap());
    assert_eq!(folder.names(), ["clip-0001.png", "clip-0002.png"]);
    assert!(folder.holds("clip-0001.png") && folder.holds("clip-0002.png"));

    begin();
    fs::write(folder.path("clip-0002.png"), "someone's").unwrap();
    let new = fs::read(folder.path("clip-0001.png")).unwrap();
    let mut file = VideoFile::create(folder.path("new.png"), &at_rate(7.0)).unwrap();
    file.write_frame(&clip(32, 32, 1)[0]).unwrap();
    assert_eq!(file.finish().unwrap().unrestored, [folder.path(dead)]);
    assert_eq!(fs::read(folder.path("clip-0001.png")).unwrap(), new);
    assert_eq!(fs::read(folder.path("clip-0002.png")).unwrap(), b"someone's");
    assert_eq!(fs::read(folder.path(&format!("{dead}/old/clip-0002.png"))).unwrap(), b"clip-0002.png");
}

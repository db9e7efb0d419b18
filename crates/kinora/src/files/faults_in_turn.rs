//! Every file operation failed or cut short in turn, and the folder checked after each: it holds what it held before, or what it is to hold
//! afterwards, and nothing else.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    io::Write,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
};

use kinora_models::image::RgbImage;

use super::{
    WholeFile,
    faults::{Fault, with_fault},
    manifest::{Manifest, Stamp},
    numbered,
    system::Operation,
};
use crate::{
    children,
    video::{FrameRate, VideoFile, VideoOptions},
};

/// How many frames the new clip has.
const FRAMES: usize = 3;

/// What is written, and what was there before.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    /// How many frames the old clip has; `None` if there is no old one.
    old: Option<usize>,
}

/// Anything whose extension is that of no video is written as a [`WholeFile`].
const NAMES: [&str; 5] = ["clip.mp4", "clip.gif", "clip.png", "clip.y4m", "report.json"];

const FAULTS: [Fault; 8] = [
    Fault::Fails(libc::ENOSPC),
    Fault::Fails(libc::EIO),
    Fault::Fails(libc::EACCES),
    Fault::Fails(libc::EROFS),
    Fault::Fails(libc::EINTR),
    Fault::FailsFromThereOn(libc::EIO),
    Fault::FailsFromThereOn(libc::ENOSPC),
    Fault::Dies,
];

fn write(folder: &Path, name: &str, frames: usize, shade: u8) -> Result<(), Box<dyn Error>> {
    let path = folder.join(name);
    if name.ends_with(".json") {
        let mut file = WholeFile::create(path, true)?;
        file.write_all(&vec![shade; 100 + 10_000 * frames])?;
        return Ok(file.finish()?);
    }
    let options = VideoOptions::new(FrameRate::new(7.0)?).overwrite(true);
    let mut file = VideoFile::create(path, &options)?;
    for number in 0..frames {
        let picture = vec![shade.wrapping_add(40 * number as u8); 32 * 32 * 3];
        file.write_frame(&RgbImage::new(32, 32, picture)?)?;
    }
    file.finish()?;
    Ok(())
}

impl Case {
    /// A folder with the old clip, and files that Kinora did not write.
    fn folder(&self) -> tempfile::TempDir {
        // In memory if there is such a place: a disk would take a minute to bring thousands of small files to itself.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        if let Some(frames) = self.old {
            write(folder.path(), self.name, frames, 7).unwrap();
        }
        for name in ["notes.txt", "clip-0009.png", ".kinora-notes"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        folder
    }

    fn run(&self, folder: &Path) -> Result<(), Box<dyn Error>> {
        write(folder, self.name, FRAMES, 101)
    }
}

/// What lies in a folder. Of a manifest, whether it describes its clip.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let content = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        Some(".clip.png.kinora") => {
            let stamps = Manifest::read(path).unwrap().files;
            let clip = folder.join("clip.png");
            let found = (1..=stamps.len()).map(|number| Stamp::of(&numbered(&clip, number)));
            assert!(found.eq(stamps.iter().copied().map(Some)), "a manifest of other files");
            b"a manifest".to_vec()
        }
        _ if path.is_dir() => b"a folder".to_vec(),
        _ => fs::read(path).unwrap(),
    };
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), content(&path))).collect()
}

/// The same without temporary files.
fn visible(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    contents(folder).into_iter().filter(|(name, _)| !name.ends_with(".partial")).collect()
}

/// Lets another process begin a video of another name in the folder.
fn next_process(folder: &Path) {
    let options = VideoOptions::new(FrameRate::new(7.0).unwrap());
    drop(VideoFile::create(folder.join("another.y4m"), &options).unwrap());
}

/// Runs a case with one fault, and checks what it leaves; returns whether there was such an operation.
fn check(case: Case, fault: Fault, at: usize, new: &BTreeMap<String, Vec<u8>>) -> bool {
    let folder = case.folder();
    let folder = folder.path();
    let old = contents(folder);
    let (result, struck) = with_fault(fault, at, || case.run(folder));
    let Some(operation) = struck else {
        assert!(result.is_ok() && contents(folder) == *new, "{case:?}: {result:?}");
        return false;
    };
    let told = format!("{case:?}: {fault:?} at {at}, {operation:?}: {result:?}");
    let expected = if result.is_ok() { new } else { &old };
    match fault {
        // What could not be removed is left for the next process.
        Fault::Fails(_) if matches!(operation, Operation::Remove | Operation::RemoveFolder) => {
            assert!(visible(folder) == *expected, "{told}");
        }
        Fault::Fails(_) => assert!(contents(folder) == *expected, "{told}"),
        _ => {}
    }
    next_process(folder);
    let left = contents(folder);
    let names: Vec<&String> = left.keys().collect();
    match fault {
        Fault::Dies => assert!(left == old || left == *new, "{told}: {names:?}"),
        _ => assert!(left == *expected, "{told}: {names:?}"),
    }
    true
}

#[test]
fn every_operation_may_fail_or_be_the_last() {
    let _no_children = children::alone();
    let mut count = 0;
    for name in NAMES {
        for old in [None, Some(1), Some(FRAMES), Some(5)] {
            let case = Case { name, old };
            let folder = case.folder();
            case.run(folder.path()).unwrap();
            let new = contents(folder.path());
            for fault in FAULTS {
                count += (1..).take_while(|at| check(case, fault, *at, &new)).count();
            }
        }
    }
    println!("{count} faults");
    assert!(count > 1400, "{count}");
}

const CHILD: &str = "KINORA_TEST_KILLED_CHILD";

/// The work of [`every_operation_may_be_the_last_of_a_real_process`], in a process of its own.
#[test]
fn a_child_that_is_killed() {
    let Ok(text) = env::var(CHILD) else { return };
    let [name, at, folder] = text.split('|').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let work = || {
        Case { name: NAMES.into_iter().find(|known| *known == name).unwrap(), old: None }.run(folder.as_ref())
    };
    let (result, _) = with_fault(Fault::Killed, at.parse().unwrap(), work);
    result.unwrap();
}

#[test]
fn every_operation_may_be_the_last_of_a_real_process() {
    let _one_at_a_time = children::alone();
    let mut count = 0;
    for name in ["clip.gif", "clip.png", "report.json"] {
        let case = Case { name, old: Some(5) };
        let folder = case.folder();
        case.run(folder.path()).unwrap();
        let new = contents(folder.path());
        for at in 1.. {
            let folder = case.folder();
            let old = contents(folder.path());
            let status = Command::new(env::current_exe().unwrap())
                .args(["--exact", "files::faults_in_turn::a_child_that_is_killed"])
                .env(CHILD, format!("{name}|{at}|{}", folder.path().display()))
                .stdout(Stdio::null())
                .status()
                .unwrap();
            if status.success() {
                assert!(contents(folder.path()) == new, "{case:?}");
                break;
            }
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{case:?}, {at}: {status}");
            next_process(folder.path());
            let left = contents(folder.path());
            assert!(left == old || left == new, "{case:?}, killed at {at}: {:?}", left.keys());
            count += 1;
        }
    }
    println!("{count} processes killed");
    assert!(count > 30, "{count}");
}

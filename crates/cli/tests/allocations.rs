//! Every allocation of a clip failed in turn: an error, or the program's last words, and never half a file.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

#[path = "../src/out_of_memory.rs"]
#[allow(dead_code)]
mod out_of_memory;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
    ptr,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use kinora::{Device, ImageToVideo, LoadOptions, ModelFolder, RgbImage, Settings};
use kinora_models::presets::Preset;

/// Refuses allocations by their number or size.
struct Refusing;

static MADE: AtomicUsize = AtomicUsize::new(0);
/// The first and the last number of those that are refused.
static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
static TO: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The smallest size that is refused.
static SIZE: AtomicUsize = AtomicUsize::new(usize::MAX);

impl Refusing {
    fn refuses(&self, size: usize) -> bool {
        let number = MADE.fetch_add(1, Relaxed);
        (FROM.load(Relaxed)..TO.load(Relaxed)).contains(&number) || size >= SIZE.load(Relaxed)
    }
}

// SAFETY: all calls are handed on to the system's allocator, or answered as if there were no memory.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if self.refuses(layout.size()) { ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        if self.refuses(size) { ptr::null_mut() } else { unsafe { System.realloc(block, layout, size) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: out_of_memory::Allocator<Refusing> = out_of_memory::Allocator(Refusing);

/// Tells the process that makes the clip where, and which allocations to refuse: the first, the one after the last, a size.
const PLACE: &str = "KINORA_ALLOCATIONS_PLACE";
const REFUSED: &str = "KINORA_ALLOCATIONS_REFUSED";

/// Makes a clip, and prints how many allocations that took.
fn clip(folder: &Path, refused: [usize; 3]) -> Result<(), Box<dyn std::error::Error>> {
    let photo = RgbImage::new(96, 64, vec![100; 96 * 64 * 3])?;
    kinora::device::start_threads()?;
    MADE.store(0, SeqCst);
    for (place, value) in [&FROM, &TO, &SIZE].into_iter().zip(refused) {
        place.store(value, SeqCst);
    }
    let model = ModelFolder::open(folder.join("tiny"))?;
    let settings = Settings::for_model(&model)?.frames(2).width(64).height(64).steps(1).seed(1);
    let pipeline = ImageToVideo::new(model, LoadOptions::default().device(Device::Cpu))?;
    pipeline.generate(&photo, &settings)?.save(folder.join("clip.gif"))?;
    let made = MADE.load(SeqCst);
    FROM.store(usize::MAX, SeqCst);
    SIZE.store(usize::MAX, SeqCst);
    println!("made {made}");
    Ok(())
}

/// Runs [`clip`] in a process of its own.
fn child(folder: &Path, refused: [usize; 3]) -> Output {
    let words =
        ["--exact", "no_failed_allocation_is_passed_over_in_silence", "--nocapture", "--test-threads=1"];
    let numbers = refused.map(|number| number.to_string()).join(" ");
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(words).env(PLACE, folder).env(REFUSED, numbers).output().unwrap()
}

/// The body of the child.
fn in_child(folder: &Path) -> ! {
    let numbers = env::var(REFUSED).unwrap();
    let numbers: Vec<usize> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    out_of_memory::set_json(true);
    let made = clip(folder, numbers.try_into().unwrap());
    // To report an error takes memory.
    FROM.store(usize::MAX, SeqCst);
    SIZE.store(usize::MAX, SeqCst);
    match made {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            println!("{}", serde_json::json!({ "error": { "kind": "typed", "message": error.to_string() } }));
            std::process::exit(1);
        }
    }
}

/// The numbers are spread over all of them: each of the first, then ever fewer. `KINORA_EVERY_ALLOCATION=1` takes every one of the
/// first thousands, which takes an hour.
#[test]
fn no_failed_allocation_is_passed_over_in_silence() {
    if let Some(folder) = env::var_os(PLACE).map(PathBuf::from) {
        in_child(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    Preset::tiny().model.write(&folder.path().join("tiny")).unwrap();
    let whole = child(folder.path(), [usize::MAX; 3]);
    let said = String::from_utf8(whole.stdout).unwrap();
    let count: usize =
        said.lines().find_map(|line| line.split_once("made ")).expect(&said).1.parse().unwrap();
    std::fs::remove_file(folder.path().join("clip.gif")).unwrap();

    let mut refused = Vec::new();
    let mut number = 0;
    let every = env::var_os("KINORA_EVERY_ALLOCATION").is_some();
    while number < count {
        // Two, because the first is tried again.
        refused.push([number, number + 2, usize::MAX]);
        refused.push([number, usize::MAX, usize::MAX]);
        number += if every { 1 + number / 2000 } else { 1 + number / 3 };
    }
    refused.extend([1 << 8, 1 << 12, 1 << 14, 1 << 16, 1 << 17].map(|size| [usize::MAX, usize::MAX, size]));
    let mut failed = 0;
    for which in refused {
        let ended = child(folder.path(), which);
        let (said, about) = (String::from_utf8(ended.stdout).unwrap(), format!("{which:?} of {count}"));
        let complaint = String::from_utf8(ended.stderr).unwrap();
        let clip = folder.path().join("clip.gif");
        match ended.status.code() {
            // Whoever was refused could do without it.
            Some(0) => std::fs::remove_file(&clip).unwrap(),
            Some(1) => {
                failed += 1;
                let last = said.lines().last().unwrap_or_default();
                let start = last.find('{').unwrap_or(0);
                let object: Result<serde_json::Value, _> = serde_json::from_str(&last[start..]);
                assert!(
                    object.is_ok_and(|object| object["error"]["kind"].is_string()),
                    "{about}: {said}{complaint}"
                );
            }
            code => panic!("{about}: {code:?} {:?}\n{said}\n{complaint}", ended.status),
        }
        // The last words, or nothing: no note of the standard library's, and no panic.
        assert!(["", &*out_of_memory::message().concat()].contains(&&*complaint), "{about}: {complaint}");
        assert!(!clip.exists(), "{about}");
    }
    assert!(failed > 20, "{failed}");
}

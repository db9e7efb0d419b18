//! The cache that Kinora shares with huggingface_hub: its layout, two programs at a time, what it holds, whether it is whole.
#![allow(clippy::unwrap_used)]

mod hub_server;
mod tiny_model;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use hub_server::{COMMIT, Delivery, Server, blob_name};
use kinora_graph::DType;
use kinora_models::{
    hub::{FileState, Hub, HubError, HubId, Patience, Progress, verify_folder},
    weights::Variant,
};
use tiny_model::{TinyModel, files};

const UNET: &str = "unet/diffusion_pytorch_model.fp16.safetensors";
const F16: Variant = Variant::For(DType::F16);
const OTHER_COMMIT: &str = "fedcba9876543210fedcba9876543210fedcba98";

fn id() -> HubId {
    HubId::parse("owner/name").unwrap()
}

fn hub(endpoint: String, cache: &Path) -> Hub {
    let patience = Patience { pause: Duration::from_millis(1), ..Patience::default() };
    Hub { endpoint, cache: cache.to_owned(), token: None, offline: false, certificates: None, patience }
}

fn offline(cache: &Path) -> Hub {
    Hub { offline: true, ..hub("http://127.0.0.1:1".to_owned(), cache) }
}

/// A cache as huggingface_hub writes it: relative links, a reference without a line's end, and what it leaves beside.
#[cfg(unix)]
fn written_by_huggingface_hub(cache: &Path, commit: &str, reference: &str) -> PathBuf {
    let model = cache.join("models--owner--name");
    let snapshot = model.join("snapshots").join(commit);
    fs::create_dir_all(model.join("blobs")).unwrap();
    fs::create_dir_all(model.join("refs")).unwrap();
    fs::create_dir_all(model.join(".no_exist").join(commit)).unwrap();
    fs::create_dir_all(cache.join(".locks/models--owner--name")).unwrap();
    fs::write(cache.join("CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n").unwrap();
    fs::write(model.join("refs").join(reference), commit).unwrap();
    for (name, bytes) in files() {
        let blob = blob_name(name, &bytes);
        let path = snapshot.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(model.join("blobs").join(&blob), bytes).unwrap();
        let up = "../".repeat(name.split('/').count() + 1);
        std::os::unix::fs::symlink(format!("{up}blobs/{blob}"), path).unwrap();
        fs::write(cache.join(format!(".locks/models--owner--name/{blob}.lock")), "").unwrap();
    }
    snapshot
}

#[cfg(unix)]
#[test]
fn a_cache_of_huggingface_hub_is_read_and_added_to() {
    let cache = tempfile::tempdir().unwrap();
    let snapshot = written_by_huggingface_hub(cache.path(), COMMIT, "main");
    assert_eq!(offline(cache.path()).fetch(&id(), &F16, &mut ()).unwrap(), snapshot);
    let commit = HubId::parse(&format!("owner/name@{COMMIT}")).unwrap();
    assert_eq!(offline(cache.path()).fetch(&commit, &F16, &mut ()).unwrap(), snapshot);
    assert!(offline(cache.path()).fetch(&HubId::parse("owner/name@v2").unwrap(), &F16, &mut ()).is_err());
    // What it lacks is added, and nothing else is asked for.
    fs::remove_file(fs::canonicalize(snapshot.join(UNET)).unwrap()).unwrap();
    let server = Server::new(files());
    let online = hub(server.endpoint(), cache.path());
    assert_eq!(online.fetch(&id(), &F16, &mut ()).unwrap(), snapshot);
    assert_eq!(server.requests().len(), 2);
    assert!(verify_folder(&snapshot, &mut ()).unwrap().iter().all(|file| !file.state.is_bad()));
}

/// The other way round: huggingface_hub reads what Kinora writes, if it is laid out the same.
#[cfg(unix)]
#[test]
fn what_is_downloaded_is_laid_out_as_huggingface_hub_does() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::new(files());
    let snapshot = hub(server.endpoint(), ours.path()).fetch(&id(), &F16, &mut ()).unwrap();
    let expected = written_by_huggingface_hub(theirs.path(), COMMIT, "main");
    for name in ["model_index.json", "unet/config.json", UNET] {
        assert_eq!(fs::read_link(snapshot.join(name)).unwrap(), fs::read_link(expected.join(name)).unwrap());
    }
    for (name, bytes) in files() {
        if snapshot.join(name).exists() {
            let lock = format!(".locks/models--owner--name/{}.lock", blob_name(name, &bytes));
            assert!(ours.path().join(lock).is_file(), "{name}");
        }
    }
    let reference = "models--owner--name/refs/main";
    assert_eq!(
        fs::read(ours.path().join(reference)).unwrap(),
        fs::read(theirs.path().join(reference)).unwrap()
    );
    // A commit is no reference.
    let commit = HubId::parse(&format!("owner/name@{COMMIT}")).unwrap();
    hub(server.endpoint(), ours.path()).fetch(&commit, &F16, &mut ()).unwrap();
    assert!(!ours.path().join("models--owner--name/refs").join(COMMIT).exists());
}

#[test]
fn two_programs_download_every_file_once() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::new(files());
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                hub(server.endpoint(), cache.path()).fetch(&id(), &F16, &mut ()).unwrap();
            });
        }
    });
    let requests = server.requests();
    for (name, _) in files() {
        let count = requests.iter().filter(|request| request.is_get_of(name)).count();
        assert!(count <= 1, "{name} was asked for {count} times");
    }
    let checked = hub(server.endpoint(), cache.path()).verify(&id(), &mut ()).unwrap();
    assert!(checked[0].1.iter().all(|file| matches!(file.state, FileState::Good(_))));
}

#[test]
fn a_program_that_holds_a_file_is_waited_for_but_not_forever() {
    struct Told(usize);
    impl Progress for Told {
        fn downloaded(&mut self, _: &str, _: u64, _: u64) {}

        fn waiting(&mut self, file: &str) {
            assert_eq!(file, "model_index.json");
            self.0 += 1;
        }
    }
    let cache = tempfile::tempdir().unwrap();
    let server = Server::new(files());
    let (_, index) = files().into_iter().find(|(name, _)| *name == "model_index.json").unwrap();
    let locks = cache.path().join(".locks/models--owner--name");
    fs::create_dir_all(&locks).unwrap();
    let lock = File::create(locks.join(format!("{}.lock", blob_name("model_index.json", &index)))).unwrap();
    lock.lock().unwrap();
    let mut hub = hub(server.endpoint(), cache.path());
    hub.patience.other_program = Duration::from_millis(300);
    let mut told = Told(0);
    let error = hub.fetch(&id(), &F16, &mut told).unwrap_err();
    assert!(matches!(error, HubError::Busy { .. }), "{error}");
    assert_eq!(told.0, 1);
    hub.patience.other_program = Duration::from_secs(60);
    thread::scope(|scope| {
        let waits = scope.spawn(|| hub.fetch(&id(), &F16, &mut ()).unwrap());
        thread::sleep(Duration::from_millis(200));
        drop(lock);
        waits.join().unwrap();
    });
}

#[test]
fn a_damaged_file_is_found_and_mended() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::new(files());
    let hub = hub(server.endpoint(), cache.path());
    let snapshot = hub.fetch(&id(), &F16, &mut ()).unwrap();
    let blob = fs::canonicalize(snapshot.join(UNET)).unwrap();
    let (small, good) =
        (fs::canonicalize(snapshot.join("unet/config.json")).unwrap(), fs::read(&blob).unwrap());
    let mut bytes = good.clone();
    bytes[500] ^= 1;
    fs::write(&blob, bytes).unwrap();
    fs::write(&small, r#"{"name": "uneT"}"#).unwrap();
    let checked = hub.verify(&id(), &mut ()).unwrap();
    let [(commit, files)] = &checked[..] else { panic!("{checked:?}") };
    assert_eq!(commit, COMMIT);
    let bad: Vec<&str> =
        files.iter().filter(|file| file.state.is_bad()).map(|file| file.name.as_str()).collect();
    assert_eq!(bad, ["unet/config.json", UNET]);
    // Lengths alone do not tell.
    hub.fetch(&id(), &F16, &mut ()).unwrap();
    assert_ne!(fs::read(&blob).unwrap(), good);
    server.requests();
    hub.pull(&id(), &F16, &mut ()).unwrap();
    assert_eq!(fs::read(&blob).unwrap(), good);
    assert_eq!(server.requests().len(), 3);
    assert!(hub.verify(&id(), &mut ()).unwrap()[0].1.iter().all(|file| !file.state.is_bad()));
    fs::remove_file(&blob).unwrap();
    let missing = hub.verify(&id(), &mut ()).unwrap();
    assert!(missing[0].1.iter().any(|file| file.name == UNET && file.state == FileState::Missing));
}

/// `hf download --local-dir` notes what it wrote.
#[test]
fn a_copy_is_verified_by_its_notes() {
    let model = TinyModel::new();
    let error = verify_folder(model.path(), &mut ()).unwrap_err();
    assert!(matches!(error, HubError::NoHashes { .. }), "{error}");
    for (name, bytes) in files() {
        let note = model.path().join(".cache/huggingface/download").join(format!("{name}.metadata"));
        fs::create_dir_all(note.parent().unwrap()).unwrap();
        fs::write(note, format!("{COMMIT}\n{}\n1712656091.123\n", blob_name(name, &bytes))).unwrap();
    }
    let checked = verify_folder(model.path(), &mut ()).unwrap();
    assert_eq!(checked.len(), files().len());
    assert!(checked.iter().all(|file| matches!(file.state, FileState::Good(_))));
    fs::write(model.path().join(UNET), "other").unwrap();
    let checked = verify_folder(model.path(), &mut ()).unwrap();
    assert_eq!(checked.iter().filter(|file| file.state.is_bad()).count(), 1);
}

#[test]
fn the_cache_says_what_it_holds() {
    let cache = tempfile::tempdir().unwrap();
    let empty = offline(&cache.path().join("nothing"));
    assert!(empty.models().unwrap().is_empty());
    let server = Server::new(files());
    let hub = hub(server.endpoint(), cache.path());
    let count = AtomicUsize::new(0);
    server.twist(move |request, reply| {
        match request.is_get_of(UNET) && count.fetch_add(1, Ordering::Relaxed) < 6 {
            true => reply.delivered(Delivery::BreaksOff(10)),
            false => reply,
        }
    });
    assert!(hub.fetch(&id(), &F16, &mut ()).is_err());
    let models = hub.models().unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!((models[0].id.repo(), models[0].unfinished_bytes), ("owner/name", 60));
    assert_eq!((models[0].revisions[0].complete, models[0].revisions[0].names.len()), (Some(false), 0));
    hub.fetch(&id(), &F16, &mut ()).unwrap();
    let snapshot = cache.path().join("models--owner--name/snapshots").join(COMMIT);
    // Not models, not Kinora's, and not whole.
    fs::create_dir_all(cache.path().join("datasets--owner--data/snapshots")).unwrap();
    fs::create_dir_all(cache.path().join(format!("models--other--llm/snapshots/{COMMIT}"))).unwrap();
    fs::write(cache.path().join(format!("models--other--llm/snapshots/{COMMIT}/config.json")), "{}").unwrap();
    let models = hub.models().unwrap();
    let names: Vec<&str> = models.iter().map(|model| model.id.repo()).collect();
    assert_eq!(names, ["other/llm", "owner/name"]);
    assert_eq!(models[0].revisions[0].complete, None);
    let revision = &models[1].revisions[0];
    assert_eq!((revision.commit.as_str(), &revision.names[..]), (COMMIT, &["main".to_owned()][..]));
    assert_eq!(revision.complete, Some(true));
    let expected: u64 = files()
        .iter()
        .filter(|(name, _)| snapshot.join(name).exists())
        .map(|(_, bytes)| bytes.len() as u64)
        .sum();
    assert_eq!((revision.bytes, models[1].bytes, models[1].unfinished_bytes), (expected, expected, 0));
    assert!(revision.modified.is_some());
}

#[cfg(unix)]
#[test]
fn a_revision_is_removed_without_what_others_need() {
    let cache = tempfile::tempdir().unwrap();
    let kept = written_by_huggingface_hub(cache.path(), COMMIT, "main");
    let removed = written_by_huggingface_hub(cache.path(), OTHER_COMMIT, "v1");
    let own = removed.join("extra.bin");
    let blob = cache.path().join("models--owner--name/blobs").join("0".repeat(64));
    fs::write(&blob, [0; 1000]).unwrap();
    std::os::unix::fs::symlink(format!("../../blobs/{}", "0".repeat(64)), own).unwrap();
    let hub = offline(cache.path());
    let removal = hub.remove(&HubId::parse("owner/name@v1").unwrap()).unwrap();
    assert_eq!((removal.commits, removal.bytes), (vec![OTHER_COMMIT.to_owned()], 1000));
    assert!(!removed.exists() && !blob.exists());
    assert_eq!(hub.fetch(&id(), &F16, &mut ()).unwrap(), kept);
    assert!(hub.verify(&id(), &mut ()).unwrap()[0].1.iter().all(|file| !file.state.is_bad()));
    let error = hub.remove(&HubId::parse("owner/name@v1").unwrap()).unwrap_err();
    assert!(matches!(error, HubError::NotCached { .. }), "{error}");
    let bytes = hub.cached_model(&id()).unwrap().bytes;
    assert_eq!(hub.remove(&id()).unwrap().bytes, bytes);
    assert!(!cache.path().join("models--owner--name").exists());
    assert!(!cache.path().join(".locks/models--owner--name").exists());
    assert!(matches!(hub.remove(&id()), Err(HubError::NotCached { .. })));
}

#[test]
fn a_model_is_not_removed_while_it_is_downloaded() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::new(files());
    let hub = hub(server.endpoint(), cache.path());
    hub.fetch(&id(), &F16, &mut ()).unwrap();
    let locks = cache.path().join(".locks/models--owner--name");
    let lock = File::open(fs::read_dir(&locks).unwrap().next().unwrap().unwrap().path()).unwrap();
    lock.lock().unwrap();
    assert!(matches!(hub.remove(&id()), Err(HubError::InUse { .. })));
    drop(lock);
    hub.remove(&id()).unwrap();
}

/// A cache on a read-only disk: everything is there, so nothing needs to be written.
#[cfg(unix)]
#[test]
fn a_whole_cache_is_not_written_to() {
    let cache = tempfile::tempdir().unwrap();
    let snapshot = written_by_huggingface_hub(cache.path(), COMMIT, "main");
    let server = Server::new(files());
    let files_before = all_times(cache.path());
    assert_eq!(hub(server.endpoint(), cache.path()).fetch(&id(), &F16, &mut ()).unwrap(), snapshot);
    assert_eq!(all_times(cache.path()), files_before);
}

#[cfg(unix)]
fn all_times(folder: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let mut times = vec![(folder.to_owned(), folder.symlink_metadata().unwrap().modified().unwrap())];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap() {
            metadata if metadata.is_dir() => times.extend(all_times(&path)),
            metadata => times.push((path, metadata.modified().unwrap())),
        }
    }
    times.sort();
    times
}

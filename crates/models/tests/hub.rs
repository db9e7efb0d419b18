//! Downloads from a hub on this machine: what is downloaded, and what happens when something goes wrong.
#![allow(clippy::unwrap_used)]

mod hub_server;
mod tiny_model;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use hub_server::{COMMIT, Delivery, Reply, Request, Server, blob_name};
use kinora_graph::DType;
use kinora_models::{
    folder::ModelFolder,
    hub::{self, AnswerError, Found, Hub, HubError, HubId, Patience, Progress, RequestError},
    weights::Variant,
};
use tiny_model::{TinyModel, files};

const UNET: &str = "unet/diffusion_pytorch_model.fp16.safetensors";
const F16: Variant = Variant::For(DType::F16);

/// A server, and a cache of its own.
struct Test {
    server: Server,
    cache: tempfile::TempDir,
}

impl Test {
    fn new() -> Self {
        Self::with(files())
    }

    fn with(files: Vec<(&'static str, Vec<u8>)>) -> Self {
        Test { server: Server::new(files), cache: tempfile::tempdir().unwrap() }
    }

    fn twisted(twist: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> Self {
        let test = Self::new();
        test.server.twist(twist);
        test
    }

    fn hub(&self) -> Hub {
        let (endpoint, cache) = (self.server.endpoint(), self.cache.path().to_owned());
        let pause = Duration::from_millis(1);
        let patience = Patience { pause, longest_pause: pause, ..Patience::default() };
        Hub { endpoint, cache, token: None, offline: false, patience }
    }

    fn fetch(&self, variant: &Variant) -> Result<PathBuf, HubError> {
        self.hub().fetch(&id(), variant, &mut ())
    }

    fn error(&self) -> String {
        self.fetch(&F16).unwrap_err().to_string()
    }

    /// Where the cache has the files of the model.
    fn snapshot(&self) -> PathBuf {
        self.cache.path().join("models--owner--name/snapshots").join(COMMIT)
    }

    /// Where the cache has the contents of the UNet's weights while they are downloaded.
    fn unet_part(&self) -> PathBuf {
        let blobs = self.cache.path().join("models--owner--name/blobs");
        blobs.join(format!("{}.incomplete", blob_name(UNET, &unet())))
    }

    /// Whether the cache has something that a client would take for the model.
    fn looks_whole(&self) -> bool {
        let hub = Hub { offline: true, ..self.hub() };
        hub.fetch(&id(), &F16, &mut ()).is_ok()
    }

    /// The model arrives, and is the right one.
    fn must_arrive(&self) {
        let folder = self.fetch(&F16).unwrap();
        assert_eq!(fs::read(folder.join(UNET)).unwrap(), unet());
        assert!(self.looks_whole() && !self.unet_part().exists());
    }
}

fn id() -> HubId {
    HubId::parse("owner/name").unwrap()
}

/// The contents of the UNet's weights.
fn unet() -> Vec<u8> {
    files().into_iter().find(|(name, _)| *name == UNET).unwrap().1
}

fn paths(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|request| request.path.as_str()).collect()
}

/// An address where nothing listens: a port that no program is given by chance.
fn nowhere() -> String {
    "http://127.0.0.1:1".to_owned()
}

/// The files in a folder and below it.
fn names_under(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            names.extend(names_under(&path).into_iter().map(|file| format!("{name}/{file}")));
        } else {
            names.push(name);
        }
    }
    names.sort();
    names
}

#[test]
fn only_what_the_variant_needs_is_downloaded() {
    let test = Test::new();
    let folder = test.fetch(&F16).unwrap();
    assert_eq!(folder, test.snapshot());
    let configs = [
        "feature_extractor/preprocessor_config.json",
        "image_encoder/config.json",
        "model_index.json",
        "scheduler/scheduler_config.json",
        "unet/config.json",
        "vae/config.json",
        "vae/diffusion_pytorch_model-00001-of-00001.safetensors",
        "vae/diffusion_pytorch_model.safetensors.index.json",
    ];
    let with = |weights: &[&'static str]| {
        let mut names: Vec<&str> = configs.iter().chain(weights).copied().collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names_under(&folder), with(&["image_encoder/model.fp16.safetensors", UNET]));
    let model = ModelFolder::open(&folder).unwrap();
    for (name, parameters) in [("unet", 1000), ("vae", 7), ("image_encoder", 3)] {
        assert_eq!(model.weights(name, &F16).unwrap().parameter_count(), parameters);
    }
    for (name, bytes) in files() {
        let path = folder.join(name);
        assert!(!path.exists() || fs::read(path).unwrap() == bytes, "{name}");
    }

    let plain = Test::new();
    let folder = plain.fetch(&Variant::Plain).unwrap();
    let weights = ["image_encoder/model.safetensors", "unet/diffusion_pytorch_model.safetensors"];
    assert_eq!(names_under(&folder), with(&weights));
}

#[test]
fn what_is_in_the_cache_is_not_downloaded_again() {
    let test = Test::new();
    test.fetch(&F16).unwrap();
    test.server.requests();
    let folder = test.fetch(&F16).unwrap();
    assert_eq!(paths(&test.server.requests()), ["/api/models/owner/name/revision/main?blobs=true"]);
    // Without a server, and when it is forbidden to ask one.
    let unreachable = Hub { endpoint: nowhere(), ..test.hub() };
    assert_eq!(unreachable.fetch(&id(), &F16, &mut ()).unwrap(), folder);
    let offline = Hub { offline: true, ..test.hub() };
    assert_eq!(offline.fetch(&id(), &F16, &mut ()).unwrap(), folder);
    let commit = HubId::parse(&format!("owner/name@{COMMIT}")).unwrap();
    assert_eq!(offline.fetch(&commit, &F16, &mut ()).unwrap(), folder);
    assert!(test.server.requests().is_empty());
    let error = offline.fetch(&id(), &Variant::Named("ema".to_owned()), &mut ()).unwrap_err().to_string();
    assert!(error.contains("diffusion_pytorch_model.ema.safetensors is not in the cache"), "{error}");
    // A link to a file that was deleted is no file.
    fs::remove_file(fs::canonicalize(folder.join(UNET)).unwrap()).unwrap();
    assert!(!test.looks_whole());
    test.fetch(&F16).unwrap();
    assert!(test.looks_whole());
}

#[test]
fn progress_counts_every_file_to_its_end() {
    #[derive(Default)]
    struct Last(Vec<(String, u64, u64)>);
    impl Progress for Last {
        fn downloaded(&mut self, file: &str, done: u64, total: u64) {
            match self.0.last_mut() {
                Some(last) if last.0 == file => *last = (file.to_owned(), done, total),
                _ => self.0.push((file.to_owned(), done, total)),
            }
        }
    }
    let test = Test::new();
    let mut progress = Last::default();
    test.hub().fetch(&id(), &F16, &mut progress).unwrap();
    assert_eq!(progress.0.len(), 10);
    for (file, done, total) in progress.0 {
        let (_, bytes) = files().into_iter().find(|(name, _)| *name == file).unwrap();
        assert_eq!((done, total), (bytes.len() as u64, bytes.len() as u64), "{file}");
    }
}

#[test]
fn no_network_says_what_was_tried_and_what_works() {
    let test = Test::new();
    let hub = Hub { endpoint: nowhere(), ..test.hub() };
    let error = hub.fetch(&id(), &F16, &mut ()).unwrap_err().to_string();
    assert!(error.contains(&hub.endpoint), "{error}");
    assert!(error.contains("cannot be reached") && error.contains("works offline"), "{error}");
    let hub = Hub { offline: true, ..test.hub() };
    let error = hub.fetch(&id(), &F16, &mut ()).unwrap_err().to_string();
    assert!(
        error.contains("HF_HUB_OFFLINE") && error.contains("model_index.json is not in the cache"),
        "{error}"
    );
    for endpoint in ["", "no address", "http://", "ftp://127.0.0.1"] {
        let hub = Hub { endpoint: endpoint.to_owned(), ..test.hub() };
        assert!(hub.fetch(&id(), &F16, &mut ()).is_err(), "{endpoint}");
    }
    assert!(test.server.requests().is_empty());
}

#[test]
fn a_gated_model_says_how_to_get_it() {
    for status in [401, 403] {
        // The hub lists the files of a gated model to everyone.
        let test = Test::twisted(move |request, reply| match request.is_listing() {
            true => reply,
            false => Reply::new(status, Vec::new()),
        });
        let error = test.error();
        assert!(error.contains(&format!("HTTP {status}")), "{error}");
        assert!(
            error.contains(&format!("accept its licence on {}/owner/name", test.server.endpoint())),
            "{error}"
        );
        assert!(error.contains("HF_TOKEN to it. "), "{error}");
        test.server.requests();
        let hub = Hub { token: Some("hf_secret".to_owned()), ..test.hub() };
        let error = hub.fetch(&id(), &F16, &mut ()).unwrap_err().to_string();
        assert!(error.contains("one is set") && !error.contains("hf_secret"), "{error}");
        let sent =
            |request: &Request| request.text.to_lowercase().contains("authorization: bearer hf_secret\r");
        assert!(test.server.requests().iter().all(sent));
    }
}

#[test]
fn a_model_that_does_not_exist_says_so() {
    let test = Test::twisted(|_, _| Reply::new(404, Vec::new()));
    assert!(test.error().contains("has no such model"), "{}", test.error());
    test.server.twist(|_, _| Reply::new(500, Vec::new()));
    assert!(test.error().contains("500"), "{}", test.error());
    // A hotel's login page, say.
    test.server.twist(|_, _| Reply::new(200, b"<html>".to_vec()));
    assert!(test.error().contains("unexpected answer"), "{}", test.error());
    test.server.list_only_names();
    test.server.twist(|request, reply| match request.is_listing() {
        true => reply,
        false => reply.with("X-Repo-Commit", "another"),
    });
    assert!(test.error().contains("x-repo-commit"), "{}", test.error());
    assert!(!test.looks_whole());
}

/// Some mirrors list only the names; then each file's headers say what it is.
#[test]
fn a_mirror_that_lists_only_names_is_asked_for_each_file() {
    let test = Test::new();
    test.server.list_only_names();
    test.must_arrive();
    let heads = test.server.requests().iter().filter(|request| request.method == "HEAD").count();
    assert_eq!(heads, 10);
}

#[test]
fn a_repository_that_is_no_model_is_refused_before_its_weights_are_downloaded() {
    let change = |name: &str, replaced: Option<&[u8]>| {
        let mut files = files();
        let at = files.iter().position(|(known, _)| *known == name).unwrap();
        match replaced {
            Some(bytes) => files[at].1 = bytes.to_vec(),
            None => drop(files.remove(at)),
        }
        Test::with(files)
    };
    let error = change("model_index.json", None).error();
    assert!(error.contains("the hub has no model_index.json"), "{error}");
    let other = change("model_index.json", Some(br#"{"_class_name": "FluxPipeline"}"#));
    assert!(other.error().contains("FluxPipeline"), "{}", other.error());
    assert_eq!(names_under(&other.snapshot()), ["model_index.json"]);
    let error = change("scheduler/scheduler_config.json", None).error();
    assert!(error.contains("the hub has no scheduler/scheduler_config.json"), "{error}");
    let error = change("vae/diffusion_pytorch_model-00001-of-00001.safetensors", None).error();
    assert!(error.contains("has no vae/diffusion_pytorch_model-00001-of-00001.safetensors"), "{error}");

    let mut only_pickles = files();
    only_pickles.retain(|(name, _)| !(name.starts_with("unet/") && name.ends_with(".safetensors")));
    let error = Test::with(only_pickles).error();
    assert!(error.contains("owner/name/unet") && error.contains("pickle"), "{error}");
}

/// Breaks off the UNet's weights after as many bytes.
fn breaks_off(request: &Request, reply: Reply, length: usize) -> Reply {
    if request.is_get_of(UNET) { reply.delivered(Delivery::BreaksOff(length)) } else { reply }
}

#[test]
fn an_interrupted_download_leaves_nothing_that_looks_whole_and_goes_on_later() {
    let test = Test::twisted(|request, reply| breaks_off(request, reply, 100));
    let error = test.error();
    assert!(error.contains(UNET) && error.contains("was interrupted"), "{error}");
    assert!(!test.snapshot().join(UNET).exists());
    assert!(!test.looks_whole());
    let kept = fs::read(test.unet_part()).unwrap();
    assert!(kept.len() >= 100 && unet().starts_with(&kept), "{}", kept.len());
    test.server.requests();
    test.server.behave();
    test.must_arrive();
    let requests = test.server.requests();
    let starts: Vec<usize> =
        requests.iter().filter(|request| request.is_get_of(UNET)).map(|request| request.start).collect();
    assert_eq!(starts, [kept.len()]);
}

#[test]
fn a_connection_that_breaks_is_made_again_by_itself() {
    let test = Test::twisted(|request, reply| match request.start {
        0 => breaks_off(request, reply, 700),
        _ => reply,
    });
    test.must_arrive();
    let asked: Vec<usize> = test
        .server
        .requests()
        .iter()
        .filter(|request| request.is_get_of(UNET))
        .map(|request| request.start)
        .collect();
    assert_eq!(asked, [0, 700]);
}

#[test]
fn a_server_that_goes_silent_is_left() {
    for delivery in [Delivery::Stalls(0), Delivery::Stalls(700), Delivery::Trickles] {
        let first = AtomicUsize::new(0);
        let stalled = delivery.clone();
        let test = Test::twisted(move |request, reply| {
            match request.is_get_of(UNET) && first.fetch_add(1, Ordering::Relaxed) == 0 {
                true => reply.delivered(stalled.clone()),
                false => reply,
            }
        });
        let mut hub = test.hub();
        hub.patience.stall = Duration::from_millis(400);
        let begun = Instant::now();
        let folder = hub.fetch(&id(), &F16, &mut ()).unwrap();
        assert_eq!(fs::read(folder.join(UNET)).unwrap(), unet(), "{delivery:?}");
        // Without the limit, the server would hold the connection for ten seconds and more.
        assert!(begun.elapsed() < Duration::from_secs(8), "{delivery:?}");
    }
}

#[test]
fn a_server_that_is_busy_is_asked_again_when_it_says() {
    #[derive(Default)]
    struct Pauses(Vec<Duration>);
    impl Progress for Pauses {
        fn downloaded(&mut self, _: &str, _: u64, _: u64) {}

        fn retrying(&mut self, _: &str, reason: &str, pause: Duration) {
            assert!(reason.contains("HTTP 429") || reason.contains("HTTP 503"), "{reason}");
            self.0.push(pause);
        }
    }
    let count = AtomicUsize::new(0);
    let test = Test::twisted(move |request, reply| match count.fetch_add(1, Ordering::Relaxed) {
        0 if request.is_listing() => Reply::new(503, Vec::new()),
        2 => Reply::new(429, Vec::new()).with("Retry-After", "3600"),
        _ => reply,
    });
    let mut hub = test.hub();
    hub.patience.longest_pause = Duration::from_millis(20);
    let mut pauses = Pauses::default();
    hub.fetch(&id(), &F16, &mut pauses).unwrap();
    assert_eq!(pauses.0, [Duration::from_millis(1), Duration::from_millis(20)]);
}

#[test]
fn a_server_that_cannot_continue_sends_the_file_again() {
    for status in [200, 416] {
        let test = Test::twisted(|request, reply| breaks_off(request, reply, 100));
        test.error();
        test.server.twist(move |request, reply| match request.is_get_of(UNET) && request.start > 0 {
            true if status == 200 => Reply::new(200, unet()),
            true => Reply::new(416, Vec::new()),
            false => reply,
        });
        test.must_arrive();
    }
}

#[test]
fn what_was_kept_is_not_believed() {
    let bytes = unet();
    for kept in
        [vec![0; bytes.len()], vec![0; bytes.len() + 5], vec![0; 700], bytes[..700].to_vec(), bytes.clone()]
    {
        let test = Test::new();
        fs::create_dir_all(test.unet_part().parent().unwrap()).unwrap();
        fs::write(test.unet_part(), &kept).unwrap();
        test.must_arrive();
    }
}

#[test]
fn contents_that_are_not_what_the_hub_said_are_asked_for_once_more() {
    let wrong = |request: &Request, reply: Reply| match request.is_get_of(UNET) {
        true => Reply { body: vec![7; reply.body.len()], ..reply },
        false => reply,
    };
    let count = AtomicUsize::new(0);
    let once = Test::twisted(move |request, reply| {
        match request.is_get_of(UNET) && count.fetch_add(1, Ordering::Relaxed) == 0 {
            true => wrong(request, reply),
            false => reply,
        }
    });
    once.must_arrive();
    let always = Test::twisted(wrong);
    let error = always.fetch(&F16).unwrap_err();
    assert!(matches!(error, HubError::Contents { .. }), "{error}");
    assert!(error.to_string().contains("discarded") && !always.unet_part().exists(), "{error}");
    assert!(!always.looks_whole());
    let asked = always.server.requests().iter().filter(|request| request.is_get_of(UNET)).count();
    assert_eq!(asked, 2);
}

#[test]
fn a_file_of_another_length_is_downloaded_again() {
    let test = Test::new();
    let folder = test.fetch(&F16).unwrap();
    let blob = fs::canonicalize(folder.join(UNET)).unwrap();
    fs::write(&blob, "cut short").unwrap();
    test.must_arrive();
    assert_eq!(fs::canonicalize(folder.join(UNET)).unwrap(), blob);
}

#[test]
fn an_outage_does_not_matter_if_everything_is_there() {
    let test = Test::new();
    let folder = test.fetch(&F16).unwrap();
    for status in [500, 503, 429] {
        test.server.twist(move |_, _| Reply::new(status, Vec::new()));
        assert_eq!(test.fetch(&F16).unwrap(), folder);
    }
    test.server.twist(|_, _| Reply::new(403, Vec::new()));
    assert!(test.fetch(&F16).is_err());
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let test = Test::new();
    let file = test.cache.path().join("file");
    fs::write(&file, "x").unwrap();
    let hub = Hub { cache: file.join("hub"), ..test.hub() };
    let error = hub.fetch(&id(), &F16, &mut ()).unwrap_err();
    assert!(matches!(error, HubError::Cache { .. }), "{error}");
}

/// It becomes a folder's name.
#[test]
fn a_commit_that_is_none_is_refused() {
    for commit in ["", "../../../outside", "0123456789abcdef", "0123456789abcdef0123456789abcdef0123456g"] {
        let test = Test::twisted(move |_, _| {
            Reply::new(200, serde_json::json!({ "sha": commit, "siblings": [] }).to_string().into())
        });
        let error = test.fetch(&F16).unwrap_err();
        let HubError::Answer { source, .. } = &error else { panic!("{error}") };
        assert!(matches!(**source, RequestError::Answer(AnswerError::Commit(_))), "{error}");
    }
}

#[test]
fn short_names_are_models() {
    let model = |name: &str| hub::find(name).unwrap();
    let named = |name: &str| Found::Model(HubId::parse(name).unwrap());
    assert_eq!(model("svd"), named("stabilityai/stable-video-diffusion-img2vid"));
    assert_eq!(model("svd-xt@main"), named("stabilityai/stable-video-diffusion-img2vid-xt@main"));
    for short in hub::SHORT_NAMES {
        assert_eq!(HubId::parse(short.name).unwrap().repo(), short.repo);
    }
    let error = hub::find("svd-xxt").unwrap_err().to_string();
    assert!(error.contains("svd-xt") && error.contains("owner/name"), "{error}");
}

#[test]
fn a_path_comes_before_a_name() {
    let model = TinyModel::new();
    let path = model.path().to_str().unwrap();
    assert_eq!(hub::locate(path, &F16, &mut ()).unwrap(), model.path());
    for name in ["no-such-folder", "./no/such/folder", ""] {
        let error = hub::locate(name, &F16, &mut ()).unwrap_err();
        assert!(matches!(error, HubError::NotAModel(_)), "{error}");
    }
}

//! Downloads from a hub on this machine: what is downloaded, and what is said when it cannot be.
#![allow(clippy::unwrap_used)]

mod hub_client;
mod hub_server;
mod tiny_model;

use std::{fs, path::Path};

use hub_client::{F16, Test, UNET, id};
use hub_server::{COMMIT, Reply, Request};
use kinora_models::{
    folder::ModelFolder,
    hub::{self, AnswerError, Found, Hub, HubError, HubId, Progress, RequestError},
    weights::Variant,
};
use tiny_model::{TinyModel, files};

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
fn tokenizers_and_networks_by_themselves_are_downloaded_too() {
    let files = |names: &[&'static str]| -> Vec<(&'static str, Vec<u8>)> {
        let bytes = |name: &str| match name {
            name if name.ends_with(".safetensors") => tiny_model::weights(3),
            "config.json" => br#"{"_class_name": "AutoencoderTiny"}"#.to_vec(),
            "model_index.json" => {
                let parts = r#""unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"],
                    "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
                    "scheduler": ["diffusers", "EulerDiscreteScheduler"]"#;
                format!(r#"{{"_class_name": "StableDiffusionPipeline", {parts}}}"#).into_bytes()
            }
            _ => b"{}".to_vec(),
        };
        names.iter().map(|&name| (name, bytes(name))).collect()
    };
    let fetched = |names: &[&'static str]| {
        let test = Test::with(files(names));
        let folder = test.fetch(&F16).unwrap();
        ModelFolder::open(&folder).unwrap();
        assert!(test.looks_whole());
        let offline = Hub { offline: true, ..test.hub() };
        assert_eq!(offline.fetch(&id(), &F16, &mut ()).unwrap(), folder);
        names_under(&folder)
    };
    let alone = ["config.json", "diffusion_pytorch_model.safetensors"];
    assert_eq!(fetched(&[alone[0], alone[1], "README.md", "diffusion_pytorch_model.bin"]), alone);
    let shared = [
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/merges.txt",
        "tokenizer/special_tokens_map.json",
        "tokenizer/tokenizer_config.json",
        "tokenizer/vocab.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ];
    let more = ["tokenizer/tokenizer.json", "safety_checker/model.safetensors", "text_encoder/model.bin"];
    assert_eq!(fetched(&[&shared[..], &more[..]].concat()), shared);
    let whole = ["tokenizer/tokenizer.json"];
    let without: Vec<_> = shared.into_iter().filter(|name| !name.ends_with("vocab.json")).collect();
    assert!(fetched(&[&without[..], &whole[..]].concat()).contains(&whole[0].to_owned()));
    let error = Test::with(files(&without)).fetch(&F16).unwrap_err().to_string();
    assert!(error.contains("tokenizer/tokenizer.json"), "{error}");
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

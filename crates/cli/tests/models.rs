//! `kinora models`: download, list, verify, mend, remove; and the short names.
#![allow(clippy::unwrap_used)]

#[path = "../../models/tests/hub_server/mod.rs"]
mod hub_server;
mod support;
#[path = "../../models/tests/tiny_model/mod.rs"]
mod tiny_model;

use std::{fs, process::Command};
#[cfg(unix)]
use std::{process::Stdio, thread, time::Duration};

use hub_server::{COMMIT, Server};
use serde_json::json;
use support::{Answer, answer, kinora, photo};
use tiny_model::files;

const UNET: &str = "unet/diffusion_pytorch_model.fp16.safetensors";

/// A home with a cache, and a hub.
struct Home {
    folder: tempfile::TempDir,
    hub: Server,
}

impl Home {
    fn new() -> Self {
        Home { folder: tempfile::tempdir().unwrap(), hub: Server::new(files()) }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = kinora();
        command.env("HF_HOME", self.folder.path()).env("HF_ENDPOINT", self.hub.endpoint());
        command.current_dir(self.folder.path()).args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Answer {
        answer(&mut self.command(words))
    }

    fn pull(&self) {
        let pulled = self.run(&["models", "pull", "owner/name", "--precision", "f16"]);
        assert_eq!(pulled.code, Some(0), "{pulled:?}");
        assert!(pulled.text().contains("owner/name is complete"), "{}", pulled.text());
    }

    fn unet(&self) -> std::path::PathBuf {
        let snapshots = self.folder.path().join("hub/models--owner--name/snapshots");
        fs::canonicalize(snapshots.join(COMMIT).join(UNET)).unwrap()
    }
}

#[test]
fn a_model_is_pulled_listed_verified_mended_and_removed() {
    let home = Home::new();
    let empty = home.run(&["models", "list"]).text();
    assert!(empty.contains("No model is downloaded") && empty.contains("svd-xt"), "{empty}");
    home.pull();
    let listed = home.run(&["models", "list"]).text();
    assert!(listed.contains("owner/name") && listed.contains("main (0123456)"), "{listed}");
    assert!(
        listed.contains(" complete") && listed.lines().all(|line| line.chars().count() <= 80),
        "{listed}"
    );
    let good = home.run(&["models", "verify", "owner/name"]);
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.text().contains("10 of 10 files"), "{}", good.text());

    let mut bytes = fs::read(home.unet()).unwrap();
    bytes[700] ^= 1;
    fs::write(home.unet(), &bytes).unwrap();
    let damaged = home.run(&["models", "verify", "owner/name"]);
    damaged.must_fail(1, &["1 file is damaged", "kinora models pull owner/name"]);
    assert!(damaged.text().contains(&format!("damaged  {UNET}")), "{}", damaged.text());
    home.pull();
    assert_eq!(home.run(&["models", "verify", "owner/name"]).code, Some(0));

    // Nobody can answer the question.
    home.run(&["models", "rm", "owner/name"]).must_fail(2, &["--yes"]);
    assert!(home.unet().exists());
    let removed = home.run(&["models", "rm", "owner/name", "--yes"]);
    assert!(
        removed.text().contains("owner/name is removed") && removed.text().contains("freed"),
        "{removed:?}"
    );
    home.run(&["models", "rm", "owner/name", "--yes"]).must_fail(1, &["not in the cache", "models list"]);
    home.run(&["models", "verify", "owner/name"]).must_fail(1, &["not in the cache"]);
}

#[test]
fn programs_get_the_same_as_json() {
    let home = Home::new();
    let pulled = home.run(&["models", "pull", "owner/name", "--precision", "f16", "--json"]).json();
    assert_eq!((&pulled["model"], &pulled["commit"]), (&json!("owner/name"), &json!(COMMIT)));
    let listed = home.run(&["models", "list", "--json"]).json();
    let revision = &listed["models"][0]["revisions"][0];
    assert_eq!((&revision["complete"], &revision["names"]), (&json!(true), &json!(["main"])));
    assert_eq!(revision["bytes"], pulled["bytes"]);
    assert_eq!(listed["short_names"][1]["name"], "svd-xt");
    fs::write(home.unet(), "cut").unwrap();
    let verified = home.run(&["models", "verify", "owner/name", "--json"]);
    assert_eq!(verified.code, Some(1));
    let verified = verified.json();
    assert_eq!(verified["damaged"], 1);
    let bad: Vec<_> =
        verified["files"].as_array().unwrap().iter().filter(|file| file["state"] != "good").collect();
    assert_eq!((bad.len(), &bad[0]["name"], &bad[0]["state"]), (1, &json!(UNET), &json!("damaged")));
    let removed = home.run(&["models", "rm", "owner/name", "-y", "--json"]).json();
    assert_eq!(removed["commits"], json!([COMMIT]));
    let failed = home.run(&["models", "verify", "owner/name", "--json"]);
    assert_eq!((failed.code, &failed.json()["error"]["kind"]), (Some(1), &json!("model")));
}

#[test]
fn a_short_name_stands_for_a_model() {
    let home = Home::new();
    home.run(&["models", "pull", "svd-xt"])
        .must_fail(1, &["stabilityai/stable-video-diffusion-img2vid-xt", "no such model"]);
    let asked = |requests: Vec<hub_server::Request>| requests[0].path.clone();
    let path = "/api/models/stabilityai/stable-video-diffusion-img2vid-xt/revision/main?blobs=true";
    assert_eq!(asked(home.hub.requests()), path);
    let clip = ["generate", photo("rgb.png").to_str().unwrap(), "-o", "clip.mp4"].map(str::to_owned);
    let clip: Vec<&str> = clip.iter().map(String::as_str).collect();
    answer(home.command(&clip).args(["--model", "svd-xt"])).must_fail(1, &["no such model"]);
    assert_eq!(asked(home.hub.requests()), path);
    answer(home.command(&clip).env("KINORA_MODEL", "svd-xt")).must_fail(1, &["no such model"]);
    assert_eq!(asked(home.hub.requests()), path);
    home.run(&["info", "svd-xt"]).must_fail(1, &["stable-video-diffusion-img2vid-xt", "kinora models pull"]);
    assert!(home.hub.requests().is_empty());
    home.run(&["models", "pull", "svd-xxt"]).must_fail(1, &["svd-xxt", "svd-xt", "owner/name"]);
    // A path comes first.
    fs::create_dir(home.folder.path().join("svd-xt")).unwrap();
    home.run(&["info", "svd-xt"]).must_fail(1, &["model_index.json"]);
    answer(home.command(&clip).args(["--model", "svd-xt"])).must_fail(1, &["model_index.json"]);
    assert!(home.hub.requests().is_empty());
}

#[test]
fn the_token_of_the_environment_is_sent_and_never_shown() {
    let home = Home::new();
    home.hub.twist(|_, _| hub_server::Reply::new(403, Vec::new()));
    let mut command = home.command(&["models", "pull", "owner/name", "--json"]);
    let refused = answer(command.env("HF_TOKEN", "hf_mine\n"));
    refused.must_fail(1, &["accept its licence", "HF_TOKEN"]);
    assert!(!refused.stderr.contains("hf_mine") && !refused.text().contains("hf_mine"));
    let requests = home.hub.requests();
    assert!(
        requests[0].text.to_lowercase().contains("authorization: bearer hf_mine\r\n"),
        "{}",
        requests[0].text
    );
}

#[test]
fn without_a_network_the_message_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut pull = kinora();
    pull.args(["models", "pull", "owner/name"]).env("HF_HOME", folder.path());
    let words = [
        "http://127.0.0.1:1",
        "Check the network and HF_ENDPOINT",
        "`kinora models list`",
        "--model",
        "folder",
    ];
    answer(&mut pull).must_fail(1, &words);
    // An authority that is not there is not passed over.
    pull.env("SSL_CERT_FILE", "/nonexistent.pem");
    answer(&mut pull).must_fail(1, &["/nonexistent.pem (SSL_CERT_FILE)", "No such file"]);
}

#[cfg(unix)]
#[test]
fn an_interrupted_download_keeps_what_has_arrived() {
    let home = Home::new();
    home.hub.twist(|request, reply| match request.is_get_of(UNET) {
        true => reply.delivered(hub_server::Delivery::Stalls(700)),
        false => reply,
    });
    let mut command = home.command(&["models", "pull", "owner/name", "--precision", "f16"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let blobs = home.folder.path().join("hub/models--owner--name/blobs");
    let unfinished = || {
        let entries = fs::read_dir(&blobs).into_iter().flatten().map(|entry| entry.unwrap());
        let unfinished = entries.filter(|entry| entry.path().extension().is_some());
        unfinished.map(|entry| entry.metadata().unwrap().len()).sum::<u64>()
    };
    for _ in 0..600 {
        if unfinished() == 700 {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap().success());
    let ended = Answer::from(child.wait_with_output().unwrap());
    ended.must_fail(130, &["what has arrived is kept"]);
    assert_eq!(unfinished(), 700);
    home.hub.twist(|_, reply| reply);
    home.pull();
}

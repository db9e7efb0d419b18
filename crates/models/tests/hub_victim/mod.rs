//! Someone who downloads a model from a hub that means harm, and what must not happen to them.

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use kinora_graph::DType;
use kinora_models::{
    hub::{Digest, FileState, Hub, HubError, HubId, Patience, verify_folder},
    weights::Variant,
};

use crate::{
    hub_server::{COMMIT, Reply, Request, Server},
    tiny_model::files,
};

const UNET: &str = "unet/diffusion_pytorch_model.fp16.safetensors";
const TOKEN: &str = "hf_secretTokenThatNobodyElseMaySee";

/// What the hub does, by a name for messages.
pub struct Attack {
    pub name: String,
    /// Whether the listing leaves out what the files are, so that their headers decide.
    pub bare: bool,
    /// Changes the hub's answers; the last argument is the address of a server that is not the hub.
    pub twist: Twist,
}

pub type Twist = Arc<dyn Fn(&Request, Reply, &str) -> Reply + Send + Sync>;

/// Which answers an attack changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum On {
    Listing,
    /// The headers of every file, which decide what it is.
    Head,
    /// The contents of every file.
    Contents,
}

impl On {
    fn is(self, request: &Request) -> bool {
        match self {
            On::Listing => request.is_listing(),
            On::Head => !request.is_listing() && request.method == "HEAD",
            On::Contents => !request.is_listing() && request.method == "GET",
        }
    }
}

pub fn attack(
    name: String,
    on: On,
    twist: impl Fn(&Request, Reply, &str) -> Reply + Send + Sync + 'static,
) -> Attack {
    let twist = Arc::new(move |request: &Request, reply: Reply, other: &str| match on.is(request) {
        true => twist(request, reply, other),
        false => reply,
    });
    Attack { name: format!("{on:?}: {name}"), bare: on == On::Head, twist }
}

/// The machine of someone who downloads a model: a home with files of their own, and the cache in it.
struct Victim {
    home: tempfile::TempDir,
    hub: Server,
    other: Server,
}

impl Victim {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join(".ssh")).unwrap();
        fs::create_dir_all(home.path().join("cache/hub")).unwrap();
        for name in ["precious.txt", ".ssh/authorized_keys", "cache/token", "cache/hub/version.txt"] {
            fs::write(home.path().join(name), format!("the user's own {name}")).unwrap();
        }
        Victim { home, hub: Server::new(files()), other: Server::new(files()) }
    }

    /// Everything outside the part of the cache that belongs to the model.
    fn belongings(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        collect(self.home.path(), self.home.path(), &mut found);
        found.retain(|name, _| {
            !["cache/hub/models--owner--name", "cache/hub/.locks"].iter().any(|own| name.starts_with(own))
        });
        found
    }

    fn download(&self) -> Result<PathBuf, HubError> {
        let patience = Patience {
            connect: Duration::from_secs(2),
            answer: Duration::from_millis(700),
            stall: Duration::from_millis(500),
            retries: 1,
            pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(5),
            ..Patience::default()
        };
        let hub = Hub {
            endpoint: self.hub.endpoint(),
            cache: self.home.path().join("cache/hub"),
            token: Some(TOKEN.to_owned()),
            offline: false,
            certificates: None,
            patience,
        };
        hub.fetch(&HubId::parse("owner/name").unwrap(), &Variant::For(DType::F16), &mut ())
    }

    /// Fails unless the attack has done nothing.
    fn suffer(attack: &Attack) {
        let victim = Victim::new();
        if attack.bare {
            victim.hub.list_only_names();
        }
        let (twist, other) = (attack.twist.clone(), victim.other.endpoint());
        victim.hub.twist(move |request, reply| twist(request, reply, &other));
        let before = victim.belongings();
        let begun = Instant::now();
        let result = victim.download();
        assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
        assert_eq!(victim.belongings(), before, "files outside the model's cache have changed");
        let seen: String = victim.other.requests().into_iter().map(|request| request.text).collect();
        assert!(
            !seen.to_lowercase().contains(&TOKEN.to_lowercase()),
            "another server saw the token:\n{seen}"
        );
        if let Err(error) = &result {
            let text = error.to_string();
            assert!(!text.contains(TOKEN) && !text.contains('\u{1b}') && text.len() < 2000, "{text:?}");
        }
        victim.check_cache();
        if let Ok(folder) = result {
            for (name, bytes) in files() {
                let path = folder.join(name);
                assert!(!path.exists() || fs::read(path).unwrap() == bytes, "{name} has other contents");
            }
            assert!(folder.join(UNET).exists());
        }
    }

    /// Fails if the cache has something that is not what its name says.
    fn check_cache(&self) {
        let model = self.home.path().join("cache/hub/models--owner--name");
        for entry in fs::read_dir(model.join("blobs")).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(Digest::parse(name.trim_end_matches(".incomplete")).is_some(), "a blob called {name:?}");
        }
        let snapshots: Vec<_> = fs::read_dir(model.join("snapshots")).into_iter().flatten().collect();
        for entry in snapshots {
            let path = entry.unwrap().path();
            assert!(path.file_name().unwrap() == COMMIT, "a snapshot called {}", path.display());
            for file in verify_folder(&path, &mut ()).unwrap_or_default() {
                assert!(matches!(file.state, FileState::Good(_)), "{}: {:?}", file.name, file.state);
            }
        }
    }
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && !path.is_symlink() {
            collect(root, &path, found);
        } else {
            found.insert(name, fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

/// Runs all attacks, some at a time, and says which had an effect.
pub fn run(attacks: Vec<Attack>, at_least: usize) {
    assert!(attacks.len() >= at_least, "only {} attacks", attacks.len());
    let (queue, failures) = (Mutex::new(attacks.into_iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(attack) = { queue.lock().unwrap().next() } {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| Victim::suffer(&attack))) {
                        let text = panic.downcast_ref::<String>().cloned();
                        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
                        failures.lock().unwrap().push(format!(
                            "{}: {}",
                            attack.name,
                            text.unwrap_or_default()
                        ));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} attacks succeeded:\n{}", failures.len(), failures.join("\n"));
}

//! Short names of models: `svd-xt` is easier to type than `stabilityai/stable-video-diffusion-img2vid-xt`.

/// A short name, and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortName {
    /// The name.
    pub name: &'static str,
    /// The model on the hub.
    pub repo: &'static str,
    /// What the model does.
    pub about: &'static str,
}

/// All short names. Every model here is one that Kinora runs.
pub const SHORT_NAMES: [ShortName; 2] = [
    ShortName {
        name: "svd",
        repo: "stabilityai/stable-video-diffusion-img2vid",
        about: "Stable Video Diffusion, 14 frames of 1024×576",
    },
    ShortName {
        name: "svd-xt",
        repo: "stabilityai/stable-video-diffusion-img2vid-xt",
        about: "Stable Video Diffusion XT, 25 frames of 1024×576",
    },
];

/// The model that a short name stands for.
pub(super) fn repo(name: &str) -> Option<&'static str> {
    SHORT_NAMES.iter().find(|short| short.name == name).map(|short| short.repo)
}

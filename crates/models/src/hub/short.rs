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
pub const SHORT_NAMES: [ShortName; 8] = [
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
    ShortName {
        name: "sd-turbo",
        repo: "stabilityai/sd-turbo",
        about: "Stable Diffusion Turbo, live video of 512×512 in one step",
    },
    ShortName {
        name: "sd15",
        repo: "stable-diffusion-v1-5/stable-diffusion-v1-5",
        about: "Stable Diffusion 1.5, pictures of 512×512",
    },
    ShortName {
        name: "lcm",
        repo: "SimianLuo/LCM_Dreamshaper_v7",
        about: "a latent consistency model, 768×768 in two to eight steps",
    },
    ShortName {
        name: "sdxl-turbo",
        repo: "stabilityai/sdxl-turbo",
        about: "Stable Diffusion XL Turbo, live video of 512×512 in one step",
    },
    ShortName {
        name: "taesd",
        repo: "madebyollin/taesd",
        about: "a tiny autoencoder for Stable Diffusion 1.5, 2.1 and Turbo",
    },
    ShortName {
        name: "taesdxl",
        repo: "madebyollin/taesdxl",
        about: "a tiny autoencoder for Stable Diffusion XL",
    },
];

/// The model that a short name stands for.
pub(super) fn repo(name: &str) -> Option<&'static str> {
    SHORT_NAMES.iter().find(|short| short.name == name).map(|short| short.repo)
}

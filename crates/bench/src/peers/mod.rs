//! Peers: programs that run the same cases, in a Python process that takes turns with us.

mod process;
mod python;
mod torch;

pub use process::{Peer, end_all};
pub use python::Python;
pub use torch::{Hello, TorchPeer, Variant};

/// A script of the peers. It is part of the program, so that no checkout is needed.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The file's name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! script {
    ($name:literal) => {
        Script { name: $name, text: include_str!(concat!("../../peers/", $name)) }
    };
}

/// A script with those that it imports.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The script that is started.
    pub main: Script,
    /// Those that lie beside it.
    pub imported: &'static [Script],
}

/// PyTorch's layers.
pub const TORCH_LAYERS: Program =
    Program { main: script!("torch_layers.py"), imported: &[script!("turns.py")] };

/// The networks of a frame of live video in diffusers.
pub const LIVE_NETWORKS: Program = Program {
    main: script!("live_turns.py"),
    imported: &[
        script!("live_models.py"),
        script!("synthetic.py"),
        script!("host_packages.py"),
        script!("measure.py"),
        script!("turns.py"),
    ],
};

/// The networks and the pipeline of Stable Video Diffusion in diffusers.
pub const SVD_NETWORKS: Program = Program {
    main: script!("svd_turns.py"),
    imported: &[
        script!("svd_stages.py"),
        script!("svd_models.py"),
        script!("svd_times.py"),
        script!("synthetic.py"),
        script!("host_packages.py"),
        script!("measure.py"),
        script!("turns.py"),
    ],
};

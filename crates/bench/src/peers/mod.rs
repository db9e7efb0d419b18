//! Others who run the same cases, in a Python process that takes turns with us.

mod process;
mod python;
mod torch;

pub use process::{Peer, end_all};
pub use python::{Python, checkout};
pub use torch::{Hello, TorchPeer, Variant};

/// A script of the peers, which is part of the program: it needs no checkout.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The file's name.
    pub name: &'static str,
    /// What is in it.
    pub text: &'static str,
}

/// PyTorch's layers.
pub const TORCH_LAYERS: Script =
    Script { name: "torch_layers.py", text: include_str!("../../../../bench/peers/torch_layers.py") };

/// The networks of Stable Video Diffusion, by diffusers; with what the script is made of.
pub const SVD_NETWORKS: [Script; 9] = [
    Script { name: "svd_turns.py", text: include_str!("../../../../bench/peers/svd_turns.py") },
    Script { name: "svd_stages.py", text: include_str!("../../../../bench/peers/svd_stages.py") },
    Script { name: "svd_models.py", text: include_str!("../../../../bench/peers/svd_models.py") },
    Script { name: "svd_times.py", text: include_str!("../../../../bench/peers/svd_times.py") },
    Script { name: "host_packages.py", text: include_str!("../../../../bench/peers/host_packages.py") },
    Script { name: "measure.py", text: include_str!("../../../../bench/peers/measure.py") },
    Script { name: "svd.py", text: include_str!("../../../../golden/svd.py") },
    Script { name: "synthetic.py", text: include_str!("../../../../golden/synthetic.py") },
    TORCH_LAYERS,
];

/// diffusers' pipeline on a CPU.
pub const DIFFUSERS_CPU: Script =
    Script { name: "diffusers_cpu.py", text: include_str!("../../../../bench/peers/diffusers_cpu.py") };

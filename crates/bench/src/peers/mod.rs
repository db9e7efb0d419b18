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
    Program { main: script!("torch_layers.py"), imported: &[script!("turns.py"), script!("measure.py")] };

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A script finds only what lies in its folder.
    #[test]
    fn every_script_lies_beside_those_that_import_it() {
        let all = [TORCH_LAYERS, LIVE_NETWORKS, SVD_NETWORKS];
        let is_ours =
            |name: &str| all.iter().flat_map(|program| program.imported).any(|script| script.name == name);
        for program in &all {
            let there: Vec<&str> = program.imported.iter().map(|script| script.name).collect();
            for script in program.imported.iter().chain([&program.main]) {
                for line in script.text.lines() {
                    let mut words = line.split_whitespace();
                    if !matches!(words.next(), Some("import" | "from")) {
                        continue;
                    }
                    let module = format!("{}.py", words.next().unwrap_or_default());
                    assert!(
                        !is_ours(&module) || there.contains(&&*module),
                        "{} needs {module} beside {}",
                        script.name,
                        program.main.name
                    );
                }
            }
        }
    }
}

//! The command line.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

#[cfg(feature = "cuda")]
use crate::kernels::arguments::KernelsArgs;
use crate::{
    bench::arguments::BenchArgs,
    demo_model,
    doctor::DoctorArgs,
    generate::arguments::GenerateArgs,
    help,
    info::arguments::InfoArgs,
    live::arguments::{ImageArgs, LiveArgs},
    models::arguments::ModelsArgs,
    profile::arguments::ProfileArgs,
};
#[cfg(feature = "simulator")]
use crate::{lab::arguments::LabArgs, sim::arguments::SimArgs};

const EXAMPLES: &str = "\
Examples:
  kinora photo.jpg                  photo.mp4, made with the model in the box
  kinora generate                   the same of a built-in still
  kinora generate photo.jpg -o clip.gif --model svd-xt --seed 7
                                    another format and seed, and a large model,
                                    downloaded on first use
  kinora live in.mp4 -o out.mp4 --prompt 'an oil painting'
                                    every frame redrawn, after a prompt
  kinora image --prompt 'a lighthouse'
                                    a picture
  kinora models list                which models are downloaded, and their
                                    short names
  kinora info --config svd-xt       what a large model needs: memory, FLOPs
  kinora doctor                     what works on this machine
  kinora profile run photo.jpg      where the time goes, and what limits it
  kinora bench cpu                  how fast it is, next to PyTorch if that is
                                    installed
  kinora sim kernel.cu …            a CUDA kernel on a simulated GPU
  kinora lab new sum --like reduction
                                    a kernel of your own to start from, with its
                                    task: `kinora lab run sum` checks it

Environment:
  KINORA_MODEL        the model of `generate`, `profile` and `info` if there is
                      no --model, instead of the one in the box
  HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE
                      as for the Hugging Face hub: where downloads are kept, and
                      your token
  SSL_CERT_FILE       certificate authorities to trust in downloads, as PEM
  KINORA_CACHE_DIR    GPU kernels: the folder for compiled ones
  KINORA_KERNEL_BUNDLE
                      a bundle of them, made by `kinora kernels build`
  KINORA_NVRTC        the path of NVIDIA's compiler, NVRTC
  KINORA_PEER_PYTHON  a Python that has PyTorch, for `kinora bench`
  NO_COLOR            no colours

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.";

/// Turn a still image into a video with diffusion models.
#[derive(Parser, Debug)]
#[command(name = "kinora", version, args_override_self = true)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora --help` has examples.")]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Reads the words of the command line. A photo in the place of a command means `generate`.
    ///
    /// # Errors
    /// If they make no sense, or ask for help.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
        let mut command = help::grouped(Arguments::command());
        let mut words: Vec<OsString> = words.into_iter().collect();
        if words.get(1).is_some_and(|word| is_photo(word, &command)) {
            words.insert(1, "generate".into());
        }
        let matches = command.try_get_matches_from_mut(words)?;
        Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// The extensions of photos, which mean one even if there is no such file: then that is what is said.
const PHOTOS: [&str; 8] = ["png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff"];

/// Whether the first word is a photo, not a command or an option.
fn is_photo(word: &OsStr, command: &clap::Command) -> bool {
    if word.as_encoded_bytes().starts_with(b"-") || command.find_subcommand(word).is_some() {
        return false;
    }
    let path = Path::new(word);
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    path.is_file() || extension.is_some_and(|extension| PHOTOS.contains(&extension.as_str()))
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make videos from photos
    Generate(Box<GenerateArgs>),
    /// Redraw every frame of a video or a camera, after a prompt
    Live(Box<LiveArgs>),
    /// Draw a picture, after a prompt
    Image(Box<ImageArgs>),
    /// Download, list, check and remove models
    Models(ModelsArgs),
    /// Show what is in a model, and what a clip needs
    Info(Box<InfoArgs>),
    /// Show where a clip's time goes, and what limits it
    Profile(ProfileArgs),
    /// Run a CUDA kernel on a simulated GPU: its bugs and its cost
    #[cfg(feature = "simulator")]
    Sim(Box<SimArgs>),
    /// Check, time and compare CUDA kernels of your own, without a GPU
    #[cfg(feature = "simulator")]
    Lab(LabArgs),
    /// Check what works on this machine, and how to fix the rest
    Doctor(DoctorArgs),
    /// Measure layers and networks, next to PyTorch and earlier results
    Bench(Box<BenchArgs>),
    /// Write a tiny untrained model for tests; its videos are noise
    DemoModel(DemoModelArgs),
    /// Compile GPU kernels ahead of time
    #[cfg(feature = "cuda")]
    Kernels(KernelsArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder: they are packed with the program
    #[command(hide = true)]
    Man(ManArgs),
}

impl Command {
    /// Whether the output is a JSON object.
    pub fn json(&self) -> bool {
        match self {
            Command::Generate(arguments) => arguments.json,
            Command::Live(arguments) => arguments.json,
            Command::Image(arguments) => arguments.json,
            Command::Info(arguments) => arguments.json,
            Command::Models(arguments) => arguments.json(),
            #[cfg(feature = "cuda")]
            Command::Kernels(arguments) => arguments.json(),
            Command::Profile(arguments) => arguments.json(),
            Command::Doctor(arguments) => arguments.json,
            #[cfg(feature = "simulator")]
            Command::Sim(arguments) => arguments.json,
            #[cfg(feature = "simulator")]
            Command::Lab(arguments) => arguments.json(),
            Command::Bench(arguments) => arguments.report.json,
            Command::DemoModel(_) | Command::Completions(_) | Command::Man(_) => false,
        }
    }
}

const DEMO_EXAMPLES: &str = "\
Example:
  kinora demo-model demo
  kinora generate photo.jpg -o clip.mp4 --model demo

  kinora demo-model --preset live demo-live
  kinora live in.mp4 --model demo-live --autoencoder demo-live/tiny

The model has the same parts as Stable Video Diffusion, or as Stable Diffusion
for live video. It is far smaller and untrained, so its videos are noise. They
show that everything runs, not what a real model can do.

Exit codes: 0 done, 1 failed, 2 the command line is wrong.";

/// The options of `kinora demo-model`.
#[derive(Args, Debug)]
#[command(after_long_help = DEMO_EXAMPLES)]
pub struct DemoModelArgs {
    /// The folder to write. It must not hold a model yet.
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// Which model: tiny makes 4 frames of 64×64; small makes 8 frames of 320×192 and takes 300 MB; live draws frames of 64×64,
    /// and live-xl has two text encoders.
    #[arg(long, value_name = "NAME", value_parser = demo_model::presets(), default_value = "tiny")]
    pub preset: String,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  kinora completions bash > ~/.local/share/bash-completion/completions/kinora
  kinora completions zsh > ~/.zfunc/_kinora
      (with `fpath+=~/.zfunc` before compinit)
  kinora completions fish > ~/.config/fish/completions/kinora.fish";

/// The options of `kinora completions`.
#[derive(Args, Debug)]
#[command(after_long_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// The options of `kinora man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The folder, which must exist.
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn photos(words: &[&str]) -> Option<Vec<PathBuf>> {
        let words = ["kinora"].iter().chain(words).map(OsString::from);
        match Arguments::read(words).ok()?.command {
            Command::Generate(arguments) => Some(arguments.photos),
            _ => None,
        }
    }

    #[test]
    fn a_photo_in_the_place_of_a_command_is_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(photos(&[path]), Some(vec![path.into()]));
        assert_eq!(
            photos(&["no such.JPG", "b.png", "--steps", "3"]),
            Some(vec!["no such.JPG".into(), "b.png".into()])
        );
        assert_eq!(photos(&["generate", "a.jpg"]), Some(vec!["a.jpg".into()]));
        // Neither a file nor the name of one: probably a command with a typing error.
        assert_eq!(photos(&["genrate"]), None);
        assert_eq!(photos(&["doctor"]), None);
        assert_eq!(photos(&["--version"]), None);
    }
}

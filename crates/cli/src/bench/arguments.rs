//! The options of `kinora bench`.

use std::path::PathBuf;

use clap::{Args, ValueHint, builder::PossibleValuesParser, builder::TypedValueParser as _};
use kinora::{device::Device, image_to_video::Precision};
use kinora_bench::run::{Size, Suite};

use crate::{
    clip::arguments::unmeasured_precision,
    quantities::{Part, at_least_one, seconds},
};

const EXAMPLES: &str = "\
Examples:
  kinora bench cpu
      Layers on this CPU, beside PyTorch's if it is installed.

  kinora bench kernels --only attention
      Every attention layer of Stable Video Diffusion on the GPU.

  kinora bench cpu --only 'conv 1x1,qkv'
      Layers whose names contain `conv 1×1` or `qkv`.

  kinora bench svd vae --save today.json
      The networks of Stable Video Diffusion, saved as JSON.

  kinora bench live --save today.json
      A frame of live video and its parts.

  kinora bench targets
      The figures that were promised, each beside its goal.

  kinora bench cpu --compare yesterday.json
      What became faster or slower; exit code 1 if anything is slower.

  kinora bench --from today.json --plot a.svg
      A plot of saved results.

  kinora bench --list
      The names of all cases.

Suites:
  cpu       layers of a small model on the CPU, in f32
  kernels   layers of Stable Video Diffusion and Stable Diffusion on a GPU, in
            f16; with --device cpu small layers of the same kinds
  svd       the image encoder, the autoencoder's encoder and a step of the UNet
  vae       the autoencoder's decoder
  pipeline  a whole clip of a small model, beside diffusers' pipeline
  live      a frame of live video of 1 and 2 steps, the UNet alone, the tiny
            autoencoder, and a row of frames from the host's bytes to the host's
            bytes, with p50 and p99; SD-Turbo on a GPU, a small model on the CPU
  targets   the figures that were promised, and whether they are reached:
            small attention over PyTorch's unfused formula, convolutions over
            frames, the sampler step, a guided step of a clip over diffusers',
            and our fused kernels over our baseline's; with --device cpu small
            layers and a small network

Each case runs in many short turns, Kinora and each peer in alternation, after a
warm-up. Runs cycle through several copies of the operands, and a GPU's L2 cache
is flushed before each run. A peer whose result differs from Kinora's is not
timed. The table shows the median of the turns with its 95 % confidence
interval; few turns allow less confidence, 75 % with --quick. `of best` is the
time that the device's measured ceilings allow, as a share of the time taken. It
exceeds 100 % if operands stay in a CPU's cache, or a convolution needs
fewer multiplications than its FLOPs. `ratio` is the fastest peer's time over
Kinora's: the median over the turns.

PyTorch is looked for in --python, then KINORA_PEER_PYTHON, then `python3`; the
suites svd, vae, pipeline, live and targets need diffusers as well. A target
that could not be measured says why, and does not pass.

Exit codes: 0 done; 1 failed, a result differs, or a case became slower; 2 wrong
command line; 130 interrupted. A target that is missed is no failure.";

/// The options of `kinora bench`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora bench --help` has examples.")]
pub struct BenchArgs {
    /// What to measure: cpu, kernels, svd, vae, pipeline, live, targets [default: all but targets].
    #[arg(value_name = "SUITE", value_parser = suites())]
    pub suites: Vec<Suite>,

    /// Only cases whose names contain this text. It is not a regular expression. For several, repeat the option or separate them
    /// with commas: `a,b`. A comma followed by a space is part of the text.
    #[arg(long, value_name = "PATTERN[,PATTERN]")]
    pub only: Vec<String>,

    /// Print the names of the cases.
    #[arg(long)]
    pub list: bool,

    /// The device: auto (a GPU if one works, else the CPU), cpu, cuda, or cuda:N for GPU number N.
    #[arg(long, default_value_t = Device::Auto, value_name = "DEVICE")]
    pub device: Device,

    /// The precision: f32, f16 or bf16 [default: f16 on a GPU, f32 on the CPU].
    #[arg(long, value_name = "NAME", value_parser = unmeasured_precision(), hide_possible_values = true)]
    pub precision: Option<Precision>,

    /// The size of the networks: full, small or tiny [default: full on a GPU, small on the CPU and for pipeline].
    #[arg(long, value_name = "NAME", value_parser = sizes())]
    pub size: Option<Size>,

    /// Time every kernel that a GPU has for a layer, not just the chosen one.
    #[arg(long)]
    pub all_kernels: bool,

    /// A quick check: few and short turns.
    #[arg(long)]
    pub quick: bool,

    /// Turns of every case [default: 12].
    #[arg(long, value_name = "NUMBER", value_parser = at_least_one)]
    pub turns: Option<usize>,

    /// Seconds of a turn, at least [default: 0.05].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,

    /// The peers.
    #[command(flatten)]
    pub peers: PeerArgs,

    /// The results.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// The peers that run beside Kinora.
#[derive(Args, Debug)]
#[command(next_help_heading = "Peers")]
pub struct PeerArgs {
    /// A Python that has PyTorch.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub python: Option<PathBuf>,

    /// Run no peers.
    #[arg(long, conflicts_with_all = ["python", "compile"])]
    pub no_peers: bool,

    /// Time PyTorch's layers compiled with torch.compile as well, which takes minutes.
    #[arg(long)]
    pub compile: bool,
}

/// What is done with the results.
#[derive(Args, Debug)]
#[command(next_help_heading = "Results")]
pub struct ReportArgs {
    /// Measure nothing; read results that `--save` wrote.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = [
        "suites", "only", "list", "device", "precision", "size", "all_kernels", "quick", "turns", "seconds", "python",
        "no_peers", "compile", "save",
    ])]
    pub from: Option<PathBuf>,

    /// Write the results as JSON, for `--compare`, `--from` and other programs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,

    /// Write a plot of the times.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,

    /// Compare with results that `--save` wrote. A case that became slower makes the run a failure.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub compare: Option<PathBuf>,

    /// How much slower a case may become; its interval must not overlap the earlier one either.
    #[arg(long, value_name = "PERCENT", default_value = "5%", requires = "compare")]
    pub threshold: Part,

    /// Replace files that exist.
    #[arg(short, long)]
    pub force: bool,

    /// Print one JSON object on standard output instead of tables.
    #[arg(long)]
    pub json: bool,
}

fn suites() -> impl clap::builder::TypedValueParser<Value = Suite> {
    PossibleValuesParser::new(Suite::ALL.map(Suite::name)).try_map(|name| name.parse::<Suite>())
}

fn sizes() -> impl clap::builder::TypedValueParser<Value = Size> {
    PossibleValuesParser::new(Size::ALL.map(Size::name)).try_map(|name| name.parse::<Size>())
}

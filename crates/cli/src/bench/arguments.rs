//! The options of `kinora bench`.

use std::path::PathBuf;

use clap::{Args, ValueHint, builder::PossibleValuesParser, builder::TypedValueParser as _};
use kinora::{device::Device, image_to_video::Precision};
use kinora_bench::run::{Size, Suite};

use crate::quantities::{Part, at_least_one, seconds};

const EXAMPLES: &str = "\
Examples:
  kinora bench cpu                             layers on this processor, beside PyTorch's where there is one
  kinora bench kernels --only attention        every attention layer of SVD on the GPU
  kinora bench svd vae --save today.json       the networks of Stable Video Diffusion, kept as JSON
  kinora bench cpu --compare yesterday.json    what became faster or slower; exit code 1 where it is slower
  kinora bench --from today.json --plot a.svg  a picture of what was saved
  kinora bench --list                          what there is

Suites:
  cpu      layers of a small model on the processor, in f32
  kernels  layers of Stable Video Diffusion and Stable Diffusion on a GPU, in f16; with --device cpu
           small ones of the same kinds on the processor
  svd      the image encoder, the autoencoder's encoder and a step of the UNet
  vae      the autoencoder's decoder

Every case is run in many short turns, ours and each peer's in alternation, after a warm-up, on
operands that are gone round, with a GPU's cache emptied before each run. A peer whose result is
another than ours is not timed. What is shown is the median of the turns with the interval in which it
lies at 95 %, or with what probability so few turns allow: 75 % with --quick. `of best` is the time that
the device's ceilings would allow, which are measured first, over the time that it took: more than 100 %
where operands stay in a processor's cache, or a convolution multiplies less than its FLOPs say.

PyTorch is looked for in --python, KINORA_PEER_PYTHON, and `python3`.

Exit codes: 0 done, 1 failed, a result differs, or a case became slower; 2 the command line is wrong;
130 interrupted.";

/// The options of `kinora bench`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora bench --help` has examples.")]
pub struct BenchArgs {
    /// What to measure: cpu, kernels, svd, vae [default: all].
    #[arg(value_name = "SUITE", value_parser = suites())]
    pub suites: Vec<Suite>,

    /// Only cases with this in their name; may be given several times.
    #[arg(long, value_name = "WORD")]
    pub only: Vec<String>,

    /// Print the cases that there are.
    #[arg(long)]
    pub list: bool,

    /// What is to compute: auto (a GPU where one works, or else the processor), cpu, cuda, or cuda:N for GPU number N.
    #[arg(long, default_value_t = Device::Auto, value_name = "DEVICE")]
    pub device: Device,

    /// The precision: f32, f16 or bf16 [default: f16 on a GPU, f32 on the processor].
    #[arg(long, value_name = "NAME")]
    pub precision: Option<Precision>,

    /// The size of the networks: full, small or tiny [default: full on a GPU, small on the processor].
    #[arg(long, value_name = "NAME", value_parser = sizes())]
    pub size: Option<Size>,

    /// Time every kernel that a GPU has for a layer, not only the chosen one.
    #[arg(long)]
    pub all_kernels: bool,

    /// A smoke run: few and short turns.
    #[arg(long)]
    pub quick: bool,

    /// Turns of every case [default: 12].
    #[arg(long, value_name = "NUMBER", value_parser = at_least_one)]
    pub turns: Option<usize>,

    /// Seconds of a turn, at the least [default: 0.05].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,

    /// What the peers are.
    #[command(flatten)]
    pub peers: PeerArgs,

    /// What becomes of the results.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Who runs beside us.
#[derive(Args, Debug)]
#[command(next_help_heading = "Peers")]
pub struct PeerArgs {
    /// A Python that has PyTorch.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub python: Option<PathBuf>,

    /// Run no peers.
    #[arg(long, conflicts_with_all = ["python", "compile"])]
    pub no_peers: bool,

    /// Compile PyTorch's layers as well, with torch.compile: minutes.
    #[arg(long)]
    pub compile: bool,
}

/// What becomes of the results.
#[derive(Args, Debug)]
#[command(next_help_heading = "Results")]
pub struct ReportArgs {
    /// Measure nothing: take the results that `--save` wrote.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = [
        "suites", "only", "list", "device", "precision", "size", "all_kernels", "quick", "turns", "seconds", "python",
        "no_peers", "compile", "save",
    ])]
    pub from: Option<PathBuf>,

    /// Write the results as JSON: for `--compare` and `--from`, and for programs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,

    /// Write a plot of the times.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,

    /// Compare with results that `--save` wrote; a case that became slower is a failure.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub compare: Option<PathBuf>,

    /// By how much a case may become slower, beyond the intervals of both.
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

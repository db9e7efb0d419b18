//! The options of `kinora sim`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use kinora::ptx::Checks;

use super::{
    operands::Operand,
    quantities::{Extents, chip},
};

const EXAMPLES: &str = "\
Examples:
  kinora sim scale.cu --entry scale --grid 4 --block 256 --arg 'f32[1000]=random' --arg i32:1000
      Compiles the source, runs its kernel, and says what it does wrong and what it costs.

  kinora sim kernel.ptx --entry gemm --grid 8,8 --block 128 --shared 49152 \\
      --arg 'f16[65536]=random' --arg 'f16[65536]=random' --arg 'f32[65536]' --chip h100 --json
      PTX as it is, on a simulated H100, for a program.

  kinora sim scale.cu --entry scale --grid 400000 --block 256 --arg 'f32[102400000]' --arg i32:102400000 \
      --device-profile t4 --predict-only
      How long the kernel takes on a T4, and what limits it, by a few blocks of its grid.

  kinora sim scale.cu --entry scale --grid 1 --block 32 --arg 'f32[32]=@in.bin' --arg i32:32 --show 4 --write 0=out.bin
      An operand from a file, its first numbers afterwards, and all of it into a file.

An argument is a number (i32:5, f32:0.5), a struct by value (bytes:0a00000000000040, two digits a byte) or a
buffer, of i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32 or f64: f32[1000] or f32[10,100] holds nothing, f32[1000]=0 a
number, f32[1000]=random numbers between -1 and 1 (small whole ones where they are integers), f32[1000]=@FILE
the bytes of a file. tiles:16,64:f16[512,64]=random is a tensor map of such a buffer, the outermost axis first, of
which boxes of 16 by 64 are copied; tiles:16,64,swizzle128:… swizzles them. A map for im2col needs the library,
kinora::ptx.

Exit codes: 0 nothing was found, 1 something was found or failed, 2 the command line is wrong.";

/// What is not looked for unless it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// Numbers that stop being finite.
    Nan,
}

/// Runs a CUDA kernel on a simulated GPU.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora sim --help` has examples, and how arguments are written.")]
pub struct SimArgs {
    /// The kernel: CUDA C++ (.cu), which NVRTC compiles, or PTX.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// The kernel's name; it may be left out where there is one. In CUDA C++ it is `extern "C"`.
    #[arg(long, value_name = "NAME")]
    pub entry: Option<String>,

    /// Blocks on each axis: X, X,Y or X,Y,Z.
    #[arg(long, value_name = "X,Y,Z")]
    pub grid: Extents,

    /// Threads of a block on each axis.
    #[arg(long, value_name = "X,Y,Z")]
    pub block: Extents,

    /// Blocks of a cluster on each axis.
    #[arg(long, value_name = "X,Y,Z", default_value = "1")]
    pub cluster: Extents,

    /// Dynamic shared memory of a block, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub shared: usize,

    /// An argument of the kernel, in order: i32:5, f32[1000], f32[1000]=random …
    #[arg(long = "arg", visible_alias = "args", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub args: Vec<Operand>,

    /// The chip: t4, rtx3090, rtx4090, a100, h100, h200 or b200.
    #[arg(long, value_name = "NAME", default_value = "a100", value_parser = chip)]
    pub chip: kinora::ptx::Profile,

    /// The chip, and a prediction of how long the kernel takes on it.
    #[arg(long, value_name = "NAME", conflicts_with = "chip", value_parser = chip)]
    pub device_profile: Option<kinora::ptx::Profile>,

    /// Constants of a device that was measured, for the prediction; without it, published figures alone.
    #[arg(long, value_name = "FILE", requires = "device_profile", conflicts_with = "chip", value_hint = ValueHint::FilePath)]
    pub calibration: Option<PathBuf>,

    /// Only predict: run a few blocks of the grid, and check nothing. Buffers are addresses alone.
    #[arg(long, requires = "device_profile", conflicts_with_all = ["chip", "show", "write", "no_races"])]
    pub predict_only: bool,

    /// An option for the compiler, such as -DWIDTH=64.
    #[arg(long = "compile", value_name = "OPTION", allow_hyphen_values = true)]
    pub compile: Vec<String>,

    /// Print the first numbers of every buffer afterwards.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub show: usize,

    /// Write a buffer, counted among the arguments from 0, to a file afterwards: 0=out.bin.
    #[arg(long, value_name = "NUMBER=FILE")]
    pub write: Vec<String>,

    /// Look for more: nan is for infinities that come out of finite numbers, and NaNs of numbers.
    #[arg(long, value_name = "WHAT", value_enum)]
    pub check: Vec<Check>,

    /// End a kernel that has run so many instructions of warps: one that never ends takes minutes to that.
    #[arg(long, value_name = "COUNT", default_value_t = Checks::default().steps)]
    pub steps: u64,

    /// Do not look for races: faster.
    #[arg(long)]
    pub no_races: bool,

    /// Replace files that exist.
    #[arg(short, long)]
    pub force: bool,

    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
}

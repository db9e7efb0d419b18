//! The options of `kinora sim`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint, builder::NonEmptyStringValueParser};

use kinora_ptx::{Checks, DeviceLimits};

use super::{
    operands::Operand,
    quantities::{Extents, chip},
};
use crate::quantities::whole_number;

const EXAMPLES: &str = "\
Examples:
  kinora sim scale.cu --entry scale --grid 4 --block 256 \\
      --arg 'f32[1000]=random' --arg i32:1000
      Compile the source, run its kernel, and report what it does wrong and what
      it costs.

  kinora sim kernel.ptx --entry gemm --grid 8,8 --block 128 --shared 49152 \\
      --arg 'f16[65536]=random' --arg 'f16[65536]=random' --arg 'f32[65536]' \\
      --chip h100 --json
      Run PTX on a simulated H100, with a report in JSON.

  kinora sim scale.cu --entry scale --grid 400000 --block 256 \\
      --arg 'f32[102400000]' --arg i32:102400000 \\
      --device-profile t4 --predict-only
      Predict how long the kernel takes on a T4, and what limits it, from a few
      of its blocks.

  kinora sim scale.cu --entry scale --grid 1 --block 32 \\
      --arg 'f32[32]=@in.bin' --arg i32:32 --show 4 --write 0=out.bin
      Read a buffer from a file; afterwards print its first numbers and write it
      to another file.

An argument is one of:
  i32:5, f32:0.5              a number
  bytes:0a00000000000040      a struct by value, two hexadecimal digits per byte
  f32[1000], f32[10,100]      an uninitialised buffer
  f32[1000]=0                 a buffer filled with a number
  f32[1000]=random            a buffer of numbers between -1 and 1, or of
                              integers from 0 to 9
  f32[1000]=@FILE             a buffer with the bytes of a file
  tiles:16,64:f16[512,64]=random
                              a tensor map of such a buffer for TMA copies of
                              16x64 boxes, outermost axis first;
                              tiles:16,64,swizzle128:… swizzles them
  texture:linear,wrap,normalised:f32x4[64,128]=random
                              a texture object over an array of 64 rows of 128
                              texels with 4 channels; the options are point or
                              linear, wrap, clamp, mirror or border, normalised
                              (coordinates), unit (integers as numbers up to 1),
                              layered and cube (layers or faces outermost), and
                              memory (linear memory, for tex1Dfetch)
  surface:f32[64,128]         a surface object; surface:layered:…

Types are i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32 and f64. An
im2col tensor map needs the library (kinora-ptx).

Exit codes: 0 nothing was found, 1 something was found, 2 the command line is
wrong, 3 the kernel could not be run, so nothing is known about it: it does not
compile, the chip refuses the launch, a file cannot be read.";

/// Checks that are off by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// Instructions that produce infinities or NaNs.
    Nan,
}

/// Runs a CUDA kernel on a simulated GPU.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora sim --help` shows examples and how to write arguments.")]
pub struct SimArgs {
    /// The kernel: CUDA C++ (.cu), which NVRTC compiles, or PTX.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// The kernel, if the file has several: scale, scale<float>, or its name in the PTX.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub entry: Option<String>,

    /// Blocks on each axis: X, X,Y or X,Y,Z.
    #[arg(long, value_name = "X,Y,Z")]
    pub grid: Extents,

    /// Threads per block on each axis.
    #[arg(long, value_name = "X,Y,Z")]
    pub block: Extents,

    /// Blocks per cluster on each axis.
    #[arg(long, value_name = "X,Y,Z", default_value = "1")]
    pub cluster: Extents,

    /// Launch all blocks at once, so that they can wait for each other with grid.sync().
    #[arg(long)]
    pub cooperative: bool,

    /// Dynamic shared memory per block, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = whole_number::<usize>)]
    pub shared: usize,

    /// A kernel argument, in order: i32:5, f32[1000], f32[1000]=random …
    #[arg(long = "arg", visible_alias = "args", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub args: Vec<Operand>,

    /// The chip to simulate: t4, rtx3090, rtx4090, a100, h100, h200 or b200.
    #[arg(long, value_name = "NAME", default_value = "a100", value_parser = chip)]
    pub chip: kinora_ptx::ChipSpec,

    /// The chip to simulate, and to predict the kernel's time on.
    #[arg(long, value_name = "NAME", conflicts_with = "chip", value_parser = chip)]
    pub device_profile: Option<kinora_ptx::ChipSpec>,

    /// A calibration measured on a device, for the prediction; without it, only published figures count.
    #[arg(long, value_name = "FILE", requires = "device_profile", conflicts_with = "chip", value_hint = ValueHint::FilePath)]
    pub calibration: Option<PathBuf>,

    /// Only predict: run a few blocks of the grid and check nothing. Buffers take no memory.
    #[arg(long, requires = "device_profile", conflicts_with_all = ["chip", "show", "write", "no_races"])]
    pub predict_only: bool,

    /// A compiler option for CUDA C++, such as -DWIDTH=64.
    #[arg(long = "compile", value_name = "OPTION", allow_hyphen_values = true)]
    pub compile: Vec<String>,

    /// Afterwards, print the first numbers of every buffer.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = whole_number::<usize>)]
    pub show: usize,

    /// Afterwards, write a buffer to a file; arguments count from 0: 0=out.bin.
    #[arg(long, value_name = "NUMBER=FILE")]
    pub write: Vec<String>,

    /// An additional check: nan finds instructions that produce an infinity from finite operands, or a NaN from numbers.
    #[arg(long, value_name = "WHAT", value_enum)]
    pub check: Vec<Check>,

    /// Contract products and sums into fused multiply-adds where the assembler may, instead of rounding each.
    #[arg(long)]
    pub contract: bool,

    /// Also print what every source line costs and, with --device-profile, where warps wait.
    #[arg(long)]
    pub by_line: bool,

    /// Permute the order of blocks and warps, to see whether results depend on it; 0 keeps their own.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = whole_number::<u64>)]
    pub seed: u64,

    /// Stop the kernel after this many warp instructions; an endless one takes minutes to reach the default.
    #[arg(long, value_name = "COUNT", default_value_t = Checks::default().steps, value_parser = whole_number::<u64>)]
    pub steps: u64,

    /// The heap of malloc and new, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = DeviceLimits::default().heap_bytes, value_parser = whole_number::<usize>)]
    pub heap: usize,

    /// The stack of a thread for functions that are not inlined, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = DeviceLimits::default().stack_bytes, value_parser = whole_number::<usize>)]
    pub stack: usize,

    /// Do not look for races, which is faster.
    #[arg(long)]
    pub no_races: bool,

    /// Replace files that exist.
    #[arg(short, long)]
    pub force: bool,

    /// Print one JSON object to standard output.
    #[arg(long)]
    pub json: bool,
}

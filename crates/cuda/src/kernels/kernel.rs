//! A kernel to compile, and a launch of it.

use super::DevicePointer;

/// A CUDA source file, embedded in the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Its path under `kernels`, such as `norm/group.cu`.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// A kernel: a source, specialised by constants and generated code. Two that are equal compile to the same code.
///
/// The compiler sees the constants as `#define NAME VALUE` and then the generated code, in a header that every source
/// includes as `specialisation.cuh`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    /// The source.
    pub source: Source,
    /// The name of the `extern "C"` function in it.
    pub entry: &'static str,
    /// What the source is specialised with.
    pub constants: Vec<(&'static str, String)>,
    /// Code that the source uses after the constants: an epilogue.
    pub generated: String,
    /// Whether a spilled register is a defect.
    pub hot: bool,
}

impl Kernel {
    /// A kernel without constants.
    pub fn new(source: Source, entry: &'static str) -> Kernel {
        Kernel { source, entry, constants: Vec::new(), generated: String::new(), hot: false }
    }

    /// Defines a constant.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Kernel {
        self.constants.push((name, value.to_string()));
        self
    }

    /// What it is called in messages: its source and its entry.
    pub fn label(&self) -> String {
        format!("{}:{}", self.source.path, self.entry)
    }

    /// The text of `specialisation.cuh`.
    pub fn specialisation(&self) -> String {
        let constants: String =
            self.constants.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        constants + &self.generated
    }
}

/// An argument of a kernel, as it lies in the parameter space.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// An address.
    Pointer(DevicePointer),
    /// A 32-bit integer.
    I32(i32),
    /// A 64-bit integer.
    I64(i64),
    /// A 32-bit number.
    F32(f32),
    /// A struct by value, whose alignment is 8.
    Bytes(Vec<u8>),
    /// A 128-byte descriptor of the bulk copy engine, a `__grid_constant__` parameter. It is made when the program is
    /// loaded, by the driver.
    TensorMap(TensorMap),
}

/// What the bulk copy engine has to know of a tensor: see `cuTensorMapEncodeTiled`. The innermost axis comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The first element.
    pub address: DevicePointer,
    /// Whether elements are bf16 rather than f16.
    pub bf16: bool,
    /// How many axes there are, up to 5.
    pub rank: usize,
    /// Their extents.
    pub extents: [u64; 5],
    /// Bytes from one element of an axis to the next, for every axis but the innermost.
    pub strides: [u64; 4],
    /// The extents of the box that is copied at a time.
    pub tile: [u32; 5],
    /// The width of the swizzle in bytes: 0, 32, 64 or 128.
    pub swizzle: u32,
}

/// A launch of a kernel, with everything in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// What runs.
    pub kernel: Kernel,
    /// Blocks on each axis.
    pub grid: [u32; 3],
    /// Threads of a block on each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Blocks that run together with access to each other's shared memory.
    pub cluster: u32,
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
}

impl Launch {
    /// A launch over one axis, without dynamic shared memory.
    pub fn new(kernel: Kernel, grid: u32, block: u32, arguments: Vec<Argument>) -> Launch {
        Launch { kernel, grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0, cluster: 1, arguments }
    }
}

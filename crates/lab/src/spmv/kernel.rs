//! The kernels: their sources, and how they are compiled for a matrix's types.

use std::fmt;

use serde::Serialize;

use super::csr::{Index, Value};
use crate::compile::{CompileError, Compiled, Form, Request, Source, compile};

/// How rows are shared out among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// A thread for each row.
    Scalar,
    /// Some neighbouring lanes for each row.
    Vector {
        /// Lanes: a power of two from 2 to 32.
        lanes: usize,
    },
    /// Equal shares of the list of rows and non-zeros for each thread.
    Merge,
    /// Tiles of whole rows, chosen beforehand, for each block.
    Adaptive,
    /// The same with columns of 16 bits, counted from the first one of the tile.
    Narrow,
    /// Some neighbouring lanes for each row, with columns of 16 bits, counted from the first one of the row.
    NarrowVector {
        /// Lanes: a power of two from 2 to 32.
        lanes: usize,
    },
    /// Non-zeros sorted beforehand by slices of the columns, whose entries of `x` lie in shared memory.
    Sliced {
        /// Columns of a slice.
        columns: usize,
        /// Bytes of products, sums and tables that a block has room for when it adds products up.
        block_bytes: usize,
    },
}

/// A kernel with its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Variant {
    /// How rows are shared out.
    pub algorithm: Algorithm,
    /// Threads of a block.
    pub threads: usize,
    /// Non-zeros that a thread asks for at a time.
    pub items: usize,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            Algorithm::Scalar => write!(f, "scalar"),
            Algorithm::Vector { lanes } => write!(f, "vector, {lanes} lanes"),
            Algorithm::Merge => write!(f, "merge"),
            Algorithm::Adaptive => write!(f, "adaptive, {} a thread", self.items),
            Algorithm::Narrow => write!(f, "narrow, {} a thread", self.items),
            Algorithm::NarrowVector { lanes } => write!(f, "narrow, {lanes} lanes"),
            Algorithm::Sliced { columns, .. } => write!(f, "sliced by {columns}"),
        }
    }
}

macro_rules! source {
    ($($name:literal),+) => {
        concat!(include_str!("common.cuh"), $("#line 1 \"spmv/", $name, "\"\n", include_str!($name)),+)
    };
}

/// Bytes of a slice of `x` of which a multiprocessor holds two, and of one that it holds alone, on the chips that have so much.
const SLICE_BYTES: [usize; 2] = [96 << 10, 192 << 10];

/// Bytes of a block that adds products up, two for each multiprocessor.
const BLOCK_BYTES: [usize; 2] = [96 << 10, 112 << 10];

/// Threads of a block that adds products up, and how many such blocks a multiprocessor holds.
pub(super) const SUM_THREADS: usize = 512;

impl Variant {
    /// A thread for each row.
    pub const SCALAR: Variant = Variant { algorithm: Algorithm::Scalar, threads: 256, items: 1 };

    /// Some lanes for each row, which ask for several non-zeros at a time.
    pub fn vector(lanes: usize) -> Variant {
        Variant { algorithm: Algorithm::Vector { lanes }, threads: 256, items: 4 }
    }

    /// Equal shares, for values of a type. The items are odd, so that the shares of neighbouring threads begin in different banks.
    pub fn merge<V: Value>() -> Variant {
        let items = if size_of::<V>() == 4 { 7 } else { 5 };
        Variant { algorithm: Algorithm::Merge, threads: 256, items }
    }

    /// Tiles of rows, for values of a type: small ones if most reads of x miss the first cache, because then it is the number of blocks at work
    /// that hides them, and otherwise large ones. (On an H200 166 instead of 177 µs for a power law, 88 instead of 96 for a band.)
    pub fn adaptive<V: Value>(scattered: bool) -> Variant {
        let items = match (size_of::<V>() == 4, scattered) {
            (true, true) => 4,
            (true, false) => 12,
            (false, true) => 2,
            (false, false) => 6,
        };
        Variant { algorithm: Algorithm::Adaptive, threads: 256, items }
    }

    /// Tiles of rows whose columns lie near each other, for values of a type.
    pub fn narrow<V: Value>() -> Variant {
        Variant { algorithm: Algorithm::Narrow, ..Variant::adaptive::<V>(false) }
    }

    /// Some lanes for each row whose columns lie near each other.
    pub fn narrow_vector(lanes: usize) -> Variant {
        Variant { algorithm: Algorithm::NarrowVector { lanes }, ..Variant::vector(lanes) }
    }

    /// Slices of the columns, for values of a type: wide ones, or those of which a multiprocessor holds two.
    pub fn sliced<V: Value>(wide: bool) -> Variant {
        let columns = SLICE_BYTES[usize::from(wide)] / size_of::<V>();
        let block_bytes = BLOCK_BYTES[usize::from(wide)];
        Variant {
            algorithm: Algorithm::Sliced { columns, block_bytes },
            threads: if wide { 1024 } else { 512 },
            items: 64 / size_of::<V>(),
        }
    }

    /// Every kernel for values of a type, on a chip whose blocks may have so much shared memory.
    pub fn all<V: Value>(shared_bytes: usize) -> Vec<Variant> {
        let lanes = [2, 4, 8, 16, 32].map(Variant::vector);
        let adaptive = [true, false].map(Variant::adaptive::<V>);
        let sliced = [false, true].map(Variant::sliced::<V>);
        let narrow = [4, 8, 16].map(Variant::narrow_vector);
        let one = [Variant::SCALAR, Variant::merge::<V>(), Variant::narrow::<V>()];
        let mut all = [&one[..], &lanes, &adaptive, &narrow, &sliced].concat();
        all.retain(|variant| variant.shared_bytes::<V>().into_iter().all(|bytes| bytes <= shared_bytes));
        all
    }

    /// Shared memory that its launches are given, beside what its kernels declare: the first launch, and the second.
    pub fn shared_bytes<V: Value>(&self) -> [usize; 2] {
        match self.algorithm {
            // A zero for what fills quads up follows the slice.
            Algorithm::Sliced { columns, block_bytes } => [(columns + 1) * size_of::<V>(), block_bytes],
            _ => [0; 2],
        }
    }

    /// The non-zeros, or rows and non-zeros, of a block.
    pub fn tile(&self) -> usize {
        self.threads * self.items
    }

    /// Whether one group of threads sums a row, however long it is.
    pub fn has_straggler(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Scalar | Algorithm::Vector { .. } | Algorithm::NarrowVector { .. }
        )
    }

    /// Its source.
    fn source(&self) -> Source {
        let (name, text) = match self.algorithm {
            Algorithm::Scalar => ("spmv/scalar.cu", source!("scalar.cu")),
            Algorithm::Vector { .. } | Algorithm::NarrowVector { .. } => {
                ("spmv/vector.cu", source!("vector.cu"))
            }
            Algorithm::Merge => ("spmv/merge.cu", source!("merge.cu")),
            Algorithm::Adaptive | Algorithm::Narrow => {
                ("spmv/adaptive.cu", source!("finish.cuh", "adaptive.cu"))
            }
            Algorithm::Sliced { .. } => ("spmv/sliced.cu", source!("finish.cuh", "sliced.cu")),
        };
        Source { name: name.to_owned(), text: text.to_owned(), folder: None }
    }

    /// The options of the compiler that make it this kernel.
    fn options<V: Value, I: Index>(&self) -> Vec<String> {
        let value = if size_of::<V>() == 4 { "float" } else { "double" };
        let index = if size_of::<I>() == 4 { "int" } else { "long long" };
        let mut options = vec![
            format!("-DVALUE={value}"),
            format!("-DINDEX={index}"),
            format!("-DTHREADS={}", self.threads),
            format!("-DITEMS={}", self.items),
        ];
        match self.algorithm {
            Algorithm::Vector { lanes } => options.push(format!("-DLANES={lanes}")),
            Algorithm::Narrow => options.push("-DCOLUMN=unsigned short".to_owned()),
            Algorithm::NarrowVector { lanes } => {
                options.extend([format!("-DLANES={lanes}"), "-DCOLUMN=unsigned short".to_owned()]);
            }
            Algorithm::Sliced { columns, .. } => {
                options.extend([format!("-DCOLUMNS={columns}"), format!("-DSUM_THREADS={SUM_THREADS}")])
            }
            _ => {}
        }
        options
    }

    /// Compiles it for a chip of a compute capability.
    ///
    /// # Errors
    /// If there is no compiler.
    pub fn compile<V: Value, I: Index>(
        &self,
        capability: (u32, u32),
        form: Form,
    ) -> Result<Compiled, CompileError> {
        let request = Request { form, options: self.options::<V, I>(), ..Request::ptx(capability) };
        compile(&self.source(), &request)
    }
}

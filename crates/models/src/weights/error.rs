//! What can be wrong with a model's weights.

use std::{io, path::PathBuf};

use kinora_graph::{Shape, TensorType};

/// What is wrong with the header of a safetensors file.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// It is longer than any reader takes.
    #[error("its header has {length} bytes, and no reader accepts more than {limit}")]
    TooLong {
        /// Its bytes.
        length: u64,
        /// The most bytes a header may have.
        limit: u64,
    },
    /// It is longer than the file.
    #[error("it says that its header has {length} bytes, but the whole file has {file}")]
    LongerThanFile {
        /// The bytes that the file says its header has.
        length: u64,
        /// The bytes of the file.
        file: u64,
    },
    /// It is not the JSON that a header is.
    #[error("its header: {0}")]
    Json(#[from] serde_json::Error),
}

/// What is wrong with the index of a sharded model.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// It is not the JSON that an index is.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It does not say where tensors are.
    #[error("it has no weight_map, which says in which file each tensor is")]
    NoPlaces,
    /// It says of no tensor where it is.
    #[error("its weight_map is empty, so there are no weights")]
    Empty,
    /// It says something else than a file's name.
    #[error("the place of {tensor} is not the name of a file")]
    NotAName {
        /// The tensor.
        tensor: String,
    },
    /// It names a file that does not lie beside it.
    #[error("it names {0:?}, which is not a file of its own folder")]
    Outside(String),
    /// It names more files than any model has.
    #[error("it names {files} files, and at most {limit} are opened")]
    TooMany {
        /// How many it names.
        files: usize,
        /// The most that are opened.
        limit: usize,
    },
}

/// Why weights could not be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A folder or file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no weights file of the name and variant asked for.
    #[error("{}: there is no {wanted} here{}", folder.display(), found_instead(found))]
    NotFound {
        /// The folder of the part.
        folder: PathBuf,
        /// The file asked for.
        wanted: String,
        /// The weights files that are there.
        found: Vec<String>,
    },
    /// The weights are there only as pickle files.
    #[error(
        "{}: the weights are there only as {}. Such a file is a Python pickle, which can run any program when it is \
         loaded, so Kinora does not read it. Download the model's .safetensors files, or convert it with diffusers or \
         transformers: load it there and call save_pretrained(folder, safe_serialization=True)",
        folder.display(), files.join(", ")
    )]
    Pickle {
        /// The folder of the part.
        folder: PathBuf,
        /// The pickle files.
        files: Vec<String>,
    },
    /// The file ends before its tensors do.
    #[error(
        "{}: the file is cut short: it must have {expected} bytes and has {got}. Download or copy it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The bytes that its header calls for.
        expected: u64,
        /// The bytes that it has.
        got: u64,
    },
    /// The file goes on after its last tensor.
    #[error(
        "{}: the file's tensors end after {expected} bytes, but it has {got}: it is damaged. Download or copy it again",
        path.display()
    )]
    TrailingBytes {
        /// The file.
        path: PathBuf,
        /// The bytes that its header calls for.
        expected: u64,
        /// The bytes that it has.
        got: u64,
    },
    /// The header is not one of a safetensors file.
    #[error("{}: this is not a safetensors file, or it is damaged: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with the header.
        source: HeaderError,
    },
    /// The index of a sharded model cannot be understood.
    #[error("{}: the index of the weights files is damaged: {source}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        source: IndexError,
    },
    /// The index names a file that is not there.
    #[error("{}: the weights file {shard} is missing, which {index} names. Download it as well", folder.display())]
    MissingShard {
        /// The folder of the part.
        folder: PathBuf,
        /// The index.
        index: String,
        /// The file that is not there.
        shard: String,
    },
    /// The index says that a file holds a tensor, but it does not.
    #[error(
        "{}: {index} says that {tensor} is in {shard}, but it is not: the files do not belong together",
        folder.display()
    )]
    NotInShard {
        /// The folder of the part.
        folder: PathBuf,
        /// The index.
        index: String,
        /// The tensor.
        tensor: String,
        /// The file that should hold it.
        shard: String,
    },
    /// There is no tensor of that name.
    #[error("{part}: the weights have no tensor {tensor}")]
    MissingTensor {
        /// The part of the model.
        part: String,
        /// The tensor.
        tensor: String,
    },
    /// A tensor has another shape than the network needs.
    #[error("{part}: {tensor} must be {expected}, the file has {got}")]
    Shape {
        /// The part of the model.
        part: String,
        /// The tensor.
        tensor: String,
        /// The shape that the network needs, in a file's order.
        expected: Shape,
        /// The file's.
        got: Shape,
    },
    /// A tensor's elements are of a type that weights are not read from.
    #[error("{part}: {tensor} is stored as {dtype}; weights are read from F32, F16 and BF16")]
    DType {
        /// The part of the model.
        part: String,
        /// The tensor.
        tensor: String,
        /// The type, as the file names it.
        dtype: String,
    },
    /// A weight was asked for as a type that weights do not have.
    #[error("{part}: {tensor} was asked for as {ty}; weights are f32, f16 or bf16")]
    Asked {
        /// The part of the model.
        part: String,
        /// The tensor.
        tensor: String,
        /// The type asked for.
        ty: TensorType,
    },
    /// There is not enough memory for a tensor.
    #[error("{part}: there is not enough memory for {tensor}, {ty}")]
    Memory {
        /// The part of the model.
        part: String,
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: TensorType,
    },
}

fn found_instead(found: &[String]) -> String {
    if found.is_empty() {
        String::new()
    } else {
        format!("; the weights files here are {}", found.join(", "))
    }
}

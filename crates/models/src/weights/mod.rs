//! Weights from safetensors files, as diffusers and transformers save them: whole or in shards, in any variant.
//!
//! Opening a model reads only the headers of its files. A tensor is read, and brought into the graph's layout and element
//! type, when it is asked for. Files are not mapped into memory: if one were cut short meanwhile, the system would end the
//! program (SIGBUS), and this way it is an error like any other.

mod error;
mod file;
mod files;
mod layout;
mod names;
mod part;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use kinora_graph::{DType, Graph, ParameterError, Parameters, Tensor, TensorType};
use safetensors::{Dtype, tensor::TensorInfo};

pub use error::{HeaderError, IndexError, WeightsError};
use file::WeightsFile;
pub use files::Variant;
pub(crate) use files::{Entry, entry, pickles, read_index, safetensors as safetensors_files};
pub use layout::channels_last;
pub(crate) use layout::file_shape;
use layout::{Float, Order};
pub(crate) use part::{PartFiles, list};

/// The weights of one part of a model.
pub struct Weights {
    part: String,
    variant: Option<String>,
    files: Vec<WeightsFile>,
    /// The number of the file that holds a tensor.
    tensors: BTreeMap<String, usize>,
}

impl Weights {
    /// Opens the weights in the folder of one part of a model. `stem` is what their file names start with:
    /// `diffusion_pytorch_model` for the parts that diffusers saves, `model` for those of transformers.
    ///
    /// # Errors
    /// If the files are not there, are pickles, are damaged or do not belong together.
    pub fn open(folder: &Path, stem: &str, variant: &Variant) -> Result<Weights, WeightsError> {
        Weights::of(&PartFiles::Folder(folder.to_owned()), stem, variant)
    }

    /// Opens one file by itself.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub fn open_file(path: &Path) -> Result<Weights, WeightsError> {
        let file = WeightsFile::open(path)?;
        // It is no part of a model: errors name the file.
        let part = path.display().to_string();
        let tensors = file.names().into_iter().map(|name| (name, 0)).collect();
        Ok(Weights { part, variant: None, files: vec![file], tensors })
    }

    /// What the header of a file says beside its tensors.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.files.iter().find_map(|file| file.metadata(key))
    }

    /// Opens the weights of one part of a model, wherever its files are.
    pub(crate) fn of(files: &PartFiles, stem: &str, variant: &Variant) -> Result<Weights, WeightsError> {
        let (folder, names) = (files.folder(), files.names()?);
        let preferences = variant.preferences();
        let found = preferences.iter().find_map(|&v| Some((v, entry(&names, stem, v)?)));
        let Some((variant, entry)) = found else {
            return Err(not_found(folder, stem, &preferences, &names));
        };
        let part = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
        let variant = variant.map(str::to_owned);
        match entry {
            Entry::Single(name) => {
                let file = files.weights(&name)?;
                let tensors = file.names().into_iter().map(|name| (name, 0)).collect();
                Ok(Weights { part, variant, files: vec![file], tensors })
            }
            Entry::Index(index) => {
                let (files, tensors) = open_shards(files, &index, &names)?;
                Ok(Weights { part, variant, files, tensors })
            }
        }
    }

    /// The variant that the files are of; `None` if their names have none.
    pub fn variant(&self) -> Option<&str> {
        self.variant.as_deref()
    }

    /// Everything in the files, by name.
    pub fn tensors(&self) -> impl Iterator<Item = StoredTensor<'_>> {
        self.tensors.iter().filter_map(|(name, &file)| {
            let info = self.files.get(file)?.info(name)?;
            Some(StoredTensor { name, info })
        })
    }

    /// How many parameters there are: elements of all floating-point tensors.
    pub fn parameter_count(&self) -> u64 {
        self.tensors().filter(StoredTensor::is_float).map(|tensor| tensor.elements()).sum()
    }

    /// The bytes of all tensors, as they are stored.
    pub fn byte_count(&self) -> u64 {
        self.tensors().map(|tensor| tensor.bytes()).sum()
    }

    /// A tensor in the layout and element type of a graph.
    ///
    /// A convolution's weights, `[out, frames, height, width, in]`, are found as `[out, in, frames, height, width]`, or
    /// with fewer axes if the kernel is flat; a 1×1 convolution and a linear layer may stand for each other. Everything
    /// else must have the shape asked for. If there is no tensor of the name, the one that another version of diffusers or
    /// transformers calls differently is found.
    ///
    /// # Errors
    /// If there is no such tensor, its shape does not fit, its elements are not floats, or the file cannot be read or has
    /// become shorter.
    pub fn tensor(&self, name: &str, ty: &TensorType) -> Result<Tensor, WeightsError> {
        let Found { file, info, order, from, to } = self.find(name, ty)?;
        let mut result = Tensor::try_zeros(ty.clone()).ok_or_else(|| WeightsError::Memory {
            part: self.part.clone(),
            tensor: name.to_owned(),
            ty: ty.clone(),
        })?;
        file.read(info, |bytes| layout::convert(bytes, from, order, result.bytes_mut(), to))?;
        Ok(result)
    }

    /// The first and the last bytes of a tensor as it is stored, at most so many of each; `None` if there is no such tensor.
    ///
    /// # Errors
    /// If the file cannot be read or has become shorter.
    pub fn ends(&self, name: &str, count: usize) -> Result<Option<[Vec<u8>; 2]>, WeightsError> {
        let Some((file, info)) = self.stored(name) else { return Ok(None) };
        let bytes = info.data_offsets.1 - info.data_offsets.0;
        let [mut first, mut last] = [(); 2].map(|()| vec![0; count.min(bytes)]);
        file.read(info, |read| {
            read(0, &mut first)?;
            read((bytes - last.len()) as u64, &mut last)
        })?;
        Ok(Some([first, last]))
    }

    /// Whether every parameter of a graph is there and fits. Only the headers are looked at, so this takes no time before
    /// a long run; whether numbers are damaged shows when they are read.
    ///
    /// # Errors
    /// What [`tensor`](Self::tensor) would say of the first that does not.
    pub fn check(&self, graph: &Graph) -> Result<(), WeightsError> {
        self.problems(graph).next().map_or(Ok(()), Err)
    }

    /// What [`check`](Self::check) would say of each parameter that does not fit.
    pub fn problems<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = WeightsError> + use<'a> {
        graph.parameters().filter_map(|(_, value)| self.problem(&value.name, &value.ty))
    }

    /// Why a tensor cannot be read as a network needs it; `None` if it can.
    pub fn problem(&self, name: &str, ty: &TensorType) -> Option<WeightsError> {
        self.find(name, ty).err()
    }

    fn stored(&self, name: &str) -> Option<(&WeightsFile, &TensorInfo)> {
        let file = self.files.get(*self.tensors.get(name)?)?;
        Some((file, file.info(name)?))
    }

    /// A tensor that can be brought into the layout and element type asked for.
    fn find(&self, name: &str, ty: &TensorType) -> Result<Found<'_>, WeightsError> {
        let (part, tensor) = (|| self.part.clone(), || name.to_owned());
        let (file, info) = self
            .stored(name)
            .or_else(|| self.stored(&names::other_name(name)?))
            .ok_or_else(|| WeightsError::MissingTensor { part: part(), tensor: tensor() })?;
        let Some(order) = Order::between(&info.shape, &ty.shape) else {
            return Err(WeightsError::Shape {
                part: part(),
                tensor: tensor(),
                expected: file_shape(&ty.shape, &info.shape),
                got: info.shape.as_slice().into(),
            });
        };
        let from = match info.dtype {
            Dtype::F32 => Float::F32,
            Dtype::F16 => Float::F16,
            Dtype::BF16 => Float::BF16,
            other => {
                let dtype = other.to_string();
                return Err(WeightsError::DType { part: part(), tensor: tensor(), dtype });
            }
        };
        let to = match ty.dtype {
            DType::F32 => Float::F32,
            DType::F16 => Float::F16,
            DType::BF16 => Float::BF16,
            DType::F8E4M3 | DType::U8 | DType::I32 => {
                return Err(WeightsError::Asked { part: part(), tensor: tensor(), ty: ty.clone() });
            }
        };
        Ok(Found { file, info, order, from, to })
    }
}

/// A tensor of a file, and how it becomes what was asked for.
struct Found<'a> {
    file: &'a WeightsFile,
    info: &'a TensorInfo,
    order: Order,
    from: Float,
    to: Float,
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} tensors in {} files", self.part, self.tensors.len(), self.files.len())
    }
}

impl Parameters for Weights {
    fn parameter(&self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, ParameterError> {
        match self.tensor(name, ty) {
            Ok(tensor) => Ok(Some(tensor)),
            Err(WeightsError::MissingTensor { .. }) => Ok(None),
            Err(error) => Err(ParameterError::new(error)),
        }
    }
}

/// A tensor as it lies in a file.
#[derive(Clone, Copy, Debug)]
pub struct StoredTensor<'a> {
    name: &'a str,
    info: &'a TensorInfo,
}

impl<'a> StoredTensor<'a> {
    /// Its name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Its extents, in the file's order.
    pub fn shape(&self) -> &'a [usize] {
        &self.info.shape
    }

    /// Its element type as the file names it: `F16`, `I64` …
    pub fn dtype(&self) -> String {
        self.info.dtype.to_string()
    }

    /// Its number of elements.
    pub fn elements(&self) -> u64 {
        self.info.shape.iter().map(|&n| n as u64).product()
    }

    /// Its bytes in the file.
    pub fn bytes(&self) -> u64 {
        (self.info.data_offsets.1 - self.info.data_offsets.0) as u64
    }

    fn is_float(&self) -> bool {
        matches!(self.info.dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16)
    }
}

/// Why there are no weights in a folder with files of these names.
pub(crate) fn not_found(
    folder: &Path,
    stem: &str,
    preferences: &[Option<&str>],
    names: &[String],
) -> WeightsError {
    let folder = PathBuf::from(folder);
    let found = safetensors_files(names);
    let files = pickles(names);
    if found.is_empty() && !files.is_empty() {
        return WeightsError::Pickle { folder, files };
    }
    // If several would do, the plain one is what a reader expects.
    let variant = if preferences.contains(&None) { None } else { preferences.first().copied().flatten() };
    WeightsError::NotFound { folder, wanted: files::single_name(stem, variant), found }
}

type Shards = (Vec<WeightsFile>, BTreeMap<String, usize>);

fn open_shards(part: &PartFiles, index: &str, names: &[String]) -> Result<Shards, WeightsError> {
    let folder = part.folder();
    let path = folder.join(index);
    let places = read_index(&part.text(index)?).map_err(|source| WeightsError::Index { path, source })?;
    let mut files = Vec::new();
    let mut numbers = BTreeMap::new();
    let mut tensors = BTreeMap::new();
    for (tensor, shard) in places {
        let number = match numbers.get(&shard) {
            Some(&number) => number,
            None => {
                if !names.contains(&shard) {
                    let index = index.to_owned();
                    return Err(WeightsError::MissingShard { folder: folder.to_owned(), index, shard });
                }
                files.push(part.weights(&shard)?);
                numbers.insert(shard.clone(), files.len() - 1);
                files.len() - 1
            }
        };
        if files[number].info(&tensor).is_none() {
            let (folder, index) = (folder.to_owned(), index.to_owned());
            return Err(WeightsError::NotInShard { folder, index, tensor, shard });
        }
        tensors.insert(tensor, number);
    }
    Ok((files, tensors))
}

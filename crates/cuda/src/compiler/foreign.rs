//! Sources that are not ours: those of the kernel lab.

use std::path::{Path, PathBuf};

use super::{CompileTarget, Compiler, Resources, file_names, locate, nvrtc::Compiled};
use crate::{CodeForm, CudaError, installed::Surroundings};

/// A source that is not one of our kernels.
#[derive(Clone, Copy, Debug)]
pub struct ForeignSource<'a> {
    /// The name of its file, which findings and messages have.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Headers beside those that the options' folders hold: pairs of name and text.
    pub headers: &'a [(&'a str, &'a str)],
    /// More options for the compiler. A `-std` here replaces the usual one.
    pub options: &'a [String],
    /// C++ expressions that name kernels, such as `scale<float, 4>`: templates are instantiated for them.
    pub kernels: &'a [String],
}

/// What a source that is not ours was compiled to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// A cubin, or the text of PTX.
    pub bytes: Vec<u8>,
    /// What the compiler said, warnings above all.
    pub log: String,
    /// What each of the named kernels is called in the code.
    pub names: Vec<String>,
    /// The largest figures of its kernels; not known of PTX.
    pub resources: Option<Resources>,
}

impl Compiler {
    /// Compiles a source that is not ours. Nothing is kept. A finding in its PTX is of a file by the name
    /// that it has here.
    ///
    /// # Errors
    /// If it does not compile, or there is no compiler.
    pub fn compile_foreign(&self, source: &ForeignSource<'_>, form: CodeForm) -> Result<Foreign, CudaError> {
        let target = CompileTarget { form, ..self.target() };
        let own_standard = source
            .options
            .iter()
            .any(|option| ["-std", "--std"].iter().any(|prefix| option.starts_with(prefix)));
        let mut options = target.options();
        options.retain(|option| !own_standard || !option.starts_with("-std"));
        options.extend_from_slice(source.options);
        let ForeignSource { name, text, headers, kernels, .. } = *source;
        match self.nvrtc()?.compile(name, text, headers, &options, kernels, form)? {
            Compiled::Code { bytes, log, names } => {
                let resources = Resources::from_log(&log);
                let named_from_here = form == CodeForm::Ptx && Path::new(name).is_relative();
                let bytes = if named_from_here { relative(bytes) } else { bytes };
                Ok(Foreign { bytes, log, names, resources })
            }
            Compiled::Rejected { log } => Err(CudaError::Compile {
                kernel: name.to_owned(),
                target: target.to_string(),
                specialisation: String::new(),
                log,
            }),
        }
    }
}

/// PTX with the names of files below the current folder relative to it.
fn relative(bytes: Vec<u8>) -> Vec<u8> {
    match std::env::current_dir() {
        Ok(folder) => file_names::relative_to(&folder, &String::from_utf8_lossy(&bytes)).into_bytes(),
        Err(_) => bytes,
    }
}

/// The folders that hold CUDA's own headers, such as `cuda_fp16.h`: those of installs and of pip's wheels, as far as there are
/// any. A toolkit that is found first is the only one, because headers of two versions do not go together.
pub fn include_folders() -> Vec<PathBuf> {
    let surroundings = Surroundings::of_process(&locate::NVRTC);
    let has_headers = |folder: &Path| {
        ["cuda_fp16.h", "cooperative_groups.h", "crt/host_defines.h"]
            .iter()
            .any(|header| folder.join(header).is_file())
    };
    let mut sets = surroundings.include_folders(&["nvidia/cu13/include"], has_headers);
    let split = ["nvidia/cuda_runtime/include", "nvidia/cuda_crt/include", "nvidia/cuda_cccl/include"];
    sets.extend(surroundings.include_folders(&split, |_| true));
    let Some(mut first) = sets.into_iter().next() else { return Vec::new() };
    // Since CUDA 13, CCCL lies in a folder of its own.
    let nested: Vec<PathBuf> =
        first.iter().map(|folder| folder.join("cccl")).filter(|folder| folder.is_dir()).collect();
    first.extend(nested);
    first
}

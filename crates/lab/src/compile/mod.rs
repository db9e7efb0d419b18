//! From a kernel's source to code: PTX for the simulator and, for a GPU, a cubin.
//!
//! NVRTC compiles if it is found, otherwise `nvcc`. Neither needs a GPU. A file of a CUDA sample may hold host code: then only its
//! device part is compiled (`host_code.rs`).

mod cuda_names;
mod host_code;
#[cfg(feature = "cuda")]
mod host_headers;
mod nvcc;
#[cfg(feature = "cuda")]
mod nvrtc;

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Serialize;

pub use cuda_names::{base_name, entries};

/// The most bytes of a source.
const MAX_SOURCE: u64 = 16 << 20;

/// A kernel's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of its file, which findings and messages have.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The folder that it may include headers from.
    pub folder: Option<PathBuf>,
}

impl Source {
    /// Reads an ordinary file.
    ///
    /// # Errors
    /// If it cannot be read, is not text, or is longer than any source.
    pub fn read(path: &Path) -> io::Result<Source> {
        let text = kinora_outside::read_text(path, MAX_SOURCE)?;
        let folder = path.parent().map(|folder| match folder.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => folder.to_owned(),
        });
        Ok(Source { name: path.display().to_string(), text, folder })
    }

    /// Whether it is PTX already. It says so by its extension, or in its first directive, which no CUDA C++ has.
    pub fn is_ptx(&self) -> bool {
        let extension = Path::new(&self.name).extension();
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case("ptx"))
            || self.text.lines().any(|line| line.trim_start().starts_with(".version"))
    }
}

/// What a source is compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// PTX, which the simulator runs.
    Ptx,
    /// Machine code for a GPU.
    Cubin,
}

/// How a source is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The compute capability of the chip: 90 for 9.0.
    pub architecture: u32,
    /// What it is compiled to.
    pub form: Form,
    /// More options for the compiler, such as `-DTILE=64`.
    pub options: Vec<String>,
    /// C++ expressions that name kernels, such as `scale<float, 4>`: templates are instantiated for them.
    pub kernels: Vec<String>,
}

impl Request {
    /// PTX for a chip, without options.
    pub fn ptx(capability: (u32, u32)) -> Request {
        let (major, minor) = capability;
        Request {
            architecture: 10 * major + minor,
            form: Form::Ptx,
            options: Vec::new(),
            kernels: Vec::new(),
        }
    }
}

/// What a kernel takes of a multiprocessor, as the assembler says: of several kernels, the largest figure of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread stores and loads again because registers do not suffice.
    pub spill_bytes: u32,
    /// Bytes of a thread's stack, spills among them.
    pub stack_bytes: u32,
    /// Bytes of shared memory that the source declares with its size.
    pub shared_bytes: u32,
}

/// A compiled source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The text of PTX, or a cubin.
    pub bytes: Vec<u8>,
    /// What it is.
    pub form: Form,
    /// Its kernels, as the source calls them and as the code does.
    pub names: Vec<(String, String)>,
    /// What the assembler says of it; not known of PTX.
    pub resources: Option<Resources>,
    /// The compiler, such as `NVRTC 13.0`; `None` if the source was PTX.
    pub compiler: Option<String>,
    /// What the compiler said, warnings above all.
    pub log: String,
    /// What was left out of the source: host code, headers that are not there.
    pub notes: Vec<String>,
}

impl Compiled {
    /// The text of PTX; empty for a cubin.
    pub fn ptx(&self) -> &str {
        match self.form {
            Form::Ptx => std::str::from_utf8(&self.bytes).unwrap_or(""),
            Form::Cubin => "",
        }
    }

    /// What the code calls a kernel: that of a C++ expression it was compiled for, otherwise the one of that name. `None` asks for the
    /// only kernel.
    ///
    /// # Errors
    /// If there is no such kernel, or if there are several to choose from.
    pub fn kernel(&self, name: Option<&str>) -> Result<String, CompileError> {
        let there: Vec<String> = entries(self.ptx());
        let shown =
            |names: &[String]| names.iter().map(|name| base_name(name)).collect::<Vec<_>>().join(", ");
        match name {
            None => match there.as_slice() {
                [only] => Ok(only.clone()),
                [] => Err(CompileError::NoKernel { name: None, there: String::new() }),
                several => Err(CompileError::Ambiguous { name: None, there: shown(several) }),
            },
            Some(name) => {
                if let Some((_, lowered)) = self.names.iter().find(|(asked, _)| asked == name) {
                    return Ok(lowered.clone());
                }
                if there.iter().any(|known| known == name) {
                    return Ok(name.to_owned());
                }
                let matching: Vec<String> =
                    there.iter().filter(|known| base_name(known) == name).cloned().collect();
                match matching.as_slice() {
                    [only] => Ok(only.clone()),
                    [] => Err(CompileError::NoKernel { name: Some(name.to_owned()), there: shown(&there) }),
                    several => Err(CompileError::Ambiguous {
                        name: Some(name.to_owned()),
                        there: several.join(", "),
                    }),
                }
            }
        }
    }
}

/// Why there is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// No compiler was found.
    #[error("CUDA C++ cannot be compiled here: {0}")]
    NoCompiler(String),
    /// The source is wrong.
    #[error("{name} does not compile:\n{log}{}", header_help(missing_header.as_deref()))]
    Rejected {
        /// The source's name.
        name: String,
        /// What the compiler says, with lines.
        log: String,
        /// A header that it did not find.
        missing_header: Option<String>,
    },
    /// The compiler itself failed.
    #[error("the compiler failed: {0}")]
    Compiler(String),
    /// The code has no such kernel, or none at all.
    #[error("{}", no_kernel(name.as_deref(), there))]
    NoKernel {
        /// The name that was asked for.
        name: Option<String>,
        /// The kernels there are.
        there: String,
    },
    /// Several kernels could be meant.
    #[error("{}", ambiguous(name.as_deref(), there))]
    Ambiguous {
        /// The name that was asked for.
        name: Option<String>,
        /// The kernels that could be meant.
        there: String,
    },
    /// PTX was to become something else.
    #[error("{0} is PTX: it is not compiled, so it takes no compiler options and no kernel expressions")]
    Ptx(String),
}

/// Where headers come from, if one is missing.
fn header_help(missing: Option<&str>) -> String {
    missing.map_or(String::new(), |header| {
        format!(
            "\n{header} was not found: `pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl` installs CUDA's own headers; a folder \
             with others is given as the option -IFOLDER"
        )
    })
}

fn no_kernel(name: Option<&str>, there: &str) -> String {
    match (name, there) {
        (_, "") => "the source has no kernel: a function that is declared __global__".to_owned(),
        (Some(name), there) => format!("the source has no kernel {name}; it has {there}"),
        (None, there) => format!("the source has several kernels: {there}"),
    }
}

fn ambiguous(name: Option<&str>, there: &str) -> String {
    match name {
        None => format!("the source has several kernels; name one as `entry`: {there}"),
        Some(name) => {
            format!("several kernels are called {name}; write the parameters too, or one of these: {there}")
        }
    }
}

/// Compiles a source. PTX is passed on as it is.
///
/// # Errors
/// If it does not compile, or there is no compiler.
pub fn compile(source: &Source, request: &Request) -> Result<Compiled, CompileError> {
    if source.is_ptx() {
        if !request.options.is_empty() {
            return Err(CompileError::Ptx(source.name.clone()));
        }
        // The driver translates PTX for its GPU, so that it is both forms.
        return Ok(Compiled {
            bytes: source.text.clone().into_bytes(),
            form: Form::Ptx,
            names: Vec::new(),
            resources: None,
            compiler: None,
            log: String::new(),
            notes: Vec::new(),
        });
    }
    let compiler = installed()?;
    host_code::without_host_code(source, |source, headers| compiler.compile(source, headers, request))
}

/// A compiler for CUDA C++.
trait CudaCompiler {
    /// Compiles a source. `headers` are pairs of name and text, which a compiler for device code alone needs in the place of the
    /// host's.
    fn compile(
        &self,
        source: &Source,
        headers: &[(&str, &str)],
        request: &Request,
    ) -> Result<Compiled, CompileError>;
}

/// NVRTC, or nvcc.
fn installed() -> Result<Box<dyn CudaCompiler>, CompileError> {
    #[cfg(feature = "cuda")]
    let missing = match nvrtc::Nvrtc::find() {
        Ok(nvrtc) => return Ok(Box::new(nvrtc)),
        Err(missing) => missing,
    };
    #[cfg(not(feature = "cuda"))]
    let missing = "this build does without NVRTC; build Kinora with the feature `cuda`".to_owned();
    match nvcc::Nvcc::find() {
        Some(nvcc) => Ok(Box::new(nvcc)),
        None => Err(CompileError::NoCompiler(format!("{missing}; there is no nvcc either{}", inactive()))),
    }
}

/// A Python environment in the current folder that is not active. It is not searched, because anyone may have made that folder.
fn inactive() -> String {
    let is_environment = |name: &&&str| Path::new(name).join("pyvenv.cfg").is_file();
    match [".venv", "venv"].iter().find(is_environment) {
        Some(name) if std::env::var_os("VIRTUAL_ENV").is_none() => {
            format!("; {name} in this folder is searched once it is active: `source {name}/bin/activate`")
        }
        _ => String::new(),
    }
}

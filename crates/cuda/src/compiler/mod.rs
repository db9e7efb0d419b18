//! From sources to code: NVIDIA's run-time compiler, a cache of what it made, and bundles for machines without it.

mod bundle;
mod cache;
mod dump;
mod file_names;
mod foreign;
mod in_flight;
mod locate;
mod nvrtc;
mod parallel;
mod resources;
mod source;

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
    time::Instant,
};

pub use bundle::{Bundle, BundledKernels};
pub(crate) use cache::write_whole;
pub use cache::{DEFAULT_CACHE_BYTES, user_folder};
pub use foreign::{Foreign, ForeignSource, include_folders};
pub use parallel::{Compilation, Progress, Statistics};
pub use resources::Resources;
pub use source::{CompileTarget, Key};

use crate::{CodeForm, CudaError, installed::Surroundings, launch::Kernel};
use cache::{Cache, Entry};
use in_flight::InFlight;
use nvrtc::{Compiled, Nvrtc};

/// How kernels are compiled and kept.
#[derive(Clone, Debug)]
pub struct CompilerOptions {
    /// The folder of the cache; without one, every start compiles.
    pub cache: Option<PathBuf>,
    /// The size that the cache is kept to, in bytes.
    pub cache_bytes: u64,
    /// A bundle of compiled kernels, which is looked into first.
    pub bundle: Option<PathBuf>,
    /// A folder into which each kernel's source, PTX and machine code are written, to be looked at.
    pub dump: Option<PathBuf>,
    /// Whether a spilled register in a kernel that is marked hot is an error.
    pub fail_on_spills: bool,
    /// The compiler's library or its folder; `None` looks for it.
    pub nvrtc: Option<PathBuf>,
    /// The major version of CUDA that the driver supports: a compiler that is newer makes code that it does not load.
    pub driver: Option<u32>,
}

impl CompilerOptions {
    /// Without a cache, and with nothing of the environment but where the compiler is: for tests and tools.
    pub fn plain() -> CompilerOptions {
        CompilerOptions {
            cache: None,
            cache_bytes: DEFAULT_CACHE_BYTES,
            bundle: None,
            dump: None,
            fail_on_spills: false,
            nvrtc: None,
            driver: None,
        }
    }

    /// The user's cache, and what the environment says: `KINORA_KERNEL_BUNDLE`, `KINORA_DUMP_KERNELS`,
    /// `KINORA_FAIL_ON_SPILLS`.
    pub fn from_environment() -> CompilerOptions {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        CompilerOptions {
            cache: user_folder(),
            bundle: variable("KINORA_KERNEL_BUNDLE").map(PathBuf::from),
            dump: variable("KINORA_DUMP_KERNELS").map(PathBuf::from),
            fail_on_spills: variable("KINORA_FAIL_ON_SPILLS").is_some_and(|value| value != "0"),
            ..CompilerOptions::plain()
        }
    }
}

/// Where code came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was compiled now.
    Compiled,
    /// It lay in the cache.
    Cache,
    /// It lay in a bundle.
    Bundle,
}

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// A cubin, or the text of PTX.
    pub bytes: Vec<u8>,
    /// What it takes of a multiprocessor; not known of PTX.
    pub resources: Option<Resources>,
    /// Where it came from.
    pub origin: Origin,
}

/// Compiles kernels for one target.
#[derive(Debug)]
pub struct Compiler {
    target: CompileTarget,
    options: CompilerOptions,
    bundle: Option<Bundle>,
    cache: Option<Cache>,
    /// Loaded when something has to be compiled, or looked for in the cache.
    nvrtc: OnceLock<Result<&'static Nvrtc, CudaError>>,
    /// The first thing that went wrong with the cache.
    cache_trouble: Mutex<Option<String>>,
}

impl Compiler {
    /// A compiler for one target. NVRTC is not looked for before it is needed.
    ///
    /// # Errors
    /// If the bundle cannot be opened.
    pub fn new(target: CompileTarget, options: CompilerOptions) -> Result<Compiler, CudaError> {
        let bundle = options.bundle.as_deref().map(Bundle::open).transpose()?;
        let cache = options.cache.as_deref().map(|folder| Cache::new(folder, options.cache_bytes));
        let cache_trouble = Mutex::new(None);
        Ok(Compiler { target, options, bundle, cache, nvrtc: OnceLock::new(), cache_trouble })
    }

    /// What it compiles for.
    pub fn target(&self) -> CompileTarget {
        self.target
    }

    /// The key of a kernel in a bundle.
    pub fn key(&self, kernel: &Kernel) -> Key {
        source::key(kernel, self.target, source::HEADERS)
    }

    /// The compiler's version.
    ///
    /// # Errors
    /// If there is no compiler.
    pub fn version(&self) -> Result<(u32, u32), CudaError> {
        Ok(self.nvrtc()?.version())
    }

    fn nvrtc(&self) -> Result<&'static Nvrtc, CudaError> {
        let find = || {
            let named = self.options.nvrtc.clone();
            let surroundings = Surroundings::of_process(&locate::NVRTC);
            let surroundings = Surroundings { named: named.or(surroundings.named), ..surroundings };
            locate::find(&surroundings, self.options.driver)
        };
        self.nvrtc.get_or_init(find).clone()
    }

    /// The code of a kernel: from the bundle, from the cache, or compiled.
    ///
    /// # Errors
    /// If it does not compile, there is no compiler, or it spills and must not.
    pub fn compile(&self, kernel: &Kernel) -> Result<Code, CudaError> {
        let (entry, origin) = self.find_or_compile(kernel)?;
        let Entry { bytes, resources } = entry;
        let spilled = resources.map_or(0, |resources| resources.spill_bytes);
        if self.options.fail_on_spills && kernel.hot && spilled > 0 {
            return Err(CudaError::Spills {
                kernel: kernel.label(),
                target: self.target.to_string(),
                specialisation: kernel.specialisation(),
                bytes: spilled,
            });
        }
        let code = Code { bytes, resources, origin };
        if let Some(folder) = &self.options.dump {
            dump::dump(self, folder, kernel, &code)?;
        }
        Ok(code)
    }

    fn find_or_compile(&self, kernel: &Kernel) -> Result<(Entry, Origin), CudaError> {
        let key = self.key(kernel);
        if let Some(bundle) = &self.bundle
            && let Some(entry) = bundle.get(&key)?
        {
            return Ok((entry, Origin::Bundle));
        }
        let nvrtc = self.nvrtc().map_err(|error| match &self.bundle {
            Some(bundle) => CudaError::NotInBundle {
                bundle: bundle.folder().to_owned(),
                kernel: kernel.label(),
                target: self.target.to_string(),
                compiler: error.to_string(),
            },
            None => error,
        })?;
        let key = source::versioned_key(key, nvrtc.version());
        let cached = || self.cache.as_ref().and_then(|cache| cache.get(&key));
        if let Some(entry) = cached() {
            return Ok((entry, Origin::Cache));
        }
        // Without a cache nobody finds what others made.
        let _alone = self.cache.as_ref().map(|_| InFlight::begin(key));
        if let Some(entry) = cached() {
            return Ok((entry, Origin::Cache));
        }
        let entry = self.compile_for(kernel, self.target)?;
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(&key, &entry)
        {
            self.note_trouble(&error);
        }
        Ok((entry, Origin::Compiled))
    }

    /// Compiles, whatever lies in the cache.
    fn compile_for(&self, kernel: &Kernel, target: CompileTarget) -> Result<Entry, CudaError> {
        let specialisation = kernel.specialisation();
        let mut headers = source::HEADERS.to_vec();
        headers.push((source::SPECIALISATION, &specialisation));
        let text = kernel.text();
        match self.nvrtc()?.compile(
            kernel.source.path,
            &text,
            &headers,
            &target.options(),
            &[],
            target.form,
        )? {
            Compiled::Code { bytes, log, .. } => Ok(Entry { bytes, resources: Resources::from_log(&log) }),
            Compiled::Rejected { log } => Err(CudaError::Compile {
                kernel: kernel.label(),
                target: target.to_string(),
                specialisation,
                log,
            }),
        }
    }

    /// Compiles a source that is not one of our kernels, with more options for the compiler, to PTX. Nothing is kept.
    /// A finding in the PTX is of a file by the name that it is given here.
    ///
    /// # Errors
    /// If it does not compile, or there is no compiler.
    pub fn compile_text(&self, name: &str, text: &str, options: &[String]) -> Result<String, CudaError> {
        let target = CompileTarget { form: CodeForm::Ptx, ..self.target };
        let mut all = target.options();
        all.extend_from_slice(options);
        match self.nvrtc()?.compile(name, text, &[], &all, &[], target.form)? {
            Compiled::Code { bytes, .. } => {
                let text = String::from_utf8_lossy(&bytes);
                let ptx = text.trim_end_matches('\0');
                Ok(match std::env::current_dir() {
                    Ok(folder) if Path::new(name).is_relative() => file_names::relative_to(&folder, ptx),
                    _ => ptx.to_owned(),
                })
            }
            Compiled::Rejected { log } => Err(CudaError::Compile {
                kernel: name.to_owned(),
                target: target.to_string(),
                specialisation: String::new(),
                log,
            }),
        }
    }

    /// What the kernels of a source that is not ours take of a multiprocessor, the largest figure of each; `None` if
    /// the compiler does not tell.
    ///
    /// # Errors
    /// As [`Compiler::compile_text`].
    pub fn resources_of_text(
        &self,
        name: &str,
        text: &str,
        options: &[String],
    ) -> Result<Option<Resources>, CudaError> {
        let target = CompileTarget { form: CodeForm::Cubin, ..self.target };
        let mut all = target.options();
        all.extend_from_slice(options);
        match self.nvrtc()?.compile(name, text, &[], &all, &[], target.form)? {
            Compiled::Code { log, .. } => Ok(Resources::from_log(&log)),
            Compiled::Rejected { log } => Err(CudaError::Compile {
                kernel: name.to_owned(),
                target: target.to_string(),
                specialisation: String::new(),
                log,
            }),
        }
    }

    /// Compiles kernels on all cores, each once however often it is named, and reports each as it is done.
    ///
    /// # Errors
    /// As [`Compiler::compile`], for the first that fails.
    pub fn compile_all(
        &self,
        kernels: &[Kernel],
        progress: &(dyn Fn(&Progress) + Sync),
    ) -> Result<Compilation, CudaError> {
        let start = Instant::now();
        let mut compilation = parallel::compile_all(self, kernels, progress)?;
        if compilation.statistics.compiled > 0
            && let Some(cache) = &self.cache
            && let Err(error) = cache.trim()
        {
            self.note_trouble(&error);
        }
        compilation.statistics.seconds = start.elapsed().as_secs_f64();
        compilation.statistics.cache_trouble =
            self.cache_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(compilation)
    }

    /// A cache that does not work costs time at the next start, but must not stop this one.
    fn note_trouble(&self, error: &std::io::Error) {
        let folder = self.options.cache.as_deref().unwrap_or(Path::new("")).display();
        self.cache_trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| format!("compiled kernels could not be kept in {folder}: {error}"));
    }
}

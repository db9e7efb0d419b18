//! NVIDIA's run-time compiler, loaded when it is first needed.

use std::{
    ffi::{CStr, CString, c_char, c_int},
    path::{Path, PathBuf},
    ptr,
    sync::{Mutex, PoisonError},
};

use libloading::Library;

use crate::{CodeForm, CudaError, installed::LoadError};

/// A program under compilation, as the library names it.
type ProgramHandle = *mut std::ffi::c_void;
type Status = c_int;
type GetSize = unsafe extern "C" fn(ProgramHandle, *mut usize) -> Status;
type GetBytes = unsafe extern "C" fn(ProgramHandle, *mut c_char) -> Status;

const SUCCESS: Status = 0;
/// The source has an error: the log says which.
const COMPILATION: Status = 6;

/// The functions that are used of it.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut ProgramHandle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(ProgramHandle, c_int, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut ProgramHandle) -> Status,
    cubin_size: GetSize,
    cubin: GetBytes,
    ptx_size: GetSize,
    ptx: GetBytes,
    log_size: GetSize,
    log: GetBytes,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    add_name: unsafe extern "C" fn(ProgramHandle, *const c_char) -> Status,
    lowered_name: unsafe extern "C" fn(ProgramHandle, *const c_char, *mut *const c_char) -> Status,
}

/// The compiler.
pub(crate) struct Nvrtc {
    functions: Functions,
    version: (u32, u32),
    path: PathBuf,
    /// The functions are this library's.
    _library: Library,
    /// It calls the functions of this one.
    _builtins: Option<Library>,
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NVRTC {}.{} at {}", self.version.0, self.version.1, self.path.display())
    }
}

/// What the compiler made of a source, or what it says against it.
pub(crate) enum Compiled {
    /// The code, the messages, and what the kernels that were asked for are called in the code.
    Code { bytes: Vec<u8>, log: String, names: Vec<String> },
    /// The messages.
    Rejected { log: String },
}

/// The compilers of this process. They stay loaded: one that has threads of its own cannot be unloaded.
static LOADED: Mutex<Vec<&'static Nvrtc>> = Mutex::new(Vec::new());

impl Nvrtc {
    /// The library at a path, loaded when it is first asked for; see [`Nvrtc::load`].
    pub fn shared(path: &Path, builtins: Option<&Path>) -> Result<&'static Nvrtc, LoadError> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nvrtc) = loaded.iter().find(|nvrtc| nvrtc.path == path) {
            return Ok(nvrtc);
        }
        let nvrtc: &'static Nvrtc = Box::leak(Box::new(Nvrtc::load(path, builtins)?));
        loaded.push(nvrtc);
        Ok(nvrtc)
    }

    /// Loads the library, after the one with its built-in functions if that is given: it looks for that by name alone,
    /// and finds it only if it is loaded already or lies on the system's path.
    ///
    /// # Errors
    /// If the library cannot be loaded, or lacks a function.
    fn load(path: &Path, builtins: Option<&Path>) -> Result<Nvrtc, LoadError> {
        // SAFETY: loading NVIDIA's compiler runs its own set-up alone.
        let load = |path: &Path| unsafe { Library::new(path) };
        let builtins = builtins.map(load).transpose()?;
        let library = load(path)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is that of NVIDIA's header, the same in every version since 11.1.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        let functions = Functions {
            version: function!("nvrtcVersion"),
            create: function!("nvrtcCreateProgram"),
            compile: function!("nvrtcCompileProgram"),
            destroy: function!("nvrtcDestroyProgram"),
            cubin_size: function!("nvrtcGetCUBINSize"),
            cubin: function!("nvrtcGetCUBIN"),
            ptx_size: function!("nvrtcGetPTXSize"),
            ptx: function!("nvrtcGetPTX"),
            log_size: function!("nvrtcGetProgramLogSize"),
            log: function!("nvrtcGetProgramLog"),
            error_string: function!("nvrtcGetErrorString"),
            add_name: function!("nvrtcAddNameExpression"),
            lowered_name: function!("nvrtcGetLoweredName"),
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the call writes two numbers.
        let status = unsafe { (functions.version)(&mut major, &mut minor) };
        if status != SUCCESS {
            return Err(LoadError::NoVersion(format!("status {status}")));
        }
        let version = (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0));
        Ok(Nvrtc { functions, version, path: path.to_owned(), _library: library, _builtins: builtins })
    }

    /// Its version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Compiles a source. Headers are pairs of name and text. `kernels` are C++ expressions such as `scale<float, 4>`: templates
    /// are instantiated for them.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
        kernels: &[String],
        form: CodeForm,
    ) -> Result<Compiled, CudaError> {
        let (name, source) = (c_string(name)?, c_string(source)?);
        let header_names = c_strings(headers.iter().map(|header| header.0))?;
        let header_texts = c_strings(headers.iter().map(|header| header.1))?;
        let options = c_strings(options.iter().map(String::as_str))?;
        let (name_pointers, text_pointers) = (pointers(&header_names), pointers(&header_texts));
        let option_pointers = pointers(&options);

        let mut handle: ProgramHandle = ptr::null_mut();
        // SAFETY: all strings end in a zero and outlive the call, and there are as many names as texts as the count says.
        let status = unsafe {
            (self.functions.create)(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        self.check(status, "make a program")?;
        let program = Program { nvrtc: self, handle };
        let kernels = c_strings(kernels.iter().map(String::as_str))?;
        for kernel in &kernels {
            // SAFETY: the program is one that was not compiled yet, and the string ends in a zero.
            let status = unsafe { (self.functions.add_name)(program.handle, kernel.as_ptr()) };
            self.check(status, "name a kernel")?;
        }
        // SAFETY: the program is one, and there are as many options as the count says.
        let status = unsafe {
            (self.functions.compile)(program.handle, options.len() as c_int, option_pointers.as_ptr())
        };
        let log = program.bytes(self.functions.log_size, self.functions.log, "read the log")?;
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        match status {
            SUCCESS => {}
            COMPILATION => return Ok(Compiled::Rejected { log }),
            _ => {
                return Err(CudaError::Compiler {
                    doing: format!("compile {}", name.to_string_lossy()),
                    reason: format!("{} {log}", self.text(status)),
                });
            }
        }
        let names = kernels.iter().map(|kernel| program.lowered_name(kernel)).collect::<Result<_, _>>()?;
        let (size, get) = match form {
            CodeForm::Cubin => (self.functions.cubin_size, self.functions.cubin),
            CodeForm::Ptx => (self.functions.ptx_size, self.functions.ptx),
        };
        let mut bytes = program.bytes(size, get, "read the code")?;
        if form == CodeForm::Ptx {
            // The text's closing zero is counted.
            while bytes.last() == Some(&0) {
                bytes.pop();
            }
        }
        Ok(Compiled::Code { bytes, log, names })
    }

    fn check(&self, status: Status, doing: &str) -> Result<(), CudaError> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(CudaError::Compiler { doing: doing.to_owned(), reason: self.text(status) })
    }

    fn text(&self, status: Status) -> String {
        // SAFETY: the function gives a string of the library's own for every status.
        let text = unsafe { (self.functions.error_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// A program that is destroyed when it is dropped.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: ProgramHandle,
}

impl Program<'_> {
    /// What a kernel is called in the code.
    fn lowered_name(&self, kernel: &CStr) -> Result<String, CudaError> {
        let mut name = ptr::null();
        // SAFETY: the program was compiled, the string ends in a zero, and the call writes one pointer.
        let status = unsafe { (self.nvrtc.functions.lowered_name)(self.handle, kernel.as_ptr(), &mut name) };
        self.nvrtc.check(status, "look up a kernel's name")?;
        if name.is_null() {
            return Err(CudaError::Internal("the compiler names a kernel and gives no name".into()));
        }
        // SAFETY: the library gives a string that lives as long as the program.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// What a pair of functions gives: one its size, the other its bytes.
    fn bytes(&self, size: GetSize, get: GetBytes, doing: &str) -> Result<Vec<u8>, CudaError> {
        let mut length = 0;
        // SAFETY: the program is one, and the call writes one number.
        self.nvrtc.check(unsafe { size(self.handle, &mut length) }, doing)?;
        let mut bytes = vec![0u8; length];
        if length > 0 {
            // SAFETY: the call writes as many bytes as the other one said.
            self.nvrtc.check(unsafe { get(self.handle, bytes.as_mut_ptr().cast()) }, doing)?;
        }
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library, and not used after this.
        let _ = unsafe { (self.nvrtc.functions.destroy)(&mut self.handle) };
    }
}

fn c_string(text: &str) -> Result<CString, CudaError> {
    CString::new(text).map_err(|_| CudaError::Internal("a source contains a zero byte".into()))
}

fn c_strings<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, CudaError> {
    texts.map(c_string).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

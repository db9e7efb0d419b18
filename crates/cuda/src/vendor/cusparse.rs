//! Sparse matrix × vector by cuSPARSE, the peer of the kernel lab's example.
//!
//! Functions and constants are those of `cusparse.h`, the same in every release of CUDA 12 and 13.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    fmt,
    path::{Path, PathBuf},
    ptr,
    sync::OnceLock,
};

use cudarc::driver::sys::CUstream;
use libloading::Library;

use super::failed;
use crate::{
    CudaError, NotFound,
    driver::{Context, DeviceBuffer, Stream},
    installed::{LoadError, Sought, Surroundings},
    launch::DevicePointer,
};

const NAME: &str = "cuSPARSE";

const CUSPARSE: Sought = Sought {
    variable: "KINORA_CUSPARSE",
    #[cfg(windows)]
    names: &["cusparse64_12.dll"],
    #[cfg(not(windows))]
    names: &["libcusparse.so.12"],
    install_folders: &[],
    wheel_folders: &["nvidia/cu13/lib", "nvidia/cusparse/lib", "nvidia/cu13/bin", "nvidia/cusparse/bin"],
};

type Handle = *mut c_void;
type Status = c_int;

const SUCCESS: Status = 0;
/// `CUSPARSE_OPERATION_NON_TRANSPOSE`
const NOT_TRANSPOSED: c_int = 0;
/// `CUSPARSE_INDEX_BASE_ZERO`
const FROM_ZERO: c_int = 0;
/// `CUSPARSE_INDEX_32I` and `CUSPARSE_INDEX_64I`
const INDEX_32: c_int = 2;
const INDEX_64: c_int = 3;
/// `CUDA_R_32F` and `CUDA_R_64F`
const REAL_32: c_int = 0;
const REAL_64: c_int = 1;

/// One of the library's ways to multiply by compressed rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SparseAlgorithm {
    /// `CUSPARSE_SPMV_ALG_DEFAULT`: what the library chooses.
    Default,
    /// `CUSPARSE_SPMV_CSR_ALG1`: the faster one, whose results may differ from run to run.
    Csr1,
    /// `CUSPARSE_SPMV_CSR_ALG2`: the one with the same results in every run.
    Csr2,
}

impl SparseAlgorithm {
    /// All of them.
    pub const ALL: [SparseAlgorithm; 3] =
        [SparseAlgorithm::Default, SparseAlgorithm::Csr1, SparseAlgorithm::Csr2];

    /// The library's number of it.
    fn number(self) -> c_int {
        match self {
            SparseAlgorithm::Default => 0,
            SparseAlgorithm::Csr1 => 2,
            SparseAlgorithm::Csr2 => 3,
        }
    }

    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            SparseAlgorithm::Default => "cuSPARSE default",
            SparseAlgorithm::Csr1 => "cuSPARSE CSR 1",
            SparseAlgorithm::Csr2 => "cuSPARSE CSR 2",
        }
    }
}

/// A matrix in compressed sparse rows and two vectors, on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparseOperands {
    /// Rows, columns and non-zeros.
    pub extents: [i64; 3],
    /// The row offsets.
    pub offsets: DevicePointer,
    /// The columns.
    pub columns: DevicePointer,
    /// The values.
    pub values: DevicePointer,
    /// The vector that is multiplied.
    pub x: DevicePointer,
    /// The result.
    pub y: DevicePointer,
    /// Whether values are f64 rather than f32.
    pub double: bool,
    /// Whether offsets and columns are i64 rather than i32.
    pub wide: bool,
    /// The product's factor.
    pub alpha: f64,
    /// The factor of what `y` held.
    pub beta: f64,
}

type Multiply = unsafe extern "C" fn(
    Handle,
    c_int,
    *const c_void,
    Handle,
    Handle,
    *const c_void,
    Handle,
    c_int,
    c_int,
    *mut c_void,
) -> Status;

/// The functions of the library that are used.
struct Functions {
    create: unsafe extern "C" fn(*mut Handle) -> Status,
    destroy: unsafe extern "C" fn(Handle) -> Status,
    version: unsafe extern "C" fn(Handle, *mut c_int) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    set_stream: unsafe extern "C" fn(Handle, CUstream) -> Status,
    create_csr: unsafe extern "C" fn(
        *mut Handle,
        i64,
        i64,
        i64,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        c_int,
        c_int,
        c_int,
        c_int,
    ) -> Status,
    destroy_matrix: unsafe extern "C" fn(Handle) -> Status,
    create_vector: unsafe extern "C" fn(*mut Handle, i64, *mut c_void, c_int) -> Status,
    destroy_vector: unsafe extern "C" fn(Handle) -> Status,
    buffer_size: unsafe extern "C" fn(
        Handle,
        c_int,
        *const c_void,
        Handle,
        Handle,
        *const c_void,
        Handle,
        c_int,
        c_int,
        *mut usize,
    ) -> Status,
    /// Absent from early releases of CUDA 12.
    preprocess: Option<Multiply>,
    multiply: Multiply,
}

/// The library.
struct Loaded {
    functions: Functions,
    path: PathBuf,
    /// Stays loaded: the functions belong to it.
    _library: Library,
}

static LOADED: OnceLock<Result<Loaded, NotFound>> = OnceLock::new();

impl Loaded {
    fn find() -> Result<&'static Loaded, CudaError> {
        let find = || {
            Surroundings::of_process(&CUSPARSE).first(&CUSPARSE, |candidate| Loaded::load(&candidate.path))
        };
        LOADED.get_or_init(find).as_ref().map_err(|missing| CudaError::Library {
            library: NAME,
            doing: "find the library".to_owned(),
            status: missing.what(),
        })
    }

    fn load(path: &Path) -> Result<Loaded, LoadError> {
        // SAFETY: loading NVIDIA's library runs only its own initialisation.
        let library = unsafe { Library::new(path) }?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is the one in NVIDIA's header, the same in CUDA 12 and 13.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        let functions = Functions {
            create: function!("cusparseCreate"),
            destroy: function!("cusparseDestroy"),
            version: function!("cusparseGetVersion"),
            error_string: function!("cusparseGetErrorString"),
            set_stream: function!("cusparseSetStream"),
            create_csr: function!("cusparseCreateCsr"),
            destroy_matrix: function!("cusparseDestroySpMat"),
            create_vector: function!("cusparseCreateDnVec"),
            destroy_vector: function!("cusparseDestroyDnVec"),
            buffer_size: function!("cusparseSpMV_bufferSize"),
            // SAFETY: as above.
            preprocess: unsafe { library.get::<Multiply>(b"cusparseSpMV_preprocess\0") }
                .ok()
                .map(|symbol| *symbol),
            multiply: function!("cusparseSpMV"),
        };
        Ok(Loaded { functions, path: path.to_owned(), _library: library })
    }

    fn check(&self, status: Status, doing: &str) -> Result<(), CudaError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function gives a string of the library's own for every status.
        let text = unsafe { (self.functions.error_string)(status) };
        if text.is_null() {
            return Err(failed(NAME, doing, status));
        }
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        Err(CudaError::Library { library: NAME, doing: doing.to_owned(), status: text.into_owned() })
    }
}

/// The library, ready to work in a stream.
pub struct Cusparse {
    library: &'static Loaded,
    handle: Handle,
    stream: Stream,
}

impl fmt::Debug for Cusparse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuSPARSE at {}", self.library.path.display())
    }
}

impl Cusparse {
    /// Starts the library in a stream. `KINORA_CUSPARSE` names another file than the one that is found first.
    ///
    /// # Errors
    /// If it is not installed, or does not start.
    pub fn start(stream: &Stream) -> Result<Cusparse, CudaError> {
        let library = Loaded::find()?;
        let _entered = stream.context().enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: a context is current, and the call writes one handle.
        library.check(unsafe { (library.functions.create)(&mut handle) }, "start")?;
        let started = Cusparse { library, handle, stream: stream.clone() };
        // SAFETY: the handle is one, and the stream lives as long as it.
        let status = unsafe { (library.functions.set_stream)(handle, stream.handle()) };
        library.check(status, "set the stream")?;
        Ok(started)
    }

    /// Its version, such as 12.7.1.
    ///
    /// # Errors
    /// If it does not tell.
    pub fn version(&self) -> Result<String, CudaError> {
        let mut number = 0;
        // SAFETY: the handle is one, and the call writes one number.
        let status = unsafe { (self.library.functions.version)(self.handle, &mut number) };
        self.library.check(status, "ask for the version")?;
        Ok(format!("{}.{}.{}", number / 1000, number / 100 % 10, number % 100))
    }

    /// Makes a product ready, without the analysis of the matrix that [`SparseProduct::preprocess`] does.
    ///
    /// # Errors
    /// If the library refuses it, or there is no memory for its scratch.
    pub fn prepare(
        &self,
        operands: &SparseOperands,
        algorithm: SparseAlgorithm,
    ) -> Result<SparseProduct<'_>, CudaError> {
        let functions = &self.library.functions;
        let context: &Context = self.stream.context();
        let _entered = context.enter()?;
        let mut product = SparseProduct {
            by: self,
            algorithm,
            operands: *operands,
            matrix: ptr::null_mut(),
            x: ptr::null_mut(),
            y: ptr::null_mut(),
            scratch: None,
        };
        let [rows, columns, nonzeros] = operands.extents;
        let index = if operands.wide { INDEX_64 } else { INDEX_32 };
        let real = product.real();
        let at = |pointer: DevicePointer| ptr::without_provenance_mut::<c_void>(pointer.address() as usize);
        // SAFETY: the call keeps the addresses and writes one handle, which is destroyed with the product.
        let status = unsafe {
            (functions.create_csr)(
                &mut product.matrix,
                rows,
                columns,
                nonzeros,
                at(operands.offsets),
                at(operands.columns),
                at(operands.values),
                index,
                index,
                FROM_ZERO,
                real,
            )
        };
        self.library.check(status, "describe the matrix")?;
        // SAFETY: as above.
        let status = unsafe { (functions.create_vector)(&mut product.x, columns, at(operands.x), real) };
        self.library.check(status, "describe x")?;
        // SAFETY: as above.
        let status = unsafe { (functions.create_vector)(&mut product.y, rows, at(operands.y), real) };
        self.library.check(status, "describe y")?;
        let mut bytes = 0;
        let (alpha, beta) = product.factors();
        // SAFETY: all handles are the library's, the factors outlive the call, and it writes one number.
        let status = unsafe {
            (functions.buffer_size)(
                self.handle,
                NOT_TRANSPOSED,
                alpha.as_ptr().cast(),
                product.matrix,
                product.x,
                beta.as_ptr().cast(),
                product.y,
                real,
                algorithm.number(),
                &mut bytes,
            )
        };
        self.library.check(status, "ask for the size of the scratch memory")?;
        product.scratch = Some(DeviceBuffer::new(context, bytes)?);
        Ok(product)
    }
}

impl Drop for Cusparse {
    fn drop(&mut self) {
        if let Ok(_entered) = self.stream.context().enter() {
            // SAFETY: made by the library; products borrow this, so none is left.
            let _ = unsafe { (self.library.functions.destroy)(self.handle) };
        }
    }
}

/// A product that is ready.
pub struct SparseProduct<'a> {
    by: &'a Cusparse,
    algorithm: SparseAlgorithm,
    operands: SparseOperands,
    matrix: Handle,
    x: Handle,
    y: Handle,
    scratch: Option<DeviceBuffer>,
}

impl fmt::Debug for SparseProduct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.algorithm.name(), self.operands.extents)
    }
}

impl SparseProduct<'_> {
    fn real(&self) -> c_int {
        if self.operands.double { REAL_64 } else { REAL_32 }
    }

    /// The factors as the library reads them: of the values' type, in host memory, which is the library's default.
    fn factors(&self) -> ([u8; 8], [u8; 8]) {
        let bytes = |number: f64| {
            let mut all = [0; 8];
            match self.operands.double {
                true => all = number.to_ne_bytes(),
                false => all[..4].copy_from_slice(&(number as f32).to_ne_bytes()),
            }
            all
        };
        (bytes(self.operands.alpha), bytes(self.operands.beta))
    }

    /// Bytes of its scratch memory.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.as_ref().map_or(0, DeviceBuffer::bytes)
    }

    /// Whether this version of the library analyses a matrix beforehand.
    pub fn can_preprocess(&self) -> bool {
        self.by.library.functions.preprocess.is_some()
    }

    /// Puts the analysis of the matrix into the stream, which later products use; nothing if the library has none.
    ///
    /// # Safety
    /// As [`SparseProduct::enqueue`].
    ///
    /// # Errors
    /// If the library refuses.
    pub unsafe fn preprocess(&self) -> Result<(), CudaError> {
        match self.by.library.functions.preprocess {
            // SAFETY: by the caller's promise.
            Some(preprocess) => unsafe { self.call(preprocess, "analyse the matrix") },
            None => Ok(()),
        }
    }

    /// Puts the product into the stream.
    ///
    /// # Safety
    /// Until the stream has done the work, the operands' addresses are device memory of its context that holds a valid matrix and vectors of
    /// its extents, and nothing else writes to it.
    ///
    /// # Errors
    /// If the library refuses.
    pub unsafe fn enqueue(&self) -> Result<(), CudaError> {
        // SAFETY: by the caller's promise.
        unsafe { self.call(self.by.library.functions.multiply, "multiply") }
    }

    /// # Safety
    /// As [`SparseProduct::enqueue`].
    unsafe fn call(&self, function: Multiply, doing: &str) -> Result<(), CudaError> {
        let _entered = self.by.stream.context().enter()?;
        let scratch = self.scratch.as_ref().map_or(DevicePointer::NULL, DeviceBuffer::address);
        let (alpha, beta) = self.factors();
        // SAFETY: all handles are the library's, the factors are read during the call, and the rest is the caller's promise.
        let status = unsafe {
            function(
                self.by.handle,
                NOT_TRANSPOSED,
                alpha.as_ptr().cast(),
                self.matrix,
                self.x,
                beta.as_ptr().cast(),
                self.y,
                self.real(),
                self.algorithm.number(),
                ptr::without_provenance_mut(scratch.address() as usize),
            )
        };
        self.by.library.check(status, doing)
    }
}

impl Drop for SparseProduct<'_> {
    fn drop(&mut self) {
        let Ok(_entered) = self.by.stream.context().enter() else { return };
        let functions = &self.by.library.functions;
        // SAFETY: made by the library, and not used after this.
        unsafe {
            for vector in [self.x, self.y].into_iter().filter(|vector| !vector.is_null()) {
                let _ = (functions.destroy_vector)(vector);
            }
            if !self.matrix.is_null() {
                let _ = (functions.destroy_matrix)(self.matrix);
            }
        }
    }
}

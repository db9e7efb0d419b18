//! Finding the driver, without a panic if there is none.
//!
//! The bindings panic when the library, or a function in it, is missing. So the library is looked for first, and its
//! version is compared with the one that has every function used here.

use std::{fmt, fs::File, io::ErrorKind, sync::OnceLock};

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUevent, CUresult};

use super::status::check;
use crate::CudaError;

/// A version of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CudaVersion {
    /// The part before the point.
    pub major: u32,
    /// The part after it.
    pub minor: u32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest driver that has every function used here: launches with attributes, and tensor maps for TMA.
pub const MINIMUM_VERSION: CudaVersion = CudaVersion { major: 12, minor: 0 };

/// Loads and initialises the driver, once, and gives the version of CUDA that it supports.
///
/// # Errors
/// If there is no driver, it is too old, it finds no GPU, or the GPU may not be used.
pub fn driver_version() -> Result<CudaVersion, CudaError> {
    // Only success is kept: a GPU may be given to the process later.
    static VERSION: OnceLock<CudaVersion> = OnceLock::new();
    if let Some(&version) = VERSION.get() {
        return Ok(version);
    }
    // SAFETY: loading NVIDIA's driver runs its own set-up alone.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    let mut number = 0;
    // SAFETY: the library is there, every version of it has this function, and it writes one number.
    let code = unsafe { sys::cuDriverGetVersion(&mut number) };
    // The stub that a toolkit brings to link against is not a driver.
    if code == CUresult::CUDA_ERROR_STUB_LIBRARY {
        return Err(CudaError::NoDriver);
    }
    check(code, "ask for the driver's version")?;
    let number = u32::try_from(number).unwrap_or(0);
    let version = CudaVersion { major: number / 1000, minor: number % 1000 / 10 };
    if version < MINIMUM_VERSION {
        return Err(CudaError::DriverTooOld {
            found: version.to_string(),
            needed: MINIMUM_VERSION.to_string(),
        });
    }
    // SAFETY: the library is there; initialising it twice does nothing.
    let code = unsafe { sys::cuInit(0) };
    explain(code)?;
    Ok(*VERSION.get_or_init(|| version))
}

/// What it means that the driver could not be initialised.
fn explain(code: CUresult) -> Result<(), CudaError> {
    let Err(error) = check(code, "initialise the driver") else { return Ok(()) };
    let refused = |reason: String| Err(CudaError::NoPermission { reason });
    match code {
        CUresult::CUDA_ERROR_NOT_PERMITTED | CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            refused(error.to_string())
        }
        // A device file that may not be opened looks to the driver as if there were no GPU.
        _ if matches!(File::open("/dev/nvidiactl"), Err(e) if e.kind() == ErrorKind::PermissionDenied) => {
            refused("/dev/nvidiactl cannot be opened".to_owned())
        }
        CUresult::CUDA_ERROR_NO_DEVICE => Err(CudaError::NoDevice),
        _ => Err(error),
    }
}

/// Makes a context by the function's older name: drivers before 12.5 do not have the name that the bindings use.
///
/// # Safety
/// The driver has been initialised, and `device` is one of its devices.
pub(super) unsafe fn create_context(device: CUdevice) -> Result<CUcontext, CudaError> {
    type Create = unsafe extern "C" fn(*mut CUcontext, u32, CUdevice) -> CUresult;
    let mut context = std::ptr::null_mut();
    // SAFETY: the function has had this signature since CUDA 3.2.
    let code = unsafe {
        let create = sys::culib().get::<Create>(b"cuCtxCreate_v2\0").map_err(missing)?;
        create(&mut context, sys::CUctx_flags::CU_CTX_SCHED_AUTO as u32, device)
    };
    check(code, "make a context")?;
    Ok(context)
}

/// The milliseconds between two events, by the function's older name, as above.
///
/// # Safety
/// A context is current, and both events are of it.
pub(super) unsafe fn elapsed(start: CUevent, end: CUevent) -> Result<(CUresult, f32), CudaError> {
    type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    let mut milliseconds = 0.0;
    // SAFETY: the function has had this signature since CUDA 2.0.
    let code = unsafe {
        let elapsed = sys::culib().get::<Elapsed>(b"cuEventElapsedTime\0").map_err(missing)?;
        elapsed(&mut milliseconds, start, end)
    };
    Ok((code, milliseconds))
}

fn missing(error: impl fmt::Display) -> CudaError {
    CudaError::Internal(format!("the driver lacks a function: {error}"))
}

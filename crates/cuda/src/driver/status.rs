//! The driver's return codes as errors.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::{self, CUresult};

use crate::CudaError;

/// The codes after which nothing more can be done in the context. A fault of the device itself is among them: an
/// address that is not mapped, an instruction that does not exist, a kernel that ran too long.
const FATAL: [CUresult; 14] = [
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
];

/// Whether a code ends the context that it came from.
pub(crate) fn ends_the_context(code: u32) -> bool {
    FATAL.iter().any(|fatal| *fatal as u32 == code)
}

/// Whether a code says that there is too little memory.
pub(crate) fn is_out_of_memory(code: u32) -> bool {
    code == CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32
}

/// An error for any code but success. `doing` says what was asked of the driver.
///
/// The driver's library has been found when this is called: it is asked for the code's name.
pub(super) fn check(code: CUresult, doing: &str) -> Result<(), CudaError> {
    if code == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name: *const c_char = std::ptr::null();
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: both calls write one pointer, to a string that lives as long as the library, or leave it null.
    let (name, text) = unsafe {
        let _ = sys::cuGetErrorName(code, &mut name);
        let _ = sys::cuGetErrorString(code, &mut text);
        (words(name), words(text))
    };
    Err(CudaError::Driver { doing: doing.to_owned(), code: code as u32, name, text })
}

/// # Safety
/// `text` is null or a string that ends in a zero.
unsafe fn words(text: *const c_char) -> String {
    if text.is_null() {
        return "no text".to_owned();
    }
    // SAFETY: by the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_device_ends_its_context() {
        assert!(ends_the_context(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as u32));
        assert!(!ends_the_context(CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32));
        assert!(!ends_the_context(CUresult::CUDA_ERROR_INVALID_VALUE as u32));
    }
}

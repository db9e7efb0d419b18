//! Code on the GPU.

use std::{
    ffi::{CString, c_void},
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::sys::{
    self, CUfunction, CUfunction_attribute, CUjit_option as JitOption, CUmodule, CUresult,
};

use super::context::Context;
use crate::{Architecture, CudaError};

/// Room for what the driver says about code that it does not take.
const LOG_BYTES: usize = 16 << 10;

/// Loaded code.
#[derive(Clone, Debug)]
pub struct Module(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: CUmodule,
    context: Context,
}

// SAFETY: the handle is a name; the driver's calls are safe from several threads.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Module {
    /// Loads a cubin, or translates PTX for the chip. `name` is for the error.
    ///
    /// # Errors
    /// If the driver refuses the code, with what it says about it.
    pub fn load(context: &Context, name: &str, code: &[u8]) -> Result<Module, CudaError> {
        // PTX is a text that ends in a zero; a cubin does not mind one more byte.
        let mut image = Vec::with_capacity(code.len() + 1);
        image.extend_from_slice(code);
        image.push(0);
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [JitOption::CU_JIT_ERROR_LOG_BUFFER, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
        let mut handle = std::ptr::null_mut();
        let entered = context.enter()?;
        // SAFETY: the image is whole and ends in a zero; the options are a buffer and its size, as the driver reads them,
        // and the buffer outlives the call.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &mut handle,
                image.as_ptr().cast::<c_void>(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if result != CUresult::CUDA_SUCCESS {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let said = String::from_utf8_lossy(&log[..end]);
            entered.check(result, format!("load {name} {said}").trim_end())?;
        }
        drop(entered);
        Ok(Module(Arc::new(Inner { handle, context: context.clone() })))
    }

    /// A kernel in it.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        let c_name = CString::new(name)
            .map_err(|_| CudaError::Internal(format!("a kernel's name contains a zero byte: {name}")))?;
        let entered = self.0.context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the module is of the current context, the name ends in a zero, and the call writes one handle.
        let code = unsafe { sys::cuModuleGetFunction(&mut handle, self.0.handle, c_name.as_ptr()) };
        entered.check(code, &format!("find the kernel {name}"))?;
        drop(entered);
        let function = Function { handle, module: self.clone(), shared_bytes: Arc::default() };
        // A question brings the code onto the GPU now, and not while a CUDA graph is recorded.
        function.registers()?;
        Ok(function)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The driver may wait for the whole context.
        let _no_recording = self.context.recording();
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: nothing refers to the module any more.
            let _ = unsafe { sys::cuModuleUnload(self.handle) };
        }
    }
}

/// A kernel of a loaded module.
#[derive(Clone, Debug)]
pub struct Function {
    handle: CUfunction,
    module: Module,
    /// The dynamic shared memory that its blocks may have. Launches of one kernel may need different amounts, and the
    /// largest is what has to be asked for.
    shared_bytes: Arc<Mutex<u32>>,
}

// SAFETY: the handle is a name, valid while the module is loaded; the driver's calls are safe from several threads.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub(super) fn handle(&self) -> CUfunction {
        self.handle
    }

    /// The context that it is in.
    pub fn context(&self) -> &Context {
        &self.module.0.context
    }

    /// Whether anything else holds its code.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.module.0) > 1
    }

    /// Lets its blocks have so much dynamic shared memory. Beyond 48 KiB a kernel has to ask.
    ///
    /// # Errors
    /// If the chip does not have so much.
    pub fn allow_shared_bytes(&self, bytes: u32) -> Result<(), CudaError> {
        // Held while the driver is asked: programs share functions, and the smaller of two amounts must not come last.
        let mut allowed = self.shared_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if *allowed >= bytes {
            return Ok(());
        }
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.set(attribute, bytes, "ask for more shared memory")?;
        *allowed = bytes;
        Ok(())
    }

    /// Lets clusters have more than the eight blocks that every chip with clusters can run.
    ///
    /// # Errors
    /// If the chip has none.
    pub fn allow_large_clusters(&self) -> Result<(), CudaError> {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        self.set(attribute, 1, "ask for larger clusters")
    }

    fn set(&self, attribute: CUfunction_attribute, value: u32, doing: &str) -> Result<(), CudaError> {
        let entered = self.context().enter()?;
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        // SAFETY: the function is of the current context.
        entered.check(unsafe { sys::cuFuncSetAttribute(self.handle, attribute, value) }, doing)
    }

    /// Registers of a thread: for reports.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn registers(&self) -> Result<u32, CudaError> {
        self.get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, "ask for a kernel's registers")
    }

    /// The architecture that its source was compiled for, whatever chip its code was translated to.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn architecture(&self) -> Result<Architecture, CudaError> {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
        self.get(attribute, "ask for a kernel's architecture").map(Architecture)
    }

    fn get(&self, attribute: CUfunction_attribute, doing: &str) -> Result<u32, CudaError> {
        let entered = self.context().enter()?;
        let mut value = 0;
        // SAFETY: the function is of the current context, and the call writes one number.
        let code = unsafe { sys::cuFuncGetAttribute(&mut value, attribute, self.handle) };
        entered.check(code, doing)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

//! Convolutions by cuDNN.

use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::cudnn::sys::{
    self, cudnnActivationDescriptor_t, cudnnActivationMode_t, cudnnConvolutionDescriptor_t,
    cudnnConvolutionFwdAlgo_t, cudnnConvolutionMode_t, cudnnDataType_t, cudnnFilterDescriptor_t,
    cudnnHandle_t, cudnnMathType_t, cudnnNanPropagation_t, cudnnStatus_t, cudnnTensorDescriptor_t,
    cudnnTensorFormat_t,
};
use kinora_graph::DType;

use super::{LibraryCall, failed};
use crate::{
    CudaError,
    driver::{Context, Stream},
    launch::DevicePointer,
};

/// The one algorithm that runs on tensor cores over channels-last images.
const ALGORITHM: cudnnConvolutionFwdAlgo_t =
    cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;

/// What is called, all of it older than the oldest version that is accepted. A later one may have dropped something.
const SYMBOLS: [&[u8]; 4] = [
    b"cudnnGetVersion\0",
    b"cudnnConvolutionForward\0",
    b"cudnnConvolutionBiasActivationForward\0",
    b"cudnnGetConvolutionForwardWorkspaceSize\0",
];

/// The library.
#[derive(Debug)]
pub struct Cudnn(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// One call at a time: a handle has a stream, and must not be used by two threads.
    handle: Mutex<cudnnHandle_t>,
    context: Context,
}

// SAFETY: the handle is used under its lock.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A convolution of channels-last images with `weight [out, height, width, in]`, padded alike on both sides of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// The type of all operands.
    pub dtype: DType,
    /// Images, height, width, channels.
    pub input: [usize; 4],
    /// Images, height, width, channels.
    pub output: [usize; 4],
    /// The window's height and width.
    pub kernel: [usize; 2],
    /// Zeros on each side.
    pub padding: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Steps between a window's taps.
    pub dilation: [usize; 2],
    /// Independent slices of the channels.
    pub groups: usize,
    /// A bias of one number a channel is added.
    pub bias: bool,
    /// A tensor of the result's shape is added; there is a bias then.
    pub residual: bool,
}

/// Where a convolution's tensors lie.
#[derive(Clone, Copy, Debug)]
pub struct ConvolutionOperands {
    /// The images.
    pub x: DevicePointer,
    /// The weight.
    pub weight: DevicePointer,
    /// The bias, if there is one.
    pub bias: DevicePointer,
    /// The residual, if there is one.
    pub residual: DevicePointer,
    /// The result.
    pub y: DevicePointer,
    /// Scratch memory.
    pub workspace: DevicePointer,
    /// How much of it there is, in bytes: at least what [`Cudnn::workspace`] says.
    pub workspace_bytes: usize,
}

impl Cudnn {
    /// The version that is installed, if there is one with all that is called.
    pub(super) fn version() -> Option<usize> {
        // SAFETY: looking for a library runs its initialisers, which this one allows at any time; a symbol is only looked
        // for, and the one that is called is among those found.
        unsafe {
            let complete = sys::is_culib_present()
                && SYMBOLS.iter().all(|name| sys::culib().get::<*const c_void>(*name).is_ok());
            complete.then(|| sys::cudnnGetVersion())
        }
    }

    /// Starts the library, if it is installed.
    pub(super) fn start(context: &Context) -> Result<Option<Cudnn>, CudaError> {
        if Cudnn::version().is_none() {
            return Ok(None);
        }
        let _entered = context.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the library is there, and the call writes one handle.
        check(unsafe { sys::cudnnCreate(&mut handle) }, "start")?;
        Ok(Some(Cudnn(Arc::new(Inner { handle: Mutex::new(handle), context: context.clone() }))))
    }

    /// Scratch memory that a convolution needs, in bytes.
    ///
    /// # Errors
    /// If the library does not run it.
    pub fn workspace(&self, convolution: &Convolution) -> Result<usize, CudaError> {
        let descriptors = Descriptors::new(convolution)?;
        let _entered = self.0.context.enter()?;
        let handle = self.0.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        // SAFETY: every handle is alive, and the call writes one number.
        let status = unsafe {
            sys::cudnnGetConvolutionForwardWorkspaceSize(
                *handle,
                descriptors.x,
                descriptors.weight,
                descriptors.convolution,
                descriptors.y,
                ALGORITHM,
                &mut bytes,
            )
        };
        check(status, "plan a convolution")?;
        Ok(bytes)
    }

    /// Makes a call ready.
    ///
    /// # Errors
    /// If the library does not describe it.
    pub fn prepare(
        &self,
        convolution: &Convolution,
        operands: ConvolutionOperands,
    ) -> Result<Box<dyn LibraryCall>, CudaError> {
        Ok(Box::new(PreparedConvolution {
            library: self.0.clone(),
            descriptors: Descriptors::new(convolution)?,
            bias: convolution.bias,
            residual: convolution.residual,
            operands,
        }))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let handle = *self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the library made the handle, and nothing uses it any more.
            unsafe { sys::cudnnDestroy(handle) };
        }
    }
}

const NAME: &str = "cuDNN";

fn check(status: cudnnStatus_t, doing: &str) -> Result<(), CudaError> {
    match status {
        cudnnStatus_t::CUDNN_STATUS_SUCCESS => Ok(()),
        _ => Err(failed(NAME, doing, status)),
    }
}

/// A convolution as the library describes it.
#[derive(Debug)]
struct Descriptors {
    x: cudnnTensorDescriptor_t,
    y: cudnnTensorDescriptor_t,
    bias: cudnnTensorDescriptor_t,
    weight: cudnnFilterDescriptor_t,
    convolution: cudnnConvolutionDescriptor_t,
    activation: cudnnActivationDescriptor_t,
}

// SAFETY: descriptors are plain data of the library's; nothing changes them once they are made.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn new(convolution: &Convolution) -> Result<Descriptors, CudaError> {
        let element = match convolution.dtype {
            DType::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
            DType::BF16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
            _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
        };
        // The library's own arithmetic for f32 would be TF32.
        let math = match convolution.dtype {
            DType::F32 => cudnnMathType_t::CUDNN_FMA_MATH,
            _ => cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        };
        let int = |n: usize| i32::try_from(n).map_err(|_| failed(NAME, "describe an extent", n));
        let mut this = Descriptors {
            x: ptr::null_mut(),
            y: ptr::null_mut(),
            bias: ptr::null_mut(),
            weight: ptr::null_mut(),
            convolution: ptr::null_mut(),
            activation: ptr::null_mut(),
        };
        let [_, _, _, channels] = convolution.input;
        let [_, _, _, out] = convolution.output;
        // SAFETY: each call writes one handle, or fills a descriptor that the one before made.
        unsafe {
            for (tensor, [n, h, w, c]) in [
                (&mut this.x, convolution.input),
                (&mut this.y, convolution.output),
                (&mut this.bias, [1, 1, 1, out]),
            ] {
                check(sys::cudnnCreateTensorDescriptor(tensor), "describe a tensor")?;
                let [n, h, w, c] = [int(n)?, int(h)?, int(w)?, int(c)?];
                let format = cudnnTensorFormat_t::CUDNN_TENSOR_NHWC;
                check(
                    sys::cudnnSetTensor4dDescriptor(*tensor, format, element, n, c, h, w),
                    "describe a tensor",
                )?;
            }
            check(sys::cudnnCreateFilterDescriptor(&mut this.weight), "describe a weight")?;
            let [kh, kw] = convolution.kernel;
            check(
                sys::cudnnSetFilter4dDescriptor(
                    this.weight,
                    element,
                    cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
                    int(out)?,
                    int(channels / convolution.groups.max(1))?,
                    int(kh)?,
                    int(kw)?,
                ),
                "describe a weight",
            )?;
            check(sys::cudnnCreateConvolutionDescriptor(&mut this.convolution), "describe a convolution")?;
            let [pad, stride, dilation] = [convolution.padding, convolution.stride, convolution.dilation];
            check(
                sys::cudnnSetConvolution2dDescriptor(
                    this.convolution,
                    int(pad[0])?,
                    int(pad[1])?,
                    int(stride[0])?,
                    int(stride[1])?,
                    int(dilation[0])?,
                    int(dilation[1])?,
                    cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                    cudnnDataType_t::CUDNN_DATA_FLOAT,
                ),
                "describe a convolution",
            )?;
            check(sys::cudnnSetConvolutionMathType(this.convolution, math), "choose the arithmetic")?;
            let groups = int(convolution.groups)?;
            check(sys::cudnnSetConvolutionGroupCount(this.convolution, groups), "describe groups")?;
            check(sys::cudnnCreateActivationDescriptor(&mut this.activation), "describe an activation")?;
            check(
                sys::cudnnSetActivationDescriptor(
                    this.activation,
                    cudnnActivationMode_t::CUDNN_ACTIVATION_IDENTITY,
                    cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN,
                    0.0,
                ),
                "describe an activation",
            )?;
        }
        Ok(this)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: each was made by the library or is null.
        unsafe {
            for tensor in [self.x, self.y, self.bias].into_iter().filter(|tensor| !tensor.is_null()) {
                sys::cudnnDestroyTensorDescriptor(tensor);
            }
            if !self.weight.is_null() {
                sys::cudnnDestroyFilterDescriptor(self.weight);
            }
            if !self.convolution.is_null() {
                sys::cudnnDestroyConvolutionDescriptor(self.convolution);
            }
            if !self.activation.is_null() {
                sys::cudnnDestroyActivationDescriptor(self.activation);
            }
        }
    }
}

/// A convolution with everything in place.
#[derive(Debug)]
struct PreparedConvolution {
    library: Arc<Inner>,
    descriptors: Descriptors,
    bias: bool,
    residual: bool,
    operands: ConvolutionOperands,
}

impl LibraryCall for PreparedConvolution {
    unsafe fn enqueue(&self, stream: &Stream) -> Result<(), CudaError> {
        let _entered = self.library.context.enter()?;
        let handle = self.library.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let ConvolutionOperands { x, weight, bias, residual, y, workspace, workspace_bytes } = self.operands;
        let [one, zero] = [1.0f32, 0.0];
        let d = &self.descriptors;
        // SAFETY: the descriptors are alive. They describe the tensors that the caller promises to be at these addresses. The
        // scalars are read before the call returns.
        let status = unsafe {
            check(sys::cudnnSetStream(*handle, stream.handle().cast()), "choose a stream")?;
            if self.bias {
                let (share, z) = if self.residual { (&one, residual) } else { (&zero, y) };
                sys::cudnnConvolutionBiasActivationForward(
                    *handle,
                    (&raw const one).cast(),
                    d.x,
                    x.as_raw(),
                    d.weight,
                    weight.as_raw(),
                    d.convolution,
                    ALGORITHM,
                    workspace.as_raw(),
                    workspace_bytes,
                    ptr::from_ref(share).cast(),
                    d.y,
                    z.as_raw(),
                    d.bias,
                    bias.as_raw(),
                    d.activation,
                    d.y,
                    y.as_raw(),
                )
            } else {
                sys::cudnnConvolutionForward(
                    *handle,
                    (&raw const one).cast(),
                    d.x,
                    x.as_raw(),
                    d.weight,
                    weight.as_raw(),
                    d.convolution,
                    ALGORITHM,
                    workspace.as_raw(),
                    workspace_bytes,
                    (&raw const zero).cast(),
                    d.y,
                    y.as_raw(),
                )
            }
        };
        check(status, "convolve")
    }
}

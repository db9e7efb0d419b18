//! Matrix products by cuBLASLt.

use std::{ffi::c_void, mem::MaybeUninit, ptr, sync::Arc};

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t, cublasLtHandle_t, cublasLtMatmulAlgo_t,
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulHeuristicResult_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
    cublasStatus_t, cudaDataType_t,
};
use kinora_graph::DType;

use super::{LibraryCall, failed};
use crate::{
    CudaError,
    driver::{Context, Stream},
    launch::DevicePointer,
};

/// What a product may have as scratch memory, in bytes: as much as NVIDIA advises for Hopper.
const WORKSPACE: usize = 32 << 20;

/// How many algorithms are asked for.
const ALGORITHMS: usize = 4;

/// The library.
#[derive(Debug)]
pub struct CublasLt(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: cublasLtHandle_t,
    context: Context,
}

// SAFETY: the handle may be used by several threads at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// `d [batch, rows, columns] = a · b`, row by row, with what may follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// The type of all operands.
    pub dtype: DType,
    /// Products that are computed.
    pub batch: usize,
    /// Rows of `a`.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Columns of `a`.
    pub depth: usize,
    /// `a` lies as `[depth, rows]`.
    pub transpose_a: bool,
    /// `b` lies as `[columns, depth]`.
    pub transpose_b: bool,
    /// One `b` serves the whole batch.
    pub shared_b: bool,
    /// A bias of one number a column is added.
    pub bias: bool,
    /// A tensor of the result's shape is added.
    pub residual: bool,
}

/// Where a product's tensors lie.
#[derive(Clone, Copy, Debug)]
pub struct ProductOperands {
    /// The left operand.
    pub a: DevicePointer,
    /// The right operand.
    pub b: DevicePointer,
    /// The bias, if there is one.
    pub bias: DevicePointer,
    /// The residual, if there is one.
    pub residual: DevicePointer,
    /// The result.
    pub d: DevicePointer,
    /// As many bytes as [`CublasLt::workspace`] says.
    pub workspace: DevicePointer,
}

impl CublasLt {
    /// The version that is installed, if there is one.
    pub(super) fn version() -> Option<usize> {
        // SAFETY: looking for a library runs its initialisers, which this one allows at any time; every version has what is
        // called.
        unsafe { sys::is_culib_present().then(|| sys::cublasLtGetVersion()) }
    }

    /// Starts the library, if it is installed.
    pub(super) fn start(context: &Context) -> Result<Option<CublasLt>, CudaError> {
        if CublasLt::version().is_none() {
            return Ok(None);
        }
        let _entered = context.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the library is there, and the call writes one handle.
        check(unsafe { sys::cublasLtCreate(&mut handle) }, "start")?;
        Ok(Some(CublasLt(Arc::new(Inner { handle, context: context.clone() }))))
    }

    /// Scratch memory that any product needs, in bytes.
    pub fn workspace() -> usize {
        WORKSPACE
    }

    /// How many algorithms the library offers for a product, the one it thinks the fastest first.
    ///
    /// # Errors
    /// If the library fails.
    pub fn algorithms(&self, product: &Product) -> Result<usize, CudaError> {
        Ok(self.heuristics(&Descriptors::new(product)?, product)?.len())
    }

    /// Makes a call ready.
    ///
    /// # Errors
    /// If the library has no such algorithm, or fails.
    pub fn prepare(
        &self,
        product: &Product,
        operands: ProductOperands,
        algorithm: usize,
    ) -> Result<Box<dyn LibraryCall>, CudaError> {
        let descriptors = Descriptors::new(product)?;
        if product.bias {
            let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            descriptors.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            descriptors.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias)?;
        }
        let found = self.heuristics(&descriptors, product)?;
        let algorithm =
            found.get(algorithm).ok_or_else(|| failed(NAME, "find an algorithm", algorithm))?.algo;
        let beta = if product.residual { 1.0 } else { 0.0 };
        Ok(Box::new(PreparedProduct { library: self.0.clone(), descriptors, operands, algorithm, beta }))
    }

    fn heuristics(
        &self,
        descriptors: &Descriptors,
        product: &Product,
    ) -> Result<Vec<cublasLtMatmulHeuristicResult_t>, CudaError> {
        if product.bias {
            let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            descriptors.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        }
        let mut preference = ptr::null_mut();
        // SAFETY: the call writes one handle, which is destroyed below.
        check(unsafe { sys::cublasLtMatmulPreferenceCreate(&mut preference) }, "make a preference")?;
        let mut found = [MaybeUninit::<cublasLtMatmulHeuristicResult_t>::uninit(); ALGORITHMS];
        let mut count = 0;
        let workspace = WORKSPACE;
        let attribute = cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: every handle is alive, the attribute is a usize, and there is room for as many results as are asked for.
        let status = unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(
                preference,
                attribute,
                (&raw const workspace).cast(),
                size_of::<usize>(),
            );
            let status = sys::cublasLtMatmulAlgoGetHeuristic(
                self.0.handle,
                descriptors.product,
                descriptors.b,
                descriptors.a,
                descriptors.d,
                descriptors.d,
                preference,
                ALGORITHMS as i32,
                found.as_mut_ptr().cast(),
                &mut count,
            );
            sys::cublasLtMatmulPreferenceDestroy(preference);
            status
        };
        check(status, "find an algorithm")?;
        let count = usize::try_from(count).unwrap_or(0).min(ALGORITHMS);
        // SAFETY: the library wrote `count` results.
        let found = found[..count].iter().map(|result| unsafe { result.assume_init() });
        Ok(found.filter(|result| result.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS).collect())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the library made the handle, and nothing uses it any more.
            unsafe { sys::cublasLtDestroy(self.handle) };
        }
    }
}

const NAME: &str = "cuBLASLt";

fn check(status: cublasStatus_t, doing: &str) -> Result<(), CudaError> {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(failed(NAME, doing, status)),
    }
}

/// A product as the library describes it: column by column, so that it computes `dᵀ = bᵀ · aᵀ`.
#[derive(Debug)]
struct Descriptors {
    product: cublasLtMatmulDesc_t,
    a: cublasLtMatrixLayout_t,
    b: cublasLtMatrixLayout_t,
    d: cublasLtMatrixLayout_t,
}

// SAFETY: descriptors are plain data of the library's; nothing changes them once they are made.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn new(product: &Product) -> Result<Descriptors, CudaError> {
        let Product { dtype, batch, rows, columns, depth, .. } = *product;
        let element = match dtype {
            DType::F16 => cudaDataType_t::CUDA_R_16F,
            DType::BF16 => cudaDataType_t::CUDA_R_16BF,
            _ => cudaDataType_t::CUDA_R_32F,
        };
        let mut this = Descriptors {
            product: ptr::null_mut(),
            a: ptr::null_mut(),
            b: ptr::null_mut(),
            d: ptr::null_mut(),
        };
        let compute = cublasComputeType_t::CUBLAS_COMPUTE_32F;
        // SAFETY: the call writes one handle.
        let status =
            unsafe { sys::cublasLtMatmulDescCreate(&mut this.product, compute, cudaDataType_t::CUDA_R_32F) };
        check(status, "describe a product")?;
        // The library's `cublasOperation_t`: 1 transposes.
        let operation = |transposed: bool| i32::from(transposed);
        // The library's first operand is our second one.
        this.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &operation(product.transpose_b))?;
        this.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &operation(product.transpose_a))?;
        let lying = |transposed: bool, [rows, columns]: [usize; 2]| {
            if transposed { [columns, rows] } else { [rows, columns] }
        };
        let a = lying(product.transpose_a, [rows, depth]);
        let b = lying(product.transpose_b, [depth, columns]);
        this.a = layout(element, a, batch, rows * depth)?;
        this.b = layout(element, b, batch, if product.shared_b { 0 } else { depth * columns })?;
        this.d = layout(element, [rows, columns], batch, rows * columns)?;
        Ok(this)
    }

    fn set<T>(&self, attribute: Attribute, value: &T) -> Result<(), CudaError> {
        let value: *const T = value;
        // SAFETY: the descriptor is alive, and the value is of the attribute's size.
        let status = unsafe {
            sys::cublasLtMatmulDescSetAttribute(self.product, attribute, value.cast(), size_of::<T>())
        };
        check(status, "describe a product")
    }
}

/// A matrix that lies row by row, as the library sees it: columns and rows change places.
fn layout(
    element: cudaDataType_t,
    [rows, columns]: [usize; 2],
    batch: usize,
    stride: usize,
) -> Result<cublasLtMatrixLayout_t, CudaError> {
    let mut layout = ptr::null_mut();
    // SAFETY: the call writes one handle.
    let status = unsafe {
        sys::cublasLtMatrixLayoutCreate(
            &mut layout,
            element,
            columns as u64,
            rows as u64,
            columns.max(1) as i64,
        )
    };
    check(status, "describe a matrix")?;
    let count = i32::try_from(batch).map_err(|_| failed(NAME, "describe a batch", batch))?;
    let stride = stride as i64;
    use cublasLtMatrixLayoutAttribute_t as Layout;
    let values: [(Layout, *const c_void, usize); 2] = [
        (Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), size_of::<i32>()),
        (Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const stride).cast(), size_of::<i64>()),
    ];
    for (attribute, value, size) in values {
        // SAFETY: the layout is alive, and each value is of its attribute's size.
        let status = unsafe { sys::cublasLtMatrixLayoutSetAttribute(layout, attribute, value, size) };
        check(status, "describe a batch")?;
    }
    Ok(layout)
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: each was made by the library or is null, which it ignores.
        unsafe {
            for layout in [self.a, self.b, self.d].into_iter().filter(|layout| !layout.is_null()) {
                sys::cublasLtMatrixLayoutDestroy(layout);
            }
            if !self.product.is_null() {
                sys::cublasLtMatmulDescDestroy(self.product);
            }
        }
    }
}

/// A product with everything in place.
#[derive(Debug)]
struct PreparedProduct {
    library: Arc<Inner>,
    descriptors: Descriptors,
    operands: ProductOperands,
    algorithm: cublasLtMatmulAlgo_t,
    beta: f32,
}

// SAFETY: as for `Inner` and `Descriptors`.
unsafe impl Send for PreparedProduct {}
// SAFETY: as above.
unsafe impl Sync for PreparedProduct {}

impl LibraryCall for PreparedProduct {
    unsafe fn enqueue(&self, stream: &Stream) -> Result<(), CudaError> {
        let _entered = self.library.context.enter()?;
        let ProductOperands { a, b, residual, d, workspace, .. } = self.operands;
        let c = if self.beta == 0.0 { d } else { residual };
        let alpha = 1.0f32;
        // SAFETY: the descriptors are alive. They describe the tensors that the caller promises to be at these addresses. The
        // scalars are read before the call returns.
        let status = unsafe {
            sys::cublasLtMatmul(
                self.library.handle,
                self.descriptors.product,
                (&raw const alpha).cast(),
                b.as_raw(),
                self.descriptors.b,
                a.as_raw(),
                self.descriptors.a,
                (&raw const self.beta).cast(),
                c.as_raw(),
                self.descriptors.d,
                d.as_raw(),
                self.descriptors.d,
                &self.algorithm,
                workspace.as_raw(),
                WORKSPACE,
                stream.handle().cast(),
            )
        };
        check(status, "multiply")
    }
}

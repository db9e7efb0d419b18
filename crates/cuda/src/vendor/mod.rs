//! NVIDIA's own libraries, if they are installed: candidates beside our kernels, never a foundation. Without them
//! everything still runs.

mod cublaslt;
mod cudnn;
mod cusparse;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use crate::{
    CudaError,
    driver::{Context, Stream},
};

pub use cublaslt::{CublasLt, Product, ProductOperands};
pub use cudnn::{Convolution, ConvolutionOperands, Cudnn};
pub use cusparse::{Cusparse, SparseAlgorithm, SparseOperands, SparseProduct};

/// The libraries of a context, none by default. Each is started when it is first asked for, which takes it a tenth of a
/// second and more; one that is absent, too old or broken is not there. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Libraries(Option<Arc<Found>>);

#[derive(Debug)]
struct Found {
    context: Context,
    cublaslt: OnceLock<Option<CublasLt>>,
    cudnn: OnceLock<Option<Cudnn>>,
}

impl Libraries {
    /// Those that are installed.
    pub fn of(context: &Context) -> Libraries {
        let (cublaslt, cudnn) = (OnceLock::new(), OnceLock::new());
        Libraries(Some(Arc::new(Found { context: context.clone(), cublaslt, cudnn })))
    }

    /// The library for matrix products.
    pub fn cublaslt(&self) -> Option<&CublasLt> {
        let found = self.0.as_ref()?;
        found.cublaslt.get_or_init(|| CublasLt::start(&found.context).ok().flatten()).as_ref()
    }

    /// The library for convolutions.
    pub fn cudnn(&self) -> Option<&Cudnn> {
        let found = self.0.as_ref()?;
        found.cudnn.get_or_init(|| Cudnn::start(&found.context).ok().flatten()).as_ref()
    }

    /// The versions that are installed, in words: what was measured of one says nothing of another. Starts none of them.
    pub fn versions(&self) -> String {
        let version = |version: Option<usize>| version.map_or_else(|| "none".to_owned(), |v| v.to_string());
        let (cublaslt, cudnn) = match self.0 {
            Some(_) => (CublasLt::version(), Cudnn::version()),
            None => (None, None),
        };
        format!("cuBLASLt {}, cuDNN {}", version(cublaslt), version(cudnn))
    }
}

/// A call of a library with everything in place: it allocates nothing and can be captured into a CUDA graph.
pub trait LibraryCall: fmt::Debug + Send + Sync {
    /// Puts the call's work into a stream.
    ///
    /// # Safety
    /// Until the stream has done the work, the operands' addresses are device memory of the stream's context that holds the
    /// tensors the call was prepared for, and nothing else writes to it.
    ///
    /// # Errors
    /// If the library refuses.
    unsafe fn enqueue(&self, stream: &Stream) -> Result<(), CudaError>;
}

/// The error of a library's status.
fn failed(library: &'static str, doing: &str, status: impl fmt::Debug) -> CudaError {
    CudaError::Library { library, doing: doing.to_owned(), status: format!("{status:?}") }
}

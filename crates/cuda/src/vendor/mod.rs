//! NVIDIA's own libraries, where they are installed: candidates beside our kernels, never a foundation. Without them
//! everything still runs.

mod cublaslt;
mod cudnn;

use std::{fmt, sync::Arc};

use crate::{
    CudaError,
    driver::{Context, Stream},
};

pub use cublaslt::{CublasLt, Product, ProductOperands};
pub use cudnn::{Convolution, ConvolutionOperands, Cudnn};

/// The libraries found for a context. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    /// Matrix products.
    pub cublaslt: Option<Arc<CublasLt>>,
    /// Convolutions.
    pub cudnn: Option<Arc<Cudnn>>,
}

impl Libraries {
    /// Looks for the libraries. One that is absent, too old or broken is left out.
    pub fn find(context: &Context) -> Libraries {
        Libraries {
            cublaslt: CublasLt::load(context).ok().flatten().map(Arc::new),
            cudnn: Cudnn::load(context).ok().flatten().map(Arc::new),
        }
    }
}

/// A call of a library with everything in place: it allocates nothing and can be captured into a CUDA graph.
pub trait LibraryCall: fmt::Debug + Send + Sync {
    /// Puts the call's work into a stream.
    ///
    /// # Errors
    /// Where the library refuses.
    fn enqueue(&self, stream: &Stream) -> Result<(), CudaError>;
}

/// The error of a library's status.
fn failed(library: &'static str, doing: &str, status: impl fmt::Debug) -> CudaError {
    CudaError::Library { library, doing: doing.to_owned(), status: format!("{status:?}") }
}

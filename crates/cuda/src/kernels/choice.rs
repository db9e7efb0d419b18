//! Which of the ways to run a node is taken.

use std::{fmt, sync::Arc};

use super::{Call, Implementation, KernelSet, implementations};
use crate::{Chip, CudaError, vendor::Libraries};

/// Chooses how each node runs. The plan and the program ask apart from each other, and rely on the same answer.
pub trait Choose: fmt::Debug + Send + Sync {
    /// The implementation for a call.
    ///
    /// # Errors
    /// Where there is none.
    fn choose(&self, call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError>;
}

/// The families' own choice, made by shape alone.
#[derive(Clone, Debug)]
pub struct Heuristic {
    /// The chip.
    pub chip: Chip,
    /// Which kernels run.
    pub kernels: KernelSet,
    /// The libraries there are; a family's own kernels come before theirs.
    pub libraries: Libraries,
}

impl Choose for Heuristic {
    fn choose(&self, call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError> {
        let mut offered = implementations(call, &self.chip, self.kernels, &self.libraries)?;
        // There is one, or the above is an error.
        Ok(offered.swap_remove(0).into())
    }
}

//! Which of the ways to run a node is taken.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Call, Implementation, KernelSet, implementations};
use crate::{Chip, CudaError, vendor::Libraries};

/// Chooses how each node runs.
pub trait Choose: fmt::Debug + Send + Sync {
    /// The implementation for a call.
    ///
    /// # Errors
    /// If there is none.
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

/// Another's choice, asked once for each call. The plan and the program ask apart from each other, and rely on the same
/// answer, whatever a tuner measures meanwhile.
#[derive(Debug)]
pub(crate) struct Settled {
    choice: Arc<dyn Choose>,
    made: Mutex<HashMap<String, Arc<dyn Implementation>>>,
}

impl Settled {
    pub fn new(choice: Arc<dyn Choose>) -> Settled {
        Settled { choice, made: Mutex::default() }
    }
}

impl Choose for Settled {
    fn choose(&self, call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError> {
        let signature = call.signature();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(implementation) = made.get(&signature) {
            return Ok(implementation.clone());
        }
        let implementation = self.choice.choose(call)?;
        made.insert(signature, implementation.clone());
        Ok(implementation)
    }
}

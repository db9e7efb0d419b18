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
    made: Mutex<HashMap<Alike, Arc<dyn Implementation>>>,
}

/// What calls have in common that are the same but for their names: a [signature](Call::signature) that costs less to make.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Alike {
    op: String,
    /// Of the operands and then of the results: how many, and of each the element type, the rank and the extents.
    types: Vec<usize>,
}

impl Alike {
    fn new(call: &Call<'_>) -> Alike {
        let mut types = Vec::with_capacity(64);
        for side in [call.inputs, call.outputs] {
            types.push(side.len());
            for ty in side {
                types.extend([ty.dtype as usize, ty.shape.len()]);
                types.extend_from_slice(&ty.shape);
            }
        }
        Alike { op: call.op_text(), types }
    }
}

impl Settled {
    pub fn new(choice: Arc<dyn Choose>) -> Settled {
        Settled { choice, made: Mutex::default() }
    }
}

impl Choose for Settled {
    fn choose(&self, call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError> {
        let alike = Alike::new(call);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(implementation) = made.get(&alike) {
            return Ok(implementation.clone());
        }
        let implementation = self.choice.choose(call)?;
        made.insert(alike, implementation.clone());
        Ok(implementation)
    }
}

//! The memory that a network holds, as a profile shows it.

use kinora_profile::Profiler;
use kinora_runtime::NetworkMemory;

/// What is held beside the networks.
pub(super) const WORKING: &str = "photo, latents and frames";

/// The owners of a network's memory, by their names in a profile.
pub(crate) struct Holding {
    weights: String,
    activations: String,
}

impl Holding {
    pub fn new(network: &str) -> Holding {
        Holding { weights: format!("{network}: weights"), activations: format!("{network}: activations") }
    }

    /// Records that the network holds this much from now on.
    pub fn begin(&self, profiler: &Profiler, memory: NetworkMemory) {
        profiler.holds(&self.weights, memory.weights);
        profiler.holds(&self.activations, memory.activations);
    }

    /// Records that the network no longer holds anything.
    pub fn end(&self, profiler: &Profiler) {
        self.begin(profiler, NetworkMemory::default());
    }
}

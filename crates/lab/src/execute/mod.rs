//! Where kernels run: a trait, a simulated device and a GPU.
//!
//! Everything above is the same for both. A device says what it can: the simulator finds what a kernel does wrong and counts what it
//! does, a GPU has a clock.

#[cfg(feature = "cuda")]
mod gpu;
mod simulated;

use kinora_ptx::{Counters, Finding, Prediction};
use serde::Serialize;

#[cfg(feature = "cuda")]
pub(crate) use gpu::FLUSH_BYTES;
#[cfg(feature = "cuda")]
pub use gpu::GpuDevice;
pub use simulated::SimulatedDevice;

use crate::compile::Compiled;

/// An address in a device's memory.
pub type Address = u64;

/// A module that a device has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleId(pub usize);

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The module that has the kernel.
    pub module: ModuleId,
    /// The kernel, as the code calls it.
    pub kernel: String,
    /// Blocks on each axis.
    pub grid: [u32; 3],
    /// Threads of a block on each axis.
    pub block: [u32; 3],
    /// Blocks of a cluster on each axis.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The bytes of each argument, in order; an address has eight.
    pub arguments: Vec<Vec<u8>>,
    /// Whether it may start before the launch in front of it has ended, where the chip can do that: its kernel waits by itself before it
    /// reads what that one writes, and before it writes.
    pub overlaps: bool,
}

/// What a launch did, as far as the device knows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Launched {
    /// What the kernel did wrong.
    pub findings: Vec<Finding>,
    /// What it cost.
    pub counters: Option<Counters>,
}

/// Why something did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// The device does not have the memory.
    #[error("{device} has no room for {bytes} bytes: {why}")]
    Memory {
        /// The device.
        device: String,
        /// What was asked for.
        bytes: usize,
        /// What it says.
        why: String,
    },
    /// The code cannot be loaded.
    #[error("the code cannot be loaded: {0}")]
    Load(String),
    /// The device refuses the launch.
    #[error("{0}")]
    Launch(String),
    /// A kernel ended the GPU's context: a bad address, say.
    #[error("the GPU stopped: {0}")]
    Fault(String),
    /// The device cannot do that.
    #[error("{0}")]
    Unsupported(String),
    /// Anything else that the device says.
    #[error("{0}")]
    Device(String),
}

/// Something that runs kernels.
pub trait Device {
    /// What it is called.
    fn name(&self) -> String;

    /// How many multiprocessors it has.
    fn multiprocessors(&self) -> usize;

    /// The most shared memory that a block may have, in bytes.
    fn shared_bytes(&self) -> usize;

    /// Whether it is simulated: then it finds accesses outside of allocations by itself, and has no clock.
    fn is_simulated(&self) -> bool;

    /// Allocates memory, whose contents are not known.
    ///
    /// # Errors
    /// If there is too little.
    fn allocate(&mut self, bytes: usize) -> Result<Address, ExecuteError>;

    /// Frees an allocation.
    ///
    /// # Errors
    /// If none starts there.
    fn free(&mut self, address: Address) -> Result<(), ExecuteError>;

    /// Copies bytes to the device.
    ///
    /// # Errors
    /// If they are not within one allocation, or the device failed.
    fn write(&mut self, to: Address, bytes: &[u8]) -> Result<(), ExecuteError>;

    /// Copies bytes from the device.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn read(&self, from: Address, into: &mut [u8]) -> Result<(), ExecuteError>;

    /// Which bytes were ever written, if the device knows.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn written(&self, from: Address, bytes: usize) -> Result<Option<Vec<bool>>, ExecuteError>;

    /// Loads code.
    ///
    /// # Errors
    /// If the device does not take it.
    fn load(&mut self, code: &Compiled) -> Result<ModuleId, ExecuteError>;

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// If the launch is refused or the device fails. What a simulated kernel does wrong is in the result.
    fn launch(&mut self, launch: &Launch) -> Result<Launched, ExecuteError>;

    /// How long a launch would take, if the device can tell without a clock.
    ///
    /// # Errors
    /// If the launch would be refused.
    fn predict(&self, _launch: &Launch, _registers: Option<u32>) -> Result<Option<Prediction>, ExecuteError> {
        Ok(None)
    }
}

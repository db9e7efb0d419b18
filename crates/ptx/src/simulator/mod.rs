//! The simulated device: memory, modules, launches. Its interface follows the CUDA driver's.

mod earlier;
mod launch;
mod module;
mod progress;
mod schedule;

use std::sync::Arc;

pub(crate) use launch::unsupported;
pub use launch::{Argument, LaunchConfig, Report};
pub(crate) use module::Kernel;
pub use module::Module;
pub use progress::Progress;

use crate::{
    chip::ChipSpec,
    device_runtime::{DeviceHeap, DeviceLimits, OutputSink},
    error::PtxError,
    memory::{ArrayDescription, DeviceArray, FUNCTION_WINDOW, Global, TextureDescription, Textures},
};

/// An address in the simulated device's memory.
pub type DeviceAddress = u64;

/// The default limit of warp instructions per launch.
const STEPS: u64 = 4_000_000_000;

/// What a launch checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Races between threads, and missing fences.
    pub races: bool,
    /// Instructions that produce an infinity from finite operands, or a NaN from operands that are not NaN. Off by default, because
    /// many kernels do so on purpose.
    pub nonfinite: bool,
    /// Contraction: a `mul` and an `add` or `sub` without rounding modifiers are executed as one fused multiply-add where the assembler
    /// may make them one. Counts when a module is loaded. Off by default: then each is rounded.
    pub contract: bool,
    /// Warp instructions after which a launch is considered endless.
    pub steps: u64,
    /// Permutes the order in which blocks and warps run, so that results that depend on it show; 0 is the natural order. With the same
    /// seed, every run gives the same results.
    pub seed: u64,
    /// Whether counters are also kept by line, which takes longer.
    pub by_line: bool,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { races: true, nonfinite: false, contract: false, steps: STEPS, seed: 0, by_line: false }
    }
}

/// A simulated GPU.
#[derive(Debug)]
pub struct Simulator {
    chip: ChipSpec,
    checks: Checks,
    global: Global,
    progress: Option<Arc<Progress>>,
    /// What grid barriers of cooperative launches count in, once there was one.
    workspace: Option<DeviceAddress>,
    limits: DeviceLimits,
    /// The heap of `malloc`, once a kernel has used it.
    heap: Option<DeviceHeap>,
    /// Where the addresses of the next module's functions start.
    functions_end: u64,
    /// How many launches there were.
    launches: u64,
    sink: Option<OutputSink>,
    textures: Textures,
}

impl Simulator {
    /// A device with the default checks.
    pub fn new(chip: ChipSpec) -> Simulator {
        Simulator {
            chip,
            checks: Checks::default(),
            global: Global::default(),
            progress: None,
            workspace: None,
            limits: DeviceLimits::default(),
            heap: None,
            functions_end: FUNCTION_WINDOW,
            launches: 0,
            sink: None,
            textures: Textures::default(),
        }
    }

    /// Lets launches tell how far they are.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<Progress>) -> Simulator {
        self.progress = Some(progress);
        self
    }

    /// The memory that a cooperative launch's grid barrier counts in, as the driver provides it.
    fn workspace(&mut self) -> Result<DeviceAddress, PtxError> {
        const BYTES: usize = 64;
        let address = match self.workspace {
            Some(address) => address,
            None => self.global.allocate(BYTES)?,
        };
        self.workspace = Some(address);
        self.global.copy_in(address, &[0; BYTES])?;
        Ok(address)
    }

    /// Sets what launches check.
    #[must_use]
    pub fn with_checks(mut self, checks: Checks) -> Simulator {
        self.checks = checks;
        self
    }

    /// Sets the limits of the device's run-time library. That of the heap counts only before a kernel has used it.
    #[must_use]
    pub fn with_limits(mut self, limits: DeviceLimits) -> Simulator {
        self.limits = limits;
        self
    }

    /// Also gives what kernels print to a function, as they print it. Blocks that run at the same time may call it in any order; the
    /// [`Report`] has the same text in a fixed one.
    #[must_use]
    pub fn with_output(mut self, sink: impl Fn(&str) + Send + Sync + 'static) -> Simulator {
        self.sink = Some(OutputSink(Arc::new(sink)));
        self
    }

    /// The simulated chip.
    pub fn chip(&self) -> &ChipSpec {
        &self.chip
    }

    /// Allocates memory. Reading it before it is written is a finding.
    ///
    /// # Errors
    /// If the host does not have enough memory.
    pub fn allocate(&mut self, bytes: usize) -> Result<DeviceAddress, PtxError> {
        self.global.allocate(bytes)
    }

    /// Reserves addresses without memory behind them, any number of bytes: reads return zeros, writes are ignored. For
    /// [predictions](Simulator::predict) of launches whose tensors need not exist.
    pub fn reserve(&mut self, bytes: usize) -> DeviceAddress {
        self.global.reserve(bytes)
    }

    /// Frees an allocation. Its addresses are never reused.
    ///
    /// # Errors
    /// If no allocation starts at the address.
    pub fn free(&mut self, address: DeviceAddress) -> Result<(), PtxError> {
        self.global.free(address)
    }

    /// Copies bytes to the device.
    ///
    /// # Errors
    /// If they are not within one allocation.
    pub fn copy_in(&mut self, address: DeviceAddress, from: &[u8]) -> Result<(), PtxError> {
        self.global.copy_in(address, from)
    }

    /// Copies bytes from the device.
    ///
    /// # Errors
    /// If they are not within one allocation.
    pub fn copy_out(&self, address: DeviceAddress, to: &mut [u8]) -> Result<(), PtxError> {
        self.global.copy_out(address, to)
    }

    /// Which of some bytes were ever written, by the host or by a kernel.
    ///
    /// # Errors
    /// If they are not within one allocation.
    pub fn written(&self, address: DeviceAddress, bytes: usize) -> Result<Vec<bool>, PtxError> {
        self.global.written(address, bytes)
    }

    /// Allocates memory for bytes and copies them there.
    ///
    /// # Errors
    /// As [`Simulator::allocate`].
    pub fn upload(&mut self, from: &[u8]) -> Result<DeviceAddress, PtxError> {
        let address = self.allocate(from.len())?;
        self.copy_in(address, from)?;
        Ok(address)
    }

    /// Allocates an array for textures and surfaces. Its texels are copied as those of any memory, at [`DeviceArray::address`].
    ///
    /// # Errors
    /// If there can be no such array, or the host does not have enough memory.
    pub fn array(&mut self, description: ArrayDescription) -> Result<DeviceArray, PtxError> {
        let address = self.allocate(description.bytes()?)?;
        Ok(DeviceArray { address, description })
    }

    /// Makes a texture, and returns its handle: what a `cudaTextureObject_t` is to a kernel.
    ///
    /// # Errors
    /// If there can be no such texture.
    pub fn texture(&mut self, description: &TextureDescription) -> Result<u64, PtxError> {
        Ok(self.textures.add_texture(description)?)
    }

    /// Makes a surface of an array, and returns its handle: what a `cudaSurfaceObject_t` is to a kernel.
    ///
    /// # Errors
    /// If there can be no such array.
    pub fn surface(&mut self, array: &DeviceArray) -> Result<u64, PtxError> {
        Ok(self.textures.add_surface(array)?)
    }
}

//! What can go wrong on a GPU.

use std::path::PathBuf;

use kinora_graph::{GraphError, Phase, plan::PlanError, plan::format_bytes};
use kinora_runtime::{DeviceError, DeviceErrorKind, RunError};

use crate::installed::NotFound;

/// Why a graph could not be prepared for a GPU or run there.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The graph itself is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No plan could be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What any backend may report: a missing input, a bad weight, a request to stop.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A tensor has an extent that exceeds the index type of the kernels.
    #[error("{0} is too large for the GPU kernels; make the clip smaller, or run this model on the CPU")]
    TooLarge(String),
    /// No such generation of GPUs.
    #[error("{0} is not a GPU architecture that Kinora knows; use sm_75, sm_80, sm_86, sm_89 or sm_90a")]
    UnknownArchitecture(String),

    /// The driver's library is not installed.
    #[error("no NVIDIA driver was found (libcuda is not installed); install the driver, or run on the CPU")]
    NoDriver,
    /// The driver is older than what the kernels need.
    #[error("the NVIDIA driver supports CUDA {found}, but Kinora needs {needed}; install a newer driver")]
    DriverTooOld {
        /// The CUDA version that the driver supports.
        found: String,
        /// The minimum that is needed.
        needed: String,
    },
    /// There is a driver, but no GPU.
    #[error(
        "the NVIDIA driver finds no GPU; check that CUDA_VISIBLE_DEVICES does not hide it, or run on the CPU"
    )]
    NoDevice,
    /// Access to the GPU was denied.
    #[error(
        "access to the GPU was denied: {reason}; check the permissions of /dev/nvidia*, or that the container was given the GPU"
    )]
    NoPermission {
        /// What was refused.
        reason: String,
    },
    /// There is no GPU with the requested number.
    #[error("there is no GPU {ordinal}; {}", gpus(*count))]
    NoSuchDevice {
        /// What was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The GPU is too old for every kernel.
    #[error("{name} has compute capability {major}.{minor}, but Kinora needs 7.5 or newer")]
    UnsupportedDevice {
        /// The GPU.
        name: String,
        /// Its compute capability.
        major: u32,
        /// The part after the point.
        minor: u32,
    },
    /// Code for one architecture was asked to run on a GPU of another.
    #[error(
        "{code} code does not run on {name} ({device}); compile for {device}, or use PTX for an older architecture"
    )]
    WrongArchitecture {
        /// What the code is for.
        code: String,
        /// The GPU.
        name: String,
        /// What it is.
        device: String,
    },
    /// The driver refused a call.
    #[error("{doing}: {name} ({code}): {text}")]
    Driver {
        /// What it was asked to do.
        doing: String,
        /// The error's number.
        code: u32,
        /// The error's name.
        name: String,
        /// What the driver says about it.
        text: String,
    },
    /// The GPU does not have enough free memory.
    #[error(
        "the GPU cannot allocate {} more: {} of its {} are free; close other programs that use the GPU, or ask for less",
        format_bytes(*need), format_bytes(*free), format_bytes(*total)
    )]
    OutOfMemory {
        /// The bytes asked for.
        need: usize,
        /// The bytes that are free.
        free: usize,
        /// The bytes there are.
        total: usize,
    },
    /// An earlier error destroyed the context, and everything in it is gone.
    #[error("the GPU's context was lost ({0}); open the device and load the program again")]
    ContextLost(String),
    /// The driver refuses this process a new context: after some faults the process must be restarted.
    #[error(
        "the GPU failed earlier in this process ({0}), and the driver needs a new process; restart the program, or run on the CPU"
    )]
    ProcessLost(String),
    /// The GPU failed while a program ran.
    #[error("{}: {source}", at(*phase, *replay, layer.as_deref()))]
    DuringRun {
        /// The phase.
        phase: Phase,
        /// Which run of the step phase it was, from 0.
        replay: u64,
        /// The layer, if known.
        layer: Option<String>,
        /// What happened.
        source: Box<CudaError>,
    },

    /// The kernel compiler is not installed.
    #[error(
        "NVIDIA's kernel compiler (NVRTC) {}; `pip install nvidia-cuda-nvrtc` installs it (nvidia-cuda-nvrtc-cu12 for a \
         driver of CUDA 12), or set KINORA_NVRTC to its path", source.what()
    )]
    NoCompiler {
        /// Where it was looked for, and why each place failed.
        source: NotFound,
    },
    /// The library that traces GPUs is not installed.
    #[error(
        "NVIDIA's tracing library (CUPTI) {}; `pip install nvidia-cuda-cupti` installs it, or set KINORA_CUPTI to its path",
        source.what()
    )]
    NoCupti {
        /// Where it was looked for, and why each place failed.
        source: NotFound,
    },
    /// The kernel compiler failed for a reason other than the source.
    #[error("NVRTC: {doing}: {reason}")]
    Compiler {
        /// What it was asked to do.
        doing: String,
        /// What it says.
        reason: String,
    },
    /// A kernel does not compile.
    #[error("{kernel} does not compile for {target}:\n{log}{}", specialised(specialisation))]
    Compile {
        /// The kernel: source and entry.
        kernel: String,
        /// What it was compiled for.
        target: String,
        /// The constants and the generated code.
        specialisation: String,
        /// The compiler's messages.
        log: String,
    },
    /// A kernel that must keep everything in registers spills.
    #[error(
        "{kernel} spills {bytes} bytes of registers on {target}; it was specialised with:\n{specialisation}"
    )]
    Spills {
        /// The kernel: source and entry.
        kernel: String,
        /// What it was compiled for.
        target: String,
        /// The constants and the generated code.
        specialisation: String,
        /// How many bytes it spills.
        bytes: u32,
    },
    /// A file or folder of kernels could not be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A kernel is missing from the bundle, and there is no compiler to make it.
    #[error(
        "the kernel bundle {} has no {kernel} for {target}; rebuild it with this version of Kinora and for \
         this architecture (`kinora kernels build`), or install NVRTC ({compiler})",
        bundle.display()
    )]
    NotInBundle {
        /// The bundle.
        bundle: PathBuf,
        /// The kernel: source and entry.
        kernel: String,
        /// What it is needed for.
        target: String,
        /// Why there is no compiler.
        compiler: String,
    },
    /// There is no kernel for an op.
    #[error("{layer}: there is no CUDA kernel for {op} on {inputs}")]
    NoKernel {
        /// The layer.
        layer: String,
        /// What it does.
        op: String,
        /// The types of its operands.
        inputs: String,
    },
    /// A single call found an invalid index in its data.
    #[error("invalid index {0}")]
    BadIndex(i32),
    /// The simulator refuses a kernel.
    #[cfg(feature = "simulator")]
    #[error("the simulated GPU: {0}")]
    Simulation(#[from] kinora_ptx::PtxError),
    /// A call to a vendor library, which has no PTX to simulate.
    #[cfg(feature = "simulator")]
    #[error("{0} calls a vendor library, which cannot be simulated")]
    NotSimulated(String),
    /// A vendor's library refused.
    #[error("{library} could not {doing}: {status}")]
    Library {
        /// The library.
        library: &'static str,
        /// What it was asked to do.
        doing: String,
        /// What it answered.
        status: String,
    },
    /// A bug in this crate.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl CudaError {
    /// The name of a header that a source includes and the compiler did not find.
    pub fn missing_header(&self) -> Option<&str> {
        let CudaError::Compile { log, .. } = self else { return None };
        let (_, named) = log.split_once("open source file \"")?;
        named.split_once('"').map(|(header, _)| header)
    }

    /// Whether the GPU has too little memory. The driver says so of code, streams and recorded graphs too.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            CudaError::OutOfMemory { .. } => true,
            CudaError::Driver { code, .. } => crate::driver::is_out_of_memory(*code),
            CudaError::DuringRun { source, .. } => source.is_out_of_memory(),
            _ => false,
        }
    }

    /// Whether the context is gone: the device has to be opened again.
    pub fn is_context_lost(&self) -> bool {
        match self {
            CudaError::ContextLost(_) => true,
            CudaError::Driver { code, .. } => crate::driver::ends_the_context(*code),
            CudaError::DuringRun { source, .. } => source.is_context_lost(),
            _ => false,
        }
    }
}

/// For callers that know nothing of GPUs: what every backend may report keeps its kind; the rest is a device error.
impl From<CudaError> for RunError {
    fn from(error: CudaError) -> Self {
        let kind = match error {
            CudaError::Graph(error) => return error.into(),
            CudaError::Plan(error) => return error.into(),
            CudaError::Run(error) => return error,
            _ if error.is_out_of_memory() => DeviceErrorKind::OutOfMemory,
            _ if error.is_context_lost() => DeviceErrorKind::Lost,
            _ => DeviceErrorKind::Other,
        };
        DeviceError::new(kind, error).into()
    }
}

fn gpus(count: usize) -> String {
    match count {
        0 => "the CUDA driver found none".to_owned(),
        1 => "the only one is 0".to_owned(),
        _ => format!("they are 0 to {}", count - 1),
    }
}

fn at(phase: Phase, replay: u64, layer: Option<&str>) -> String {
    let phase = match phase {
        Phase::Step => format!("step {replay}"),
        _ => format!("the {} phase", phase.name()),
    };
    match layer {
        Some(layer) => format!("{phase}, {layer}"),
        None => phase,
    }
}

/// What a source was specialised with, if anything.
fn specialised(with: &str) -> String {
    if with.is_empty() { String::new() } else { format!("\nspecialised with:\n{with}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_one_whatever_was_asked_for() {
        let refused = |code: u32| CudaError::Driver {
            doing: "load code".into(),
            code,
            name: String::new(),
            text: String::new(),
        };
        let during = |source| CudaError::DuringRun {
            phase: Phase::Clip,
            replay: 0,
            layer: None,
            source: Box::new(source),
        };
        let asked = || CudaError::OutOfMemory { need: 3, free: 2, total: 4 };
        // CUDA_ERROR_OUT_OF_MEMORY and CUDA_ERROR_INVALID_VALUE, as cuda.h numbers them.
        for error in [asked(), refused(2), during(asked()), during(refused(2))] {
            assert!(RunError::from(error).is_out_of_memory());
        }
        assert!(!RunError::from(refused(1)).is_out_of_memory());
    }

    #[test]
    fn a_missing_header_is_known_from_the_log() {
        let failed = |log: &str| CudaError::Compile {
            kernel: "k.cu".into(),
            target: "compute_80".into(),
            specialisation: String::new(),
            log: log.into(),
        };
        // The messages of NVRTC 13.0, without and with an include folder.
        for log in [
            "k.cu(1): catastrophic error: could not open source file \"cuda_fp16.h\" (no directories in search list)",
            "k.cu(1): catastrophic error: cannot open source file \"cuda_fp16.h\"\n  #include \"cuda_fp16.h\"",
        ] {
            assert_eq!(failed(log).missing_header(), Some("cuda_fp16.h"));
        }
        assert_eq!(failed("k.cu(3): error: identifier \"y\" is undefined").missing_header(), None);
        assert_eq!(CudaError::NoDriver.missing_header(), None);
    }
}

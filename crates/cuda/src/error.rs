//! What can go wrong on a GPU.

use std::path::PathBuf;

use kinora_graph::{GraphError, Phase, plan::PlanError, plan::format_bytes};
use kinora_runtime::{DeviceError, DeviceErrorKind, RunError};

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
    /// A tensor has an extent beyond what a kernel counts with.
    #[error(
        "{0} is more than the GPU kernels can count; make the clip smaller, or run this model on the CPU"
    )]
    TooLarge(String),
    /// No such generation of GPUs.
    #[error("{0} is no GPU architecture that Kinora knows; write it as sm_75, sm_80, sm_86, sm_89 or sm_90a")]
    UnknownArchitecture(String),

    /// The driver's library is not installed.
    #[error(
        "no NVIDIA driver was found (libcuda is not on this machine); install the driver, or run on the CPU"
    )]
    NoDriver,
    /// The driver is older than what the kernels need.
    #[error("the NVIDIA driver supports CUDA {found}, and Kinora needs {needed}; install a newer driver")]
    DriverTooOld {
        /// The CUDA version that the driver supports.
        found: String,
        /// The least that is needed.
        needed: String,
    },
    /// There is a driver, but no GPU.
    #[error(
        "the NVIDIA driver finds no GPU; check that CUDA_VISIBLE_DEVICES does not hide it, or run on the CPU"
    )]
    NoDevice,
    /// The GPU may not be used.
    #[error(
        "the GPU may not be used: {reason}; check the rights on /dev/nvidia*, or that the container was given the GPU"
    )]
    NoPermission {
        /// What was refused.
        reason: String,
    },
    /// The number asked for is not a GPU's.
    #[error("there is no GPU {ordinal}; {}", gpus(*count))]
    NoSuchDevice {
        /// What was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The GPU is older than any kernel is written for.
    #[error("{name} has compute capability {major}.{minor}, and Kinora needs 7.5 or newer")]
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
        "{code} code does not run on {name} ({device}); choose that architecture, or PTX of an older one"
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
        /// What was asked of it.
        doing: String,
        /// The error's number.
        code: u32,
        /// The error's name.
        name: String,
        /// What the driver says about it.
        text: String,
    },
    /// The GPU's memory does not suffice.
    #[error(
        "the GPU has no room for {} more: {} of its {} are free; close what else uses the GPU, or ask for less",
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
    /// An earlier error has ended the context, and everything in it is gone.
    #[error("the GPU's context was lost ({0}); open the device again and load the program anew")]
    ContextLost(String),
    /// The driver gives this process no new context: after some faults it wants the process to be started again.
    #[error(
        "the GPU failed earlier in this process ({0}), and its driver wants a new one; start the program again, or run on the CPU"
    )]
    ProcessLost(String),
    /// The GPU failed while a program ran.
    #[error("{}: {source}", at(*phase, *replay, layer.as_deref()))]
    DuringRun {
        /// The phase.
        phase: Phase,
        /// Which run of the step phase it was, from 0.
        replay: u64,
        /// The layer, where it is known.
        layer: Option<String>,
        /// What happened.
        source: Box<CudaError>,
    },

    /// The kernel compiler is not installed.
    #[error(
        "NVIDIA's kernel compiler (NVRTC) was not found; install it with `pip install nvidia-cuda-nvrtc` into a \
         virtual environment that is active, or install the CUDA toolkit, or name the library in KINORA_NVRTC, or use \
         a bundle of compiled kernels. Looked for:\n{}",
        tried.join("\n")
    )]
    NoCompiler {
        /// Where it was looked for, and why each place did not do.
        tried: Vec<String>,
    },
    /// The library that traces GPUs is not installed.
    #[error(
        "NVIDIA's tracing library (CUPTI) was not found; install it with `pip install nvidia-cuda-cupti` into a virtual \
         environment that is active, or install the CUDA toolkit, or name the library in KINORA_CUPTI. Looked for:\n{}",
        tried.join("\n")
    )]
    NoCupti {
        /// Where it was looked for, and why each place did not do.
        tried: Vec<String>,
    },
    /// The kernel compiler could not do its work for a reason that is not the source's.
    #[error("NVRTC: {doing}: {reason}")]
    Compiler {
        /// What was asked of it.
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
    /// A kernel that must hold everything in registers does not.
    #[error("{kernel} spills {bytes} bytes of registers on {target}; specialised with:\n{specialisation}")]
    Spills {
        /// The kernel: source and entry.
        kernel: String,
        /// What it was compiled for.
        target: String,
        /// The constants and the generated code.
        specialisation: String,
        /// How much it stores and loads again.
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
    /// A bundle of compiled kernels lacks one, and there is no compiler to make it.
    #[error(
        "the kernel bundle {} lacks {kernel} for {target}; build the bundle again with this version of Kinora and for \
         this architecture (`kinora kernels build`), or install NVRTC ({compiler})",
        bundle.display()
    )]
    NotInBundle {
        /// The bundle.
        bundle: PathBuf,
        /// The kernel: source and entry.
        kernel: String,
        /// What it was wanted for.
        target: String,
        /// Why there is no compiler.
        compiler: String,
    },
    /// No kernel runs an op.
    #[error("{layer}: no CUDA kernel runs {op} on {inputs}")]
    NoKernel {
        /// The layer.
        layer: String,
        /// What it does.
        op: String,
        /// The types of its operands.
        inputs: String,
    },
    /// A call that ran by itself found an index in its data that is none.
    #[error("the bad index {0}")]
    BadIndex(i32),
    /// The simulator refuses a kernel.
    #[error("the simulated GPU: {0}")]
    Simulation(#[from] kinora_ptx::PtxError),
    /// A call to a vendor library, which has no PTX to simulate.
    #[error("{0} calls a vendor library, which cannot be simulated")]
    NotSimulated(String),
    /// A vendor's library refused.
    #[error("{library} could not {doing}: {status}")]
    Library {
        /// The library.
        library: &'static str,
        /// What it was asked for.
        doing: String,
        /// What it answered.
        status: String,
    },
    /// A mistake of this crate's own.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl CudaError {
    /// The header that a source includes and the compiler does not find.
    pub fn missing_header(&self) -> Option<&str> {
        let CudaError::Compile { log, .. } = self else { return None };
        let (_, named) = log.split_once("open source file \"")?;
        named.split_once('"').map(|(header, _)| header)
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

/// For callers that know no GPU: what every backend may report keeps its kind, the rest is an error of the device.
impl From<CudaError> for RunError {
    fn from(error: CudaError) -> Self {
        let kind = match error {
            CudaError::Graph(error) => return error.into(),
            CudaError::Plan(error) => return error.into(),
            CudaError::Run(error) => return error,
            CudaError::OutOfMemory { .. } => DeviceErrorKind::OutOfMemory,
            _ if error.is_context_lost() => DeviceErrorKind::Lost,
            _ => DeviceErrorKind::Other,
        };
        DeviceError::new(kind, error).into()
    }
}

fn gpus(count: usize) -> String {
    match count {
        0 => "there are none".to_owned(),
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

/// What a source was specialised with, where it was.
fn specialised(with: &str) -> String {
    if with.is_empty() { String::new() } else { format!("\nspecialised with:\n{with}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_header_is_known_from_the_log() {
        let failed = |log: &str| CudaError::Compile {
            kernel: "k.cu".into(),
            target: "compute_80".into(),
            specialisation: String::new(),
            log: log.into(),
        };
        // As NVRTC 13.0 says it, where it was given no folder of headers and where it was given one.
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

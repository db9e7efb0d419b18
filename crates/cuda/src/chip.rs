//! What a kernel has to know about the GPU that it is written for.

use std::{fmt, str::FromStr};

use crate::CudaError;

/// A generation of GPUs: the compute capability, 75 for 7.5. A kernel has a path for each that matters to it; a newer
/// chip takes the newest path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Architecture(pub u32);

impl Architecture {
    /// T4 and its like: m16n8k8 matrix instructions for f16.
    pub const TURING: Architecture = Architecture(75);
    /// A100: m16n8k16 for f16 and bf16, asynchronous copies to shared memory.
    pub const AMPERE: Architecture = Architecture(80);
    /// RTX 40 and L4: products of e4m3.
    pub const ADA: Architecture = Architecture(89);
    /// H100 and H200: wgmma, the matrix instructions of a warpgroup, and TMA.
    pub const HOPPER: Architecture = Architecture(90);

    /// The generations that the tests compile every kernel for.
    pub const TESTED: [Architecture; 5] =
        [Architecture(75), Architecture(80), Architecture(86), Architecture(89), Architecture(90)];

    /// Whether the chip has Hopper's own instructions. No other generation has them, not even a later one.
    pub fn is_hopper(self) -> bool {
        self.0 == 90
    }

    /// The compiler's suffix: `90a` if instructions of that generation alone are used, otherwise a plain number such as
    /// `80`.
    pub fn suffix(self) -> String {
        if self.is_hopper() { format!("{}a", self.0) } else { self.0.to_string() }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.suffix())
    }
}

impl FromStr for Architecture {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        let digits = text.strip_prefix("sm_").unwrap_or(text).trim_end_matches('a');
        match digits.parse() {
            Ok(number @ 75..=129) => Ok(Architecture(number)),
            _ => Err(CudaError::UnknownArchitecture(text.to_owned())),
        }
    }
}

/// What the compiler makes for an architecture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeForm {
    /// Machine code, which runs on that architecture alone.
    #[default]
    Cubin,
    /// Virtual code, which the driver translates for the actual chip. This is how an older chip's path runs on a newer
    /// one.
    Ptx,
}

/// What choosing and launching kernels need to know about a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chip {
    /// The generation whose paths run. It may be older than the GPU if the code form is PTX.
    pub architecture: Architecture,
    /// The form that kernels are compiled to.
    pub form: CodeForm,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// The most shared memory that a block may request, in bytes.
    pub shared_bytes: u32,
}

impl Chip {
    /// A typical chip of a generation: for plans and tests without a device.
    pub fn typical(architecture: Architecture) -> Chip {
        let (multiprocessors, shared_bytes) = match architecture.0 {
            ..80 => (40, 64 << 10),
            80 => (108, 163 << 10),
            81..89 => (82, 99 << 10),
            89 => (128, 99 << 10),
            _ => (132, 227 << 10),
        };
        Chip { architecture, form: CodeForm::Cubin, multiprocessors, shared_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_read_as_the_compiler_writes_them() {
        for (text, number) in [("sm_75", 75), ("sm_90a", 90), ("86", 86), ("sm_120", 120)] {
            assert_eq!(text.parse::<Architecture>().ok(), Some(Architecture(number)));
        }
        for text in ["", "sm_", "sm_70", "volta", "sm_999"] {
            assert!(text.parse::<Architecture>().is_err(), "{text}");
        }
        assert_eq!(Architecture(90).to_string(), "sm_90a");
        assert_eq!(Architecture(86).to_string(), "sm_86");
    }
}

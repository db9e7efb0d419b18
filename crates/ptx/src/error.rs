//! Errors before a kernel runs. What it does wrong while it runs is a [`Finding`](crate::Finding).

use std::fmt;

use crate::{
    check::SourceLine,
    memory::{TensorMapError, TextureError},
};

/// A position in a text; line and column count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column, in bytes.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a module cannot be loaded or a kernel launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// The text is not PTX.
    #[error("PTX {place}: {what}")]
    Syntax {
        /// Where.
        place: Place,
        /// What is wrong.
        what: String,
    },
    /// The syntax is right, but the meaning is not: an unknown register, operands of the wrong type.
    #[error("PTX {place}: {what}, in `{instruction}`")]
    Meaning {
        /// Where.
        place: Place,
        /// What is wrong.
        what: String,
        /// The instruction.
        instruction: String,
    },
    /// An instruction, or a form of one, that the simulator does not support.
    #[error("PTX {place}{}: the simulator does not support {what}, in `{instruction}`", in_source(source_line.as_ref()))]
    Unsupported {
        /// Where.
        place: Place,
        /// What is not supported.
        what: String,
        /// The instruction.
        instruction: String,
        /// The source line, if the PTX has line information.
        source_line: Option<SourceLine>,
    },
    /// The module has no such kernel.
    #[error("the module has no kernel {name}; it has {}", there.join("; "))]
    NoKernel {
        /// The name that was asked for.
        name: String,
        /// The names of the module's kernels.
        there: Vec<String>,
    },
    /// Several kernels of the module are called like this.
    #[error("the module has several kernels {name}: {}; give one of these names in full", there.join("; "))]
    SeveralKernels {
        /// The name that was asked for.
        name: String,
        /// The names of those kernels.
        there: Vec<String>,
    },
    /// A launch that the chip would refuse.
    #[error("kernel {kernel} cannot be launched: {what}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// What is wrong.
        what: String,
    },
    /// Device memory that does not exist, or cannot be allocated.
    #[error("device memory: {0}")]
    Memory(String),
    /// A tensor map that the driver would refuse.
    #[error("invalid tensor map: {0}")]
    TensorMap(#[from] TensorMapError),
    /// An array or a texture that the driver would refuse.
    #[error("invalid texture: {0}")]
    Texture(#[from] TextureError),
}

/// A source line in brackets.
fn in_source(source: Option<&SourceLine>) -> String {
    source.map_or_else(String::new, |at| format!(" ({}:{})", at.file, at.line))
}

impl PtxError {
    pub(crate) fn syntax(place: Place, what: String) -> PtxError {
        PtxError::Syntax { place, what }
    }

    /// The position in the PTX, if the error is about its text.
    pub fn place(&self) -> Option<Place> {
        match self {
            PtxError::Syntax { place, .. }
            | PtxError::Meaning { place, .. }
            | PtxError::Unsupported { place, .. } => Some(*place),
            _ => None,
        }
    }
}

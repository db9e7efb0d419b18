//! What can go wrong when a network is prepared or run, on any device.

use std::{error::Error, fmt, sync::Arc};

use kinora_graph::{GraphError, ParameterError, Phase, TensorType, plan::PlanError};

/// Why a network could not be prepared or run. A caller's own request to stop is reported here too:
/// [`RunError::Stopped`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The graph itself is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No plan could be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An input was not given.
    #[error("input {name} ({ty}) was not given")]
    MissingInput {
        /// The input.
        name: String,
        /// Its type.
        ty: TensorType,
    },
    /// A weight was not given.
    #[error("weight {name} ({ty}) is missing from the model")]
    MissingParameter {
        /// The parameter.
        name: String,
        /// Its type.
        ty: TensorType,
    },
    /// A weight could not be read.
    #[error("weight {name}: {source}")]
    Parameter {
        /// The parameter.
        name: String,
        /// What the source of the weights says.
        source: ParameterError,
    },
    /// An input was given that the graph does not have.
    #[error("the graph has no input {0}")]
    UnknownInput(String),
    /// An input was given to a phase that does not take it and would silently ignore it.
    #[error("input {name} belongs to the {} phase", phase.name())]
    OtherPhase {
        /// The input.
        name: String,
        /// The phase that takes it.
        phase: Phase,
    },
    /// A tensor is not what the graph declares.
    #[error("{name} must be {expected}, got {got}")]
    WrongType {
        /// The input or parameter.
        name: String,
        /// What the graph declares.
        expected: TensorType,
        /// What was given.
        got: TensorType,
    },
    /// A weight holds a NaN or an infinity.
    #[error(
        "weight {name} is not finite at element {index}: the file is damaged, or its precision overflowed"
    )]
    NonFinite {
        /// The parameter.
        name: String,
        /// The first such element.
        index: usize,
    },
    /// A token id is outside its table.
    #[error("{layer}: token {id} is outside the table of {rows} rows")]
    Token {
        /// The layer.
        layer: String,
        /// The id.
        id: i32,
        /// The table's rows.
        rows: usize,
    },
    /// A step is outside the sampler's table.
    #[error("{layer}: step {step} is outside the sampler's table of {steps} steps")]
    SamplerStep {
        /// The layer.
        layer: String,
        /// The step.
        step: i32,
        /// The table's rows.
        steps: usize,
    },
    /// A frame was run before a row of frames began.
    #[error("a frame was run before begin_frames")]
    FramesNotBegun,
    /// The step phase was run before the clip phase that it reads from.
    #[error("the clip's inputs were never given: run the clip phase before the first step")]
    ClipNotRun,
    /// A result was named that the graph does not have.
    #[error("the graph has no output {0}")]
    UnknownOutput(String),
    /// An input that needs a value for each step does not have that many.
    #[error("{input} has {got} values for {steps} steps; give one for each")]
    FreshCount {
        /// The input.
        input: String,
        /// How many were given.
        got: usize,
        /// How many are needed.
        steps: usize,
    },
    /// The caller stopped the work.
    #[error("stopped")]
    Stopped,
    /// The host does not have enough memory.
    #[error("could not allocate {bytes} bytes of memory")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// The system does not let the program start a thread to work with.
    #[error(
        "cannot start a thread to work with: {reason}; allow more processes (`ulimit -u`) or more memory (`ulimit -v`)"
    )]
    Threads {
        /// What the system says.
        reason: String,
    },
    /// The device failed, or refused the network.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An invariant between the plan and the program does not hold: a bug in Kinora, which no input should cause.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl RunError {
    /// Whether memory ran out, according to the plan or on the device.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            RunError::OutOfMemory { .. } | RunError::Plan(PlanError::TooLarge) => true,
            RunError::Device(error) => error.kind() == DeviceErrorKind::OutOfMemory,
            _ => false,
        }
    }
}

/// A device's error, for callers that do not know which kind of device it is. [`DeviceError::downcast_ref`] returns the
/// device's own error.
#[derive(Clone, Debug)]
pub struct DeviceError {
    kind: DeviceErrorKind,
    source: Arc<dyn Error + Send + Sync>,
}

/// What a caller can do about a [`DeviceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// Ask for less: the device's memory is full.
    OutOfMemory,
    /// Open the device again: everything on it is gone.
    Lost,
    /// Read the message.
    Other,
}

impl DeviceError {
    /// An error of a device.
    pub fn new(kind: DeviceErrorKind, source: impl Error + Send + Sync + 'static) -> DeviceError {
        DeviceError { kind, source: Arc::new(source) }
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> DeviceErrorKind {
        self.kind
    }

    /// The device's own error, if it is of this type.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for DeviceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// Two are equal if they say the same.
impl PartialEq for DeviceError {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.to_string() == other.to_string()
    }
}

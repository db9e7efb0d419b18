//! What can go wrong when a graph runs on the CPU.

use kinora_graph::{GraphError, ParameterError, Phase, TensorType, plan::PlanError};

/// Why a graph could not be prepared or run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CpuError {
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
    /// A name was given that the graph does not have.
    #[error("the graph has no input {0}")]
    UnknownInput(String),
    /// An input was given to a phase that does not take it: it would be left out in silence.
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
    /// The step phase was run before the clip phase that it reads from.
    #[error("the clip's inputs were never given: run the clip phase before the first step")]
    ClipNotRun,
    /// A result was named that the graph does not have.
    #[error("the graph has no output {0}")]
    UnknownOutput(String),
    /// An input that is to have a value of its own for each step does not have as many.
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
    /// The memory could not be had.
    #[error("could not allocate {bytes} bytes of memory")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// A promise between the plan and the program does not hold: a fault of this crate, which no input should cause.
    #[error("internal error: {0}")]
    Internal(String),
}

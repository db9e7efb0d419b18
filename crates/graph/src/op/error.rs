//! Why an op refuses its operands.

use crate::{DType, Shape};

/// Why an op refuses its operands or attributes. The builder adds the layer's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The number of operands is wrong.
    #[error("takes {expected} operands, got {got}")]
    OperandCount {
        /// How many it takes.
        expected: usize,
        /// How many it was given.
        got: usize,
    },
    /// The activation's channels are not what the weight was made for.
    #[error("expected {expected} input channels, got {got}")]
    InputChannels {
        /// The weight's input channels.
        expected: usize,
        /// The activation's channels.
        got: usize,
    },
    /// An operand has the wrong number of axes.
    #[error("{operand} must have {expected} axes, got {got}")]
    Rank {
        /// Which operand.
        operand: &'static str,
        /// How many axes it must have, in words.
        expected: &'static str,
        /// Its shape.
        got: Shape,
    },
    /// An operand has the wrong element type.
    #[error("{operand} must be {expected}, got {got}")]
    DType {
        /// Which operand.
        operand: &'static str,
        /// What it must be, in words.
        expected: &'static str,
        /// Its element type.
        got: DType,
    },
    /// An operand has the wrong shape.
    #[error("{operand} must be {expected}, got {got}")]
    Shape {
        /// Which operand.
        operand: &'static str,
        /// The shape it must have.
        expected: Shape,
        /// Its shape.
        got: Shape,
    },
    /// Two operands do not broadcast together.
    #[error("{a} and {b} do not broadcast to one shape")]
    Broadcast {
        /// The first operand's shape.
        a: Shape,
        /// The second operand's shape.
        b: Shape,
    },
    /// A count does not divide another.
    #[error("{what} ({value}) must be a multiple of {by}")]
    NotDivisible {
        /// What is divided.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The divisor.
        by: usize,
    },
    /// The window is larger than the padded input.
    #[error("the {axis} window of {window} does not fit the padded extent of {extent}")]
    Window {
        /// Which axis.
        axis: &'static str,
        /// The dilated window.
        window: usize,
        /// The padded input extent.
        extent: usize,
    },
    /// An attribute has a value that is not defined for the op.
    #[error("{0}")]
    Attribute(String),
    /// The result would not fit the address space.
    #[error("the result {0} is too large to address")]
    TooLarge(Shape),
}

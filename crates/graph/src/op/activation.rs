//! Pointwise functions of one value.

use serde::{Deserialize, Serialize};

/// A pointwise function of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x · sigmoid(x)`
    Silu,
    /// `x · Φ(x)`, by the error function.
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// `x · sigmoid(1.702 x)`
    QuickGelu,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// Every activation, for tables of tests.
    pub const ALL: [Activation; 7] = [
        Activation::Relu,
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::QuickGelu,
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    /// The name in graph text.
    pub const fn name(self) -> &'static str {
        match self {
            Activation::Relu => "relu",
            Activation::Silu => "silu",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::QuickGelu => "quick_gelu",
            Activation::Sigmoid => "sigmoid",
            Activation::Tanh => "tanh",
        }
    }
}

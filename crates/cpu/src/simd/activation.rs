//! Activations as types, so that a loop is compiled for each and decides nothing inside.
//!
//! A closure would not do: it does not inherit the instruction set of the function around it, and what the compiler then
//! leaves as calls costs more than the arithmetic.

use super::{Simd, math};

/// A function of one value, on vectors.
pub(crate) trait Function: Default + Copy + Send + Sync {
    fn of<S: Simd>(simd: S, x: S::F32) -> S::F32;
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = |$simd:ident, $x:ident| $body:expr;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Default)]
        pub(crate) struct $name;

        impl Function for $name {
            #[inline(always)]
            fn of<S: Simd>($simd: S, $x: S::F32) -> S::F32 {
                $body
            }
        })*
    };
}

functions! {
    /// No activation.
    Identity = |_simd, x| x;
    /// In this order `max` keeps a NaN.
    Relu = |simd, x| simd.max(simd.zero(), x);
    Silu = |simd, x| math::silu(simd, x);
    Gelu = |simd, x| math::gelu_erf(simd, x);
    /// For values that are rounded to bfloat16 at once.
    GeluToBf16 = |simd, x| math::gelu_erf_to_bf16(simd, x);
    GeluTanh = |simd, x| math::gelu_tanh(simd, x);
    QuickGelu = |simd, x| math::quick_gelu(simd, x);
    Sigmoid = |simd, x| math::sigmoid(simd, x);
    Tanh = |simd, x| math::tanh(simd, x);
}

/// Runs a block with a type standing for an activation found at run time: `with_activation!(op.activation, A => …)`.
macro_rules! with_activation {
    ($activation:expr, $function:ident => $body:expr) => {{
        use kinora_graph::op::Activation;
        use $crate::simd::activation as functions;
        macro_rules! with {
            ($name:ident) => {{
                type $function = functions::$name;
                $body
            }};
        }
        match $activation {
            None => with!(Identity),
            Some(Activation::Relu) => with!(Relu),
            Some(Activation::Silu) => with!(Silu),
            Some(Activation::Gelu) => with!(Gelu),
            Some(Activation::GeluTanh) => with!(GeluTanh),
            Some(Activation::QuickGelu) => with!(QuickGelu),
            Some(Activation::Sigmoid) => with!(Sigmoid),
            Some(Activation::Tanh) => with!(Tanh),
        }
    }};
}
pub(crate) use with_activation;

//! What the graph's types and activations are called in CUDA sources.

use kinora_graph::{DType, op::Activation};

/// The element type's name in `common/numbers.cuh`.
pub(crate) fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F8E4M3 => "e4m3",
        DType::U8 => "u8",
        DType::I32 => "i32",
    }
}

/// The function's name in `common/activations.cuh`; `identity` if there is none.
pub(crate) fn activation_name(activation: Option<Activation>) -> &'static str {
    match activation {
        None => "identity",
        Some(Activation::Relu) => "relu",
        Some(Activation::Silu) => "silu",
        Some(Activation::Gelu) => "gelu",
        Some(Activation::GeluTanh) => "gelu_tanh",
        Some(Activation::QuickGelu) => "quick_gelu",
        Some(Activation::Sigmoid) => "sigmoid",
        // `tanh` is the compiler's own, for doubles.
        Some(Activation::Tanh) => "hyperbolic_tangent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_have_every_name() {
        let numbers = include_str!("common/numbers.cuh");
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::U8, DType::I32] {
            let name = type_name(dtype);
            let known = [format!(" {name};\n"), format!("struct {name} {{")];
            assert!(known.iter().any(|text| numbers.contains(text)), "{name}");
        }
        let activations = include_str!("common/activations.cuh");
        for activation in Activation::ALL.map(Some).into_iter().chain([None]) {
            let name = activation_name(activation);
            assert!(activations.contains(&format!("float {name}(float x)")), "{name}");
        }
    }
}

//! Random tensors, the same every time.

use kinora_graph::{DType, Graph, Shape, Tensor, TensorType};
use kinora_runtime::Tensors;

/// A weight for every parameter, of the size that keeps activations near 1; norms scale by 1 and shift by 0.
pub fn random(graph: &Graph) -> Tensors {
    graph
        .parameters()
        .enumerate()
        .map(|(i, (_, value))| {
            let shape = &value.ty.shape;
            let fan_in = shape.get(1..).map_or(1, |rest| rest.iter().product::<usize>().max(1));
            let tensor = if shape.len() > 1 {
                normal(value.ty.dtype, shape, 1.0 / (fan_in as f32).sqrt(), i as u64)
            } else {
                let scales = value.name.contains("norm") && value.name.ends_with("weight");
                constant(&value.ty, if scales { 1.0 } else { 0.0 })
            };
            (value.name.clone(), tensor)
        })
        .collect()
}

/// Normally distributed values, nearly: the sum of four uniform ones.
pub fn normal(dtype: DType, shape: &[usize], deviation: f32, seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let shape = Shape::from(shape);
    // Four uniform values in -1..1 have a variance of 4/3.
    let scale = deviation / (4.0f32 / 3.0).sqrt();
    let values: Vec<f32> =
        (0..shape.elements()).map(|_| scale * (uniform() + uniform() + uniform() + uniform())).collect();
    filled(dtype, shape, &values)
}

fn constant(ty: &TensorType, value: f32) -> Tensor {
    filled(ty.dtype, ty.shape.clone(), &vec![value; ty.elements()])
}

/// There are as many values as the shape has elements.
fn filled(dtype: DType, shape: Shape, values: &[f32]) -> Tensor {
    let ty = TensorType::new(dtype, shape.clone());
    Tensor::from_f32(dtype, shape, values).unwrap_or_else(|_| Tensor::zeros(ty))
}

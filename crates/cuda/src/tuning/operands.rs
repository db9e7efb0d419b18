//! What candidates are measured on: numbers that look random, and samples of what becomes of them.

use std::ops::Range;

use kinora_graph::{DType, Tensor, TensorType};

use crate::{CudaError, workbench::PreparedCall};

/// Elements of a pattern: odd, so that no row of a tensor is like another.
const PATTERN: usize = (1 << 18) - 5;

/// Elements of a result that are looked at at its beginning, in its middle and at its end.
const SAMPLE: usize = 1 << 17;

/// Numbers in -1..1 of a type, as bytes. Integers are zeros: an index or a step that every table has.
pub(super) fn pattern(dtype: DType, seed: u64) -> Vec<u8> {
    if matches!(dtype, DType::U8 | DType::I32) {
        return vec![0; PATTERN * dtype.size()];
    }
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678_9ABC_DEF1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..PATTERN).map(|_| next()).collect();
    Tensor::from_f32(dtype, [PATTERN], &values).map(|tensor| tensor.bytes().to_vec()).unwrap_or_default()
}

/// Which elements of a result are looked at.
pub(super) fn sampled(ty: &TensorType) -> Vec<Range<usize>> {
    let all = ty.elements();
    if all <= 3 * SAMPLE {
        return std::iter::once(0..all).collect();
    }
    [0, all / 2, all - SAMPLE].map(|from| from..from + SAMPLE).into()
}

/// These elements of a result.
pub(super) fn samples(
    prepared: &PreparedCall,
    output: usize,
    ty: &TensorType,
) -> Result<Vec<f32>, CudaError> {
    let size = ty.dtype.size();
    let mut values = Vec::new();
    for elements in sampled(ty) {
        let bytes = prepared.read_part(output, elements.start * size, elements.len() * size)?;
        let shape = [bytes.len() / size];
        let tensor = Tensor::from_bytes(TensorType::new(ty.dtype, shape), &bytes)
            .map_err(|error| CudaError::Internal(error.to_string()))?;
        values.extend(tensor.to_f32());
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_of_the_beginning_the_middle_and_the_end() {
        let of = |elements| sampled(&TensorType::new(DType::F16, [elements]));
        assert_eq!(of(0), std::slice::from_ref(&(0..0)));
        assert_eq!(of(3 * SAMPLE), std::slice::from_ref(&(0..3 * SAMPLE)));
        let all = 10 * SAMPLE + 1;
        assert_eq!(of(all), [0..SAMPLE, 5 * SAMPLE..6 * SAMPLE, all - SAMPLE..all]);
    }

    #[test]
    fn patterns_differ_from_operand_to_operand_and_stay_small() {
        let tensor = |seed| {
            let ty = TensorType::new(DType::F16, [PATTERN]);
            Tensor::from_bytes(ty, &pattern(DType::F16, seed)).map(|t| t.to_f32()).unwrap_or_default()
        };
        assert_ne!(tensor(0), tensor(1));
        assert!(tensor(0).iter().all(|x| x.abs() <= 1.0));
        assert!(pattern(DType::I32, 3).iter().all(|&byte| byte == 0));
    }
}

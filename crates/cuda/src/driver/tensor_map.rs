//! Descriptors for TMA.

use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType as DataType, CUtensorMapFloatOOBfill as Fill,
    CUtensorMapInterleave as Interleave, CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle as Swizzle,
};

use kinora_graph::DType;

use super::context::Context;
use crate::{
    CudaError,
    launch::{TensorMap, limits::TENSOR_MAP_AXES},
};

/// Makes the descriptor. What lies outside the tensor is read as zero.
pub(super) fn encode(context: &Context, map: &TensorMap) -> Result<CUtensorMap, CudaError> {
    let wrong = |what: &str| Err(CudaError::Internal(format!("a tensor map has {what}: {map:?}")));
    if !(1..=TENSOR_MAP_AXES).contains(&map.rank) {
        return wrong("a rank that is not 1 to 5");
    }
    let swizzle = match map.swizzle {
        0 => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => return wrong("a swizzle that is not 0, 32, 64 or 128 bytes"),
    };
    let element = match map.dtype {
        DType::F32 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F16 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::BF16 => DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        // TMA moves e4m3 as bytes: zeros have the same bits.
        DType::F8E4M3 | DType::U8 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        DType::I32 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
    };
    let every_element = [1u32; 5];
    let mut encoded = CUtensorMap { opaque: [0; 16] };
    let entered = context.enter()?;
    // SAFETY: the arrays have as many elements as the rank says, and the descriptor is aligned as its type demands. The
    // address is not touched.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut encoded,
            element,
            map.rank as u32,
            map.address.as_raw(),
            map.extents.as_ptr(),
            map.strides.as_ptr(),
            map.tile.as_ptr(),
            every_element.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    entered.check(code, &format!("describe {map:?} to TMA"))?;
    Ok(encoded)
}

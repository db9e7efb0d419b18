//! Running one op on poisoned memory and comparing it with the reference.

use kinora_graph::{DType, Op, Target, Tensor, TensorType, tensor::AlignedBytes};
use kinora_runtime::RunError;

use crate::{
    CpuTarget,
    fast::run,
    reference,
    simd::Isa,
    view::{View, ViewMut},
};

const POISON: u8 = 0xff;
/// Bytes after a result that must stay unchanged.
const GUARD: usize = 64;

/// Memory of a result, poisoned, with a guard after it.
struct Poisoned {
    ty: TensorType,
    bytes: AlignedBytes,
}

impl Poisoned {
    fn new(ty: TensorType) -> Self {
        let mut bytes = AlignedBytes::zeroed(ty.bytes() + GUARD);
        bytes.fill(POISON);
        Poisoned { ty, bytes }
    }

    fn into_tensor(self) -> Tensor {
        let (data, guard) = self.bytes.split_at(self.ty.bytes());
        assert!(guard.iter().all(|&byte| byte == POISON), "wrote behind {}", self.ty);
        Tensor::from_bytes(self.ty, data).unwrap()
    }
}

/// The op's results in poisoned memory. After an error the memory must still be poisoned.
pub(super) fn fast(isa: Isa, op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, RunError> {
    let types: Vec<&TensorType> = inputs.iter().map(Tensor::ty).collect();
    let mut memory: Vec<Poisoned> = op.infer(&types).unwrap().into_iter().map(Poisoned::new).collect();
    let views: Vec<View<'_>> = inputs.iter().map(View::of).collect();
    let outputs = memory
        .iter_mut()
        // SAFETY: memory of the type's size that only the kernel touches.
        .map(|memory| unsafe { ViewMut::new(&memory.ty, memory.bytes.as_mut_ptr()) })
        .collect();
    let done = run(isa, "layer", op, &views, None, outputs);
    if done.is_err() {
        assert!(memory.iter().all(|memory| memory.bytes.iter().all(|&byte| byte == POISON)), "{op} wrote");
    }
    done.map(|()| memory.into_iter().map(Poisoned::into_tensor).collect())
}

/// The op's result written over `operand`, or nothing if that is not allowed.
fn fast_in_place(isa: Isa, op: &Op, inputs: &[Tensor], operand: usize) -> Option<Tensor> {
    let types: Vec<&TensorType> = inputs.iter().map(Tensor::ty).collect();
    let ty = op.infer(&types).unwrap().swap_remove(0);
    let own = inputs[operand].ty();
    // As the plan does, whatever the types: an f16 may overwrite a bf16.
    let fits = own.elements() == ty.elements() && own.dtype.size() == ty.dtype.size();
    if !CpuTarget::default().in_place(op, operand) || !fits {
        return None;
    }
    let mut memory = Poisoned::new(ty);
    let bytes = memory.ty.bytes();
    memory.bytes[..bytes].copy_from_slice(inputs[operand].bytes());
    let data = memory.bytes.as_mut_ptr();
    let mut views: Vec<View<'_>> = inputs.iter().map(View::of).collect();
    // SAFETY: memory of both types' size that only the kernel touches, which works in place on it.
    let output = unsafe {
        views[operand] = View::new(own, data);
        ViewMut::new(&memory.ty, data)
    };
    run(isa, "layer", op, &views, None, vec![output]).unwrap();
    Some(memory.into_tensor())
}

fn tolerance(dtype: DType) -> f32 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F8E4M3 => 0.125,
        DType::U8 | DType::I32 => 0.0,
    }
}

/// Compares the op with the reference on every instruction set, and in place with out of place.
pub(super) fn check(op: &Op, inputs: &[Tensor]) {
    let references: Vec<&Tensor> = inputs.iter().collect();
    let want = reference::run("layer", op, &references).unwrap();
    for isa in Isa::available() {
        let got = fast(isa, op, inputs).unwrap();
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            let shown = || {
                let types: Vec<String> = inputs.iter().map(|x| x.ty().to_string()).collect();
                format!("{isa:?} {op} of {}", types.join(", "))
            };
            assert_eq!(got.ty(), want.ty());
            let (got, exact) = (got.to_f32(), want.to_f32());
            // A value that is the small difference of large ones is as exact as those.
            let squares: f64 = exact.iter().filter(|x| x.is_finite()).map(|&x| f64::from(x).powi(2)).sum();
            let mut typical = (squares / exact.len().max(1) as f64).sqrt() as f32;
            if let Op::SamplerStep(_) = op {
                // Its terms are about as large as its operands, which a single result does not show.
                let operands = inputs[..2].iter().flat_map(Tensor::to_f32);
                typical = operands.fold(typical, |largest, x| largest.max(x.abs()));
            }
            for (i, (&got, &want_value)) in got.iter().zip(&exact).enumerate() {
                let allowed = tolerance(want.dtype()) * want_value.abs().max(typical);
                let close = want_value.is_finite() && (got - want_value).abs() <= allowed;
                let same = got == want_value || got.is_nan() && want_value.is_nan();
                assert!(close || same, "{}: element {i} is {got}, not {want_value}", shown());
            }
        }
        for operand in 0..inputs.len() {
            if let Some(over) = fast_in_place(isa, op, inputs, operand) {
                assert_eq!(over.bytes(), got[0].bytes(), "{isa:?} {op} over operand {operand}");
            }
        }
    }
}

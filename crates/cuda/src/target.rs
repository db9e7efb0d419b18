//! What the GPU tells the passes and the plan.

use std::sync::Arc;

use kinora_graph::{
    Op, Target, TensorType,
    op::{Conv, Linear},
};

use crate::{
    Chip, CudaOptions,
    kernels::{self, Call, Choose, KernelSet},
};

/// Every buffer starts at a multiple of this: the widest access, and the unit of the GPU's memory.
pub(crate) const ALIGNMENT: usize = 256;

/// What a weight takes of their one allocation, up to where the next one may start; `None` if that cannot be counted.
pub(crate) fn weight_bytes(ty: &TensorType) -> Option<usize> {
    ty.bytes().checked_next_multiple_of(ALIGNMENT)
}

/// A GPU as a target of fusion and planning.
#[derive(Clone, Debug)]
pub struct CudaTarget {
    chip: Chip,
    kernels: KernelSet,
    measure_for_norms: bool,
    choice: Arc<dyn Choose>,
}

impl CudaTarget {
    /// The target that these options describe.
    pub fn new(options: &CudaOptions) -> CudaTarget {
        CudaTarget {
            chip: options.chip.clone(),
            kernels: options.kernels,
            measure_for_norms: options.measure_for_norms,
            choice: options.chooser(),
        }
    }
}

impl Target for CudaTarget {
    fn fuses(&self, op: &Op, inputs: &[&TensorType]) -> bool {
        if self.kernels == KernelSet::Baseline {
            return false;
        }
        if let Op::Linear(Linear { statistics: Some(statistics), .. })
        | Op::Conv(Conv { statistics: Some(statistics), .. }) = op
        {
            let Ok(results) = op.infer(inputs) else { return false };
            // Where a norm holds its groups whole it reads them once.
            return self.measure_for_norms
                && kernels::reads_twice(*statistics, &results[0], &self.chip)
                && kernels::has_statistics(op, inputs, &self.chip);
        }
        // A norm before a matrix product would stand between memory and the matrix units: it is written once instead.
        let prologue = match op {
            Op::Linear(Linear { quantised: Some(_), .. }) | Op::Conv(Conv { quantised: Some(_), .. }) => {
                return kernels::has_quantised(op, inputs, &self.chip);
            }
            Op::Linear(op) => op.prologue.is_some(),
            Op::Conv(op) if op.subpixel && !kernels::has_subpixel(op, inputs, &self.chip) => return false,
            Op::Conv(op) => op.prologue.is_some(),
            _ => false,
        };
        !prologue
    }

    fn workspace(&self, op: &Op, inputs: &[&TensorType], outputs: &[&TensorType]) -> usize {
        let call = Call { layer: "", op, inputs, outputs };
        if !call.runs() {
            return 0;
        }
        // If nothing runs the op, `Planned::new` says so, with the layer's name.
        self.choice.choose(&call).map_or(0, |implementation| implementation.workspace())
    }

    fn weight_bytes(&self, ty: &TensorType) -> usize {
        // What is more than can be counted is more than there is.
        weight_bytes(ty).unwrap_or(usize::MAX)
    }

    fn in_place(&self, op: &Op, operand: usize) -> bool {
        kernels::in_place(op, operand)
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        DType,
        op::{Activation, Affine, Norm, NormKind, Stage, Statistics},
    };

    use super::*;
    use crate::{Architecture, Chip};

    fn fuses(kernels: KernelSet, op: &Op) -> bool {
        let options = CudaOptions {
            kernels,
            ..CudaOptions::new(Chip::typical(Architecture::AMPERE), kinora_cpu::CpuOps::shared())
        };
        CudaTarget::new(&options).fuses(op, &[])
    }

    #[test]
    fn epilogues_and_gates_are_fused_and_norms_before_a_product_are_not() {
        let norm = Norm {
            kind: NormKind::Layer,
            epsilon: 1e-5,
            affine: Affine::ScaleShift,
            activation: None,
            quantise: None,
            measured: false,
        };
        let epilogue = vec![Stage::Add, Stage::Activate(Activation::Gelu)];
        let gated = Linear { gate: Some(Activation::Gelu), epilogue: epilogue.clone(), ..Linear::default() };
        assert!(fuses(KernelSet::Fused, &Op::Linear(gated.clone())));
        let conv = Conv { epilogue, ..Conv::spatial([3, 3], 1, 1) };
        assert!(fuses(KernelSet::Fused, &Op::Conv(conv.clone())));
        let normed = Linear { prologue: Some(norm), ..Linear::default() };
        assert!(!fuses(KernelSet::Fused, &Op::Linear(normed)));
        let normed = Conv { prologue: Some(norm), ..conv };
        assert!(!fuses(KernelSet::Fused, &Op::Conv(normed)));
        assert!(!fuses(KernelSet::Baseline, &Op::Linear(gated)));
    }

    #[test]
    fn a_product_measures_for_a_norm_that_would_read_twice() {
        let op = |groups, frames, conv: Conv| {
            Op::Conv(Conv { statistics: Some(Statistics { groups, frames }), ..conv })
        };
        let measures = |architecture, shape: [usize; 4], out, op: &Op, dtype| {
            let options = CudaOptions::new(Chip::typical(architecture), kinora_cpu::CpuOps::shared());
            let Op::Conv(Conv { kernel: [kt, kh, kw], .. }) = *op else { panic!("{op}") };
            let x = TensorType::new(dtype, shape);
            let weight = TensorType::new(dtype, [out, kt, kh, kw, shape[3]]);
            let asked = |options: &CudaOptions| CudaTarget::new(options).fuses(op, &[&x, &weight]);
            assert!(!asked(&CudaOptions { measure_for_norms: false, ..options.clone() }));
            assert!(!asked(&CudaOptions { kernels: KernelSet::Baseline, ..options.clone() }));
            asked(&options)
        };
        let (hopper, f16) = (Architecture::HOPPER, DType::F16);
        let image = op(32, 1, Conv::spatial([3, 3], 1, 1));
        let clip = op(32, 14, Conv::temporal(3, 14));
        // The autoencoder's.
        assert!(measures(hopper, [14, 576, 1024, 128], 128, &image, f16));
        assert!(measures(hopper, [14, 288, 512, 256], 256, &image, DType::BF16));
        assert!(measures(hopper, [14, 144, 256, 512], 512, &clip, f16));
        // A cluster holds these groups; ten channels are no whole fours; other types and generations.
        assert!(!measures(hopper, [14, 64, 64, 320], 640, &image, f16));
        assert!(!measures(hopper, [28, 72, 128, 320], 320, &clip, f16));
        assert!(!measures(hopper, [14, 576, 1024, 128], 128, &image, DType::F32));
        assert!(!measures(Architecture::AMPERE, [14, 576, 1024, 128], 128, &image, f16));
    }

    #[test]
    fn an_upsampler_is_folded_where_that_is_faster() {
        let folds = |architecture, dtype, [images, side, channels, out]: [usize; 4]| {
            let options = CudaOptions::new(Chip::typical(architecture), kinora_cpu::CpuOps::shared());
            let x = TensorType::new(dtype, [images, side, side, channels]);
            let weight = TensorType::new(dtype, [4 * out, 1, 2, 2, channels]);
            CudaTarget::new(&options).fuses(&Op::Conv(Conv::subpixel()), &[&x, &weight])
        };
        let (hopper, f16) = (Architecture::HOPPER, DType::F16);
        assert!(folds(hopper, f16, [1, 16, 1280, 1280]));
        assert!(folds(hopper, DType::BF16, [28, 9, 320, 320]));
        // Few pixels, columns that fill no tile, channels that TMA cannot copy, other types and generations.
        assert!(!folds(hopper, f16, [1, 8, 1280, 1280]));
        assert!(!folds(hopper, f16, [1, 64, 64, 40]));
        assert!(!folds(hopper, f16, [1, 64, 12, 64]));
        assert!(!folds(hopper, DType::F32, [1, 64, 64, 64]));
        assert!(!folds(Architecture::AMPERE, f16, [1, 64, 64, 64]));
    }

    fn linear() -> Op {
        Op::Linear(Linear { quantised: Some(DType::F16), ..Linear::default() })
    }

    fn conv(stride: usize) -> Op {
        Op::Conv(Conv { quantised: Some(DType::F16), ..Conv::spatial([3, 3], stride, 1) })
    }

    #[test]
    fn products_are_done_in_8_bits_where_tensor_cores_take_them() {
        let e4m3 = |shape: &[usize]| TensorType::new(DType::F8E4M3, shape);
        let rows = [e4m3(&[256, 320]), e4m3(&[640, 320])];
        let odd = [e4m3(&[256, 328]), e4m3(&[640, 328])];
        let pixels = [e4m3(&[2, 16, 16, 320]), e4m3(&[640, 1, 3, 3, 320])];
        let (hopper, ada) = (Architecture::HOPPER, Architecture::ADA);
        for (architecture, op, operands, expected) in [
            (hopper, linear(), &rows, true),
            (ada, linear(), &rows, true),
            (hopper, conv(1), &pixels, true),
            (ada, conv(1), &pixels, true),
            (ada, conv(2), &pixels, true),
            // Boxes that move by two, rows that no access of 16 bytes begins, a generation before.
            (hopper, conv(2), &pixels, false),
            (hopper, linear(), &odd, false),
            (ada, linear(), &odd, false),
            (Architecture::AMPERE, linear(), &rows, false),
            (Architecture::AMPERE, conv(1), &pixels, false),
            (Architecture::TURING, linear(), &rows, false),
        ] {
            let options = CudaOptions::new(Chip::typical(architecture), kinora_cpu::CpuOps::shared());
            let [x, weight] = operands;
            let does = |options: &CudaOptions| CudaTarget::new(options).fuses(&op, &[x, weight]);
            assert_eq!(does(&options), expected, "{architecture} {op:?} {weight}");
            assert!(!does(&CudaOptions { kernels: KernelSet::Baseline, ..options }));
        }
    }
}

//! The sampler step.

use kinora_graph::{Op, TensorType, op::SamplerStep};

use super::{
    Call, DevicePointer, Family, Implementation, Kernel, KernelSet, Launch, Source,
    geometry::{WIDEST_ACCESS, vector},
    names::type_name,
};
use crate::{
    Chip, CudaError, kernels,
    launch::{
        arguments, c_struct,
        limits::{grid, long},
    },
};

/// The family.
pub const FAMILY: Family = Family { offer: implementations, in_place: |_, _| false };

const SOURCE: Source = Source { path: "sampler/step.cu", text: include_str!("step.cu") };

/// Threads of a block, as the source has them.
const THREADS: usize = 256;

/// The implementations of an op of this family, the one to choose first; none for another op.
fn implementations(call: &Call<'_>, _chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let Op::SamplerStep(op) = call.op else { return Vec::new() };
    let fits = call.inputs.len() == op.operand_count() && call.outputs.len() == result_count(op);
    let inputs = call.inputs.iter().copied().cloned().collect();
    let step = Step { op: *op, inputs, plain: set == KernelSet::Baseline };
    if fits { vec![Box::new(step)] } else { Vec::new() }
}

c_struct! {
    /// Where the tensors of a step lie; what is not given is null.
    struct Places {
        next: DevicePointer,
        denoised: DevicePointer,
        scaled: DevicePointer,
        sample: DevicePointer,
        prediction: DevicePointer,
        table: DevicePointer,
        step: DevicePointer,
        guidance: DevicePointer,
        history: DevicePointer,
        noise: DevicePointer,
        previous: DevicePointer,
        strength: DevicePointer,
    }
}

/// The whole step in one kernel.
#[derive(Debug)]
struct Step {
    op: SamplerStep,
    inputs: Vec<TensorType>,
    /// One element a thread.
    plain: bool,
}

impl Step {
    /// The kernel, which handles so many elements a thread.
    fn kernel(&self, width: usize) -> Kernel {
        let op = &self.op;
        let args = op.operands(&self.inputs);
        // What is not given is never read.
        let type_of = |operand: Option<&TensorType>| operand.map_or("f32", |ty| type_name(ty.dtype));
        let mut kernel = Kernel::new(SOURCE, "sampler_step")
            .with("VECTOR", width)
            .with("SAMPLE", type_name(args.sample.dtype))
            .with("PREDICTION", type_name(args.prediction.dtype))
            .with("HISTORY", type_of(args.history))
            .with("NOISE", type_of(args.noise))
            .with("PREVIOUS", type_of(args.previous));
        for (name, given) in [
            ("GUIDED", op.guided),
            ("WITH_HISTORY", op.history),
            ("WITH_NOISE", op.noise),
            ("BLENDED", op.blend),
            ("CLIPPED", op.clip.is_some()),
            ("EMIT_DENOISED", op.emit_denoised),
            ("EMIT_SCALED", op.emit_scaled),
        ] {
            kernel = kernel.with(name, i32::from(given));
        }
        kernel.hot = true;
        kernel
    }

    fn at(&self, places: &kernels::Places) -> Places {
        let args = self.op.operands(&places.inputs);
        let optional = |operand: Option<&DevicePointer>| operand.copied().unwrap_or_default();
        let mut results = places.outputs.iter().copied();
        let mut result =
            |given: bool| if given { results.next().unwrap_or_default() } else { DevicePointer::NULL };
        Places {
            next: result(true),
            denoised: result(self.op.emit_denoised),
            scaled: result(self.op.emit_scaled),
            sample: *args.sample,
            prediction: *args.prediction,
            table: *args.table,
            step: *args.step,
            guidance: optional(args.guidance),
            history: optional(args.history),
            noise: optional(args.noise),
            previous: optional(args.previous),
            strength: optional(args.strength),
        }
    }
}

// SAFETY: the tensors have the extents of the op's operands, and the kernel reports a step outside the table.
unsafe impl Implementation for Step {
    fn name(&self) -> String {
        if self.plain { "sampler-plain" } else { "sampler" }.to_owned()
    }

    fn launches(&self, places: &kernels::Places) -> Result<Vec<Launch>, CudaError> {
        let args = self.op.operands(&self.inputs);
        let count = args.sample.elements();
        let per_image = count.checked_div(args.sample.shape[0]).unwrap_or(0);
        let narrowest = [Some(args.sample), Some(args.prediction), args.history, args.noise, args.previous];
        let narrowest = narrowest.iter().flatten().map(|ty| ty.dtype.size()).fold(4, usize::min);
        // A vector lies within one image, for its guidance.
        let width = if self.plain { 1 } else { vector(per_image, WIDEST_ACCESS / narrowest) };
        let arguments = arguments![
            self.at(places),
            long(count),
            long(per_image),
            long(args.guidance.map_or(1, |ty| ty.shape[0])),
            long(args.table.shape[0]),
            self.op.clip.unwrap_or(0.0),
            places.fault,
            places.number,
        ];
        // Even a sample without elements has its step checked.
        let blocks = grid((count / width).div_ceil(THREADS).max(1))?;
        Ok(vec![Launch::new(self.kernel(width), blocks, THREADS as u32, arguments)])
    }
}

fn result_count(op: &SamplerStep) -> usize {
    1 + usize::from(op.emit_denoised) + usize::from(op.emit_scaled)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, op::STEP_COLUMNS};

    use super::*;
    use crate::kernels::{Argument, testing};

    #[test]
    fn what_is_given_takes_its_place() {
        let op = SamplerStep {
            guided: true,
            noise: true,
            blend: true,
            emit_scaled: true,
            ..SamplerStep::default()
        };
        let sample = TensorType::new(DType::F32, [4, 2, 3, 4]);
        let prediction = TensorType::new(DType::F16, [8, 2, 3, 4]);
        let table = TensorType::new(DType::F32, [5, STEP_COLUMNS]);
        let (step, guidance) = (TensorType::new(DType::I32, [1]), TensorType::new(DType::F32, [2]));
        let strength = TensorType::new(DType::F32, [1]);
        let inputs = [&sample, &prediction, &table, &step, &guidance, &sample, &sample, &strength];
        let launches = testing::launches(implementations, &Op::SamplerStep(op), &inputs).unwrap();
        let place = testing::place;
        let given = Places {
            next: place(8),
            denoised: DevicePointer::NULL,
            scaled: place(9),
            sample: place(0),
            prediction: place(1),
            table: place(2),
            step: place(3),
            guidance: place(4),
            history: DevicePointer::NULL,
            noise: place(5),
            previous: place(6),
            strength: place(7),
        };
        assert_eq!(launches[0].arguments[0], given.into());
        assert_eq!(launches[0].arguments[1..5], [96, 24, 2, 5].map(Argument::I64));
        assert_eq!(launches[0].kernel.constants[0], ("VECTOR", "8".to_owned()));
    }

    #[test]
    fn vectors_are_as_wide_as_the_narrowest_operand_allows() {
        let wide = TensorType::new(DType::F32, [1, 2, 3, 4]);
        let previous = TensorType::new(DType::BF16, [1, 2, 3, 4]);
        let table = TensorType::new(DType::F32, [5, STEP_COLUMNS]);
        let (step, strength) = (TensorType::new(DType::I32, [1]), TensorType::new(DType::F32, [1]));
        let op = Op::SamplerStep(SamplerStep { blend: true, ..SamplerStep::default() });
        let inputs = [&wide, &wide, &table, &step, &previous, &strength];
        let launches = testing::launches(implementations, &op, &inputs).unwrap();
        let constant = |name| {
            let found = launches[0].kernel.constants.iter().find(|(constant, _)| *constant == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(
            [constant("VECTOR"), constant("PREVIOUS"), constant("BLENDED")],
            [Some("8"), Some("bf16"), Some("1")]
        );
    }

    #[test]
    fn a_sample_without_elements_has_its_step_checked() {
        let none = TensorType::new(DType::F32, [0, 3]);
        let (table, step) =
            (TensorType::new(DType::F32, [1, STEP_COLUMNS]), TensorType::new(DType::I32, [1]));
        let op = Op::SamplerStep(SamplerStep::default());
        let launches = testing::launches(implementations, &op, &[&none, &none, &table, &step]).unwrap();
        assert_eq!(launches[0].grid, [1, 1, 1]);
    }
}

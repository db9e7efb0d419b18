//! The sampler step.

use kinora_graph::{Op, TensorType, op::SamplerStep};

use super::{
    Argument, Call, DevicePointer, Implementation, Kernel, KernelSet, Launch, Places, Source,
    geometry::{WIDEST_ACCESS, grid, long, vector, words},
    names::type_name,
};
use crate::{Chip, CudaError};

const SOURCE: Source = Source { path: "sampler/step.cu", text: include_str!("step.cu") };

/// Threads of a block, as the source has them.
const THREADS: usize = 256;

/// The implementations of an op of this family, the one to choose first; none for another op.
pub fn implementations(call: &Call<'_>, _chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    match call.op {
        Op::SamplerStep(_) => vec![Box::new(Step { plain: set == KernelSet::Baseline })],
        _ => Vec::new(),
    }
}

/// The whole step in one kernel.
#[derive(Debug)]
struct Step {
    /// One element a thread.
    plain: bool,
}

impl Implementation for Step {
    fn name(&self) -> String {
        if self.plain { "sampler-plain" } else { "sampler" }.to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Op::SamplerStep(op) = call.op else {
            return Err(CudaError::Internal(format!("{} is no sampler step", call.op)));
        };
        let operands: Vec<(&TensorType, DevicePointer)> =
            call.inputs.iter().copied().zip(places.inputs.iter().copied()).collect();
        if operands.len() != op.operand_count() || places.outputs.len() != result_count(op) {
            return Err(CudaError::Internal("a sampler step with other operands than it says".into()));
        }
        let args = op.operands(&operands);
        let sample = args.sample.0;
        let count = sample.elements();
        let per_image = count.checked_div(sample.shape[0]).unwrap_or(0);
        let narrowest = [Some(args.sample), Some(args.prediction), args.history, args.noise];
        let narrowest = narrowest.iter().flatten().map(|(ty, _)| ty.dtype.size()).fold(4, usize::min);
        // A vector lies within one image, for its guidance.
        let width = if self.plain { 1 } else { vector(per_image, WIDEST_ACCESS / narrowest) };

        // What is not given is never read.
        let type_of = |operand: Option<&(&TensorType, DevicePointer)>| {
            operand.map_or("f32", |(ty, _)| type_name(ty.dtype))
        };
        let mut kernel = Kernel::new(SOURCE, "sampler_step")
            .with("VECTOR", width)
            .with("SAMPLE", type_name(sample.dtype))
            .with("PREDICTION", type_name(args.prediction.0.dtype))
            .with("HISTORY", type_of(args.history))
            .with("NOISE", type_of(args.noise));
        for (name, given) in [
            ("GUIDED", op.guided),
            ("WITH_HISTORY", op.history),
            ("WITH_NOISE", op.noise),
            ("CLIPPED", op.clip.is_some()),
            ("EMIT_DENOISED", op.emit_denoised),
            ("EMIT_SCALED", op.emit_scaled),
        ] {
            kernel = kernel.with(name, i32::from(given));
        }
        kernel.hot = true;

        let mut results = places.outputs.iter().copied();
        let mut result = |given: bool| if given { results.next().unwrap_or(0) } else { 0 };
        let at = |operand: Option<&(&TensorType, DevicePointer)>| operand.map_or(0, |&(_, at)| at);
        let pointers = [
            result(true),
            result(op.emit_denoised),
            result(op.emit_scaled),
            args.sample.1,
            args.prediction.1,
            args.table.1,
            args.step.1,
            at(args.guidance),
            at(args.history),
            at(args.noise),
        ];
        let arguments = vec![
            words(pointers),
            long(count),
            long(per_image),
            long(args.guidance.map_or(1, |(ty, _)| ty.shape[0])),
            long(args.table.0.shape[0]),
            Argument::F32(op.clip.unwrap_or(0.0)),
            Argument::Pointer(places.fault),
            Argument::I32(places.number),
        ];
        // Even a sample without elements has its step checked.
        let blocks = grid((count / width).div_ceil(THREADS).max(1))?;
        Ok(vec![Launch::new(kernel, blocks, THREADS as u32, arguments)])
    }
}

fn result_count(op: &SamplerStep) -> usize {
    1 + usize::from(op.emit_denoised) + usize::from(op.emit_scaled)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, op::STEP_COLUMNS};

    use super::*;
    use crate::kernels::testing;

    #[test]
    fn what_is_given_takes_its_place() {
        let op = SamplerStep { guided: true, noise: true, emit_scaled: true, ..SamplerStep::default() };
        let sample = TensorType::new(DType::F32, [4, 2, 3, 4]);
        let prediction = TensorType::new(DType::F16, [8, 2, 3, 4]);
        let table = TensorType::new(DType::F32, [5, STEP_COLUMNS]);
        let (step, guidance) = (TensorType::new(DType::I32, [1]), TensorType::new(DType::F32, [2]));
        let inputs = [&sample, &prediction, &table, &step, &guidance, &sample];
        let launches = testing::launches(implementations, &Op::SamplerStep(op), &inputs).unwrap();
        let place = testing::place;
        let pointers = [place(6), 0, place(7), place(0), place(1), place(2), place(3), place(4), 0, place(5)];
        assert_eq!(launches[0].arguments[0], words(pointers));
        assert_eq!(launches[0].arguments[1..5], [96, 24, 2, 5].map(Argument::I64));
        assert_eq!(launches[0].kernel.constants[0], ("VECTOR", "8".to_owned()));
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

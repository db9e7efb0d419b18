//! The calls of a planned network, those that are alike once.

use std::{collections::HashMap, sync::Arc};

use kinora_graph::{Op, Phase, TensorType};

use super::Planned;
use crate::{
    CudaError,
    kernels::{Call, Implementation, Kernel, Places},
    work::kernels,
};

/// A call, how it runs, and how often.
#[derive(Clone, Debug)]
pub struct CountedCall {
    /// The first layer that is such a call.
    pub layer: String,
    /// What it does.
    pub op: Op,
    /// The types of its operands.
    pub inputs: Vec<TensorType>,
    /// The types of its results.
    pub outputs: Vec<TensorType>,
    /// How it runs.
    pub implementation: Arc<dyn Implementation>,
    /// How many such calls the clip phase has.
    pub clip: usize,
    /// How many a step has.
    pub step: usize,
}

impl CountedCall {
    /// Does something with the call.
    pub fn with<T>(&self, work: impl FnOnce(&Call<'_>) -> T) -> T {
        let inputs: Vec<&TensorType> = self.inputs.iter().collect();
        let outputs: Vec<&TensorType> = self.outputs.iter().collect();
        work(&Call { layer: &self.layer, op: &self.op, inputs: &inputs, outputs: &outputs })
    }

    /// The kernels that it launches.
    ///
    /// # Errors
    /// If a tensor is larger than the kernels count.
    pub fn kernels(&self) -> Result<Vec<Kernel>, CudaError> {
        let work = self.with(|call| self.implementation.work(&Places::anywhere(call)))?;
        Ok(kernels(work.iter()))
    }
}

impl Planned {
    /// Every call that the GPU will run, those that are alike but for their names once, in the order of the first of each.
    ///
    /// # Errors
    /// If no kernel runs one of them.
    pub fn counted_calls(&self) -> Result<Vec<CountedCall>, CudaError> {
        let (phases, choice) = (self.graph.phases(), self.options.chooser());
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut calls: Vec<CountedCall> = Vec::new();
        for node in self.graph.nodes() {
            let (inputs, outputs) = (self.graph.input_types(node), self.graph.output_types(node));
            let call = Call { layer: &node.name, op: &node.op, inputs: &inputs, outputs: &outputs };
            let phase = node.outputs.iter().map(|value| phases[value.index()]).max();
            let Some(phase) = phase.filter(|&phase| phase != Phase::Load && call.runs()) else { continue };
            let signature = call.signature();
            let place = match places.get(&signature) {
                Some(&place) => place,
                None => {
                    let owned = |types: &[&TensorType]| types.iter().map(|&ty| ty.clone()).collect();
                    calls.push(CountedCall {
                        layer: node.name.clone(),
                        op: node.op.clone(),
                        inputs: owned(&inputs),
                        outputs: owned(&outputs),
                        implementation: choice.choose(&call)?,
                        clip: 0,
                        step: 0,
                    });
                    places.insert(signature, calls.len() - 1);
                    calls.len() - 1
                }
            };
            let counted = &mut calls[place];
            match phase {
                Phase::Step => counted.step += 1,
                _ => counted.clip += 1,
            }
        }
        Ok(calls)
    }
}

#[cfg(test)]
mod tests {
    use kinora_cpu::CpuOps;
    use kinora_graph::{
        DType, GraphBuilder,
        op::{Activation, MatMul},
    };

    use super::*;
    use crate::{Architecture, Chip, CudaOptions};

    #[test]
    fn calls_that_are_alike_are_counted_by_phase() {
        let mut g = GraphBuilder::new("test");
        let ty = || TensorType::new(DType::F16, [64, 64]);
        let [x, y] = [g.input("x", ty(), Phase::Step).unwrap(), g.input("y", ty(), Phase::Clip).unwrap()];
        let z = g.activate("clip", y, Activation::Silu).unwrap();
        let mut sum = g.matmul("a", x, z, MatMul::default()).unwrap();
        for name in ["b", "c"] {
            sum = g.matmul(name, sum, z, MatMul::default()).unwrap();
        }
        g.output("sum", sum).unwrap();
        let options = CudaOptions::new(Chip::typical(Architecture::AMPERE), CpuOps::shared());
        let calls = Planned::new(&g.finish(), &options).unwrap().counted_calls().unwrap();
        let counts: Vec<(&str, usize, usize)> =
            calls.iter().map(|call| (call.op.kind(), call.clip, call.step)).collect();
        assert_eq!(counts, [("activation", 1, 0), ("matmul", 0, 3)]);
        assert!(calls.iter().all(|call| !call.kernels().unwrap().is_empty()));
    }
}

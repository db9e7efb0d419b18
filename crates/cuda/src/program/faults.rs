//! Invalid indices in the data: a kernel that finds one records it, and the run returns an error.

use kinora_graph::{Graph, Op, Phase, plan::Plan};
use kinora_runtime::RunError;

use super::lowering::Lowered;
use crate::{
    CudaError,
    driver::{Context, DeviceBuffer, PinnedBuffer, Stream},
    kernels::{DevicePointer, FAULT_BYTES},
};

/// Two words on the device, where kernels store the number of a call and the invalid index that it found.
#[derive(Debug)]
pub(super) struct FaultWord {
    device: DeviceBuffer,
    host: PinnedBuffer,
}

impl FaultWord {
    pub fn new(context: &Context) -> Result<FaultWord, CudaError> {
        Ok(FaultWord {
            device: DeviceBuffer::new(context, FAULT_BYTES)?,
            host: PinnedBuffer::new(context, FAULT_BYTES)?,
        })
    }

    pub fn address(&self) -> DevicePointer {
        self.device.address()
    }

    /// Clears what an earlier run left. Nothing is running.
    pub fn clear(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.host.fill(0);
        // SAFETY: the words are device memory of that many bytes.
        unsafe { stream.fill(self.device.address(), 0, FAULT_BYTES) }
    }

    /// Enqueues a copy of the words to the host.
    pub fn enqueue(&mut self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: the copy is waited for before the host reads it; the buffer waits for it when it is dropped.
        unsafe { stream.download(&mut self.host, self.device.address()) }
    }

    fn words(&self) -> (i32, i32) {
        let word = |at: usize| i32::from_ne_bytes(std::array::from_fn(|i| self.host[at + i]));
        (word(0), word(4))
    }

    /// The phase of the call that recorded a fault.
    pub fn phase(&self, plan: &Plan) -> Option<Phase> {
        Lowered::numbered(plan, self.words().0).map(|(phase, _)| phase)
    }

    /// The recorded error, which is the same as the CPU's for the same data.
    pub fn check(&self, graph: &Graph, plan: &Plan) -> Result<(), CudaError> {
        match self.words() {
            (0, _) => Ok(()),
            (number, index) => Err(explain(graph, plan, number, index)),
        }
    }
}

fn explain(graph: &Graph, plan: &Plan, number: i32, index: i32) -> CudaError {
    let Some((_, id)) = Lowered::numbered(plan, number) else {
        return CudaError::Internal(format!(
            "a kernel recorded a fault for node {number}, which does not exist"
        ));
    };
    let node = graph.node(id);
    let layer = node.name.clone();
    let rows = |operand: usize| {
        node.inputs.get(operand).and_then(|&value| graph.ty(value).shape.first().copied()).unwrap_or(0)
    };
    match &node.op {
        Op::Embedding => RunError::Token { layer, id: index, rows: rows(0) }.into(),
        Op::SamplerStep(_) => RunError::SamplerStep { layer, step: index, steps: rows(2) }.into(),
        _ => CudaError::Internal(format!(
            "{layer} reported the invalid index {index}, but its op has no indices"
        )),
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, FuseNothing, GraphBuilder, TensorType, plan::PlanOptions};

    use super::*;

    #[test]
    fn a_note_is_the_cpus_error() {
        let mut g = GraphBuilder::new("lookup");
        let table = g.parameter("table", TensorType::new(DType::F32, [5, 4])).unwrap();
        let ids = g.input("ids", TensorType::new(DType::I32, [3]), Phase::Step).unwrap();
        let rows = g.embedding("tokens", table, ids).unwrap();
        g.output("rows", rows).unwrap();
        let graph = g.finish();
        let plan = Plan::new(&graph, &FuseNothing, &PlanOptions::default()).unwrap();
        let error = explain(&graph, &plan, 1, 9);
        let expected = RunError::Token { layer: "tokens".into(), id: 9, rows: 5 };
        assert!(matches!(&error, CudaError::Run(host) if *host == expected), "{error}");
        for number in [-1, 2, i32::MAX] {
            assert!(matches!(explain(&graph, &plan, number, 0), CudaError::Internal(_)));
        }
    }
}

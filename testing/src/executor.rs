//! A way to run an op.

use std::{
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use kinora_cpu::reference;
use kinora_graph::{Graph, GraphBuilder, GraphError, Op, Phase, Tensor};
use kinora_runtime::Tensors;

/// Why an executor could not run an op: whatever error its backend has.
pub type ExecutorError = Box<dyn Error + Send + Sync>;

/// Something that runs an op.
pub trait Executor: Sync {
    /// Its name in a failure.
    fn name(&self) -> String;

    /// Runs the op on these operands. Results are written into memory that held something else before.
    ///
    /// # Errors
    /// Says why it could not.
    fn run(&self, op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>, ExecutorError>;
}

/// The reference: plain loops in f64.
#[derive(Clone, Copy, Debug)]
pub struct Reference;

impl Executor for Reference {
    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn run(&self, op: &Op, operands: &[&Tensor]) -> Result<Vec<Tensor>, ExecutorError> {
        Ok(reference::run("op", op, operands)?)
    }
}

/// A graph of one node, with its inputs. Weights are parameters, so that they are packed when a program is loaded, as a
/// model's are.
#[derive(Debug)]
pub struct OneOp {
    /// The graph.
    pub graph: Graph,
    /// Its weights.
    pub parameters: Tensors,
    /// Its inputs.
    pub inputs: Tensors,
}

impl OneOp {
    /// The graph of this op on these operands.
    ///
    /// # Errors
    /// If the op does not take them.
    pub fn new(op: &Op, operands: &[&Tensor]) -> Result<OneOp, GraphError> {
        let mut g = GraphBuilder::new("one op");
        let (mut parameters, mut inputs) = (Tensors::new(), Tensors::new());
        let mut ids = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            let name = format!("operand{i}");
            let is_weight = i == 1 && matches!(op, Op::Conv(_) | Op::Linear(_));
            if is_weight {
                ids.push(g.parameter(&name, operand.ty().clone())?);
                parameters.insert(name, (*operand).clone());
            } else {
                ids.push(g.input(&name, operand.ty().clone(), Phase::Step)?);
                inputs.insert(name, (*operand).clone());
            }
        }
        for (i, &result) in g.node("op", op.clone(), &ids)?.iter().enumerate() {
            g.output(&format!("result{i}"), result)?;
        }
        Ok(OneOp { graph: g.finish(), parameters, inputs })
    }

    /// A program's named results, in the op's order.
    pub fn results(&self, mut outputs: Tensors) -> Vec<Tensor> {
        (0..outputs.len()).filter_map(|i| outputs.remove(&format!("result{i}"))).collect()
    }
}

/// Does something for each item, on all cores, and returns the results in the items' order.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let worker = || {
            let mut own = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else { return own };
                own.push((index, work(item)));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    results.sort_by_key(|&(index, _)| index);
    results.into_iter().map(|(_, result)| result).collect()
}

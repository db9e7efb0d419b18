//! Many steps in a row, each of which takes results of the one before.

use std::ops::ControlFlow;

use kinora_graph::{DType, Graph, Phase, Source, Tensor, TensorType, ValueId};

use crate::{RunError, Tensors, tensors};

/// How the steps of a loop follow from each other. An input of the step phase that is not named here is the same in every
/// step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepLoop<'a> {
    /// How many steps there are.
    pub count: usize,
    /// Results that become inputs of the next step: pairs of output and input.
    pub feedback: &'a [(&'a str, &'a str)],
    /// Inputs of type i32 that increase by one from step to step.
    pub counters: &'a [&'a str],
    /// Inputs with a separate value for each step, such as fresh noise.
    pub fresh: &'a [(&'a str, &'a [Tensor])],
}

/// The results of a step, read when they are asked for.
pub trait StepResults {
    /// A result by its name.
    fn get(&self, name: &str) -> Option<Tensor>;
}

impl StepResults for Tensors {
    fn get(&self, name: &str) -> Option<Tensor> {
        Tensors::get(self, name).cloned()
    }
}

/// Called after each step with how many are done; may stop the loop.
pub type StepObserver<'a> = dyn FnMut(usize, &dyn StepResults) -> ControlFlow<()> + 'a;

impl StepLoop<'_> {
    /// All inputs of the first step: those given, and the first of each that is [`fresh`](StepLoop::fresh).
    ///
    /// # Errors
    /// If a name is not an input or output of the graph's step phase, the types of a pair differ, a counter is not i32, or
    /// there are not as many fresh tensors as steps.
    pub fn first_inputs(&self, graph: &Graph, inputs: &Tensors) -> Result<Tensors, RunError> {
        self.check(graph)?;
        let first = self.with_fresh(inputs)?;
        tensors::refuse_unknown(graph, &[Phase::Step], &first)?;
        Ok(first)
    }

    /// The inputs with the first of each that is fresh.
    pub(crate) fn with_fresh(&self, inputs: &Tensors) -> Result<Tensors, RunError> {
        let mut first = inputs.clone();
        for &(name, fresh) in self.fresh {
            if fresh.len() != self.count {
                let (input, got) = (name.to_owned(), fresh.len());
                return Err(RunError::FreshCount { input, got, steps: self.count });
            }
            first.extend(fresh.first().map(|tensor| (name.to_owned(), tensor.clone())));
        }
        Ok(first)
    }

    /// Checks that the loop fits a graph.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), RunError> {
        for &(name, fresh) in self.fresh {
            let ty = step_input(graph, name)?;
            fresh.iter().try_for_each(|tensor| check_type(name, ty, tensor.ty()))?;
        }
        for &(output, input) in self.feedback {
            let from = graph.outputs().iter().find(|candidate| candidate.name == output);
            let from = from.ok_or_else(|| RunError::UnknownOutput(output.to_owned()))?;
            check_type(input, step_input(graph, input)?, graph.ty(from.value))?;
        }
        for &counter in self.counters {
            let ty = step_input(graph, counter)?;
            check_type(counter, &TensorType::new(DType::I32, ty.shape.clone()), ty)?;
        }
        Ok(())
    }

    /// Runs the loop on a backend whose steps take and give tensors of the host, from the
    /// [inputs of the first](StepLoop::first_inputs).
    ///
    /// # Errors
    /// As `run_step`; [`RunError::Stopped`] if the observer stopped it.
    pub fn run(
        &self,
        first_inputs: Tensors,
        mut observer: Option<&mut StepObserver<'_>>,
        mut run_step: impl FnMut(&Tensors) -> Result<Tensors, RunError>,
    ) -> Result<Tensors, RunError> {
        let mut next = first_inputs;
        let mut results = Tensors::new();
        for step in 0..self.count {
            if step > 0 {
                self.advance(&mut next, &results, step)?;
            }
            results = run_step(&next)?;
            if let Some(observer) = &mut observer
                && observer(step + 1, &results).is_break()
            {
                return Err(RunError::Stopped);
            }
        }
        Ok(results)
    }

    /// Turns a step's inputs into those of the next, which is number `step`, counted from 0.
    fn advance(&self, inputs: &mut Tensors, results: &Tensors, step: usize) -> Result<(), RunError> {
        for &(output, input) in self.feedback {
            let result = results.get(output).ok_or_else(|| RunError::UnknownOutput(output.to_owned()))?;
            inputs.insert(input.to_owned(), result.clone());
        }
        for &counter in self.counters {
            let tensor = inputs.get_mut(counter).ok_or_else(|| RunError::UnknownInput(counter.to_owned()))?;
            check_type(counter, &TensorType::new(DType::I32, tensor.shape().clone()), tensor.ty())?;
            let unlike = |error| RunError::Internal(format!("the counter {counter}: {error}"));
            let numbers = tensor.as_slice::<i32>().map_err(unlike)?;
            let next: Vec<i32> = numbers.iter().map(|number| number.wrapping_add(1)).collect();
            *tensor = Tensor::from_slice(tensor.shape().clone(), &next).map_err(unlike)?;
        }
        for &(name, fresh) in self.fresh {
            let (input, got, steps) = (name.to_owned(), fresh.len(), self.count);
            let tensor = fresh.get(step).ok_or(RunError::FreshCount { input, got, steps })?;
            inputs.insert(name.to_owned(), tensor.clone());
        }
        Ok(())
    }
}

/// The type of an input of the step phase.
pub(crate) fn step_input<'g>(graph: &'g Graph, name: &str) -> Result<&'g TensorType, RunError> {
    let named = |&&id: &&ValueId| {
        let value = graph.value(id);
        value.name == name && value.source == Source::Input(Phase::Step)
    };
    let id = graph.inputs().iter().find(named).ok_or_else(|| RunError::UnknownInput(name.to_owned()))?;
    Ok(graph.ty(*id))
}

pub(crate) fn check_type(name: &str, expected: &TensorType, got: &TensorType) -> Result<(), RunError> {
    if expected == got {
        return Ok(());
    }
    Err(RunError::WrongType { name: name.to_owned(), expected: expected.clone(), got: got.clone() })
}

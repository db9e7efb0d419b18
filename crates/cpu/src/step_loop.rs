//! Many steps in a row, of which each takes up results of the one before.

use std::ops::ControlFlow;

use kinora_graph::{DType, Graph, Phase, Source, Tensor, TensorType, ValueId};

use crate::{CpuError, Program, Tensors, tensors};

/// How the steps of a loop follow from each other. An input of the step phase that is not named here is the same in every
/// step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepLoop<'a> {
    /// How many steps there are.
    pub count: usize,
    /// Results that are inputs of the next step: pairs of output and input.
    pub feedback: &'a [(&'a str, &'a str)],
    /// Inputs of type i32 that grow by one from step to step.
    pub counters: &'a [&'a str],
    /// Inputs with a value of their own for each step, such as fresh noise.
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

/// Is told after each step how many are done, and may stop the loop.
pub type StepObserver<'a> = dyn FnMut(usize, &dyn StepResults) -> ControlFlow<()> + 'a;

impl StepLoop<'_> {
    /// All inputs of the first step: those given, and the first of each that is [`fresh`](StepLoop::fresh).
    ///
    /// # Errors
    /// Where a name is no input or output of the graph's step phase, the types of a pair differ, a counter is not i32, or
    /// there are not as many fresh tensors as steps.
    pub fn first_inputs(&self, graph: &Graph, inputs: &Tensors) -> Result<Tensors, CpuError> {
        let mut first = inputs.clone();
        for &(name, fresh) in self.fresh {
            let ty = step_input(graph, name)?;
            if fresh.len() != self.count {
                let (input, got) = (name.to_owned(), fresh.len());
                return Err(CpuError::FreshCount { input, got, steps: self.count });
            }
            fresh.iter().try_for_each(|tensor| check_type(name, ty, tensor.ty()))?;
            first.extend(fresh.first().map(|tensor| (name.to_owned(), tensor.clone())));
        }
        for &(output, input) in self.feedback {
            let from = graph.outputs().iter().find(|candidate| candidate.name == output);
            let from = from.ok_or_else(|| CpuError::UnknownOutput(output.to_owned()))?;
            check_type(input, step_input(graph, input)?, graph.ty(from.value))?;
        }
        for &counter in self.counters {
            let ty = step_input(graph, counter)?;
            check_type(counter, &TensorType::new(DType::I32, ty.shape.clone()), ty)?;
        }
        tensors::refuse_unknown(graph, &[Phase::Step], &first)?;
        Ok(first)
    }

    /// Makes a step's inputs those of the next, which is number `step` from 0.
    fn advance(&self, inputs: &mut Tensors, results: &Tensors, step: usize) -> Result<(), CpuError> {
        let given = |name: &str| CpuError::Internal(format!("{name} was not checked"));
        for &(output, input) in self.feedback {
            let result = results.get(output).ok_or_else(|| given(output))?;
            inputs.insert(input.to_owned(), result.clone());
        }
        for &counter in self.counters {
            let tensor = inputs.get_mut(counter).ok_or_else(|| given(counter))?;
            let next: Vec<i32> = tensor
                .as_slice::<i32>()
                .map_err(|_| given(counter))?
                .iter()
                .map(|number| number.wrapping_add(1))
                .collect();
            *tensor = Tensor::from_slice(tensor.shape().clone(), &next).map_err(|_| given(counter))?;
        }
        for &(name, fresh) in self.fresh {
            inputs.insert(name.to_owned(), fresh[step].clone());
        }
        Ok(())
    }
}

/// The type of an input of the step phase.
fn step_input<'g>(graph: &'g Graph, name: &str) -> Result<&'g TensorType, CpuError> {
    let named = |&&id: &&ValueId| {
        let value = graph.value(id);
        value.name == name && value.source == Source::Input(Phase::Step)
    };
    let id = graph.inputs().iter().find(named).ok_or_else(|| CpuError::UnknownInput(name.to_owned()))?;
    Ok(graph.ty(*id))
}

fn check_type(name: &str, expected: &TensorType, got: &TensorType) -> Result<(), CpuError> {
    if expected == got {
        return Ok(());
    }
    Err(CpuError::WrongType { name: name.to_owned(), expected: expected.clone(), got: got.clone() })
}

impl Program {
    /// Replays the step so many times; see [`StepLoop`]. Returns the results of the last step.
    ///
    /// `inputs` are those of the first step; one that is [`StepLoop::fresh`] may be left out.
    ///
    /// # Errors
    /// As [`Program::run_step`] and [`StepLoop::first_inputs`]; [`CpuError::Stopped`] where the observer stopped it.
    pub fn run_steps(
        &mut self,
        steps: &StepLoop<'_>,
        inputs: &Tensors,
        mut observer: Option<&mut StepObserver<'_>>,
    ) -> Result<Tensors, CpuError> {
        let mut next = steps.first_inputs(self.graph(), inputs)?;
        let mut results = Tensors::new();
        for step in 0..steps.count {
            if step > 0 {
                steps.advance(&mut next, &results, step)?;
            }
            results = self.run_step(&next)?;
            if let Some(observer) = &mut observer
                && observer(step + 1, &results).is_break()
            {
                return Err(CpuError::Stopped);
            }
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::GraphBuilder;

    use super::*;
    use crate::Options;

    /// `next = latents + 10 · step + noise`.
    fn program() -> Program {
        let mut g = GraphBuilder::new("loop");
        let ty = |dtype| TensorType::new(dtype, [1]);
        let latents = g.input("latents", ty(DType::F32), Phase::Step).unwrap();
        let step = g.input("step", ty(DType::I32), Phase::Step).unwrap();
        let noise = g.input("noise", ty(DType::F32), Phase::Step).unwrap();
        let table = g.parameter("table", TensorType::new(DType::F32, [4, 1])).unwrap();
        let row = g.embedding("row", table, step).unwrap();
        let row = g.reshape("flat", row, [1]).unwrap();
        let sum = g.add("sum", latents, row).unwrap();
        let sum = g.add("noisy", sum, noise).unwrap();
        g.output("next", sum).unwrap();
        let table = Tensor::from_slice([4, 1], &[0.0f32, 10.0, 20.0, 30.0]).unwrap();
        let weights = Tensors::from([("table".to_owned(), table)]);
        Program::new(&g.finish(), &weights, Options::default()).unwrap()
    }

    fn number(x: f32) -> Tensor {
        Tensor::from_slice([1], &[x]).unwrap()
    }

    fn inputs() -> Tensors {
        let step = Tensor::from_slice([1], &[0i32]).unwrap();
        Tensors::from([("latents".to_owned(), number(1.0)), ("step".to_owned(), step)])
    }

    #[test]
    fn results_counts_and_fresh_inputs_go_from_step_to_step() {
        let noise = [0.1, 0.2, 0.3, 0.4].map(number);
        let steps = StepLoop {
            count: 4,
            feedback: &[("next", "latents")],
            counters: &["step"],
            fresh: &[("noise", &noise)],
        };
        let mut program = program();
        let mut seen = Vec::new();
        let mut observe = |step: usize, results: &dyn StepResults| {
            seen.push((step, results.get("next").unwrap().to_f32()[0]));
            assert!(results.get("nothing").is_none());
            ControlFlow::Continue(())
        };
        let results = program.run_steps(&steps, &inputs(), Some(&mut observe)).unwrap();
        assert!((results["next"].to_f32()[0] - 62.0).abs() < 1e-5);
        for ((step, value), (i, expected)) in seen.iter().zip([1.1f32, 11.3, 31.6, 62.0].iter().enumerate()) {
            assert!(*step == i + 1 && (value - expected).abs() < 1e-5, "{step}: {value}");
        }
        assert_eq!(seen.len(), 4);

        let stopped = program.run_steps(
            &steps,
            &inputs(),
            Some(&mut |step, _| if step == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }),
        );
        assert_eq!(stopped.unwrap_err(), CpuError::Stopped);
    }

    #[test]
    fn a_loop_that_does_not_fit_the_graph_is_refused() {
        let noise = [number(0.0), number(0.0)];
        let right = StepLoop { count: 2, fresh: &[("noise", &noise)], ..StepLoop::default() };
        let mut program = program();
        assert!(program.run_steps(&right, &inputs(), None).is_ok());
        let refused = |steps: StepLoop<'_>, program: &mut Program| {
            program.run_steps(&steps, &inputs(), None).unwrap_err().to_string()
        };
        for (steps, words) in [
            (StepLoop { count: 3, ..right }, "3 steps"),
            (StepLoop { feedback: &[("nothing", "latents")], ..right }, "nothing"),
            (StepLoop { feedback: &[("next", "nothing")], ..right }, "nothing"),
            (StepLoop { feedback: &[("next", "step")], ..right }, "step"),
            (StepLoop { counters: &["latents"], ..right }, "latents"),
            (StepLoop { counters: &["nothing"], ..right }, "nothing"),
            (StepLoop { fresh: &[], ..right }, "noise"),
        ] {
            let message = refused(steps, &mut program);
            assert!(message.contains(words), "{words} is not in: {message}");
        }
    }
}

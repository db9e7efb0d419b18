//! Frames in a row, each of which reads results of the one before.

use kinora_graph::Graph;

use crate::{
    RunError, Tensors,
    step_loop::{check_type, step_input},
};

/// The state that frames hand on: pairs of a result and of the input that the next frame takes from it.
///
/// Unlike a [`StepLoop`](crate::StepLoop), a row of frames has no end that is known when it begins, and each frame has inputs
/// of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried<'a>(pub &'a [(&'a str, &'a str)]);

impl Carried<'_> {
    /// Checks the pairs and the first values of their inputs.
    ///
    /// # Errors
    /// If a name is not a result, or not an input of the step phase; if the types of a pair differ; if the first value of an
    /// input is missing or has another type; if an input is given that is not carried.
    pub fn check(&self, graph: &Graph, first: &Tensors) -> Result<(), RunError> {
        for &(output, input) in self.0 {
            let from = graph.outputs().iter().find(|candidate| candidate.name == output);
            let from = from.ok_or_else(|| RunError::UnknownOutput(output.to_owned()))?;
            let ty = step_input(graph, input)?;
            check_type(input, ty, graph.ty(from.value))?;
            let given = first.get(input);
            let given =
                given.ok_or_else(|| RunError::MissingInput { name: input.to_owned(), ty: ty.clone() })?;
            check_type(input, ty, given.ty())?;
        }
        let carried = |name: &String| self.0.iter().any(|(_, input)| input == name);
        match first.keys().filter(|name| !carried(name)).min() {
            Some(name) => Err(RunError::UnknownInput(name.clone())),
            None => Ok(()),
        }
    }
}

/// A row of frames on a backend whose steps take and give tensors of the host.
#[derive(Clone, Debug, Default)]
pub struct HostFrames {
    /// Pairs of a result and an input.
    carried: Vec<(String, String)>,
    /// The carried inputs of the next frame.
    state: Tensors,
}

impl HostFrames {
    /// Begins a row.
    ///
    /// # Errors
    /// As [`Carried::check`].
    pub fn begin(graph: &Graph, carried: Carried<'_>, first: &Tensors) -> Result<Self, RunError> {
        carried.check(graph, first)?;
        let owned = |&(output, input): &(&str, &str)| (output.to_owned(), input.to_owned());
        Ok(HostFrames { carried: carried.0.iter().map(owned).collect(), state: first.clone() })
    }

    /// The carried inputs of the next frame.
    pub fn handed_on(&self) -> &Tensors {
        &self.state
    }

    /// Runs a frame. If it fails, the state is that of before.
    ///
    /// # Errors
    /// As `run_step`; if an input is given that is carried.
    pub fn run(
        &mut self,
        inputs: &Tensors,
        results: &mut Tensors,
        run_step: impl FnOnce(&Tensors) -> Result<Tensors, RunError>,
    ) -> Result<(), RunError> {
        if let Some(name) = inputs.keys().filter(|name| self.state.contains_key(*name)).min() {
            return Err(RunError::UnknownInput(name.clone()));
        }
        let mut all = self.state.clone();
        all.extend(inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())));
        let mut made = run_step(&all)?;
        for (output, input) in &self.carried {
            if let Some(result) = made.get(output) {
                self.state.insert(input.clone(), result.clone());
            }
        }
        made.retain(|name, _| self.carried.iter().all(|(output, _)| output != name));
        *results = made;
        Ok(())
    }
}

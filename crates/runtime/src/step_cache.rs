//! Steps of which only some are whole: the others read what the last whole one kept.

use kinora_graph::{Graph, Phase, Source};

use crate::{
    RunError, StepLoop, StepObserver, Tensors,
    step_loop::{check_type, step_input},
};

/// A loop of steps that two networks share. One runs whole steps and keeps results for the other, which runs the shallow steps
/// in between.
///
/// Both have the results and inputs that the loop names; what is kept is a result of the one and an input of the other.
#[derive(Clone, Copy, Debug)]
pub struct CachedSteps<'a> {
    /// The steps.
    pub steps: StepLoop<'a>,
    /// The first step is whole, and every one that is so many steps after a whole one. 1 or 0 makes all of them whole.
    pub interval: usize,
    /// What is kept: pairs of a whole step's result and of the input that shallow steps take from it.
    pub kept: &'a [(&'a str, &'a str)],
}

impl CachedSteps<'_> {
    /// Whether a step is whole, counted from 0.
    pub fn is_whole(&self, step: usize) -> bool {
        step.is_multiple_of(self.interval.max(1))
    }

    /// How many of the steps are whole.
    pub fn whole_count(&self) -> usize {
        self.steps.count.div_ceil(self.interval.max(1))
    }

    /// Checks both networks, and gives [the inputs of the first step](StepLoop::first_inputs), which is whole.
    ///
    /// # Errors
    /// As [`StepLoop::first_inputs`] for either network; if what is kept is not a result of the one and an input of the other, of
    /// one type; if a shallow step has another input that a whole one has not.
    pub fn first_inputs(
        &self,
        whole: &Graph,
        shallow: &Graph,
        inputs: &Tensors,
    ) -> Result<Tensors, RunError> {
        let first = self.steps.first_inputs(whole, inputs)?;
        self.steps.check(shallow)?;
        for &(output, input) in self.kept {
            let from = whole.outputs().iter().find(|candidate| candidate.name == output);
            let from = from.ok_or_else(|| RunError::UnknownOutput(output.to_owned()))?;
            check_type(input, step_input(shallow, input)?, whole.ty(from.value))?;
        }
        for value in shallow.inputs().iter().map(|&id| shallow.value(id)) {
            let of_step = value.source == Source::Input(Phase::Step);
            if of_step && self.kept.iter().all(|(_, input)| *input != value.name) {
                check_type(&value.name, &value.ty, step_input(whole, &value.name)?)?;
            }
        }
        Ok(first)
    }

    /// Runs the loop on a backend whose steps take and give tensors of the host.
    ///
    /// # Errors
    /// As the runs of both networks; if results are missing or do not fit; [`RunError::Stopped`] if the observer stopped it.
    pub fn run(
        &self,
        inputs: &Tensors,
        observer: Option<&mut StepObserver<'_>>,
        mut run_whole: impl FnMut(&Tensors) -> Result<Tensors, RunError>,
        mut run_shallow: impl FnMut(&Tensors) -> Result<Tensors, RunError>,
    ) -> Result<Tensors, RunError> {
        let first = self.steps.with_fresh(inputs)?;
        let (mut step, mut kept) = (0, Tensors::new());
        self.steps.run(first, observer, |inputs| {
            let whole = self.is_whole(step);
            step += 1;
            if whole {
                // Room for what comes in its place.
                kept.clear();
                let mut results = run_whole(inputs)?;
                for &(output, input) in self.kept {
                    let result = results.remove(output);
                    let result = result.ok_or_else(|| RunError::UnknownOutput(output.to_owned()))?;
                    kept.insert(input.to_owned(), result);
                }
                return Ok(results);
            }
            // It is large, and so moved there and back.
            let mut all = inputs.clone();
            all.extend(kept.drain());
            let results = run_shallow(&all);
            kept.extend(self.kept.iter().filter_map(|(_, input)| all.remove_entry(*input)));
            results
        })
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, GraphBuilder, Tensor, TensorType};

    use super::*;

    const ONE: [(&str, &str); 1] = [("next", "latents")];

    /// `next = latents + deep`, where `deep` is a result or an input of this type.
    fn graph(whole: bool, deep: DType) -> Graph {
        let mut g = GraphBuilder::new("step");
        let ty = TensorType::new(DType::F32, [1]);
        let latents = g.input("latents", ty, Phase::Step).unwrap();
        let kept = if whole {
            let kept = g.cast("cast", latents, deep).unwrap();
            g.output("deep", kept).unwrap();
            kept
        } else {
            g.input("kept", TensorType::new(deep, [1]), Phase::Step).unwrap()
        };
        let kept = g.cast("back", kept, DType::F32).unwrap();
        let next = g.add("next", latents, kept).unwrap();
        g.output("next", next).unwrap();
        g.finish()
    }

    fn cached(interval: usize) -> CachedSteps<'static> {
        let steps = StepLoop { count: 7, feedback: &ONE, ..StepLoop::default() };
        CachedSteps { steps, interval, kept: &[("deep", "kept")] }
    }

    #[test]
    fn the_first_step_is_whole_and_every_so_manyth() {
        let whole = |interval| (0..7).filter(|&step| cached(interval).is_whole(step)).collect::<Vec<_>>();
        for (interval, expected) in [
            (0, vec![0, 1, 2, 3, 4, 5, 6]),
            (1, vec![0, 1, 2, 3, 4, 5, 6]),
            (2, vec![0, 2, 4, 6]),
            (3, vec![0, 3, 6]),
            (6, vec![0, 6]),
            (7, vec![0]),
            (usize::MAX, vec![0]),
        ] {
            assert_eq!(whole(interval), expected);
            assert_eq!(cached(interval).whole_count(), expected.len());
        }
    }

    #[test]
    fn networks_that_do_not_fit_each_other_are_refused() {
        let number = Tensor::from_slice([1], &[1.0f32]).unwrap();
        let inputs = Tensors::from([("latents".to_owned(), number)]);
        let (whole, shallow) = (graph(true, DType::F16), graph(false, DType::F16));
        let check = |cached: CachedSteps<'_>, whole: &Graph, shallow: &Graph| {
            cached.first_inputs(whole, shallow, &inputs).map(|first| first.len())
        };
        assert_eq!(check(cached(3), &whole, &shallow), Ok(1));
        let unlike = check(cached(3), &whole, &graph(false, DType::F32));
        assert!(matches!(unlike, Err(RunError::WrongType { name, .. }) if name == "kept"));
        // Neither network can be the other.
        let swapped = check(cached(3), &shallow, &whole);
        assert_eq!(swapped, Err(RunError::UnknownOutput("deep".to_owned())));
        for (pair, error) in [
            (("nothing", "kept"), RunError::UnknownOutput("nothing".to_owned())),
            (("deep", "nothing"), RunError::UnknownInput("nothing".to_owned())),
        ] {
            assert_eq!(check(CachedSteps { kept: &[pair], ..cached(3) }, &whole, &shallow), Err(error));
        }
        let nothing = check(CachedSteps { kept: &[], ..cached(3) }, &whole, &shallow);
        assert_eq!(nothing, Err(RunError::UnknownInput("kept".to_owned())));
    }
}

//! The load phase on several threads, for devices with memory of their own: while one weight is read, another one is folded and a
//! third one copied.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use kinora_graph::{Graph, Parameters, Source, Tensor, ValueId, tensor::Recycling};

use crate::{HostOps, Loader, RunError};

/// Reading and folding use all cores for a large weight by themselves. More threads than this only hold more weights in memory at
/// a time: each has one, and what it is made of.
const MOST_THREADS: usize = 8;

/// Hands over every value of `wanted` to `take`, once and in no particular order, from several threads at a time. Values that are
/// made of the same weight are handed over by the same thread, so that each weight is read once.
///
/// # Errors
/// As [`Loader::take`], and what `take` says. If several values fail, it is always the same one that is reported.
pub fn load_in_parallel<E: From<RunError> + Send>(
    graph: &Graph,
    (ops, parameters): (&dyn HostOps, &dyn Parameters),
    wanted: &[ValueId],
    take: impl Fn(ValueId, Tensor) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let groups = groups(graph, wanted);
    let next = AtomicUsize::new(0);
    // The first group that failed, and its error.
    let failed: Mutex<Option<(usize, E)>> = Mutex::new(None);
    let load = |group: &[ValueId]| -> Result<(), E> {
        let mut loader = Loader::new(graph, ops, parameters, group.iter().copied());
        group.iter().try_for_each(|&value| take(value, loader.take(value)?))
    };
    let work = || {
        // Weights come and go: their memory is used for the next ones.
        let _recycling = Recycling::begin();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(group) = groups.get(number) else { return };
            // Groups in front of one that failed are still loaded, since one of them may fail as well.
            let is_behind =
                |failed: &Option<(usize, E)>| failed.as_ref().is_some_and(|(first, _)| *first < number);
            if is_behind(&failed.lock().unwrap_or_else(PoisonError::into_inner)) {
                return;
            }
            if let Err(error) = load(group) {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if !is_behind(&failed) {
                    *failed = Some((number, error));
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(groups.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // If no more threads can be started, those that run do the work.
            let _ = thread::Builder::new().name("weights".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// The values of `wanted` in groups that have no parameter and no node in common; both in the order of `wanted`.
fn groups(graph: &Graph, wanted: &[ValueId]) -> Vec<Vec<ValueId>> {
    // By value, the place in `wanted` of the first value that it is a part of.
    let mut first_user: HashMap<ValueId, usize> = HashMap::new();
    // By place in `wanted`, an earlier one of the same group, or itself.
    let mut earlier: Vec<usize> = (0..wanted.len()).collect();
    let first_of = |earlier: &[usize], mut place: usize| {
        while earlier[place] != place {
            place = earlier[place];
        }
        place
    };
    for (place, &value) in wanted.iter().enumerate() {
        let mut pending = vec![value];
        while let Some(part) = pending.pop() {
            match first_user.entry(part) {
                Entry::Occupied(user) => {
                    let (one, other) = (first_of(&earlier, *user.get()), first_of(&earlier, place));
                    earlier[one.max(other)] = one.min(other);
                }
                Entry::Vacant(free) => match graph.value(part).source {
                    Source::Constant(_) => {}
                    Source::Node { node, .. } => {
                        free.insert(place);
                        pending.extend(&graph.node(node).inputs);
                    }
                    Source::Parameter | Source::Input(_) => {
                        free.insert(place);
                    }
                },
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<ValueId>> = BTreeMap::new();
    for (place, &value) in wanted.iter().enumerate() {
        groups.entry(first_of(&earlier, place)).or_default().push(value);
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use kinora_graph::{DType, GraphBuilder, Node, Op, ParameterError, TensorType, passes::Evaluate};

    use super::*;

    #[derive(Debug)]
    struct Doubles;

    impl Evaluate for Doubles {
        fn evaluate(&self, _: &Node, _: &[&Tensor]) -> Option<Vec<Tensor>> {
            None
        }
    }

    impl HostOps for Doubles {
        fn run(&self, _: &str, _: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, RunError> {
            let sums = inputs
                .iter()
                .map(|x| x.to_f32())
                .reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect());
            let doubled: Vec<f32> = sums.unwrap_or_default().iter().map(|x| 2.0 * x).collect();
            Ok(vec![Tensor::from_slice([doubled.len()], &doubled).unwrap()])
        }
    }

    /// Parameters by number, which count how often each is read. Those in `damaged` cannot be read.
    struct Counted {
        reads: Vec<AtomicUsize>,
        damaged: Vec<usize>,
    }

    impl Parameters for Counted {
        fn parameter(&self, name: &str, ty: &TensorType) -> Result<Option<Tensor>, ParameterError> {
            let number: usize = name.parse().unwrap();
            self.reads[number].fetch_add(1, Ordering::Relaxed);
            if self.damaged.contains(&number) {
                return Err(ParameterError::new(format!("{number} is damaged")));
            }
            Ok(Some(Tensor::from_f32(ty.dtype, ty.shape.clone(), &[number as f32; 4]).unwrap()))
        }
    }

    const PARAMETERS: usize = 200;

    /// 200 parameters: of every four, the first is wanted as it is, the second doubled, and the last two only as their doubled sum
    /// and the doubled third.
    fn graph() -> (Graph, Vec<(ValueId, f32)>) {
        let mut g = GraphBuilder::new("weights");
        let ty = TensorType::new(DType::F32, [4]);
        let mut wanted = Vec::new();
        for number in (0..PARAMETERS).step_by(4) {
            let [a, b, c, d] =
                [0, 1, 2, 3].map(|more| g.parameter(&(number + more).to_string(), ty.clone()).unwrap());
            let number = number as f32;
            wanted.push((a, number));
            wanted.push((g.scale("b", b, 2.0, 0.0).unwrap(), 2.0 * (number + 1.0)));
            wanted.push((g.add("sum", c, d).unwrap(), 2.0 * (2.0 * number + 5.0)));
            wanted.push((g.scale("c", c, 2.0, 0.0).unwrap(), 2.0 * (number + 2.0)));
        }
        (g.finish(), wanted)
    }

    fn counted(damaged: &[usize]) -> Counted {
        Counted { reads: (0..PARAMETERS).map(|_| AtomicUsize::new(0)).collect(), damaged: damaged.to_vec() }
    }

    #[test]
    fn every_value_is_handed_over_once_and_every_weight_is_read_once() {
        let (graph, expected) = graph();
        let wanted: Vec<ValueId> = expected.iter().map(|&(value, _)| value).collect();
        assert_eq!(groups(&graph, &wanted).len(), PARAMETERS * 3 / 4);
        let parameters = counted(&[]);
        let got = Mutex::new(HashMap::new());
        load_in_parallel(&graph, (&Doubles, &parameters), &wanted, |value, tensor| {
            assert!(got.lock().unwrap().insert(value, tensor.to_f32()).is_none(), "{value:?} came twice");
            Ok::<_, RunError>(())
        })
        .unwrap();
        let got = got.into_inner().unwrap();
        assert_eq!(got.len(), expected.len());
        for (value, expected) in expected {
            assert_eq!(got[&value], [expected; 4]);
        }
        assert!(parameters.reads.iter().all(|reads| reads.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn the_first_error_is_reported_whichever_thread_meets_it() {
        let (graph, expected) = graph();
        let wanted: Vec<ValueId> = expected.iter().map(|&(value, _)| value).collect();
        for damaged in [[180, 7, 61], [9, 8, 10], [199, 198, 197]] {
            let first = *damaged.iter().min().unwrap();
            for _ in 0..20 {
                let parameters = counted(&damaged);
                let error =
                    load_in_parallel(&graph, (&Doubles, &parameters), &wanted, |_, _| Ok::<_, RunError>(()));
                let error = error.unwrap_err();
                assert!(
                    matches!(&error, RunError::Parameter { name, .. } if *name == first.to_string()),
                    "{error} for {damaged:?}"
                );
            }
        }
    }

    #[test]
    fn an_error_of_the_caller_ends_it() {
        let (graph, expected) = graph();
        let wanted: Vec<ValueId> = expected.iter().map(|&(value, _)| value).collect();
        let parameters = counted(&[]);
        let refused = AtomicBool::new(false);
        let error = load_in_parallel(&graph, (&Doubles, &parameters), &wanted, |value, _| {
            if value == wanted[0] {
                refused.store(true, Ordering::Relaxed);
                return Err(RunError::Stopped);
            }
            // The others wait for it, so that most of the groups are still to come.
            while !refused.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            Ok(())
        });
        assert!(matches!(error, Err(RunError::Stopped)));
        let read = parameters.reads.iter().filter(|reads| reads.load(Ordering::Relaxed) > 0).count();
        assert!(read < PARAMETERS, "{read} of {PARAMETERS} were read");
    }

    #[test]
    fn nothing_is_wanted_of_a_graph_without_weights() {
        let graph = GraphBuilder::new("empty").finish();
        let never = |_, _| -> Result<(), RunError> { unreachable!("nothing is wanted") };
        load_in_parallel(&graph, (&Doubles, &counted(&[])), &[], never).unwrap();
    }
}

//! Weights that several networks read: one copy in memory, however many there are.

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use kinora_graph::{Graph, Node, Phase, Source, TensorType, ValueId};

use crate::PlannedNetwork;

/// Shares weights among networks that are loaded with it.
///
/// Two networks share a weight if they compute it in the same way from parameters of the same names: it is as if they had
/// been read from the same files, so one of these serves one model. A weight is freed when no network reads it any more; a
/// device may keep it until no network reads any that were allocated with it.
#[derive(Debug, Default)]
pub struct SharedWeights(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Every expression that was met, with its number.
    numbers: HashMap<Expression, WeightNumber>,
    /// What is in memory, by its number and the form that a device keeps it in.
    held: HashMap<(WeightNumber, String), Weak<dyn Any + Send + Sync>>,
}

/// A weight, among all that were met. Two weights with the same number are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WeightNumber(usize);

/// The place of a weight that networks may share.
#[derive(Debug)]
pub struct WeightSlot<'a> {
    weights: &'a SharedWeights,
    key: (WeightNumber, String),
}

impl WeightSlot<'_> {
    /// The weight, if a network holds it.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let held = self.weights.state().held.get(&self.key).and_then(Weak::upgrade)?;
        held.downcast().ok()
    }

    /// Lets others share a weight that a network holds.
    pub fn set<T: Any + Send + Sync>(self, weight: &Arc<T>) {
        let weight: Arc<dyn Any + Send + Sync> = weight.clone();
        self.weights.state().held.insert(self.key, Arc::downgrade(&weight));
    }
}

/// The bytes of the largest constant that is remembered. Larger ones are tables of one network, not weights of a model.
const LARGEST_CONSTANT: usize = 4096;

/// How a weight is computed.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Expression {
    Parameter(String, TensorType),
    Constant(TensorType, Vec<u8>),
    /// A result of an op, with all its settings.
    Result {
        op: String,
        operands: Vec<WeightNumber>,
        index: usize,
    },
}

impl SharedWeights {
    /// The number of a value. `None` if it depends on an input or a large constant.
    fn number(&self, graph: &Graph, value: ValueId) -> Option<WeightNumber> {
        let mut state = self.state();
        let mut found: HashMap<ValueId, WeightNumber> = HashMap::new();
        // Not by recursion: a chain of nodes read from a file may have any length.
        let mut pending = vec![value];
        while let Some(&next) = pending.last() {
            if found.contains_key(&next) {
                pending.pop();
                continue;
            }
            let described = graph.value(next);
            let expression = match &described.source {
                Source::Parameter => Expression::Parameter(described.name.clone(), described.ty.clone()),
                Source::Constant(tensor) if tensor.bytes().len() > LARGEST_CONSTANT => return None,
                Source::Constant(tensor) => {
                    Expression::Constant(tensor.ty().clone(), tensor.bytes().to_vec())
                }
                Source::Node { node, output } => {
                    let node = graph.node(*node);
                    let missing = pending.len();
                    pending.extend(node.inputs.iter().filter(|input| !found.contains_key(input)));
                    if pending.len() > missing {
                        continue;
                    }
                    let operands = node.inputs.iter().map(|input| found[input]).collect();
                    Expression::Result { op: format!("{:?}", node.op), operands, index: *output }
                }
                Source::Input(_) => return None,
            };
            let next_number = WeightNumber(state.numbers.len());
            found.insert(next, *state.numbers.entry(expression).or_insert(next_number));
            pending.pop();
        }
        found.get(&value).copied()
    }

    /// The place of a weight in the form that a device keeps it in. `None` if it depends on an input or a large constant.
    pub fn slot(&self, graph: &Graph, value: ValueId, form: String) -> Option<WeightSlot<'_>> {
        Some(WeightSlot { weights: self, key: (self.number(graph, value)?, form) })
    }

    /// The bytes of a network's weights that it does not find with another one, where they are computed in the same way and read
    /// by the same ops, which may have forms of their own. As they are before they are packed.
    pub fn missing_bytes(holder: &dyn PlannedNetwork, reader: &dyn PlannedNetwork) -> usize {
        let shared = SharedWeights::default();
        let there: HashSet<_> = shared.reads(holder).into_iter().filter_map(|(_, form)| form).collect();
        let is_there = |form: &Option<_>| form.as_ref().is_some_and(|form| there.contains(form));
        let missing: HashSet<ValueId> = shared
            .reads(reader)
            .into_iter()
            .filter(|(_, form)| !is_there(form))
            .map(|(value, _)| value)
            .collect();
        missing.into_iter().map(|value| reader.graph().ty(value).bytes()).fold(0, usize::saturating_add)
    }

    /// The weights that the nodes of a network read, each with its number and the op, if it can be shared.
    fn reads(&self, network: &dyn PlannedNetwork) -> Vec<(ValueId, Option<(WeightNumber, String)>)> {
        let (graph, plan) = (network.graph(), network.plan());
        let number = |&value: &ValueId| (value, self.number(graph, value));
        let numbers: HashMap<ValueId, Option<WeightNumber>> = plan.resident().iter().map(number).collect();
        let steps = [Phase::Clip, Phase::Step].into_iter().flat_map(|phase| plan.steps(phase));
        let nodes = steps.map(|step| graph.node(step.node));
        let reads = nodes.flat_map(|node| node.inputs.iter().map(move |&input| (node, input)));
        let form = |(node, input): (&Node, ValueId)| {
            let number = *numbers.get(&input)?;
            Some((input, number.map(|number| (number, format!("{:?}", node.op)))))
        };
        reads.filter_map(form).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, GraphBuilder, Phase};

    use super::*;

    /// A graph with a weight that is scaled before it is used, and what the scaled weight is called in it.
    fn graph(name: &str, factor: f32, rows: usize) -> (Graph, ValueId) {
        let mut g = GraphBuilder::new("graph");
        let x = g.input("x", TensorType::new(DType::F32, [rows, 2]), Phase::Step).unwrap();
        let weight = g.parameter(name, TensorType::new(DType::F32, [3, 2])).unwrap();
        let scaled = g.scale("scaled", weight, factor, 0.0).unwrap();
        let y = g.linear("y", x, scaled, None).unwrap();
        g.output("y", y).unwrap();
        (g.finish(), scaled)
    }

    #[test]
    fn weights_are_the_same_if_they_are_computed_in_the_same_way() {
        let shared = SharedWeights::default();
        let number = |(graph, value): (Graph, ValueId)| shared.number(&graph, value).unwrap();
        let first = number(graph("a", 2.0, 1));
        assert_eq!(first, number(graph("a", 2.0, 5)), "what else the graph does is of no matter");
        assert_ne!(first, number(graph("a", 3.0, 1)));
        assert_ne!(first, number(graph("b", 2.0, 1)));
        let (graph, _) = graph("a", 2.0, 1);
        assert_eq!(shared.number(&graph, graph.inputs()[0]), None);
    }

    #[test]
    fn a_weight_is_held_as_long_as_a_network_holds_it() {
        let shared = SharedWeights::default();
        let (graph, value) = graph("a", 2.0, 1);
        let slot = |form: &str| shared.slot(&graph, value, form.to_owned()).unwrap();
        let weight = Arc::new(5_u32);
        slot("plain").set(&weight);
        assert_eq!(slot("plain").get::<u32>().as_deref(), Some(&5));
        assert_eq!(slot("packed").get::<u32>(), None);
        drop(weight);
        assert_eq!(slot("plain").get::<u32>(), None);
    }
}

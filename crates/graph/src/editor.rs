//! Changing a graph: the tool that passes are written with.

use std::mem;

use crate::{
    Graph, GraphError, Node, NodeId, Op, Output, Phase, Source, Tensor, TensorType, Value, ValueId,
    order::runnable_order,
};

/// A graph being edited. Nodes are added and uses redirected; finishing the edit drops what is no longer used and puts
/// the rest back into an order in which it can run.
#[derive(Debug)]
pub struct Editor {
    graph: Graph,
    /// For each value, the nodes that read it (twice, if a node reads it twice).
    readers: Vec<Vec<NodeId>>,
    phases: Vec<Phase>,
    /// Whether the graph is as [`Editor::settle`] left it.
    settled: bool,
    /// Whether a node or a result reads another value than when the graph was last settled.
    redirected: bool,
    /// How many nodes and values there were then.
    counts: [usize; 2],
}

impl Editor {
    /// Starts from a copy of a graph. Its ids stay valid for the edit.
    pub fn new(graph: &Graph) -> Self {
        let mut editor = Editor {
            graph: graph.clone(),
            readers: Vec::new(),
            phases: Vec::new(),
            settled: false,
            redirected: false,
            counts: [0; 2],
        };
        editor.look();
        editor
    }

    /// Finds out what is known about the graph as it is now.
    fn look(&mut self) {
        let Editor { graph, readers, .. } = self;
        // Emptied rather than made anew: passes come here often, and most values have readers.
        readers.iter_mut().for_each(Vec::clear);
        readers.resize(graph.values.len(), Vec::new());
        for (id, node) in graph.node_ids() {
            for input in &node.inputs {
                readers[input.index()].push(id);
            }
        }
        self.phases = graph.phases();
        self.redirected = false;
        self.counts = [graph.nodes.len(), graph.values.len()];
    }

    /// The graph as it is now.
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How many nodes there are, including those added and those no longer used.
    pub fn node_count(&self) -> usize {
        self.graph.nodes.len()
    }

    /// The ids of all nodes there are now.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.graph.nodes.len() as u32).map(NodeId)
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        self.graph.node(id)
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        self.graph.value(id)
    }

    /// A value's type.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        self.graph.ty(id)
    }

    /// The types of some values.
    pub fn types(&self, ids: &[ValueId]) -> Vec<&TensorType> {
        ids.iter().map(|&v| self.graph.ty(v)).collect()
    }

    /// The node that makes a value.
    pub fn producer(&self, id: ValueId) -> Option<(NodeId, &Node)> {
        match self.graph.value(id).source {
            Source::Node { node, .. } => Some((node, self.graph.node(node))),
            _ => None,
        }
    }

    /// The phase in which a value is known, as it was when the value was added: a later edit may make it earlier.
    pub fn phase(&self, id: ValueId) -> Phase {
        self.phases[id.index()]
    }

    /// The nodes that read a value.
    pub fn readers(&self, id: ValueId) -> &[NodeId] {
        &self.readers[id.index()]
    }

    /// Whether a value is a result of the graph.
    pub fn is_output(&self, id: ValueId) -> bool {
        self.graph.outputs.iter().any(|o| o.value == id)
    }

    /// Whether a value has exactly one reader, which reads it once: the condition for fusing its producer into that
    /// node.
    pub fn has_one_reader(&self, id: ValueId) -> bool {
        self.readers[id.index()].len() == 1 && !self.is_output(id)
    }

    /// The producer of a value that nothing but one reader sees.
    pub fn sole_producer(&self, id: ValueId) -> Option<(NodeId, &Node)> {
        if self.has_one_reader(id) { self.producer(id) } else { None }
    }

    /// Adds a constant.
    pub fn constant(&mut self, name: impl Into<String>, tensor: Tensor) -> ValueId {
        self.source(name.into(), tensor.ty().clone(), Source::Constant(tensor), Phase::Load)
    }

    /// Adds an input. Passes add none: a graph's inputs are its caller's.
    ///
    /// # Errors
    /// If there is an input of this name, or the phase is [`Phase::Load`].
    pub fn input(
        &mut self,
        name: impl Into<String>,
        ty: TensorType,
        phase: Phase,
    ) -> Result<ValueId, GraphError> {
        let name = name.into();
        if phase == Phase::Load {
            return Err(GraphError::LoadInput(name));
        }
        if self.graph.inputs.iter().any(|&input| self.value(input).name == name) {
            return Err(GraphError::Duplicate(format!("input {name}")));
        }
        let id = self.source(name, ty, Source::Input(phase), phase);
        self.graph.inputs.push(id);
        Ok(id)
    }

    /// Adds a weight. One of a name that the graph has already is another value, which is loaded like the first.
    pub fn parameter(&mut self, name: impl Into<String>, ty: TensorType) -> ValueId {
        self.source(name.into(), ty, Source::Parameter, Phase::Load)
    }

    /// Adds a value that no node makes.
    fn source(&mut self, name: String, ty: TensorType, source: Source, phase: Phase) -> ValueId {
        self.settled = false;
        self.readers.push(Vec::new());
        self.phases.push(phase);
        self.graph.push_value(Value { name, ty, source })
    }

    /// Adds a node.
    ///
    /// # Errors
    /// If the op refuses its operands.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        op: Op,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        let layer = name.into();
        let results = op
            .infer(&self.types(inputs))
            .map_err(|source| GraphError::Layer { layer: layer.clone(), source })?;
        self.settled = false;
        let node = NodeId(self.graph.nodes.len() as u32);
        for input in inputs {
            self.readers[input.index()].push(node);
        }
        let phase = inputs.iter().map(|&v| self.phase(v)).max().unwrap_or(Phase::Load);
        let outputs = self.graph.push_node(layer, op, inputs.to_vec(), results);
        self.readers.resize(self.graph.values.len(), Vec::new());
        self.phases.resize(self.graph.values.len(), phase);
        Ok(outputs)
    }

    /// Makes everything that reads `old` read `new`, results of the graph included.
    ///
    /// # Errors
    /// If the two differ in type.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) -> Result<(), GraphError> {
        if old == new {
            return Ok(());
        }
        if self.ty(old) != self.ty(new) {
            return Err(GraphError::Retyped {
                layer: self.value(old).name.clone(),
                from: self.ty(new).clone(),
                to: self.ty(old).clone(),
            });
        }
        self.settled = false;
        for reader in mem::take(&mut self.readers[old.index()]) {
            self.redirected = true;
            for input in &mut self.graph.nodes[reader.index()].inputs {
                if *input == old {
                    *input = new;
                }
            }
            self.readers[new.index()].push(reader);
        }
        for output in &mut self.graph.outputs {
            if output.value == old {
                self.redirected = true;
                output.value = new;
            }
        }
        Ok(())
    }

    /// Adds a node and replaces the results of `old`, which must have the same types, with its own. The old node's
    /// operands lose a reader immediately, so that later matches see the graph as it will be.
    ///
    /// # Errors
    /// If the op refuses its operands or returns other types.
    pub fn replace_node(
        &mut self,
        old: NodeId,
        name: impl Into<String>,
        op: Op,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        let new = self.add(name, op, inputs)?;
        self.bypass(old, &new)?;
        Ok(new)
    }

    /// Replaces a node's results with other values and removes the node, as [`Editor::replace_node`] does.
    ///
    /// # Errors
    /// If a value is not of the type of the result it replaces.
    pub fn bypass(&mut self, old: NodeId, new: &[ValueId]) -> Result<(), GraphError> {
        let old_outputs = self.node(old).outputs.clone();
        for (&from, &to) in old_outputs.iter().zip(new) {
            self.replace_uses(from, to)?;
        }
        self.disconnect(old);
        Ok(())
    }

    /// Removes a node whose results nothing reads from its operands' readers, and then its producers likewise.
    fn disconnect(&mut self, id: NodeId) {
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            let node = self.graph.node(id);
            if node.outputs.iter().any(|&v| !self.readers[v.index()].is_empty() || self.is_output(v)) {
                continue;
            }
            for input in mem::take(&mut self.graph.nodes[id.index()].inputs) {
                let readers = &mut self.readers[input.index()];
                if let Some(at) = readers.iter().position(|&r| r == id) {
                    readers.swap_remove(at);
                }
                if let Source::Node { node, .. } = self.graph.value(input).source {
                    pending.push(node);
                }
            }
        }
    }

    /// The graph without what its results do not need. Inputs stay, used or not.
    ///
    /// # Errors
    /// If the edit made layers wait for each other.
    pub fn finish(mut self) -> Result<Graph, GraphError> {
        self.settle()?;
        Ok(self.graph)
    }

    /// The same with more results.
    ///
    /// # Errors
    /// As [`Editor::finish`].
    pub(crate) fn finish_with(mut self, outputs: Vec<Output>) -> Result<Graph, GraphError> {
        self.graph.outputs.extend(outputs);
        self.settled = false;
        self.finish()
    }

    /// Drops what the results do not need and puts the rest back into an order in which it can run, for the next edit. Ids
    /// from before are no longer valid. Returns whether the graph is another one than before the edit.
    ///
    /// Nothing is copied: a network has thousands of names and shapes, and most passes change few of its nodes or none.
    ///
    /// # Errors
    /// If the edit made layers wait for each other.
    pub(crate) fn settle(&mut self) -> Result<bool, GraphError> {
        if self.settled {
            return Ok(false);
        }
        let order = needed_nodes(&self.graph)?;
        let Graph { values, nodes, inputs, outputs, .. } = &mut self.graph;
        // The values that stay, in their new order. Parameters and constants come when they are first needed.
        let mut kept = Vec::with_capacity(values.len());
        let mut ids = vec![None; values.len()];
        let mut renumber = |id: &mut ValueId| {
            let old = id.index();
            *id = *ids[old].get_or_insert_with(|| {
                kept.push(old);
                ValueId(kept.len() as u32 - 1)
            });
        };
        inputs.iter_mut().for_each(&mut renumber);
        for &node in &order {
            let Node { inputs, outputs, .. } = &mut nodes[node];
            inputs.iter_mut().chain(outputs).for_each(&mut renumber);
        }
        outputs.iter_mut().for_each(|output| renumber(&mut output.value));
        // A node that was added is read only by what was redirected, or by another that was added.
        let in_place = |order: &[usize]| order.iter().enumerate().all(|(new, &old)| new == old);
        let same = !self.redirected
            && self.counts == [order.len(), kept.len()]
            && in_place(&order)
            && in_place(&kept);
        arrange(nodes, &order);
        arrange(values, &kept);
        for (i, node) in nodes.iter().enumerate() {
            for (output, value) in node.outputs.iter().enumerate() {
                values[value.index()].source = Source::Node { node: NodeId(i as u32), output };
            }
        }
        self.look();
        self.settled = true;
        Ok(!same)
    }
}

/// Puts some items into an order and drops the others. In place, because most are where they belong.
fn arrange<T>(items: &mut Vec<T>, order: &[usize]) {
    const GOES: usize = usize::MAX;
    let mut places = vec![GOES; items.len()];
    for (new, &old) in order.iter().enumerate() {
        places[old] = new;
    }
    for (place, last) in places.iter_mut().filter(|place| **place == GOES).zip(order.len()..) {
        *place = last;
    }
    for i in 0..items.len() {
        while places[i] != i {
            let place = places[i];
            items.swap(i, place);
            places.swap(i, place);
        }
    }
    items.truncate(order.len());
}

/// The nodes that the results need, each after what it reads, otherwise in their present order.
fn needed_nodes(graph: &Graph) -> Result<Vec<usize>, GraphError> {
    let maker = |value: &ValueId| match graph.value(*value).source {
        Source::Node { node, .. } => Some(node.index()),
        _ => None,
    };
    // Per node where its list begins: one list for all of them, because this is done often.
    let mut begins = vec![0];
    let mut makers: Vec<usize> = Vec::new();
    for node in &graph.nodes {
        makers.extend(node.inputs.iter().filter_map(maker));
        begins.push(makers.len());
    }
    let waits_for = |node: usize| &makers[begins[node]..begins[node + 1]];
    let mut needed = vec![false; graph.nodes.len()];
    let mut pending: Vec<usize> = graph.outputs.iter().filter_map(|o| maker(&o.value)).collect();
    while let Some(node) = pending.pop() {
        if !mem::replace(&mut needed[node], true) {
            pending.extend(waits_for(node));
        }
    }
    let wanted = (0..needed.len()).filter(|&node| needed[node]);
    runnable_order(needed.len(), waits_for, wanted)
        .map_err(|cycle| GraphError::Cycle(cycle.into_iter().map(|i| graph.nodes[i].name.clone()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, GraphBuilder, Phase, op::Scale};

    fn chain() -> Graph {
        let mut g = GraphBuilder::new("chain");
        let x = g.input("x", TensorType::new(DType::F32, [4]), Phase::Step).unwrap();
        let a = g.scale("a", x, 2.0, 0.0).unwrap();
        let b = g.scale("b", a, 3.0, 0.0).unwrap();
        g.scale("unused", b, 1.0, 0.0).unwrap();
        g.output("y", b).unwrap();
        g.finish()
    }

    #[test]
    fn what_nothing_needs_disappears() {
        let graph = Editor::new(&chain()).finish().unwrap();
        assert_eq!(graph.nodes().iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_replaced_node_is_put_before_its_readers() {
        let graph = chain();
        let mut editor = Editor::new(&graph);
        let x = graph.inputs()[0];
        editor.replace_node(NodeId(0), "new", Op::Scale(Scale { factor: 5.0, offset: 0.0 }), &[x]).unwrap();
        let graph = editor.finish().unwrap();
        assert_eq!(graph.nodes().iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["new", "b"]);
        assert_eq!(graph.use_counts()[graph.inputs()[0].index()], 1);
    }

    #[test]
    fn a_weight_may_become_one_that_depends_on_an_input() {
        let mut g = GraphBuilder::new("g");
        let ty = TensorType::new(DType::F32, [4]);
        let x = g.input("x", ty.clone(), Phase::Step).unwrap();
        let weight = g.parameter("weight", ty.clone()).unwrap();
        let y = g.mul("y", x, weight).unwrap();
        g.output("y", y).unwrap();
        let mut editor = Editor::new(&g.finish());
        let strength = editor.input("strength", TensorType::new(DType::F32, [1]), Phase::Clip).unwrap();
        let base = editor.parameter("weight", ty.clone());
        let scaled = editor.add("scaled", Op::Mul, &[base, strength]).unwrap()[0];
        assert_eq!(editor.phase(scaled), Phase::Clip);
        editor.replace_uses(weight, scaled).unwrap();
        assert!(matches!(editor.input("x", ty.clone(), Phase::Step), Err(GraphError::Duplicate(_))));
        assert!(matches!(editor.input("z", ty, Phase::Load), Err(GraphError::LoadInput(_))));
        let graph = editor.finish().unwrap();
        assert_eq!(graph.nodes().iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["scaled", "y"]);
        let names =
            |ids: &[ValueId]| -> Vec<String> { ids.iter().map(|&id| graph.value(id).name.clone()).collect() };
        assert_eq!(names(graph.inputs()), ["x", "strength"]);
        assert_eq!(graph.parameters().count(), 1);
    }

    #[test]
    fn items_are_put_in_order_and_the_others_dropped() {
        for (order, expected) in [
            (&[0, 1, 2, 3][..], "abcd"),
            (&[3, 0, 1, 2], "dabc"),
            (&[2, 0], "ca"),
            (&[1, 3, 2], "bdc"),
            (&[], ""),
        ] {
            let mut items = vec!['a', 'b', 'c', 'd'];
            arrange(&mut items, order);
            assert_eq!(items.into_iter().collect::<String>(), expected);
        }
    }

    #[test]
    fn settling_says_whether_the_graph_is_another() {
        let mut editor = Editor::new(&chain());
        assert!(editor.settle().unwrap(), "what nothing needs has gone");
        assert!(!editor.settle().unwrap());
        let double = || Op::Scale(Scale { factor: 2.0, offset: 0.0 });
        let x = editor.graph().inputs()[0];
        let before = editor.graph().clone();
        editor.add("unread", double(), &[x]).unwrap();
        assert!(!editor.settle().unwrap(), "nothing reads it");
        assert_eq!(*editor.graph(), before);
        editor.replace_node(NodeId(1), "other", double(), &[x]).unwrap();
        assert!(editor.settle().unwrap());
        // As if it had been edited from the start.
        let fresh = Editor::new(editor.graph());
        assert_eq!((&fresh.readers, &fresh.phases), (&editor.readers, &editor.phases));
        assert_eq!(editor.graph().nodes().len(), 1);
    }

    #[test]
    fn a_cycle_is_named() {
        let graph = chain();
        let mut editor = Editor::new(&graph);
        let (x, b) = (graph.inputs()[0], graph.outputs()[0].value);
        // Everything that read x now reads b, which depends on it.
        editor.replace_uses(x, b).unwrap();
        let error = editor.finish().unwrap_err();
        assert_eq!(error, GraphError::Cycle(["a", "b", "a"].map(String::from).to_vec()));
    }

    #[test]
    fn a_layer_that_leads_into_a_cycle_under_the_same_name_is_not_of_it() {
        let mut g = GraphBuilder::new("g");
        let [x, z] =
            ["x", "z"].map(|name| g.input(name, TensorType::new(DType::F32, [4]), Phase::Step).unwrap());
        let first = g.scale("n", z, 2.0, 0.0).unwrap();
        let a = g.scale("a", x, 2.0, 0.0).unwrap();
        let second = g.scale("n", a, 3.0, 0.0).unwrap();
        g.output("first", first).unwrap();
        let mut editor = Editor::new(&g.finish());
        editor.replace_uses(z, second).unwrap();
        editor.replace_uses(x, second).unwrap();
        let error = editor.finish().unwrap_err();
        assert_eq!(error, GraphError::Cycle(["n", "a", "n"].map(String::from).to_vec()));
    }
}

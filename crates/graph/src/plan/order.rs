//! Orders in which the nodes of a phase can run. The plan lays out memory for each and keeps the smallest.

use std::{cmp::Reverse, collections::BTreeSet};

use super::lifetime::Facts;
use crate::{NodeId, Phase, Source, ValueId};

/// The orders worth trying, the graph's own first, none twice.
pub(super) fn candidates(facts: &Facts<'_>, phase: Phase) -> Vec<Vec<NodeId>> {
    let as_built = facts.nodes_of(phase);
    let edges = Edges::new(facts, &as_built);
    let mut orders = vec![as_built];
    for order in [least_growth(facts, &orders[0], &edges), depth_first(facts, &orders[0], &edges)] {
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    orders
}

/// Dependencies within one phase, indexed by node.
struct Edges {
    producers: Vec<Vec<NodeId>>,
    consumers: Vec<Vec<NodeId>>,
}

impl Edges {
    fn new(facts: &Facts<'_>, nodes: &[NodeId]) -> Self {
        let count = facts.graph.nodes().len();
        let mut edges = Edges { producers: vec![Vec::new(); count], consumers: vec![Vec::new(); count] };
        for &id in nodes {
            for &input in &facts.graph.node(id).inputs {
                if let Source::Node { node, .. } = facts.graph.value(input).source
                    && facts.node_phases[node.index()] == facts.node_phases[id.index()]
                    && !edges.producers[id.index()].contains(&node)
                {
                    edges.producers[id.index()].push(node);
                    edges.consumers[node.index()].push(id);
                }
            }
        }
        edges
    }
}

/// Always the runnable node after which the least memory is in use; between equals, the graph's order.
fn least_growth(facts: &Facts<'_>, nodes: &[NodeId], edges: &Edges) -> Vec<NodeId> {
    let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); facts.roots.len()];
    for &node in nodes {
        for root in &facts.reads[node.index()] {
            readers[root.index()].push(node);
        }
    }
    let mut unread: Vec<usize> = readers.iter().map(Vec::len).collect();
    let growth = |node: NodeId, unread: &[usize]| -> i128 {
        let made = facts.makes(node).filter(|v| unread[v.index()] > 0 || facts.kept[v.index()]);
        let freed =
            facts.reads[node.index()].iter().filter(|v| unread[v.index()] == 1 && !facts.kept[v.index()]);
        let bytes = |v: ValueId| facts.bytes[v.index()] as i128;
        made.map(bytes).sum::<i128>() - freed.copied().map(bytes).sum::<i128>()
    };

    let mut waiting_for: Vec<usize> = edges.producers.iter().map(Vec::len).collect();
    let mut done = vec![false; waiting_for.len()];
    let mut growth_of: Vec<Option<i128>> = vec![None; waiting_for.len()];
    let mut ready: BTreeSet<(i128, NodeId)> = BTreeSet::new();
    let mut make_ready = |node: NodeId, unread: &[usize], ready: &mut BTreeSet<(i128, NodeId)>| {
        let new = growth(node, unread);
        if let Some(old) = growth_of[node.index()].replace(new) {
            ready.remove(&(old, node));
        }
        ready.insert((new, node));
    };
    for &node in nodes.iter().filter(|n| waiting_for[n.index()] == 0) {
        make_ready(node, &unread, &mut ready);
    }
    let mut order = Vec::with_capacity(nodes.len());
    while let Some((_, node)) = ready.pop_first() {
        order.push(node);
        done[node.index()] = true;
        for root in &facts.reads[node.index()] {
            unread[root.index()] -= 1;
        }
        for consumer in &edges.consumers[node.index()] {
            waiting_for[consumer.index()] -= 1;
            if waiting_for[consumer.index()] == 0 {
                make_ready(*consumer, &unread, &mut ready);
            }
        }
        // The only reader left will free the buffer, and so has become cheaper.
        for root in facts.reads[node.index()].iter().filter(|r| unread[r.index()] == 1) {
            let reader = readers[root.index()].iter().copied().find(|n| !done[n.index()]);
            if let Some(reader) = reader.filter(|n| waiting_for[n.index()] == 0) {
                make_ready(reader, &unread, &mut ready);
            }
        }
    }
    order
}

/// Each result with all that it needs before the next result; of a node's operands, the one whose computation needs the
/// most memory beyond what it leaves behind comes first. This is the rule of Sethi and Ullman, which is optimal for
/// trees.
fn depth_first(facts: &Facts<'_>, nodes: &[NodeId], edges: &Edges) -> Vec<NodeId> {
    let count = facts.graph.nodes().len();
    let mut producers = edges.producers.clone();
    // Per node, the memory that computing it takes if nothing is shared, and what remains of it.
    let mut peak = vec![0usize; count];
    let mut remains = vec![0usize; count];
    for &node in nodes {
        let i = node.index();
        producers[i].sort_by_key(|p| (Reverse(peak[p.index()].saturating_sub(remains[p.index()])), *p));
        let mut held = 0usize;
        for producer in &producers[i] {
            peak[i] = peak[i].max(held.saturating_add(peak[producer.index()]));
            held = held.saturating_add(remains[producer.index()]);
        }
        let made = facts.makes(node).fold(0usize, |sum, v| sum.saturating_add(facts.bytes[v.index()]));
        peak[i] = peak[i].max(held.saturating_add(made).saturating_add(facts.workspaces[i]));
        let results = facts.graph.node(node).outputs.iter();
        remains[i] = results.fold(0usize, |sum, v| sum.saturating_add(facts.bytes[v.index()]));
    }

    let mut visited = vec![false; count];
    let mut order = Vec::with_capacity(nodes.len());
    for &last in nodes.iter().filter(|n| edges.consumers[n.index()].is_empty()) {
        // An explicit stack: a graph may be deeper than the thread's own.
        let mut stack = vec![(last, 0)];
        while let Some((node, next)) = stack.pop() {
            if next == 0 && std::mem::replace(&mut visited[node.index()], true) {
                continue;
            }
            match producers[node.index()].get(next) {
                Some(&producer) => {
                    stack.push((node, next + 1));
                    stack.push((producer, 0));
                }
                None => order.push(node),
            }
        }
    }
    order
}

//! The passes share one editor, which keeps what it knows of a graph from one to the next. They must give what they give one by
//! one, each on a copy of the graph.

use kinora_cpu::reference::ReferenceEvaluator;
use kinora_graph::{
    DType, FuseAll, FuseNothing, Graph, GraphError, Target,
    passes::{all, optimise_traced},
};
use kinora_testing::random_graph::random_graph;

/// The passes that changed something, and in which round.
type Effects = Vec<(&'static str, usize)>;

/// All passes until nothing changes, each on a copy.
fn one_by_one(graph: &Graph, target: &dyn Target) -> Result<(Graph, Effects), GraphError> {
    let mut graph = graph.clone();
    let mut effects = Vec::new();
    for round in 1..=8 {
        let before = graph.clone();
        for pass in all(Some(&ReferenceEvaluator)) {
            let after = pass.run(&graph, target)?;
            if after != graph {
                effects.push((pass.name(), round));
                graph = after;
            }
        }
        if graph == before {
            break;
        }
    }
    Ok((graph, effects))
}

#[test]
fn passes_give_together_what_they_give_one_by_one() {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let mut changes = 0;
    for number in 0..400 {
        let numbers: Vec<u32> = (0..40).map(|_| next()).collect();
        let graph = random_graph(&numbers, DType::F32, &mut Vec::new()).unwrap();
        for (name, target) in [("all", &FuseAll as &dyn Target), ("nothing", &FuseNothing)] {
            let (expected, expected_effects) = one_by_one(&graph, target).unwrap();
            let (got, effects) = optimise_traced(&graph, target, Some(&ReferenceEvaluator)).unwrap();
            assert!(got == expected, "graph {number}, fuse {name}:\n{got:?}\n\n{expected:?}");
            let effects: Vec<_> = effects.iter().map(|effect| (effect.pass, effect.round)).collect();
            assert_eq!(effects, expected_effects, "graph {number}, fuse {name}");
            changes += effects.len();
        }
    }
    assert!(changes > 1000, "{changes}");
}

//! Graphs as JSON.

use kinora_graph::{
    FuseAll, FuseNothing, Graph, Target,
    passes::optimise,
    plan::{Plan, PlanOptions},
};

/// Any bytes as a graph: read, written, rewritten by all passes, planned, and the plan checked.
pub fn json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(graph) = Graph::from_json(text) else { return };
    assert_eq!(Graph::from_json(&graph.to_json()).as_ref(), Ok(&graph), "a graph survives its own text");
    let _ = (graph.to_string(), graph.step_flops(), graph.parameter_count());
    let targets: [&dyn Target; 2] = [&FuseAll, &FuseNothing];
    for target in targets {
        let optimised = optimise(&graph, target).expect("a pass makes no graph that the ops refuse");
        if let Ok(plan) = Plan::new(&optimised, target, &PlanOptions::default()) {
            plan.verify(&optimised).expect("a plan is sound");
        }
    }
}

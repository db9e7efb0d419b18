//! A graph as large as a video UNet.

use super::*;
use crate::op::Activation;

/// Levels that halve, blocks with a residual around two branches, and skip connections across: `blocks` a level.
fn unet(levels: usize, blocks: usize) -> Graph {
    fn block(g: &mut GraphBuilder, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        g.scope(name, |g| {
            let a = g.activate("act1", x, Activation::Silu)?;
            let a = g.scale("conv1", a, 2.0, 0.0)?;
            let flat = g.ty(a).elements();
            let q = g.reshape("split", a, [1, flat])?;
            let k = g.scale("k", q, 0.5, 0.0)?;
            let v = g.activate("v", q, Activation::Tanh)?;
            let qk = g.add("attention", k, v)?;
            let joined = g.reshape("join", qk, [flat])?;
            let a = g.activate("act2", joined, Activation::Gelu)?;
            g.add("residual", x, a)
        })
    }
    let mut g = GraphBuilder::new("unet");
    let mut make = || -> Result<(), GraphError> {
        let image = g.input("image", floats(64 << levels), Phase::Clip)?;
        let context = g.activate("context", image, Activation::Silu)?;
        let x = g.input("latents", floats(64 << levels), Phase::Step)?;
        let mut h = g.add("in", x, context)?;
        let mut skips = Vec::new();
        for level in 0..levels {
            for i in 0..blocks {
                h = block(&mut g, &format!("down.{level}.{i}"), h)?;
                skips.push(h);
            }
            let half = g.ty(h).elements() / 2;
            h = g.slice(&format!("down.{level}.halve"), h, 0, 0, half)?;
        }
        for level in (0..levels).rev() {
            h = g.concat(&format!("up.{level}.double"), &[h, h], 0)?;
            for i in 0..blocks {
                let skip = skips.pop().unwrap_or(h);
                let both = g.concat(&format!("up.{level}.{i}.skip"), &[h, skip], 0)?;
                let count = g.ty(h).elements();
                h = g.slice(&format!("up.{level}.{i}.narrow"), both, 0, count / 2, count)?;
                h = block(&mut g, &format!("up.{level}.{i}"), h)?;
            }
        }
        g.output("y", h)
    };
    make().unwrap();
    g.finish()
}

#[test]
fn thousands_of_nodes_are_planned_well() {
    let graph = unet(4, 40);
    assert!(graph.nodes().len() > 3000, "{}", graph.nodes().len());
    for target in [PLAIN, IN_PLACE, Backend { workspace: 777, ..IN_PLACE }] {
        let plan = plan(&graph, &target);
        assert!(plan.arena_bytes() as f64 <= 1.1 * plan.lower_bound() as f64);
    }
}

#[test]
fn a_very_wide_and_a_very_deep_graph_are_planned() {
    let wide = build(|g| {
        let x = g.input("x", floats(4), Phase::Step)?;
        let all: Vec<ValueId> =
            (0..2000).map(|i| g.scale(&format!("s{i}"), x, 2.0, 0.0)).collect::<Result<_, _>>()?;
        let y = g.concat("y", &all, 0)?;
        g.output("y", y)
    });
    plan(&wide, &IN_PLACE);
    let deep = build(|g| {
        let mut x = g.input("x", floats(4), Phase::Step)?;
        for i in 0..20_000 {
            x = g.scale(&format!("s{i}"), x, 2.0, 0.0)?;
        }
        g.output("y", x)
    });
    assert_eq!(plan(&deep, &IN_PLACE).arena_bytes(), 16);
}

//! Graphs small enough to know the answer.

use super::{super::*, *};
use crate::{
    Phase, Source, Tensor,
    op::{Activation, SamplerStep},
};

fn chain(length: usize, count: usize) -> Graph {
    build(|g| {
        let mut x = g.input("x", floats(count), Phase::Step)?;
        for i in 0..length {
            x = g.scale(&format!("s{i}"), x, 2.0, 0.0)?;
        }
        g.output("y", x)
    })
}

#[test]
fn a_chain_needs_two_buffers_or_one_in_place() {
    let graph = chain(5, 100);
    let two = plan(&graph, &PLAIN);
    // 400 bytes, aligned to 448, and 400 more.
    assert_eq!((two.arena_bytes(), two.lower_bound()), (848, 800));
    let one = plan(&graph, &IN_PLACE);
    assert_eq!((one.arena_bytes(), one.lower_bound()), (400, 400));
    assert_eq!(buffer(&one, graph.inputs()[0]), buffer(&one, graph.outputs()[0].value));
}

#[test]
fn a_diamond_keeps_what_is_read_twice() {
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let a = g.scale("a", x, 2.0, 0.0)?;
        let b = g.scale("b", x, 3.0, 0.0)?;
        let y = g.add("y", a, b)?;
        g.output("y", y)
    });
    // x and a; then x, a and b; then a, b and y.
    assert_eq!(plan(&graph, &PLAIN).arena_bytes(), 3 * 64);
    // b over x, y over a.
    let shared = plan(&graph, &IN_PLACE);
    assert_eq!(shared.arena_bytes(), 2 * 64);
    let at = |name| buffer(&shared, named(&graph, name));
    assert_eq!((at("b"), at("y")), (at("x"), at("a")));
    assert_ne!(at("a"), at("x"));
}

#[test]
fn a_residual_lives_until_it_is_added() {
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let a = g.scale("a", x, 2.0, 0.0)?;
        let b = g.scale("b", a, 3.0, 0.0)?;
        let y = g.add("y", x, b)?;
        g.output("y", y)
    });
    assert_eq!(plan(&graph, &PLAIN).arena_bytes(), 3 * 64);
    let shared = plan(&graph, &IN_PLACE);
    assert_eq!(shared.arena_bytes(), 2 * 64);
    let at = |name| buffer(&shared, named(&graph, name));
    assert_eq!((at("b"), at("y")), (at("a"), at("x")));
}

#[test]
fn an_operand_used_twice_is_overwritten_only_if_both_uses_allow_it() {
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let y = g.add("y", x, x)?;
        g.output("y", y)
    });
    assert_eq!(plan(&graph, &IN_PLACE).arena_bytes(), 64);

    /// Adds over its first operand only.
    struct First;
    impl Target for First {
        fn fuses(&self, _op: &Op, _inputs: &[&TensorType]) -> bool {
            false
        }
        fn in_place(&self, _op: &Op, operand: usize) -> bool {
            operand == 0
        }
    }
    let apart = Plan::new(&graph, &First, &PlanOptions::default()).unwrap();
    assert_eq!(apart.arena_bytes(), 128);
}

#[test]
fn a_reshape_shares_its_operands_buffer_and_keeps_it_alive() {
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let a = g.scale("a", x, 2.0, 0.0)?;
        let view = g.reshape("view", a, [4, 4])?;
        let b = g.scale("b", a, 3.0, 0.0)?;
        let c = g.scale("c", view, 4.0, 0.0)?;
        g.output("b", b)?;
        g.output("c", c)
    });
    for target in [PLAIN, IN_PLACE] {
        let plan = plan(&graph, &target);
        let at = |name| buffer(&plan, named(&graph, name));
        assert_eq!(at("view"), at("a"));
        assert_ne!(at("b"), at("a"), "the view is still to be read");
    }
    // c may go over the view.
    assert_eq!(plan(&graph, &IN_PLACE).arena_bytes(), 2 * 64);
    assert_eq!(plan(&graph, &PLAIN).arena_bytes(), 3 * 64);
}

#[test]
fn a_reshaped_output_is_not_overwritten() {
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let a = g.scale("a", x, 2.0, 0.0)?;
        let view = g.reshape("view", a, [4, 4])?;
        let b = g.scale("b", a, 3.0, 0.0)?;
        g.output("view", view)?;
        g.output("b", b)
    });
    assert_eq!(plan(&graph, &IN_PLACE).arena_bytes(), 2 * 64);
}

#[test]
fn clip_values_that_steps_read_survive_and_the_others_give_way() {
    let graph = build(|g| {
        let image = g.input("image", floats(64), Phase::Clip)?;
        let features = g.scale("features", image, 2.0, 0.0)?;
        let context = g.slice("context", features, 0, 0, 16)?;
        let x = g.input("x", floats(16), Phase::Step)?;
        let sum = g.add("sum", x, context)?;
        let wide = g.concat("wide", &[sum, sum, sum, sum], 0)?;
        let y = g.scale("y", wide, 2.0, 0.0)?;
        g.output("y", y)
    });
    let plan = plan(&graph, &IN_PLACE);
    assert_eq!(order(&plan, &graph, Phase::Clip), ["features", "context"]);
    assert_eq!(order(&plan, &graph, Phase::Step), ["sum", "wide", "y"]);
    assert!(plan.steps(Phase::Load).is_empty());
    let at = |name| buffer(&plan, named(&graph, name));
    // x, context and 256 bytes of clip temporaries, which the wide step values then take.
    assert_eq!(plan.arena_bytes(), 64 + 64 + 256);
    assert!(at("wide").overlaps(&at("features")));
    // The sum goes over x, whose last reader it is, and never over the context.
    assert_eq!(at("sum"), at("x"));
}

#[test]
fn clip_outputs_last_through_the_replays() {
    let graph = build(|g| {
        let image = g.input("image", floats(16), Phase::Clip)?;
        let seen = g.scale("seen", image, 2.0, 0.0)?;
        g.output("seen", seen)?;
        let x = g.input("x", floats(16), Phase::Step)?;
        let y = g.scale("y", x, 2.0, 0.0)?;
        g.output("y", y)
    });
    let plan = plan(&graph, &PLAIN);
    let at = |name| buffer(&plan, named(&graph, name));
    // The image's place is free for y.
    assert_eq!(plan.arena_bytes(), 3 * 64);
    assert_eq!(at("y"), at("image"));
}

/// Packs the weight of linear ops, with as much again for padding.
struct Packing;

impl Target for Packing {
    fn fuses(&self, _op: &Op, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn packed_weight_bytes(&self, op: &Op, operand: usize, ty: &TensorType) -> Option<usize> {
        (matches!(op, Op::Linear(_)) && operand == 1).then(|| 2 * ty.bytes())
    }
}

#[test]
fn weights_count_as_their_readers_keep_them() {
    let matrix = || TensorType::new(DType::F32, [4, 4]);
    // Per weight: how many linear ops read it, whether something reads it plain, whether it is a result.
    let bytes = |linears: usize, plain: bool, result: bool| {
        let graph = build(|g| {
            let w = g.parameter("w", matrix())?;
            let mut x = g.input("x", matrix(), Phase::Step)?;
            for i in 0..linears {
                x = g.linear(&format!("linear{i}"), x, w, None)?;
            }
            if plain {
                x = g.add("plain", x, w)?;
            }
            if result {
                g.output("w", w)?;
            }
            // Read at load alone: of no account.
            g.scale("at_load", w, 2.0, 0.0)?;
            g.output("x", x)
        });
        let plan = Plan::new(&graph, &Packing, &PlanOptions::default()).unwrap();
        assert_eq!(plan.peak_bytes(), plan.weight_bytes() + plan.arena_bytes());
        plan.weight_bytes()
    };
    assert_eq!(bytes(0, false, false), 0);
    assert_eq!(bytes(0, true, false), 64);
    assert_eq!(bytes(1, false, false), 128);
    assert_eq!(bytes(2, false, false), 128, "the same op reads the same copy");
    assert_eq!(bytes(1, true, false), 128 + 64);
    assert_eq!(bytes(1, false, true), 128 + 64);
    assert_eq!(bytes(2, true, true), 128 + 64);
    let other = build(|g| {
        let (w, bias) = (g.parameter("w", matrix())?, g.parameter("bias", floats(4))?);
        let x = g.input("x", matrix(), Phase::Step)?;
        let x = g.linear("one", x, w, None)?;
        let x = g.linear("other", x, w, Some(bias))?;
        g.output("x", x)
    });
    let plan = Plan::new(&other, &Packing, &PlanOptions::default()).unwrap();
    assert_eq!(plan.weight_bytes(), 2 * 128 + 16, "another op may pack it in another way");
}

#[test]
fn a_weight_of_the_clip_phase_is_in_the_arena_and_packed() {
    let matrix = || TensorType::new(DType::F32, [4, 4]);
    let graph = build(|g| {
        let w = g.parameter("w", matrix())?;
        let strength = g.input("strength", floats(1), Phase::Clip)?;
        let scaled = g.mul("scaled", w, strength)?;
        let x = g.input("x", matrix(), Phase::Step)?;
        let y = g.linear("y", x, scaled, None)?;
        // Computed in the same phase: packed while it runs, if at all.
        let once = g.linear("once", scaled, scaled, None)?;
        g.output("once", once)?;
        g.output("y", y)
    });
    let plan = Plan::new(&graph, &Packing, &PlanOptions::default()).unwrap();
    assert_eq!(plan.weight_bytes(), 64 + 128);
    assert!(matches!(plan.place(named(&graph, "scaled")), Place::Arena(_)));
}

#[test]
fn a_clip_input_may_share_memory_with_a_step_result() {
    // Only until the next input is written does a step's result last: the next clip's image is one.
    let graph = build(|g| {
        let image = g.input("image", floats(16), Phase::Clip)?;
        let context = g.slice("context", image, 0, 0, 1)?;
        let x = g.input("x", floats(16), Phase::Step)?;
        let y = g.add("y", x, context)?;
        g.output("y", y)
    });
    let plan = plan(&graph, &PLAIN);
    assert_eq!(buffer(&plan, named(&graph, "y")), buffer(&plan, named(&graph, "image")));
}

#[test]
fn weights_live_outside_the_arena() {
    let graph = build(|g| {
        let w = g.parameter("w", floats(16))?;
        let only_loading = g.parameter("raw", floats(100))?;
        let packed = g.scale("packed", only_loading, 2.0, 0.0)?;
        let view = g.reshape("view", w, [16])?;
        g.parameter("unused", floats(1000))?;
        let c = g.constant("c", Tensor::zeros(floats(1)))?;
        let x = g.input("x", floats(16), Phase::Step)?;
        let a = g.add("a", x, view)?;
        let y = g.add("y", a, c)?;
        g.output("packed", packed)?;
        g.output("y", y)
    });
    let plan = plan(&graph, &IN_PLACE);
    let names: Vec<&str> = plan.resident().iter().map(|&v| graph.value(v).name.as_str()).collect();
    assert_eq!(names, ["packed", "view", "c"]);
    assert_eq!(plan.weight_bytes(), 400 + 64 + 4);
    assert_eq!(plan.peak_bytes(), plan.weight_bytes() + 64);
    let loading: Vec<&str> = plan.load_nodes().iter().map(|&n| graph.node(n).name.as_str()).collect();
    assert_eq!(loading, ["packed", "view"]);
    assert_eq!(plan.place(named(&graph, "raw")), Place::Unplaced);
    assert_eq!(plan.place(named(&graph, "packed")), Place::Resident);
}

#[test]
fn results_that_nothing_reads_have_room_while_their_node_runs() {
    let graph = build(|g| {
        let sample = g.input("sample", floats(16), Phase::Step)?;
        let prediction = g.input("prediction", floats(16), Phase::Step)?;
        let table = g.parameter("table", TensorType::new(DType::F32, [3, 8]))?;
        let step = g.parameter("step", TensorType::new(DType::I32, [1]))?;
        let op = SamplerStep { emit_denoised: true, emit_scaled: true, ..SamplerStep::default() };
        let results = g.sampler_step("sampler", &[sample, prediction, table, step], op)?;
        g.output("next", results[0])
    });
    assert_eq!(plan(&graph, &PLAIN).arena_bytes(), 5 * 64);
    let shared = plan(&graph, &IN_PLACE);
    assert_eq!(shared.arena_bytes(), 4 * 64);
    assert_eq!(buffer(&shared, graph.outputs()[0].value), buffer(&shared, named(&graph, "sample")));
}

#[test]
fn a_workspace_is_shared_between_steps() {
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let a = g.activate("a", x, Activation::Silu)?;
        let b = g.activate("b", a, Activation::Silu)?;
        g.output("y", b)
    });
    let plan = plan(&graph, &Backend { workspace: 1000, ..IN_PLACE });
    // The odd 1000 bytes lie on top, where they need no padding.
    assert_eq!((plan.arena_bytes(), plan.lower_bound()), (1064, 1064));
    for step in plan.steps(Phase::Step) {
        assert_eq!(step.workspace, Some(Buffer { offset: 64, bytes: 1000 }));
    }
}

#[test]
fn empty_tensors_take_no_room() {
    let graph = build(|g| {
        let x = g.input("x", floats(0), Phase::Step)?;
        let y = g.scale("y", x, 2.0, 0.0)?;
        g.output("y", y)
    });
    let plan = plan(&graph, &IN_PLACE);
    assert_eq!((plan.arena_bytes(), plan.lower_bound()), (0, 0));
    assert_eq!(buffer(&plan, named(&graph, "y")), Buffer { offset: 0, bytes: 0 });
    assert!(plan.display(&graph).to_string().contains("empty"));
}

#[test]
fn an_input_can_be_a_result_and_an_unused_one_has_no_place() {
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let clip = g.input("clip", floats(16), Phase::Clip)?;
        g.input("unused", floats(16), Phase::Step)?;
        let y = g.scale("y", x, 2.0, 0.0)?;
        g.output("x", x)?;
        g.output("clip", clip)?;
        g.output("y", y)
    });
    let plan = plan(&graph, &IN_PLACE);
    assert_eq!(plan.place(named(&graph, "unused")), Place::Unplaced);
    assert_eq!(plan.arena_bytes(), 3 * 64);
}

#[test]
fn an_empty_graph_has_an_empty_plan() {
    let graph = build(|_| Ok(()));
    let plan = plan(&graph, &PLAIN);
    assert_eq!(plan.peak_bytes(), 0);
    assert!(!plan.display(&graph).to_string().is_empty() && plan.to_svg(&graph).ends_with("</svg>\n"));
}

#[test]
fn a_better_order_than_the_graphs_is_found() {
    // As built, four wide branches are all made before any is narrowed. One at a time needs one wide buffer.
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let wide: Vec<ValueId> =
            (0..4).map(|i| g.concat(&format!("wide{i}"), &[x; 16], 0)).collect::<Result<_, _>>()?;
        let mut sum = x;
        for (i, &w) in wide.iter().enumerate() {
            let narrow = g.slice(&format!("narrow{i}"), w, 0, 0, 16)?;
            sum = g.add(&format!("sum{i}"), sum, narrow)?;
        }
        g.output("sum", sum)
    });
    let plan = plan(&graph, &IN_PLACE);
    // One wide buffer of 1024 bytes, and of the narrow ones x, the sum so far and the newest.
    assert!(plan.arena_bytes() <= 1024 + 4 * 64, "{}", plan.display(&graph));
}

#[test]
fn the_branch_that_needs_more_runs_first() {
    // Sethi and Ullman: heavy first holds 64 + 0, light first would hold 512 beside the 2048.
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let light = g.concat("light", &[x; 8], 0)?;
        let wide = g.concat("wide", &[x; 32], 0)?;
        let heavy = g.slice("heavy", wide, 0, 0, 128)?;
        let y = g.add("y", light, heavy)?;
        g.output("y", y)
    });
    let plan = plan(&graph, &PLAIN);
    assert_eq!(order(&plan, &graph, Phase::Step), ["wide", "heavy", "light", "y"]);
    assert_eq!(plan.arena_bytes(), 64 + 2048 + 512);
}

#[test]
fn too_much_for_memory_is_an_error() {
    let graph = build(|g| {
        let x = g.input("x", floats(1 << 60), Phase::Step)?;
        let y = g.scale("y", x, 2.0, 0.0)?;
        g.output("y", y)
    });
    let result = Plan::new(&graph, &PLAIN, &PlanOptions::default());
    assert_eq!(result, Err(PlanError::TooLarge));
    assert_eq!(Plan::new(&graph, &IN_PLACE, &PlanOptions::default()).map(|p| p.arena_bytes()), Ok(1 << 62));

    let weights = build(|g| {
        let x = g.input("x", floats(1), Phase::Step)?;
        let all = (0..4).map(|i| g.parameter(&format!("w{i}"), floats(1 << 60)));
        for w in all.collect::<Result<Vec<_>, _>>()? {
            g.output(&format!("w{}", w.index()), w)?;
        }
        g.output("x", x)
    });
    assert_eq!(Plan::new(&weights, &PLAIN, &PlanOptions::default()), Err(PlanError::TooLarge));
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_refused() {
    for alignment in [0, 48] {
        let result = Plan::new(&chain(1, 1), &Backend { alignment, ..PLAIN }, &PlanOptions::default());
        assert_eq!(result, Err(PlanError::Alignment(alignment)));
    }
}

#[test]
fn verify_finds_broken_plans() {
    let graph = build(|g| {
        let x = g.input("x", floats(16), Phase::Step)?;
        let a = g.activate("a", x, Activation::Silu)?;
        let b = g.scale("b", x, 3.0, 0.0)?;
        let y = g.add("y", a, b)?;
        g.output("y", y)
    });
    let good = plan(&graph, &Backend { workspace: 64, ..IN_PLACE });
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        match plan.verify(&graph) {
            Err(PlanError::Broken(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    let at = |name: &str| named(&graph, name).index();
    let moved = |name: &'static str, offset: usize| {
        broken(&|p| p.places[at(name)] = Place::Arena(Buffer { offset, bytes: 64 }))
    };
    let x = buffer(&good, named(&graph, "x"));
    // b still needs x when a runs, so this is no in-place write.
    assert_eq!(moved("a", x.offset), "x and a overlap");
    assert_eq!(moved("a", 1), "a is not aligned");
    assert_eq!(moved("a", 1 << 20), "a lies outside the arena");
    assert_eq!(broken(&|p| p.places[at("a")] = Place::Unplaced), "a is Unplaced, not in the arena");
    assert_eq!(broken(&|p| p.step.swap(1, 2)), "y runs before b");
    assert_eq!(broken(&|p| p.step.truncate(2)), "y is never made");
    assert_eq!(broken(&|p| p.step[1] = p.step[0]), "a runs twice");
    assert_eq!(broken(&|p| p.clip = p.step.drain(..1).collect()), "a runs before x is known");
    assert_eq!(broken(&|p| p.step[0].workspace = Some(x)), "x and a overlap");
    assert!(matches!(good.verify(&chain(9, 16)), Err(PlanError::Broken(_))));
}

#[test]
fn a_clip_value_is_known_by_its_source() {
    // A clip input that only a step node reads has no clip node, and still survives.
    let graph = build(|g| {
        let c = g.input("c", floats(16), Phase::Clip)?;
        let x = g.input("x", floats(16), Phase::Step)?;
        let y = g.add("y", c, x)?;
        let z = g.scale("z", y, 2.0, 0.0)?;
        g.output("z", z)
    });
    let plan = plan(&graph, &IN_PLACE);
    assert_eq!(graph.value(named(&graph, "c")).source, Source::Input(Phase::Clip));
    assert_eq!(plan.arena_bytes(), 128);
    assert_eq!(buffer(&plan, named(&graph, "z")), buffer(&plan, named(&graph, "x")));
}

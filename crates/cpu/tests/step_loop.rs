//! The loop of steps on the CPU.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;

use kinora_cpu::{Options, Program};
use kinora_graph::{DType, GraphBuilder, Phase, Tensor, TensorType};
use kinora_runtime::{RunError, StepLoop, StepResults, Tensors};

/// `next = latents + 10 · step + noise`.
fn program() -> Program {
    let mut g = GraphBuilder::new("loop");
    let ty = |dtype| TensorType::new(dtype, [1]);
    let latents = g.input("latents", ty(DType::F32), Phase::Step).unwrap();
    let step = g.input("step", ty(DType::I32), Phase::Step).unwrap();
    let noise = g.input("noise", ty(DType::F32), Phase::Step).unwrap();
    let table = g.parameter("table", TensorType::new(DType::F32, [4, 1])).unwrap();
    let row = g.embedding("row", table, step).unwrap();
    let row = g.reshape("flat", row, [1]).unwrap();
    let sum = g.add("sum", latents, row).unwrap();
    let sum = g.add("noisy", sum, noise).unwrap();
    g.output("next", sum).unwrap();
    let table = Tensor::from_slice([4, 1], &[0.0f32, 10.0, 20.0, 30.0]).unwrap();
    let weights = Tensors::from([("table".to_owned(), table)]);
    Program::new(&g.finish(), &weights, Options::default()).unwrap()
}

fn number(x: f32) -> Tensor {
    Tensor::from_slice([1], &[x]).unwrap()
}

fn inputs() -> Tensors {
    let step = Tensor::from_slice([1], &[0i32]).unwrap();
    Tensors::from([("latents".to_owned(), number(1.0)), ("step".to_owned(), step)])
}

#[test]
fn results_counts_and_fresh_inputs_go_from_step_to_step() {
    let noise = [0.1, 0.2, 0.3, 0.4].map(number);
    let steps = StepLoop {
        count: 4,
        feedback: &[("next", "latents")],
        counters: &["step"],
        fresh: &[("noise", &noise)],
    };
    let mut program = program();
    let mut seen = Vec::new();
    let mut observe = |step: usize, results: &dyn StepResults| {
        seen.push((step, results.get("next").unwrap().to_f32()[0]));
        assert!(results.get("nothing").is_none());
        ControlFlow::Continue(())
    };
    let results = program.run_steps(&steps, &inputs(), Some(&mut observe)).unwrap();
    assert!((results["next"].to_f32()[0] - 62.0).abs() < 1e-5);
    for ((step, value), (i, expected)) in seen.iter().zip([1.1f32, 11.3, 31.6, 62.0].iter().enumerate()) {
        assert!(*step == i + 1 && (value - expected).abs() < 1e-5, "{step}: {value}");
    }
    assert_eq!(seen.len(), 4);

    let stopped = program.run_steps(
        &steps,
        &inputs(),
        Some(&mut |step, _| if step == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }),
    );
    assert_eq!(stopped.unwrap_err(), RunError::Stopped);
}

#[test]
fn a_loop_that_does_not_fit_the_graph_is_refused() {
    let noise = [number(0.0), number(0.0)];
    let right = StepLoop { count: 2, fresh: &[("noise", &noise)], ..StepLoop::default() };
    let mut program = program();
    assert!(program.run_steps(&right, &inputs(), None).is_ok());
    let refused = |steps: StepLoop<'_>, program: &mut Program| {
        program.run_steps(&steps, &inputs(), None).unwrap_err().to_string()
    };
    for (steps, words) in [
        (StepLoop { count: 3, ..right }, "3 steps"),
        (StepLoop { feedback: &[("nothing", "latents")], ..right }, "nothing"),
        (StepLoop { feedback: &[("next", "nothing")], ..right }, "nothing"),
        (StepLoop { feedback: &[("next", "step")], ..right }, "step"),
        (StepLoop { counters: &["latents"], ..right }, "latents"),
        (StepLoop { counters: &["nothing"], ..right }, "nothing"),
        (StepLoop { fresh: &[], ..right }, "noise"),
    ] {
        let message = refused(steps, &mut program);
        assert!(message.contains(words), "{words} is not in: {message}");
    }
}

//! Steps of which some read what an earlier one kept, on any backend.

use std::{collections::HashMap, ops::ControlFlow};

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Tensor, TensorType};
use kinora_profile::Profiler;
use kinora_runtime::{
    Backend, CachedSteps, LoadContext, Network, RunError, SharedWeights, StepLoop, StepResults, Tensors,
};

const COUNT: usize = 5;
const STEPS: usize = 7;
const FACTOR: f32 = 0.5;
const KEPT: (&str, &str) = ("deep", "kept");

/// `next = latents + deep + noise + bias`, where `deep = 0.5 · latents + row(step)`: of this step, or given.
fn graph(whole: bool) -> Graph {
    let mut g = GraphBuilder::new("steps");
    let ty = TensorType::new(DType::F32, [1, COUNT]);
    let bias = g.input("bias", ty.clone(), Phase::Clip).unwrap();
    let latents = g.input("latents", ty.clone(), Phase::Step).unwrap();
    let step = g.input("step", TensorType::new(DType::I32, [1]), Phase::Step).unwrap();
    let noise = g.input("noise", ty.clone(), Phase::Step).unwrap();
    let table = g.parameter("table", TensorType::new(DType::F32, [STEPS, COUNT])).unwrap();
    let row = g.embedding("row", table, step).unwrap();
    let deep = if whole {
        let half = g.scale("half", latents, FACTOR, 0.0).unwrap();
        let deep = g.add("deep", half, row).unwrap();
        g.output(KEPT.0, deep).unwrap();
        deep
    } else {
        g.input(KEPT.1, ty, Phase::Step).unwrap()
    };
    let sum = g.add("sum", latents, deep).unwrap();
    let sum = g.add("noisy", sum, noise).unwrap();
    let next = g.add("next", sum, bias).unwrap();
    g.output("next", next).unwrap();
    // Both know which step it is.
    g.output("seen", row).unwrap();
    g.finish()
}

/// Small whole numbers and halves, whose sums are exact.
fn row(seed: usize) -> [f32; COUNT] {
    std::array::from_fn(|at| ((7 * seed + 3 * at) % 11) as f32)
}

fn tensor(values: &[f32]) -> Tensor {
    Tensor::from_slice([values.len() / COUNT, COUNT], values).unwrap()
}

/// What the steps give, by numbers made here.
fn expected(interval: usize) -> Vec<[f32; COUNT]> {
    let (mut latents, mut kept) = (row(100), [0.0; COUNT]);
    let mut nexts = Vec::new();
    for step in 0..STEPS {
        if step % interval == 0 {
            kept = std::array::from_fn(|at| FACTOR * latents[at] + row(step)[at]);
        }
        latents = std::array::from_fn(|at| latents[at] + kept[at] + row(200 + step)[at] + row(300)[at]);
        nexts.push(latents);
    }
    nexts
}

/// Runs two networks in turn, and checks every step against sums made here.
pub fn check(backend: &dyn Backend) {
    let shared = SharedWeights::default();
    let table: Vec<f32> = (0..STEPS).flat_map(row).collect();
    let parameters = HashMap::from([("table".to_owned(), tensor(&table))]);
    let load = |whole| {
        let kept = [KEPT.0, KEPT.1];
        let context = LoadContext {
            profiler: &Profiler::off(),
            compiled: &|_, _| {},
            shared: Some(&shared),
            kept: &kept,
        };
        backend.plan(&graph(whole), None).unwrap().load(&parameters, &context).unwrap()
    };
    let (mut whole, mut shallow): (Box<dyn Network>, Box<dyn Network>) = (load(true), load(false));
    let noise: Vec<Tensor> = (0..STEPS).map(|step| tensor(&row(200 + step))).collect();
    let fresh = [("noise", &noise[..])];
    let steps =
        StepLoop { count: STEPS, feedback: &[("next", "latents")], counters: &["step"], fresh: &fresh };
    let cached = |interval| CachedSteps { steps, interval, kept: &[KEPT] };
    let step = Tensor::from_slice([1], &[0i32]).unwrap();
    let inputs = Tensors::from([("latents".to_owned(), tensor(&row(100))), ("step".to_owned(), step)]);

    let not_run = whole.run_cached_steps(&mut *shallow, &cached(3), &inputs, None);
    assert!(matches!(not_run, Err(RunError::ClipNotRun)));
    let clip = Tensors::from([("bias".to_owned(), tensor(&row(300)))]);
    whole.run_clip(&clip).unwrap();
    shallow.run_clip(&clip).unwrap();

    for interval in [3, 1, 2, 6, 7, 3] {
        let expected = expected(interval);
        let results = whole.run_cached_steps(&mut *shallow, &cached(interval), &inputs, None).unwrap();
        assert_eq!(results["next"].to_f32(), expected[STEPS - 1], "interval {interval}");
        assert!(!results.contains_key(KEPT.0), "what is kept is no result");
        for last in 1..=STEPS {
            let mut seen = Vec::new();
            let mut observer = |done: usize, results: &dyn StepResults| {
                assert_eq!(results.get("next").unwrap().to_f32(), expected[done - 1], "step {done}");
                assert_eq!(results.get("seen").unwrap().to_f32(), row(done - 1), "step {done}");
                assert!(results.get(KEPT.0).is_none());
                seen.push(done);
                if done == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let stopped =
                whole.run_cached_steps(&mut *shallow, &cached(interval), &inputs, Some(&mut observer));
            assert_eq!(stopped.unwrap_err(), RunError::Stopped);
            assert_eq!(seen, (1..=last).collect::<Vec<_>>());
        }
    }

    let none = CachedSteps { kept: &[("nothing", KEPT.1)], ..cached(3) };
    let refused = whole.run_cached_steps(&mut *shallow, &none, &inputs, None);
    assert_eq!(refused.unwrap_err(), RunError::UnknownOutput("nothing".to_owned()));
    // A shallow step lacks its input, or has one too many.
    for wrong in
        [CachedSteps { kept: &[], ..cached(3) }, CachedSteps { kept: &[("deep", "nothing")], ..cached(3) }]
    {
        assert!(whole.run_cached_steps(&mut *shallow, &wrong, &inputs, None).is_err());
    }
    // The row of the table that the last step but one asks for is not there.
    let late = Tensors::from([("step".to_owned(), Tensor::from_slice([1], &[2i32]).unwrap())]);
    let late: Tensors = inputs.clone().into_iter().chain(late).collect();
    let error = whole.run_cached_steps(&mut *shallow, &cached(3), &late, None).unwrap_err();
    assert_eq!(error, RunError::Token { layer: "row".to_owned(), id: STEPS as i32, rows: STEPS });
    whole.run_clip(&clip).unwrap();
    shallow.run_clip(&clip).unwrap();
    let results = whole.run_cached_steps(&mut *shallow, &cached(2), &inputs, None).unwrap();
    assert_eq!(results["next"].to_f32(), expected(2)[STEPS - 1]);
}

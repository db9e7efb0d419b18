//! Frames in a row, on any backend: what one hands on is what the next one reads.

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Tensor, TensorType};
use kinora_runtime::{Carried, Network, RunError, Stop, Tensors};

const COUNT: usize = 5;
/// The sum of a frame is the state of the next.
const CARRIED: Carried<'static> = Carried(&[("sum", "state")]);

/// A running sum of frames: `sum = frame + state`, `shown = factor · sum`, with the factor an input of the clip phase.
pub fn running_sum() -> Graph {
    let mut g = GraphBuilder::new("running sum");
    let ty = TensorType::new(DType::F32, [COUNT]);
    let factor = g.input("factor", TensorType::new(DType::F32, [1]), Phase::Clip).unwrap();
    let frame = g.input("frame", ty.clone(), Phase::Step).unwrap();
    let state = g.input("state", ty, Phase::Step).unwrap();
    let sum = g.add("sum", frame, state).unwrap();
    let shown = g.mul("shown", sum, factor).unwrap();
    g.output("sum", sum).unwrap();
    g.output("shown", shown).unwrap();
    g.finish()
}

fn tensors(named: &[(&str, &[f32])]) -> Tensors {
    let tensor = |values: &[f32]| Tensor::from_slice([values.len()], values).unwrap();
    named.iter().map(|(name, values)| ((*name).to_owned(), tensor(values))).collect()
}

/// Runs frames of [`running_sum`] and checks every result against sums made here.
pub fn check(network: &mut dyn Network) {
    let mut results = Tensors::new();
    let frame = |number: usize| -> [f32; COUNT] { std::array::from_fn(|at| (10 * number + at) as f32) };
    let given = |number: usize| tensors(&[("frame", &frame(number))]);
    network.run_clip(&tensors(&[("factor", &[2.0])])).unwrap();
    assert!(matches!(network.run_frame(&given(0), &mut results), Err(RunError::FramesNotBegun)));
    assert!(matches!(network.handed_on(), Err(RunError::FramesNotBegun)));

    for (first, factor) in [([0.5; COUNT], 2.0), ([-3.0; COUNT], 3.0)] {
        // A second row begins from its own state, not from where the first one ended.
        network.begin_frames(CARRIED, &tensors(&[("state", &first)])).unwrap();
        let mut sum = first;
        for number in 1..=4 {
            // What is handed on outlives a change of the clip phase's inputs.
            let factor = factor + number as f32;
            network.run_clip(&tensors(&[("factor", &[factor])])).unwrap();
            network.run_frame(&given(number), &mut results).unwrap();
            sum.iter_mut().zip(frame(number)).for_each(|(sum, value)| *sum += value);
            assert_eq!(results.len(), 1, "what is handed on is not a result");
            assert_eq!(results["shown"].to_f32(), sum.map(|value| factor * value), "frame {number}");
            assert_eq!(network.handed_on().unwrap(), tensors(&[("state", &sum)]), "frame {number}");
        }
    }

    // A frame that is refused changes nothing.
    let before = results["shown"].to_f32();
    let zeros = tensors(&[("frame", &[0.0; COUNT])]);
    let state = tensors(&[("frame", &[0.0; COUNT]), ("state", &[1.0; COUNT])]);
    assert!(
        matches!(network.run_frame(&state, &mut results), Err(RunError::UnknownInput(name)) if name == "state")
    );
    assert!(matches!(
        network.run_frame(&Tensors::new(), &mut results),
        Err(RunError::MissingInput { name, .. }) if name == "frame"
    ));
    let other = tensors(&[("frame", &[0.0; COUNT]), ("other", &[0.0])]);
    assert!(
        matches!(network.run_frame(&other, &mut results), Err(RunError::UnknownInput(name)) if name == "other")
    );
    network.run_frame(&zeros, &mut results).unwrap();
    assert_eq!(results["shown"].to_f32(), before);

    let refused = |network: &mut dyn Network, pairs: &[(&str, &str)], first: &Tensors| {
        network.begin_frames(Carried(pairs), first).unwrap_err()
    };
    let state = tensors(&[("state", &[0.0; COUNT])]);
    assert!(
        matches!(refused(network, &[("none", "state")], &state), RunError::UnknownOutput(name) if name == "none")
    );
    assert!(
        matches!(refused(network, &[("sum", "none")], &state), RunError::UnknownInput(name) if name == "none")
    );
    assert!(matches!(refused(network, &[("sum", "factor")], &state), RunError::UnknownInput(_)));
    assert!(matches!(refused(network, CARRIED.0, &Tensors::new()), RunError::MissingInput { .. }));
    let short = tensors(&[("state", &[0.0])]);
    assert!(matches!(refused(network, CARRIED.0, &short), RunError::WrongType { .. }));
    assert!(matches!(refused(network, &[], &state), RunError::UnknownInput(name) if name == "state"));
}

/// Stops a frame of [`running_sum`] on a backend that can be stopped, and goes on with the row.
pub fn check_stop(network: &mut dyn Network) {
    let mut results = Tensors::new();
    let ones = tensors(&[("frame", &[1.0; COUNT])]);
    network.run_clip(&tensors(&[("factor", &[2.0])])).unwrap();
    network.begin_frames(CARRIED, &tensors(&[("state", &[0.0; COUNT])])).unwrap();
    network.run_frame(&ones, &mut results).unwrap();
    let stop = Stop::new();
    network.stop_on(&stop);
    network.run_frame(&ones, &mut results).unwrap();
    assert_eq!(results["shown"].to_f32(), [4.0; COUNT], "nobody has asked yet");
    stop.request();
    assert!(matches!(network.run_frame(&ones, &mut results), Err(RunError::Stopped)));
    assert_eq!(network.handed_on().unwrap(), tensors(&[("state", &[2.0; COUNT])]));
    network.stop_on(&Stop::new());
    network.run_frame(&ones, &mut results).unwrap();
    assert_eq!(results["shown"].to_f32(), [6.0; COUNT]);
}

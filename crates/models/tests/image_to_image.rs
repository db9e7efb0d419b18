//! Runs from a picture against diffusers' schedulers and pipelines (`golden/make_image_to_image.py`).
#![allow(clippy::unwrap_used)]

mod support;

use kinora_cpu::reference;
use kinora_graph::{
    Tensor,
    op::{Op, STEP_COLUMNS, SamplerStep},
};
use kinora_models::{
    networks::denoise::SamplerNeeds,
    noise::TorchGenerator,
    schedulers::{ImageToImage, Schedule, Scheduler, SchedulerError, SchedulerKind},
};
use serde::Deserialize;
use serde_json::{Value, json};
use support::fixtures::Fixture;

/// Elements of a sample in the fixtures.
const ELEMENTS: usize = 3;

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    config: Value,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    steps: Option<usize>,
    strength: Option<f64>,
    timesteps: Option<Vec<usize>>,
    visited: usize,
}

impl Case {
    fn scheduler(&self) -> Scheduler {
        Scheduler::from_config_as(&self.config, self.kind.parse().unwrap()).unwrap()
    }
}

impl Run {
    fn visits(&self) -> ImageToImage<'_> {
        match &self.timesteps {
            Some(timesteps) => ImageToImage::Timesteps(timesteps),
            None => ImageToImage::Strength { steps: self.steps.unwrap(), strength: self.strength.unwrap() },
        }
    }
}

/// Takes the next `count` values of a column.
fn take<'a>(column: &mut &'a [f32], count: usize) -> &'a [f32] {
    let (head, tail) = column.split_at(count);
    *column = tail;
    head
}

/// Whether all are equal but for the rounding of f32.
fn assert_equal(label: &str, expected: &[f32], got: &[f64]) {
    assert_eq!(expected.len(), got.len(), "{label}");
    for (&expected, &got) in expected.iter().zip(got) {
        let expected = f64::from(expected);
        assert!((expected - got).abs() <= 1e-6 * expected.abs(), "{label}: {got}, not {expected}");
    }
}

#[test]
fn tables_and_trajectories_are_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("image_to_image");
    assert!(fixture.cases.len() > 12);
    let mut worst: f64 = 0.0;
    for case in &fixture.cases {
        let columns = ["timesteps", "sigmas", "mix", "scales", "samples"]
            .map(|column| fixture.expected(&case.name, column).to_f32());
        let [mut timesteps, mut sigmas, mut mix, mut scales, mut samples] =
            columns.each_ref().map(Vec::as_slice);
        let scheduler = case.scheduler();
        for run in &case.runs {
            let label = format!("{}, {:?}", case.name, run.visits());
            let schedule = scheduler.image_to_image(run.visits()).unwrap();
            let wide: Vec<f64> = schedule.timesteps.iter().map(|&timestep| timestep.into()).collect();
            assert_equal(&label, take(&mut timesteps, run.visited), &wide);
            assert_equal(&label, take(&mut sigmas, run.visited + 1), &schedule.sigmas);
            assert_equal(&label, take(&mut mix, 2), &schedule.mix());
            assert_equal(&label, take(&mut scales, run.visited), &schedule.input_scales);
            let mut unit = 1f32;
            for sample in trajectory(&schedule) {
                for (&a, b) in take(&mut samples, ELEMENTS).iter().zip(sample) {
                    unit = unit.max(a.abs());
                    let error = f64::from((a - b).abs() / unit);
                    assert!(error <= 1e-4, "{label}: {b}, not {a}");
                    worst = worst.max(error);
                }
            }
        }
        assert!([timesteps, sigmas, mix, scales, samples].iter().all(|column| column.is_empty()));
    }
    println!("largest error of a sample, by the largest sample so far: {worst:.1e}");
}

/// The samples after every step, with the script's linear function for a network.
fn trajectory(schedule: &Schedule) -> Vec<Vec<f32>> {
    let steps = schedule.timesteps.len();
    let mut generator = TorchGenerator::new(steps as u64);
    let tensor = |elements: &[f32]| Tensor::from_slice([1, ELEMENTS], elements).unwrap();
    let SamplerNeeds { history: reads_history, noise, clip } = schedule.needs();
    let op = Op::SamplerStep(SamplerStep {
        history: reads_history,
        noise,
        clip,
        emit_denoised: true,
        ..SamplerStep::default()
    });
    let table = Tensor::from_slice([steps, STEP_COLUMNS], schedule.table().as_flattened()).unwrap();
    let (picture, start) = (generator.normal(ELEMENTS), generator.normal(ELEMENTS));
    let [signal, level] = schedule.mix().map(|weight| weight as f32);
    let mixed = picture.iter().zip(&start).map(|(picture, noise)| signal * picture + level * noise);
    let mut sample = tensor(&mixed.collect::<Vec<f32>>());
    let mut history = tensor(&[0.0; ELEMENTS]);
    let mut samples = Vec::new();
    for step in 0..steps {
        let (scale, timestep) = (schedule.input_scales[step] as f32, schedule.timesteps[step]);
        let predict = |&x: &f32| 0.5 * scale * x + timestep / 2000.0 - 0.2;
        let prediction = tensor(&sample.to_f32().iter().map(predict).collect::<Vec<f32>>());
        let index = Tensor::from_slice([1], &[step as i32]).unwrap();
        let fresh = schedule.coefficients[step].next_noise != 0.0;
        let noise = tensor(&if fresh { generator.normal(ELEMENTS) } else { vec![0.0; ELEMENTS] });
        let mut inputs = vec![&sample, &prediction, &table, &index];
        inputs.extend(schedule.needs_history.then_some(&history));
        inputs.extend(schedule.needs_noise.then_some(&noise));
        let mut results = reference::run("sampler", &op, &inputs).unwrap().into_iter();
        sample = results.next().unwrap();
        history = results.next().unwrap();
        samples.push(sample.to_f32());
    }
    samples
}

/// SD-Turbo's scheduler.
fn turbo() -> Scheduler {
    let config = json!({
        "_class_name": "EulerDiscreteScheduler", "timestep_spacing": "trailing", "steps_offset": 1,
        "beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012,
    });
    Scheduler::from_config(&config).unwrap()
}

#[test]
fn timesteps_of_a_strength_are_the_last_of_trailing_spacing() {
    let fixture: Fixture<Case> = Fixture::load("image_to_image");
    let case = fixture.cases.iter().find(|case| case.name == "euler_whole_steps").unwrap();
    let column = fixture.expected(&case.name, "timesteps").to_f32();
    let mut expected = column.as_slice();
    assert!(case.runs.len() > 20);
    for run in &case.runs {
        let timesteps = turbo().trailing_timesteps(run.visited, run.strength.unwrap()).unwrap();
        let timesteps: Vec<f32> = timesteps.into_iter().map(|timestep| timestep as f32).collect();
        assert_eq!(timesteps, take(&mut expected, run.visited), "{:?}", run.visits());
    }
    assert_eq!(turbo().trailing_timesteps(1, 1.0).unwrap(), [999]);
    assert_eq!(turbo().trailing_timesteps(2, 0.7).unwrap(), [699, 349]);
}

#[test]
fn strengths_without_a_step_are_refused() {
    let by = |steps, strength| turbo().image_to_image(ImageToImage::Strength { steps, strength });
    for strength in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
        assert!(matches!(by(4, strength), Err(SchedulerError::Strength(_))), "{strength}");
        assert!(matches!(turbo().trailing_timesteps(4, strength), Err(SchedulerError::Strength(_))));
    }
    let message = by(4, 0.2).unwrap_err().to_string();
    assert_eq!(message, "a strength of 0.2 is too small for 4 steps; use a larger one");
    assert!(matches!(by(0, 0.5), Err(SchedulerError::Steps { .. })));
    assert!(matches!(by(1001, 0.5), Err(SchedulerError::Steps { .. })));
    for (steps, strength) in [(1, 1e-9), (8, 0.004), (2, 0.001)] {
        let none = turbo().trailing_timesteps(steps, strength);
        assert!(matches!(none, Err(SchedulerError::NoStep { .. })), "{steps} steps, {strength}");
    }
    let lcm = Scheduler::from_config_as(&json!({}), SchedulerKind::Lcm).unwrap();
    let few = lcm.image_to_image(ImageToImage::Strength { steps: 8, strength: 0.15 });
    assert!(matches!(few, Err(SchedulerError::NoStep { steps: 8, .. })), "7 original steps are left");
}

#[test]
fn lists_of_timesteps_that_do_not_fit_are_refused() {
    let list = |timesteps: &[usize]| turbo().image_to_image(ImageToImage::Timesteps(timesteps));
    assert!(matches!(list(&[]), Err(SchedulerError::NoTimesteps)));
    assert!(matches!(list(&[1000]), Err(SchedulerError::Order { timestep: 1000, last: 999 })));
    assert!(matches!(list(&[usize::MAX, 3]), Err(SchedulerError::Order { .. })));
    assert!(matches!(list(&[500, 500]), Err(SchedulerError::Order { timestep: 500, .. })));
    assert!(matches!(list(&[500, 400, 600]), Err(SchedulerError::Order { timestep: 600, .. })));
    for (kind, config) in [
        (SchedulerKind::Ddim, json!({})),
        (SchedulerKind::Euler, json!({"use_karras_sigmas": true})),
        (SchedulerKind::Euler, json!({"interpolation_type": "log_linear"})),
        (SchedulerKind::Euler, json!({"timestep_type": "continuous", "prediction_type": "v_prediction"})),
        (SchedulerKind::DpmSolver, json!({"use_exponential_sigmas": true})),
    ] {
        let scheduler = Scheduler::from_config_as(&config, kind).unwrap();
        let refused = scheduler.image_to_image(ImageToImage::Timesteps(&[999, 499]));
        assert!(matches!(refused, Err(SchedulerError::Explicit { .. })), "{kind}: {config}");
    }
}

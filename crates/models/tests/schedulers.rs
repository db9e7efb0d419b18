//! Schedules against diffusers' schedulers (`golden/make_schedulers.py`), and configurations that must be refused.
#![allow(clippy::unwrap_used)]

mod support;

use kinora_cpu::{reference, run_on_tensors, simd::Isa};
use kinora_graph::{
    Tensor,
    op::{Op, STEP_COLUMNS, SamplerStep},
};
use kinora_models::{
    networks::denoise::SamplerNeeds,
    noise::TorchGenerator,
    schedulers::{Schedule, Scheduler, SchedulerError, SchedulerKind, parse_config, torch_linspace},
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
    eta: f64,
    steps: Vec<usize>,
}

impl Case {
    fn scheduler(&self) -> Scheduler {
        let kind: SchedulerKind = self.kind.parse().unwrap();
        let scheduler = Scheduler::from_config_as(&self.config, kind).unwrap();
        if self.eta > 0.0 { scheduler.with_eta(self.eta).unwrap() } else { scheduler }
    }
}

/// Takes the next `count` values of a column.
fn take<'a>(column: &mut &'a [f32], count: usize) -> &'a [f32] {
    let (head, tail) = column.split_at(count);
    *column = tail;
    head
}

/// The largest relative difference.
fn difference(expected: &[f32], got: &[f64]) -> f64 {
    assert_eq!(expected.len(), got.len());
    let relative = |(&a, &b): (&f32, &f64)| {
        let a = f64::from(a);
        if a == b { 0.0 } else { (a - b).abs() / a.abs().max(1e-12) }
    };
    expected.iter().zip(got).map(relative).fold(0.0, f64::max)
}

#[test]
fn tables_are_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("schedulers");
    assert!(fixture.cases.len() > 40);
    let mut worst: f64 = 0.0;
    let mut failures = Vec::new();
    for case in &fixture.cases {
        let columns = ["timesteps", "sigmas", "scales", "initial"]
            .map(|column| fixture.expected(&case.name, column).to_f32());
        let [mut timesteps, mut sigmas, mut scales, mut initial] = columns.each_ref().map(Vec::as_slice);
        let scheduler = case.scheduler();
        for &steps in &case.steps {
            let schedule = scheduler.schedule(steps).unwrap();
            let wide: Vec<f64> = schedule.timesteps.iter().map(|&timestep| timestep.into()).collect();
            let differences = [
                difference(take(&mut timesteps, steps), &wide),
                difference(take(&mut sigmas, steps + 1), &schedule.sigmas),
                difference(take(&mut scales, steps), &schedule.input_scales),
                difference(take(&mut initial, 1), &[schedule.initial_noise_scale]),
            ];
            let largest = differences.into_iter().fold(0.0, f64::max);
            // PyTorch takes the square roots of the rescaled levels with a vector library that does not round correctly,
            // and small sigmas show it. Ours are rounded correctly.
            let bar = if case.name.ends_with("zero_snr") { 5e-6 } else { 1e-6 };
            if bar == 1e-6 {
                worst = worst.max(largest);
            }
            if largest.is_nan() || largest > bar {
                failures.push(format!("{} with {steps} steps: {differences:?}", case.name));
            }
        }
        assert!(timesteps.is_empty() && sigmas.is_empty() && scales.is_empty() && initial.is_empty());
    }
    println!("largest relative difference of {} cases but the rescaled: {worst:.1e}", fixture.cases.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs one op.
type Executor = fn(&Op, &[&Tensor]) -> Vec<Tensor>;

const EXECUTORS: [(&str, Executor); 2] = [
    ("reference", |op, inputs| reference::run("sampler", op, inputs).unwrap()),
    ("fast", |op, inputs| run_on_tensors(Isa::detect(), "sampler", op, inputs).unwrap()),
];

/// The samples after every step, with what the fixture's script draws.
fn trajectory(schedule: &Schedule, executor: Executor) -> Vec<Vec<f32>> {
    let steps = schedule.timesteps.len();
    let mut generator = TorchGenerator::new(steps as u64);
    let tensor = |elements: &[f32]| Tensor::from_slice([1, ELEMENTS], elements).unwrap();
    let SamplerNeeds { history: reads_history, noise, clip } = schedule.needs();
    let op = Op::SamplerStep(SamplerStep {
        guided: false,
        history: reads_history,
        noise,
        blend: false,
        clip,
        emit_denoised: reads_history,
        emit_scaled: true,
    });
    let table = Tensor::from_slice([steps, STEP_COLUMNS], schedule.table().as_flattened()).unwrap();
    let scale = schedule.initial_noise_scale as f32;
    let first: Vec<f32> = generator.normal(ELEMENTS).into_iter().map(|number| number * scale).collect();
    let (mut sample, mut history) = (tensor(&first), tensor(&[0.0; ELEMENTS]));
    let mut samples = Vec::new();
    for step in 0..steps {
        let prediction = tensor(&generator.normal(ELEMENTS));
        let index = Tensor::from_slice([1], &[step as i32]).unwrap();
        let fresh = schedule.coefficients[step].next_noise != 0.0;
        let noise = tensor(&if fresh { generator.normal(ELEMENTS) } else { vec![0.0; ELEMENTS] });
        let mut inputs = vec![&sample, &prediction, &table, &index];
        inputs.extend(schedule.needs_history.then_some(&history));
        inputs.extend(schedule.needs_noise.then_some(&noise));
        let mut results = executor(&op, &inputs).into_iter();
        sample = results.next().unwrap();
        if schedule.needs_history {
            history = results.next().unwrap();
        }
        samples.push(sample.to_f32());
    }
    samples
}

#[test]
fn trajectories_are_diffusers() {
    let fixture: Fixture<Case> = Fixture::load("schedulers");
    let mut failures = Vec::new();
    for (name, executor) in EXECUTORS {
        let mut worst: f64 = 0.0;
        for case in &fixture.cases {
            let column = fixture.expected(&case.name, "samples").to_f32();
            let mut expected = column.as_slice();
            let scheduler = case.scheduler();
            for &steps in &case.steps {
                let schedule = scheduler.schedule(steps).unwrap();
                // Samples are as large as their noise, or larger where predictions at random lead them away; an error is
                // measured by the largest so far.
                let mut unit = 1f32;
                for (step, sample) in trajectory(&schedule, executor).into_iter().enumerate() {
                    for (&a, b) in take(&mut expected, ELEMENTS).iter().zip(sample) {
                        unit = unit.max(a.abs());
                        let error = (f64::from(a) - f64::from(b)).abs() / f64::from(unit);
                        worst = worst.max(error);
                        if error.is_nan() || error > 1e-4 {
                            failures.push(format!("{} of {steps}, step {step}, {name}: {a} {b}", case.name));
                        }
                    }
                }
            }
            assert!(expected.is_empty());
        }
        println!("{name}: largest error, by the largest sample so far: {worst:.1e}");
    }
    failures.truncate(20);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_published_schedule_is_the_known_one() {
    let schedule = Scheduler::default_svd().schedule(25).unwrap();
    assert_eq!(schedule.sigmas.first(), Some(&700.0));
    assert!((schedule.sigmas[24] - 0.002).abs() < 1e-9);
    assert_eq!(schedule.sigmas.last(), Some(&0.0));
    assert!((schedule.timesteps[0] - 0.25 * 700f32.ln()).abs() < 1e-6);
    assert!(!schedule.needs_history && !schedule.needs_noise && schedule.clip.is_none());
}

/// The error for a change to the published configuration.
fn refusal(kind: SchedulerKind, field: &str, value: Value) -> String {
    let mut config = Scheduler::svd_config();
    config[field] = value;
    match Scheduler::from_config_as(&config, kind) {
        Ok(_) => panic!("{kind} took {field} = {}", config[field]),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_wrong_is_named() {
    use SchedulerKind::{Ddim, DpmSolver, Euler, Lcm};
    let cases = [
        (Euler, "beta_schedule", json!("sigmoid")),
        (Euler, "beta_start", json!("small")),
        (Euler, "beta_start", json!(-1.0)),
        (Euler, "beta_start", json!(1.5)),
        (Euler, "num_train_timesteps", json!(0)),
        (Euler, "num_train_timesteps", json!(-5)),
        (Euler, "num_train_timesteps", json!(1e15 as u64)),
        (Euler, "trained_betas", json!([0.1, 0.2])),
        (Euler, "prediction_type", json!("flow_prediction")),
        (Euler, "timestep_spacing", json!("random")),
        (Euler, "timestep_type", json!(3)),
        (Euler, "steps_offset", json!(i64::MAX)),
        (Euler, "sigma_min", json!(-1)),
        (Euler, "sigma_min", json!(800)),
        (Euler, "use_exponential_sigmas", json!(true)),
        (Euler, "use_beta_sigmas", json!(true)),
        (Euler, "final_sigmas_type", json!("one")),
        (Euler, "rescale_betas_zero_snr", json!("yes")),
        (Ddim, "thresholding", json!(true)),
        (DpmSolver, "algorithm_type", json!("sde-dpmsolver++")),
        (DpmSolver, "solver_type", json!("heun")),
        (DpmSolver, "solver_order", json!(3)),
        (DpmSolver, "use_flow_sigmas", json!(true)),
        (DpmSolver, "use_lu_lambdas", json!(true)),
        (DpmSolver, "variance_type", json!("learned")),
        (DpmSolver, "lambda_min_clipped", json!("low")),
        (Lcm, "original_inference_steps", json!(0)),
        (Lcm, "original_inference_steps", json!(2000)),
        (Lcm, "timestep_scaling", json!(0)),
        (Lcm, "thresholding", json!(true)),
    ];
    for (kind, field, value) in cases {
        let message = refusal(kind, field, value.clone());
        assert!(message.contains(field) && message.contains(kind.class_name()), "{message}");
    }
    let mut config = Scheduler::svd_config();
    config["clip_sample"] = json!(true);
    config["clip_sample_range"] = json!(-1);
    for kind in [Ddim, Lcm] {
        let message = Scheduler::from_config_as(&config, kind).unwrap_err().to_string();
        assert!(message.contains("clip_sample_range"), "{message}");
    }
}

#[test]
fn classes_that_are_not_known_are_refused() {
    let unknown = Scheduler::from_config(&json!({"_class_name": "PNDMScheduler"})).unwrap_err().to_string();
    assert!(unknown.contains("PNDMScheduler") && unknown.contains("EulerDiscreteScheduler"), "{unknown}");
    assert!(matches!(Scheduler::from_config(&json!({})), Err(SchedulerError::NoClass { .. })));
    assert!(matches!(Scheduler::from_config(&json!([])), Err(SchedulerError::NotAnObject)));
    let numbered = Scheduler::from_config(&json!({"_class_name": 7}));
    assert!(matches!(numbered, Err(SchedulerError::UnknownClass { .. })));
    assert!("plms".parse::<SchedulerKind>().is_err());
}

#[test]
fn step_counts_that_cannot_be_are_refused() {
    for kind in SchedulerKind::ALL {
        let scheduler = Scheduler::from_config_as(&Scheduler::svd_config(), kind).unwrap();
        for steps in [0, 1001, usize::MAX] {
            assert!(matches!(scheduler.schedule(steps), Err(SchedulerError::Steps { .. })), "{kind} {steps}");
        }
    }
    let lcm = Scheduler::from_config_as(&json!({}), SchedulerKind::Lcm).unwrap();
    assert!(matches!(lcm.schedule(51), Err(SchedulerError::Steps { limit: 50, .. })));
    // With an offset of one the thousandth of a thousand timesteps is one that the model does not know.
    let ddim = Scheduler::from_config_as(&Scheduler::svd_config(), SchedulerKind::Ddim).unwrap();
    assert!(matches!(ddim.schedule(1000), Err(SchedulerError::Timestep { timestep: 1000, .. })));
}

#[test]
fn every_step_count_gives_as_many_steps_or_an_error() {
    for kind in SchedulerKind::ALL {
        for spacing in ["linspace", "leading", "trailing"] {
            let config = json!({"num_train_timesteps": 40, "timestep_spacing": spacing, "original_inference_steps": 40});
            let scheduler = Scheduler::from_config_as(&config, kind).unwrap();
            for steps in 1..=40 {
                let schedule = match scheduler.schedule(steps) {
                    // Timesteps that round to the same leave DPM-Solver nothing to divide by.
                    Err(SchedulerError::NotFinite { .. })
                        if kind == SchedulerKind::DpmSolver && steps > 20 =>
                    {
                        continue;
                    }
                    schedule => schedule.unwrap(),
                };
                assert_eq!(schedule.timesteps.len(), steps, "{kind} {spacing}");
                assert_eq!(schedule.coefficients.len(), steps);
                assert_eq!(schedule.sigmas.len(), steps + 1);
            }
        }
    }
}

#[test]
fn a_level_without_signal_needs_another_prediction() {
    let config = json!({"rescale_betas_zero_snr": true, "timestep_spacing": "trailing"});
    let scheduler = Scheduler::from_config_as(&config, SchedulerKind::Ddim).unwrap();
    assert!(matches!(scheduler.schedule(4), Err(SchedulerError::NotFinite { step: 1, .. })));
}

#[test]
fn eta_is_ddims_alone() {
    let of = |kind| Scheduler::from_config_as(&json!({}), kind).unwrap();
    assert!(matches!(of(SchedulerKind::Euler).with_eta(0.5), Err(SchedulerError::NoEta { .. })));
    for eta in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(of(SchedulerKind::Ddim).with_eta(eta), Err(SchedulerError::Eta(_))));
    }
}

#[test]
fn defaults_of_another_class_do_not_carry_over() {
    let config = json!({
        "_class_name": "EulerDiscreteScheduler",
        "timestep_spacing": "linspace",
        "_use_default_values": ["timestep_spacing"],
    });
    let schedule = Scheduler::from_config_as(&config, SchedulerKind::Ddim).unwrap().schedule(4).unwrap();
    assert_eq!(schedule.timesteps, [750.0, 500.0, 250.0, 0.0], "DDIM's own default is \"leading\"");
}

#[test]
fn pythons_infinity_is_read() {
    let text = r#"{"lambda_min_clipped": -Infinity, "note": "\"-Infinity, NaN\"", "x": [NaN, Infinity, 1]}"#;
    let config = parse_config(text).unwrap();
    assert_eq!(config["note"], "\"-Infinity, NaN\"");
    let solver = Scheduler::from_config_as(&config, SchedulerKind::DpmSolver).unwrap();
    assert_eq!(solver.schedule(2).unwrap().timesteps, [999.0, 500.0]);
    for broken in ["", "{", "{\"a\": \"\\", "é\"", "-Infinit"] {
        assert!(matches!(parse_config(broken), Err(SchedulerError::Json(_))), "{broken}");
    }
}

/// As PyTorch gives it.
#[test]
fn linspace_is_torchs() {
    assert_eq!(torch_linspace(1.0, 3.0, 1), [1.0]);
    assert_eq!(torch_linspace(1.0, 3.0, 0), [0.0; 0]);
    assert_eq!(torch_linspace(1.0, 3.0, 5), [1.0, 1.5, 2.0, 2.5, 3.0]);
    assert_eq!(
        torch_linspace(0.3, 7.7, 7),
        [0.3, 1.533_333_3, 2.766_666_4, 4.0, 5.233_333_6, 6.466_666_7, 7.7]
    );
}

//! Every field of every configuration with every hostile value: an error that names the file, or a plan. Never a panic, an
//! abort, a hang or a lot of memory.
#![allow(clippy::unwrap_used)]

use std::{fs, sync::mpsc, thread, time::Duration};

use kinora::{
    ModelFolder, Settings,
    image_to_video::{Configs, GenerateError, Precision, estimate_configs},
};
use kinora_models::{schedulers::SchedulerKind, synthetic::SyntheticModel};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What a field is replaced by.
fn hostile() -> Vec<Value> {
    let mut nested = json!(1);
    for _ in 0..100 {
        nested = json!([nested]);
    }
    vec![
        json!(0),
        json!(1),
        json!(2),
        json!(31),
        json!(1u64 << 16),
        json!((1u64 << 31) - 1),
        json!(1u64 << 31),
        json!((1u64 << 32) - 1),
        json!(1u64 << 32),
        json!(1_000_000_000),
        json!(1u64 << 63),
        json!(u64::MAX),
        json!(-1),
        json!(i64::MIN),
        json!(0.5),
        json!(1e39),
        json!(1e308),
        json!(-1e308),
        json!(5e-324),
        json!("text"),
        json!("NaN"),
        json!("-Infinity"),
        json!("\u{1b}[2J"),
        json!("x".repeat(100_000)),
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!([0]),
        json!([1u64 << 32, -1]),
        json!(vec![32; 16]),
        json!(vec![1_000_000; 10_000]),
        nested,
    ]
}

/// Every place in a value, as JSON pointers: itself, fields, and entries of lists.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| places(field, &format!("{at}/{name}"), found))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, entry)| places(entry, &format!("{at}/{i}"), found))
        }
        _ => {}
    }
}

/// A small model without weights: its files with all their fields.
struct Model {
    folder: TempDir,
    files: Vec<(&'static str, Value)>,
}

/// The fields of all schedulers, with values that all of them take.
fn scheduler(class: &str) -> Value {
    json!({
        "_class_name": class, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
        "num_train_timesteps": 100, "trained_betas": null, "prediction_type": "v_prediction",
        "timestep_spacing": "leading", "timestep_type": "discrete", "interpolation_type": "linear",
        "steps_offset": 1, "use_karras_sigmas": true, "use_exponential_sigmas": false, "use_beta_sigmas": false,
        "sigma_min": 0.002, "sigma_max": 700.0, "final_sigmas_type": "zero", "rescale_betas_zero_snr": false,
        "clip_sample": false, "clip_sample_range": 1.0, "set_alpha_to_one": false, "thresholding": false,
        "algorithm_type": "dpmsolver++", "solver_type": "midpoint", "solver_order": 2, "variance_type": null,
        "lambda_min_clipped": "-Infinity", "lower_order_final": true, "euler_at_final": false,
        "use_lu_lambdas": false, "use_flow_sigmas": false, "use_dynamic_shifting": false,
        "original_inference_steps": 50, "timestep_scaling": 10.0, "_use_default_values": [],
    })
}

fn with(value: Value, more: Value) -> Value {
    let (Value::Object(mut fields), Value::Object(more)) = (value, more) else { panic!("objects") };
    fields.extend(more);
    Value::Object(fields)
}

impl Model {
    fn new(class: &str) -> Self {
        let tiny = SyntheticModel::preset("tiny").unwrap();
        let cross = "CrossAttnDownBlockSpatioTemporal";
        let files = vec![
            (
                "model_index.json",
                json!({
                    "_class_name": "StableVideoDiffusionPipeline",
                    "feature_extractor": ["transformers", "CLIPImageProcessor"],
                    "image_encoder": ["transformers", "CLIPVisionModelWithProjection"],
                    "scheduler": ["diffusers", class],
                    "unet": ["diffusers", "UNetSpatioTemporalConditionModel"],
                    "vae": ["diffusers", "AutoencoderKLTemporalDecoder"],
                }),
            ),
            (
                "unet/config.json",
                with(
                    tiny.unet,
                    json!({
                        "in_channels": 8, "out_channels": 4,
                        "down_block_types": [cross, cross, cross, "DownBlockSpatioTemporal"],
                        "transformer_layers_per_block": 1,
                    }),
                ),
            ),
            (
                "vae/config.json",
                with(
                    tiny.vae,
                    json!({
                        "in_channels": 3, "out_channels": 3, "latent_channels": 4, "scaling_factor": 0.18215,
                        "force_upcast": true,
                    }),
                ),
            ),
            (
                "image_encoder/config.json",
                with(tiny.image_encoder, json!({"num_channels": 3, "layer_norm_eps": 1e-5})),
            ),
            ("scheduler/scheduler_config.json", scheduler(class)),
            (
                "feature_extractor/preprocessor_config.json",
                json!({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}),
            ),
            (
                "defaults.json",
                json!({
                    "frames": 2, "steps": 2, "height": 64, "width": 64, "fps": 7, "motion_bucket": 127,
                    "noise_augmentation": 0.02, "min_guidance": 1.0, "max_guidance": 3.0,
                }),
            ),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in &files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value.to_string()).unwrap();
        }
        Model { folder, files }
    }

    /// Reads the configurations as far as a clip would, without weights.
    fn plan(&self, plans: bool) -> Result<String, GenerateError> {
        let configs = Configs::read(&ModelFolder::open(self.folder.path())?)?;
        let settings = Settings::for_configs(&configs).seed(1);
        settings.check(&configs, Precision::F32)?;
        settings.check_steps(&configs)?;
        if plans {
            estimate_configs(&configs, &settings, Precision::F32)?;
        }
        Ok(format!("{:?} {settings:?}", (&configs.unet, &configs.vae, &configs.image_encoder)))
    }

    /// Replaces every place of a file by every hostile value; returns how many cases there were.
    fn attack(&self, file: &str, original: &Value) -> usize {
        let path = self.folder.path().join(file);
        let unchanged = self.plan(false).unwrap();
        let (mut found, mut cases, mut complaints) = (Vec::new(), 0, Vec::new());
        places(original, "", &mut found);
        for place in &found {
            for value in hostile() {
                let mut changed = original.clone();
                *changed.pointer_mut(place).unwrap() = value.clone();
                fs::write(&path, changed.to_string()).unwrap();
                let case = format!("{file}{place} = {:.60}", value.to_string());
                complaints
                    .extend(self.complaint(file, &unchanged).map(|text| format!("{case}: {text:.300}")));
                cases += 1;
            }
        }
        fs::write(&path, original.to_string()).unwrap();
        assert!(complaints.is_empty(), "{} of {cases} cases:\n{}", complaints.len(), complaints.join("\n"));
        cases
    }

    /// An error that does not say what it should, if there is one.
    fn complaint(&self, file: &str, unchanged: &str) -> Option<String> {
        let read = self.plan(false);
        // A network that is not changed need not be planned again.
        let answer = if read.as_ref().is_ok_and(|read| read != unchanged) { self.plan(true) } else { read };
        let text = answer.err()?.to_string();
        // Two files that do not fit each other may both be the wrong one.
        let two = text.contains("do not fit each other") || text.contains("steps");
        let named = |name: &str| text.contains(name);
        let names = named(file) || (two && self.files.iter().any(|(name, _)| named(name)));
        let words = ["struct", "usize", "f32", "invalid type", "expected a map"];
        let plain = text.chars().count() < 1000 && !words.into_iter().any(named);
        (!names || !plain).then_some(text)
    }
}

/// Runs a test in a thread, and fails if it does not end: a hang would otherwise be one of the whole suite.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (ended, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        work();
        let _ = ended.send(());
    });
    if wait.recv_timeout(Duration::from_secs(300)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("no answer after five minutes");
    }
    thread.join().unwrap();
}

/// The most memory that this process ever had, if the system says so.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

fn attack(class: &str, files: &[&str]) {
    let model = Model::new(class);
    model.plan(true).unwrap();
    let mut cases = 0;
    for (file, original) in model.files.iter().filter(|(file, _)| files.contains(file)) {
        cases += model.attack(file, original);
    }
    assert!(cases > 300, "{cases}");
    assert!(peak_bytes().is_none_or(|bytes| bytes < 1 << 30), "{:?}", peak_bytes());
}

const EULER: &str = "EulerDiscreteScheduler";

#[test]
fn the_unets_configuration() {
    ends(|| attack(EULER, &["unet/config.json"]));
}

#[test]
fn the_autoencoders_and_the_image_encoders_configurations() {
    ends(|| attack(EULER, &["vae/config.json", "image_encoder/config.json"]));
}

#[test]
fn the_index_the_defaults_and_the_preprocessor() {
    let files = ["model_index.json", "defaults.json", "feature_extractor/preprocessor_config.json"];
    ends(move || attack(EULER, &files));
}

#[test]
fn every_schedulers_configuration() {
    for kind in SchedulerKind::ALL {
        ends(move || attack(kind.class_name(), &["scheduler/scheduler_config.json"]));
    }
}

/// What the trials found, each with the setting that it must name.
#[test]
fn sizes_that_once_aborted_are_refused_by_name() {
    let model = Model::new(EULER);
    let refused = |file: &str, change: &dyn Fn(&mut Value)| {
        let (_, original) = model.files.iter().find(|(name, _)| *name == file).unwrap();
        let mut changed = original.clone();
        change(&mut changed);
        fs::write(model.folder.path().join(file), changed.to_string()).unwrap();
        let error = model.plan(false).unwrap_err();
        fs::write(model.folder.path().join(file), original.to_string()).unwrap();
        assert!(matches!(error, GenerateError::Config { .. }), "{error}");
        error.to_string()
    };
    for (field, value, said) in [
        ("width", json!(1u64 << 32), "defaults.json: width is 4294967296, but it must be a multiple of 64"),
        ("height", json!(u64::MAX), "defaults.json: height is 18446744073709551615, but it must be"),
        (
            "frames",
            json!(1_000_000_000),
            "defaults.json: frames is 1000000000, but it must be from 1 to 1024",
        ),
        ("steps", json!(1_000_000_000), "defaults.json: steps is 1000000000, but it must be from 1 to 10000"),
        ("steps", json!(101), "defaults.json: steps is 101, but the model's scheduler takes 1 to 100"),
        ("motion_bucket", json!(1u64 << 40), "defaults.json: motion_bucket is 1099511627776, but"),
        ("max_guidance", json!(1e39), "at most 3.4e38"),
    ] {
        let text = refused("defaults.json", &|defaults| defaults[field] = value.clone());
        assert!(text.contains(said), "{text}");
    }
    let sixteen = refused("unet/config.json", &|unet| {
        let list = |entry: &str| json!(vec![entry; 16]);
        unet["block_out_channels"] = json!(vec![32; 16]);
        unet["num_attention_heads"] = json!(1);
        unet["down_block_types"] = list("CrossAttnDownBlockSpatioTemporal");
        unet["up_block_types"] = list("CrossAttnUpBlockSpatioTemporal");
    });
    assert!(sixteen.contains("unet/config.json: block_out_channels is a list of 16"), "{sixteen}");
    let beta = refused("scheduler/scheduler_config.json", &|scheduler| scheduler["beta_end"] = json!(2));
    assert!(beta.contains("`beta_end` is 2.0, but must be between 0 and 1"), "{beta}");
}

/// More parameters than any network has, with every field within its own bounds.
#[test]
fn a_network_that_is_too_large_altogether_is_refused() {
    let model = Model::new(EULER);
    let mut vae = model.files[2].1.clone();
    vae["block_out_channels"] = json!([65536, 65536, 65536, 65536]);
    fs::write(model.folder.path().join("vae/config.json"), vae.to_string()).unwrap();
    let text = model.plan(true).unwrap_err().to_string();
    assert!(text.contains("vae/config.json: autoencoder: block_out_channels is so large"), "{text}");
}

/// Models that are published, or may be, are far from every bound.
#[test]
fn large_models_are_not_refused() {
    let mut configs = Configs::svd_xt();
    let settings = Settings::for_configs(&configs);
    // As wide and deep as Stable Diffusion XL, in four levels.
    configs.unet.transformer_layers_per_block = serde_json::from_value(json!([2, 10, 10, 10])).unwrap();
    configs.unet.block_out_channels = vec![320, 640, 1280, 2560];
    configs.unet.num_attention_heads = serde_json::from_value(json!([5, 10, 20, 40])).unwrap();
    let estimate = estimate_configs(&configs, &settings, Precision::F16).unwrap();
    assert!(estimate.parameters() > 5_000_000_000, "{}", estimate.parameters());
}

//! A frame from bytes to bytes against diffusers' pipelines (`golden/make_frame.py`).
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_graph::{DType, Graph, Op, Tensor, TensorType};
use kinora_models::{
    image::{Colour, Fit, RgbImage},
    networks::{
        controlnet::ControlNetConfig,
        frame::{Autoencoder, FrameConfig, FrameInput, Start},
        tiny_vae::TinyVaeConfig,
        unet2d::Unet2dConfig,
        vae::VaeConfig,
    },
    noise::TorchGenerator,
    schedulers::{ImageToImage, Schedule, Scheduler},
    synthetic::uniform,
};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::Value;
use support::{
    fixtures::Fixture,
    frames::{assert_frame, latents_of},
    networks::{Way, inputs, largest_difference, optimised, run, step_nodes},
};

#[derive(Deserialize)]
struct Case {
    name: String,
    unet: Value,
    vae: Value,
    scheduler: String,
    scheduler_config: Value,
    /// Height and width.
    size: [usize; 2],
    tokens: usize,
    steps: usize,
    /// Nothing if it begins with noise.
    strength: Option<f64>,
    seed: u64,
    guidance: Option<f32>,
    embedded_guidance: Option<f32>,
    control: Option<Value>,
    control_scale: Option<f32>,
}

impl Case {
    fn schedule(&self) -> Schedule {
        let kind = self.scheduler.parse().unwrap();
        let scheduler = Scheduler::from_config_as(&self.scheduler_config, kind).unwrap();
        match self.strength {
            Some(strength) => {
                let visits = ImageToImage::Strength { steps: self.steps, strength };
                scheduler.image_to_image(visits).unwrap()
            }
            None => scheduler.schedule(self.steps).unwrap(),
        }
    }

    fn config(&self, schedule: &Schedule) -> FrameConfig {
        let vae = self.vae.to_string();
        let tiny = self.vae["_class_name"] == "AutoencoderTiny";
        FrameConfig {
            unet: Unet2dConfig::from_json(&self.unet.to_string()).unwrap(),
            autoencoder: match tiny {
                true => Autoencoder::Tiny(TinyVaeConfig::from_json(&vae).unwrap()),
                false => Autoencoder::Full(VaeConfig::image_from_json(&vae).unwrap()),
            },
            height: self.size[0],
            width: self.size[1],
            input: None,
            start: if self.strength.is_some() { Start::Picture } else { Start::Noise },
            steps: schedule.timesteps.len(),
            guided: self.guidance.is_some(),
            tokens: self.tokens,
            sampler: schedule.needs(),
            blended: false,
            control: self
                .control
                .as_ref()
                .map(|config| ControlNetConfig::from_json(&config.to_string()).unwrap()),
            memory: 0,
            dtype: DType::F32,
        }
    }

    /// Everything but the prompts, which are made from their names.
    fn known(&self, config: &FrameConfig, schedule: &Schedule) -> Tensors {
        let steps = schedule.timesteps.len();
        let f32s = |shape: &[usize], values: &[f32]| Tensor::from_slice(shape.to_vec(), values).unwrap();
        let scales: Vec<f32> = schedule.input_scales.iter().map(|&scale| scale as f32).collect();
        let mix = match config.start {
            Start::Picture => schedule.mix(),
            Start::Noise => [0.0, schedule.initial_noise_scale],
        };
        let [height, width] = config.latent_size().unwrap();
        let channels = config.unet.in_channels;
        let mut generator = TorchGenerator::new(self.seed);
        let mut draw = || latents_of(&mut generator, [height, width, channels]);
        let noise = draw();
        let mut known = Tensors::from([
            ("timesteps".to_owned(), f32s(&[steps], &schedule.timesteps)),
            ("input_scales".to_owned(), f32s(&[steps], &scales)),
            ("table".to_owned(), f32s(&[steps, 8], schedule.table().as_flattened())),
            ("mix".to_owned(), f32s(&[2], &mix.map(|weight| weight as f32))),
            ("noise".to_owned(), f32s(&[1, height, width, channels], &noise)),
        ]);
        if config.sampler.noise {
            let rows = schedule.coefficients.iter();
            let fresh = rows.map(|row| if row.next_noise == 0.0 { vec![0.0; noise.len()] } else { draw() });
            let fresh: Vec<f32> = fresh.flatten().collect();
            known.insert("fresh".to_owned(), f32s(&[steps, height, width, channels], &fresh));
        }
        if config.start == Start::Picture {
            known.insert("frame".to_owned(), photo(self.size));
        }
        if let Some(scale) = self.control_scale {
            known.insert("control_scale".to_owned(), f32s(&[1], &[scale]));
            let photo = photo(self.size);
            let negative: Vec<u8> = photo.bytes().iter().map(|byte| 255 - byte).collect();
            known.insert("control".to_owned(), Tensor::from_bytes(photo.ty().clone(), &negative).unwrap());
        }
        if let Some(guidance) = self.guidance {
            known.insert("guidance".to_owned(), f32s(&[1], &[guidance]));
        }
        if let Some(scale) = self.embedded_guidance {
            known.insert("guidance_embedding".to_owned(), f32s(&[1], &[scale - 1.0]));
        }
        if config.unet.addition_embed_type.is_some() {
            let [height, width] = self.size.map(|side| side as f32);
            let ids = [height, width, 0.0, 0.0, height, width];
            let rows = if config.guided { [ids, ids].concat() } else { ids.to_vec() };
            known.insert("time_ids".to_owned(), f32s(&[rows.len() / 6, 6], &rows));
        }
        known
    }
}

/// The photo that the script makes, by its size.
fn photo([height, width]: [usize; 2]) -> Tensor {
    let numbers = uniform(&format!("photo {width}×{height}"));
    let bytes: Vec<u8> =
        numbers.take(width * height * 3).map(|number| ((number + 1.0) * 128.0).floor() as u8).collect();
    Tensor::from_bytes(TensorType::new(DType::U8, [1, height, width, 3]), &bytes).unwrap()
}

fn frame(graph: &Graph, case: &Case, known: &Tensors, way: Way) -> Tensors {
    run(graph, &inputs(graph, &case.name, known.clone()), way)
}

#[test]
fn frames_of_every_shape_are_those_of_diffusers_pipelines() {
    let fixture: Fixture<Case> = Fixture::load("frame");
    assert_eq!(fixture.cases.len(), 6);
    for case in &fixture.cases {
        let schedule = case.schedule();
        let config = case.config(&schedule);
        let graph = config.build().unwrap();
        let known = case.known(&config, &schedule);
        for way in Way::FAST {
            let got = frame(&graph, case, &known, way);
            let label = format!("{}, {way:?}", case.name);
            let off = largest_difference(fixture.expected(&case.name, "latents"), &got["latents"]);
            println!("{label}: latents at most {off:.1e} off");
            // Seen: 1e-4, of latents as large as 50.
            assert!(off <= 5e-4, "{label}: {off}");
            assert_frame(&label, fixture.expected(&case.name, "frame"), &got["frame"]);
        }
    }
}

/// The same bytes as if it were fitted before, for whatever comes in.
#[test]
fn a_frame_of_another_size_is_fitted_in_the_graph() {
    let fixture: Fixture<Case> = Fixture::load("frame");
    let case = fixture.cases.iter().find(|case| case.strength.is_some() && case.control.is_none()).unwrap();
    let schedule = case.schedule();
    let config = case.config(&schedule);
    let mut known = case.known(&config, &schedule);
    let plain = config.build().unwrap();
    let [height, width] = case.size;
    for [from_width, from_height] in [[1, 1], [2 * width + 1, height - 3], [width, height + 8]] {
        let raw = photo([from_height, from_width]);
        let image = RgbImage::new(from_width, from_height, raw.bytes().to_vec()).unwrap();
        for fit in Fit::ALL {
            let background = Colour([9, 180, 60]);
            let input = FrameInput { width: from_width, height: from_height, fit, background };
            let graph = FrameConfig { input: Some(input), ..config.clone() }.build().unwrap();
            let fitted = fit.apply(&image, width, height, background).unwrap();
            let fitted = fitted.resize_lanczos(width, height).unwrap();
            let fitted = Tensor::from_slice([1, height, width, 3], fitted.bytes()).unwrap();
            known.insert("frame".to_owned(), fitted);
            let expected = frame(&plain, case, &known, Way::Optimised);
            known.insert("frame".to_owned(), raw.clone());
            let got = frame(&graph, case, &known, Way::Optimised);
            assert_eq!(got["latents"], expected["latents"], "{from_width}×{from_height} by {fit}");
            assert_eq!(got["frame"], expected["frame"], "{from_width}×{from_height} by {fit}");
        }
    }
}

/// How often a step blends with the frame before: by an op of its own, and within a sampler step.
fn blends(graph: &Graph) -> [usize; 2] {
    let count = |of: fn(&Op) -> bool| step_nodes(graph).iter().filter(|node| of(&node.op)).count();
    [
        count(|op| matches!(op, Op::TemporalBlend(_))),
        count(|op| matches!(op, Op::SamplerStep(step) if step.blend)),
    ]
}

#[test]
fn a_blend_with_the_frame_before_costs_no_node() {
    let fixture: Fixture<Case> = Fixture::load("frame");
    for case in &fixture.cases {
        let config = case.config(&case.schedule());
        let [plain, blended] =
            [false, true].map(|blended| FrameConfig { blended, ..config.clone() }.build().unwrap());
        assert_eq!(blends(&plain), [0, 0], "{}", case.name);
        assert_eq!(blends(&blended), [1, 0], "{}", case.name);
        assert_eq!(blended.nodes().len(), plain.nodes().len() + 1, "{}", case.name);
        let [plain, blended] = [plain, blended].map(|graph| optimised(&graph));
        if config.start == Start::Noise {
            // All steps run once for all frames, and only the blend is left to each.
            assert_eq!(blends(&blended), [1, 0], "{}", case.name);
            continue;
        }
        assert_eq!(blends(&blended), [0, 1], "{}", case.name);
        assert_eq!(step_nodes(&blended).len(), step_nodes(&plain).len(), "{}", case.name);
    }
}

#[test]
fn a_blended_frame_lies_between_diffusers_and_the_frame_before() {
    let fixture: Fixture<Case> = Fixture::load("frame");
    // One of the second order, and one with fresh noise.
    let mut needs = [false; 2];
    for case in &fixture.cases {
        let schedule = case.schedule();
        let config = case.config(&schedule);
        needs = [needs[0] || config.sampler.history, needs[1] || config.sampler.noise];
        let graph = FrameConfig { blended: true, ..config.clone() }.build().unwrap();
        let mut given = inputs(&graph, &case.name, case.known(&config, &schedule));
        let mut blend = |strength: f32| {
            given.insert("blend".to_owned(), Tensor::from_slice([1], &[strength]).unwrap());
            (given["previous"].to_f32(), run(&graph, &given, Way::Optimised))
        };
        let (previous, got) = blend(0.3);
        let alone = fixture.expected(&case.name, "latents");
        let between = alone.to_f32().into_iter().zip(previous).map(|(alone, previous)| {
            let [alone, previous] = [alone, previous].map(f64::from);
            (alone + f64::from(0.3f32) * (previous - alone)) as f32
        });
        let between: Vec<f32> = between.collect();
        let between = Tensor::from_slice(alone.shape().to_vec(), &between).unwrap();
        let off = largest_difference(&between, &got["latents"]);
        assert!(off <= 5e-4, "{}: {off}", case.name);
        // At a cut the strength is 0, and nothing of the frame before is left.
        let (_, cut) = blend(0.0);
        let plain = config.build().unwrap();
        let plain = frame(&plain, case, &case.known(&config, &schedule), Way::Optimised);
        assert_eq!(cut["latents"].to_f32(), plain["latents"].to_f32(), "{}", case.name);
        assert_eq!(cut["frame"], plain["frame"], "{}", case.name);
    }
    assert_eq!(needs, [true, true]);
}

#[test]
fn a_controlnet_for_another_model_is_refused() {
    let fixture: Fixture<Case> = Fixture::load("frame");
    let case = fixture.cases.iter().find(|case| case.name == "control").unwrap();
    let config = case.config(&case.schedule());
    let error = |setting: &str, value: Value| {
        let mut json = case.control.clone().unwrap();
        json[setting] = value;
        let control = ControlNetConfig::from_json(&json.to_string()).unwrap();
        FrameConfig { control: Some(control), ..config.clone() }.build().unwrap_err().to_string()
    };
    let other = "this ControlNet is for a model of another shape";
    let wide = error("cross_attention_dim", 1024.into());
    assert!(
        wide.contains("cross_attention_dim is 1024, but the model has 24") && wide.contains(other),
        "{wide}"
    );
    assert!(error("in_channels", 9.into()).contains("ControlNet: in_channels is 9"));
    let pixels = error("conditioning_embedding_out_channels", vec![16, 32].into());
    assert!(pixels.contains("is for 2 pixels a latent, but the model has 8"), "{pixels}");
    let channels = error("block_out_channels", vec![64, 64, 96, 96].into());
    assert!(channels.contains("block_out_channels is 64, but the model has 32"), "{channels}");
}

//! The stream batch against the same in plain PyTorch (`golden/make_stream.py`).
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_graph::{DType, Op, Tensor, TensorType};
use kinora_models::{
    image::{Colour, Fit, RgbImage},
    networks::{
        controlnet::ControlNetConfig,
        denoise::SamplerNeeds,
        frame::{Autoencoder, FrameConfig, FrameInput, Start, StreamConfig, StreamGuidance},
        tiny_vae::TinyVaeConfig,
        unet2d::Unet2dConfig,
    },
    noise::TorchGenerator,
    schedulers::{ImageToImage, Schedule, Scheduler, SchedulerKind},
    synthetic::uniform,
};
use kinora_runtime::Tensors;
use serde::Deserialize;
use serde_json::{Value, json};
use support::{
    fixtures::Fixture,
    frames::{assert_frame, latents_of},
    networks::{given, largest_difference, optimised, program, step_nodes},
};

#[derive(Deserialize)]
struct Case {
    name: String,
    unet: Value,
    vae: Value,
    timesteps: Vec<usize>,
    guidance: Guidance,
    seed: u64,
    /// Of a square frame.
    side: usize,
    tokens: usize,
}

#[derive(Deserialize)]
struct Guidance {
    kind: String,
    scale: Option<f32>,
    delta: Option<f32>,
}

impl Case {
    fn guidance(&self) -> StreamGuidance {
        match &*self.guidance.kind {
            "none" => StreamGuidance::None,
            "full" => StreamGuidance::Full,
            "initialize" => StreamGuidance::Initialize,
            "self" => StreamGuidance::SelfNegative,
            kind => panic!("{kind}"),
        }
    }

    fn schedule(&self) -> Schedule {
        let betas = json!({"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012});
        let lcm = Scheduler::from_config_as(&betas, SchedulerKind::Lcm).unwrap();
        lcm.image_to_image(ImageToImage::Timesteps(&self.timesteps)).unwrap()
    }

    fn config(&self, sampler: SamplerNeeds) -> StreamConfig {
        let frame = FrameConfig {
            unet: Unet2dConfig::from_json(&self.unet.to_string()).unwrap(),
            autoencoder: Autoencoder::Tiny(TinyVaeConfig::from_json(&self.vae.to_string()).unwrap()),
            height: self.side,
            width: self.side,
            input: None,
            start: Start::Picture,
            steps: self.timesteps.len(),
            guided: false,
            tokens: self.tokens,
            sampler,
            blended: false,
            control: None,
            memory: 0,
            dtype: DType::F32,
        };
        StreamConfig { frame, guidance: self.guidance() }
    }

    /// What does not change from frame to frame.
    fn fixed(&self, config: &StreamConfig, schedule: &Schedule) -> Tensors {
        let n = self.timesteps.len();
        let f32s = |shape: &[usize], values: &[f32]| Tensor::from_slice(shape.to_vec(), values).unwrap();
        let [height, width] = config.frame.latent_size().unwrap();
        let channels = config.frame.unet.in_channels;
        let mut generator = TorchGenerator::new(self.seed);
        let noise: Vec<f32> =
            (0..n).flat_map(|_| latents_of(&mut generator, [height, width, channels])).collect();
        let scales: Vec<f32> = schedule.input_scales.iter().map(|&scale| scale as f32).collect();
        // The script makes both prompts, the negative one first.
        let context = config.frame.unet.context_channels().unwrap();
        let both = given(&self.name, "prompts", &TensorType::new(DType::F32, [2, self.tokens, context]), 1.0);
        let prompt = f32s(&[1, self.tokens, context], &both.to_f32()[self.tokens * context..]);
        let mut fixed = Tensors::from([
            ("timesteps".to_owned(), f32s(&[n], &schedule.timesteps)),
            ("input_scales".to_owned(), f32s(&[n], &scales)),
            ("table".to_owned(), f32s(&[n, 8], schedule.table().as_flattened())),
            ("mix".to_owned(), f32s(&[2], &schedule.mix().map(|weight| weight as f32))),
            ("noise".to_owned(), f32s(&[n, height, width, channels], &noise)),
            ("prompts".to_owned(), if self.guidance().has_negative() { both } else { prompt }),
        ]);
        if let Some(scale) = self.guidance.scale {
            fixed.insert("guidance".to_owned(), f32s(&[1], &[scale]));
        }
        if let Some(delta) = self.guidance.delta {
            fixed.insert("delta".to_owned(), f32s(&[1], &[delta]));
            let table = schedule.noise_table();
            fixed.insert("noise_table".to_owned(), f32s(&[n, 8], table.as_flattened()));
        }
        fixed
    }

    /// A frame that comes in.
    fn picture(&self, i: usize) -> Tensor {
        let numbers = uniform(&format!("{}/frame {i}", self.name));
        let bytes = numbers.take(self.side * self.side * 3).map(|u| ((u + 1.0) * 128.0) as u8);
        let ty = TensorType::new(DType::U8, [1, self.side, self.side, 3]);
        Tensor::from_bytes(ty, &bytes.collect::<Vec<u8>>()).unwrap()
    }
}

/// One image of a tensor.
fn image(all: &Tensor, i: usize) -> Tensor {
    let mut shape = all.shape().to_vec();
    let length = all.bytes().len() / shape[0];
    shape[0] = 1;
    Tensor::from_bytes(TensorType::new(all.dtype(), shape), &all.bytes()[i * length..][..length]).unwrap()
}

#[test]
fn eight_frames_in_every_guidance_are_those_of_pytorch() {
    let fixture: Fixture<Case> = Fixture::load("stream");
    assert_eq!(fixture.cases.len(), 8);
    for case in &fixture.cases {
        let schedule = case.schedule();
        let config = case.config(schedule.needs());
        let graph = config.build().unwrap();
        let mut program = program(&graph, true);
        let mut inputs = case.fixed(&config, &schedule);
        for (name, ty) in graph.inputs().iter().map(|&id| (&graph.value(id).name, &graph.value(id).ty)) {
            if matches!(&**name, "buffer" | "stock") {
                inputs.insert(name.clone(), Tensor::zeros(ty.clone()));
            }
        }
        let frames = fixture.expected(&case.name, "frames");
        for i in 0..frames.shape()[0] {
            inputs.insert("frame".to_owned(), case.picture(i));
            let mut got = program.run(&inputs).unwrap();
            let label = format!("{}, frame {i}", case.name);
            let off = largest_difference(&image(fixture.expected(&case.name, "latents"), i), &got["latents"]);
            println!("{label}: latents at most {off:.1e} off");
            // Seen: 7e-5.
            assert!(off <= 3e-4, "{label}: {off}");
            assert_frame(&label, &image(frames, i), &got["frame"]);
            for state in ["buffer", "stock"] {
                if let Some(next) = got.remove(state) {
                    inputs.insert(state.to_owned(), next);
                }
            }
        }
        assert_eq!(inputs.contains_key("stock"), config.guidance.has_stock());
    }
}

/// The same bytes as if frames were fitted before.
#[test]
fn frames_of_another_size_are_fitted_in_the_graph() {
    let fixture: Fixture<Case> = Fixture::load("stream");
    let case = fixture.cases.iter().max_by_key(|case| case.timesteps.len()).unwrap();
    let schedule = case.schedule();
    let mut config = case.config(schedule.needs());
    let mut inputs = case.fixed(&config, &schedule);
    let graph = config.build().unwrap();
    let fixed = |name: &str| matches!(name, "buffer" | "stock");
    for value in graph.inputs().iter().map(|&id| graph.value(id)).filter(|value| fixed(&value.name)) {
        inputs.insert(value.name.clone(), Tensor::zeros(value.ty.clone()));
    }
    let raw = case.picture(0);
    let image = RgbImage::new(case.side, case.side, raw.bytes().to_vec()).unwrap();
    let (width, height, background) = (case.side, case.side, Colour([9, 180, 60]));
    let wide = image.resize_lanczos(2 * width - 5, height + 3).unwrap();
    for fit in Fit::ALL {
        let fitted = fit.apply(&wide, width, height, background).unwrap();
        let fitted = fitted.resize_lanczos(width, height).unwrap();
        inputs.insert("frame".to_owned(), Tensor::from_slice([1, height, width, 3], fitted.bytes()).unwrap());
        let expected = program(&graph, true).run(&inputs).unwrap();
        config.frame.input = Some(FrameInput { width: wide.width(), height: wide.height(), fit, background });
        let shape = [1, wide.height(), wide.width(), 3];
        inputs.insert("frame".to_owned(), Tensor::from_slice(shape, wide.bytes()).unwrap());
        let got = program(&config.build().unwrap(), true).run(&inputs).unwrap();
        assert_eq!(got, expected, "{fit}");
    }
}

#[test]
fn the_oldest_frame_is_blended_within_its_step() {
    let fixture: Fixture<Case> = Fixture::load("stream");
    for case in &fixture.cases {
        let mut config = case.config(case.schedule().needs());
        let plain = step_nodes(&optimised(&config.build().unwrap())).len();
        config.frame.blended = true;
        let blended = optimised(&config.build().unwrap());
        let nodes = step_nodes(&blended);
        assert_eq!(nodes.len(), plain, "{}", case.name);
        assert!(!nodes.iter().any(|node| matches!(node.op, Op::TemporalBlend(_))), "{}", case.name);
        let steps = nodes.iter().filter(|node| matches!(&node.op, Op::SamplerStep(step) if step.blend));
        let names: Vec<&str> = steps.map(|node| node.name.as_str()).collect();
        assert_eq!(names, [format!("latents.{}.sampler", case.timesteps.len() - 1)], "{}", case.name);
    }
}

#[test]
fn a_stream_that_cannot_be_is_refused() {
    let fixture: Fixture<Case> = Fixture::load("stream");
    let case = &fixture.cases[3];
    assert_eq!(case.guidance(), StreamGuidance::SelfNegative);
    let error = |change: &dyn Fn(&mut StreamConfig)| {
        let mut config = case.config(SamplerNeeds { noise: true, ..SamplerNeeds::default() });
        change(&mut config);
        config.build().unwrap_err().to_string()
    };
    assert!(error(&|config| config.frame.sampler.history = true).contains("second order"));
    assert!(error(&|config| config.frame.sampler.clip = Some(1.0)).contains("clip_sample is true"));
    assert!(error(&|config| config.frame.start = Start::Noise).contains("a stream starts from pictures"));
    let control = r#"{"_class_name": "ControlNetModel", "cross_attention_dim": 24, "block_out_channels": [32, 64],
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "attention_head_dim": [1, 2]}"#;
    let control = ControlNetConfig::from_json(control).unwrap();
    let steered = error(&|config| config.frame.control = Some(control.clone()));
    assert!(steered.contains("take steps one after the other"), "{steered}");
    assert!(error(&|config| config.frame.memory = 1).contains("a stream batch remembers none"));
    assert!(error(&|config| config.frame.memory = 5).contains("it must be from 0 to 4"));
    assert!(error(&|config| config.frame.steps = 0).contains("the number of steps is 0"));
}

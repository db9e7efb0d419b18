//! The denoising loop.

use std::{ops::ControlFlow, time::Instant};

use kinora_graph::{DType, Tensor, TensorType, op::STEP_COLUMNS};
use kinora_models::{
    networks::step_cache::DEEP,
    schedulers::{Schedule, torch_linspace},
    weights::Weights,
};
use kinora_runtime::{CachedSteps, StepLoop, StepResults};

use super::{
    GenerateError, Settings, Stage,
    plans::Unet,
    run::{Run, named},
    working::LATENT_COPIES,
};

/// What the network is conditioned on: the encoded photo.
pub(super) struct Conditions {
    pub embedding: Tensor,
    pub latents: Tensor,
}

impl Run<'_, '_> {
    /// From noise to the clip's latents: `[frames, height, width, channels]`.
    pub fn denoise(
        &mut self,
        unet: &mut Unet,
        weights: &Weights,
        conditions: Conditions,
        schedule: &Schedule,
    ) -> Result<Tensor, GenerateError> {
        let name = unet.whole.name;
        let (mut whole, mut shallow) = match &mut unet.shallow {
            None => (self.load(&mut unet.whole, weights)?, None),
            Some(shallow) => {
                let shared = Some(&unet.shared);
                let whole = self.load_with(&mut unet.whole, weights, shared, &[DEEP])?;
                (whole, Some(self.load_with(shallow, weights, shared, &[DEEP])?))
            }
        };
        let settings = self.request.settings;
        let steps = settings.steps;
        self.tell(Stage::Denoise, 0, steps, None)?;
        let running = self.stopwatch.begin(Stage::Denoise);
        let dtype = self.request.precision.dtype();
        let [height, width] = self.request.latent_size();
        let shape = [settings.frames, height, width, self.request.configs.unet.out_channels];
        let fresh = if schedule.needs_noise { steps } else { 0 };
        let latents = shape.iter().product::<usize>() * size_of::<f32>();
        self.reserve(name, latents.saturating_mul(LATENT_COPIES + fresh))?;
        let scale = schedule.initial_noise_scale as f32;
        let first: Vec<f32> = self.noise.draw(dtype, shape).into_iter().map(|noise| noise * scale).collect();
        let latents = Tensor::from_slice(shape, &first)?;

        let inputs = [
            ("image_latents", conditions.latents),
            ("image_embedding", conditions.embedding),
            ("added_time_ids", added_time_ids(settings, dtype)?),
            ("timesteps", Tensor::from_slice([steps], &schedule.timesteps)?),
            ("input_scales", numbers(&schedule.input_scales)?),
            ("table", Tensor::from_slice([steps, STEP_COLUMNS], schedule.table().as_flattened())?),
        ];
        let mut inputs = named(inputs);
        if settings.guided() {
            inputs.insert("guidance".to_owned(), guidance(settings, dtype)?);
        }
        whole.run_clip(&inputs)?;
        if let Some(shallow) = &mut shallow {
            shallow.run_clip(&inputs)?;
        }

        let mut inputs = named([("latents", latents), ("step", Tensor::from_slice([1], &[0i32])?)]);
        let mut feedback = vec![("next", "latents")];
        if schedule.needs_history {
            inputs.insert("history".to_owned(), Tensor::zeros(TensorType::new(DType::F32, shape)));
            feedback.push(("denoised", "history"));
        }
        let noise = self.fresh_noise(schedule, shape)?;
        let fresh = [("noise", &noise[..])];
        let fresh = if schedule.needs_noise { &fresh[..] } else { &[] };
        let step_loop = StepLoop { count: steps, feedback: &feedback, counters: &["step"], fresh };

        let mut ended = None;
        let mut step_start = Instant::now();
        let mut observer = |done: usize, results: &dyn StepResults| {
            self.stopwatch.add_step(step_start);
            step_start = Instant::now();
            match self.look_at_step(done, steps, results) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    ended = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let results = match &mut shallow {
            None => whole.run_steps(&step_loop, &inputs, &mut observer),
            Some(shallow) => {
                let kept = &[(DEEP, DEEP)];
                let cached = CachedSteps { steps: step_loop, interval: settings.cache, kept };
                whole.run_cached_steps(shallow, &cached, &inputs, &mut observer)
            }
        };
        if let Some(error) = ended {
            return Err(error);
        }
        let latents = results?.take("next")?;
        if let Some(shallow) = &mut unet.shallow {
            self.release(shallow);
        }
        self.release(&mut unet.whole);
        self.stopwatch.end(running);
        Ok(latents)
    }

    /// The noise that each step adds, if the scheduler adds any.
    fn fresh_noise(&mut self, schedule: &Schedule, shape: [usize; 4]) -> Result<Vec<Tensor>, GenerateError> {
        if !schedule.needs_noise {
            return Ok(Vec::new());
        }
        let dtype = self.request.precision.dtype();
        let of = |strength: f64| match strength {
            // diffusers draws none after the last step, where none is added.
            0.0 => Ok(Tensor::zeros(TensorType::new(DType::F32, shape))),
            _ => Ok(Tensor::from_slice(shape, &self.noise.draw(dtype, shape))?),
        };
        schedule.coefficients.iter().map(|step| step.next_noise).map(of).collect()
    }

    /// Checks a step's results and reports them to the caller.
    fn look_at_step(
        &mut self,
        done: usize,
        steps: usize,
        results: &dyn StepResults,
    ) -> Result<(), GenerateError> {
        let result = |name| results.get(name).ok_or(GenerateError::NoResult { part: "UNet", name });
        self.check_finite(Stage::Denoise, &result("next")?)?;
        self.tell(Stage::Denoise, done, steps, Some(&result("denoised")?))
    }
}

/// Frame rate, motion bucket and noise augmentation as the model was trained to read them, rounded as diffusers does.
fn added_time_ids(settings: &Settings, dtype: DType) -> Result<Tensor, GenerateError> {
    // The model was trained with one less than the frame rate.
    let fps = settings.fps.saturating_sub(1);
    let ids = [fps as f32, settings.motion_bucket as f32, settings.noise_augmentation as f32];
    Ok(Tensor::from_f32(dtype, [ids.len()], &ids)?.cast(DType::F32))
}

/// The guidance of each frame: linear from the first to the last.
fn guidance(settings: &Settings, dtype: DType) -> Result<Tensor, GenerateError> {
    let values = torch_linspace(settings.min_guidance, settings.max_guidance, settings.frames);
    Ok(Tensor::from_f32(dtype, [values.len()], &values)?.cast(DType::F32))
}

fn numbers(values: &[f64]) -> Result<Tensor, GenerateError> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Ok(Tensor::from_slice([values.len()], &values)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_to_video::Configs;

    fn settings() -> Settings {
        Settings::for_configs(&Configs::preset("svd").unwrap())
    }

    #[test]
    fn guidance_goes_from_the_first_frame_to_the_last() {
        let of = |frames, min_guidance, max_guidance| {
            guidance(&Settings { frames, min_guidance, max_guidance, ..settings() }, DType::F32)
                .unwrap()
                .to_f32()
        };
        assert_eq!(of(1, 1.0, 3.0), [1.0]);
        assert_eq!(of(2, 1.0, 3.0), [1.0, 3.0]);
        assert_eq!(of(5, 1.0, 3.0), [1.0, 1.5, 2.0, 2.5, 3.0]);
        // torch.linspace(0.3, 7.7, 7)
        let expected = [0.3, 1.533_333_3, 2.766_666_4, 4.0, 5.233_333_6, 6.466_666_7, 7.7];
        for (got, expected) in of(7, 0.3, 7.7).into_iter().zip(expected) {
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
    }

    #[test]
    fn the_conditions_are_rounded_as_they_are_stored() {
        let ids = |dtype| added_time_ids(&settings(), dtype).unwrap().to_f32();
        assert_eq!(ids(DType::F32), [6.0, 127.0, 0.02]);
        // torch.tensor([6, 127, 0.02], dtype=torch.float16)
        assert_eq!(ids(DType::F16), [6.0, 127.0, 0.020_004_272]);
    }
}

//! The sampler step.

use std::ops::Range;

use kinora_graph::op::{STEP_COLUMNS, SamplerStep};

use super::{
    blocks::{BLOCK, Block, Source, Target, small_vector},
    elementwise::Elementwise,
    pointwise::Mix,
};
use kinora_runtime::RunError;

use crate::{
    simd::{Isa, Kernel, Simd, load_up_to, store_up_to},
    tasks,
    view::{View, ViewMut},
};

/// One guided sampler step. No result may overwrite an operand: each result reads all of them.
///
/// # Errors
/// If the step is outside the table; in that case nothing has been written.
pub(crate) fn sampler_step(
    isa: Isa,
    layer: &str,
    op: &SamplerStep,
    inputs: &[View<'_>],
    outputs: &[ViewMut<'_>],
) -> Result<(), RunError> {
    let operands = op.operands(inputs);
    let steps = operands.table.ty().shape[0];
    // SAFETY: no kernel works in place on the step or on the table, so that nothing writes them meanwhile.
    let (step, table) = unsafe { (operands.step.slice::<i32>()[0], operands.table.slice::<f32>()) };
    let Some(row) = usize::try_from(step).ok().filter(|&row| row < steps) else {
        return Err(RunError::SamplerStep { layer: layer.to_owned(), step, steps });
    };
    let elements = outputs[0].ty().elements();
    if elements == 0 {
        return Ok(());
    }
    let mut coefficients = [0.0; STEP_COLUMNS];
    coefficients.copy_from_slice(&table[row * STEP_COLUMNS..][..STEP_COLUMNS]);
    let images = outputs[0].ty().shape[0];
    let mut extra = outputs[1..].iter().map(Target::of);
    let step = Step {
        sample: Source::of(operands.sample),
        prediction: Source::of(operands.prediction),
        history: operands.history.map(Source::of),
        noise: operands.noise.map(Source::of),
        guidance: operands.guidance.map(small_vector),
        blend: operands
            .previous
            .zip(operands.strength)
            .map(|(previous, strength)| (Source::of(previous), small_vector(strength)[0])),
        next: Target::of(&outputs[0]),
        denoised: if op.emit_denoised { extra.next() } else { None },
        scaled: if op.emit_scaled { extra.next() } else { None },
        coefficients,
        clip: op.clip.unwrap_or(f32::INFINITY),
        elements,
        image: elements / images,
    };
    tasks::rectangles(images, step.image, |images, columns| {
        for image in images {
            isa.dispatch(StepRange { step: &step, image, columns: columns.clone() });
        }
    });
    Ok(())
}

struct Step<'a> {
    sample: Source<'a>,
    prediction: Source<'a>,
    history: Option<Source<'a>>,
    noise: Option<Source<'a>>,
    /// One value, or one per frame.
    guidance: Option<Vec<f32>>,
    /// The frame before, and the strength.
    blend: Option<(Source<'a>, f32)>,
    next: Target<'a>,
    denoised: Option<Target<'a>>,
    scaled: Option<Target<'a>>,
    coefficients: [f32; STEP_COLUMNS],
    clip: f32,
    /// Elements of the sample.
    elements: usize,
    /// Elements of an image.
    image: usize,
}

/// A range of one image's elements.
struct StepRange<'a> {
    step: &'a Step<'a>,
    image: usize,
    columns: Range<usize>,
}

/// The operands' values as f32.
struct Run {
    sample: *const f32,
    /// The prediction, or its unconditional half.
    prediction: *const f32,
    /// The guidance and the conditional half.
    guidance: Option<(f32, *const f32)>,
    history: Option<*const f32>,
    noise: Option<*const f32>,
    /// The frame before, and the strength.
    blend: Option<(*const f32, f32)>,
}

impl Kernel for StepRange<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let step = self.step;
        let guidance = step.guidance.as_ref().map(|values| values[self.image % values.len()]);
        let mut buffers = [const { Block::uninit() }; 6];
        let [a, b, c, d, e, f] = &mut buffers;
        let mut results = [const { Block::uninit() }; 3];
        for column in self.columns.clone().step_by(BLOCK) {
            let count = (self.columns.end - column).min(BLOCK);
            let at = self.image * step.image + column;
            // SAFETY: every operand and result has the element, the prediction a second half where there is guidance;
            // buffers hold a block, and no other task has this range.
            unsafe {
                let mut run = Run {
                    sample: step.sample.read(simd, at, count, a.as_mut_ptr()),
                    prediction: step.prediction.read(simd, at, count, b.as_mut_ptr()),
                    guidance: None,
                    history: None,
                    noise: None,
                    blend: None,
                };
                if let Some(guidance) = guidance {
                    let conditional = step.prediction.read(simd, step.elements + at, count, c.as_mut_ptr());
                    run.guidance = Some((guidance, conditional));
                }
                if let Some(history) = step.history {
                    run.history = Some(history.read(simd, at, count, d.as_mut_ptr()));
                }
                if let Some(noise) = step.noise {
                    run.noise = Some(noise.read(simd, at, count, e.as_mut_ptr()));
                }
                if let Some((previous, strength)) = step.blend {
                    run.blend = Some((previous.read(simd, at, count, f.as_mut_ptr()), strength));
                }
                let [next, denoised, scaled] = [0, 1, 2].map(|i| results[i].as_mut_ptr());
                advance(simd, step, &run, [next, denoised, scaled], count);
                step.next.write(simd, at, count, next);
                if let Some(target) = step.denoised {
                    target.write(simd, at, count, denoised);
                }
                if let Some(target) = step.scaled {
                    target.write(simd, at, count, scaled);
                }
            }
        }
    }
}

/// Computes the next sample, the denoised one and the next input.
///
/// # Safety
/// Every pointer is valid for `count` values.
#[inline(always)]
unsafe fn advance<S: Simd>(simd: S, step: &Step<'_>, run: &Run, results: [*mut f32; 3], count: usize) {
    let [
        denoised_sample,
        denoised_prediction,
        next_sample,
        next_denoised,
        next_history,
        next_noise,
        scale,
        next_prediction,
    ] = step.coefficients;
    for at in (0..count).step_by(S::LANES) {
        let lanes = (count - at).min(S::LANES);
        // SAFETY: `at + lanes` <= `count`.
        unsafe {
            let sample = load_up_to(simd, run.sample.add(at), lanes);
            let mut guided = load_up_to(simd, run.prediction.add(at), lanes);
            if let Some((guidance, conditional)) = run.guidance {
                let towards = simd.sub(load_up_to(simd, conditional.add(at), lanes), guided);
                guided = simd.mul_add(simd.splat(guidance), towards, guided);
            }
            let denoised = simd.mul(simd.splat(denoised_prediction), guided);
            let denoised = simd.mul_add(simd.splat(denoised_sample), sample, denoised);
            // The limits come first in `max` and `min`, which then keep a NaN.
            let denoised = simd.min(simd.splat(step.clip), simd.max(simd.splat(-step.clip), denoised));
            let next = simd.mul(simd.splat(next_denoised), denoised);
            let next = simd.mul_add(simd.splat(next_prediction), guided, next);
            let mut next = simd.mul_add(simd.splat(next_sample), sample, next);
            if let Some(history) = run.history {
                let history = load_up_to(simd, history.add(at), lanes);
                next = simd.mul_add(simd.splat(next_history), history, next);
            }
            if let Some(noise) = run.noise {
                let noise = load_up_to(simd, noise.add(at), lanes);
                next = simd.mul_add(simd.splat(next_noise), noise, next);
            }
            if let Some((previous, strength)) = run.blend {
                let previous = load_up_to(simd, previous.add(at), lanes);
                next = Mix.apply(simd, [previous, next, simd.splat(strength)]);
            }
            store_up_to(simd, results[0].add(at), next, lanes);
            store_up_to(simd, results[1].add(at), denoised, lanes);
            store_up_to(simd, results[2].add(at), simd.mul(simd.splat(scale), next), lanes);
        }
    }
}

//! The sampler step.

use kinora_graph::{
    Tensor, TensorType,
    op::{STEP_COLUMNS, SamplerStep},
};

use super::{elements, integers, rounded};
use kinora_runtime::RunError;

/// One guided sampler step: the next sample, then the other requested results.
pub(super) fn sampler_step(
    layer: &str,
    op: SamplerStep,
    inputs: &[&Tensor],
    result: &TensorType,
) -> Result<Vec<Tensor>, RunError> {
    let args = op.operands(inputs);
    let steps = args.table.shape()[0];
    let step = integers(args.step)[0];
    let row = usize::try_from(step).ok().filter(|&row| row < steps);
    let row = row.ok_or_else(|| RunError::SamplerStep { layer: layer.to_owned(), step, steps })?;
    let table = elements(args.table);
    // The columns of `StepCoefficients::row`.
    let coefficients = &table[row * STEP_COLUMNS..][..STEP_COLUMNS];
    let [denoised_sample, denoised_prediction] = [coefficients[0], coefficients[1]];
    let [next_sample, next_denoised] = [coefficients[2], coefficients[3]];
    let [next_history, next_noise] = [coefficients[4], coefficients[5]];
    let [input_scale, next_prediction] = [coefficients[6], coefficients[7]];

    let sample = elements(args.sample);
    let prediction = elements(args.prediction);
    let guidance = args.guidance.map(|tensor| elements(tensor));
    let history = args.history.map(|tensor| elements(tensor));
    let noise = args.noise.map(|tensor| elements(tensor));
    let blend = args.previous.zip(args.strength);
    let blend = blend.map(|(previous, strength)| (elements(previous), elements(strength)[0]));

    let count = sample.len();
    let (mut next, mut denoised, mut scaled) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..count {
        let guided = match &guidance {
            Some(guidance) => {
                let image = i / (count / result.shape[0]);
                let (unconditional, conditional) = (prediction[i], prediction[count + i]);
                // Images are clips of frames, and guidance is one number or one per frame.
                unconditional + guidance[image % guidance.len()] * (conditional - unconditional)
            }
            None => prediction[i],
        };
        let mut clean = denoised_sample * sample[i] + denoised_prediction * guided;
        if let Some(clip) = op.clip {
            clean = clean.clamp(-f64::from(clip), f64::from(clip));
        }
        let mut moved = next_sample * sample[i] + next_denoised * clean + next_prediction * guided;
        if let Some(history) = &history {
            moved += next_history * history[i];
        }
        if let Some(noise) = &noise {
            moved += next_noise * noise[i];
        }
        if let Some((previous, strength)) = &blend {
            moved += strength * (previous[i] - moved);
        }
        next.push(moved);
        denoised.push(clean);
        scaled.push(input_scale * moved);
    }
    let mut results = vec![rounded(result, &next)];
    if op.emit_denoised {
        results.push(rounded(result, &denoised));
    }
    if op.emit_scaled {
        results.push(rounded(result, &scaled));
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{
        Op,
        op::{Prediction, StepCoefficients},
    };

    use super::{
        super::{run, testing::*},
        *,
    };

    /// Two rows; the second is the one that the tests pick.
    fn table(row: [f32; STEP_COLUMNS]) -> Tensor {
        let mut elements = vec![f32::NAN; STEP_COLUMNS];
        elements.extend(row);
        floats(&[2, STEP_COLUMNS], &elements)
    }

    fn second() -> Tensor {
        ints(&[1], &[1])
    }

    fn step(op: SamplerStep, inputs: &[&Tensor]) -> Vec<Vec<f32>> {
        run("step", &Op::SamplerStep(op), inputs).unwrap().iter().map(Tensor::to_f32).collect()
    }

    #[test]
    fn the_linear_form_with_everything_given() {
        let op = SamplerStep {
            guided: true,
            history: true,
            noise: true,
            blend: true,
            clip: None,
            emit_denoised: true,
            emit_scaled: true,
        };
        let sample = floats(&[1, 2], &[1.0, 2.0]);
        // Unconditional 1, 1; conditional 3, 5; guided by 2 they are 5, 9.
        let prediction = floats(&[2, 2], &[1.0, 1.0, 3.0, 5.0]);
        // Denoised: 10 · sample − guided = 5, 11.
        // Next: 100 · sample + 2 · denoised + 3 · history + 4 · noise + 1000 · guided
        // = 110 + 3 + 40 + 5000, 222 + 6 + 80 + 9000; a quarter of the way to the frame before, 5553 and 5308.
        let table = table([10.0, -1.0, 100.0, 2.0, 3.0, 4.0, 0.5, 1000.0]);
        let (second, guidance) = (second(), floats(&[1], &[2.0]));
        let history = floats(&[1, 2], &[1.0, 2.0]);
        let noise = floats(&[1, 2], &[10.0, 20.0]);
        let previous = floats(&[1, 2], &[5553.0, 5308.0]);
        let mut inputs = vec![&sample, &prediction, &table, &second, &guidance, &history, &noise];
        let strength = floats(&[1], &[0.25]);
        inputs.extend([&previous, &strength]);
        assert_eq!(step(op, &inputs), [[5253.0, 8308.0], [5.0, 11.0], [2626.5, 4154.0]]);
        // Without the blend, and with a blend that is off.
        let plain = SamplerStep { blend: false, ..op };
        let unblended = [[5153.0, 9308.0], [5.0, 11.0], [2576.5, 4654.0]];
        assert_eq!(step(plain, &inputs[..7]), unblended);
        let off = floats(&[1], &[0.0]);
        inputs[8] = &off;
        assert_eq!(step(op, &inputs), unblended);
    }

    #[test]
    fn guidance_may_differ_by_frame() {
        // Two clips of two frames; the result is the guided prediction alone.
        let op = SamplerStep { guided: true, ..SamplerStep::default() };
        let sample = floats(&[4, 1], &[0.0; 4]);
        let prediction = floats(&[8, 1], &[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
        let table = table([0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
        let guidance = floats(&[2], &[3.0, 5.0]);
        let results = step(op, &[&sample, &prediction, &table, &second(), &guidance]);
        assert_eq!(results, [[3.0, 5.0, 6.0, 10.0]]);
    }

    #[test]
    fn the_clip_limits_the_denoised_sample() {
        let op = SamplerStep { clip: Some(1.0), emit_denoised: true, ..SamplerStep::default() };
        let (sample, prediction) = (floats(&[3], &[0.0; 3]), floats(&[3], &[-7.0, 0.5, 7.0]));
        // The prediction's own share of the next sample, 10, is not limited.
        let table = table([0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 10.0]);
        let results = step(op, &[&sample, &prediction, &table, &second()]);
        assert_eq!(results, [[-72.0, 6.0, 72.0], [-1.0, 0.5, 1.0]]);
    }

    #[test]
    fn an_euler_step_moves_along_the_noise() {
        // x + (σ' − σ) · ε = 10 + (1 − 3) · 2; the input of the next step is divided by √(1 + 1).
        let row = StepCoefficients::euler(Prediction::Epsilon, 3.0, 1.0).row();
        let op = SamplerStep { emit_denoised: true, emit_scaled: true, ..SamplerStep::default() };
        let inputs =
            [&floats(&[1], &[10.0]), &floats(&[1], &[2.0]), &floats(&[1, 8], &row), &ints(&[1], &[0])];
        let results = step(op, &inputs).concat();
        assert_close(&results, &[6.0, 4.0, 6.0 / 2f64.sqrt()]);
    }

    #[test]
    fn a_step_outside_the_table_is_an_error() {
        let x = floats(&[1], &[0.0]);
        let none = floats(&[0], &[]);
        for wrong in [-1, 2, i32::MAX] {
            for x in [&x, &none] {
                let inputs = [x, x, &table([0.0; STEP_COLUMNS]), &ints(&[1], &[wrong])];
                let error = run("step", &Op::SamplerStep(SamplerStep::default()), &inputs).unwrap_err();
                let expected = RunError::SamplerStep { layer: "step".into(), step: wrong, steps: 2 };
                assert_eq!(error, expected);
            }
        }
        let results = step(SamplerStep::default(), &[&none, &none, &table([0.0; STEP_COLUMNS]), &second()]);
        assert_eq!(results, [[0f32; 0]]);
    }
}

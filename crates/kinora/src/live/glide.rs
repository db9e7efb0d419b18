//! From one prompt to the next, a little further with each frame.

use kinora_graph::Tensor;

use super::text::Embedding;
use crate::image_to_video::GenerateError;

/// Below this angle the arc is a straight line to more digits than an f32 has.
const STRAIGHT: f64 = 1e-4;

/// The embedding that lies a share of the way from one to the other: each token on the arc between its two.
pub(super) fn between(from: &Embedding, to: &Embedding, share: f64) -> Result<Embedding, GenerateError> {
    let pooled = match (&from.pooled, &to.pooled) {
        (Some(from), Some(to)) => Some(slerp_rows(from, to, share, 1)?),
        (_, to) => to.clone(),
    };
    let tokens = to.hidden.shape()[0];
    Ok(Embedding {
        hidden: slerp_rows(&from.hidden, &to.hidden, share, tokens)?,
        pooled,
        left_out: to.left_out,
    })
}

fn slerp_rows(from: &Tensor, to: &Tensor, share: f64, rows: usize) -> Result<Tensor, GenerateError> {
    let (a, b) = (from.to_f32(), to.to_f32());
    let width = (b.len() / rows.max(1)).max(1);
    let values: Vec<f32> =
        a.chunks(width).zip(b.chunks(width)).flat_map(|(a, b)| slerp(a, b, share)).collect();
    Ok(Tensor::from_slice(to.shape().clone(), &values)?)
}

/// Spherical interpolation: by the angle between the two, so that the length does not sink on the way.
fn slerp(a: &[f32], b: &[f32], share: f64) -> Vec<f32> {
    let dot =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum() };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    let angle = if lengths > 0.0 { (dot(a, b) / lengths).clamp(-1.0, 1.0).acos() } else { 0.0 };
    let (of_a, of_b) = if angle.sin() < STRAIGHT {
        (1.0 - share, share)
    } else {
        (((1.0 - share) * angle).sin() / angle.sin(), (share * angle).sin() / angle.sin())
    };
    a.iter().zip(b).map(|(&a, &b)| (of_a * f64::from(a) + of_b * f64::from(b)) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_the_prompts_and_the_middle_is_as_long() {
        let (a, b) = ([3.0, 0.0], [0.0, 3.0]);
        assert_eq!(slerp(&a, &b, 0.0), a);
        let end = slerp(&a, &b, 1.0);
        assert!(end[0].abs() < 1e-6 && (end[1] - 3.0).abs() < 1e-6, "{end:?}");
        let half = slerp(&a, &b, 0.5);
        let expected = 3.0 / 2.0_f32.sqrt();
        assert!(half.iter().all(|value| (value - expected).abs() < 1e-6), "{half:?}");
    }

    #[test]
    fn what_has_no_angle_goes_straight() {
        assert_eq!(slerp(&[1.0, 1.0], &[3.0, 3.0], 0.5), [2.0, 2.0]);
        assert_eq!(slerp(&[0.0, 0.0], &[2.0, 0.0], 0.25), [0.5, 0.0]);
        assert_eq!(slerp(&[1.0, 0.0], &[-1.0, 0.0], 0.5), [0.0, 0.0]);
    }
}

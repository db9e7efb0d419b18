//! How far a result may be from the reference.

use serde::Serialize;

use crate::{
    Element,
    expression::Scope,
    reference::Expected,
    task::{Buffer, Task, Tolerance},
};

/// What is allowed of a result: `absolute + relative × |reference|`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Whatever the reference is.
    pub absolute: f64,
    /// As a part of the reference.
    pub relative: f64,
    /// How many rounded operations in a row it allows for.
    pub depth: f64,
    /// Whether any of it was derived rather than said by the task.
    pub derived: bool,
}

/// The bound of a result. What the task does not say is derived. The rounding errors of `depth` operations in a row add up like steps in
/// random directions, so they grow with the root of `depth`. They are proportional to the numbers that are added, whose size is taken to
/// be the root mean square of the results.
pub(crate) fn bound(task: &Task, number: usize, scope: &Scope, expected: &Expected) -> Bound {
    let buffer = &task.buffers[number];
    let said = |of: fn(&Tolerance) -> Option<f64>| {
        buffer.tolerance.as_ref().and_then(of).or_else(|| of(&task.tolerance))
    };
    let depth = depth(task, buffer, scope, expected);
    let (absolute, relative) = (said(|t| t.absolute), said(|t| t.relative));
    let derived = absolute.is_none() || relative.is_none();
    if buffer.element.is_whole() {
        let bound = |said: Option<f64>| said.unwrap_or(0.0);
        return Bound { absolute: bound(absolute), relative: bound(relative), depth, derived };
    }
    // Elements of 16 bits are usually added up in f32 and rounded at the end.
    let sums = match buffer.element {
        Element::F16 | Element::Bf16 => Element::F32.epsilon(),
        element => element.epsilon(),
    };
    let usual = 4.0 * buffer.element.epsilon() + 16.0 * sums * depth.sqrt();
    let relative = relative.unwrap_or(usual);
    let scale = expected.results[number].as_deref().map_or(0.0, root_mean_square);
    // A bound that the task gives in one way is the whole bound.
    let absolute = match (absolute, said(|t| t.relative)) {
        (Some(absolute), _) => absolute,
        (None, Some(_)) => 0.0,
        (None, None) => usual * scale,
    };
    let relative =
        if said(|t| t.absolute).is_some() && said(|t| t.relative).is_none() { 0.0 } else { relative };
    Bound {
        absolute,
        relative,
        depth,
        derived: said(|t| t.absolute).is_none() && said(|t| t.relative).is_none(),
    }
}

/// How many rounded operations lead to a result: as the task says, as they were counted in the reference, or as many as the extents of
/// inputs that results do not have.
fn depth(task: &Task, buffer: &Buffer, scope: &Scope, expected: &Expected) -> f64 {
    let own = buffer.tolerance.as_ref().and_then(|tolerance| tolerance.depth.as_ref());
    let said = own.or(task.tolerance.depth.as_ref()).and_then(|depth| depth.evaluate(scope).ok());
    let counted = said.or(expected.operations);
    let summed = || {
        let of_result = |extent: &crate::expression::Expression| {
            buffer.shape.iter().any(|own| own.text() == extent.text())
        };
        let of_input = |input: &Buffer| -> f64 {
            let summed = input.shape.iter().filter(|extent| !of_result(extent));
            summed.filter_map(|extent| extent.evaluate(scope).ok()).product()
        };
        task.buffers.iter().filter(|buffer| buffer.is_given()).map(of_input).fold(1.0, f64::max)
    };
    let depth = counted.unwrap_or_else(summed);
    if depth.is_finite() { depth.max(1.0) } else { 1.0 }
}

fn root_mean_square(numbers: &[f64]) -> f64 {
    let finite = || numbers.iter().filter(|number| number.is_finite());
    let count = finite().count().max(1) as f64;
    // Scaled, so that squares do not overflow.
    let largest = finite().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    largest * (finite().map(|number| (number / largest).powi(2)).sum::<f64>() / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_number_has_a_mean_square() {
        assert!((root_mean_square(&[3.0, 4.0, f64::NAN]) - 12.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(root_mean_square(&[1e300, -1e300]), 1e300);
        assert_eq!(root_mean_square(&[]), 0.0);
    }
}

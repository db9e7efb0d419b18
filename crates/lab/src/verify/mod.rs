//! Results beside the reference, in f64.

mod tolerance;

use serde::Serialize;

pub use tolerance::Bound;
pub(crate) use tolerance::bound;

use crate::Element;

/// A result's element that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Its place, outermost axis first.
    pub index: Vec<usize>,
    /// What the kernel left, as text: JSON has neither NaN nor infinities.
    pub got: String,
    /// What the reference says.
    pub expected: String,
    /// The difference.
    #[serde(serialize_with = "finite")]
    pub difference: f64,
    /// The difference in units of the last place of the element.
    #[serde(serialize_with = "finite")]
    pub ulps: f64,
}

/// A number for JSON: none if it is not finite.
pub(crate) fn finite<S: serde::Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() { serializer.serialize_f64(*number) } else { serializer.serialize_none() }
}

/// How a result compares with the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// How many elements there are.
    pub elements: usize,
    /// How many are further from the reference than allowed.
    pub wrong: usize,
    /// How many are infinite or NaN where the reference is not.
    pub not_finite: usize,
    /// What is allowed.
    pub bound: Bound,
    /// The largest difference over what is allowed there: up to 1 is right.
    #[serde(serialize_with = "finite")]
    pub of_bound: f64,
    /// The element with it.
    pub worst: Option<Worst>,
    /// The first wrong element.
    pub first_wrong: Option<Vec<usize>>,
}

/// Compares a result with the reference.
pub fn compare(element: Element, shape: &[usize], got: &[f64], expected: &[f64], bound: Bound) -> Comparison {
    let mut comparison = Comparison {
        elements: expected.len(),
        wrong: 0,
        not_finite: 0,
        bound,
        of_bound: 0.0,
        worst: None,
        first_wrong: None,
    };
    let mut worst = None;
    for (at, (&got, &exact)) in got.iter().zip(expected).enumerate() {
        let of_bound = of_bound(element, got, exact, bound);
        if !got.is_finite() && exact.is_finite() && of_bound > 1.0 {
            comparison.not_finite += 1;
        }
        if of_bound > 1.0 {
            comparison.wrong += 1;
            comparison.first_wrong.get_or_insert_with(|| place(shape, at));
        }
        if of_bound > comparison.of_bound || (of_bound > 0.0 && worst.is_none()) {
            comparison.of_bound = of_bound;
            worst = Some(at);
        }
    }
    comparison.worst = worst.map(|at| {
        let (got, exact) = (got[at], expected[at]);
        let difference = (got - exact).abs();
        Worst {
            index: place(shape, at),
            got: shown(got),
            expected: shown(exact),
            difference,
            ulps: difference / unit(element, exact),
        }
    });
    comparison
}

/// The difference over what is allowed; infinite if it is no number.
fn of_bound(element: Element, got: f64, exact: f64, bound: Bound) -> f64 {
    if got == exact || (got.is_nan() && exact.is_nan()) {
        return 0.0;
    }
    // What overflows in the element is infinite in the right result too.
    let rounded = element.load(&element.store(exact)).first().copied().unwrap_or(exact);
    if got == rounded {
        return 0.0;
    }
    let difference = (got - exact).abs();
    let allowed = bound.absolute + bound.relative * exact.abs();
    match difference.is_finite() {
        true if difference == 0.0 => 0.0,
        true => difference / allowed.max(f64::MIN_POSITIVE),
        false => f64::INFINITY,
    }
}

/// The distance between neighbouring numbers of an element.
fn unit(element: Element, number: f64) -> f64 {
    if element.is_whole() || !number.is_finite() {
        return 1.0;
    }
    let smallest = match element {
        Element::F16 => 6.103_515_625e-5,
        Element::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    };
    let exponent = libm::floor(libm::log2(number.abs().max(smallest)));
    libm::exp2(exponent) * element.epsilon()
}

/// A number as people read it.
fn shown(number: f64) -> String {
    let magnitude = number.abs();
    match number {
        _ if !number.is_finite() || number == 0.0 || number.fract() == 0.0 && magnitude < 1e15 => {
            number.to_string()
        }
        _ if (1e-3..1e7).contains(&magnitude) => {
            // As many digits as f32 has, and one more.
            let decimals = (8.0 - libm::floor(libm::log10(magnitude))).clamp(0.0, 12.0) as usize;
            format!("{number:.decimals$}")
        }
        _ => format!("{number:.8e}"),
    }
}

/// The place of an element, outermost axis first.
fn place(shape: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (axis, &extent) in shape.iter().enumerate().rev() {
        index[axis] = at % extent.max(1);
        at /= extent.max(1);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { absolute: 0.1, relative: 0.01, depth: 1.0, derived: false };

    fn compared(element: Element, got: &[f64], expected: &[f64]) -> Comparison {
        compare(element, &[got.len()], got, expected, BOUND)
    }

    #[test]
    fn the_worst_element_is_told() {
        let found = compare(
            Element::F32,
            &[2, 3],
            &[0.0, 1.05, 2.0, 3.5, 4.0, 9.0],
            &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
            BOUND,
        );
        assert_eq!((found.wrong, found.elements, found.not_finite), (2, 6, 0));
        assert_eq!(found.first_wrong, Some(vec![1, 0]));
        let worst = found.worst.unwrap();
        assert_eq!((worst.index, worst.got.as_str(), worst.expected.as_str()), (vec![1, 2], "9", "5"));
        assert_eq!((worst.difference, worst.ulps), (4.0, 4.0 / (4.0 * 2f64.powi(-23))));
        assert!((found.of_bound - 4.0 / 0.15).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_number_is_wrong_unless_the_reference_says_so() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        for (got, expected, wrong) in [
            (nan, 1.0, 1),
            (infinity, 1.0, 1),
            (1.0, nan, 1),
            (1.0, infinity, 1),
            (-infinity, infinity, 1),
            (nan, nan, 0),
            (infinity, infinity, 0),
        ] {
            let found = compared(Element::F32, &[got], &[expected]);
            assert_eq!(found.wrong, wrong, "{got} {expected}");
            assert_eq!(found.not_finite, usize::from(!got.is_finite() && expected.is_finite()));
            // JSON takes it.
            assert!(serde_json::to_string(&found).is_ok());
        }
        // 70000 is infinite in f16.
        assert_eq!(compared(Element::F16, &[infinity], &[70000.0]).wrong, 0);
        assert_eq!(compared(Element::F32, &[infinity], &[70000.0]).wrong, 1);
    }

    #[test]
    fn equal_results_have_no_worst_element() {
        let found = compared(Element::I32, &[1.0, 2.0], &[1.0, 2.0]);
        assert_eq!((found.wrong, found.worst, found.of_bound), (0, None, 0.0));
    }

    #[test]
    fn numbers_are_shown_with_their_digits() {
        for (number, text) in [
            (0.0, "0"),
            (5.0, "5"),
            (-0.5, "-0.500000000"),
            (123.456, "123.456000"),
            (1.5e-9, "1.50000000e-9"),
            (f64::NAN, "NaN"),
            (1e300, "1.00000000e300"),
        ] {
            assert_eq!(shown(number), text);
        }
    }
}

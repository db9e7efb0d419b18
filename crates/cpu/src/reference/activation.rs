//! Functions of one value, and softmax.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use kinora_graph::{Tensor, TensorType, op::Activation};

use super::{elements, rounded};

/// An activation of one value.
pub(super) fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        // Written so that NaN stays NaN.
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::Silu => x * sigmoid(x),
        // Φ(x) = ½ · erfc(−x / √2), which keeps its digits where 1 + erf would cancel.
        Activation::Gelu => x * 0.5 * libm::erfc(-x * FRAC_1_SQRT_2),
        // ½ · (1 + tanh u) = sigmoid(2u), for the same reason.
        Activation::GeluTanh => x * sigmoid(2.0 * (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
    }
}

fn sigmoid(x: f64) -> f64 {
    // exp overflows to infinity for x below −709, and 1 / ∞ is the right 0.
    1.0 / (1.0 + (-x).exp())
}

/// Softmax over the last axis.
pub(super) fn softmax(x: &Tensor, result: &TensorType) -> Tensor {
    let mut y = elements(x);
    for row in y.chunks_mut(x.shape().channels()) {
        softmax_row(row);
    }
    rounded(result, &y)
}

/// Softmax of one row. A row of only −∞ has no distribution and becomes zeros (PyTorch returns NaN).
pub(super) fn softmax_row(row: &mut [f64]) {
    if row.iter().all(|&x| x == f64::NEG_INFINITY) {
        row.fill(0.0);
        return;
    }
    // f64::max ignores a NaN, but the sum does not: the whole row becomes NaN, as in PyTorch.
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for x in row.iter_mut() {
        *x = (*x - largest).exp();
    }
    let sum: f64 = row.iter().sum();
    for x in row.iter_mut() {
        *x /= sum;
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::Op;

    use super::{super::testing::*, *};

    #[test]
    fn activations_at_known_points() {
        let x = floats(&[4], &[-1.0, 0.0, 1.0, 2.0]);
        // Φ(1) = 0.8413447461, Φ(2) = 0.9772498681; sigmoid(1) = 0.7310585786, sigmoid(2) = 0.8807970780;
        // GeluTanh and QuickGelu are as PyTorch computes them in float64.
        let table: [(Activation, [f64; 4]); 7] = [
            (Activation::Relu, [0.0, 0.0, 1.0, 2.0]),
            (Activation::Silu, [-0.2689414214, 0.0, 0.7310585786, 1.7615941560]),
            (Activation::Gelu, [-0.1586552539, 0.0, 0.8413447461, 1.9544997361]),
            (Activation::GeluTanh, [-0.1588080094, 0.0, 0.8411919906, 1.9545976940]),
            (Activation::QuickGelu, [-0.1542042341, 0.0, 0.8457957659, 1.9356586231]),
            (Activation::Sigmoid, [0.2689414214, 0.5, 0.7310585786, 0.8807970780]),
            (Activation::Tanh, [-0.7615941560, 0.0, 0.7615941560, 0.9640275801]),
        ];
        for (activation, expected) in table {
            assert_close(&values(Op::Activate(activation), &[&x]), &expected);
        }
    }

    #[test]
    fn activations_of_huge_values_are_finite_and_of_nan_are_nan() {
        let x = floats(&[3], &[-1e4, 1e4, f32::NAN]);
        for activation in Activation::ALL {
            let y = values(Op::Activate(activation), &[&x]);
            let (low, high) = match activation {
                Activation::Sigmoid => (0.0, 1.0),
                Activation::Tanh => (-1.0, 1.0),
                _ => (0.0, 1e4),
            };
            assert_eq!((y[0], y[1]), (low, high), "{}", activation.name());
            assert!(y[2].is_nan(), "{}", activation.name());
        }
    }

    #[test]
    fn gelu_keeps_its_digits_in_the_tail() {
        // −8 · Φ(−8), Φ(−8) = 6.22096057427178e−16.
        let y = values(Op::Activate(Activation::Gelu), &[&floats(&[1], &[-8.0])]);
        assert!((f64::from(y[0]) / -4.976768459417424e-15 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn softmax_of_each_row() {
        // e⁰ : e¹ = 0.2689 : 0.7311; equal values share; one column is 1.
        let x = floats(&[2, 2], &[3.0, 4.0, 7.0, 7.0]);
        assert_close(&values(Op::Softmax, &[&x]), &[0.2689414214, 0.7310585786, 0.5, 0.5]);
        assert_eq!(values(Op::Softmax, &[&floats(&[2, 1], &[-9.0, 9.0])]), [1.0, 1.0]);
    }

    #[test]
    fn softmax_of_huge_infinite_and_nan_values() {
        let infinity = f32::INFINITY;
        let x = floats(&[3, 2], &[1e4, -1e4, -infinity, -infinity, -infinity, -1e4]);
        assert_eq!(values(Op::Softmax, &[&x]), [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        for row in [[f32::NAN, 1.0], [f32::NAN, -infinity], [f32::NAN, f32::NAN]] {
            assert!(values(Op::Softmax, &[&floats(&[2], &row)]).iter().all(|y| y.is_nan()));
        }
    }
}

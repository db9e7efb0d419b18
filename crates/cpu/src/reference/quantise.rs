//! Numbers in 8 bits.

use kinora_graph::{Tensor, TensorType, e4m3::E4M3, op::Quantise};

use super::{elements, rounded};

/// A tensor in e4m3, and for filters the scales.
pub(super) fn quantise(op: Quantise, x: &Tensor, results: &[TensorType]) -> Vec<Tensor> {
    let mut y = elements(x);
    match op {
        Quantise::Tensor { factor } => {
            y.iter_mut().for_each(|value| *value *= f64::from(factor));
            vec![rounded(&results[0], &y)]
        }
        Quantise::Filters { activation, .. } => {
            let number = results[1].elements();
            let length = x.shape()[1..].iter().product();
            let mut scales = Vec::with_capacity(number);
            for number_of_scale in 0..number {
                // Every filter of the block's size further on shares the scale.
                let shared = |i: &usize| i.checked_div(length).is_some_and(|i| i % number == number_of_scale);
                let own: Vec<usize> = (0..y.len()).filter(shared).collect();
                let largest = own.iter().map(|&i| y[i].abs()).fold(0.0, f64::max);
                let there = largest >= f64::from(Quantise::SMALLEST);
                let scale = if there { largest / f64::from(E4M3::MAX) } else { 0.0 };
                for i in own {
                    y[i] = if there { y[i] / scale } else { 0.0 };
                }
                scales.push(scale * f64::from(activation));
            }
            vec![rounded(&results[0], &y), rounded(&results[1], &scales)]
        }
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, Op};

    use super::{super::testing::*, *};
    use crate::reference::run;

    #[test]
    fn a_tensor_is_multiplied_and_rounded() {
        let x = floats(&[6], &[0.25, 0.2625, -1.0, 300.0, -1e9, 0.0]);
        let y = run_one(Op::Quantise(Quantise::Tensor { factor: 4.0 }), &[&x]);
        assert_eq!(y.dtype(), DType::F8E4M3);
        // Between 1 and 2 numbers are an eighth apart, between 256 and 448 thirty-two.
        assert_eq!(y.to_f32(), [1.0, 1.0, -4.0, 448.0, -448.0, 0.0]);
    }

    #[test]
    fn filters_that_share_a_factor_are_those_of_all_blocks() {
        let x = floats(&[4, 2], &[1.0, 7.0, 0.0, 0.0, -14.0, 2.0, 0.0, 1e-35]);
        let op = Quantise::Filters { blocks: 2, activation: 0.5 };
        let results = run("filters", &Op::Quantise(op), &[&x]).unwrap();
        assert_eq!(results[0].to_f32(), [32.0, 224.0, 0.0, 0.0, -448.0, 64.0, 0.0, 0.0]);
        assert_eq!(results[1].to_f32(), [14.0 / 448.0 * 0.5, 0.0]);
    }
}

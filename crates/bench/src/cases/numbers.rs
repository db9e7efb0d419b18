//! The operands of a layer: patterns that are repeated, so that gigabytes need neither be computed nor passed to a peer.

use kinora_graph::{DType, Graph, Source, Tensor, TensorType, tensor::TensorError};
use kinora_models::synthetic;

/// The length of a pattern: odd, so that no row of a tensor equals another.
const PATTERN: usize = (1 << 18) - 5;

/// How many numbers are compared at the beginning, in the middle and at the end of a long result.
const WINDOW: usize = 1 << 22;

/// An operand's numbers.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The operand's name.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
    /// Whether it is a weight.
    pub is_weight: bool,
    /// Repeated until the operand is full; its numbers are exact in the operand's element type.
    pub pattern: Vec<f32>,
}

impl Numbers {
    /// For every input and weight of a graph: uniform, of unit variance, and weights scaled so that results have it too. A
    /// `variance` is positive, and about one.
    ///
    /// # Errors
    /// If the graph has operands that are not floating-point numbers.
    pub fn of(graph: &Graph) -> Result<Vec<Numbers>, TensorError> {
        let given = |source: &Source| !matches!(source, Source::Node { .. } | Source::Constant(_));
        let operands = graph.value_ids().filter(|(_, value)| given(&value.source));
        operands
            .map(|(_, value)| {
                let is_weight = value.source == Source::Parameter;
                let depth = value.ty.shape.iter().skip(1).product::<usize>().max(1);
                let scale = 3f64.sqrt() / if is_weight { (depth as f64).sqrt() } else { 1.0 };
                let count = value.ty.elements().min(PATTERN);
                let numbers = synthetic::uniform(&value.name).take(count);
                let numbers: Vec<f32> = match value.name.as_str() {
                    "variance" => numbers.map(|number| (1.0 + number / 2.0) as f32).collect(),
                    _ => numbers.map(|number| (number * scale) as f32).collect(),
                };
                // Rounded here, so that a peer that gets them as f32 computes with the same numbers.
                let pattern = Tensor::from_f32(value.ty.dtype, [count], &numbers)?.to_f32();
                Ok(Numbers { name: value.name.clone(), ty: value.ty.clone(), is_weight, pattern })
            })
            .collect()
    }

    /// The whole operand.
    ///
    /// # Errors
    /// If the element type cannot hold floating-point numbers.
    pub fn tensor(&self) -> Result<Tensor, TensorError> {
        let numbers: Vec<f32> = self.pattern.iter().copied().cycle().take(self.ty.elements()).collect();
        Tensor::from_f32(self.ty.dtype, self.ty.shape.clone(), &numbers)
    }

    /// The pattern in the operand's element type.
    ///
    /// # Errors
    /// If the element type cannot hold floating-point numbers.
    pub fn pattern_bytes(&self) -> Result<Vec<u8>, TensorError> {
        Ok(Tensor::from_f32(self.ty.dtype, [self.pattern.len()], &self.pattern)?.bytes().to_vec())
    }
}

/// The parts of a result of `count` numbers that are compared, as offset and length: all of a short result.
pub fn windows(count: usize) -> Vec<(usize, usize)> {
    if count <= 3 * WINDOW {
        return vec![(0, count)];
    }
    [0, count / 2, count - WINDOW].map(|from| (from, WINDOW)).to_vec()
}

/// The numbers of a result that are compared.
pub(crate) fn in_windows(result: &[f32]) -> Vec<f32> {
    windows(result.len()).into_iter().flat_map(|(from, count)| &result[from..from + count]).copied().collect()
}

/// The length of a window, for the peers; see [`windows`].
pub(crate) fn window() -> usize {
    WINDOW
}

/// How far a layer's result may be from another's, as relative root mean square: a few units in the last place.
pub(crate) fn bar(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 3e-3,
        _ => 2.5e-2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_unit_variance_and_weights_keep_it() {
        let graph = super::super::cpu().unwrap()[1].work.graph("conv", DType::F32).unwrap();
        for numbers in Numbers::of(&graph).unwrap() {
            let square: f64 = numbers.pattern.iter().map(|&x| f64::from(x).powi(2)).sum();
            let variance = square / numbers.pattern.len() as f64;
            let expected = if numbers.name == "weight" { 1.0 / (9.0 * 128.0) } else { 1.0 };
            assert!((variance / expected - 1.0).abs() < 0.3, "{}: {variance}", numbers.name);
            assert_eq!(numbers.tensor().unwrap().shape(), &numbers.ty.shape);
        }
    }

    #[test]
    fn long_results_are_compared_in_three_places() {
        assert_eq!(windows(10), [(0, 10)]);
        let long = 10 * WINDOW;
        assert_eq!(windows(long), [(0, WINDOW), (5 * WINDOW, WINDOW), (9 * WINDOW, WINDOW)]);
    }
}

//! Resampling along one axis: each result is a weighted sum of a run of neighbours.

use std::ops::Range;

/// The weights of every result of an axis.
#[derive(Clone, Debug)]
pub(super) struct Axis<W> {
    /// For each result, the first neighbour and its weights' place.
    runs: Vec<(usize, Range<usize>)>,
    weights: Vec<W>,
}

impl<W> Axis<W> {
    /// From each result's first neighbour and weights.
    pub(super) fn new<I: IntoIterator<Item = W>>(runs: impl Iterator<Item = (usize, I)>) -> Self {
        let mut axis = Axis { runs: Vec::new(), weights: Vec::new() };
        for (first, weights) in runs {
            let start = axis.weights.len();
            axis.weights.extend(weights);
            axis.runs.push((first, start..axis.weights.len()));
        }
        axis
    }

    /// Each result's first neighbour and weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[W])> {
        self.runs.iter().map(|(first, range)| (*first, &self.weights[range.clone()]))
    }
}

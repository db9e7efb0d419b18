//! What to ask for instead, where the memory does not suffice.

use super::{
    GenerateError, Precision, Settings,
    plans::{Plans, Request},
    settings::side_unit,
};

impl Request<'_> {
    /// Plans all networks, each within the budget. Where one does not fit, the error says what would.
    pub fn plan_within(&self, budget: Option<usize>) -> Result<Plans, GenerateError> {
        match (self.plan(budget), budget) {
            (Err(GenerateError::OverBudget { plan, .. }), Some(budget)) => {
                Err(GenerateError::OverBudget { plan, suggestion: self.what_fits(budget) })
            }
            (plans, _) => plans,
        }
    }

    /// The first of the alternatives that fits, in words, and what it needs.
    fn what_fits(&self, budget: usize) -> Option<(String, usize)> {
        self.alternatives().into_iter().find_map(|(words, settings, precision)| {
            let plans = Request { settings: &settings, precision, ..*self }.plan(Some(budget)).ok()?;
            Some((words, plans.estimate().peak_bytes()))
        })
    }

    /// What could be asked for instead, what changes the clip least first: smaller chunks to decode, half precision, both,
    /// fewer frames, a smaller picture.
    fn alternatives(&self) -> Vec<(String, Settings, Precision)> {
        let &Request { configs, settings, precision } = self;
        let mut alternatives = Vec::new();
        let chunks = || halves(settings.decode_chunk.min(settings.frames));
        let with_chunk = |decode_chunk| Settings { decode_chunk, ..settings.clone() };
        let chunk_words = |chunk: usize| format!("decoding in chunks of {chunk}");
        alternatives.extend(chunks().map(|chunk| (chunk_words(chunk), with_chunk(chunk), precision)));
        let half = if precision == Precision::F32 { Precision::F16 } else { precision };
        if half != precision {
            alternatives.push((format!("{half}"), settings.clone(), half));
            let both = |chunk| (format!("{half}, {}", chunk_words(chunk)), with_chunk(chunk), half);
            alternatives.extend(chunks().map(both));
        }
        let one_by_one = Settings { decode_chunk: 1, ..settings.clone() };
        let words = |what: String| format!("{what} in {half}, {}", chunk_words(1));
        alternatives.extend(halves(settings.frames).map(|frames| {
            let settings = Settings { frames, ..one_by_one.clone() };
            (words(format!("{frames} frames")), settings, half)
        }));
        let unit = side_unit(configs);
        let smaller = |side: usize, quarters: usize| (side * quarters / 4 / unit * unit).max(unit);
        alternatives.extend([3, 2, 1].map(|quarters| {
            let (width, height) = (smaller(settings.width, quarters), smaller(settings.height, quarters));
            let settings = Settings { width, height, ..one_by_one.clone() };
            (words(format!("{width}×{height}")), settings, half)
        }));
        alternatives
    }
}

/// Half of a number, a quarter … down to 1.
fn halves(number: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(number / 2), |n| Some(n / 2)).take_while(|&n| n > 0)
}

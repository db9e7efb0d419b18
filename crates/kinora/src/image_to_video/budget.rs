//! What to ask for instead if there is not enough memory.

use std::fmt;

use super::{
    GenerateError, Precision, Settings,
    plans::{Plans, Request},
};

/// What to ask for instead, so that a clip fits its memory. What is `None` stays as it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suggestion {
    /// Fewer frames.
    pub frames: Option<usize>,
    /// A smaller width and height.
    pub size: Option<[usize; 2]>,
    /// Another precision.
    pub precision: Option<Precision>,
    /// Fewer frames decoded together.
    pub decode_chunk: Option<usize>,
    /// Steps that are all whole: 1.
    pub cache: Option<usize>,
    /// What the whole clip would then need, in bytes.
    pub peak_bytes: usize,
}

impl Suggestion {
    /// The decode chunk, if that is all it asks to change.
    pub(super) fn only_decode_chunk(&self) -> Option<usize> {
        let Suggestion { frames, size, precision, decode_chunk, cache, .. } = *self;
        let others = frames.is_some() || size.is_some() || precision.is_some() || cache.is_some();
        decode_chunk.filter(|_| !others)
    }

    /// The settings and the precision with the suggestion applied.
    pub(super) fn apply(&self, settings: &Settings, precision: Precision) -> (Settings, Precision) {
        let [width, height] = self.size.unwrap_or([settings.width, settings.height]);
        let settings = Settings {
            frames: self.frames.unwrap_or(settings.frames),
            width,
            height,
            decode_chunk: self.decode_chunk.unwrap_or(settings.decode_chunk),
            cache: self.cache.unwrap_or(settings.cache),
            ..settings.clone()
        };
        (settings, self.precision.unwrap_or(precision))
    }
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.frames.map(|frames| format!("{frames} frames")),
            self.size.map(|[width, height]| format!("{width}×{height}")),
            self.precision.map(|precision| precision.to_string()),
            self.decode_chunk.map(|chunk| format!("decoding in chunks of {chunk}")),
            self.cache.map(|_| "no step caching".to_owned()),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl Request<'_> {
    /// Plans all networks, each within the budget. If one does not fit, the error says what would.
    pub fn plan_within(&self, budget: Option<usize>) -> Result<Plans, GenerateError> {
        match (self.plan(budget), budget) {
            (Err(GenerateError::OverBudget { over, .. }), Some(budget)) => {
                Err(GenerateError::OverBudget { over, suggestion: self.what_fits(budget).map(Box::new) })
            }
            (plans, _) => plans,
        }
    }

    /// The first of the alternatives that fits.
    fn what_fits(&self, budget: usize) -> Option<Suggestion> {
        self.alternatives().into_iter().find_map(|suggestion| {
            let (settings, precision) = suggestion.apply(self.settings, self.precision);
            let plans = Request { settings: &settings, precision, ..*self }.plan(Some(budget)).ok()?;
            Some(Suggestion { peak_bytes: plans.estimate().peak_bytes(), ..suggestion })
        })
    }

    /// What could be asked for instead, starting with what changes the clip least: smaller decode chunks, no step caching, both,
    /// half precision, with smaller chunks, fewer frames, a smaller picture.
    fn alternatives(&self) -> Vec<Suggestion> {
        let &Request { configs, settings, precision, .. } = self;
        let chunks = || halves(settings.decode_chunk.min(settings.frames));
        let same = Suggestion::default();
        let chunked = |of: Suggestion| {
            chunks().map(move |chunk| Suggestion { decode_chunk: Some(chunk), ..of }).collect::<Vec<_>>()
        };
        let mut alternatives = chunked(same);
        if settings.cached() {
            let whole = Suggestion { cache: Some(1), ..same };
            alternatives.push(whole);
            alternatives.extend(chunked(whole));
        }
        let half = match precision {
            Precision::F32 => {
                let half = Suggestion { precision: Some(Precision::F16), ..same };
                alternatives.push(half);
                alternatives.extend(chunked(half));
                half
            }
            Precision::F16 | Precision::BF16 | Precision::Fp8 => same,
        };
        let one_by_one = Suggestion { decode_chunk: Some(1), ..half };
        let shorter = |frames| Suggestion { frames: Some(frames), ..one_by_one };
        alternatives.extend(halves(settings.frames).map(shorter));
        let unit = configs.side_unit();
        let smaller = |side: usize, quarters: usize| (side * quarters / 4 / unit * unit).max(unit);
        alternatives.extend([3, 2, 1].map(|quarters| {
            let size = [settings.width, settings.height].map(|side| smaller(side, quarters));
            Suggestion { size: Some(size), ..one_by_one }
        }));
        alternatives
    }
}

/// A half of a number, a quarter … down to 1.
fn halves(number: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(number / 2), |n| Some(n / 2)).take_while(|&n| n > 0)
}

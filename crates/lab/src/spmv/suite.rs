//! Twenty matrices of every kind, and what they say together.

use serde::Serialize;

use super::{
    csr::Value,
    examine::{Examination, ExamineError, PeerResult, Settings, examine},
    generate::{Recipe, RecipeError},
};

/// The matrices: from a few million to a hundred million non-zeros. Rows of one length or nearly so first.
pub const RECIPES: [&str; 20] = [
    "diagonal:rows=20000000",
    "stencil-2d:rows=4000000",
    "stencil-2d:rows=16000000",
    "stencil-3d:rows=2000000",
    "stencil-3d:rows=12000000",
    "banded:rows=1000000,nonzeros=32000000,seed=1",
    "banded:rows=400000,nonzeros=40000000,seed=2",
    "block:rows=500000,nonzeros=16000000",
    "uniform:rows=1000000,nonzeros=8000000,seed=3",
    "uniform:rows=500000,nonzeros=50000000,seed=4",
    "power-law:rows=300000,nonzeros=6000000,seed=5",
    "power-law:rows=1000000,nonzeros=20000000,seed=6",
    "power-law:rows=4000000,nonzeros=40000000,seed=7",
    "power-law:rows=2000000,nonzeros=100000000,seed=8",
    "empty-rows:rows=4000000,nonzeros=8000000,seed=9",
    "empty-rows:rows=8000000,nonzeros=64000000,seed=10",
    "dense-row:rows=1000000,nonzeros=5000000,seed=11",
    "dense-row:rows=5000000,nonzeros=40000000,seed=12",
    "uniform:rows=2000,columns=2000000,nonzeros=20000000,seed=13",
    "power-law:rows=20000,columns=1000000,nonzeros=30000000,seed=14",
];

/// Why a suite ended early.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// A matrix cannot be made.
    #[error("{recipe}: {source}")]
    Recipe {
        /// The matrix.
        recipe: String,
        /// Why.
        source: RecipeError,
    },
    /// A matrix cannot be examined.
    #[error("{recipe}: {source}")]
    Examine {
        /// The matrix.
        recipe: String,
        /// Why.
        source: ExamineError,
    },
}

/// What all matrices say together.
#[derive(Clone, Debug, Serialize)]
pub struct Suite {
    /// Each matrix.
    pub matrices: Vec<Examination>,
    /// Those whose rows are of about one length.
    pub regular: Means,
    /// The others.
    pub irregular: Means,
    /// All.
    pub all: Means,
}

/// Geometric means over some matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Means {
    /// How many matrices.
    pub matrices: usize,
    /// The share of the memory's rate.
    pub share: Option<f64>,
    /// How much faster the best kernel is than the best of the peers, preparation not counted.
    pub speed_up: Option<f64>,
    /// The same for the first product, with all that is prepared for it.
    pub first_speed_up: Option<f64>,
    /// How much faster the kernel is that the statistics choose.
    pub chosen_speed_up: Option<f64>,
}

impl Means {
    /// The means of some matrices.
    pub fn new(of: &[&Examination]) -> Means {
        Means {
            matrices: of.len(),
            share: mean(of.iter().map(|one| one.best().and_then(|best| best.share))),
            speed_up: mean(of.iter().map(|one| Some(one.best_peer()? / one.best()?.seconds?))),
            first_speed_up: mean(of.iter().map(|one| Some(first_peer(one)? / first(one)?))),
            chosen_speed_up: mean(of.iter().map(|one| Some(one.best_peer()? / chosen(one)?))),
        }
    }
}

/// The geometric mean of numbers that are all known.
fn mean(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<f64> = numbers.collect::<Option<_>>()?;
    (!all.is_empty()).then(|| (all.iter().map(|number| number.ln()).sum::<f64>() / all.len() as f64).exp())
}

/// The least time to a first product.
fn first(of: &Examination) -> Option<f64> {
    let right = of.kernels.iter().filter(|kernel| kernel.is_right());
    right.filter_map(|kernel| kernel.first_seconds()).min_by(f64::total_cmp)
}

fn first_peer(of: &Examination) -> Option<f64> {
    let ways = |peer: &PeerResult| {
        let analysed = peer.preprocessed_seconds.zip(peer.preprocessing_seconds).map(|(a, b)| a + b);
        [peer.seconds, analysed].into_iter().flatten().min_by(f64::total_cmp)
    };
    of.peers.iter().filter_map(ways).min_by(f64::total_cmp)
}

fn chosen(of: &Examination) -> Option<f64> {
    of.kernels.iter().find(|kernel| kernel.variant == of.choice.variant && kernel.is_right())?.seconds
}

impl Suite {
    /// Sums up what was found.
    pub fn new(matrices: Vec<Examination>) -> Suite {
        let (irregular, regular): (Vec<&Examination>, Vec<&Examination>) =
            matrices.iter().partition(|one| one.irregular);
        let (regular, irregular) = (Means::new(&regular), Means::new(&irregular));
        let all = Means::new(&matrices.iter().collect::<Vec<_>>());
        Suite { matrices, regular, irregular, all }
    }

    /// Examines matrices one after the other, so that only one is in memory at a time. `done` gets each examination.
    ///
    /// # Errors
    /// If one of them cannot be made or examined.
    pub fn run<V: Value>(
        recipes: &[&str],
        settings: &Settings,
        mut done: impl FnMut(&Examination),
    ) -> Result<Suite, SuiteError> {
        let mut matrices = Vec::new();
        for &recipe in recipes {
            let refused = |source| SuiteError::Recipe { recipe: recipe.to_owned(), source };
            let matrix =
                recipe.parse::<Recipe>().and_then(|recipe| recipe.generate::<V, i32>()).map_err(refused)?;
            let examined = examine(recipe, &matrix, settings)
                .map_err(|source| SuiteError::Examine { recipe: recipe.to_owned(), source })?;
            done(&examined);
            matrices.push(examined);
        }
        Ok(Suite::new(matrices))
    }

    /// The table's head.
    pub fn head() -> String {
        format!(
            "{:<59} {:>9} {:<21} {:>10} {:>6} {:>10} {:>8} {:>11}\n",
            "matrix", "", "best kernel", "product", "share", "cuSPARSE", "speed-up", "pays after"
        )
    }

    /// A matrix's line of the table.
    pub fn line(one: &Examination) -> String {
        let dash = || "-".to_owned();
        let micro =
            |seconds: Option<f64>| seconds.map_or_else(dash, |seconds| format!("{:.1} µs", seconds * 1e6));
        let best = one.best();
        let seconds = best.and_then(|best| best.seconds);
        let share = best.and_then(|best| best.share);
        let gain = one.best_peer().zip(seconds).map(|(peer, own)| peer / own);
        format!(
            "{:<59} {:>9} {:<21} {:>10} {:>6} {:>10} {:>8} {:>11}\n",
            one.name,
            if one.irregular { "irregular" } else { "regular" },
            best.map_or("none is right", |best| best.kernel.as_str()),
            micro(seconds),
            share.map_or_else(dash, |share| format!("{:.0} %", 100.0 * share)),
            micro(one.best_peer()),
            gain.map_or_else(dash, |gain| format!("{gain:.2} ×")),
            one.pays_after.map_or_else(dash, |products| products.to_string())
        )
    }

    /// The lines below the table.
    pub fn conclusion(&self) -> String {
        let mut text = String::new();
        for (name, means) in [("regular", &self.regular), ("irregular", &self.irregular), ("all", &self.all)]
        {
            let times = |mean: Option<f64>| {
                mean.map_or_else(|| "not measured".to_owned(), |mean| format!("{mean:.2} ×"))
            };
            text += &format!(
                "{name}: {} matrices, {} of the memory's rate, {} cuSPARSE's speed, {} in the first product with all preparation, {} by the kernel that the statistics choose (geometric means)\n",
                means.matrices,
                means
                    .share
                    .map_or_else(|| "an unknown share".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
                times(means.speed_up),
                times(means.first_speed_up),
                times(means.chosen_speed_up)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrices_can_all_be_made() {
        for recipe in RECIPES {
            let parsed: Recipe = recipe.parse().unwrap();
            assert!(parsed.rows + parsed.nonzeros < i32::MAX as usize, "{recipe}");
            assert!(parsed.nonzeros as u128 <= parsed.rows as u128 * parsed.columns as u128, "{recipe}");
        }
    }

    #[test]
    fn means_are_geometric_and_need_every_number() {
        assert_eq!(mean([Some(2.0), Some(8.0)].into_iter()), Some(4.0));
        assert_eq!(mean([Some(2.0), None].into_iter()), None);
        assert_eq!(mean(std::iter::empty()), None);
        assert_eq!(Means::new(&[]), Means::default());
    }
}

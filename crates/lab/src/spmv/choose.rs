//! Which kernel to take, by what a matrix is like.

use serde::Serialize;

use super::{csr::Value, kernel::Variant, statistics::Statistics};

/// A kernel, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The kernel.
    pub variant: Variant,
    /// Why it was chosen.
    pub why: &'static str,
}

/// Products after which the tables of the adaptive kernel have paid for themselves: the host walks over the offsets at about a nanosecond a
/// row, and a product of a matrix with short rows takes a hundredth of that on a GPU.
const MANY_PRODUCTS: usize = 100;

/// The share of scattered reads of `x` beyond which most of them miss the first cache; the rows of a stencil share theirs.
const SCATTERED: f64 = 0.75;

/// The kernel for a matrix that is multiplied so many times.
pub fn choose<V: Value>(known: &Statistics, products: usize) -> Choice {
    let choice = |variant, why| Choice { variant, why };
    if known.longest <= 2 {
        return choice(
            Variant::SCALAR,
            "no row has more than two non-zeros, so that neighbouring threads read neighbouring places",
        );
    }
    if !known.is_irregular() && known.mean >= 24.0 {
        let why = "rows are of about one length and long enough to keep several lanes busy; nothing has to be prepared";
        return choice(Variant::vector(lanes(known.mean)), why);
    }
    if products >= MANY_PRODUCTS {
        let why = "rows are short or differ in length: tiles of whole rows are read as one piece, and their tables serve many products";
        return choice(Variant::adaptive::<V>(known.scattered > SCATTERED), why);
    }
    let why = "rows are short or differ in length, and few products do not pay for tables: equal shares need only a search on the device";
    choice(Variant::merge::<V>(), why)
}

/// The lanes for rows of a length: each lane has four to eight non-zeros. By prediction half as many lanes would do; but the simulator does
/// not count how many lines of the cache a load touches, which speaks for more.
fn lanes(mean: f64) -> usize {
    let mut lanes = 2;
    while lanes < 32 && mean > 8.0 * lanes as f64 {
        lanes *= 2;
    }
    lanes
}

/// The kernels that are worth trying on a matrix: those whose groups of lanes are not far longer or shorter than its rows.
pub fn candidates<V: Value>(known: &Statistics) -> Vec<Variant> {
    use super::kernel::Algorithm;
    let fits = |variant: &Variant| match variant.algorithm {
        Algorithm::Vector { lanes } => {
            let lanes = lanes as f64;
            (lanes <= 2.0 * known.mean.max(1.0)) && (lanes * 32.0 >= known.mean || lanes == 32.0)
        }
        _ => true,
    };
    Variant::all::<V>().into_iter().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmv::{
        Algorithm, Csr,
        generate::{Kind, Recipe},
    };

    #[test]
    fn the_matrix_decides() {
        let of = |kind: Kind, nonzeros: usize, products: usize| {
            let recipe = Recipe { kind, rows: 2000, columns: 2000, nonzeros, seed: 3 };
            let matrix: Csr<f32, i32> = recipe.generate().unwrap();
            let known = Statistics::new(&matrix);
            let choice = choose::<f32>(&known, products);
            assert!(candidates::<f32>(&known).contains(&choice.variant), "{choice:?}");
            choice.variant.algorithm
        };
        assert_eq!(of(Kind::Diagonal, 0, 1), Algorithm::Scalar);
        assert_eq!(of(Kind::Uniform, 200_000, 1), Algorithm::Vector { lanes: 16 });
        assert_eq!(of(Kind::Banded, 64_000, 1), Algorithm::Vector { lanes: 4 });
        assert_eq!(of(Kind::Stencil2d, 0, 1000), Algorithm::Adaptive);
        assert_eq!(of(Kind::PowerLaw, 60_000, 1000), Algorithm::Adaptive);
        assert_eq!(of(Kind::PowerLaw, 60_000, 1), Algorithm::Merge);
        assert_eq!(of(Kind::DenseRow, 60_000, 10), Algorithm::Merge);
    }
}

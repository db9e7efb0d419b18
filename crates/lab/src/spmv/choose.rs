//! Which kernel to take, by what a matrix is like.

use serde::Serialize;

use super::{
    csr::Value,
    kernel::{Algorithm, Variant},
    schedule::NARROW,
    statistics::Statistics,
};

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

/// Products after which tables for every non-zero have paid for themselves: many cores together take some nanoseconds for each, and a product
/// on a GPU gains some picoseconds.
const SORTED_PRODUCTS: usize = 4000;

/// Non-zeros below which the launches of the sliced kernel cost more than its reads of `x` gain.
const SORTED_NONZEROS: usize = 1 << 21;

/// Slices beyond which the sorted pieces of a block of rows become shorter than a sector.
const MOST_SLICES: usize = 2048;

/// Non-zeros of a row that keep several lanes busy.
const LONG: f64 = 24.0;

/// The share of scattered reads of `x` beyond which most of them miss the first cache; the rows of a stencil share theirs.
const SCATTERED: f64 = 0.75;

/// The kernel for a matrix that is multiplied so many times, on a chip whose blocks may have so much shared memory.
pub fn choose<V: Value>(known: &Statistics, products: usize, shared_bytes: usize) -> Choice {
    let choice = |variant, why| Choice { variant, why };
    let sliced = candidates::<V>(known, shared_bytes)
        .into_iter()
        .rfind(|variant| matches!(variant.algorithm, Algorithm::Sliced { .. }));
    if let Some(variant) = sliced
        && known.scattered > SCATTERED
        && known.nonzeros >= SORTED_NONZEROS
        && products >= SORTED_PRODUCTS
    {
        let why = "columns are scattered, so that x is read from shared memory; sorting the non-zeros for that serves many products";
        return choice(variant, why);
    }
    if known.longest <= 2 {
        return choice(
            Variant::SCALAR,
            "no row has more than two non-zeros, so that neighbouring threads read neighbouring places",
        );
    }
    if known.reach < NARROW && known.scattered <= SCATTERED && products >= SORTED_PRODUCTS {
        let why = "the columns of a row lie near each other, so that 16 bits tell them apart; writing them so serves many products";
        let long = !known.is_irregular() && known.mean >= LONG;
        let narrow = Variant::narrow_vector(lanes(known.mean).clamp(4, 16));
        return choice(if long { narrow } else { Variant::narrow::<V>() }, why);
    }
    if !known.is_irregular() && known.mean >= LONG {
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

/// The kernels that are worth trying on a matrix: those whose groups of lanes are not far longer or shorter than its rows, and that do not
/// cut it into too many slices or need narrower columns than it has.
pub fn candidates<V: Value>(known: &Statistics, shared_bytes: usize) -> Vec<Variant> {
    let suits = |lanes: usize| {
        let lanes = lanes as f64;
        (lanes <= 2.0 * known.mean.max(1.0)) && (lanes * 32.0 >= known.mean || lanes == 32.0)
    };
    let fits = |variant: &Variant| match variant.algorithm {
        Algorithm::Vector { lanes } => suits(lanes),
        Algorithm::NarrowVector { lanes } => suits(lanes) && known.reach < NARROW,
        Algorithm::Narrow => known.reach < NARROW,
        Algorithm::Sliced { columns, .. } => known.columns <= MOST_SLICES * columns,
        _ => true,
    };
    Variant::all::<V>(shared_bytes).into_iter().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmv::{
        Csr,
        generate::{Kind, Recipe},
    };

    #[test]
    fn the_matrix_decides() {
        let of = |kind: Kind, nonzeros: usize, products: usize| {
            let recipe = Recipe { kind, rows: 2000, columns: 2000, nonzeros, seed: 3 };
            let matrix: Csr<f32, i32> = recipe.generate().unwrap();
            let known = Statistics::new(&matrix);
            let shared_bytes = 227 << 10;
            let choice = choose::<f32>(&known, products, shared_bytes);
            assert!(candidates::<f32>(&known, shared_bytes).contains(&choice.variant), "{choice:?}");
            choice.variant.algorithm
        };
        assert_eq!(of(Kind::Diagonal, 0, 1), Algorithm::Scalar);
        assert_eq!(of(Kind::Uniform, 200_000, 1), Algorithm::Vector { lanes: 16 });
        assert_eq!(of(Kind::Banded, 64_000, 1), Algorithm::Vector { lanes: 4 });
        assert_eq!(of(Kind::Stencil2d, 0, 100), Algorithm::Adaptive);
        assert_eq!(of(Kind::Stencil2d, 0, 10_000), Algorithm::Narrow);
        assert_eq!(of(Kind::Banded, 64_000, 10_000), Algorithm::NarrowVector { lanes: 4 });
        assert_eq!(of(Kind::PowerLaw, 60_000, 100), Algorithm::Adaptive);
        assert_eq!(of(Kind::PowerLaw, 60_000, 1), Algorithm::Merge);
        assert_eq!(of(Kind::DenseRow, 60_000, 10), Algorithm::Merge);
    }

    #[test]
    fn scattered_columns_are_sliced_where_there_is_shared_memory() {
        let recipe: Recipe = "uniform:rows=200000,nonzeros=2200000".parse().unwrap();
        let known = Statistics::new(&recipe.generate::<f32, i32>().unwrap());
        let of = |products: usize, shared_bytes: usize| choose::<f32>(&known, products, shared_bytes).variant;
        assert_eq!(of(10_000, 227 << 10), Variant::sliced::<f32>(true));
        assert_eq!(of(10_000, 99 << 10), Variant::sliced::<f32>(false));
        assert_eq!(of(10_000, 64 << 10).algorithm, Algorithm::Adaptive);
        assert_eq!(of(1000, 227 << 10).algorithm, Algorithm::Adaptive);
        // Too many slices.
        let wide = Statistics { columns: 1 << 28, ..known.clone() };
        assert_eq!(choose::<f32>(&wide, 10_000, 227 << 10).variant.algorithm, Algorithm::Adaptive);
    }
}

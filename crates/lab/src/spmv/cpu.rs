//! The product on the CPU: a reference in f64, and a fast one on all cores.

use rayon::prelude::*;

use super::csr::{Csr, Index, Value};

/// `y = alpha · A · x + beta · y` has these factors. If `beta` is 0, `y` is not read, whatever it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalars {
    /// The product's factor.
    pub alpha: f64,
    /// The factor of what `y` held.
    pub beta: f64,
}

impl Default for Scalars {
    fn default() -> Scalars {
        Scalars { alpha: 1.0, beta: 0.0 }
    }
}

/// A product in f64, and how far from it a result in another precision may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The product.
    pub y: Vec<f64>,
    /// For each row, the largest error that rounding explains.
    pub bounds: Vec<f64>,
}

/// How a result differs from the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Difference {
    /// Rows whose error exceeds the bound, or that are not numbers.
    pub wrong_rows: usize,
    /// The first of them.
    pub first_wrong: Option<usize>,
    /// The largest error as a share of its row's bound.
    pub worst_share: f64,
}

/// Rounding errors of a row: one for each product, one for each sum, and a few for the factors.
const FACTOR_ROUNDINGS: f64 = 5.0;

/// Rounding errors of a long row are of both signs, because those of `x` are: they add up like steps in random directions. So many
/// times the root of their number is exceeded once in 10²¹ rows (N. Higham and T. Mary, A new approach to probabilistic rounding error
/// analysis, 2019).
const STEPS: f64 = 10.0;

/// How many roundings in a row of `length` products may count fully.
fn roundings(length: usize) -> f64 {
    let all = 2.0 * length as f64 + FACTOR_ROUNDINGS;
    // Beyond a hundred, all of them in one direction would hide a row whose result is zero.
    all.min(STEPS * all.sqrt())
}

/// The product by plain loops in f64, from the numbers as the matrix's type holds them.
///
/// The bound is `n · u / (1 - n · u) · Σ |a| · |x|` with unit round-off `u`: for `n` roundings in any order, the usual one, and for a
/// long row that of roundings which do not all go in one direction.
pub fn reference<V: Value, I: Index>(matrix: &Csr<V, I>, x: &[V], y: &[V], scalars: Scalars) -> Reference {
    let (mut results, mut bounds) = (Vec::with_capacity(matrix.rows()), Vec::with_capacity(matrix.rows()));
    let alpha = V::from_f64(scalars.alpha).to_f64();
    let beta = V::from_f64(scalars.beta).to_f64();
    for (row, y) in y.iter().enumerate().take(matrix.rows()) {
        let (mut sum, mut size) = (0.0, 0.0);
        for place in matrix.row(row) {
            let product = matrix.values()[place].to_f64() * x[matrix.indices()[place].at()].to_f64();
            sum += product;
            size += product.abs();
        }
        let (mut result, mut whole) = (alpha * sum, alpha.abs() * size);
        if beta != 0.0 {
            result += beta * y.to_f64();
            whole += (beta * y.to_f64()).abs();
        }
        let count = roundings(matrix.row(row).len());
        let roundings = count * V::ROUND_OFF;
        // The reference has rounded as well, in f64.
        let own = count * f64::ROUND_OFF;
        results.push(result);
        // Products below the smallest normal number lose up to one unit of the smallest there is.
        let tiny = (matrix.row(row).len() as f64 + FACTOR_ROUNDINGS) * smallest::<V>();
        bounds.push((roundings / (1.0 - roundings).max(0.5) + own) * whole + tiny);
    }
    Reference { y: results, bounds }
}

/// The distance between the smallest numbers of a type.
fn smallest<V: Value>() -> f64 {
    if size_of::<V>() == 4 { f64::from(f32::from_bits(1)) } else { f64::from_bits(1) }
}

impl Reference {
    /// The reference of the first rows alone.
    pub fn first_rows(&self, rows: usize) -> Reference {
        Reference { y: self.y[..rows].to_vec(), bounds: self.bounds[..rows].to_vec() }
    }

    /// Compares a result with it.
    pub fn compare<V: Value>(&self, result: &[V]) -> Difference {
        let mut difference = Difference::default();
        for (row, (&expected, &bound)) in self.y.iter().zip(&self.bounds).enumerate() {
            let error = match result.get(row) {
                Some(value) => (value.to_f64() - expected).abs(),
                None => f64::INFINITY,
            };
            // An error that is not a number exceeds every bound.
            if error.is_nan() || error > bound {
                difference.wrong_rows += 1;
                difference.first_wrong.get_or_insert(row);
            }
            let share = if error > 0.0 { error / bound } else { 0.0 };
            difference.worst_share =
                difference.worst_share.max(if error.is_nan() { f64::INFINITY } else { share });
        }
        difference
    }
}

/// Rows and non-zeros of a task: some tens of microseconds.
const TASK: usize = 1 << 15;

/// Non-zeros of a piece of a row that is too long for one task.
const PIECE: usize = 1 << 16;

/// How the fast product is split into tasks. It depends on the matrix alone.
#[derive(Clone, Debug)]
pub struct Split {
    /// The first row of each task, and the end of the last.
    firsts: Vec<usize>,
}

impl Split {
    /// Tasks of about as many rows and non-zeros each.
    pub fn new<V: Value, I: Index>(matrix: &Csr<V, I>) -> Split {
        let (mut firsts, mut done) = (vec![0], 0);
        for row in 0..matrix.rows() {
            let end = row + 1 + matrix.offsets()[row + 1].at();
            if end - done >= TASK {
                firsts.push(row + 1);
                done = end;
            }
        }
        if firsts.last() != Some(&matrix.rows()) {
            firsts.push(matrix.rows());
        }
        Split { firsts }
    }
}

/// The product on all cores of the pool. The same bits whatever their number: a row is summed by one task in one order, and a very long
/// one in pieces that are added up in order.
///
/// `x` has an entry for every column, `y` for every row.
pub fn multiply<V: Value, I: Index>(
    matrix: &Csr<V, I>,
    split: &Split,
    x: &[V],
    y: &mut [V],
    scalars: Scalars,
) {
    let (alpha, beta) = (V::from_f64(scalars.alpha), V::from_f64(scalars.beta));
    let mut parts = Vec::with_capacity(split.firsts.len());
    let mut rest = y;
    for pair in split.firsts.windows(2) {
        let (part, after) = rest.split_at_mut((pair[1] - pair[0]).min(rest.len()));
        parts.push((pair[0], part));
        rest = after;
    }
    parts.into_par_iter().for_each(|(first, part)| {
        for (row, result) in (first..).zip(part) {
            let range = matrix.row(row);
            let (indices, values) = (&matrix.indices()[range.clone()], &matrix.values()[range]);
            let sum = match indices.len() {
                ..=PIECE => sum(indices, values, x),
                _ => {
                    let pieces = indices.par_chunks(PIECE).zip(values.par_chunks(PIECE));
                    let sums: Vec<V> = pieces.map(|(indices, values)| sum(indices, values, x)).collect();
                    sums.into_iter().fold(V::from_f64(0.0), |all, piece| all + piece)
                }
            };
            let product = alpha * sum;
            *result = if scalars.beta == 0.0 { product } else { product + beta * *result };
        }
    });
}

/// The sum of a row's products, in four chains that the processor runs side by side.
fn sum<V: Value, I: Index>(indices: &[I], values: &[V], x: &[V]) -> V {
    let mut chains = [V::from_f64(0.0); 4];
    let (mut columns, mut factors) = (indices.chunks_exact(4), values.chunks_exact(4));
    for (columns, factors) in (&mut columns).zip(&mut factors) {
        for ((chain, column), &factor) in chains.iter_mut().zip(columns).zip(factors) {
            *chain = *chain + factor * x[column.at()];
        }
    }
    for ((chain, column), &factor) in chains.iter_mut().zip(columns.remainder()).zip(factors.remainder()) {
        *chain = *chain + factor * x[column.at()];
    }
    let [a, b, c, d] = chains;
    (a + b) + (c + d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmv::generate::{Kind, Recipe, vector};

    #[test]
    fn a_small_product_is_as_by_hand() {
        // [1 0 2; 0 0 0; 0 3 0] · [1, 10, 100]
        let matrix: Csr<f64, i32> =
            Csr::new(3, 3, vec![0, 2, 2, 3], vec![0, 2, 1], vec![1.0, 2.0, 3.0]).unwrap();
        let x = [1.0, 10.0, 100.0];
        let split = Split::new(&matrix);
        let mut y = [f64::NAN; 3];
        multiply(&matrix, &split, &x, &mut y, Scalars::default());
        assert_eq!(y, [201.0, 0.0, 30.0]);
        multiply(&matrix, &split, &x, &mut y, Scalars { alpha: 2.0, beta: -1.0 });
        assert_eq!(y, [201.0, 0.0, 30.0]);
        let reference = reference(&matrix, &x, &[1.0, 2.0, 3.0], Scalars { alpha: 1.0, beta: 10.0 });
        assert_eq!(reference.y, [211.0, 20.0, 60.0]);
        assert_eq!(reference.compare(&[211.0, 20.0, 60.0]).wrong_rows, 0);
        let wrong = reference.compare(&[211.0, 20.1, f64::NAN]);
        assert_eq!((wrong.wrong_rows, wrong.first_wrong), (2, Some(1)));
        assert_eq!(reference.compare::<f64>(&[211.0]).wrong_rows, 2);
    }

    /// What rounding explains must not explain that a part of a long row is missing.
    #[test]
    fn a_long_row_that_is_not_summed_is_wrong() {
        let recipe = Recipe { kind: Kind::DenseRow, rows: 3, columns: 70_000, nonzeros: 70_050, seed: 5 };
        let matrix: Csr<f32, i32> = recipe.generate().unwrap();
        let x: Vec<f32> = vector(matrix.columns(), 21);
        let long = (0..3).max_by_key(|&row| matrix.row(row).len()).unwrap();
        let reference = reference(&matrix, &x, &[0.0; 3], Scalars::default());
        let mut y = [0.0f32; 3];
        multiply(&matrix, &Split::new(&matrix), &x, &mut y, Scalars::default());
        assert_eq!(reference.compare(&y).wrong_rows, 0);
        // A plain sum in one chain, as the kernel with a thread a row has it.
        let one_by_one = matrix
            .row(long)
            .fold(0.0f32, |sum, at| matrix.values()[at].mul_add(x[matrix.indices()[at].at()], sum));
        y[long] = one_by_one;
        assert_eq!(reference.compare(&y).wrong_rows, 0);
        y[long] = 0.0;
        assert_eq!(reference.compare(&y).first_wrong, Some(long));
    }

    #[test]
    fn the_fast_product_is_within_the_bound_and_does_not_depend_on_threads() {
        for (name, kind) in Kind::ALL {
            let recipe = Recipe { kind, rows: 40_000, columns: 40_000, nonzeros: 200_000, seed: 2 };
            // The longest rows are longer than a piece.
            let recipe = match kind {
                Kind::DenseRow => Recipe { columns: 150_000, nonzeros: 400_000, ..recipe },
                _ => recipe,
            };
            let matrix: Csr<f32, i32> = recipe.generate().unwrap();
            let x: Vec<f32> = vector(matrix.columns(), 5);
            let before: Vec<f32> = vector(matrix.rows(), 6);
            let scalars = Scalars { alpha: 1.5, beta: 0.5 };
            let of = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut y = before.clone();
                pool.install(|| multiply(&matrix, &Split::new(&matrix), &x, &mut y, scalars));
                y
            };
            let y = of(3);
            let difference = reference(&matrix, &x, &before, scalars).compare(&y);
            assert_eq!(difference.wrong_rows, 0, "{name}: {difference:?}");
            assert!(of(1) == y, "{name}");
        }
    }
}

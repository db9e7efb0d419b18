//! Products of bfloat16 on tiles: those of AMX where the CPU has it, and those of the software that stands in for it everywhere.

use std::io::Write;

use super::*;
use crate::gemm::{blocking::TILE_DEPTH_BLOCK, driver::Arithmetic};

/// The instruction sets whose products are on tiles.
fn with_tiles() -> Vec<Isa> {
    Isa::with_software_tiles().into_iter().filter(|isa| isa.tiles().is_some()).collect()
}

/// One thread whose scratch memory is full of NaNs, for a product of at most this size.
fn poisoned_thread(isa: Isa, rows: usize, columns: usize, depth: usize) -> rayon::ThreadPool {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let (a, b) = (vec![bf16::NAN; rows * depth], vec![bf16::NAN; columns * depth]);
    let packed = PackedWeights::new(isa, Values::BF16(&b), columns, depth);
    let mut c = vec![bf16::ZERO; rows * columns];
    let ty = matrix_type::<bf16>(rows, columns);
    pool.install(|| {
        let finish = Finish::new(view_mut(&ty, &mut c), rows, columns);
        multiply(&MatrixRows::new(Values::BF16(&a), rows, depth), &packed, &finish);
    });
    assert!(c.iter().all(|c| c.is_nan()));
    pool
}

/// Whether the product of these sizes runs on tiles.
fn is_on_tiles(isa: Isa, rows: usize, columns: usize, depth: usize) -> bool {
    let (a, b) = (vec![bf16::ZERO; rows * depth], vec![bf16::ZERO; columns * depth]);
    let packed = PackedWeights::new(isa, Values::BF16(&b), columns, depth);
    let rows = MatrixRows::new(Values::BF16(&a), rows, depth);
    matches!(Arithmetic::of(&rows, &packed), Arithmetic::Tiles(_))
}

/// Rows, columns and depths around the edges of tiles, blocks and pieces.
const EDGES: [(usize, usize, usize); 16] = [
    (16, 32, 64),
    (17, 32, 64),
    (31, 33, 65),
    (32, 40, 66),
    (33, 64, 95),
    (47, 65, 96),
    (48, 31, 97),
    (49, 100, 127),
    (64, 16, 128),
    (200, 20, 130),
    (21, 9, 2 * TILE_DEPTH_BLOCK - 1),
    (37, 70, 2 * TILE_DEPTH_BLOCK),
    (34, 24, 2 * TILE_DEPTH_BLOCK + 1),
    (65, 48, 2 * TILE_DEPTH_BLOCK + 34),
    (18, 300, 4 * TILE_DEPTH_BLOCK + 6),
    (230, 12, 1999),
];

#[test]
fn every_edge_of_tiles() {
    let mut random = Random::new(29);
    for isa in with_tiles() {
        for (rows, columns, depth) in EDGES {
            assert!(is_on_tiles(isa, rows, columns, depth));
            let (a, b) = (random.vector::<bf16>(rows * depth), random.vector::<bf16>(columns * depth));
            let packed = PackedWeights::new(isa, Values::BF16(&b), columns, depth);
            assert_eq!(packed.bytes(), PackedWeights::bytes_of(isa, DType::BF16, columns, depth, false));
            let want = exact(&a, &b, rows, columns, depth);
            let label = format!("{isa:?} {rows}×{columns}×{depth}");
            // As they are, through a block of sums, and in a matrix that is stored as its transpose.
            let mut direct = vec![f32::NAN; rows * columns];
            let mut finished = vec![bf16::NAN; rows * columns];
            let mut copied = vec![f32::NAN; rows * columns];
            let transposed: Vec<bf16> =
                (0..rows * depth).map(|at| a[at % rows * depth + at / rows]).collect();
            let (single, half) = (matrix_type::<f32>(rows, columns), matrix_type::<bf16>(rows, columns));
            poisoned_thread(isa, rows, columns, depth).install(|| {
                let matrix = MatrixRows::new(Values::BF16(&a), rows, depth);
                multiply(&matrix, &packed, &Finish::new(view_mut(&half, &mut finished), rows, columns));
                multiply(&matrix, &packed, &Finish::new(view_mut(&single, &mut direct), rows, columns));
                let matrix = TransposedRows::new(Values::BF16(&transposed), rows, depth);
                multiply(&matrix, &packed, &Finish::new(view_mut(&single, &mut copied), rows, columns));
            });
            assert_close(&label, &direct, &want, depth);
            assert_close(&label, &finished, &want, depth);
            assert_eq!(direct, copied, "{label}");
        }
    }
}

#[test]
fn products_on_tiles_with_bias_and_residual() {
    let mut random = Random::new(31);
    let (columns, stride, first) = (45, 60, 7);
    for isa in with_tiles() {
        for (rows, depth) in [(32, 64), (53, 100), (70, 4 * TILE_DEPTH_BLOCK + 3)] {
            let (a, b) = (random.vector::<bf16>(rows * depth), random.vector::<bf16>(columns * depth));
            let bias = random.vector::<f32>(stride);
            let before = random.vector::<f32>(rows * stride);
            let mut c = vec![f32::NAN; rows * stride];
            let ty = matrix_type::<f32>(rows, stride);
            let packed = PackedWeights::new(isa, Values::BF16(&b), columns, depth);
            poisoned_thread(isa, rows, stride, depth).install(|| {
                let finish = Finish::group(view_mut(&ty, &mut c), rows, columns, stride, first)
                    .bias(Cow::Borrowed(&bias))
                    .stages(&[Stage::Add], &[view(&ty, &before)]);
                multiply(&MatrixRows::new(Values::BF16(&a), rows, depth), &packed, &finish);
            });
            let products = exact(&a, &b, rows, columns, depth);
            for (at, got) in c.iter().enumerate() {
                let Some(column) = (at % stride).checked_sub(first).filter(|&column| column < columns) else {
                    assert!(got.is_nan(), "{isa:?}: {at} is not the product's");
                    continue;
                };
                let (product, size) = products[at / stride * columns + column];
                let want = product + f64::from(bias[at % stride]) + f64::from(before[at]);
                let label = format!("{isa:?} {rows}×{depth}, {at}");
                assert_close(&label, &[*got], &[(want, size + want.abs() + 2.0)], depth);
            }
        }
    }
}

/// A weight that is infinite and a row with a NaN spoil the results that they belong to, and no others.
#[test]
fn what_is_not_finite_stays_where_it_belongs() {
    let (rows, columns, depth) = (40, 40, 2 * TILE_DEPTH_BLOCK + 71);
    let mut random = Random::new(37);
    for isa in with_tiles() {
        for place in [0, 31, 32, 2 * TILE_DEPTH_BLOCK / 2, depth - 2, depth - 1] {
            let mut a = random.vector::<bf16>(rows * depth);
            let mut b = random.vector::<bf16>(columns * depth);
            let (row, column) = (random.below(rows), random.below(columns));
            a.iter_mut().skip(place).step_by(depth).for_each(|a| *a = bf16::from_f32(0.5));
            a[row * depth + place] = bf16::NAN;
            b[column * depth + place] = bf16::NEG_INFINITY;
            let mut c = vec![0.0f32; rows * columns];
            let ty = matrix_type::<f32>(rows, columns);
            let packed = PackedWeights::new(isa, Values::BF16(&b), columns, depth);
            let finish = Finish::new(view_mut(&ty, &mut c), rows, columns);
            multiply(&MatrixRows::new(Values::BF16(&a), rows, depth), &packed, &finish);
            for (at, got) in c.iter().enumerate() {
                let label = format!("{isa:?} {place}: {at} is {got}");
                match (at / columns == row, at % columns == column) {
                    (true, _) => assert!(got.is_nan(), "{label}"),
                    (false, true) => assert_eq!(*got, f32::NEG_INFINITY, "{label}"),
                    (false, false) => assert!(got.is_finite(), "{label}"),
                }
            }
        }
    }
}

#[test]
fn subnormal_values_count_as_zero_on_tiles() {
    let (rows, columns, depth) = (16, 10, 64);
    let subnormal = bf16::from_bits(0x0040);
    for isa in with_tiles() {
        let a = vec![subnormal; rows * depth];
        let b = vec![bf16::MAX; columns * depth];
        let mut c = vec![f32::NAN; rows * columns];
        let ty = matrix_type::<f32>(rows, columns);
        let packed = PackedWeights::new(isa, Values::BF16(&b), columns, depth);
        let finish = Finish::new(view_mut(&ty, &mut c), rows, columns);
        multiply(&MatrixRows::new(Values::BF16(&a), rows, depth), &packed, &finish);
        assert!(c.iter().all(|&c| c == 0.0), "{isa:?}: {}", c[0]);
    }
}

#[test]
fn small_products_and_other_types_are_not_on_tiles() {
    for isa in with_tiles() {
        assert!(is_on_tiles(isa, 16, 32, 64));
        assert!(!is_on_tiles(isa, 15, 32, 64));
        assert!(!is_on_tiles(isa, 16, 32, 63));
        assert!(!is_on_tiles(isa, 16, 1, 64));
        let (a, b) = (vec![0.0f32; 32 * 64], vec![bf16::ZERO; 32 * 64]);
        let packed = PackedWeights::new(isa, Values::BF16(&b), 32, 64);
        let rows = MatrixRows::new(Values::F32(&a), 32, 64);
        assert!(matches!(Arithmetic::of(&rows, &packed), Arithmetic::Singles));
    }
}

/// The instructions round as Intel's manual says, so the CPU's tiles give the bits of those in software. A CPU without them cannot
/// show it: a line says so and, with `KINORA_REQUIRE_AMX` set, that is a failure.
#[test]
fn amx_gives_the_bits_of_the_software() {
    let sets = with_tiles();
    let [first, software] = sets[..] else {
        assert!(std::env::var_os("KINORA_REQUIRE_AMX").is_none(), "no AMX");
        // Not by `println`, which a passing test keeps to itself.
        let _ = writeln!(std::io::stderr(), "amx_gives_the_bits_of_the_software not run: no AMX");
        return;
    };
    let mut random = Random::new(41);
    for (rows, columns, depth) in EDGES {
        let (a, b) = (random.vector::<bf16>(rows * depth), random.vector::<bf16>(columns * depth));
        let [hardware, software] = [first, software].map(|isa| {
            let mut c = vec![f32::NAN; rows * columns];
            let ty = matrix_type::<f32>(rows, columns);
            let packed = PackedWeights::new(isa, Values::BF16(&b), columns, depth);
            let finish = Finish::new(view_mut(&ty, &mut c), rows, columns);
            multiply(&MatrixRows::new(Values::BF16(&a), rows, depth), &packed, &finish);
            c
        });
        assert_eq!(hardware, software, "{rows}×{columns}×{depth}");
    }
}

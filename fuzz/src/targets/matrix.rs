//! Matrices.

use kinora_lab::spmv::{
    Csr, Statistics,
    cpu::{self, Scalars, Split},
    generate::Recipe,
    market::{self, Limits},
};

/// A matrix that fits this much memory is read.
const LIMITS: Limits = Limits { matrix_bytes: 64 << 20 };

/// Any bytes as a Matrix Market file: what is read is written, read again, described and multiplied.
pub fn market(bytes: &[u8]) {
    let known = market::read::<f64, i64>(bytes, Some(bytes.len() as u64), LIMITS);
    let stream = market::read::<f32, i32>(bytes, None, LIMITS);
    drop(stream.map_err(|error| error.to_string()));
    let matrix: Csr<f64, i64> = match known {
        Ok(matrix) => matrix,
        Err(error) => return drop(error.to_string()),
    };
    let mut text = Vec::new();
    market::write(&matrix, &mut text).unwrap();
    let again: Csr<f64, i64> = market::read(text.as_slice(), None, Limits::default()).unwrap();
    assert_eq!(
        (again.rows(), again.columns(), again.indices()),
        (matrix.rows(), matrix.columns(), matrix.indices())
    );
    let _ = Statistics::new(&matrix).plot();
    let x = vec![1.0; matrix.columns()];
    let mut y = vec![0.0; matrix.rows()];
    cpu::multiply(&matrix, &Split::new(&matrix), &x, &mut y, Scalars::default());
}

/// Any text as a recipe, which is not followed if it is for a large matrix.
pub fn recipe(bytes: &[u8]) {
    match String::from_utf8_lossy(bytes).parse::<Recipe>() {
        Ok(recipe) if recipe.rows.max(recipe.columns).max(recipe.nonzeros) <= 10_000 => {
            drop(recipe.generate::<f32, i32>().map_err(|error| error.to_string()));
        }
        Ok(_) => {}
        Err(error) => drop(error.to_string()),
    }
}

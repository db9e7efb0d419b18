//! Writing matrices.

use std::io::{self, Write};

use crate::spmv::csr::{Csr, Index, Value};

/// Writes a matrix as a general list of coordinates. Reading it gives the same numbers.
///
/// # Errors
/// If the system does not write.
pub fn write<V: Value, I: Index>(matrix: &Csr<V, I>, mut to: impl Write) -> io::Result<()> {
    writeln!(to, "%%MatrixMarket matrix coordinate real general")?;
    writeln!(to, "{} {} {}", matrix.rows(), matrix.columns(), matrix.nonzeros())?;
    for row in 0..matrix.rows() {
        for place in matrix.row(row) {
            let (column, value) = (matrix.indices()[place].at() + 1, matrix.values()[place]);
            writeln!(to, "{} {column} {value:e}", row + 1)?;
        }
    }
    to.flush()
}

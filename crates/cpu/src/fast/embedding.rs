//! Numbers and tokens as vectors.

use kinora_graph::op::TimestepEmbedding;

use super::blocks::small_vector;
use kinora_runtime::RunError;

use crate::{
    tasks,
    view::{View, ViewMut},
};

/// A sinusoidal embedding of numbers. A few thousand values per clip: f64 throughout costs nothing measurable.
pub(crate) fn timestep_embedding(op: &TimestepEmbedding, inputs: &[View<'_>], output: ViewMut<'_>) {
    let half = op.width / 2;
    let divisor = half as f64 - f64::from(op.frequency_shift);
    let decay = f64::from(op.max_period).ln() / divisor;
    let frequencies: Vec<f64> = (0..half).map(|i| f64::from(op.scale) * (-decay * i as f64).exp()).collect();
    let (sines, cosines) = if op.cosine_first { (half, 0) } else { (0, half) };
    for (row, &t) in small_vector(&inputs[0]).iter().enumerate() {
        // SAFETY: the result has `width` elements for each number, and this writes all of them.
        unsafe {
            let values = output.ptr::<f32>().add(row * op.width);
            for (i, frequency) in frequencies.iter().enumerate() {
                let (sine, cosine) = (f64::from(t) * frequency).sin_cos();
                values.add(sines + i).write(sine as f32);
                values.add(cosines + i).write(cosine as f32);
            }
            if op.width % 2 == 1 {
                values.add(op.width - 1).write(0.0);
            }
        }
    }
}

/// Rows of a table.
///
/// # Errors
/// If an id is outside the table; in that case nothing has been written.
pub(crate) fn embedding(layer: &str, inputs: &[View<'_>], output: ViewMut<'_>) -> Result<(), RunError> {
    let (table, rows) = (&inputs[0], inputs[0].ty().shape[0]);
    // SAFETY: no kernel works in place on the ids, so that nothing writes them meanwhile.
    let ids = unsafe { inputs[1].slice::<i32>() };
    let outside = |&&id: &&i32| usize::try_from(id).map_or(true, |id| id >= rows);
    if let Some(&id) = ids.iter().find(outside) {
        return Err(RunError::Token { layer: layer.to_owned(), id, rows });
    }
    let row_bytes = table.ty().shape[1] * table.ty().dtype.size();
    tasks::each(ids.len(), tasks::rows_of_task(table.ty().shape[1]), |range| {
        for index in range {
            // SAFETY: the id has been checked to be a row of the table, and the result has a row for each id.
            unsafe {
                let row = table.bytes().add(ids[index] as usize * row_bytes);
                std::ptr::copy_nonoverlapping(row, output.bytes().add(index * row_bytes), row_bytes);
            }
        }
    });
    Ok(())
}

//! Numbers and tokens as vectors.

use kinora_graph::{DType, Op, op::TimestepEmbedding};

use super::{
    Call, Family, Implementation, Kernel, KernelSet, Launch, Places, Source,
    arrange::unit_type,
    geometry::{WIDEST_ACCESS, vector},
    names::type_name,
};
use crate::{
    Chip, CudaError,
    launch::{
        arguments, c_struct,
        limits::{grid, int, long},
    },
};

/// The family.
pub const FAMILY: Family = Family { offer: implementations, in_place: |_, _| false };

const LOOKUP: Source = Source { path: "embedding/lookup.cu", text: include_str!("lookup.cu") };
const TIMESTEPS: Source = Source { path: "embedding/timesteps.cu", text: include_str!("timesteps.cu") };

/// Threads of a block, as the sources have them.
const LOOKUP_THREADS: usize = 256;
const TIMESTEP_THREADS: usize = 128;

/// The implementations of an op of this family, the one to choose first; none for another op.
fn implementations(call: &Call<'_>, _chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    match (call.op, call.inputs) {
        (Op::TimestepEmbedding(op), [t]) => {
            vec![Box::new(Timesteps { op: *op, dtype: t.dtype, count: t.elements() })]
        }
        (Op::Embedding, [table, ids]) => vec![Box::new(Lookup {
            dtype: table.dtype,
            rows: table.shape[0],
            row_bytes: table.shape.channels() * table.dtype.size(),
            ids: ids.elements(),
            plain: set == KernelSet::Baseline,
        })],
        _ => Vec::new(),
    }
}

c_struct! {
    /// The frequencies of a timestep embedding.
    struct Frequencies {
        /// The logarithm of one frequency over that of the one before.
        step: f64,
        scale: f64,
    }
}

/// Sines and cosines, a thread for one of each.
#[derive(Debug)]
struct Timesteps {
    op: TimestepEmbedding,
    dtype: DType,
    count: usize,
}

// SAFETY: the arguments are those of `timesteps`, which writes `count` rows of the embedding's width.
unsafe impl Implementation for Timesteps {
    fn name(&self) -> String {
        "timesteps".to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let TimestepEmbedding { width, cosine_first, frequency_shift, max_period, scale } = self.op;
        let divisor = (width / 2) as f64 - f64::from(frequency_shift);
        let frequencies =
            Frequencies { step: -f64::from(max_period).ln() / divisor, scale: f64::from(scale) };
        let kernel = Kernel::new(TIMESTEPS, "timesteps")
            .with("TYPE", type_name(self.dtype))
            .with("COSINE_FIRST", cosine_first);
        let arguments = arguments![
            places.outputs[0],
            places.inputs[0],
            frequencies,
            long(self.count),
            int(width, "an embedding's width")?,
        ];
        let items = self.count * width.div_ceil(2);
        let blocks = grid(items.div_ceil(TIMESTEP_THREADS))?;
        Ok(vec![Launch::new(kernel, blocks, TIMESTEP_THREADS as u32, arguments)])
    }
}

/// Rows of a table, a thread for each unit of a row.
#[derive(Debug)]
struct Lookup {
    dtype: DType,
    rows: usize,
    row_bytes: usize,
    ids: usize,
    /// One element a thread.
    plain: bool,
}

// SAFETY: the arguments are those of `lookup`, which reports an index outside the table and does not follow it.
unsafe impl Implementation for Lookup {
    fn name(&self) -> String {
        if self.plain { "lookup-plain" } else { "lookup" }.to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let unit = if self.plain { self.dtype.size() } else { vector(self.row_bytes, WIDEST_ACCESS) };
        let row_units = self.row_bytes / unit;
        let kernel = Kernel::new(LOOKUP, "lookup").with("UNIT", unit_type(unit));
        let arguments = arguments![
            places.outputs[0],
            places.inputs[0],
            places.inputs[1],
            long(self.ids),
            long(self.rows),
            long(row_units),
            places.fault,
            places.number,
        ];
        let blocks = grid((self.ids * row_units.max(1)).div_ceil(LOOKUP_THREADS))?;
        Ok(vec![Launch::new(kernel, blocks, LOOKUP_THREADS as u32, arguments)])
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::TensorType;

    use super::*;
    use crate::kernels::{Argument, testing};

    #[test]
    fn rows_are_copied_in_the_widest_units() {
        let (table, ids) = (TensorType::new(DType::F16, [10, 20]), TensorType::new(DType::I32, [2, 3]));
        let launches = testing::launches(implementations, &Op::Embedding, &[&table, &ids]).unwrap();
        assert_eq!(launches[0].kernel.constants, [("UNIT", "uint2".to_owned())]);
        assert_eq!(launches[0].arguments[3..6], [6, 10, 5].map(Argument::I64));
        assert_eq!(launches[0].arguments[6..], [Argument::Pointer(testing::FAULT), Argument::I32(7)]);
    }

    #[test]
    fn ids_are_checked_even_if_rows_have_no_channels() {
        let (table, ids) = (TensorType::new(DType::F16, [10, 0]), TensorType::new(DType::I32, [3]));
        let launches = testing::launches(implementations, &Op::Embedding, &[&table, &ids]).unwrap();
        assert_eq!(launches[0].grid, [1, 1, 1]);
    }

    #[test]
    fn an_odd_width_has_a_thread_for_its_zero() {
        let op = TimestepEmbedding {
            width: 5,
            cosine_first: true,
            frequency_shift: 0.0,
            max_period: 1e4,
            scale: 2.0,
        };
        let t = TensorType::new(DType::F32, [100]);
        let launches = testing::launches(implementations, &Op::TimestepEmbedding(op), &[&t]).unwrap();
        assert_eq!(launches[0].grid, [3, 1, 1]);
        let step = -(1e4f64.ln()) / 2.0;
        assert_eq!(launches[0].arguments[2], Frequencies { step, scale: 2.0 }.into());
    }
}

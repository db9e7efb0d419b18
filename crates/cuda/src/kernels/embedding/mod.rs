//! Numbers and tokens as vectors.

use kinora_graph::{Op, op::TimestepEmbedding};

use super::{
    Argument, Call, Implementation, Kernel, KernelSet, Launch, Places, Source,
    arrange::unit_type,
    geometry::{WIDEST_ACCESS, grid, int, long, vector, words},
    names::type_name,
};
use crate::{Chip, CudaError};

const LOOKUP: Source = Source { path: "embedding/lookup.cu", text: include_str!("lookup.cu") };
const TIMESTEPS: Source = Source { path: "embedding/timesteps.cu", text: include_str!("timesteps.cu") };

/// Threads of a block, as the sources have them.
const LOOKUP_THREADS: usize = 256;
const TIMESTEP_THREADS: usize = 128;

/// The implementations of an op of this family, the one to choose first; none for another op.
pub fn implementations(call: &Call<'_>, _chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    match call.op {
        Op::TimestepEmbedding(_) => vec![Box::new(Timesteps)],
        Op::Embedding => vec![Box::new(Lookup { plain: set == KernelSet::Baseline })],
        _ => Vec::new(),
    }
}

/// Sines and cosines, a thread for one of each.
#[derive(Debug)]
struct Timesteps;

impl Implementation for Timesteps {
    fn name(&self) -> String {
        "timesteps".to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let Op::TimestepEmbedding(TimestepEmbedding {
            width,
            cosine_first,
            frequency_shift,
            max_period,
            scale,
        }) = call.op
        else {
            return Err(CudaError::Internal(format!("{} embeds no numbers", call.op)));
        };
        let t = call.inputs[0];
        let divisor = (width / 2) as f64 - f64::from(*frequency_shift);
        let step = -f64::from(*max_period).ln() / divisor;
        let kernel = Kernel::new(TIMESTEPS, "timesteps")
            .with("TYPE", type_name(t.dtype))
            .with("COSINE_FIRST", cosine_first);
        let arguments = vec![
            Argument::Pointer(places.outputs[0]),
            Argument::Pointer(places.inputs[0]),
            words([step.to_bits(), f64::from(*scale).to_bits()]),
            long(t.elements()),
            int(*width, "an embedding's width")?,
        ];
        let items = t.elements() * width.div_ceil(2);
        let blocks = grid(items.div_ceil(TIMESTEP_THREADS))?;
        Ok(vec![Launch::new(kernel, blocks, TIMESTEP_THREADS as u32, arguments)])
    }
}

/// Rows of a table, a thread for each unit of a row.
#[derive(Debug)]
struct Lookup {
    /// One element a thread.
    plain: bool,
}

impl Implementation for Lookup {
    fn name(&self) -> String {
        if self.plain { "lookup-plain" } else { "lookup" }.to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let [table, ids] = call.inputs else {
            return Err(CudaError::Internal("a lookup has a table and ids".into()));
        };
        let row_bytes = table.shape.channels() * table.dtype.size();
        let unit = if self.plain { table.dtype.size() } else { vector(row_bytes, WIDEST_ACCESS) };
        let row_units = row_bytes / unit;
        let kernel = Kernel::new(LOOKUP, "lookup").with("UNIT", unit_type(unit));
        let arguments = vec![
            Argument::Pointer(places.outputs[0]),
            Argument::Pointer(places.inputs[0]),
            Argument::Pointer(places.inputs[1]),
            long(ids.elements()),
            long(table.shape[0]),
            long(row_units),
            Argument::Pointer(places.fault),
            Argument::I32(places.number),
        ];
        let blocks = grid((ids.elements() * row_units.max(1)).div_ceil(LOOKUP_THREADS))?;
        Ok(vec![Launch::new(kernel, blocks, LOOKUP_THREADS as u32, arguments)])
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, TensorType};

    use super::*;
    use crate::kernels::testing;

    #[test]
    fn rows_are_copied_in_the_widest_units() {
        let (table, ids) = (TensorType::new(DType::F16, [10, 20]), TensorType::new(DType::I32, [2, 3]));
        let launches = testing::launches(implementations, &Op::Embedding, &[&table, &ids]).unwrap();
        assert_eq!(launches[0].kernel.constants, [("UNIT", "uint2".to_owned())]);
        assert_eq!(launches[0].arguments[3..6], [6, 10, 5].map(Argument::I64));
        assert_eq!(launches[0].arguments[6..], [Argument::Pointer(testing::FAULT), Argument::I32(7)]);
    }

    #[test]
    fn ids_are_checked_even_where_rows_have_no_channels() {
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
        assert_eq!(launches[0].arguments[2], words([step.to_bits(), 2f64.to_bits()]));
    }
}

//! Ops that change an image's size: upsampling, pooling, means.

mod mean;

use kinora_graph::{
    Op,
    op::{Interpolation, Pool, PoolKind, Upsample},
};

use super::{
    Argument, Call, Implementation, Kernel, KernelSet, Launch, Places, Source,
    geometry::{WIDEST_ACCESS, grid, vector, words},
    names::type_name,
};
use crate::{Chip, CudaError};

const UPSAMPLE: Source = Source { path: "resample/upsample.cu", text: include_str!("upsample.cu") };
const POOL: Source = Source { path: "resample/pool.cu", text: include_str!("pool.cu") };

/// Threads of a block, as the sources have them.
const THREADS: usize = 256;

/// The implementations of an op of this family, the one to choose first; none for another op.
pub fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let plain = set == KernelSet::Baseline;
    match call.op {
        Op::Upsample(_) | Op::Pool(_) => vec![Box::new(Resample { plain })],
        Op::Mean(_) => vec![Box::new(mean::Means { plain, chip: chip.clone() })],
        _ => Vec::new(),
    }
}

/// A thread for some channels of a position of the result.
#[derive(Debug)]
struct Resample {
    /// One element a thread.
    plain: bool,
}

/// How the positions of an image's rows are cut.
struct Rows {
    /// Elements of a vector.
    width: usize,
    /// Vectors of a position.
    columns: usize,
    /// Blocks of each row.
    blocks: usize,
    /// Blocks in all.
    grid: u32,
}

impl Resample {
    /// Cuts the rows of the result; a thread has `unroll` vectors.
    fn rows(&self, call: &Call<'_>, unroll: usize) -> Result<Rows, CudaError> {
        let result = call.outputs[0];
        let [images, height, row_width, channels] = result.shape[..] else {
            return Err(CudaError::Internal(format!("{result} is no image")));
        };
        let widest = WIDEST_ACCESS / result.dtype.size();
        let width = if self.plain { 1 } else { vector(channels, widest) };
        let columns = channels / width;
        let places = row_width * columns;
        // The kernels count the vectors of a row, and a block further, in 32 bits.
        if places >= 1 << 31 {
            return Err(CudaError::TooLarge(format!(
                "a row of {row_width} positions of {channels} channels"
            )));
        }
        let blocks = places.div_ceil(THREADS * unroll);
        let grid = grid(images.saturating_mul(height).saturating_mul(blocks))?;
        Ok(Rows { width, columns, blocks, grid })
    }

    fn upsample(&self, op: Upsample, call: &Call<'_>, places: &Places) -> Result<Launch, CudaError> {
        let (x, result) = (call.inputs[0], call.outputs[0]);
        let bilinear = op.interpolation == Interpolation::Bilinear;
        let unroll = if self.plain || bilinear { 1 } else { 4 };
        let rows = self.rows(call, unroll)?;
        let [height, width] = [x.shape[1], x.shape[2]];
        let [out_height, out_width] = op.size;
        // The kernel divides products of extents.
        let largest = (height.saturating_mul(out_height)).max(width.saturating_mul(out_width));
        let index = if largest < 1 << 30 { "u32" } else { "u64" };
        let mut kernel = Kernel::new(UPSAMPLE, "upsample")
            .with("TYPE", type_name(result.dtype))
            .with("BILINEAR", i32::from(bilinear))
            .with("VECTOR", rows.width)
            .with("UNROLL", unroll)
            .with("INDEX", index);
        kernel.hot = true;
        let extents = [height, width, out_height, out_width, rows.columns, rows.blocks];
        let arguments = vec![
            Argument::Pointer(places.outputs[0]),
            Argument::Pointer(places.inputs[0]),
            words(extents.map(|extent| extent as u64)),
        ];
        Ok(Launch::new(kernel, rows.grid, THREADS as u32, arguments))
    }

    fn pool(&self, op: Pool, call: &Call<'_>, places: &Places) -> Result<Launch, CudaError> {
        let (x, result) = (call.inputs[0], call.outputs[0]);
        let rows = self.rows(call, 1)?;
        let mut kernel = Kernel::new(POOL, "pool")
            .with("TYPE", type_name(result.dtype))
            .with("AVERAGE", op.kind == PoolKind::Average)
            .with("VECTOR", rows.width);
        kernel.hot = true;
        let extents =
            [x.shape[1], x.shape[2], result.shape[1], result.shape[2], rows.columns, rows.blocks].into_iter();
        let window = op.kernel.into_iter().chain(op.stride).chain(op.padding);
        let arguments = vec![
            Argument::Pointer(places.outputs[0]),
            Argument::Pointer(places.inputs[0]),
            words(extents.chain(window).map(|extent| extent as u64)),
        ];
        Ok(Launch::new(kernel, rows.grid, THREADS as u32, arguments))
    }
}

impl Implementation for Resample {
    fn name(&self) -> String {
        if self.plain { "resample-plain" } else { "resample" }.to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        Ok(vec![match call.op {
            Op::Upsample(op) => self.upsample(*op, call, places)?,
            Op::Pool(op) => self.pool(*op, call, places)?,
            op => return Err(CudaError::Internal(format!("{op} does not resample"))),
        }])
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, TensorType};

    use super::*;
    use crate::kernels::testing;

    #[test]
    fn blocks_cover_every_row() {
        let x = TensorType::new(DType::F16, [2, 72, 128, 640]);
        let op = Upsample { interpolation: Interpolation::Nearest, size: [144, 256] };
        let launches = testing::launches(implementations, &Op::Upsample(op), &[&x]).unwrap();
        // 256 positions of 80 vectors, 1024 of them a block.
        assert_eq!(launches[0].grid, [2 * 144 * 20, 1, 1]);
        let extents = [72, 128, 144, 256, 80, 20];
        assert_eq!(launches[0].arguments[2], words(extents));
    }

    #[test]
    fn a_window_stands_as_in_the_kernel() {
        let x = TensorType::new(DType::F32, [1, 4, 5, 3]);
        let op = Pool { kind: PoolKind::Max, kernel: [2, 3], stride: [1, 2], padding: [1, 1] };
        let launches = testing::launches(implementations, &Op::Pool(op), &[&x]).unwrap();
        assert_eq!(launches[0].arguments[2], words([4, 5, 5, 3, 3, 1, 2, 3, 1, 2, 1, 1]));
        assert_eq!(launches[0].grid, [5, 1, 1]);
    }

    #[test]
    fn large_images_are_counted_in_wide_numbers() {
        let x = TensorType::new(DType::F32, [1, 1, 40_000, 1]);
        let op = Upsample { interpolation: Interpolation::Bilinear, size: [1, 80_000] };
        let launches = testing::launches(implementations, &Op::Upsample(op), &[&x]).unwrap();
        assert!(launches[0].kernel.constants.contains(&("INDEX", "u64".to_owned())));
    }
}

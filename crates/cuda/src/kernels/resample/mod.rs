//! Ops that change an image's size: upsampling, filters, pooling, means.

mod axis;
mod mean;

use kinora_graph::{
    DType, Op, TensorType,
    op::{Interpolation, Pool, PoolKind, Upsample},
};

use super::{
    Call, Family, Implementation, Kernel, KernelSet, Launch, Places, Source,
    geometry::{WIDEST_ACCESS, index_type, vector},
    names::type_name,
};
use crate::{
    Chip, CudaError,
    launch::{
        StructValue, arguments,
        limits::{self, grid, long},
    },
};

/// The family.
pub const FAMILY: Family = Family { offer: implementations, in_place: |_, _| false };

const UPSAMPLE: Source = Source { path: "resample/upsample.cu", text: include_str!("upsample.cu") };
const POOL: Source = Source { path: "resample/pool.cu", text: include_str!("pool.cu") };

/// Threads of a block, as the sources have them.
const THREADS: usize = 256;

/// The implementations of an op of this family, the one to choose first; none for another op.
fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let plain = set == KernelSet::Baseline;
    let images = || Images::of(call.inputs[0], call.outputs[0]);
    match call.op {
        Op::Upsample(op) => {
            images().map(|images| Box::new(Upsampling { op: *op, images, plain }) as _).into_iter().collect()
        }
        Op::Resample(op) => {
            axis::Axis::new(call, *op, plain).map(|axis| Box::new(axis) as _).into_iter().collect()
        }
        Op::Pool(op) => {
            images().map(|images| Box::new(Pooling { op: *op, images, plain }) as _).into_iter().collect()
        }
        Op::Mean(op) => vec![Box::new(mean::Means::new(call, op, chip, plain))],
        _ => Vec::new(),
    }
}

/// The images that an op reads and writes.
#[derive(Clone, Copy, Debug)]
struct Images {
    dtype: DType,
    count: usize,
    channels: usize,
    /// Height and width of the operand.
    size: [usize; 2],
    /// Height and width of the result.
    out_size: [usize; 2],
}

impl Images {
    /// `None` if these are no images.
    fn of(x: &TensorType, result: &TensorType) -> Option<Images> {
        let (&[_, height, width, _], &[count, out_height, out_width, channels]) =
            (&x.shape[..], &result.shape[..])
        else {
            return None;
        };
        let (size, out_size) = ([height, width], [out_height, out_width]);
        Some(Images { dtype: result.dtype, count, channels, size, out_size })
    }

    /// Cuts the rows of the result; a thread has `unroll` vectors, or single elements.
    fn rows(&self, plain: bool, unroll: usize) -> Result<Rows, CudaError> {
        let [out_height, out_width] = self.out_size;
        let widest = WIDEST_ACCESS / self.dtype.size();
        let width = if plain { 1 } else { vector(self.channels, widest) };
        let columns = self.channels / width;
        let places = out_width * columns;
        // The kernels count the vectors of a row, and a block further, in 32 bits.
        if !limits::is_counted_in_i32(places) {
            return Err(CudaError::TooLarge(format!(
                "a row of {out_width} positions of {} channels",
                self.channels
            )));
        }
        let blocks = places.div_ceil(THREADS * unroll);
        let grid = grid(self.count.saturating_mul(out_height).saturating_mul(blocks))?;
        Ok(Rows { width, columns, blocks, grid })
    }

    /// The extents that a kernel takes first in a struct of this name.
    fn extents(&self, name: &'static str, rows: &Rows) -> StructValue {
        let ([height, width], [out_height, out_width]) = (self.size, self.out_size);
        StructValue::named(name)
            .with("height", long(height))
            .with("width", long(width))
            .with("out_height", long(out_height))
            .with("out_width", long(out_width))
            .with("columns", long(rows.columns))
            .with("blocks", long(rows.blocks))
    }
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

/// The name of what resamples: with one element a thread, or with several.
fn name(plain: bool) -> String {
    if plain { "resample-plain" } else { "resample" }.to_owned()
}

/// A thread for some channels of a position of the result.
#[derive(Debug)]
struct Upsampling {
    op: Upsample,
    images: Images,
    /// One element a thread.
    plain: bool,
}

// SAFETY: the arguments are those of `upsample`, with the extents of operand and result.
unsafe impl Implementation for Upsampling {
    fn name(&self) -> String {
        name(self.plain)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let bilinear = self.op.interpolation == Interpolation::Bilinear;
        let unroll = if self.plain || bilinear { 1 } else { 4 };
        let rows = self.images.rows(self.plain, unroll)?;
        let Images { size: [height, width], out_size: [out_height, out_width], .. } = self.images;
        // The kernel divides twice the products of extents.
        let largest = (height.saturating_mul(out_height)).max(width.saturating_mul(out_width));
        let mut kernel = Kernel::new(UPSAMPLE, "upsample")
            .with("TYPE", type_name(self.images.dtype))
            .with("BILINEAR", i32::from(bilinear))
            .with("VECTOR", rows.width)
            .with("UNROLL", unroll)
            .with("INDEX", index_type(largest.saturating_mul(2)));
        kernel.hot = true;
        let extents = self.images.extents("Extents", &rows);
        let arguments = arguments![places.outputs[0], places.inputs[0], extents];
        Ok(vec![Launch::new(kernel, rows.grid, THREADS as u32, arguments)])
    }
}

/// A thread for some channels of a position of the result.
#[derive(Debug)]
struct Pooling {
    op: Pool,
    images: Images,
    /// One element a thread.
    plain: bool,
}

// SAFETY: the arguments are those of `pool`, with the extents of operand and result.
unsafe impl Implementation for Pooling {
    fn name(&self) -> String {
        name(self.plain)
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let rows = self.images.rows(self.plain, 1)?;
        let mut kernel = Kernel::new(POOL, "pool")
            .with("TYPE", type_name(self.images.dtype))
            .with("AVERAGE", self.op.kind == PoolKind::Average)
            .with("VECTOR", rows.width);
        kernel.hot = true;
        let window = self
            .images
            .extents("Window", &rows)
            .with("kernel", self.op.kernel.map(long))
            .with("stride", self.op.stride.map(long))
            .with("padding", self.op.padding.map(long));
        let arguments = arguments![places.outputs[0], places.inputs[0], window];
        Ok(vec![Launch::new(kernel, rows.grid, THREADS as u32, arguments)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing;

    #[test]
    fn blocks_cover_every_row() {
        let x = TensorType::new(DType::F16, [2, 72, 128, 640]);
        let op = Upsample { interpolation: Interpolation::Nearest, size: [144, 256] };
        let launches = testing::launches(implementations, &Op::Upsample(op), &[&x]).unwrap();
        // 256 positions of 80 vectors, 1024 of them a block.
        assert_eq!(launches[0].grid, [2 * 144 * 20, 1, 1]);
        assert_eq!(testing::struct_words(&launches[0], "Extents"), [72, 128, 144, 256, 80, 20]);
    }

    #[test]
    fn a_window_stands_as_in_the_kernel() {
        let x = TensorType::new(DType::F32, [1, 4, 5, 3]);
        let op = Pool { kind: PoolKind::Max, kernel: [2, 3], stride: [1, 2], padding: [1, 1] };
        let launches = testing::launches(implementations, &Op::Pool(op), &[&x]).unwrap();
        let window = testing::struct_words(&launches[0], "Window");
        assert_eq!(window, [4, 5, 5, 3, 3, 1, 2, 3, 1, 2, 1, 1]);
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

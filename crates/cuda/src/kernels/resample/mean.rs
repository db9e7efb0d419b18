//! Means over any axes.

use kinora_graph::{DType, TensorType, op::Mean};

use crate::{
    Chip, CudaError,
    kernels::{
        Call, DevicePointer, Implementation, Kernel, Launch, Places, Source,
        geometry::{WIDEST_ACCESS, index_type, vector},
        names::type_name,
    },
    launch::{
        StructValue, arguments,
        limits::{self, grid, long},
    },
};

const SOURCE: Source = Source { path: "resample/mean.cu", text: include_str!("mean.cu") };

/// Threads of a block, as the source has them.
const THREADS: usize = 256;

/// The most chunks that the members of a mean are cut into: the launch that adds them goes through them one by one.
const MOST_CHUNKS: usize = 256;

/// Members that are worth a chunk of their own.
const CHUNK_MEMBERS: usize = 64;

/// A mean in one launch, or in two if one would leave the chip idle.
#[derive(Debug)]
pub(super) struct Means {
    from: DType,
    to: DType,
    cut: Cut,
    /// One launch, of single elements.
    plain: bool,
}

/// Some merged axes: extents and strides, outermost first.
#[derive(Clone, Debug, Default, PartialEq)]
struct Axes {
    extents: Vec<usize>,
    strides: Vec<usize>,
}

impl Axes {
    fn count(&self) -> usize {
        self.extents.iter().product()
    }

    /// Puts an axis further in.
    fn push(&mut self, extent: usize, stride: usize) {
        match (self.extents.last_mut(), self.strides.last_mut()) {
            (Some(outer), Some(outer_stride)) if *outer_stride == extent * stride => {
                *outer *= extent;
                *outer_stride = stride;
            }
            _ => {
                self.extents.push(extent);
                self.strides.push(stride);
            }
        }
    }

    /// Counts the innermost axis in vectors.
    fn in_vectors(&mut self, width: usize) {
        if let (Some(extent), Some(stride)) = (self.extents.last_mut(), self.strides.last_mut()) {
            *extent /= width;
            *stride *= width;
        }
    }
}

/// The axes that are kept and those that are averaged, and whether the innermost one is averaged.
fn split(x: &TensorType, averaged: &[usize]) -> (Axes, Axes, bool) {
    let (mut kept, mut gone) = (Axes::default(), Axes::default());
    let mut rows = false;
    for (axis, (&extent, stride)) in x.shape.iter().zip(x.shape.strides()).enumerate() {
        if extent == 1 {
            continue;
        }
        rows = averaged.contains(&axis);
        let axes = if rows { &mut gone } else { &mut kept };
        axes.push(extent, stride);
    }
    for axes in [&mut kept, &mut gone] {
        if axes.extents.is_empty() {
            axes.push(1, 0);
        }
    }
    (kept, gone, rows)
}

/// How the work of a launch is cut.
#[derive(Clone, Debug)]
struct Cut {
    kept: Axes,
    averaged: Axes,
    /// The innermost axis is averaged.
    rows: bool,
    width: usize,
    chunks: usize,
}

impl Cut {
    fn of(x: &TensorType, axes: &[usize], chip: &Chip, plain: bool) -> Cut {
        let (kept, averaged, rows) = split(x, axes);
        let inner = if rows { &averaged } else { &kept };
        let innermost = match (inner.extents.last(), inner.strides.last()) {
            (Some(&extent), Some(1)) => extent,
            _ => 1,
        };
        let width = if plain { 1 } else { vector(innermost, WIDEST_ACCESS / x.dtype.size()) };
        let (means, members) = (kept.count(), averaged.count());
        // Threads that one chunk a mean would keep busy, of those that fill the chip.
        let busy = if rows { means * 32 } else { means / width };
        let wanted = (chip.multiprocessors as usize * 1024).div_ceil(busy.max(1));
        let most = (members / CHUNK_MEMBERS).clamp(1, MOST_CHUNKS);
        let chunks = if plain { 1 } else { wanted.clamp(1, most) };
        Cut { kept, averaged, rows, width, chunks }
    }
}

impl Means {
    pub(super) fn new(call: &Call<'_>, op: &Mean, chip: &Chip, plain: bool) -> Means {
        let (x, result) = (call.inputs[0], call.outputs[0]);
        Means { from: x.dtype, to: result.dtype, cut: Cut::of(x, &op.axes, chip, plain), plain }
    }
}

// SAFETY: the axes are those of the operand, and the workspace holds a sum for every mean and chunk.
unsafe impl Implementation for Means {
    fn name(&self) -> String {
        if self.plain { "mean-plain" } else { "mean" }.to_owned()
    }

    fn workspace(&self) -> usize {
        let Cut { kept, chunks, .. } = &self.cut;
        if *chunks > 1 { chunks * kept.count() * size_of::<f32>() } else { 0 }
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let cut = &self.cut;
        let (means, members) = (cut.kept.count(), cut.averaged.count());
        let (from, to) = ((self.from, places.inputs[0]), (self.to, places.outputs[0]));
        if cut.chunks == 1 {
            return Ok(vec![launch(from, to, cut.clone(), members as f32)?]);
        }
        let sums = (DType::F32, places.workspace);
        let add = Cut {
            kept: Axes { extents: vec![means], strides: vec![1] },
            averaged: Axes { extents: vec![cut.chunks], strides: vec![means] },
            rows: false,
            width: vector(means, WIDEST_ACCESS / DType::F32.size()),
            chunks: 1,
        };
        Ok(vec![launch(from, sums, cut.clone(), 1.0)?, launch(sums, to, add, members as f32)?])
    }
}

fn launch(
    from: (DType, DevicePointer),
    to: (DType, DevicePointer),
    mut cut: Cut,
    divisor: f32,
) -> Result<Launch, CudaError> {
    let most = cut.kept.extents.len().max(cut.averaged.extents.len());
    if most > limits::MERGED_AXES {
        return Err(CudaError::TooLarge(format!("a mean over {most} separate axes")));
    }
    let means = cut.kept.count();
    let innermost = if cut.rows { &mut cut.averaged } else { &mut cut.kept };
    innermost.in_vectors(cut.width);
    let members = cut.averaged.count();
    let chunk = members.div_ceil(cut.chunks);
    let mut kernel = Kernel::new(SOURCE, if cut.rows { "mean_rows" } else { "mean_columns" })
        .with("TYPE", type_name(from.0))
        .with("RESULT", type_name(to.0))
        .with("VECTOR", cut.width)
        .with("INDEX", index_type(means.max(members)))
        .with("KEPT", cut.kept.extents.len())
        .with("AVERAGED", cut.averaged.extents.len());
    kernel.hot = true;
    let longs = |extents: &[usize]| extents.iter().map(|&extent| long(extent)).collect::<Vec<i64>>();
    let axes = StructValue::named("Axes")
        .with_array("kept_extent", &longs(&cut.kept.extents))
        .with_array("kept_stride", &longs(&cut.kept.strides))
        .with_array("averaged_extent", &longs(&cut.averaged.extents))
        .with_array("averaged_stride", &longs(&cut.averaged.strides));
    let arguments =
        arguments![to.1, from.1, axes, long(means), long(members), long(chunk), long(cut.chunks), divisor];
    let threads = if cut.rows { means * 32 } else { means / cut.width };
    let blocks = grid(threads.saturating_mul(cut.chunks).div_ceil(THREADS))?;
    Ok(Launch::new(kernel, blocks, THREADS as u32, arguments))
}

#[cfg(test)]
mod tests {
    use kinora_graph::Op;

    use super::*;
    use crate::kernels::{Argument, resample::implementations, testing};

    #[test]
    fn neighbouring_axes_of_a_kind_are_one() {
        let x = TensorType::new(DType::F16, [2, 3, 5, 8]);
        let axes = |extents: &[usize], strides: &[usize]| Axes {
            extents: extents.to_vec(),
            strides: strides.to_vec(),
        };
        assert_eq!(split(&x, &[1, 2]), (axes(&[2, 8], &[120, 1]), axes(&[15], &[8]), false));
        assert_eq!(split(&x, &[1, 3]), (axes(&[2, 5], &[120, 8]), axes(&[3, 8], &[40, 1]), true));
        assert_eq!(split(&x, &[]), (axes(&[240], &[1]), axes(&[1], &[0]), false));
        assert_eq!(split(&x, &[0, 1, 2, 3]), (axes(&[1], &[0]), axes(&[240], &[1]), true));
    }

    #[test]
    fn chunks_hold_every_member_and_fit_the_workspace() {
        let x = TensorType::new(DType::F16, [1, 64, 64, 320]);
        let op = Op::Mean(Mean { axes: vec![1, 2] });
        let launches = testing::launches(implementations, &op, &[&x]).unwrap();
        let [first, second] = &launches[..] else { panic!("{launches:?}") };
        let number = |launch: &Launch, i: usize| match launch.arguments[i] {
            Argument::I64(number) => number,
            _ => panic!("{:?}", launch.arguments),
        };
        let (members, chunk, chunks) = (number(first, 4), number(first, 5), number(first, 6));
        assert_eq!((number(first, 3), members), (320, 4096));
        assert!(chunk * chunks >= members && chunks > 1);
        assert_eq!(first.arguments[0], Argument::Pointer(testing::WORKSPACE));
        assert_eq!(second.arguments[1], Argument::Pointer(testing::WORKSPACE));
        assert_eq!((number(second, 3), number(second, 4)), (320, chunks));
        assert_eq!(second.arguments[7], Argument::F32(4096.0));
    }
}

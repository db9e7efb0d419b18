//! Means over any axes.

use kinora_graph::{DType, Op, TensorType};

use crate::{
    Chip, CudaError,
    kernels::{
        Argument, Call, DevicePointer, Implementation, Kernel, Launch, Places, Source,
        geometry::{WIDEST_ACCESS, grid, index_type, long, vector, words},
        names::type_name,
    },
};

const SOURCE: Source = Source { path: "resample/mean.cu", text: include_str!("mean.cu") };

/// Threads of a block, as the source has them.
const THREADS: usize = 256;

/// The most chunks that the members of a mean are cut into: the launch that adds them goes through them one by one.
const MOST_CHUNKS: usize = 256;

/// Members that are worth a chunk of their own.
const CHUNK_MEMBERS: usize = 64;

/// The most axes of a kind that remain when neighbours are merged.
const MOST_AXES: usize = 8;

/// A mean in one launch, or in two where one would leave the chip idle.
#[derive(Debug)]
pub(super) struct Means {
    /// One launch, of single elements.
    pub plain: bool,
    pub chip: Chip,
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

/// How the work of a call is cut.
struct Cut {
    kept: Axes,
    averaged: Axes,
    rows: bool,
    width: usize,
    chunks: usize,
}

impl Means {
    fn cut(&self, call: &Call<'_>) -> Result<Cut, CudaError> {
        let Op::Mean(op) = call.op else {
            return Err(CudaError::Internal(format!("{} is no mean", call.op)));
        };
        let x = call.inputs[0];
        let (kept, averaged, rows) = split(x, &op.axes);
        let most = kept.extents.len().max(averaged.extents.len());
        if most > MOST_AXES {
            return Err(CudaError::TooLarge(format!("a mean over {most} separate axes")));
        }
        let inner = if rows { &averaged } else { &kept };
        let innermost = match (inner.extents.last(), inner.strides.last()) {
            (Some(&extent), Some(1)) => extent,
            _ => 1,
        };
        let width = if self.plain { 1 } else { vector(innermost, WIDEST_ACCESS / x.dtype.size()) };
        let (means, members) = (kept.count(), averaged.count());
        // Threads that one chunk a mean would keep busy, of those that fill the chip.
        let busy = if rows { means * 32 } else { means / width };
        let wanted = (self.chip.multiprocessors as usize * 1024).div_ceil(busy.max(1));
        let most = (members / CHUNK_MEMBERS).clamp(1, MOST_CHUNKS);
        let chunks = if self.plain { 1 } else { wanted.clamp(1, most) };
        Ok(Cut { kept, averaged, rows, width, chunks })
    }
}

impl Implementation for Means {
    fn name(&self) -> String {
        if self.plain { "mean-plain" } else { "mean" }.to_owned()
    }

    fn workspace(&self, call: &Call<'_>) -> usize {
        match self.cut(call) {
            Ok(cut) if cut.chunks > 1 => cut.chunks * cut.kept.count() * size_of::<f32>(),
            _ => 0,
        }
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let cut = self.cut(call)?;
        let (x, result) = (call.inputs[0], call.outputs[0]);
        let (means, members) = (cut.kept.count(), cut.averaged.count());
        let chunks = cut.chunks;
        let (from, to) = ((x.dtype, places.inputs[0]), (result.dtype, places.outputs[0]));
        if chunks == 1 {
            return Ok(vec![launch(from, to, cut, members as f32)?]);
        }
        let sums = (DType::F32, places.workspace);
        let add = Cut {
            kept: Axes { extents: vec![means], strides: vec![1] },
            averaged: Axes { extents: vec![chunks], strides: vec![means] },
            rows: false,
            width: vector(means, WIDEST_ACCESS / DType::F32.size()),
            chunks: 1,
        };
        Ok(vec![launch(from, sums, cut, 1.0)?, launch(sums, to, add, members as f32)?])
    }
}

fn launch(
    from: (DType, DevicePointer),
    to: (DType, DevicePointer),
    mut cut: Cut,
    divisor: f32,
) -> Result<Launch, CudaError> {
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
    let axes = [&cut.kept.extents, &cut.kept.strides, &cut.averaged.extents, &cut.averaged.strides];
    let arguments = vec![
        Argument::Pointer(to.1),
        Argument::Pointer(from.1),
        words(axes.into_iter().flatten().map(|&extent| extent as u64)),
        long(means),
        long(members),
        long(chunk),
        long(cut.chunks),
        Argument::F32(divisor),
    ];
    let threads = if cut.rows { means * 32 } else { means / cut.width };
    let blocks = grid(threads.saturating_mul(cut.chunks).div_ceil(THREADS))?;
    Ok(Launch::new(kernel, blocks, THREADS as u32, arguments))
}

#[cfg(test)]
mod tests {
    use kinora_graph::op::Mean;

    use super::*;
    use crate::kernels::{resample::implementations, testing};

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

//! Upsampling and pooling of images.

use std::ops::Range;

use kinora_graph::op::{Interpolation, Pool, PoolKind, Upsample};

use super::{
    blocks::{BLOCK, Block, Source, Target},
    elementwise::{Elementwise, Sum, Times, run},
};
use crate::{
    simd::{Isa, Kernel, Simd},
    tasks,
    view::{View, ViewMut},
};

/// Resizes images.
pub(crate) fn upsample(isa: Isa, op: &Upsample, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    match op.interpolation {
        Interpolation::Nearest => nearest(&inputs[0], &output),
        Interpolation::Bilinear => bilinear(isa, &inputs[0], &output),
    }
}

/// Images of channels-last pixels, by their extents.
#[derive(Clone, Copy)]
struct Extents {
    height: usize,
    width: usize,
    channels: usize,
}

impl Extents {
    fn of(shape: &[usize]) -> Self {
        Extents { height: shape[1], width: shape[2], channels: shape[3] }
    }

    fn row(&self) -> usize {
        self.width * self.channels
    }
}

/// The sample that position `i` of `to` reads in an axis of `from`.
fn nearest_index(i: usize, from: usize, to: usize) -> usize {
    // In u128 because the product of two extents need not fit a usize; the quotient is below `from`.
    ((i as u128 * from as u128) / to as u128) as usize
}

fn nearest(input: &View<'_>, output: &ViewMut<'_>) {
    let (from, to) = (Extents::of(&input.ty().shape), Extents::of(&output.ty().shape));
    let size = output.ty().dtype.size();
    let pixel = from.channels * size;
    let columns: Vec<usize> = (0..to.width).map(|x| nearest_index(x, from.width, to.width) * pixel).collect();
    tasks::each(output.ty().shape[0] * to.height, tasks::rows_of_task(to.row()), |rows| {
        for row in rows {
            let (image, y) = (row / to.height, row % to.height);
            let source_row = image * from.height + nearest_index(y, from.height, to.height);
            // SAFETY: both rows and every pixel of them exist, and no other task has this row of the result.
            unsafe {
                let source = input.bytes().add(source_row * from.row() * size);
                let mut target = output.bytes().add(row * to.row() * size);
                for &column in &columns {
                    std::ptr::copy_nonoverlapping(source.add(column), target, pixel);
                    target = target.add(pixel);
                }
            }
        }
    });
}

/// Two neighbouring samples and the weight of the second.
#[derive(Clone, Copy)]
struct Between {
    first: usize,
    second: usize,
    weight: f32,
}

/// The two samples that each position of an axis lies between: half-pixel centres, edges held.
fn between(from: usize, to: usize) -> Vec<Between> {
    let ratio = from as f64 / to as f64;
    (0..to)
        .map(|i| {
            let position = ((i as f64 + 0.5) * ratio - 0.5).clamp(0.0, (from - 1) as f64);
            let first = position as usize;
            Between { first, second: (first + 1).min(from - 1), weight: (position - first as f64) as f32 }
        })
        .collect()
}

fn bilinear(isa: Isa, input: &View<'_>, output: &ViewMut<'_>) {
    let (from, to) = (Extents::of(&input.ty().shape), Extents::of(&output.ty().shape));
    let lines = between(from.height, to.height);
    let columns = between(from.width, to.width);
    let (source, target) = (Source::of(input), Target::of(output));
    let rows = output.ty().shape[0] * to.height;
    let bilinear = Bilinear { source, target, from, to, lines: &lines, columns: &columns };
    tasks::each(rows, tasks::rows_of_task(to.row()), |rows| {
        isa.dispatch(BilinearRows { bilinear: &bilinear, rows })
    });
}

struct Bilinear<'a> {
    source: Source<'a>,
    target: Target<'a>,
    from: Extents,
    to: Extents,
    lines: &'a [Between],
    columns: &'a [Between],
}

struct BilinearRows<'a> {
    bilinear: &'a Bilinear<'a>,
    rows: Range<usize>,
}

impl Kernel for BilinearRows<'_> {
    type Output = ();

    /// Mixes two lines of the operand into one, then the pixels of that.
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let &Bilinear { source, target, from, to, lines, columns } = self.bilinear;
        let mut line = vec![0.0f32; from.row()];
        let mut buffers = [const { Block::uninit() }; 2];
        for row in self.rows {
            let (image, y) = (row / to.height, row % to.height);
            let mix = Interpolate { weight: lines[y].weight };
            let starts = [lines[y].first, lines[y].second].map(|y| (image * from.height + y) * from.row());
            for at in (0..from.row()).step_by(BLOCK) {
                let count = (from.row() - at).min(BLOCK);
                // SAFETY: both lines exist, and buffers and `line` hold the block.
                unsafe {
                    let a = source.read(simd, starts[0] + at, count, buffers[0].as_mut_ptr());
                    let b = source.read(simd, starts[1] + at, count, buffers[1].as_mut_ptr());
                    run(simd, &mix, [a, b], line.as_mut_ptr().add(at), count);
                }
            }
            for (x, column) in columns.iter().enumerate() {
                let mix = Interpolate { weight: column.weight };
                for channel in (0..to.channels).step_by(BLOCK) {
                    let count = (to.channels - channel).min(BLOCK);
                    let at = row * to.row() + x * to.channels + channel;
                    // SAFETY: both pixels lie within `line`, the result's pixel exists, no other task has this row, and the
                    // buffer holds the block.
                    unsafe {
                        let a = line.as_ptr().add(column.first * from.channels + channel);
                        let b = line.as_ptr().add(column.second * from.channels + channel);
                        let result = target.place(at, buffers[0].as_mut_ptr());
                        run(simd, &mix, [a, b], result, count);
                        target.commit(simd, at, count, result);
                    }
                }
            }
        }
    }
}

struct Interpolate {
    weight: f32,
}

impl Elementwise<2> for Interpolate {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [a, b]: [S::F32; 2]) -> S::F32 {
        simd.mul_add(b, simd.splat(self.weight), simd.mul(a, simd.splat(1.0 - self.weight)))
    }
}

/// Pools windows of images.
pub(crate) fn pool(isa: Isa, op: &Pool, inputs: &[View<'_>], output: ViewMut<'_>) {
    if output.ty().elements() == 0 {
        return;
    }
    let (from, to) = (Extents::of(&inputs[0].ty().shape), Extents::of(&output.ty().shape));
    let windows = Windows { source: Source::of(&inputs[0]), target: Target::of(&output), from, to, op };
    let window = op.kernel[0] * op.kernel[1];
    let rows = output.ty().shape[0] * to.height;
    tasks::each(rows, tasks::rows_of_task(to.row() * window), |rows| match op.kind {
        PoolKind::Max => isa.dispatch(PoolRows {
            windows: &windows,
            rows,
            fold: Largest,
            start: f32::NEG_INFINITY,
            factor: 1.0,
        }),
        PoolKind::Average => {
            let factor = 1.0 / window as f32;
            isa.dispatch(PoolRows { windows: &windows, rows, fold: Sum, start: 0.0, factor })
        }
    });
}

struct Windows<'a> {
    source: Source<'a>,
    target: Target<'a>,
    from: Extents,
    to: Extents,
    op: &'a Pool,
}

struct PoolRows<'a, F> {
    windows: &'a Windows<'a>,
    rows: Range<usize>,
    fold: F,
    /// The initial value of a window, which is also the result of a window of padding alone.
    start: f32,
    factor: f32,
}

/// The part of a window that lies within an axis of `extent`.
fn window(at: usize, stride: usize, padding: usize, kernel: usize, extent: usize) -> Range<usize> {
    (at * stride).saturating_sub(padding)..(at * stride + kernel - padding).min(extent)
}

impl<F: Elementwise<2>> Kernel for PoolRows<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let &Windows { source, target, from, to, op } = self.windows;
        let mut buffers = [const { Block::uninit() }; 2];
        for row in self.rows {
            let (image, y) = (row / to.height, row % to.height);
            let lines = window(y, op.stride[0], op.padding[0], op.kernel[0], from.height);
            for x in 0..to.width {
                let columns = window(x, op.stride[1], op.padding[1], op.kernel[1], from.width);
                for channel in (0..to.channels).step_by(BLOCK) {
                    let count = (to.channels - channel).min(BLOCK);
                    let at = row * to.row() + x * to.channels + channel;
                    // SAFETY: the window's pixels and the result's exist, no other task has this row, and the buffers hold
                    // the block.
                    unsafe {
                        let result = target.place(at, buffers[0].as_mut_ptr());
                        for i in 0..count {
                            result.add(i).write(self.start);
                        }
                        for line in lines.clone() {
                            for column in columns.clone() {
                                let at = (image * from.height + line) * from.row()
                                    + column * from.channels
                                    + channel;
                                let pixel = source.read(simd, at, count, buffers[1].as_mut_ptr());
                                run(simd, &self.fold, [result.cast_const(), pixel], result, count);
                            }
                        }
                        if self.factor != 1.0 {
                            run(simd, &Times { factor: self.factor }, [result.cast_const()], result, count);
                        }
                        target.commit(simd, at, count, result);
                    }
                }
            }
        }
    }
}

/// The larger of two; NaN if either is.
struct Largest;

impl Elementwise<2> for Largest {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [largest, x]: [S::F32; 2]) -> S::F32 {
        // `max` only promises to keep a NaN of its second operand.
        let is_number = simd.less_than(simd.splat(-1.0), simd.abs(largest));
        simd.select(is_number, simd.max(largest, x), largest)
    }
}

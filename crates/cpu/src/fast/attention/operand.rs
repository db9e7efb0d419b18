//! The rows of a head in one sequence: reading them as f32, in the orders that the products need, and writing them.

use kinora_graph::TensorType;

use crate::gemm::microkernel::panel_columns;
use crate::simd::{Float, MAX_LANES, Simd};
use crate::view::{View, ViewMut, with_float};

/// The layout of a tensor's sequences. One formula serves both axes: over positions a tensor is `[batch, length,
/// channels]` with a single position, over frames it is `[batch · length, positions, channels]`.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Rows of a sequence.
    pub(super) length: usize,
    /// Sequences side by side.
    pub(super) positions: usize,
    /// Channels of a row of the tensor.
    pub(super) channels: usize,
    /// The channel at which the first head starts.
    pub(super) offset: usize,
    /// Channels of a head.
    pub(super) head_dim: usize,
}

/// Which sequence, and which head of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    pub(super) batch: usize,
    pub(super) position: usize,
    pub(super) head: usize,
}

impl Layout {
    /// The first element of the head's first row, and the elements from a row to the next, within a tensor of
    /// `elements`.
    fn place(self, sequence: Sequence, elements: usize) -> (usize, usize) {
        let first = sequence.batch * self.length * self.positions + sequence.position;
        let start = first * self.channels + self.offset + sequence.head * self.head_dim;
        let stride = self.positions * self.channels;
        // The unsafe accesses below rest on this.
        assert!(self.length == 0 || start + (self.length - 1) * stride + self.head_dim <= elements);
        (start, stride)
    }
}

/// Sequences side by side: some positions, and the first heads of each.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) positions: usize,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
}

impl Run {
    pub(super) fn sequences(self) -> usize {
        self.positions * self.heads
    }

    /// Whether a row of each of them is within the tensor, the first from `start` on.
    fn fits(self, start: usize, channels: usize, ty: &TensorType) -> bool {
        self.sequences() > 0
            && start + (self.positions - 1) * channels + self.heads * self.head_dim <= ty.elements()
    }
}

/// Where a row of each sequence of a run goes.
#[derive(Clone, Copy)]
pub(super) struct RunPlace {
    /// Values from a sequence's row to the next one's.
    pub(super) sequence: usize,
    /// Values from the first panel's columns of a row to the next one's.
    pub(super) panel: usize,
}

/// A head's rows, to read.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    view: View<'a>,
    start: usize,
    stride: usize,
    length: usize,
    channels: usize,
    head_dim: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn new(view: View<'a>, layout: Layout, sequence: Sequence) -> Self {
        let (start, stride) = layout.place(sequence, view.ty().elements());
        Rows {
            view,
            start,
            stride,
            length: layout.length,
            channels: layout.channels,
            head_dim: layout.head_dim,
        }
    }

    /// Copies `count` rows from `first` on, times `scale`, each followed by zeros up to a whole number of vectors;
    /// a row of `target` is that long.
    #[inline(always)]
    pub(super) fn copy<S: Simd>(&self, simd: S, first: usize, count: usize, scale: f32, target: &mut [f32]) {
        let width = self.head_dim.next_multiple_of(S::LANES);
        assert!(first + count <= self.length && target.len() >= count * width);
        let scale = simd.splat(scale);
        with_float!(self.view.ty().dtype, T => {
            for (row, target) in target.chunks_exact_mut(width).take(count).enumerate() {
                for at in (0..width).step_by(S::LANES) {
                    // SAFETY: the row is one of the tensor's, and `at` is within a row of both.
                    unsafe {
                        let value = self.load::<S, T>(simd, first + row, at);
                        simd.store(target.as_mut_ptr().add(at), simd.mul(value, scale));
                    }
                }
            }
        })
    }

    /// Copies row `row` of each sequence of a run from this one on, times `scale`, as `copy` does.
    #[inline(always)]
    pub(super) fn copy_run<S: Simd>(
        &self,
        simd: S,
        row: usize,
        run: Run,
        scale: f32,
        target: &mut [f32],
        place: RunPlace,
    ) {
        let columns = panel_columns::<S>();
        let width = self.head_dim.next_multiple_of(S::LANES);
        let offset = |at: usize| at / columns * place.panel + at % columns;
        assert!(row < self.length && run.fits(self.start + row * self.stride, self.channels, self.view.ty()));
        assert!(target.len() >= (run.sequences() - 1) * place.sequence + offset(width - S::LANES) + S::LANES);
        let scale = simd.splat(scale);
        with_float!(self.view.ty().dtype, T => {
            for position in 0..run.positions {
                for head in 0..run.heads {
                    let rows = Rows { start: self.start + position * self.channels + head * self.head_dim, ..*self };
                    let sequence = (position * run.heads + head) * place.sequence;
                    for at in (0..width).step_by(S::LANES) {
                        // SAFETY: the tensor and the target were checked to hold the row of every sequence of the run.
                        unsafe {
                            let value = rows.load::<S, T>(simd, row, at);
                            let target = target.as_mut_ptr().add(sequence + offset(at));
                            simd.store(target, simd.mul(value, scale));
                        }
                    }
                }
            }
        })
    }

    /// Copies `count` rows from `first` on into panels of columns, as the right operand of `· rows`. A panel has room
    /// for `capacity` rows.
    #[inline(always)]
    pub(super) fn pack<S: Simd>(
        &self,
        simd: S,
        first: usize,
        count: usize,
        capacity: usize,
        target: &mut [f32],
    ) {
        let columns = panel_columns::<S>();
        let panels = self.head_dim.div_ceil(columns);
        assert!(first + count <= self.length && count <= capacity);
        assert!(target.len() >= panels * capacity * columns);
        with_float!(self.view.ty().dtype, T => {
            for row in 0..count {
                for panel in 0..panels {
                    for at in (0..columns).step_by(S::LANES) {
                        // SAFETY: the row is one of the tensor's; the target was checked to hold `panels` panels.
                        unsafe {
                            let value = self.load::<S, T>(simd, first + row, panel * columns + at);
                            let line = (panel * capacity + row) * columns;
                            simd.store(target.as_mut_ptr().add(line + at), value);
                        }
                    }
                }
            }
        })
    }

    /// Copies `count` rows from `first` on into panels of rows, as the right operand of `· rowsᵀ`. The last panel's
    /// columns beyond the rows are left as they are.
    #[inline(always)]
    pub(super) fn pack_transposed<S: Simd>(&self, simd: S, first: usize, count: usize, target: &mut [f32]) {
        let columns = panel_columns::<S>();
        assert!(first + count <= self.length);
        assert!(target.len() >= count.next_multiple_of(columns) * self.head_dim);
        with_float!(self.view.ty().dtype, T => {
            let mut square = [[0.0f32; MAX_LANES]; MAX_LANES];
            // A square of vectors at a time, so that the transposing reads from registers or L1.
            for group in (0..count).step_by(S::LANES) {
                let rows = (count - group).min(S::LANES);
                let panel = group / columns * columns * self.head_dim + group % columns;
                for at in (0..self.head_dim).step_by(S::LANES) {
                    for (row, line) in square.iter_mut().enumerate().take(rows) {
                        // SAFETY: the row is one of the tensor's, and a line holds MAX_LANES >= LANES values.
                        unsafe {
                            let value = self.load::<S, T>(simd, first + group + row, at);
                            simd.store(line.as_mut_ptr(), value);
                        }
                    }
                    for channel in 0..(self.head_dim - at).min(S::LANES) {
                        let line = panel + (at + channel) * columns;
                        let line = &mut target[line..line + S::LANES];
                        for (value, row) in line.iter_mut().zip(&square) {
                            *value = row[channel];
                        }
                    }
                }
            }
        })
    }

    /// `LANES` channels of a row from `at` on, as f32; zero beyond the head.
    ///
    /// # Safety
    /// `row < self.length`.
    #[inline(always)]
    unsafe fn load<S: Simd, T: Float>(&self, simd: S, row: usize, at: usize) -> S::F32 {
        // SAFETY: `Layout::place` checked that every row has `head_dim` elements in the tensor, and no more than
        // those from `at` on are read.
        unsafe {
            let source = self.view.ptr::<T>().add(self.start + row * self.stride);
            if at + S::LANES <= self.head_dim {
                T::load(simd, source.add(at))
            } else if at < self.head_dim {
                T::load_partial(simd, source.add(at), self.head_dim - at)
            } else {
                simd.zero()
            }
        }
    }
}

/// A head's rows, to write.
#[derive(Clone, Copy)]
pub(super) struct RowsMut<'a> {
    view: &'a ViewMut<'a>,
    start: usize,
    stride: usize,
    length: usize,
    channels: usize,
    head_dim: usize,
}

impl<'a> RowsMut<'a> {
    pub(super) fn new(view: &'a ViewMut<'a>, layout: Layout, sequence: Sequence) -> Self {
        let (start, stride) = layout.place(sequence, view.ty().elements());
        RowsMut {
            view,
            start,
            stride,
            length: layout.length,
            channels: layout.channels,
            head_dim: layout.head_dim,
        }
    }

    /// Writes `values / total` as a row; zeros if the total is zero, for a query that saw no key.
    ///
    /// # Safety
    /// No other thread writes this row meanwhile.
    #[inline(always)]
    pub(super) unsafe fn write<S: Simd>(&self, simd: S, row: usize, values: &[f32], total: f32) {
        let run = Run { positions: 1, heads: 1, head_dim: self.head_dim };
        // SAFETY: the contract is the caller's, passed on unchanged.
        unsafe { self.write_run(simd, row, run, (values, 0), (&[total], 0)) }
    }

    /// Writes row `row` of each sequence of a run from this one on, as `write` does. `values_apart` and
    /// `totals_apart` are the distances between neighbouring sequences in `values` and `totals`.
    ///
    /// # Safety
    /// No other thread writes these rows meanwhile.
    #[inline(always)]
    pub(super) unsafe fn write_run<S: Simd>(
        &self,
        simd: S,
        row: usize,
        run: Run,
        (values, values_apart): (&[f32], usize),
        (totals, totals_apart): (&[f32], usize),
    ) {
        let start = self.start + row * self.stride;
        assert!(row < self.length && run.fits(start, self.channels, self.view.ty()));
        with_float!(self.view.ty().dtype, T => {
            for position in 0..run.positions {
                for head in 0..run.heads {
                    let sequence = position * run.heads + head;
                    let start = start + position * self.channels + head * self.head_dim;
                    let values = &values[sequence * values_apart..];
                    // SAFETY: the tensor was checked to hold the row of every sequence of the run, and the caller
                    // vouches for them.
                    unsafe { self.write_at::<S, T>(simd, start, values, totals[sequence * totals_apart]) };
                }
            }
        })
    }

    /// As `write`, from element `start` on.
    ///
    /// # Safety
    /// The tensor has `head_dim` elements there, which no other thread writes meanwhile.
    #[inline(always)]
    unsafe fn write_at<S: Simd, T: Float>(&self, simd: S, start: usize, values: &[f32], total: f32) {
        assert!(values.len() >= self.head_dim.next_multiple_of(S::LANES));
        let factor = simd.splat(1.0 / total);
        for at in (0..self.head_dim).step_by(S::LANES) {
            // SAFETY: the caller vouches for the elements, and the values were checked above.
            unsafe {
                let value = match total {
                    0.0 => simd.zero(),
                    _ => simd.mul(simd.load(values.as_ptr().add(at)), factor),
                };
                let target = self.view.ptr::<T>().add(start + at);
                if at + S::LANES <= self.head_dim {
                    T::store(simd, target, value);
                } else {
                    T::store_partial(simd, target, value, self.head_dim - at);
                }
            }
        }
    }
}

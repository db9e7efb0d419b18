//! Functions of the matching elements of several operands, over rows and columns.

use std::ops::Range;

use super::blocks::{BLOCK, Block, Source, Target};
use crate::{
    simd::{Isa, Kernel, Simd, UNROLL, load_up_to, store_up_to},
    tasks,
};

/// A function of `N` values, on vectors. Implementations are `#[inline(always)]`, as kernels are.
pub(crate) trait Elementwise<const N: usize>: Sync {
    fn apply<S: Simd>(&self, simd: S, operands: [S::F32; N]) -> S::F32;
}

/// `a + b`.
pub(crate) struct Sum;

impl Elementwise<2> for Sum {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [a, b]: [S::F32; 2]) -> S::F32 {
        simd.add(a, b)
    }
}

/// `a · b`.
pub(crate) struct Product;

impl Elementwise<2> for Product {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [a, b]: [S::F32; 2]) -> S::F32 {
        simd.mul(a, b)
    }
}

/// `factor · x`.
pub(crate) struct Times {
    pub(crate) factor: f32,
}

impl Elementwise<1> for Times {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, [x]: [S::F32; 1]) -> S::F32 {
        simd.mul(x, simd.splat(self.factor))
    }
}

/// An operand as rows of columns.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    source: Source<'a>,
    start: usize,
    row_stride: usize,
    /// One element serves a whole row.
    splat: bool,
}

impl<'a> Operand<'a> {
    /// Rows that lie `row_stride` elements apart; 0 for one row that serves all.
    pub(crate) fn rows(source: Source<'a>, row_stride: usize) -> Self {
        Operand { source, start: 0, row_stride, splat: false }
    }

    /// One element per row, `row_stride` elements apart; 0 for one that serves all rows.
    pub(crate) fn splat(source: Source<'a>, row_stride: usize) -> Self {
        Operand { splat: true, ..Operand::rows(source, row_stride) }
    }

    /// The same, its first row beginning `elements` further.
    pub(crate) fn offset(self, elements: usize) -> Self {
        Operand { start: self.start + elements, ..self }
    }
}

/// Where rows of results go, one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Results<'a> {
    pub(crate) target: Target<'a>,
    /// The element where the first row begins.
    pub(crate) start: usize,
}

/// Writes `function` of the operands over `rows × len` elements, in parallel.
///
/// The result may overwrite an operand with as many elements of the same size, in the same order, whatever the two
/// types: every element of a block is read before any of them is written.
///
/// # Safety
/// Every operand has the elements that its strides lead to, and the target has `rows · len` from its start.
pub(crate) unsafe fn elementwise<F: Elementwise<N>, const N: usize>(
    isa: Isa,
    function: &F,
    operands: [Operand<'_>; N],
    results: Results<'_>,
    rows: usize,
    len: usize,
) {
    tasks::rectangles(rows, len, |rows, columns| {
        isa.dispatch(Rectangle { function, operands, results, len, rows, columns });
    });
}

struct Rectangle<'a, F, const N: usize> {
    function: &'a F,
    operands: [Operand<'a>; N],
    results: Results<'a>,
    len: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl<F: Elementwise<N>, const N: usize> Kernel for Rectangle<'_, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut buffers = [const { Block::uninit() }; N];
        let mut narrow = Block::uninit();
        let mut from = [std::ptr::null(); N];
        for row in self.rows {
            for i in 0..N {
                let operand = &self.operands[i];
                if operand.splat {
                    let count = self.columns.len().min(BLOCK);
                    let buffer = buffers[i].as_mut_ptr();
                    // SAFETY: the element exists by `elementwise`'s contract, and the buffer holds a block.
                    unsafe {
                        let value = operand.source.get(operand.start + row * operand.row_stride);
                        for at in 0..count {
                            buffer.add(at).write(value);
                        }
                    }
                    from[i] = buffer.cast_const();
                }
            }
            for column in self.columns.clone().step_by(BLOCK) {
                let count = (self.columns.end - column).min(BLOCK);
                let at = self.results.start + row * self.len + column;
                // SAFETY: the elements exist by `elementwise`'s contract, a buffer holds `count` <= BLOCK values, and the
                // rectangles of the tasks do not overlap.
                unsafe {
                    for i in 0..N {
                        let operand = &self.operands[i];
                        if !operand.splat {
                            let at = operand.start + row * operand.row_stride + column;
                            from[i] = operand.source.read(simd, at, count, buffers[i].as_mut_ptr());
                        }
                    }
                    let to = self.results.target.place(at, narrow.as_mut_ptr());
                    run(simd, self.function, from, to, count);
                    self.results.target.commit(simd, at, count, to);
                }
            }
        }
    }
}

/// `to[i] = function(from[0][i], from[1][i], …)` for `count` values.
///
/// # Safety
/// Every pointer is valid for `count` values.
#[inline(always)]
pub(crate) unsafe fn run<S: Simd, F: Elementwise<N>, const N: usize>(
    simd: S,
    function: &F,
    from: [*const f32; N],
    to: *mut f32,
    count: usize,
) {
    let mut at = 0;
    // SAFETY: no step goes beyond `count`.
    unsafe {
        while at + UNROLL * S::LANES <= count {
            for i in 0..UNROLL {
                step(simd, function, from, to, at + i * S::LANES, S::LANES);
            }
            at += UNROLL * S::LANES;
        }
        while at + S::LANES <= count {
            step(simd, function, from, to, at, S::LANES);
            at += S::LANES;
        }
        if at < count {
            step(simd, function, from, to, at, count - at);
        }
    }
}

/// One vector, or the `lanes` of it that are left.
///
/// # Safety
/// Every pointer is valid for `at + lanes` values, `lanes` at most `S::LANES`.
#[inline(always)]
unsafe fn step<S: Simd, F: Elementwise<N>, const N: usize>(
    simd: S,
    function: &F,
    from: [*const f32; N],
    to: *mut f32,
    at: usize,
    lanes: usize,
) {
    let mut values = [simd.zero(); N];
    // SAFETY: passed on from the caller.
    unsafe {
        for i in 0..N {
            values[i] = load_up_to(simd, from[i].add(at), lanes);
        }
        store_up_to(simd, to.add(at), function.apply(simd, values), lanes);
    }
}

//! The innermost loop: a register tile of C, from a few rows of A and one panel of B.

use crate::simd::Simd;

/// Columns of a register tile, and of a panel of B.
pub(crate) const fn panel_columns<S: Simd>() -> usize {
    2 * S::LANES
}

/// What happens to a tile's old values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// The product replaces them.
    Replace,
    /// The product is added to them.
    Add,
}

/// What is added to the finished sums as they are written.
#[derive(Clone, Copy, Default)]
pub(crate) struct Addends {
    /// A value for each column of the panel.
    pub(crate) bias: Option<*const f32>,
    /// A value for each element.
    pub(crate) tensor: Option<Strided<*const f32>>,
}

impl Addends {
    /// The same from this column on.
    #[inline(always)]
    pub(crate) fn at_column(self, column: usize) -> Self {
        let forward = |start: *const f32| start.wrapping_add(column);
        Self {
            bias: self.bias.map(forward),
            tensor: self.tensor.map(|tensor| Strided { start: forward(tensor.start), ..tensor }),
        }
    }

    /// The same from this row on.
    #[inline(always)]
    pub(crate) fn at_row(self, row: usize) -> Self {
        let from_row = |tensor: Strided<*const f32>| Strided {
            start: tensor.start.wrapping_add(row * tensor.stride),
            ..tensor
        };
        Self { tensor: self.tensor.map(from_row), ..self }
    }

    /// Whether there is nothing to add.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        self.bias.is_none() && self.tensor.is_none()
    }
}

/// How a step of the depth is multiplied. A step takes the bits of an f32 in each operand.
pub(crate) trait Arithmetic {
    /// `a · b + c`.
    fn mul_add<S: Simd>(simd: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32;
}

/// A step is an f32 value.
#[derive(Clone, Copy)]
pub(crate) struct Singles;

impl Arithmetic for Singles {
    #[inline(always)]
    fn mul_add<S: Simd>(simd: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
        simd.mul_add(a, b, c)
    }
}

/// A step is a pair of bfloat16 values that follow each other along the depth.
#[derive(Clone, Copy)]
pub(crate) struct Pairs;

impl Arithmetic for Pairs {
    #[inline(always)]
    fn mul_add<S: Simd>(simd: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
        simd.mul_add_pairs(a, b, c)
    }
}

/// Rows of f32 values in memory, `stride` values apart.
#[derive(Clone, Copy)]
pub(crate) struct Strided<P> {
    /// The first value of the first row.
    pub(crate) start: P,
    /// Values from one row to the next.
    pub(crate) stride: usize,
}

/// The rows of the left operand, each a sequence of runs of consecutive steps.
pub(super) trait Left: Copy {
    /// How many runs a row has.
    fn runs(self) -> usize;

    /// How many steps run `run` of every row has.
    fn length(self, run: usize) -> usize;

    /// The first step of a run of a row; pairs need no more alignment than their values.
    ///
    /// # Safety
    /// Run and row exist.
    unsafe fn start(self, run: usize, row: usize) -> *const f32;
}

/// Rows of a single run each.
#[derive(Clone, Copy)]
struct SingleRun {
    rows: Strided<*const f32>,
    depth: usize,
}

impl Left for SingleRun {
    #[inline(always)]
    fn runs(self) -> usize {
        1
    }

    #[inline(always)]
    fn length(self, _: usize) -> usize {
        self.depth
    }

    #[inline(always)]
    unsafe fn start(self, _: usize, row: usize) -> *const f32 {
        self.rows.start.wrapping_add(row * self.rows.stride)
    }
}

/// Rows of several runs each, anywhere in memory: the pixels under the taps of a convolution.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    /// The length of each run.
    pub(crate) lengths: &'a [usize],
    /// Where each begins: first those of the first run, one per row.
    pub(crate) starts: &'a [*const f32],
    /// How many rows there are: stored, because a division for each start would cost as much as a short run.
    pub(crate) rows: usize,
}

impl Left for Runs<'_> {
    #[inline(always)]
    fn runs(self) -> usize {
        self.lengths.len()
    }

    #[inline(always)]
    fn length(self, run: usize) -> usize {
        self.lengths[run]
    }

    #[inline(always)]
    unsafe fn start(self, run: usize, row: usize) -> *const f32 {
        // SAFETY: the caller promises that run and row exist.
        unsafe { *self.starts.get_unchecked(run * self.rows + row) }
    }
}

/// `C[rows, 2·LANES] (+)= A[rows, depth] · panel[depth, 2·LANES]`, any number of rows.
///
/// # Safety
/// `a` must be readable for `rows` rows of `depth` values, `panel` for `depth · 2·LANES` values, and `c` writable (and
/// initialised, to add) for `rows` rows of `2·LANES` values that overlap neither of the others.
#[inline(always)]
pub(crate) unsafe fn multiply_panel<S: Simd>(
    simd: S,
    rows: usize,
    depth: usize,
    a: Strided<*const f32>,
    panel: *const f32,
    c: Strided<*mut f32>,
    update: Update,
) {
    // SAFETY: the contract is the caller's, passed on unchanged.
    unsafe {
        multiply::<S, Singles, _>(
            simd,
            rows,
            SingleRun { rows: a, depth },
            panel,
            c,
            update,
            Addends::default(),
        )
    }
}

/// As [`multiply_panel`], with rows that lie in runs and any arithmetic, whose steps rows and panel consist of; `addends` are
/// added.
///
/// # Safety
/// As for [`multiply_panel`]: each start must be readable for the length of its run, and the lengths add up to the depth.
/// The addends must be readable for the panel's columns, and for the rows; their tensor may be `c` itself, which then is
/// replaced.
#[inline(always)]
pub(crate) unsafe fn multiply_panel_by_runs<S: Simd, A: Arithmetic>(
    simd: S,
    a: Runs<'_>,
    panel: *const f32,
    c: Strided<*mut f32>,
    update: Update,
    addends: Addends,
) {
    // SAFETY: the contract is the caller's, passed on unchanged.
    unsafe { multiply::<S, A, _>(simd, a.rows, a, panel, c, update, addends) }
}

/// Calls `tile` with the constant number of rows that equals `$rows`, among those the instruction set has registers for.
macro_rules! with_rows {
    ([$simd:ty, $arithmetic:ty, $left:ty], $rows:expr, [$($count:literal)*], $arguments:tt) => {
        match $rows {
            $($count if $count <= <$simd>::ROWS => tile::<$simd, $arithmetic, $left, $count> $arguments,)*
            _ => {}
        }
    };
}

/// # Safety
/// As for [`multiply_panel`].
#[inline(always)]
unsafe fn multiply<S: Simd, A: Arithmetic, L: Left>(
    simd: S,
    rows: usize,
    a: L,
    panel: *const f32,
    c: Strided<*mut f32>,
    update: Update,
    addends: Addends,
) {
    let mut row = 0;
    while row < rows {
        // SAFETY: `row` is within the rows that the caller vouches for, and so are the rows of the tile from there on.
        unsafe {
            let c = Strided { start: c.start.add(row * c.stride), ..c };
            let addends = addends.at_row(row);
            if rows - row >= S::ROWS {
                with_rows!([S, A, L], S::ROWS, [4 6 8 12], (simd, a, row, panel, c, update, addends));
            } else {
                let rest = rows - row;
                with_rows!([S, A, L], rest, [1 2 3 4 5 6 7 8 9 10 11], (simd, a, row, panel, c, update, addends));
            }
        }
        row += S::ROWS;
    }
}

/// One register tile, of the rows of A from `first` on. `ROWS` is a constant so that the accumulators are registers and
/// every loop over them unrolls.
///
/// # Safety
/// As for [`multiply_panel`], for `ROWS` rows.
#[inline(always)]
unsafe fn tile<S: Simd, A: Arithmetic, L: Left, const ROWS: usize>(
    simd: S,
    a: L,
    first: usize,
    panel: *const f32,
    c: Strided<*mut f32>,
    update: Update,
    addends: Addends,
) {
    let mut sums = [[simd.zero(); 2]; ROWS];
    let mut line = panel;
    for run in 0..a.runs() {
        let mut starts = [std::ptr::null::<f32>(); ROWS];
        for (index, start) in starts.iter_mut().enumerate() {
            // SAFETY: the caller vouches for ROWS rows from `first` on.
            *start = unsafe { a.start(run, first + index) };
        }
        for k in 0..a.length(run) {
            // SAFETY: `k` is within the run, so the line of the panel and the step of each row of A are the caller's.
            unsafe {
                let columns = [simd.load(line), simd.load(line.add(S::LANES))];
                line = line.add(panel_columns::<S>());
                for (start, sums) in starts.iter().zip(&mut sums) {
                    let value = simd.splat(start.add(k).read_unaligned());
                    sums[0] = A::mul_add(simd, value, columns[0], sums[0]);
                    sums[1] = A::mul_add(simd, value, columns[1], sums[1]);
                }
            }
        }
    }
    // One small loop after the other: each must unroll, or the accumulators would be memory instead of registers.
    // SAFETY: the caller vouches for ROWS rows of two vectors, of C and of the addends.
    unsafe {
        if update == Update::Add {
            add_rows(simd, &mut sums, Strided { start: c.start.cast_const(), stride: c.stride });
        }
        if let Some(bias) = addends.bias {
            add_rows(simd, &mut sums, Strided { start: bias, stride: 0 });
        }
        if let Some(tensor) = addends.tensor {
            add_rows(simd, &mut sums, tensor);
        }
        for (index, sums) in sums.iter().enumerate() {
            let target = c.start.add(index * c.stride);
            simd.store(target, sums[0]);
            simd.store(target.add(S::LANES), sums[1]);
        }
    }
}

/// Adds rows of two vectors to the accumulators.
///
/// # Safety
/// `values` must be readable for ROWS rows of two vectors.
#[inline(always)]
unsafe fn add_rows<S: Simd, const ROWS: usize>(
    simd: S,
    sums: &mut [[S::F32; 2]; ROWS],
    values: Strided<*const f32>,
) {
    for (index, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller vouches for the rows.
        unsafe {
            let row = values.start.add(index * values.stride);
            sums[0] = simd.add(sums[0], simd.load(row));
            sums[1] = simd.add(sums[1], simd.load(row.add(S::LANES)));
        }
    }
}

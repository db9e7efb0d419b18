//! Matrices made by rule, from a seed.
//!
//! Every row comes from the seed and its own number alone, so rows are made on all cores and are the same on any number of them. The
//! arrays are made at their final size: nothing but the matrix is held.

use std::{fmt, str::FromStr};

use rayon::prelude::*;

use super::csr::{self, Csr, CsrError, Index, Value};

/// What a generated matrix looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Non-zeros on the diagonal alone.
    Diagonal,
    /// Rows of one length within a band around the diagonal.
    Banded,
    /// Rows of nearly one length, columns anywhere.
    Uniform,
    /// Few rows have most of the non-zeros, and few columns are read by most.
    PowerLaw,
    /// Dense squares on the diagonal.
    Block,
    /// As uniform, but three rows of four are empty.
    EmptyRows,
    /// As uniform, with one row that has a non-zero in every column.
    DenseRow,
    /// The five-point stencil of a square.
    Stencil2d,
    /// The seven-point stencil of a cube.
    Stencil3d,
}

impl Kind {
    /// Every kind, by name.
    pub const ALL: [(&'static str, Kind); 9] = [
        ("diagonal", Kind::Diagonal),
        ("banded", Kind::Banded),
        ("uniform", Kind::Uniform),
        ("power-law", Kind::PowerLaw),
        ("block", Kind::Block),
        ("empty-rows", Kind::EmptyRows),
        ("dense-row", Kind::DenseRow),
        ("stencil-2d", Kind::Stencil2d),
        ("stencil-3d", Kind::Stencil3d),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// The names of all kinds.
fn kinds() -> String {
    Kind::ALL.map(|(name, _)| name).join(", ")
}

/// A matrix to generate, as `power-law:rows=100000,nonzeros=3000000,seed=1` spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// What it looks like.
    pub kind: Kind,
    /// Rows. A stencil has the largest square or cube that is not larger.
    pub rows: usize,
    /// Columns; as many as rows where the kind says so.
    pub columns: usize,
    /// Non-zeros to aim at; what a kind fixes by itself ignores them.
    pub nonzeros: usize,
    /// The seed.
    pub seed: u64,
}

/// Why a matrix cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// No such kind.
    #[error("{name:?} is no kind of matrix; write one of {}", kinds())]
    Kind {
        /// What was written.
        name: String,
    },
    /// A setting without a name or a number.
    #[error("{0:?} is not a setting; write rows=N, columns=N, nonzeros=N or seed=N")]
    Setting(String),
    /// A matrix of no rows or no columns cannot have non-zeros.
    #[error("{nonzeros} non-zeros do not fit a matrix of {rows} × {columns}")]
    Crowded {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
        /// Non-zeros.
        nonzeros: usize,
    },
    /// The matrix does not fit its types.
    #[error(transparent)]
    Csr(#[from] CsrError),
    /// There is not so much memory.
    #[error("there is no memory for the {bytes} bytes of this matrix; ask for fewer rows or non-zeros")]
    Memory {
        /// What it takes.
        bytes: u64,
    },
}

impl FromStr for Recipe {
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Recipe, RecipeError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let kind = Kind::ALL.iter().find(|(known, _)| *known == name.trim());
        let kind = kind.ok_or_else(|| RecipeError::Kind { name: name.to_owned() })?.1;
        let (mut rows, mut columns, mut nonzeros, mut seed) = (10_000, None, None, 1);
        for setting in settings.split(',').filter(|setting| !setting.trim().is_empty()) {
            let wrong = || RecipeError::Setting(setting.to_owned());
            let (name, number) = setting.split_once('=').ok_or_else(wrong)?;
            let number: u64 = number.trim().parse().map_err(|_| wrong())?;
            let count = usize::try_from(number).map_err(|_| wrong())?;
            match name.trim() {
                "rows" => rows = count,
                "columns" => columns = Some(count),
                "nonzeros" => nonzeros = Some(count),
                "seed" => seed = number,
                _ => return Err(wrong()),
            }
        }
        let nonzeros = nonzeros.unwrap_or_else(|| rows.saturating_mul(10));
        Ok(Recipe { kind, rows, columns: columns.unwrap_or(rows), nonzeros, seed })
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recipe { kind, rows, columns, nonzeros, seed } = self;
        write!(f, "{}:rows={rows}", kind.name())?;
        if columns != rows {
            write!(f, ",columns={columns}")?;
        }
        write!(f, ",nonzeros={nonzeros},seed={seed}")
    }
}

/// One number of a stream that a key names: splitmix64.
fn mix(key: u64) -> u64 {
    let mut bits = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Pseudo-random numbers of one row.
struct Random(u64);

impl Random {
    fn of(seed: u64, row: usize, stream: u64) -> Random {
        Random(mix(mix(seed ^ stream.wrapping_mul(0xA24B_AED4_963E_E407)) ^ row as u64))
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The numbers of a vector by a seed, from -1 to 1.
pub fn vector<V: Value>(length: usize, seed: u64) -> Vec<V> {
    let number = |place: usize| V::from_f64(2.0 * Random::of(seed, place, 7).share() - 1.0);
    (0..length).into_par_iter().map(number).collect()
}

/// What a matrix looks like once its extents are fixed.
struct Shape {
    recipe: Recipe,
    /// The side of a stencil's square or cube, or of a block.
    side: usize,
    /// The row that is dense.
    dense: usize,
    /// By which a power-law row's weight is multiplied to give its length.
    scale: f64,
}

/// The exponent of the distribution of power-law row lengths: lengths fall with rank as `rank^-0.7`.
const DECAY: f64 = 0.7;

impl Shape {
    fn new(mut recipe: Recipe) -> Shape {
        let (mut side, mut scale) = (1, 0.0);
        let Recipe { rows, nonzeros, seed, .. } = recipe;
        match recipe.kind {
            Kind::Stencil2d => {
                side = root(rows, 2);
                recipe.rows = side * side;
                recipe.columns = recipe.rows;
            }
            Kind::Stencil3d => {
                side = root(rows, 3);
                recipe.rows = side * side * side;
                recipe.columns = recipe.rows;
            }
            Kind::Block => side = (nonzeros / rows.max(1)).clamp(1, recipe.columns.max(1)),
            Kind::PowerLaw => scale = power_scale(&recipe),
            _ => {}
        }
        let dense = if rows > 0 { (mix(seed) % rows as u64) as usize } else { 0 };
        Shape { recipe, side, dense, scale }
    }

    /// How many non-zeros a row has.
    fn length(&self, row: usize) -> usize {
        let Recipe { kind, rows, columns, nonzeros, seed, .. } = self.recipe;
        let even = |rows: usize, row: usize| nonzeros / rows + usize::from(row < nonzeros % rows);
        match kind {
            Kind::Diagonal => usize::from(row < columns),
            Kind::Banded => even(rows, row).min(columns),
            Kind::Uniform => even(rows, row).min(columns),
            Kind::PowerLaw => power_length(self.scale, rank(seed, row, rows), columns),
            Kind::Block => {
                let first = row / self.side * self.side;
                columns.saturating_sub(first).min(self.side)
            }
            Kind::EmptyRows => match row % 4 {
                0 => even(rows.div_ceil(4), row / 4).min(columns),
                _ => 0,
            },
            Kind::DenseRow if row == self.dense => columns,
            Kind::DenseRow => (nonzeros.saturating_sub(columns) / rows).min(columns),
            Kind::Stencil2d | Kind::Stencil3d => self.neighbours(row).flatten().count(),
        }
    }

    /// The points of a stencil around a row that exist, in order.
    fn neighbours(&self, row: usize) -> impl Iterator<Item = Option<usize>> + use<> {
        let (side, rows) = (self.side, self.recipe.rows);
        let plane = side * side;
        let cube = self.recipe.kind == Kind::Stencil3d;
        let (x, y) = (row % side, row / side % side);
        [
            (cube && row >= plane).then(|| row - plane),
            (y > 0).then(|| row - side),
            (x > 0).then(|| row - 1),
            Some(row),
            (x + 1 < side).then(|| row + 1),
            (y + 1 < side).then(|| row + side),
            (cube && row + plane < rows).then(|| row + plane),
        ]
        .into_iter()
    }

    /// The columns and values of a row.
    fn fill<V: Value, I: Index>(&self, row: usize, indices: &mut [I], values: &mut [V]) {
        let Recipe { kind, columns, seed, rows, .. } = self.recipe;
        let length = indices.len();
        let mut random = Random::of(seed, row, 1);
        // The columns are drawn from consecutive strata, so that they ascend and differ.
        let spread = |random: &mut Random, first: usize, width: usize, place: usize| {
            let (low, high) = (stratum(width, length, place), stratum(width, length, place + 1));
            first + low + (random.share() * (high - low) as f64) as usize
        };
        match kind {
            Kind::Diagonal => indices.iter_mut().for_each(|index| *index = I::from_usize(row)),
            Kind::Stencil2d | Kind::Stencil3d => {
                for (index, column) in indices.iter_mut().zip(self.neighbours(row).flatten()) {
                    *index = I::from_usize(column);
                }
            }
            Kind::Block => {
                let first = row / self.side * self.side;
                indices.iter_mut().enumerate().for_each(|(i, index)| *index = I::from_usize(first + i));
            }
            Kind::Banded => {
                let width = (2 * length).min(columns);
                let centre = (row as u128 * columns as u128 / rows.max(1) as u128) as usize;
                let first = centre.saturating_sub(width / 2).min(columns - width);
                for (place, index) in indices.iter_mut().enumerate() {
                    *index = I::from_usize(spread(&mut random, first, width, place));
                }
            }
            Kind::PowerLaw => {
                let mut next = 0;
                for (place, index) in indices.iter_mut().enumerate() {
                    let share = (place as f64 + random.share()) / length as f64;
                    // Squared, so that the first columns are read most.
                    let column = (share * share * columns as f64) as usize;
                    let column = column.clamp(next, columns - (length - place));
                    *index = I::from_usize(column);
                    next = column + 1;
                }
            }
            Kind::Uniform | Kind::EmptyRows | Kind::DenseRow => {
                for (place, index) in indices.iter_mut().enumerate() {
                    *index = I::from_usize(spread(&mut random, 0, columns, place));
                }
            }
        }
        values.iter_mut().for_each(|value| *value = V::from_f64(2.0 * random.share() - 1.0));
    }
}

/// Where a stratum of `width` columns begins that are cut into `count`.
fn stratum(width: usize, count: usize, place: usize) -> usize {
    (width as u128 * place as u128 / count.max(1) as u128) as usize
}

/// The largest whole number whose power is not larger.
fn root(number: usize, power: u32) -> usize {
    let mut side = (number as f64).powf(1.0 / f64::from(power)).round() as usize;
    while side > 0 && side.checked_pow(power).is_none_or(|whole| whole > number) {
        side -= 1;
    }
    side
}

/// The rank of a row by length, a permutation of the rows that the seed chooses.
fn rank(seed: u64, row: usize, rows: usize) -> usize {
    // A product by an odd number permutes the residues of a power of two; walking on while it is out of range keeps it a permutation.
    let size = (rows.max(1) as u64).next_power_of_two();
    let (factor, shift) = (mix(seed) | 1, mix(seed ^ 5));
    let half = (size.trailing_zeros() / 2).max(1);
    let mut place = row as u64;
    loop {
        place = place.wrapping_mul(factor).wrapping_add(shift) & (size - 1);
        place ^= place >> half;
        place = place.wrapping_mul(factor) & (size - 1);
        if place < rows as u64 {
            return place as usize;
        }
    }
}

fn power_length(scale: f64, rank: usize, columns: usize) -> usize {
    ((scale * (rank as f64 + 1.0).powf(-DECAY)).round() as usize).min(columns)
}

/// The scale at which the rows have about as many non-zeros together as they should.
fn power_scale(recipe: &Recipe) -> f64 {
    let Recipe { rows, columns, nonzeros, .. } = *recipe;
    // Ranks are summed in groups. Each group has an eighth as many ranks as lie before it.
    let total = |scale: f64| -> f64 {
        let (mut sum, mut first) = (0.0, 0);
        while first < rows {
            let count = (first / 8).max(1).min(rows - first);
            sum += count as f64 * power_length(scale, first + count / 2, columns) as f64;
            first += count;
        }
        sum
    };
    let (mut low, mut high) = (0.0, 2.0 * columns as f64 * (rows as f64 + 1.0).powf(DECAY));
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        match total(middle) < nonzeros as f64 {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

impl Recipe {
    /// Makes the matrix.
    ///
    /// # Errors
    /// If it does not fit its types or the memory, or there is no room for so many non-zeros.
    pub fn generate<V: Value, I: Index>(&self) -> Result<Csr<V, I>, RecipeError> {
        let Recipe { rows, columns, nonzeros, .. } = *self;
        let fixed = matches!(self.kind, Kind::Diagonal | Kind::Stencil2d | Kind::Stencil3d);
        csr::fits::<I>(rows as u64, columns as u64, if fixed { 0 } else { nonzeros as u64 })?;
        if !fixed && nonzeros as u128 > rows as u128 * columns as u128 {
            return Err(RecipeError::Crowded { rows, columns, nonzeros });
        }
        let shape = Shape::new(*self);
        let Recipe { rows, columns, .. } = shape.recipe;
        let mut offsets: Vec<I> = room(rows + 1, csr::bytes::<V, I>(rows as u64, 0))?;
        offsets.push(I::from_usize(0));
        let mut end = 0usize;
        for row in 0..rows {
            end = end.saturating_add(shape.length(row));
            csr::fits::<I>(rows as u64, columns as u64, end as u64)?;
            offsets.push(I::from_usize(end));
        }
        let bytes = csr::bytes::<V, I>(rows as u64, end as u64);
        let mut indices: Vec<I> = room(end, bytes)?;
        indices.resize(end, I::from_usize(0));
        let mut values: Vec<V> = room(end, bytes)?;
        values.resize(end, V::from_f64(0.0));
        fill_rows(&shape, &offsets, &mut indices, &mut values);
        Ok(Csr::new(rows, columns, offsets, indices, values)?)
    }
}

fn room<T>(count: usize, bytes: u64) -> Result<Vec<T>, RecipeError> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| RecipeError::Memory { bytes })?;
    Ok(all)
}

/// Fills rows on all cores: the arrays are halved until a part is small.
fn fill_rows<V: Value, I: Index>(shape: &Shape, offsets: &[I], indices: &mut [I], values: &mut [V]) {
    fn part<V: Value, I: Index>(
        shape: &Shape,
        offsets: &[I],
        first: usize,
        indices: &mut [I],
        values: &mut [V],
    ) {
        let rows = offsets.len() - 1;
        if rows > 1 && rows + indices.len() > 1 << 16 {
            let middle = rows / 2;
            let cut = offsets[middle].at() - offsets[0].at();
            let (left, right) = indices.split_at_mut(cut);
            let (left_values, right_values) = values.split_at_mut(cut);
            rayon::join(
                || part(shape, &offsets[..=middle], first, left, left_values),
                || part(shape, &offsets[middle..], first + middle, right, right_values),
            );
            return;
        }
        let base = offsets[0].at();
        for (row, pair) in offsets.windows(2).enumerate() {
            let range = pair[0].at() - base..pair[1].at() - base;
            shape.fill(first + row, &mut indices[range.clone()], &mut values[range]);
        }
    }
    part(shape, offsets, 0, indices, values);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> Csr<f32, i32> {
        text.parse::<Recipe>().unwrap().generate().unwrap()
    }

    fn lengths(matrix: &Csr<f32, i32>) -> Vec<usize> {
        (0..matrix.rows()).map(|row| matrix.row(row).len()).collect()
    }

    #[test]
    fn every_kind_is_as_it_says() {
        for (name, kind) in Kind::ALL {
            let matrix = made(&format!("{name}:rows=1000,nonzeros=20000,seed=3"));
            for row in 0..matrix.rows() {
                let columns = &matrix.indices()[matrix.row(row)];
                assert!(columns.windows(2).all(|pair| pair[0] < pair[1]), "{name}: columns ascend");
            }
            let lengths = lengths(&matrix);
            let most = lengths.iter().copied().max().unwrap();
            match kind {
                Kind::Diagonal => assert!(matrix.nonzeros() == 1000 && most == 1),
                Kind::Banded | Kind::Uniform | Kind::Block => {
                    assert!(matrix.nonzeros() == 20_000 && most == 20)
                }
                Kind::PowerLaw => {
                    assert!((18_000..22_000).contains(&matrix.nonzeros()), "{}", matrix.nonzeros());
                    let mean = matrix.nonzeros() / 1000;
                    assert!(most > 10 * mean, "{most}");
                }
                Kind::EmptyRows => {
                    assert_eq!(lengths.iter().filter(|&&length| length == 0).count(), 750);
                    assert_eq!(matrix.nonzeros(), 20_000);
                }
                Kind::DenseRow => assert!(most == 1000 && matrix.nonzeros() == 1000 + 999 * 19),
                // A square of 31, a cube of 10: each point, and each pair of neighbours twice.
                Kind::Stencil2d => assert_eq!(matrix.nonzeros(), 961 + 4 * 31 * 30),
                Kind::Stencil3d => assert_eq!(matrix.nonzeros(), 1000 + 6 * 100 * 9),
            }
            let banded = kind == Kind::Banded;
            let far = (0..1000.min(matrix.rows()))
                .flat_map(|row| {
                    matrix.indices()[matrix.row(row)].iter().map(move |&c| c.abs_diff(row as i32))
                })
                .max();
            assert!(!banded || far.unwrap() <= 40);
        }
    }

    #[test]
    fn the_seed_decides_and_the_threads_do_not() {
        let recipe: Recipe = "power-law:rows=3000,nonzeros=200000,seed=8".parse().unwrap();
        let of = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| recipe.generate::<f64, i64>().unwrap())
        };
        assert_eq!(of(1), of(3));
        assert_ne!(of(1), Recipe { seed: 9, ..recipe }.generate().unwrap());
        assert_eq!(recipe.to_string().parse(), Ok(recipe));
    }

    #[test]
    fn ranks_are_a_permutation() {
        for rows in [1, 2, 3, 100, 1000] {
            let mut ranks: Vec<usize> = (0..rows).map(|row| rank(4, row, rows)).collect();
            ranks.sort_unstable();
            assert_eq!(ranks, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn extents_may_be_odd() {
        for (name, _) in Kind::ALL {
            for (rows, columns, nonzeros) in
                [(0, 0, 0), (0, 5, 0), (5, 0, 0), (1, 1, 1), (3, 100, 30), (100, 3, 30)]
            {
                let text = format!("{name}:rows={rows},columns={columns},nonzeros={nonzeros}");
                let made: Result<Csr<f32, i32>, _> = text.parse::<Recipe>().unwrap().generate();
                assert!(made.is_ok(), "{text}: {made:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(matches!("web:rows=1".parse::<Recipe>(), Err(RecipeError::Kind { .. })));
        for wrong in ["uniform:rows", "uniform:rows=-1", "uniform:size=3", "uniform:rows=x"] {
            assert!(matches!(wrong.parse::<Recipe>(), Err(RecipeError::Setting(_))), "{wrong}");
        }
        let of = |text: &str| text.parse::<Recipe>().unwrap().generate::<f32, i32>().unwrap_err();
        assert!(matches!(of("uniform:rows=3,nonzeros=10"), RecipeError::Crowded { .. }));
        assert!(matches!(of("uniform:rows=4000000000"), RecipeError::Csr(_)));
        assert!(matches!(of("uniform:rows=2000000000,nonzeros=2000000000"), RecipeError::Csr(_)));
        let all = "uniform:rows=9000000000000000000,columns=1,nonzeros=1".parse::<Recipe>().unwrap();
        assert!(matches!(all.generate::<f32, i64>().unwrap_err(), RecipeError::Memory { .. }));
    }
}

//! Group norm.

use kinora_graph::{
    TensorType,
    op::{Norm, NormKind},
};

use super::Problem;
use crate::{
    Architecture, Chip, CudaError,
    kernels::{
        Kernel, Launch, Places, Source,
        geometry::{WIDEST_ACCESS, vector},
        names::type_name,
    },
    launch::{
        arguments, c_struct,
        limits::{PORTABLE_CLUSTER_BLOCKS, grid, int, long},
    },
};

const SOURCE: Source = Source { path: "norm/group.cu", text: include_str!("group.cu") };
const PLAIN: Source = Source { path: "norm/group_plain.cu", text: include_str!("group_plain.cu") };

/// Threads of a block of the plain kernel, as its source has them.
const PLAIN_THREADS: usize = 256;

/// Threads of a block of the chunked kernels, unless a row of a set needs more.
const CHUNK_THREADS: usize = 256;

/// Numbers of threads that a block of the whole kernel may have.
const WHOLE_THREADS: [usize; 3] = [128, 256, 512];

/// The most threads of a block: they have up to 128 registers each.
const MOST_THREADS: usize = 512;

/// Registers in which a thread of the whole kernel holds elements at most.
const MOST_WORDS: usize = 62;

/// Registers of a multiprocessor.
const REGISTERS: usize = 65536;

/// Blocks of a cluster that hold groups together. More than eight are not portable: a chip may refuse them.
const CLUSTERS: [usize; 5] = [1, 2, 4, 8, 16];

/// Bytes of the narrowest access that is chosen where a wider one would do.
const LEAST_ACCESS: usize = 4;

/// How many cuts of the whole kernel are offered.
const MOST_CUTS: usize = 4;

/// Bytes of a row that a block of the chunked kernels reads at least, if there are as many.
const LEAST_SPAN: usize = 64;

/// Chunks of a slab's statistics, if sets of fewer groups can keep them to that.
const MOST_CHUNKS: usize = 48;

/// Statistics that all blocks together read are light if the tensor has so many times as many bytes.
const LIGHT: usize = 16;

/// Blocks that write, for each multiprocessor.
const WRITING_BLOCKS: usize = 6;

/// Bytes of the statistics of a group in a chunk: four floats.
const PART_BYTES: usize = 16;

/// Shared memory that a kernel may declare.
const DECLARED_BYTES: usize = 48 << 10;

/// The extents of a group norm: images that share statistics are one slab of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    slabs: usize,
    rows: usize,
    channels: usize,
    groups: usize,
}

impl Extents {
    /// The extents of a group norm of some elements; `None` for other norms.
    pub(super) fn of(norm: &Norm, x: &TensorType) -> Option<Extents> {
        let NormKind::Group { groups, frames } = norm.kind else { return None };
        let slabs = x.shape[0] / frames;
        let rows = x.shape.rows().checked_div(slabs).unwrap_or(0);
        Some(Extents { slabs, rows, channels: x.shape.channels(), groups })
    }

    fn members(&self) -> usize {
        self.channels / self.groups
    }

    /// Bytes of the elements.
    fn bytes(&self, x: &TensorType) -> usize {
        let rows = self.slabs.saturating_mul(self.rows);
        rows.saturating_mul(self.channels).saturating_mul(x.dtype.size())
    }
}

c_struct! {
    /// A slab of rows, and how it is cut.
    struct Slab {
        rows: i64,
        chunk_rows: i64,
        chunks: i64,
    }
}

impl Extents {
    /// A slab in chunks of some rows and their number.
    fn slab(&self, [chunk_rows, chunks]: [usize; 2]) -> Slab {
        Slab { rows: long(self.rows), chunk_rows: long(chunk_rows), chunks: long(chunks) }
    }
}

/// Neighbouring groups that a block has, and how its threads share their channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    /// Elements of a vector.
    width: usize,
    groups: usize,
    /// Vectors of a row.
    columns: usize,
    /// Threads of a block: some for each of several rows.
    threads: usize,
}

impl Set {
    /// The fewest groups that are whole vectors of some width. The width must divide the channels.
    fn least_groups(extents: Extents, width: usize) -> usize {
        width / vector(extents.members(), width)
    }

    /// Some groups in vectors of some width; `None` if a row is longer than a block, or the statistics are more than a
    /// block's shared memory.
    fn new(extents: Extents, width: usize, groups: usize, threads: usize) -> Option<Set> {
        let channels = groups * extents.members();
        // As the kernel has it: two floats for each channel of a thread, three a channel, and two parts a group.
        let shared = (2 * width * threads + 3 * channels + 8 * groups) * size_of::<f32>();
        let set = Set { width, groups, columns: channels / width, threads };
        (set.columns <= threads && shared <= DECLARED_BYTES).then_some(set)
    }

    /// Rows that the threads have at once.
    fn lanes(&self) -> usize {
        self.threads / self.columns
    }

    /// Sets of all slabs.
    fn count(&self, extents: Extents) -> usize {
        extents.slabs.saturating_mul(extents.groups / self.groups)
    }

    /// A kernel for these groups.
    fn kernel(&self, entry: &'static str, problem: &Problem, extents: Extents) -> Kernel {
        let mut kernel = Kernel::new(SOURCE, entry)
            .with("TYPE", type_name(problem.x.dtype))
            .with("VECTOR", self.width)
            .with("CHANNELS", extents.channels)
            .with("MEMBERS", extents.members())
            .with("GROUPS", self.groups)
            .with("THREADS", self.threads);
        kernel.hot = true;
        problem.specialise(kernel)
    }
}

/// What the expected time of a norm is made of, in clocks of a multiprocessor. Only their proportions matter, and only
/// to the order in which the cuts are offered.
mod clocks {
    /// From a launch to the next.
    pub const LAUNCH: f64 = 3500.0;
    /// A block that reads, finds statistics and writes, however little that is.
    pub const BLOCK: f64 = 2000.0;
    /// What blocks of a cluster wait for each other, and for each of them.
    pub const CLUSTER: [f64; 2] = [600.0, 40.0];
    /// Of a warp, for an element of each thread: 13 instructions, and two of the special function unit, which takes
    /// eight clocks for each.
    pub const ELEMENT: f64 = 20.0;
    /// Of a warp, for a read and a write of a vector.
    pub const ACCESS: f64 = 6.0;
    /// Of a warp, for statistics: in all, and for each channel of a vector.
    pub const STATISTICS: [f64; 2] = [150.0, 20.0];
    /// Warps that a multiprocessor issues instructions of at once.
    pub const SCHEDULERS: f64 = 4.0;
    /// Bytes a clock, for each multiprocessor: of the L2 cache, and of memory.
    pub const BYTES: [f64; 2] = [24.0, 18.0];
    /// Bytes of a tensor that stays in the L2 cache.
    pub const CACHED: f64 = 16e6;
}

/// Clocks that a chip takes to move a tensor once, in rows of some bytes that lie apart.
fn transfer(extents: Extents, x: &TensorType, span: usize, chip: &Chip) -> f64 {
    let bytes = extents.bytes(x) as f64;
    let [cache, memory] = clocks::BYTES.map(|rate| bytes / (rate * f64::from(chip.multiprocessors.max(1))));
    // A row that ends within sectors of 32 bytes takes about one more.
    let waste = if span.is_multiple_of(32) { 1.0 } else { (span + 24) as f64 / span as f64 };
    if bytes > clocks::CACHED { memory.max(cache * waste) } else { cache * waste }
}

/// The plain kernel: one block a group, whatever its extents.
pub(super) fn plain(problem: &Problem, extents: Extents, places: &Places) -> Result<Launch, CudaError> {
    let kernel = Kernel::new(PLAIN, "group_plain")
        .with("TYPE", type_name(problem.x.dtype))
        .with("GIVEN", u8::from(problem.norm.measured));
    let arguments = arguments![
        places.outputs[0],
        places.inputs[0],
        problem.given(places),
        problem.affine.at(places),
        long(extents.rows),
        long(extents.channels),
        long(extents.groups),
        problem.norm.epsilon,
        problem.factor(),
    ];
    let blocks = grid(extents.slabs.saturating_mul(extents.groups))?;
    Ok(Launch::new(problem.specialise(kernel), blocks, PLAIN_THREADS as u32, arguments))
}

/// How a slab is cut if a cluster of blocks holds some groups of it whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    set: Set,
    /// Vectors that a thread has.
    held: usize,
    /// Blocks that share the rows.
    cluster: usize,
    /// Blocks that the compiler leaves registers for on a multiprocessor.
    resident: usize,
}

impl Whole {
    /// The cuts, in the order of their expected times, but the first is portable if one is. None if the groups are too large for the
    /// registers of a cluster.
    pub(super) fn cuts(extents: Extents, x: &TensorType, chip: &Chip) -> Vec<Whole> {
        let widest = vector(extents.channels, WIDEST_ACCESS / x.dtype.size());
        let clusters = CLUSTERS.into_iter().filter(|&n| n == 1 || chip.architecture >= Architecture::HOPPER);
        // The sets of vectors of some width. Narrower vectors may make sets of fewer groups, and so more blocks.
        let of_width = |width: usize| {
            let least = Set::least_groups(extents, width);
            let wider = (width < widest).then(|| Set::least_groups(extents, 2 * width));
            let groups = [least, 2 * least, 4 * least]
                .into_iter()
                .filter(move |groups| extents.groups.is_multiple_of(*groups))
                .filter(move |groups| wider.is_none_or(|wider| !groups.is_multiple_of(wider)));
            groups.flat_map(|groups| WHOLE_THREADS.map(|threads| (groups, threads))).collect::<Vec<_>>()
        };
        let widths = [widest, widest / 2, widest / 4];
        let widths =
            widths.into_iter().filter(|&width| width == widest || width * x.dtype.size() >= LEAST_ACCESS);
        let sets: Vec<Vec<(usize, usize, usize)>> = widths
            .map(|width| {
                of_width(width).into_iter().map(|(groups, threads)| (width, groups, threads)).collect()
            })
            .collect();
        // The best of each size of clusters and width of vectors.
        let mut cuts: Vec<Whole> = clusters
            .flat_map(|cluster| sets.iter().map(move |sets| (cluster, sets)))
            .filter_map(|(cluster, sets)| {
                sets.iter()
                    .filter_map(|&(width, groups, threads)| Set::new(extents, width, groups, threads))
                    .filter_map(|set| Whole::cut(extents, x, set, cluster))
                    .min_by(|a, b| a.clocks(extents, x, chip).total_cmp(&b.clocks(extents, x, chip)))
            })
            .collect();
        cuts.sort_by(|a, b| a.clocks(extents, x, chip).total_cmp(&b.clocks(extents, x, chip)));
        if let Some(up_to_first) =
            cuts.iter().position(Whole::is_portable).and_then(|first| cuts.get_mut(..=first))
        {
            up_to_first.rotate_right(1);
        }
        cuts.truncate(MOST_CUTS);
        cuts
    }

    /// The cut for clusters of some blocks; `None` if the groups are too large for the blocks' registers, or a block
    /// would have no rows.
    fn cut(extents: Extents, x: &TensorType, set: Set, cluster: usize) -> Option<Whole> {
        let rows = extents.rows.div_ceil(cluster);
        if cluster > 1 && rows * (cluster - 1) >= extents.rows {
            return None;
        }
        let held = rows.div_ceil(set.lanes()).max(1);
        // What the compiler takes at most beside the elements: see `NOTES.md`.
        let words = (held * set.width * x.dtype.size()).div_ceil(4);
        let beside = if set.threads == MOST_THREADS { 56 } else { 36 };
        let registers = (words + 7 * set.width + beside).next_multiple_of(8);
        let resident = (REGISTERS / (set.threads * registers)).min(4);
        (resident > 0 && words <= MOST_WORDS).then_some(Whole { set, held, cluster, resident })
    }

    /// Whether every chip that has clusters takes its clusters.
    pub(super) fn is_portable(&self) -> bool {
        self.cluster <= PORTABLE_CLUSTER_BLOCKS as usize
    }

    /// The expected time.
    pub(super) fn clocks(&self, extents: Extents, x: &TensorType, chip: &Chip) -> f64 {
        let Set { width, columns, threads, .. } = self.set;
        let blocks = self.set.count(extents).saturating_mul(self.cluster);
        let multiprocessors = chip.multiprocessors.max(1) as usize;
        let [statistics, of_channel] = clocks::STATISTICS;
        let vector = clocks::ELEMENT * width as f64 + clocks::ACCESS;
        let warp = self.held as f64 * vector + statistics + of_channel * width as f64;
        let work =
            blocks.div_ceil(multiprocessors) as f64 * (threads / 32) as f64 * warp / clocks::SCHEDULERS;
        // The blocks of a cluster lie in one part of the chip, in which some room is left over.
        let room = (multiprocessors * self.resident).saturating_sub(4 * (self.cluster - 1)).max(self.cluster);
        let waves = blocks.div_ceil(room) as f64;
        // A warp by itself waits for its own results half of the time.
        let work = work.max(waves * 2.0 * warp);
        let [once, each] = clocks::CLUSTER;
        let together = if self.cluster > 1 { once + each * self.cluster as f64 } else { 0.0 };
        let span = columns * width * x.dtype.size();
        let moved = 2.0 * transfer(extents, x, span, chip);
        clocks::LAUNCH + waves * (clocks::BLOCK + together) + work.max(moved)
    }

    /// Its name among the ways to normalise.
    pub(super) fn name(&self) -> String {
        let Set { width, groups, threads, .. } = self.set;
        format!("norm-whole {groups} groups by {width}, {threads} threads, cluster {}", self.cluster)
    }

    pub(super) fn launch(
        &self,
        problem: &Problem,
        extents: Extents,
        places: &Places,
    ) -> Result<Launch, CudaError> {
        let rows = extents.rows.div_ceil(self.cluster);
        let kernel = self
            .set
            .kernel("group_whole", problem, extents)
            .with("WHOLE", 1)
            .with("PER_THREAD", self.held)
            .with("FULL_TURNS", extents.rows.saturating_sub(rows * (self.cluster - 1)) / self.set.lanes())
            .with("CLUSTER", self.cluster)
            .with("RESIDENT", self.resident);
        let arguments = arguments![
            places.outputs[0],
            places.inputs[0],
            problem.affine.at(places),
            extents.slab([rows, self.cluster]),
            problem.norm.epsilon,
            problem.factor(),
        ];
        let blocks = grid(self.set.count(extents).saturating_mul(self.cluster))?;
        let mut launch = Launch::new(kernel, blocks, self.set.threads as u32, arguments);
        launch.cluster = self.cluster as u32;
        Ok(launch)
    }
}

/// How slabs are cut into chunks of rows, for statistics and for what is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    set: Set,
    /// Rows and number of the statistics' chunks.
    measured: [usize; 2],
    /// Rows and number of the chunks that are normalised.
    written: [usize; 2],
}

impl Chunks {
    /// The sets of groups that blocks may have, the widest first: none if a row of the fewest groups that are whole vectors is longer
    /// than a block.
    fn sets(extents: Extents, x: &TensorType) -> impl Iterator<Item = Set> {
        let width = vector(extents.channels, WIDEST_ACCESS / x.dtype.size());
        let least = Set::least_groups(extents, width);
        (1..=extents.groups / least)
            .rev()
            .map(move |times| times * least)
            .filter(move |&groups| extents.groups.is_multiple_of(groups))
            .filter_map(move |groups| {
                let columns = groups * extents.members() / width;
                let threads = (CHUNK_THREADS / columns).max(1) * columns;
                let threads = threads.next_multiple_of(32);
                Set::new(extents, width, groups, threads).filter(|set| set.threads <= MOST_THREADS)
            })
    }

    /// Rows and number of a slab's chunks, for so many blocks a multiprocessor, each with at least so many rows of a lane.
    fn rows(extents: Extents, set: Set, chip: &Chip, blocks: usize, rows_of_lane: usize) -> [usize; 2] {
        let wanted = (blocks * chip.multiprocessors as usize / set.count(extents).max(1)).max(1);
        let least = set.lanes() * rows_of_lane;
        let rows = extents.rows.div_ceil(wanted).max(least).min(extents.rows).max(1);
        [rows, extents.rows.div_ceil(rows)]
    }

    /// The cut of a norm that is given its statistics: rows are whole if they can be.
    pub(super) fn cut_for_writing(extents: Extents, x: &TensorType, chip: &Chip) -> Option<Chunks> {
        let set = Chunks::sets(extents, x).next()?;
        let written = Chunks::rows(extents, set, chip, WRITING_BLOCKS, 4);
        Some(Chunks { set, measured: [extents.rows, 1], written })
    }

    /// The cut; `None` if a row of the fewest groups that are whole vectors is longer than a block.
    pub(super) fn cut(extents: Extents, x: &TensorType, chip: &Chip) -> Option<Chunks> {
        let multiprocessors = chip.multiprocessors as usize;
        let span = |groups: usize| groups * extents.members() * x.dtype.size();
        // Whole rows, unless that makes the statistics a burden: a block of the second launch reads those of all chunks of its groups.
        // Sets of fewer groups leave fewer chunks, but take a part of each row: 64 bytes of 256 cost half as much again.
        let set = Chunks::sets(extents, x).reduce(|wider, set| {
            let few_chunks = wider.count(extents) * MOST_CHUNKS >= 2 * multiprocessors;
            let chunks = (2 * multiprocessors).div_ceil(wider.count(extents).max(1));
            let statistics =
                (WRITING_BLOCKS * multiprocessors * chunks * wider.groups).saturating_mul(PART_BYTES);
            let light = statistics.saturating_mul(LIGHT) <= extents.bytes(x);
            if few_chunks || light || span(set.groups) < LEAST_SPAN { wider } else { set }
        })?;
        // As many blocks as the chip holds at once measure: two a multiprocessor. More of them write, since each of
        // those starts anew when one ends.
        let written = Chunks::rows(extents, set, chip, WRITING_BLOCKS, 4);
        let mut measured = Chunks::rows(extents, set, chip, 2, 8);
        // A few more than a warp combines at once are not worth a second turn.
        if (33..64).contains(&measured[1]) {
            measured[0] = extents.rows.div_ceil(32);
            measured[1] = extents.rows.div_ceil(measured[0]);
        }
        Some(Chunks { set, measured, written })
    }

    /// The expected time.
    pub(super) fn clocks(&self, extents: Extents, x: &TensorType, chip: &Chip) -> f64 {
        let span = self.set.columns * self.set.width * x.dtype.size();
        2.0 * (clocks::LAUNCH + clocks::BLOCK) + 3.0 * transfer(extents, x, span, chip)
    }

    /// Bytes of the statistics: a part for each group and chunk.
    pub(super) fn workspace(&self, extents: Extents) -> usize {
        extents.slabs * extents.groups * self.measured[1] * PART_BYTES
    }

    pub(super) fn launches(
        &self,
        problem: &Problem,
        extents: Extents,
        places: &Places,
    ) -> Result<Vec<Launch>, CudaError> {
        // The kernels count a chunk's rows in 32 bits.
        int(self.measured[0].saturating_mul(2), "a chunk of rows")?;
        let kernel = self.set.kernel("group_partial", problem, extents).with("WHOLE", 0);
        let blocks = grid(self.set.count(extents).saturating_mul(self.measured[1]))?;
        let arguments = arguments![places.workspace, places.inputs[0], extents.slab(self.measured)];
        let measure = Launch::new(kernel, blocks, self.set.threads as u32, arguments);
        Ok(vec![measure, self.writing(problem, extents, places)?])
    }

    /// The launch that normalises, by the statistics of chunks or by those that are given.
    pub(super) fn writing(
        &self,
        problem: &Problem,
        extents: Extents,
        places: &Places,
    ) -> Result<Launch, CudaError> {
        int(self.written[0].saturating_mul(2), "a chunk of rows")?;
        let kernel = self.set.kernel("group_normalise", problem, extents).with("WHOLE", 0);
        let given = problem.norm.measured;
        let arguments = arguments![
            places.outputs[0],
            places.inputs[0],
            problem.affine.at(places),
            if given { problem.given(places) } else { places.workspace },
            extents.slab(self.written),
            int(self.measured[1], "chunks")?,
            problem.norm.epsilon,
            problem.factor(),
        ];
        let blocks = grid(self.set.count(extents).saturating_mul(self.written[1]))?;
        Ok(Launch::new(kernel.with("GIVEN", u8::from(given)), blocks, self.set.threads as u32, arguments))
    }
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, op};

    use super::*;
    use crate::{
        Architecture,
        kernels::{Argument, testing},
    };

    fn norm(groups: usize, frames: usize) -> Norm {
        Norm {
            kind: NormKind::Group { groups, frames },
            epsilon: 1e-5,
            affine: op::Affine::None,
            activation: None,
            quantise: None,
            measured: false,
        }
    }

    fn extents(shape: [usize; 4], groups: usize, frames: usize, dtype: DType) -> (Extents, TensorType) {
        let x = TensorType::new(dtype, shape);
        (Extents::of(&norm(groups, frames), &x).unwrap(), x)
    }

    #[test]
    fn frames_of_a_clip_are_one_slab() {
        let (of_clip, _) = extents([28, 9, 16, 1280], 32, 14, DType::F16);
        assert_eq!(of_clip, Extents { slabs: 2, rows: 14 * 144, channels: 1280, groups: 32 });
    }

    /// Checks that a cut has every row and every channel once.
    fn check(cut: &Whole, extents: Extents) {
        let Whole { set, held, cluster, resident } = *cut;
        assert_eq!(set.columns * set.width, set.groups * extents.members(), "{cut:?}");
        assert_eq!(extents.groups % set.groups, 0, "{cut:?}");
        let rows = extents.rows.div_ceil(cluster);
        assert!(held * set.lanes() >= rows && rows * (cluster - 1) < extents.rows, "{cut:?}");
        assert!(resident * set.threads <= 2048, "{cut:?}");
    }

    #[test]
    fn small_groups_are_held_whole() {
        let first = |shape, groups, dtype| {
            let (extents, x) = extents(shape, groups, 1, dtype);
            let cuts = Whole::cuts(extents, &x, &Chip::typical(Architecture::AMPERE));
            cuts.iter().for_each(|cut| check(cut, extents));
            cuts.first().copied()
        };
        let whole = first([28, 9, 16, 1280], 32, DType::F16).unwrap();
        assert_eq!((whole.set.width, whole.cluster), (8, 1));
        assert_eq!(first([28, 72, 128, 320], 32, DType::F16), None);
        for channels in [1, 3, 7, 17, 33] {
            for groups in [1, channels] {
                assert!(first([2, 3, 5, channels], groups, DType::BF16).is_some());
            }
        }
    }

    #[test]
    fn clusters_hold_large_groups() {
        let chip = Chip::typical(Architecture::HOPPER);
        for (shape, cluster) in [
            // The norms of a UNet for images of 512×512: few groups, so that several blocks share each.
            ([1, 64, 64, 320], Some(8)),
            ([1, 64, 64, 960], Some(8)),
            ([1, 32, 32, 640], Some(4)),
            ([1, 8, 8, 1280], Some(1)),
            // Many images fill the chip by themselves.
            ([28, 9, 16, 1280], Some(1)),
            ([28, 72, 128, 320], Some(8)),
            ([14, 576, 1024, 128], None),
        ] {
            let (extents, x) = extents(shape, 32, 1, DType::F16);
            let cuts = Whole::cuts(extents, &x, &chip);
            assert_eq!(cuts.first().map(|cut| cut.cluster), cluster, "{shape:?}");
            assert!(cuts.len() <= MOST_CUTS);
            cuts.iter().for_each(|cut| check(cut, extents));
        }
    }

    #[test]
    fn cuts_have_names_of_their_own() {
        let (extents, x) = extents([1, 64, 64, 640], 32, 1, DType::F16);
        let cuts = Whole::cuts(extents, &x, &Chip::typical(Architecture::HOPPER));
        let names: std::collections::HashSet<String> = cuts.iter().map(Whole::name).collect();
        assert!(cuts.len() > 1 && names.len() == cuts.len(), "{names:?}");
    }

    #[test]
    fn chunks_hold_every_row() {
        let chip = Chip::typical(Architecture::HOPPER);
        for (shape, groups, frames) in [
            ([28, 72, 128, 320], 32, 1),
            ([28, 72, 128, 320], 32, 14),
            ([14, 576, 1024, 128], 32, 14),
            ([1, 1, 1, 32], 32, 1),
            ([3, 7, 5, 33], 11, 3),
        ] {
            let (extents, x) = extents(shape, groups, frames, DType::F16);
            let chunks = Chunks::cut(extents, &x, &chip).unwrap();
            for [rows, count] in [chunks.measured, chunks.written] {
                assert!(rows * count >= extents.rows && rows * (count - 1) < extents.rows, "{chunks:?}");
            }
            assert!(chunks.set.columns <= chunks.set.threads && chunks.set.threads <= MOST_THREADS);
            assert_eq!(extents.groups % chunks.set.groups, 0);
        }
    }

    #[test]
    fn rows_longer_than_a_block_take_the_plain_kernel() {
        let (extents, x) = extents([1, 1, 1, 513], 1, 1, DType::F16);
        assert_eq!(Chunks::cut(extents, &x, &Chip::typical(Architecture::TURING)), None);
    }

    #[test]
    fn few_slabs_have_few_chunks() {
        // Every block of the second launch combines the statistics of all chunks of its groups.
        for (shape, sets) in [([1, 64, 64, 960], 8), ([28, 72, 128, 320], 1)] {
            let (extents, x) = extents(shape, 32, 1, DType::F16);
            let chunks = Chunks::cut(extents, &x, &Chip::typical(Architecture::HOPPER)).unwrap();
            assert_eq!(
                (extents.groups / chunks.set.groups, chunks.measured[1] <= 32),
                (sets, true),
                "{chunks:?}"
            );
        }
    }

    #[test]
    fn rows_stay_whole_beside_which_statistics_are_light() {
        // The autoencoder's norms over all frames of a clip: one slab.
        for (shape, sets) in [
            ([14, 576, 1024, 128], 1),
            ([14, 288, 512, 256], 2),
            ([14, 144, 256, 512], 2),
            ([14, 72, 128, 512], 4),
        ] {
            let (extents, x) = extents(shape, 32, 14, DType::F16);
            let chunks = Chunks::cut(extents, &x, &Chip::typical(Architecture::HOPPER)).unwrap();
            assert_eq!(extents.groups / chunks.set.groups, sets, "{chunks:?}");
            // Parts of rows are whole lines of the cache.
            assert!(chunks.set.columns * chunks.set.width * x.dtype.size() >= 128, "{chunks:?}");
        }
    }

    #[test]
    fn statistics_lie_in_the_workspace() {
        let (extents, x) = extents([2, 72, 128, 320], 32, 1, DType::F16);
        let chunks = Chunks::cut(extents, &x, &Chip::typical(Architecture::HOPPER)).unwrap();
        let problem = Problem::new(norm(32, 1), &[&x]);
        let places = testing::places(1, 1);
        let launches = chunks.launches(&problem, extents, &places).unwrap();
        assert_eq!(launches[0].arguments[0], Argument::Pointer(testing::WORKSPACE));
        assert_eq!(launches[1].arguments[3], launches[0].arguments[0]);
        assert_eq!(chunks.workspace(extents), 2 * 32 * chunks.measured[1] * 16);
        let sets = 32 / chunks.set.groups;
        assert_eq!(launches[1].grid[0] as usize, 2 * sets * chunks.written[1]);
    }
}

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

/// Threads of a block of the chunked kernels, unless a row needs more.
const CHUNK_THREADS: usize = 256;

/// The most threads of a block: they hold up to 128 registers each.
const MOST_THREADS: usize = 512;

/// Vectors that a thread of the whole kernel holds at most.
const MOST_HELD: usize = 16;

/// Blocks of a cluster that hold groups together. More than eight are not portable: a chip may refuse them.
const CLUSTERS: [usize; 5] = [1, 2, 4, 8, 16];

/// Bytes of a row that a block of the whole kernel reads at least, so that no sector of memory is read for a part.
const LEAST_SPAN: usize = 64;

/// The most groups whose statistics lie in a block's shared memory.
const MOST_GROUPS: usize = 2048;

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
}

c_struct! {
    /// A slab of rows, and how it is cut.
    struct Slab {
        rows: i64,
        chunk_rows: i64,
        chunks: i64,
        channels: i64,
        groups: i64,
        /// A block has `columns` threads for each of `lanes` rows.
        columns: i64,
        lanes: i64,
    }
}

impl Extents {
    /// A slab in chunks of some rows and their number, by blocks of some columns and lanes.
    fn slab(&self, [chunk_rows, chunks]: [usize; 2], columns: usize, lanes: usize) -> Slab {
        Slab {
            rows: long(self.rows),
            chunk_rows: long(chunk_rows),
            chunks: long(chunks),
            channels: long(self.channels),
            groups: long(self.groups),
            columns: long(columns),
            lanes: long(lanes),
        }
    }
}

/// The plain kernel: one block a group, whatever its extents.
pub(super) fn plain(problem: &Problem, extents: Extents, places: &Places) -> Result<Launch, CudaError> {
    let kernel = Kernel::new(PLAIN, "group_plain").with("TYPE", type_name(problem.x.dtype));
    let arguments = arguments![
        places.outputs[0],
        places.inputs[0],
        problem.affine.at(places),
        long(extents.rows),
        long(extents.channels),
        long(extents.groups),
        problem.norm.epsilon,
    ];
    let blocks = grid(extents.slabs.saturating_mul(extents.groups))?;
    Ok(Launch::new(problem.specialise(kernel), blocks, PLAIN_THREADS as u32, arguments))
}

/// How a slab is cut if a cluster of blocks holds some groups of it whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    width: usize,
    groups: usize,
    columns: usize,
    threads: usize,
    held: usize,
    /// Blocks that share the rows.
    cluster: usize,
}

impl Whole {
    /// The cuts, the one to choose first: it fills the chip with the fewest blocks of a cluster, since those wait for each other.
    /// None if the groups are too large for the registers of a cluster.
    pub(super) fn cuts(extents: Extents, x: &TensorType, chip: &Chip) -> Vec<Whole> {
        let clusters = CLUSTERS.into_iter().filter(|&n| n == 1 || chip.architecture >= Architecture::HOPPER);
        let mut cuts: Vec<Whole> = clusters.filter_map(|cluster| Whole::cut(extents, x, cluster)).collect();
        let portable = |cut: &Whole| cut.cluster <= PORTABLE_CLUSTER_BLOCKS as usize;
        let fills = |cut: &Whole| {
            let blocks = extents.slabs.saturating_mul(extents.groups / cut.groups) * cut.cluster;
            2 * blocks >= chip.multiprocessors as usize || cut.held <= 2
        };
        let first = cuts
            .iter()
            .position(|cut| portable(cut) && fills(cut))
            .or_else(|| cuts.iter().rposition(portable))
            .unwrap_or(0);
        if let Some(up_to_first) = cuts.get_mut(..=first) {
            up_to_first.rotate_right(1);
        }
        cuts
    }

    /// The cut for clusters of some blocks; `None` if the groups are too large for the blocks' registers, or a block
    /// would have no rows.
    fn cut(extents: Extents, x: &TensorType, cluster: usize) -> Option<Whole> {
        let width = vector(extents.channels, WIDEST_ACCESS / x.dtype.size());
        let members = extents.members();
        // As few groups as are whole vectors, and as are wide enough.
        let mut groups = width / vector(members, width);
        while extents.groups.is_multiple_of(2 * groups) && groups * members * x.dtype.size() < LEAST_SPAN {
            groups *= 2;
        }
        let columns = groups * members / width;
        let rows = extents.rows.div_ceil(cluster);
        if cluster > 1 && rows * (cluster - 1) >= extents.rows {
            return None;
        }
        // Few vectors for many threads rather than many for few: all of them are on their way at once.
        let cuts = [128, 256, MOST_THREADS].into_iter().filter(|&threads| columns <= threads);
        let cuts: Vec<Whole> = cuts
            .map(|threads| {
                let held = rows.div_ceil(threads / columns).next_power_of_two();
                Whole { width, groups, columns, threads, held, cluster }
            })
            .collect();
        let light = cuts.iter().find(|cut| cut.held <= 4);
        light.or(cuts.last().filter(|cut| cut.held <= MOST_HELD)).copied()
    }

    /// Its name among the ways to normalise.
    pub(super) fn name(&self) -> String {
        match self.cluster {
            1 => "norm-whole".to_owned(),
            cluster => format!("norm-whole cluster {cluster}"),
        }
    }

    pub(super) fn launch(
        &self,
        problem: &Problem,
        extents: Extents,
        places: &Places,
    ) -> Result<Launch, CudaError> {
        let lanes = self.threads / self.columns;
        let mut kernel = Kernel::new(SOURCE, "group_whole")
            .with("TYPE", type_name(problem.x.dtype))
            .with("VECTOR", self.width)
            .with("WHOLE", 1)
            .with("THREADS", self.threads)
            .with("PER_THREAD", self.held)
            .with("GROUPS", self.groups)
            .with("CLUSTER", self.cluster);
        kernel.hot = true;
        let arguments = arguments![
            places.outputs[0],
            places.inputs[0],
            problem.affine.at(places),
            extents.slab([extents.rows.div_ceil(self.cluster), self.cluster], self.columns, lanes),
            problem.norm.epsilon,
        ];
        let sets = extents.slabs.saturating_mul(extents.groups / self.groups);
        let blocks = grid(sets.saturating_mul(self.cluster))?;
        let mut launch = Launch::new(problem.specialise(kernel), blocks, self.threads as u32, arguments);
        // A mean and a sum of squares for each channel that a thread has, in rows of one more, and for each channel.
        let channels = self.columns * self.width;
        launch.shared_bytes = ((lanes * (channels + 1) + channels) * 2 * size_of::<f32>()) as u32;
        launch.cluster = self.cluster as u32;
        Ok(launch)
    }
}

/// How slabs are cut into chunks of rows, for statistics and for what is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    width: usize,
    columns: usize,
    lanes: usize,
    threads: usize,
    /// Rows and number of the statistics' chunks.
    measured: [usize; 2],
    /// Rows and number of the chunks that are normalised.
    written: [usize; 2],
}

impl Chunks {
    /// The cut; `None` if a row is longer than a block.
    pub(super) fn cut(extents: Extents, x: &TensorType, chip: &Chip) -> Option<Chunks> {
        let width = vector(extents.channels, WIDEST_ACCESS / x.dtype.size());
        let columns = extents.channels / width;
        if columns > MOST_THREADS || extents.groups > MOST_GROUPS {
            return None;
        }
        let lanes = (CHUNK_THREADS / columns).max(1);
        let threads = (lanes * columns).next_multiple_of(32);
        // As many blocks as the chip holds at once measure: two a multiprocessor. More of them write, since each of
        // those starts anew when one ends.
        let rows = |blocks: usize, rows_of_lane: usize| {
            let wanted = (blocks * chip.multiprocessors as usize / extents.slabs.max(1)).max(1);
            let least = lanes * rows_of_lane;
            let rows = extents.rows.div_ceil(wanted).max(least).min(extents.rows).max(1);
            [rows, extents.rows.div_ceil(rows)]
        };
        Some(Chunks { width, columns, lanes, threads, measured: rows(2, 8), written: rows(6, 4) })
    }

    /// Bytes of the statistics: a mean and a sum of squares a group and chunk, and an origin a group.
    pub(super) fn workspace(&self, extents: Extents) -> usize {
        self.partial_bytes(extents) + extents.slabs * extents.groups * size_of::<f32>()
    }

    fn partial_bytes(&self, extents: Extents) -> usize {
        extents.slabs * extents.groups * self.measured[1] * 2 * size_of::<f32>()
    }

    pub(super) fn launches(
        &self,
        problem: &Problem,
        extents: Extents,
        places: &Places,
    ) -> Result<Vec<Launch>, CudaError> {
        let (y, x) = (places.outputs[0], places.inputs[0]);
        let partial = places.workspace;
        let origins = places.workspace.offset(self.partial_bytes(extents));
        let cut = |chunks| extents.slab(chunks, self.columns, self.lanes);
        // The kernels count a chunk's rows in 32 bits.
        int(self.measured[0].max(self.written[0]).saturating_mul(2), "a chunk of rows")?;
        let kernel = |entry| {
            let mut kernel = Kernel::new(SOURCE, entry)
                .with("TYPE", type_name(problem.x.dtype))
                .with("VECTOR", self.width)
                .with("WHOLE", 0)
                .with("THREADS", self.threads);
            kernel.hot = true;
            problem.specialise(kernel)
        };
        let threads = self.threads as u32;

        let measure = arguments![partial, origins, x, cut(self.measured)];
        let blocks = grid(extents.slabs.saturating_mul(self.measured[1]))?;
        let mut measure = Launch::new(kernel("group_partial"), blocks, threads, measure);
        measure.shared_bytes = (self.lanes * extents.channels * 2 * size_of::<f32>()) as u32;

        let write = arguments![
            y,
            x,
            problem.affine.at(places),
            partial,
            origins,
            cut(self.written),
            long(self.measured[0]),
            int(self.measured[1], "chunks")?,
            problem.norm.epsilon,
        ];
        let blocks = grid(extents.slabs.saturating_mul(self.written[1]))?;
        let mut write = Launch::new(kernel("group_normalise"), blocks, threads, write);
        write.shared_bytes = (3 * extents.groups * size_of::<f32>()) as u32;
        Ok(vec![measure, write])
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

    #[test]
    fn small_groups_are_held_whole() {
        let cut = |shape, groups, dtype| {
            let (extents, x) = extents(shape, groups, 1, dtype);
            Whole::cuts(extents, &x, &Chip::typical(Architecture::AMPERE)).first().copied()
        };
        // 40 channels are 5 vectors, and 144 rows are 3 for each of 51 lanes.
        let expected = Whole { width: 8, groups: 1, columns: 5, threads: 256, held: 4, cluster: 1 };
        assert_eq!(cut([28, 9, 16, 1280], 32, DType::F16), Some(expected));
        // Groups of 10 channels make whole vectors by four.
        let narrow = cut([1, 4, 4, 320], 32, DType::F16).unwrap();
        assert_eq!((narrow.groups, narrow.columns), (4, 5));
        assert_eq!(cut([28, 72, 128, 320], 32, DType::F16), None);
        for channels in [1, 3, 7, 17, 33] {
            for groups in [1, channels] {
                let whole = cut([2, 3, 5, channels], groups, DType::BF16).unwrap();
                assert_eq!(whole.columns * whole.width, whole.groups * (channels / groups));
                assert!(whole.held * (whole.threads / whole.columns) >= 15);
                assert_eq!(groups % whole.groups, 0);
            }
        }
    }

    #[test]
    fn clusters_hold_large_groups() {
        let chip = Chip::typical(Architecture::HOPPER);
        for (shape, clusters) in [
            // The norms of a UNet for images of 512×512: few groups, so that several blocks share each.
            ([1, 64, 64, 320], &[8, 4, 16][..]),
            ([1, 64, 64, 960], &[8, 16]),
            ([1, 32, 32, 640], &[8, 1, 2, 4, 16]),
            ([1, 8, 8, 1280], &[2, 1, 4, 8, 16]),
            // Many images fill the chip by themselves.
            ([28, 18, 32, 1280], &[1, 2, 4, 8, 16]),
            ([28, 72, 128, 320], &[8, 16]),
            ([14, 576, 1024, 128], &[]),
        ] {
            let (extents, x) = extents(shape, 32, 1, DType::F16);
            let cuts = Whole::cuts(extents, &x, &chip);
            assert_eq!(cuts.iter().map(|cut| cut.cluster).collect::<Vec<_>>(), clusters, "{shape:?}");
            for cut in cuts {
                let lanes = cut.threads / cut.columns;
                assert!(cut.cluster * cut.held * lanes >= extents.rows && cut.held <= MOST_HELD, "{cut:?}");
            }
        }
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
            assert!(chunks.columns * chunks.lanes <= chunks.threads && chunks.threads <= MOST_THREADS);
        }
    }

    #[test]
    fn rows_longer_than_a_block_take_the_plain_kernel() {
        let (extents, x) = extents([1, 1, 1, 513], 1, 1, DType::F16);
        assert_eq!(Chunks::cut(extents, &x, &Chip::typical(Architecture::TURING)), None);
    }

    #[test]
    fn statistics_and_origins_share_the_workspace() {
        let (extents, x) = extents([2, 72, 128, 320], 32, 1, DType::F16);
        let chunks = Chunks::cut(extents, &x, &Chip::typical(Architecture::HOPPER)).unwrap();
        let problem = Problem::new(norm(32, 1), &[&x]);
        let places = testing::places(1, 1);
        let launches = chunks.launches(&problem, extents, &places).unwrap();
        let partial = 2 * 32 * chunks.measured[1] * 8;
        assert_eq!(launches[0].arguments[0], Argument::Pointer(testing::WORKSPACE));
        assert_eq!(launches[0].arguments[1], Argument::Pointer(testing::WORKSPACE.offset(partial)));
        assert_eq!(launches[1].arguments[3..5], launches[0].arguments[..2]);
        assert_eq!(chunks.workspace(extents), partial + 2 * 32 * 4);
        assert_eq!(launches[1].grid[0] as usize, 2 * chunks.written[1]);
    }
}

//! Norms and softmax of rows: which threads have a row, and how much of it each.

use kinora_graph::{TensorType, op::NormKind};

use super::Problem;
use crate::{
    CudaError,
    kernels::{
        Kernel, Launch, Places, Source,
        geometry::{WIDEST_ACCESS, vector},
        names::type_name,
    },
    launch::{
        arguments,
        limits::{grid, int, long},
    },
};

const NORM: Source = Source { path: "norm/rows.cu", text: include_str!("rows.cu") };
const SOFTMAX: Source = Source { path: "norm/softmax.cu", text: include_str!("softmax.cu") };

/// Threads of a block, as the sources have them: if rows lie in registers, and if a block has one row.
const REGISTER_THREADS: usize = 128;
const BLOCK_THREADS: usize = 256;

/// Elements and vectors of a row that a thread holds at most.
const MOST_ELEMENTS: usize = 64;
const MOST_VECTORS: usize = 16;

/// How a row is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Some threads of a warp hold it.
    Registers {
        /// Elements of a vector.
        width: usize,
        /// Threads of a row.
        lanes: usize,
        /// Vectors of a thread.
        per_lane: usize,
    },
    /// A block goes over it more than once.
    Block {
        /// Elements of a vector.
        width: usize,
    },
}

impl Share {
    /// The share of rows of some channels.
    pub(super) fn of(x: &TensorType, plain: bool) -> Share {
        if plain {
            return Share::Block { width: 1 };
        }
        let channels = x.shape.channels();
        let width = vector(channels, WIDEST_ACCESS / x.dtype.size());
        let vectors = channels / width;
        let shares = [32, 16, 8, 4].map(|lanes| (lanes, vectors.div_ceil(lanes)));
        let fits =
            |&(_, per_lane): &(usize, usize)| per_lane * width <= MOST_ELEMENTS && per_lane <= MOST_VECTORS;
        // The fewest idle threads; of equals, the most threads: 320 channels are 8 threads with 5 vectors each.
        match shares.into_iter().filter(fits).min_by_key(|(lanes, per_lane)| lanes * per_lane) {
            Some((lanes, per_lane)) => Share::Registers { width, lanes, per_lane },
            None => Share::Block { width },
        }
    }

    /// The kernel, its grid and its threads.
    fn kernel(
        self,
        source: Source,
        [in_registers, in_blocks]: [&'static str; 2],
        x: &TensorType,
    ) -> Result<(Kernel, u32, u32), CudaError> {
        let rows = x.shape.rows();
        let (kernel, blocks, threads) = match self {
            Share::Registers { width, lanes, per_lane } => {
                let kernel = Kernel::new(source, in_registers)
                    .with("IN_REGISTERS", 1)
                    .with("VECTOR", width)
                    .with("LANES", lanes)
                    .with("PER_LANE", per_lane);
                (kernel, rows.div_ceil(REGISTER_THREADS / lanes), REGISTER_THREADS)
            }
            Share::Block { width } => {
                let kernel = Kernel::new(source, in_blocks).with("IN_REGISTERS", 0).with("VECTOR", width);
                (kernel, rows, BLOCK_THREADS)
            }
        };
        let mut kernel = kernel.with("TYPE", type_name(x.dtype));
        kernel.hot = true;
        Ok((kernel, grid(blocks)?, threads as u32))
    }
}

/// A layer or RMS norm.
pub(super) fn norm(problem: &Problem, share: Share, places: &Places) -> Result<Launch, CudaError> {
    let Problem { norm, x, .. } = problem;
    let (kernel, grid, threads) = share.kernel(NORM, ["rows_in_registers", "rows_in_blocks"], x)?;
    let kernel = kernel.with("CENTRED", norm.kind != NormKind::Rms);
    let arguments = arguments![
        places.outputs[0],
        places.inputs[0],
        problem.affine.at(places),
        long(x.shape.rows()),
        int(x.shape.channels(), "a row of channels")?,
        norm.epsilon,
        problem.factor(),
    ];
    Ok(Launch::new(problem.specialise(kernel), grid, threads, arguments))
}

/// A softmax over the channels.
pub(super) fn softmax(share: Share, x: &TensorType, places: &Places) -> Result<Launch, CudaError> {
    let (kernel, grid, threads) = share.kernel(SOFTMAX, ["softmax_in_registers", "softmax_in_blocks"], x)?;
    let arguments =
        arguments![places.outputs[0], places.inputs[0], long(x.shape.rows()), long(x.shape.channels())];
    Ok(Launch::new(kernel, grid, threads, arguments))
}

#[cfg(test)]
mod tests {
    use kinora_graph::DType;

    use super::*;
    use crate::kernels::testing;

    #[test]
    fn the_channels_of_the_models_leave_no_thread_idle() {
        let share = |channels: usize| Share::of(&TensorType::new(DType::F16, [7, channels]), false);
        assert_eq!(share(320), Share::Registers { width: 8, lanes: 8, per_lane: 5 });
        assert_eq!(share(640), Share::Registers { width: 8, lanes: 16, per_lane: 5 });
        assert_eq!(share(1280), Share::Registers { width: 8, lanes: 32, per_lane: 5 });
        assert_eq!(share(2048), Share::Registers { width: 8, lanes: 32, per_lane: 8 });
        assert_eq!(share(4096), Share::Block { width: 8 });
        assert_eq!(share(513), Share::Block { width: 1 });
    }

    #[test]
    fn a_row_is_held_by_its_threads() {
        for dtype in [DType::F32, DType::BF16] {
            for channels in 1..1000 {
                if let Share::Registers { width, lanes, per_lane } =
                    Share::of(&TensorType::new(dtype, [7, channels]), false)
                {
                    assert!(width * lanes * per_lane >= channels && channels.is_multiple_of(width));
                }
            }
        }
    }

    #[test]
    fn blocks_cover_every_row() {
        let x = TensorType::new(DType::F16, [2, 9, 320]);
        let places = testing::places(1, 1);
        let launch = softmax(Share::of(&x, false), &x, &places).unwrap();
        // Sixteen rows a block.
        assert_eq!((launch.grid, launch.block), ([2, 1, 1], [128, 1, 1]));
        let launch = softmax(Share::of(&x, true), &x, &places).unwrap();
        assert_eq!((launch.grid, launch.block), ([18, 1, 1], [256, 1, 1]));
    }
}

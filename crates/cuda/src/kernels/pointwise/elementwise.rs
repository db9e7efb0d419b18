//! A function of the elements of operands that broadcast to the result.

use kinora_graph::{DType, Shape, TensorType};

use crate::{
    Chip, CudaError,
    kernels::{
        Argument, DevicePointer, Kernel, Launch, Source,
        geometry::{WIDEST_ACCESS, grid, index_type, long, unroll, vector, words},
        names::type_name,
    },
};

const SOURCE: Source = Source { path: "pointwise/elementwise.cu", text: include_str!("elementwise.cu") };

/// Threads of a block, as the source has them.
const THREADS: usize = 256;

/// Elements of a vector at most: a wider one would need more registers and move nothing faster.
const WIDEST_VECTOR: usize = 8;

/// The most axes that remain when those that broadcast alike are merged.
const MOST_AXES: usize = 8;

const TYPES: [&str; 5] = ["TYPE_0", "TYPE_1", "TYPE_2", "TYPE_3", "TYPE_4"];
const SPREADS: [&str; 5] = ["SPREAD_0", "SPREAD_1", "SPREAD_2", "SPREAD_3", "SPREAD_4"];

/// An operand, read along the axes of the result.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// Its first element.
    pub at: DevicePointer,
    /// Its element type.
    pub dtype: DType,
    /// Elements from one coordinate of each of the result's axes to the next; 0 where it broadcasts.
    pub strides: Vec<usize>,
}

impl Operand {
    /// An operand that broadcasts to a result by NumPy's rule.
    pub(crate) fn broadcast(ty: &TensorType, at: DevicePointer, result: &Shape) -> Operand {
        let missing = result.len().saturating_sub(ty.shape.len());
        let own = ty.shape.strides();
        let strides = ty.shape.iter().zip(own).map(|(&extent, stride)| if extent == 1 { 0 } else { stride });
        Operand { at, dtype: ty.dtype, strides: vec![0; missing].into_iter().chain(strides).collect() }
    }
}

/// A call of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Elementwise {
    /// The function, in CUDA, of `x[k]` and the numbers `p` and `q`.
    pub expression: String,
    /// The numbers.
    pub numbers: [f32; 2],
    /// The result's extents.
    pub extents: Vec<usize>,
    /// The operands, up to five.
    pub operands: Vec<Operand>,
    /// The result's element type and its first element.
    pub result: (DType, DevicePointer),
}

impl Elementwise {
    /// The launch; a plain one moves one element a thread.
    ///
    /// # Errors
    /// Where the operands broadcast along too many axes, or there are too many elements.
    pub(crate) fn launch(&self, plain: bool, chip: &Chip) -> Result<Launch, CudaError> {
        let (mut extents, mut strides) = self.merged();
        let rank = extents.len();
        if rank > MOST_AXES {
            return Err(CudaError::TooLarge(format!("broadcasting along {rank} separate axes")));
        }
        let count: usize = extents.iter().product();
        let inner = extents[rank - 1];
        let narrowest = self.operands.iter().map(|operand| operand.dtype.size());
        let narrowest = narrowest.fold(self.result.0.size(), usize::min);
        let widest = (WIDEST_ACCESS / narrowest).min(WIDEST_VECTOR);
        let apart = strides.iter().any(|strides| strides[rank - 1] > 1);
        let mut width = match () {
            () if plain || apart => 1,
            // A flat tensor may end within a vector.
            () if rank == 1 => widest,
            () => vector(inner, widest),
        };
        // The second half of a gate's channels begins where the first one ends.
        while self.operands.iter().any(|x| !x.at.is_multiple_of((width * x.dtype.size()) as u64)) {
            width /= 2;
        }
        let vectors = count.div_ceil(width);
        extents[rank - 1] = inner.div_ceil(width);
        for strides in &mut strides {
            strides[rank - 1] *= width;
        }

        let most = if self.operands.len() == 1 { 4 } else { 2 };
        let unroll = if plain { 1 } else { unroll(vectors, THREADS, chip.multiprocessors, most) };
        let mut kernel = Kernel::new(SOURCE, "elementwise")
            .with("EXPRESSION", &self.expression)
            .with("OPERANDS", self.operands.len())
            .with("RANK", rank)
            .with("VECTOR", width)
            .with("UNROLL", unroll)
            .with("INDEX", index_type(vectors + THREADS * unroll))
            .with("RESULT", type_name(self.result.0));
        for (i, operand) in self.operands.iter().enumerate() {
            let (Some(ty), Some(spread)) = (TYPES.get(i), SPREADS.get(i)) else {
                return Err(CudaError::Internal(format!("{} operands of one kernel", self.operands.len())));
            };
            kernel = kernel.with(ty, type_name(operand.dtype)).with(spread, strides[i][rank - 1] > 0);
        }
        kernel.hot = true;

        let places = self.operands.iter().map(|operand| operand.at);
        let layout = strides.iter().flatten().chain(&extents).map(|&extent| extent as u64);
        let arguments = vec![
            Argument::Pointer(self.result.1),
            words(places.chain(layout)),
            long(count),
            Argument::F32(self.numbers[0]),
            Argument::F32(self.numbers[1]),
        ];
        Ok(Launch::new(kernel, grid(vectors.div_ceil(THREADS * unroll))?, THREADS as u32, arguments))
    }

    /// The extents and the operands' strides without axes of one, and with neighbouring axes merged where every operand
    /// goes through them as through one. At least one axis remains.
    fn merged(&self) -> (Vec<usize>, Vec<Vec<usize>>) {
        let mut extents: Vec<usize> = Vec::new();
        let mut strides = vec![Vec::new(); self.operands.len()];
        for (axis, &extent) in self.extents.iter().enumerate() {
            if extent == 1 {
                continue;
            }
            let one_with_last = !extents.is_empty()
                && self
                    .operands
                    .iter()
                    .zip(&strides)
                    .all(|(operand, merged)| merged.last() == Some(&(operand.strides[axis] * extent)));
            if one_with_last {
                let last = extents.len() - 1;
                extents[last] *= extent;
            } else {
                extents.push(extent);
            }
            for (operand, merged) in self.operands.iter().zip(&mut strides) {
                if one_with_last {
                    merged.pop();
                }
                merged.push(operand.strides[axis]);
            }
        }
        if extents.is_empty() {
            extents.push(1);
            strides.iter_mut().for_each(|strides| strides.push(0));
        }
        (extents, strides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Architecture;

    fn add(a: &[usize], b: &[usize], dtype: DType) -> Elementwise {
        let (a, b) = (TensorType::new(dtype, a), TensorType::new(DType::F32, b));
        let shape = a.shape.broadcast(&b.shape).unwrap();
        Elementwise {
            expression: "x[0] + x[1]".into(),
            numbers: [0.0; 2],
            operands: vec![Operand::broadcast(&a, 256, &shape), Operand::broadcast(&b, 512, &shape)],
            extents: shape.to_vec(),
            result: (dtype, 1024),
        }
    }

    fn constant<'a>(launch: &'a Launch, name: &str) -> &'a str {
        launch.kernel.constants.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    #[test]
    fn common_shapes_have_few_axes() {
        let axes = |a: &[usize], b: &[usize]| add(a, b, DType::F16).merged();
        assert_eq!(axes(&[2, 3, 5, 8], &[2, 3, 5, 8]), (vec![240], vec![vec![1], vec![1]]));
        assert_eq!(axes(&[2, 3, 5, 8], &[]), (vec![240], vec![vec![1], vec![0]]));
        assert_eq!(axes(&[2, 3, 5, 8], &[8]), (vec![30, 8], vec![vec![8, 1], vec![0, 1]]));
        let image = (vec![2, 15, 8], vec![vec![120, 8, 1], vec![8, 0, 1]]);
        assert_eq!(axes(&[2, 3, 5, 8], &[2, 1, 1, 8]), image);
        assert_eq!(axes(&[1, 1], &[1]), (vec![1], vec![vec![0], vec![0]]));
        assert_eq!(axes(&[3, 1], &[1, 4]), (vec![3, 4], vec![vec![1, 0], vec![0, 1]]));
    }

    #[test]
    fn every_operand_element_is_read_for_its_result() {
        // What the kernel does, on the host: vectors to coordinates to offsets.
        for (a, b) in [
            (&[2, 3, 5, 8][..], &[2, 1, 1, 8][..]),
            (&[2, 3, 4], &[3, 1]),
            (&[5, 1, 3], &[7, 1]),
            (&[13], &[13]),
        ] {
            let call = add(a, b, DType::F16);
            let shape = Shape::from(&call.extents[..]);
            let (extents, strides) = call.merged();
            for index in 0..shape.elements() {
                for (operand, strides) in call.operands.iter().zip(&strides) {
                    let offset = |extents: &[usize], strides: &[usize]| {
                        let mut rest = index;
                        extents.iter().zip(strides).rev().fold(0, |offset, (&extent, &stride)| {
                            let coordinate = rest % extent;
                            rest /= extent;
                            offset + coordinate * stride
                        })
                    };
                    assert_eq!(offset(&extents, strides), offset(&call.extents, &operand.strides));
                }
            }
        }
    }

    #[test]
    fn the_grid_covers_every_vector_once() {
        let chip = Chip::typical(Architecture::HOPPER);
        for (a, b, width) in [
            (&[14, 72, 128, 320][..], &[320][..], 8),
            (&[3, 7], &[3, 7], 8),
            (&[3, 7], &[7], 1),
            (&[3, 12], &[12], 4),
        ] {
            let launch = add(a, b, DType::F16).launch(false, &chip).unwrap();
            assert_eq!(constant(&launch, "VECTOR"), width.to_string());
            let count: usize = a.iter().product();
            let each = THREADS * constant(&launch, "UNROLL").parse::<usize>().unwrap();
            let blocks = launch.grid[0] as usize;
            assert!(blocks * each * width >= count && (blocks - 1) * each * width < count);
            let plain = add(a, b, DType::F16).launch(true, &chip).unwrap();
            assert_eq!(constant(&plain, "VECTOR"), "1");
            assert_eq!(plain.grid[0] as usize, count.div_ceil(THREADS));
        }
    }

    #[test]
    fn arguments_stand_as_in_the_signature() {
        let chip = Chip::typical(Architecture::HOPPER);
        let launch = add(&[2, 8], &[8], DType::F16).launch(false, &chip).unwrap();
        let [Argument::Pointer(1024), Argument::Bytes(layout), Argument::I64(16), _, _] =
            &launch.arguments[..]
        else {
            panic!("{:?}", launch.arguments)
        };
        let layout: Vec<u64> =
            layout.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        // Places, strides of each operand, extents: the innermost axis counts vectors of eight.
        assert_eq!(layout, [256, 512, 8, 8, 0, 8, 2, 1]);
    }
}

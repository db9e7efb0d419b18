//! A function of the elements of operands that broadcast to the result.

use kinora_graph::{DType, Shape, TensorType};

use crate::{
    Chip, CudaError,
    kernels::{
        Call, DevicePointer, Implementation, Kernel, Launch, Places, Source,
        geometry::{WIDEST_ACCESS, index_type, unroll, vector},
        names::type_name,
    },
    launch::{
        StructValue, arguments,
        limits::{self, grid, long},
    },
};

const SOURCE: Source = Source { path: "pointwise/elementwise.cu", text: include_str!("elementwise.cu") };

/// Threads of a block, as the source has them.
const THREADS: usize = 256;

/// Elements of a vector at most: a wider one would need more registers and move nothing faster.
const WIDEST_VECTOR: usize = 8;

const TYPES: [&str; 5] = ["TYPE_0", "TYPE_1", "TYPE_2", "TYPE_3", "TYPE_4"];
const SPREADS: [&str; 5] = ["SPREAD_0", "SPREAD_1", "SPREAD_2", "SPREAD_3", "SPREAD_4"];

/// An operand, read along the axes of the result.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// Which of the call's operands it is.
    pub input: usize,
    /// Bytes before its first element.
    pub offset: usize,
    /// Its element type.
    pub dtype: DType,
    /// Elements from one coordinate of each of the result's axes to the next; 0 if it broadcasts.
    pub strides: Vec<usize>,
}

impl Operand {
    /// An operand that broadcasts to a result by NumPy's rule.
    pub(crate) fn broadcast(input: usize, ty: &TensorType, result: &Shape) -> Operand {
        let missing = result.len().saturating_sub(ty.shape.len());
        let own = ty.shape.strides();
        let strides = ty.shape.iter().zip(own).map(|(&extent, stride)| if extent == 1 { 0 } else { stride });
        let strides = vec![0; missing].into_iter().chain(strides).collect();
        Operand { input, offset: 0, dtype: ty.dtype, strides }
    }

    fn at(&self, places: &Places) -> DevicePointer {
        places.inputs[self.input].offset(self.offset)
    }
}

/// A function of single elements.
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
    /// The result's element type.
    pub result: DType,
}

/// A function of single elements, as the way to run a call.
#[derive(Debug)]
pub(crate) struct ByElements {
    /// Its names: with one element a thread, and with several.
    pub names: [&'static str; 2],
    /// One element a thread.
    pub plain: bool,
    /// The chip.
    pub chip: Chip,
    /// The function.
    pub function: Elementwise,
}

// SAFETY: the extents and strides that the kernel goes through are those of the call's operands and result.
unsafe impl Implementation for ByElements {
    fn name(&self) -> String {
        self.names[usize::from(!self.plain)].to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        Ok(vec![self.function.launch(places, self.plain, &self.chip)?])
    }
}

impl Elementwise {
    /// A function of all operands of a call, which broadcast to its result.
    pub(crate) fn broadcast(call: &Call<'_>, expression: String, numbers: [f32; 2]) -> Elementwise {
        let result = call.outputs[0];
        let operand = |(input, ty): (usize, &&TensorType)| Operand::broadcast(input, ty, &result.shape);
        Elementwise {
            expression,
            numbers,
            extents: result.shape.to_vec(),
            operands: call.inputs.iter().enumerate().map(operand).collect(),
            result: result.dtype,
        }
    }

    /// The launch; a plain one moves one element a thread.
    ///
    /// # Errors
    /// If the operands broadcast along too many axes, or there are too many elements.
    pub(crate) fn launch(&self, places: &Places, plain: bool, chip: &Chip) -> Result<Launch, CudaError> {
        let (mut extents, mut strides) = self.merged();
        let rank = extents.len();
        if rank > limits::MERGED_AXES {
            return Err(CudaError::TooLarge(format!("broadcasting along {rank} separate axes")));
        }
        let count: usize = extents.iter().product();
        let inner = extents[rank - 1];
        let narrowest = self.operands.iter().map(|operand| operand.dtype.size());
        let narrowest = narrowest.fold(self.result.size(), usize::min);
        let widest = (WIDEST_ACCESS / narrowest).min(WIDEST_VECTOR);
        let apart = strides.iter().any(|strides| strides[rank - 1] > 1);
        let mut width = match () {
            () if plain || apart => 1,
            // A flat tensor may end within a vector.
            () if rank == 1 => widest,
            () => vector(inner, widest),
        };
        // The second half of a gate's channels begins where the first one ends.
        while self.operands.iter().any(|x| !x.at(places).is_aligned_to(width * x.dtype.size())) {
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
            .with("RESULT", type_name(self.result));
        for (i, operand) in self.operands.iter().enumerate() {
            let (Some(ty), Some(spread)) = (TYPES.get(i), SPREADS.get(i)) else {
                return Err(CudaError::Internal(format!(
                    "an elementwise kernel with {} operands",
                    self.operands.len()
                )));
            };
            kernel = kernel.with(ty, type_name(operand.dtype)).with(spread, strides[i][rank - 1] > 0);
        }
        kernel.hot = true;

        let at: Vec<DevicePointer> = self.operands.iter().map(|operand| operand.at(places)).collect();
        let longs = |extents: &[usize]| extents.iter().map(|&extent| long(extent)).collect::<Vec<i64>>();
        let operands = StructValue::named("Operands")
            .with_array("at", &at)
            .with_table("stride", &strides.iter().map(|strides| longs(strides)).collect::<Vec<_>>())?
            .with_array("extent", &longs(&extents));
        let [p, q] = self.numbers;
        let arguments = arguments![places.outputs[0], operands, long(count), p, q];
        Ok(Launch::new(kernel, grid(vectors.div_ceil(THREADS * unroll))?, THREADS as u32, arguments))
    }

    /// The extents and the operands' strides without axes of one, and with neighbouring axes merged if every operand
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
    use crate::{
        Architecture,
        kernels::{Argument, testing},
    };

    fn add(a: &[usize], b: &[usize], dtype: DType) -> Elementwise {
        let (a, b) = (TensorType::new(dtype, a), TensorType::new(DType::F32, b));
        let shape = a.shape.broadcast(&b.shape).unwrap();
        Elementwise {
            expression: "x[0] + x[1]".into(),
            numbers: [0.0; 2],
            operands: vec![Operand::broadcast(0, &a, &shape), Operand::broadcast(1, &b, &shape)],
            extents: shape.to_vec(),
            result: dtype,
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
            let launch = add(a, b, DType::F16).launch(&testing::places(2, 1), false, &chip).unwrap();
            assert_eq!(constant(&launch, "VECTOR"), width.to_string());
            let count: usize = a.iter().product();
            let each = THREADS * constant(&launch, "UNROLL").parse::<usize>().unwrap();
            let blocks = launch.grid[0] as usize;
            assert!(blocks * each * width >= count && (blocks - 1) * each * width < count);
            let plain = add(a, b, DType::F16).launch(&testing::places(2, 1), true, &chip).unwrap();
            assert_eq!(constant(&plain, "VECTOR"), "1");
            assert_eq!(plain.grid[0] as usize, count.div_ceil(THREADS));
        }
    }

    #[test]
    fn arguments_stand_as_in_the_signature() {
        let chip = Chip::typical(Architecture::HOPPER);
        let launch = add(&[2, 8], &[8], DType::F16).launch(&testing::places(2, 1), false, &chip).unwrap();
        assert_eq!(launch.arguments[0], Argument::Pointer(testing::place(2)));
        assert_eq!(launch.arguments[2], Argument::I64(16));
        let layout = testing::struct_words(&launch, "Operands");
        // Places, strides of each operand, extents: the innermost axis counts vectors of eight.
        assert_eq!(layout, [1 << 32, 2 << 32, 8, 8, 0, 8, 2, 1]);
    }
}

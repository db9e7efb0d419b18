//! Ops that move elements, of any type, without computing on them.

use kinora_graph::{Op, TensorType, op::Slice};

use super::{
    Argument, Call, DevicePointer, Implementation, Kernel, KernelSet, Launch, Places, Source,
    geometry::{WIDEST_ACCESS, grid, index_type, long, unroll, vector},
};
use crate::{Chip, CudaError};

const SOURCE: Source = Source { path: "arrange/copy.cu", text: include_str!("copy.cu") };

/// Threads of a block, as the source has them.
const THREADS: usize = 256;

/// The implementations of an op of this family, the one to choose first; none for another op.
pub fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    match call.op {
        Op::Concat(_) | Op::Slice(_) => {
            vec![Box::new(Copies { plain: set == KernelSet::Baseline, chip: chip.clone() })]
        }
        _ => Vec::new(),
    }
}

/// The type whose values are a number of bytes, a power of two up to 16.
pub(crate) fn unit_type(bytes: usize) -> &'static str {
    match bytes {
        16 => "uint4",
        8 => "uint2",
        4 => "u32",
        2 => "u16",
        _ => "u8",
    }
}

/// Copies of blocks that lie a pitch apart, one for each part.
#[derive(Debug)]
struct Copies {
    /// One element a thread.
    plain: bool,
    chip: Chip,
}

impl Implementation for Copies {
    fn name(&self) -> String {
        if self.plain { "copies-plain" } else { "copies" }.to_owned()
    }

    fn launches(&self, call: &Call<'_>, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let (result, to) = (call.outputs[0], places.outputs[0]);
        match call.op {
            Op::Concat(op) => {
                let (outer, step) = around(result, op.axis);
                let to_pitch = result.shape[op.axis] * step;
                let mut launches = Vec::new();
                let mut start = 0;
                for (part, &from) in call.inputs.iter().zip(&places.inputs) {
                    let length = part.shape[op.axis] * step;
                    if length > 0 && outer > 0 {
                        let copy =
                            Copy { to: to + start as u64, from, outer, length, to_pitch, from_pitch: length };
                        launches.push(self.launch(&copy, result)?);
                    }
                    start += length;
                }
                Ok(launches)
            }
            Op::Slice(Slice { axis, start, len }) => {
                let x = call.inputs[0];
                let (outer, step) = around(result, *axis);
                let copy = Copy {
                    to,
                    from: places.inputs[0] + (start * step) as u64,
                    outer,
                    length: len * step,
                    to_pitch: len * step,
                    from_pitch: x.shape[*axis] * step,
                };
                Ok(vec![self.launch(&copy, result)?])
            }
            op => Err(CudaError::Internal(format!("{op} does not arrange"))),
        }
    }
}

/// Blocks to copy, all in bytes.
struct Copy {
    to: DevicePointer,
    from: DevicePointer,
    outer: usize,
    length: usize,
    to_pitch: usize,
    from_pitch: usize,
}

impl Copies {
    fn launch(&self, copy: &Copy, result: &TensorType) -> Result<Launch, CudaError> {
        // The widest unit that every place and length is a multiple of.
        let together = copy.length | copy.to_pitch | copy.from_pitch | copy.to as usize | copy.from as usize;
        let unit = if self.plain { result.dtype.size() } else { vector(together, WIDEST_ACCESS) };
        let count = copy.outer * copy.length / unit;
        let unroll = if self.plain { 1 } else { unroll(count, THREADS, self.chip.multiprocessors, 4) };
        let mut kernel = Kernel::new(SOURCE, "copy_blocks")
            .with("UNIT", unit_type(unit))
            .with("UNROLL", unroll)
            .with("INDEX", index_type(count + THREADS * unroll));
        kernel.hot = true;
        let arguments = vec![
            Argument::Pointer(copy.to),
            Argument::Pointer(copy.from),
            long(count),
            long(copy.length / unit),
            long(copy.to_pitch / unit),
            long(copy.from_pitch / unit),
        ];
        Ok(Launch::new(kernel, grid(count.div_ceil(THREADS * unroll))?, THREADS as u32, arguments))
    }
}

/// How many blocks an axis lies in, and the bytes of one step along it.
fn around(ty: &TensorType, axis: usize) -> (usize, usize) {
    let outer = ty.shape[..axis].iter().product();
    let step = ty.shape[axis + 1..].iter().product::<usize>() * ty.dtype.size();
    (outer, step)
}

#[cfg(test)]
mod tests {
    use kinora_graph::{DType, op::Concat};

    use super::*;
    use crate::kernels::testing;

    #[test]
    fn parts_lie_one_behind_the_other() {
        let (a, none, b) = (
            TensorType::new(DType::F16, [2, 3, 8]),
            TensorType::new(DType::F16, [2, 3, 0]),
            TensorType::new(DType::F16, [2, 3, 12]),
        );
        let op = Op::Concat(Concat { axis: 2 });
        let launches = testing::launches(implementations, &op, &[&a, &none, &b]).unwrap();
        let to = testing::place(3);
        let expected = |to, from, counts: [i64; 4]| {
            let mut arguments = vec![Argument::Pointer(to), Argument::Pointer(from)];
            arguments.extend(counts.map(Argument::I64));
            arguments
        };
        // Rows of 40 bytes are multiples of eight alone.
        assert_eq!(launches.len(), 2);
        assert_eq!(launches[0].arguments, expected(to, testing::place(0), [12, 2, 5, 2]));
        assert_eq!(launches[1].arguments, expected(to + 16, testing::place(2), [18, 3, 5, 3]));
    }

    #[test]
    fn a_range_starts_where_it_starts() {
        let x = TensorType::new(DType::U8, [2, 5, 3]);
        let op = Op::Slice(Slice { axis: 1, start: 1, len: 2 });
        let launches = testing::launches(implementations, &op, &[&x]).unwrap();
        let counts = [12, 6, 6, 15].map(Argument::I64);
        assert_eq!(launches[0].arguments[1], Argument::Pointer(testing::place(0) + 3));
        assert_eq!(launches[0].arguments[2..], counts);
        assert_eq!(launches[0].kernel.constants[0], ("UNIT", "u8".to_owned()));
    }
}

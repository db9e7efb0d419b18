//! Ops that move elements, of any type, without computing on them.

use kinora_graph::{Op, TensorType, op::Slice};

use super::{
    Call, Family, Implementation, Kernel, KernelSet, Launch, Places, Source,
    geometry::{WIDEST_ACCESS, index_type, unroll, vector},
};
use crate::{
    Chip, CudaError,
    launch::{
        arguments,
        limits::{grid, long},
    },
};

/// The family.
pub const FAMILY: Family = Family { offer: implementations, in_place: |_, _| false };

const SOURCE: Source = Source { path: "arrange/copy.cu", text: include_str!("copy.cu") };

/// Threads of a block, as the source has them.
const THREADS: usize = 256;

/// The implementations of an op of this family, the one to choose first; none for another op.
fn implementations(call: &Call<'_>, chip: &Chip, set: KernelSet) -> Vec<Box<dyn Implementation>> {
    let copies = match call.op {
        Op::Concat(op) => concat(call, op.axis),
        Op::Slice(op) => vec![slice(call, *op)],
        _ => return Vec::new(),
    };
    let element_bytes = call.outputs[0].dtype.size();
    let plain = set == KernelSet::Baseline;
    vec![Box::new(Copies { copies, element_bytes, plain, multiprocessors: chip.multiprocessors })]
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
    copies: Vec<Copy>,
    element_bytes: usize,
    /// One element a thread.
    plain: bool,
    multiprocessors: u32,
}

/// Blocks to copy from an operand to the result, all in bytes.
#[derive(Debug)]
struct Copy {
    input: usize,
    /// What lies before the first block, in the operand and in the result.
    from: usize,
    to: usize,
    blocks: usize,
    length: usize,
    from_pitch: usize,
    to_pitch: usize,
}

/// The copies that join operands along an axis.
fn concat(call: &Call<'_>, axis: usize) -> Vec<Copy> {
    let result = call.outputs[0];
    let (blocks, step) = around(result, axis);
    let to_pitch = result.shape[axis] * step;
    let mut to = 0;
    let mut copies = Vec::new();
    for (input, part) in call.inputs.iter().enumerate() {
        let length = part.shape[axis] * step;
        if length > 0 && blocks > 0 {
            copies.push(Copy { input, from: 0, to, blocks, length, from_pitch: length, to_pitch });
        }
        to += length;
    }
    copies
}

/// The copy that takes a range of an axis.
fn slice(call: &Call<'_>, Slice { axis, start, len }: Slice) -> Copy {
    let (blocks, step) = around(call.outputs[0], axis);
    let length = len * step;
    let from_pitch = call.inputs[0].shape[axis] * step;
    Copy { input: 0, from: start * step, to: 0, blocks, length, from_pitch, to_pitch: length }
}

// SAFETY: every copy lies within its operand and within the result, as the call's shapes give them.
unsafe impl Implementation for Copies {
    fn name(&self) -> String {
        if self.plain { "copies-plain" } else { "copies" }.to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        self.copies.iter().map(|copy| self.launch(copy, places)).collect()
    }
}

impl Copies {
    fn launch(&self, copy: &Copy, places: &Places) -> Result<Launch, CudaError> {
        let to = places.outputs[0].offset(copy.to);
        let from = places.inputs[copy.input].offset(copy.from);
        // The widest unit that every place and length is a multiple of.
        let places = (to.address() | from.address()) as usize;
        let together = copy.length | copy.to_pitch | copy.from_pitch | places;
        let unit = if self.plain { self.element_bytes } else { vector(together, WIDEST_ACCESS) };
        let count = copy.blocks * copy.length / unit;
        let unroll = if self.plain { 1 } else { unroll(count, THREADS, self.multiprocessors, 4) };
        let mut kernel = Kernel::new(SOURCE, "copy_blocks")
            .with("UNIT", unit_type(unit))
            .with("UNROLL", unroll)
            .with("INDEX", index_type(count + THREADS * unroll));
        kernel.hot = true;
        let arguments = arguments![
            to,
            from,
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
    use crate::kernels::{Argument, testing};

    #[test]
    fn parts_lie_one_after_the_other() {
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
        assert_eq!(launches[1].arguments, expected(to.offset(16), testing::place(2), [18, 3, 5, 3]));
    }

    #[test]
    fn a_range_starts_at_its_first_element() {
        let x = TensorType::new(DType::U8, [2, 5, 3]);
        let op = Op::Slice(Slice { axis: 1, start: 1, len: 2 });
        let launches = testing::launches(implementations, &op, &[&x]).unwrap();
        let counts = [12, 6, 6, 15].map(Argument::I64);
        assert_eq!(launches[0].arguments[1], Argument::Pointer(testing::place(0).offset(3)));
        assert_eq!(launches[0].arguments[2..], counts);
        assert_eq!(launches[0].kernel.constants[0], ("UNIT", "u8".to_owned()));
    }
}

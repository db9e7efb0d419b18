//! From the order and element type of a weights file to those of a graph.
//!
//! A file has a convolution's weights as `[out, in, (frames,) (height,) width]`; the graph wants
//! `[out, frames, height, width, in]`. Everything else is the same in both.

use std::io;

use bytemuck::Pod;
use half::{bf16, f16, slice::HalfFloatSliceExt};
use kinora_graph::Shape;
use rayon::prelude::*;

#[cfg(target_endian = "big")]
compile_error!("weights files are little-endian, and are read as they are");

/// How many elements are converted at a time if nothing is moved: the copies stay in the first-level cache.
const BLOCK: usize = 2048;

/// The order in which a file's elements reach the graph: within runs of `row` elements, those of one output channel, every
/// `taps`-th comes first, then the ones after these, and so on. With one tap nothing moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    row: usize,
    taps: usize,
}

impl Order {
    const UNCHANGED: Order = Order { row: BLOCK, taps: 1 };

    /// How a tensor of shape `file` becomes one of shape `asked`; `None` if it cannot.
    pub fn between(file: &[usize], asked: &[usize]) -> Option<Order> {
        if let &[out, frames, height, width, channels] = asked {
            // A kernel with fewer axes than three has an extent of 1 in the missing ones, which are the first.
            let kernel = [frames, height, width];
            let missing = 5usize.checked_sub(file.len())?;
            let (ones, extents) = kernel.split_at_checked(missing)?;
            let fits = file.starts_with(&[out, channels]) && file.ends_with(extents);
            let taps = frames * height * width;
            let order = if taps == 1 { Order::UNCHANGED } else { Order { row: channels * taps, taps } };
            return (fits && ones.iter().all(|&n| n == 1)).then_some(order);
        }
        let pointwise = asked.len() == 2 && file.starts_with(asked) && file.iter().skip(2).all(|&n| n == 1);
        (asked == file || pointwise).then_some(Order::UNCHANGED)
    }
}

/// The shape that a file should have for what a graph declares; of the ones that would do, the one with as many axes as
/// `file`, or the most usual.
pub(crate) fn file_shape(asked: &[usize], file: &[usize]) -> Shape {
    match *asked {
        [out, 1, height, width, channels] if file.len() != 5 => [out, channels, height, width].into(),
        [out, frames, height, width, channels] => [out, channels, frames, height, width].into(),
        _ => asked.into(),
    }
}

/// Moves the channels of convolution weights after their taps, or those of images after their pixels: `source` is
/// `[.., channels, taps]` in rows of `channels · taps` elements, `target` becomes `[.., taps, channels]`.
pub fn channels_last<T: Copy>(source: &[T], row: usize, taps: usize, target: &mut [T]) {
    if row == 0 || taps == 0 {
        return;
    }
    for (source, target) in source.chunks_exact(row).zip(target.chunks_exact_mut(row)) {
        for (tap, channels) in target.chunks_exact_mut(row / taps).enumerate() {
            for (to, from) in channels.iter_mut().zip(source.iter().skip(tap).step_by(taps)) {
                *to = *from;
            }
        }
    }
}

/// The element types that weights have in a file and in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Float {
    F32,
    F16,
    BF16,
}

/// Fills a slice with the bytes of a tensor, from one of them on.
pub(super) type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> io::Result<()> + Sync + 'a;

/// Fills `target`, of type `to`, with the elements of a file, which are of type `from`. There are as many in both.
pub(super) fn convert(
    bytes: &ReadAt<'_>,
    from: Float,
    order: Order,
    target: &mut [u8],
    to: Float,
) -> io::Result<()> {
    if from == to && order.taps == 1 {
        let parts = target.par_chunks_mut(COPIED).enumerate();
        return parts.try_for_each(|(number, target)| bytes((number * COPIED) as u64, target));
    }
    match (from, to) {
        (Float::F32, Float::F32) => {
            rows(bytes, order, target, |x: &[f32], y: &mut [f32]| y.copy_from_slice(x))
        }
        (Float::F16, Float::F16) => {
            rows(bytes, order, target, |x: &[f16], y: &mut [f16]| y.copy_from_slice(x))
        }
        (Float::BF16, Float::BF16) => {
            rows(bytes, order, target, |x: &[bf16], y: &mut [bf16]| y.copy_from_slice(x))
        }
        (Float::F16, Float::F32) => {
            rows(bytes, order, target, |x: &[f16], y: &mut [f32]| x.convert_to_f32_slice(y))
        }
        (Float::BF16, Float::F32) => {
            rows(bytes, order, target, |x: &[bf16], y: &mut [f32]| x.convert_to_f32_slice(y))
        }
        (Float::F32, Float::F16) => {
            rows(bytes, order, target, |x: &[f32], y: &mut [f16]| y.convert_from_f32_slice(x))
        }
        (Float::F32, Float::BF16) => {
            rows(bytes, order, target, |x: &[f32], y: &mut [bf16]| y.convert_from_f32_slice(x))
        }
        (Float::F16, Float::BF16) => rows(bytes, order, target, |x: &[f16], y: &mut [bf16]| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = bf16::from_f32(x.to_f32()));
        }),
        (Float::BF16, Float::F16) => rows(bytes, order, target, |x: &[bf16], y: &mut [f16]| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = f16::from_f32(x.to_f32()));
        }),
    }
}

/// Elements that a thread brings at a time, at least: they stay in the second-level cache.
const PART: usize = 1 << 17;
/// Bytes that a thread copies at a time.
const COPIED: usize = 1 << 21;

/// Brings a file's elements into order and converts them, on all cores; each a row at a time, so that what is moved stays in
/// the first-level cache.
fn rows<S: Pod, T: Pod + Send>(
    bytes: &ReadAt<'_>,
    order: Order,
    target: &mut [u8],
    convert: impl Fn(&[S], &mut [T]) + Sync,
) -> io::Result<()> {
    let row = order.row.max(1);
    let part = PART.next_multiple_of(row);
    let parts = bytemuck::cast_slice_mut::<_, T>(target).par_chunks_mut(part).enumerate();
    parts.try_for_each_init(
        || (Vec::new(), vec![S::zeroed(); row]),
        |(read, moved), (number, target)| {
            read.resize(target.len(), S::zeroed());
            bytes((number * part * size_of::<S>()) as u64, bytemuck::cast_slice_mut(read))?;
            for (source, target) in read.chunks(row).zip(target.chunks_mut(row)) {
                if order.taps == 1 {
                    convert(source, target);
                } else {
                    channels_last(source, order.row, order.taps, moved);
                    convert(moved, target);
                }
            }
            Ok(())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_fits_with_any_kernel_and_nothing_else_does() {
        let order = |row, taps| Some(Order { row, taps });
        assert_eq!(Order::between(&[8, 4, 3, 2], &[8, 1, 3, 2, 4]), order(24, 6));
        assert_eq!(Order::between(&[8, 4, 5, 3, 2], &[8, 5, 3, 2, 4]), order(120, 30));
        assert_eq!(Order::between(&[8, 4, 3], &[8, 1, 1, 3, 4]), order(12, 3));
        for pointwise in [&[8, 4][..], &[8, 4, 1], &[8, 4, 1, 1], &[8, 4, 1, 1, 1]] {
            assert_eq!(Order::between(pointwise, &[8, 1, 1, 1, 4]), Some(Order::UNCHANGED));
            assert_eq!(Order::between(pointwise, &[8, 4]), Some(Order::UNCHANGED));
            assert_eq!(Order::between(pointwise, &[4, 8]), None);
            assert_eq!(Order::between(pointwise, &[8, 1, 1, 3, 4]), None);
        }
        assert_eq!(Order::between(&[7], &[7]), Some(Order::UNCHANGED));
        assert_eq!(Order::between(&[], &[]), Some(Order::UNCHANGED));
        for (file, asked) in [
            (&[8, 4, 3, 3][..], &[8, 3, 3, 1, 4][..]),
            (&[8, 4, 3, 3], &[8, 2, 3, 3, 4]),
            (&[8, 4, 3, 3], &[8, 1, 3, 3, 3]),
            (&[8, 4, 3, 3], &[9, 1, 3, 3, 4]),
            (&[8, 4, 3, 3], &[8, 4]),
            (&[8, 4, 1, 1, 1, 1], &[8, 1, 1, 1, 4]),
            (&[8], &[8, 1, 1, 1, 4]),
            (&[], &[8, 1, 1, 1, 4]),
            (&[], &[1]),
            (&[8], &[8, 4]),
            (&[2, 3, 4], &[2, 4, 3]),
        ] {
            assert_eq!(Order::between(file, asked), None, "{file:?} as {asked:?}");
        }
    }

    /// The bytes of a file with these numbers.
    fn from(numbers: &[f32]) -> impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync {
        let bytes: &[u8] = bytemuck::cast_slice(numbers);
        move |start, target| {
            target.copy_from_slice(&bytes[start as usize..][..target.len()]);
            Ok(())
        }
    }

    #[test]
    fn a_large_tensor_is_the_same_in_parts() {
        // Rows that divide neither a thread's part nor the whole: several parts, the last a short one.
        let [out, channels, taps] = [2003, 37, 9];
        let elements = out * channels * taps;
        assert!(elements > 2 * PART && !PART.is_multiple_of(channels * taps));
        let file: Vec<f32> = (0..elements).map(|i| i as f32).collect();
        let mut graph = vec![f32::NAN; elements];
        let order = Order::between(&[out, channels, 3, 3], &[out, 1, 3, 3, channels]).unwrap();
        let bytes = bytemuck::cast_slice_mut(&mut graph);
        convert(&from(&file), Float::F32, order, bytes, Float::F32).unwrap();
        for (at, &got) in graph.iter().enumerate() {
            let (row, tap, channel) = (at / (taps * channels), at / channels % taps, at % channels);
            assert_eq!(got, file[(row * channels + channel) * taps + tap], "element {at}");
        }
        // Nothing moves, and the last block is a short one.
        let odd = &file[..5 * PART + 1001];
        let mut same = vec![f32::NAN; odd.len()];
        let bytes = bytemuck::cast_slice_mut(&mut same);
        convert(&from(odd), Float::F32, Order::UNCHANGED, bytes, Float::F32).unwrap();
        assert_eq!(same, odd);
        // The same with a conversion, for which it is read in other parts.
        let mut halves = vec![bf16::ZERO; odd.len()];
        let bytes = bytemuck::cast_slice_mut(&mut halves);
        convert(&from(odd), Float::F32, Order::UNCHANGED, bytes, Float::BF16).unwrap();
        assert!(halves.iter().zip(odd).all(|(half, &whole)| *half == bf16::from_f32(whole)));
    }

    #[test]
    fn an_error_of_the_file_is_passed_on() {
        let ends = |start: u64, target: &mut [u8]| match start + target.len() as u64 {
            ..=3_000_000 => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        for (order, to) in [
            (Order::UNCHANGED, Float::F32),
            (Order::UNCHANGED, Float::F16),
            (Order { row: 9, taps: 3 }, Float::F32),
        ] {
            let mut target = vec![0; 9 << 20];
            let error = convert(&ends, Float::F32, order, &mut target, to).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn the_shape_in_a_message_is_the_files_kind() {
        assert_eq!(*file_shape(&[8, 1, 3, 2, 4], &[8, 5, 3, 2]), [8, 4, 3, 2]);
        assert_eq!(*file_shape(&[8, 1, 3, 2, 4], &[8, 5, 1, 3, 2]), [8, 4, 1, 3, 2]);
        assert_eq!(*file_shape(&[8, 5, 3, 2, 4], &[8, 5, 3, 2]), [8, 4, 5, 3, 2]);
        assert_eq!(*file_shape(&[8, 4], &[8, 5]), [8, 4]);
    }
}

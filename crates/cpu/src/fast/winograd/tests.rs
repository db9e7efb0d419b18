//! Convolutions against a plain loop in f64, on every instruction set of the machine, however few the channels.

mod frames;

use std::borrow::Cow;

use half::{bf16, f16};
use kinora_graph::{
    DType, Op, Tensor, TensorType,
    op::{Conv, Stage},
};

use super::*;
use crate::fast::linear::{PackedWeight, conv};
use crate::gemm::Finish;
use crate::simd::Isa;
use crate::testing::{Random, Storage};
use crate::view::{View, ViewMut};

/// Padding above, below, left and right.
type Padding = [usize; 4];

const NONE: Padding = [0; 4];
const SAME: Padding = [1; 4];

fn geometry(images: usize, [height, width]: [usize; 2], channels: usize, padding: Padding) -> ConvGeometry {
    let [above, below, left, right] = padding;
    ConvGeometry {
        images,
        frames: 1,
        height,
        width,
        pixel_channels: channels,
        first_channel: 0,
        channels,
        kernel: [1, 3, 3],
        stride: [1; 3],
        dilation: [1; 3],
        padding_before: [0, above, left],
        padding_after: [0, below, right],
    }
}

/// The rows of the output.
fn output_rows(geometry: &ConvGeometry) -> usize {
    geometry.output_images() * geometry.output_height() * geometry.output_width()
}

/// The convolution in f64, and the largest sum of its terms' magnitudes, which rounding is in proportion to: a tile
/// mixes its pixels, so that each has the rounding of all.
fn exact<E: Float>(x: &[E], kernels: &[f32], geometry: &ConvGeometry, columns: usize) -> (Vec<f64>, f64) {
    let &ConvGeometry { frames, height, width, channels, kernel: [deep, high, wide], .. } = geometry;
    let [before, above, left] = geometry.padding_before;
    let output_frames = geometry.output_frames();
    let (output_height, output_width) = (geometry.output_height(), geometry.output_width());
    let (mut output, mut largest) = (Vec::new(), 0.0f64);
    for row in 0..output_rows(geometry) {
        let (image, y, x_at) =
            (row / output_width / output_height, row / output_width % output_height, row % output_width);
        let (clip, frame) = (image / output_frames, image % output_frames);
        for column in 0..columns {
            let (mut sum, mut size) = (0.0, 0.0);
            for tap in 0..deep * high * wide {
                let frame = (frame + tap / wide / high).wrapping_sub(before);
                let y = (y + tap / wide % high).wrapping_sub(above);
                let x_at = (x_at + tap % wide).wrapping_sub(left);
                if frame >= frames || y >= height || x_at >= width {
                    continue;
                }
                let at = ((clip * frames + frame) * height + y) * width + x_at;
                let kernel = &kernels[(column * deep * high * wide + tap) * channels..][..channels];
                for (&value, &weight) in x[at * channels..][..channels].iter().zip(kernel) {
                    let term = f64::from(value.to_f32()) * f64::from(weight);
                    sum += term;
                    size += term.abs();
                }
            }
            output.push(sum);
            largest = largest.max(size);
        }
    }
    (output, largest)
}

/// The weights of the form that the geometry's kernel has.
fn weights(isa: Isa, kernels: &[f32], geometry: &ConvGeometry) -> WinogradWeights {
    let form = if geometry.kernel == [3, 1, 1] { Form::Frames } else { Form::Square };
    let columns = kernels.len() / (taps(geometry) * geometry.channels);
    WinogradWeights::new(isa, form, Values::F32(kernels), columns, geometry.channels)
        .expect("a type that suits")
}

/// The taps of a kernel.
fn taps(geometry: &ConvGeometry) -> usize {
    geometry.kernel.iter().product()
}

/// The convolution as this module does it, into poisoned memory.
fn convolved<E: Storage, T: Storage>(isa: Isa, x: &[E], kernels: &[f32], geometry: &ConvGeometry) -> Vec<T> {
    let weights = weights(isa, kernels, geometry);
    let (rows, columns) = (output_rows(geometry), weights.columns());
    let mut output = vec![T::from_f32(f32::NAN); rows * columns];
    let ty = TensorType::new(T::DTYPE, [rows, columns]);
    // SAFETY: the vector is as long as the type says and outlives the view.
    let view = unsafe { ViewMut::new(&ty, output.as_mut_ptr().cast()) };
    convolve(E::values(x), geometry, &weights, &Finish::new(view, rows, columns));
    output
}

#[track_caller]
fn assert_close<T: Storage>(label: &str, got: &[T], want: &[f64], largest: f64) {
    assert_eq!(got.len(), want.len(), "{label}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let allowed = 1e-6 * largest + T::ROUNDING * want.abs();
        let error = (f64::from(got.to_f32()) - want).abs();
        assert!(error <= allowed, "{label}: element {at} is {} and not {want}", got.to_f32());
    }
}

/// Compares random images and kernels, on every instruction set.
fn check<E: Storage, T: Storage>(geometry: &ConvGeometry, columns: usize) {
    let mut random = Random::new(7);
    let x = random.vector::<E>(geometry.images * geometry.height * geometry.width * geometry.channels);
    let kernels = random.vector::<f32>(columns * taps(geometry) * geometry.channels);
    let (want, largest) = exact(&x, &kernels, geometry, columns);
    for isa in Isa::available() {
        let label = format!("{isa:?} {geometry:?} to {columns} as {:?}, {:?}", E::DTYPE, T::DTYPE);
        assert_close(&label, &convolved::<E, T>(isa, &x, &kernels, geometry), &want, largest);
    }
}

/// As [`check`], with every storage type but f32 on both sides.
fn check_storage_types(geometry: &ConvGeometry, columns: usize) {
    check::<f32, f16>(geometry, columns);
    check::<f32, bf16>(geometry, columns);
    check::<f16, f32>(geometry, columns);
    check::<f16, f16>(geometry, columns);
    check::<f16, bf16>(geometry, columns);
    check::<bf16, f32>(geometry, columns);
    check::<bf16, f16>(geometry, columns);
    check::<bf16, bf16>(geometry, columns);
}

#[test]
fn every_size_padding_and_number_of_channels() {
    for size in [[1, 1], [2, 2], [3, 5], [8, 8], [17, 9]] {
        for padding in [NONE, SAME, [0, 1, 0, 1], [2, 1, 2, 1], [0, 2, 1, 0]] {
            for (channels, columns) in
                [(1, 1), (1, 33), (7, 16), (16, 7), (33, 1), (33, 33), (64, 7), (16, 64)]
            {
                check::<f32, f32>(&geometry(1, size, channels, padding), columns);
            }
            check::<f32, f32>(&geometry(3, size, 7, padding), 7);
        }
    }
}

#[test]
fn blocks_of_tiles_channels_and_columns() {
    check::<f32, f32>(&geometry(2, [3, 4], 3 * CHANNEL_BLOCK - 5, SAME), 9);
    check::<f32, f32>(&geometry(1, [4, 3], 5, SAME), 2 * COLUMN_BLOCK + 3);
    check::<f32, f32>(&geometry(3, [21, 20], 9, SAME), 21);
}

#[test]
fn every_storage_type_of_input_and_output() {
    for (channels, columns) in [(7, 16), (33, 7), (64, 33)] {
        check_storage_types(&geometry(2, [5, 6], channels, SAME), columns);
    }
}

/// Kernels in f16, so small that they have few digits left, and so large that their transforms have no room, on images of f16.
#[test]
fn half_precision_kernels() {
    for (geometry, columns) in [(geometry(2, [5, 6], 33, SAME), 40), (frames::clips(2, 5, 34, [1, 1]), 33)] {
        for magnitude in [1e-6, 1.0, 60_000.0] {
            let mut random = Random::new(31);
            let x =
                random.vector::<f16>(geometry.images * geometry.height * geometry.width * geometry.channels);
            let kernels = random.vector::<f32>(columns * taps(&geometry) * geometry.channels);
            let kernels: Vec<f16> = kernels.iter().map(|x| f16::from_f32(x * magnitude)).collect();
            let wide: Vec<f32> = kernels.iter().map(|value| value.to_f32()).collect();
            let (want, largest) = exact(&x, &wide, &geometry, columns);
            let form = if geometry.kernel == [3, 1, 1] { Form::Frames } else { Form::Square };
            for isa in Isa::available() {
                let weights =
                    WinogradWeights::new(isa, form, Values::F16(&kernels), columns, geometry.channels)
                        .expect("a type that suits");
                let bytes = WinogradWeights::bytes_of(isa, form, DType::F16, columns, geometry.channels);
                assert_eq!(weights.bytes(), bytes, "{isa:?}");
                let rows = output_rows(&geometry);
                let mut output = vec![f32::NAN; rows * columns];
                let ty = TensorType::new(DType::F32, [rows, columns]);
                // SAFETY: the vector is as long as the type says and outlives the view.
                let view = unsafe { ViewMut::new(&ty, output.as_mut_ptr().cast()) };
                convolve(Values::F16(&x), &geometry, &weights, &Finish::new(view, rows, columns));
                // A transformed weight is rounded by 2^-11 of itself at the most. Along an axis, an output is a sum of 8
                // products of a value and a weight instead of 3.
                let allowed = 64.0 / 9.0 / 2048.0 * largest;
                for (at, (got, want)) in output.iter().zip(&want).enumerate() {
                    let error = (f64::from(*got) - want).abs();
                    assert!(
                        error <= allowed,
                        "{isa:?} {form:?} {magnitude}: element {at} is {got} and not {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn many_channels_keep_their_accuracy() {
    let (geometry, columns) = (geometry(1, [6, 6], 512, SAME), 16);
    let mut random = Random::new(11);
    let x = random.vector::<f32>(36 * 512);
    let kernels = random.vector::<f32>(columns * 9 * 512);
    let (want, _) = exact(&x, &kernels, &geometry, columns);
    let largest = want.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    for isa in Isa::available() {
        let got = convolved::<f32, f32>(isa, &x, &kernels, &geometry);
        let error =
            got.iter().zip(&want).map(|(got, want)| (f64::from(*got) - want).abs()).fold(0.0, f64::max);
        assert!(error < 2e-6 * largest, "{isa:?}: an error of {error} beside {largest}");
    }
}

#[test]
fn large_values_and_none() {
    let geometry = geometry(2, [5, 4], 33, SAME);
    let mut random = Random::new(13);
    let kernels = random.vector::<f32>(20 * 9 * 33);
    let mut x: Vec<f32> = random.vector(2 * 5 * 4 * 33);
    x.iter_mut().for_each(|value| *value = 1e4f32.copysign(*value));
    let (want, largest) = exact(&x, &kernels, &geometry, 20);
    for isa in Isa::available() {
        assert_close(
            &format!("{isa:?}"),
            &convolved::<f32, f32>(isa, &x, &kernels, &geometry),
            &want,
            largest,
        );
        let zeros = convolved::<f32, f32>(isa, &vec![0.0; x.len()], &kernels, &geometry);
        assert!(zeros.iter().all(|&value| value == 0.0), "{isa:?}");
    }
}

#[test]
fn the_epilogue_adds_bias_time_and_a_residual_in_place() {
    let (geometry, columns) = (geometry(2, [5, 3], 9, SAME), 21);
    let rows = output_rows(&geometry);
    let mut random = Random::new(17);
    let x = random.vector::<f32>(2 * 5 * 3 * 9);
    let kernels = random.vector::<f32>(columns * 9 * 9);
    let (bias, time, residual) = (
        random.vector::<f32>(columns),
        random.vector::<f32>(2 * columns),
        random.vector::<f32>(rows * columns),
    );
    let (mut want, largest) = exact(&x, &kernels, &geometry, columns);
    for (at, want) in want.iter_mut().enumerate() {
        let (row, column) = (at / columns, at % columns);
        *want +=
            f64::from(bias[column]) + f64::from(time[row / 15 * columns + column]) + f64::from(residual[at]);
    }
    let ty = TensorType::new(DType::F32, [rows, columns]);
    let time_ty = TensorType::new(DType::F32, [2, columns]);
    for isa in Isa::available() {
        let weights = weights(isa, &kernels, &geometry);
        let mut output = residual.clone();
        let memory: *mut u8 = output.as_mut_ptr().cast();
        // SAFETY: the vectors are as long as the types say and outlive the views; the epilogue works in place.
        let (own, time, view) = unsafe {
            (View::new(&ty, memory), View::new(&time_ty, time.as_ptr().cast()), ViewMut::new(&ty, memory))
        };
        let finish = Finish::new(view, rows, columns)
            .bias(Cow::Borrowed(&bias))
            .stages(&[Stage::AddChannels, Stage::Add], &[time, own]);
        convolve(Values::F32(&x), &geometry, &weights, &finish);
        assert_close(&format!("{isa:?}"), &output, &want, largest);
    }
}

#[test]
fn a_result_does_not_depend_on_the_number_of_threads() {
    let geometry = geometry(2, [15, 16], 150, SAME);
    let mut random = Random::new(19);
    let x = random.vector::<f32>(2 * 15 * 16 * 150);
    let kernels = random.vector::<f32>(150 * 9 * 150);
    for isa in Isa::available() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
            pool.install(|| convolved::<f32, f32>(isa, &x, &kernels, &geometry))
        };
        let one = run(1);
        for threads in [2, 3, 7] {
            assert!(one == run(threads), "{isa:?} on {threads} threads");
        }
    }
}

#[test]
fn blocks_cover_every_tile_and_panel_once() {
    for (tiles, panels) in [(0, 3), (1, 1), (7, 2), (128, 32), (1000, 9), (5, 80)] {
        for threads in [1, 2, 3, 64] {
            let grid = Grid::new(tiles, 48, panels, 16, threads);
            let mut seen = vec![0; tiles * panels];
            for index in 0..grid.blocks() {
                let (tile_range, panel_range) = grid.block(index);
                assert!(tile_range.len() <= 48 && panel_range.len() * 16 <= COLUMN_BLOCK);
                for tile in tile_range {
                    panel_range.clone().for_each(|panel| seen[tile * panels + panel] += 1);
                }
            }
            assert!(seen.iter().all(|&count| count == 1), "{tiles}×{panels} on {threads}");
        }
    }
}

#[test]
fn convolutions_that_suit() {
    let weight = |dtype, columns, channels| TensorType::new(dtype, [columns, 1, 3, 3, channels]);
    let wide = weight(DType::F32, 64, 64);
    let plain = Conv::spatial([3, 3], 1, 1);
    assert_eq!(Form::of(&plain, &wide), Some(Form::Square));
    assert_eq!(
        Form::of(&Conv { padding: [[0, 0], [2, 0], [0, 1]], ..plain.clone() }, &wide),
        Some(Form::Square)
    );
    assert_eq!(Form::of(&plain, &weight(DType::F16, 64, 64)), Some(Form::Square));
    assert_eq!(Form::of(&plain, &weight(DType::F16, 640, 640)), None);
    assert_eq!(Form::of(&plain, &weight(DType::BF16, 64, 64)), None);
    assert_eq!(Form::of(&plain, &weight(DType::F32, 64, 4)), None);
    assert_eq!(Form::of(&plain, &weight(DType::F32, 4, 64)), None);
    assert_eq!(Form::of(&Conv::spatial([3, 3], 2, 1), &wide), None);
    assert_eq!(Form::of(&Conv { dilation: [1, 2, 2], ..plain.clone() }, &wide), None);
    assert_eq!(Form::of(&Conv { groups: 2, ..plain.clone() }, &wide), None);
    assert_eq!(Form::of(&Conv { padding: [[1, 1], [1, 1], [1, 1]], ..plain }, &wide), None);
    let pointwise = TensorType::new(DType::F32, [64, 1, 1, 1, 64]);
    assert_eq!(Form::of(&Conv::spatial([1, 1], 1, 0), &pointwise), None);
}

/// Runs a convolution op as a program does, its weight packed beforehand, and checks that it was packed for `form`.
fn check_op(op: &Conv, form: Form, geometry: &ConvGeometry, columns: usize) {
    let &ConvGeometry { images, height, width, channels, kernel: [deep, high, wide], .. } = geometry;
    let mut random = Random::new(23);
    let x = random.vector::<f32>(images * height * width * channels);
    let kernels = random.vector::<f32>(columns * taps(geometry) * channels);
    let bias = random.vector::<f32>(columns);
    let tensor = |shape: &[usize], values: &[f32]| {
        let mut tensor = Tensor::zeros(TensorType::new(DType::F32, shape));
        tensor.bytes_mut().copy_from_slice(bytemuck::cast_slice(values));
        tensor
    };
    let inputs = [
        tensor(&[images, height, width, channels], &x),
        tensor(&[columns, deep, high, wide, channels], &kernels),
        tensor(&[columns], &bias),
    ];
    let (mut want, largest) = exact(&x, &kernels, geometry, columns);
    want.iter_mut().enumerate().for_each(|(at, want)| *want += f64::from(bias[at % columns]));
    let poison = vec![f32::NAN; want.len()];
    for isa in Isa::available() {
        let views = inputs.each_ref().map(View::of);
        let packed = PackedWeight::new(isa, &Op::Conv(op.clone()), views[1]);
        let bytes = WinogradWeights::bytes_of(isa, form, DType::F32, columns, channels);
        assert_eq!(packed.bytes(), bytes, "{isa:?}");
        assert_eq!(PackedWeight::bytes_of(isa, &Op::Conv(op.clone()), inputs[1].ty()), bytes, "{isa:?}");
        let shape = [geometry.output_images(), geometry.output_height(), geometry.output_width(), columns];
        let mut output = tensor(&shape, &poison);
        conv(isa, op, &views, &packed, ViewMut::of(&mut output)).expect("a convolution");
        assert_close::<f32>(&format!("{isa:?}"), bytemuck::cast_slice(output.bytes()), &want, largest);
    }
}

#[test]
fn a_convolution_op_takes_this_way() {
    let op = Conv { bias: true, padding: [[0, 0], [0, 1], [2, 1]], ..Conv::spatial([3, 3], 1, 1) };
    check_op(&op, Form::Square, &geometry(2, [7, 6], 40, [0, 1, 2, 1]), 72);
}

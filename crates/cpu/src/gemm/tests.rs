//! Products against a plain loop in f64, on every instruction set of the machine.

use std::borrow::Cow;

use half::{bf16, f16};
use kinora_graph::{
    DType, TensorType,
    op::{Activation, Stage},
};

use super::*;
use crate::simd::{Float, Isa};
use crate::testing::{Random, Storage};
use crate::view::{View, ViewMut};

mod tiles;

/// The type of `[rows, columns]`.
fn matrix_type<E: Float>(rows: usize, columns: usize) -> TensorType {
    TensorType::new(E::DTYPE, [rows, columns])
}

/// A view of a slice that has this type.
fn view<'a, E: Float>(ty: &'a TensorType, values: &'a [E]) -> View<'a> {
    assert_eq!((ty.elements(), ty.dtype), (values.len(), E::DTYPE));
    // SAFETY: the slice is as long as the type says, borrowed for as long as the view.
    unsafe { View::new(ty, values.as_ptr().cast()) }
}

/// A view of a slice that has this type, to write.
fn view_mut<'a, E: Float>(ty: &'a TensorType, values: &'a mut [E]) -> ViewMut<'a> {
    assert_eq!((ty.elements(), ty.dtype), (values.len(), E::DTYPE));
    // SAFETY: the slice is as long as the type says, borrowed for as long as the view.
    unsafe { ViewMut::new(ty, values.as_mut_ptr().cast()) }
}

/// `A · Bᵀ` and `|A| · |B|ᵀ` in f64.
fn exact<A: Float, B: Float>(a: &[A], b: &[B], rows: usize, columns: usize, depth: usize) -> Vec<(f64, f64)> {
    let product = |row: usize, column: usize| {
        let (a, b) = (&a[row * depth..][..depth], &b[column * depth..][..depth]);
        a.iter().zip(b).fold((0.0, 0.0), |(sum, size), (a, b)| {
            let term = a.to_f32() as f64 * b.to_f32() as f64;
            (sum + term, size + term.abs())
        })
    };
    (0..rows * columns).map(|at| product(at / columns, at % columns)).collect()
}

#[track_caller]
fn assert_close<C: Storage>(label: &str, got: &[C], exact: &[(f64, f64)], depth: usize) {
    assert_eq!(got.len(), exact.len(), "{label}");
    for (at, (got, &(want, size))) in got.iter().zip(exact).enumerate() {
        let allowed = 3e-7 * (depth as f64).sqrt() * size + C::ROUNDING * want.abs() + 1e-6;
        let error = (got.to_f32() as f64 - want).abs();
        assert!(error <= allowed, "{label}: element {at} is {} and not {want}", got.to_f32());
    }
}

const SIZES: [(usize, usize, usize); 14] = [
    (1, 1, 1),
    (1, 33, 7),
    (2, 16, 16),
    (3, 5, 257),
    (6, 16, 256),
    (7, 17, 300),
    (13, 31, 513),
    (77, 48, 64),
    (65, 100, 33),
    (1, 320, 320),
    (300, 40, 40),
    (11, 1300, 9),
    (4, 3, 1000),
    (257, 129, 65),
];

fn check_storage<A: Storage, B: Storage, C: Storage>() {
    let mut random = Random::new(7);
    for isa in Isa::with_software_tiles() {
        for (rows, columns, depth) in SIZES {
            let a = random.vector::<A>(rows * depth);
            let b = random.vector::<B>(columns * depth);
            let mut c = vec![C::from_f32(f32::NAN); rows * columns];
            let packed = PackedWeights::new(isa, B::values(&b), columns, depth);
            let ty = matrix_type::<C>(rows, columns);
            let finish = Finish::new(view_mut(&ty, &mut c), rows, columns);
            multiply(&MatrixRows::new(A::values(&a), rows, depth), &packed, &finish);
            let label = format!("{isa:?} {rows}×{columns}×{depth}");
            assert_close(&label, &c, &exact(&a, &b, rows, columns, depth), depth);
        }
    }
}

#[test]
fn every_shape_in_f32() {
    check_storage::<f32, f32, f32>();
}

#[test]
fn every_storage_type_of_each_operand() {
    check_storage::<f16, f16, f16>();
    check_storage::<bf16, bf16, bf16>();
    check_storage::<f16, f32, bf16>();
    check_storage::<f32, bf16, f16>();
    check_storage::<bf16, f16, f32>();
}

#[test]
fn empty_products() {
    for isa in Isa::with_software_tiles() {
        for (rows, columns) in [(0, 5), (5, 0), (0, 0)] {
            let weights = vec![1.0f32; columns * 3];
            let packed = PackedWeights::new(isa, Values::F32(&weights), columns, 3);
            let input = vec![1.0f32; rows * 3];
            let ty = matrix_type::<f32>(rows, columns);
            let finish = Finish::new(view_mut::<f32>(&ty, &mut []), rows, columns);
            multiply(&MatrixRows::new(Values::F32(&input), rows, 3), &packed, &finish);
        }
        let packed = PackedWeights::new(isa, Values::F32(&[]), 3, 0);
        let mut output = vec![f32::NAN; 6];
        let ty = matrix_type::<f32>(2, 3);
        let finish = Finish::new(view_mut(&ty, &mut output), 2, 3).bias(Cow::Borrowed(&[1.0, 2.0, 3.0]));
        multiply(&MatrixRows::new(Values::F32(&[]), 2, 0), &packed, &finish);
        assert_eq!(output, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    }
}

/// Columns 5 to 42 of an output of 45, as one group of a convolution writes them.
#[test]
fn stages_apply_in_order_and_leave_other_groups_alone() {
    let (rows, columns, depth, stride, first) = (21, 37, 50, 45, 5);
    let mut random = Random::new(3);
    for isa in Isa::with_software_tiles() {
        let a = random.vector::<f32>(rows * depth);
        let b = random.vector::<f32>(columns * depth);
        let bias = random.vector::<f32>(stride);
        let embedding = random.vector::<f16>(3 * stride);
        let residual = random.vector::<bf16>(rows * stride);
        let factor = random.vector::<f32>(rows * stride);
        let alpha = [0.25f32];
        let mut c = vec![f32::NAN; rows * stride];
        let ty = matrix_type::<f32>(rows, stride);
        let types = [
            TensorType::new(DType::F16, [3, 1, stride]),
            matrix_type::<bf16>(rows, stride),
            ty.clone(),
            TensorType::new(DType::F32, [1]),
        ];
        let operands = [
            view(&types[0], &embedding),
            view(&types[1], &residual),
            view(&types[2], &factor),
            view(&types[1], &residual),
            view(&types[3], &alpha),
        ];
        let stages = [
            Stage::AddChannels,
            Stage::Activate(Activation::Silu),
            Stage::Scale(0.5),
            Stage::Add,
            Stage::Mul,
            Stage::Blend { accumulator_first: true },
        ];
        let packed = PackedWeights::new(isa, Values::F32(&b), columns, depth);
        let finish = Finish::group(view_mut(&ty, &mut c), rows, columns, stride, first)
            .bias(Cow::Borrowed(&bias))
            .stages(&stages, &operands);
        multiply(&MatrixRows::new(Values::F32(&a), rows, depth), &packed, &finish);
        let products = exact(&a, &b, rows, columns, depth);
        for (at, got) in c.iter().enumerate() {
            let (row, column) = (at / stride, at % stride);
            if !(first..first + columns).contains(&column) {
                assert!(got.is_nan(), "{isa:?}: ({row}, {column}) belongs to another group");
                continue;
            }
            let x = products[row * columns + column - first].0
                + f64::from(bias[column])
                + embedding[row / 7 * stride + column].to_f64();
            let silu = x / (1.0 + (-x).exp());
            let mixed = (silu * 0.5 + residual[at].to_f64()) * f64::from(factor[at]);
            let want = 0.25 * mixed + 0.75 * residual[at].to_f64();
            let got = f64::from(*got);
            assert!((got - want).abs() < 1e-4, "{isa:?} ({row}, {column}): {got} and not {want}");
        }
    }
}

#[test]
fn residual_in_place_in_half_precision() {
    let (rows, columns, depth) = (19, 35, 20);
    let mut random = Random::new(11);
    let a = random.vector::<f16>(rows * depth);
    let b = random.vector::<f16>(columns * depth);
    let before = random.vector::<f16>(rows * columns);
    let ty = matrix_type::<f16>(rows, columns);
    for isa in Isa::with_software_tiles() {
        let mut c = before.clone();
        let packed = PackedWeights::new(isa, Values::F16(&b), columns, depth);
        let start = c.as_mut_ptr().cast::<u8>();
        // SAFETY: both views are of `c`, whose elements the epilogue reads before it writes them.
        let (residual, output) = unsafe { (View::new(&ty, start), ViewMut::new(&ty, start)) };
        let finish = Finish::new(output, rows, columns).stages(&[Stage::Add], &[residual]);
        multiply(&MatrixRows::new(Values::F16(&a), rows, depth), &packed, &finish);
        let mut want = exact(&a, &b, rows, columns, depth);
        want.iter_mut().zip(&before).for_each(|(want, before)| want.0 += before.to_f64());
        assert_close("in place", &c, &want, depth);
    }
}

#[test]
fn sums_written_at_once_are_those_with_bias_and_residual() {
    let mut random = Random::new(13);
    // Whole panels and a rest, of a group of columns; one piece of the depth, and several.
    let (rows, columns, stride, first) = (17, 83, 100, 9);
    let ty = matrix_type::<f32>(rows, stride);
    for isa in Isa::with_software_tiles() {
        for depth in [0, 40, 2 * blocking::DEPTH_BLOCK + 7] {
            for in_place in [false, true] {
                let (a, b) = (random.vector::<f32>(rows * depth), random.vector::<f32>(columns * depth));
                let bias = random.vector::<f32>(stride);
                let before = random.vector::<f32>(rows * stride);
                let mut c = before.clone();
                let start = c.as_mut_ptr().cast::<u8>();
                let residual = if in_place { start.cast_const() } else { before.as_ptr().cast() };
                // SAFETY: both tensors have this type; an element that is in both is read before it is written.
                let (residual, output) = unsafe { (View::new(&ty, residual), ViewMut::new(&ty, start)) };
                let finish = Finish::group(output, rows, columns, stride, first)
                    .bias(Cow::Borrowed(&bias))
                    .stages(&[Stage::Add], &[residual]);
                let packed = PackedWeights::new(isa, Values::F32(&b), columns, depth);
                multiply(&MatrixRows::new(Values::F32(&a), rows, depth), &packed, &finish);
                let products = exact(&a, &b, rows, columns, depth);
                let want: Vec<_> = (0..rows * stride)
                    .map(|at| match (at % stride).checked_sub(first).filter(|&column| column < columns) {
                        Some(column) => {
                            let (product, size) = products[at / stride * columns + column];
                            (product + f64::from(bias[at % stride]) + f64::from(before[at]), size)
                        }
                        None => (f64::from(before[at]), 0.0),
                    })
                    .collect();
                assert_close(
                    &format!("{isa:?}, depth {depth}, in place {in_place}"),
                    &c,
                    &want,
                    depth.max(1),
                );
            }
        }
    }
}

#[test]
fn gated_products() {
    let mut random = Random::new(5);
    for isa in Isa::with_software_tiles() {
        for (rows, columns, depth) in [(1, 1, 1), (5, 16, 8), (9, 33, 70), (40, 100, 300), (3, 1500, 6)] {
            let a = random.vector::<f32>(rows * depth);
            let b = random.vector::<f16>(2 * columns * depth);
            let bias = random.vector::<f32>(2 * columns);
            let mut c = vec![f32::NAN; rows * columns];
            let packed = PackedWeights::gated(isa, Values::F16(&b), columns, depth);
            let ty = matrix_type::<f32>(rows, columns);
            let finish = Finish::new(view_mut(&ty, &mut c), rows, columns)
                .gate(Activation::GeluTanh)
                .bias(Cow::Borrowed(&bias));
            multiply(&MatrixRows::new(Values::F32(&a), rows, depth), &packed, &finish);
            let products = exact(&a, &b, rows, 2 * columns, depth);
            for row in 0..rows {
                for column in 0..columns {
                    let value = products[row * 2 * columns + column].0 + bias[column] as f64;
                    let gate =
                        products[row * 2 * columns + columns + column].0 + bias[columns + column] as f64;
                    let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044715 * gate.powi(3));
                    let want = value * 0.5 * gate * (1.0 + inner.tanh());
                    let got = c[row * columns + column] as f64;
                    let label = format!("{isa:?} {rows}×{columns}×{depth} ({row}, {column})");
                    assert!((got - want).abs() < 1e-4 * (1.0 + want.abs()), "{label}: {got} and not {want}");
                }
            }
        }
    }
}

/// What is stored as bf16 at once may have a GELU of fewer digits, with gates of any size.
#[test]
fn gated_products_in_bf16() {
    let mut random = Random::new(43);
    let (rows, columns, depth) = (35, 45, 70);
    for isa in Isa::with_software_tiles() {
        for magnitude in [0.05, 1.0, 20.0] {
            let a = random.vector::<bf16>(rows * depth);
            let b: Vec<bf16> =
                (0..2 * columns * depth).map(|_| bf16::from_f32(magnitude * random.uniform())).collect();
            let mut c = vec![bf16::NAN; rows * columns];
            let packed = PackedWeights::gated(isa, Values::BF16(&b), columns, depth);
            let ty = matrix_type::<bf16>(rows, columns);
            let finish = Finish::new(view_mut(&ty, &mut c), rows, columns).gate(Activation::Gelu);
            multiply(&MatrixRows::new(Values::BF16(&a), rows, depth), &packed, &finish);
            let products = exact(&a, &b, rows, 2 * columns, depth);
            for (at, got) in c.iter().enumerate() {
                let (row, column) = (at / columns, at % columns);
                let (value, size) = products[row * 2 * columns + column];
                let (gate, gate_size) = products[row * 2 * columns + columns + column];
                let gelu = 0.5 * gate * (1.0 + libm::erf(gate / std::f64::consts::SQRT_2));
                let want = value * gelu;
                // Half a unit of bf16's last place and an eighth of that; what the sums were rounded by; and what is left of
                // gates below -6. The slope of GELU is at most 1.13.
                let sums = 1e-6 * (size * gelu.abs() + 1.13 * gate_size * value.abs());
                let allowed = want.abs() * (2f64.powi(-8) + 2f64.powi(-11)) + sums + 1e-8 * value.abs();
                let label = format!("{isa:?} {magnitude} ({row}, {column})");
                assert!((got.to_f64() - want).abs() <= allowed, "{label}: {got} and not {want}");
            }
        }
    }
}

/// The matrix that a convolution's rows stand for, tap by tap.
fn im2col<E: Float>(input: &[E], g: &ConvGeometry) -> Vec<E> {
    let mut matrix = Vec::new();
    for image in 0..g.output_images() {
        let (clip, frame) = (image / g.output_frames(), image % g.output_frames());
        for y in 0..g.output_height() {
            for x in 0..g.output_width() {
                for tap in 0..g.kernel.iter().product() {
                    let taps = [
                        tap / (g.kernel[1] * g.kernel[2]),
                        tap / g.kernel[2] % g.kernel[1],
                        tap % g.kernel[2],
                    ];
                    let first = [frame * g.stride[0], y * g.stride[1], x * g.stride[2]];
                    let size = [g.frames, g.height, g.width];
                    let at: Vec<isize> = (0..3)
                        .map(|axis| {
                            (first[axis] + taps[axis] * g.dilation[axis]) as isize
                                - g.padding_before[axis] as isize
                        })
                        .collect();
                    let inside = (0..3).all(|axis| at[axis] >= 0 && at[axis] < size[axis] as isize);
                    for channel in 0..g.channels {
                        let pixel = ((clip as isize * size[0] as isize + at[0]) * size[1] as isize + at[1])
                            * size[2] as isize
                            + at[2];
                        let index = pixel * g.pixel_channels as isize + (g.first_channel + channel) as isize;
                        matrix.push(if inside { input[index as usize] } else { E::default() });
                    }
                }
            }
        }
    }
    matrix
}

#[test]
fn convolutions() {
    check_convolutions::<f32>();
    check_convolutions::<f16>();
    check_convolutions::<bf16>();
}

fn check_convolutions<E: Storage>() {
    let plain = |images, height, width, channels, kernel| ConvGeometry {
        images,
        frames: 1,
        height,
        width,
        pixel_channels: channels,
        first_channel: 0,
        channels,
        kernel: [1, kernel, kernel],
        stride: [1; 3],
        dilation: [1; 3],
        padding_before: [0; 3],
        padding_after: [0; 3],
    };
    let padded = |geometry: ConvGeometry, by: usize| ConvGeometry {
        padding_before: [0, by, by],
        padding_after: [0, by, by],
        ..geometry
    };
    let strided = ConvGeometry {
        stride: [1, 2, 2],
        padding_before: [0, 0, 0],
        padding_after: [0, 1, 1],
        ..plain(2, 8, 7, 10, 3)
    };
    let temporal = ConvGeometry {
        frames: 5,
        kernel: [3, 1, 1],
        padding_before: [1, 0, 0],
        padding_after: [1, 0, 0],
        ..plain(10, 3, 4, 40, 1)
    };
    let causal = ConvGeometry {
        frames: 4,
        kernel: [3, 3, 2],
        stride: [2, 1, 2],
        dilation: [1, 1, 2],
        padding_before: [2, 1, 0],
        padding_after: [0, 0, 1],
        ..plain(8, 5, 6, 6, 1)
    };
    let group = ConvGeometry { first_channel: 6, channels: 3, ..padded(plain(1, 5, 5, 12, 3), 1) };
    let cases = [
        plain(1, 1, 1, 1, 1),
        plain(3, 5, 4, 33, 1),
        padded(plain(2, 9, 7, 4, 3), 1),
        padded(plain(1, 6, 6, 100, 3), 1),
        ConvGeometry { dilation: [1, 2, 3], ..padded(plain(1, 9, 11, 5, 3), 2) },
        ConvGeometry { dilation: [1, 4, 4], ..padded(plain(1, 3, 3, 2, 3), 4) },
        plain(2, 2, 2, 3, 3),
        strided,
        temporal,
        causal,
        group,
    ];
    let mut random = Random::new(13);
    for isa in Isa::with_software_tiles() {
        for geometry in cases {
            let input = random
                .vector::<E>(geometry.images * geometry.height * geometry.width * geometry.pixel_channels);
            let rows = ConvRows::new(E::values(&input), geometry);
            let (count, depth, columns) = (rows.rows(), rows.depth(), 21);
            let matrix = im2col(&input, &geometry);
            assert_eq!(matrix.len(), count * depth);
            let weights = random.vector::<E>(columns * depth);
            let mut output = vec![f32::NAN; count * columns];
            let packed = PackedWeights::new(isa, E::values(&weights), columns, depth);
            let ty = matrix_type::<f32>(count, columns);
            multiply(&rows, &packed, &Finish::new(view_mut(&ty, &mut output), count, columns));
            assert_close(
                &format!("{isa:?} {geometry:?}"),
                &output,
                &exact(&matrix, &weights, count, columns, depth),
                depth,
            );
        }
    }
}

#[test]
fn batches_in_both_layouts() {
    let mut random = Random::new(17);
    let (batch, rows, columns, depth) = (5, 19, 23, 270);
    for isa in Isa::with_software_tiles() {
        for layout in [Layout::ColumnMajor, Layout::DepthMajor] {
            let a = random.vector::<f32>(batch * rows * depth);
            let b = random.vector::<f16>(batch * columns * depth);
            // The operand as it lies in memory: `[depth, columns]` is the transposed of what the plain loop reads.
            let lying: Vec<f16> = match layout {
                Layout::ColumnMajor => b.clone(),
                Layout::DepthMajor => (0..b.len())
                    .map(|at| {
                        let (matrix, at) = (at / (columns * depth), at % (columns * depth));
                        b[matrix * columns * depth + at % columns * depth + at / columns]
                    })
                    .collect(),
            };
            let mut c = vec![f32::NAN; batch * rows * columns];
            let (ty, all) = (matrix_type::<f32>(rows, columns), matrix_type::<f32>(batch * rows, columns));
            let output = view_mut(&all, &mut c);
            let right = BatchedOperand { values: Values::F16(&lying), layout, columns, depth };
            let left = |index: usize| {
                MatrixRows::new(Values::F32(&a[index * rows * depth..][..rows * depth]), rows, depth)
            };
            multiply_batched(isa, batch, left, right, |index| {
                // SAFETY: each product of the batch has a part of its own.
                Finish::new(unsafe { output.part(&ty, index) }, rows, columns)
            });
            for (index, c) in c.chunks(rows * columns).enumerate() {
                let (a, b) = (&a[index * rows * depth..], &b[index * columns * depth..]);
                assert_close(&format!("{isa:?} {layout:?}"), c, &exact(a, b, rows, columns, depth), depth);
            }
        }
    }
}

/// Depths of an odd number of values and of several pieces, in a storage type whose products may be of pairs.
#[test]
fn long_products_of_bf16() {
    let mut random = Random::new(23);
    for isa in Isa::with_software_tiles() {
        for (rows, columns, depth) in
            [(14, 40, 2 * blocking::DEPTH_BLOCK + 1), (5, 33, 4 * blocking::DEPTH_BLOCK + 6)]
        {
            let (a, b) = (random.vector::<bf16>(rows * depth), random.vector::<bf16>(columns * depth));
            let mut c = vec![f32::NAN; rows * columns];
            let packed = PackedWeights::new(isa, Values::BF16(&b), columns, depth);
            assert_eq!(packed.bytes(), PackedWeights::bytes_of(isa, DType::BF16, columns, depth, false));
            let ty = matrix_type::<f32>(rows, columns);
            let finish = Finish::new(view_mut(&ty, &mut c), rows, columns);
            multiply(&MatrixRows::new(Values::BF16(&a), rows, depth), &packed, &finish);
            let label = format!("{isa:?} {rows}×{columns}×{depth}");
            assert_close(&label, &c, &exact(&a, &b, rows, columns, depth), depth);
        }
    }
}

#[test]
fn a_result_does_not_depend_on_the_number_of_threads() {
    check_threads::<f32>();
    check_threads::<bf16>();
}

fn check_threads<E: Storage>() {
    let (rows, columns, depth) = (131, 333, 700);
    let mut random = Random::new(19);
    let a = random.vector::<E>(rows * depth);
    let b = random.vector::<E>(columns * depth);
    for isa in Isa::with_software_tiles() {
        let packed = PackedWeights::new(isa, E::values(&b), columns, depth);
        let run = |threads| {
            let mut c = vec![f32::NAN; rows * columns];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
            pool.install(|| {
                let ty = matrix_type::<f32>(rows, columns);
                let finish = Finish::new(view_mut(&ty, &mut c), rows, columns);
                multiply(&MatrixRows::new(E::values(&a), rows, depth), &packed, &finish);
            });
            c
        };
        let one = run(1);
        for threads in [2, 3, 7] {
            assert!(one == run(threads), "{isa:?} on {threads} threads");
        }
    }
}

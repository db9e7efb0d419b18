//! Products against a plain loop in f64, on every instruction set of the machine.

use half::{bf16, f16};

use super::*;
use crate::simd::{Element, Isa};

/// Reproducible values in -1..1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn vector<E: Element>(&mut self, length: usize) -> Vec<E> {
        (0..length).map(|_| E::from_f32(self.next())).collect()
    }
}

/// A storage type with its variant of [`Values`] and [`ValuesMut`].
trait Storage: Element {
    /// The relative rounding of a stored result.
    const ROUNDING: f64;
    fn values(values: &[Self]) -> Values<'_>;
    fn values_mut(values: &mut [Self]) -> ValuesMut<'_>;
}

macro_rules! storage {
    ($type:ty, $variant:ident, $rounding:expr) => {
        impl Storage for $type {
            const ROUNDING: f64 = $rounding;
            fn values(values: &[Self]) -> Values<'_> {
                Values::$variant(values)
            }
            fn values_mut(values: &mut [Self]) -> ValuesMut<'_> {
                ValuesMut::$variant(values)
            }
        }
    };
}

storage!(f32, F32, 1e-6);
storage!(f16, F16, 1e-3);
storage!(bf16, BF16, 8e-3);

/// `A · Bᵀ` and `|A| · |B|ᵀ` in f64.
fn exact<A: Element, B: Element>(
    a: &[A],
    b: &[B],
    rows: usize,
    columns: usize,
    depth: usize,
) -> Vec<(f64, f64)> {
    let product = |row: usize, column: usize| {
        let (a, b) = (&a[row * depth..][..depth], &b[column * depth..][..depth]);
        a.iter().zip(b).fold((0.0, 0.0), |(sum, size), (a, b)| {
            let term = a.to_f32() as f64 * b.to_f32() as f64;
            (sum + term, size + term.abs())
        })
    };
    (0..rows * columns)
        .map(|at| product(at / columns, at % columns))
        .collect()
}

#[track_caller]
fn assert_close<C: Storage>(label: &str, got: &[C], exact: &[(f64, f64)], depth: usize) {
    assert_eq!(got.len(), exact.len(), "{label}");
    for (at, (got, &(want, size))) in got.iter().zip(exact).enumerate() {
        let allowed = 3e-7 * (depth as f64).sqrt() * size + C::ROUNDING * want.abs() + 1e-6;
        let error = (got.to_f32() as f64 - want).abs();
        assert!(
            error <= allowed,
            "{label}: element {at} is {} and not {want}",
            got.to_f32()
        );
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
    let mut random = Random(7);
    for isa in Isa::available() {
        for (rows, columns, depth) in SIZES {
            let a = random.vector::<A>(rows * depth);
            let b = random.vector::<B>(columns * depth);
            let mut c = vec![C::from_f32(f32::NAN); rows * columns];
            let packed = PackedWeights::new(isa, B::values(&b), columns, depth);
            let finish = Finish::new(C::values_mut(&mut c), rows, columns);
            multiply(
                &MatrixRows::new(A::values(&a), rows, depth),
                &packed,
                &finish,
            );
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
    for isa in Isa::available() {
        for (rows, columns) in [(0, 5), (5, 0), (0, 0)] {
            let weights = vec![1.0f32; columns * 3];
            let packed = PackedWeights::new(isa, Values::F32(&weights), columns, 3);
            let input = vec![1.0f32; rows * 3];
            let finish = Finish::new(ValuesMut::F32(&mut []), rows, columns);
            multiply(
                &MatrixRows::new(Values::F32(&input), rows, 3),
                &packed,
                &finish,
            );
        }
        let packed = PackedWeights::new(isa, Values::F32(&[]), 3, 0);
        let mut output = vec![f32::NAN; 6];
        let finish =
            Finish::new(ValuesMut::F32(&mut output), 2, 3).stage(Stage::Bias(&[1.0, 2.0, 3.0]));
        multiply(&MatrixRows::new(Values::F32(&[]), 2, 0), &packed, &finish);
        assert_eq!(output, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    }
}

#[test]
fn stages_apply_in_order_and_strides_leave_gaps_alone() {
    let (rows, columns, depth, stride) = (21, 37, 50, 45);
    let mut random = Random(3);
    for isa in Isa::available() {
        let a = random.vector::<f32>(rows * depth);
        let b = random.vector::<f32>(columns * depth);
        let bias = random.vector::<f32>(columns);
        let embedding = random.vector::<f16>(3 * columns);
        let residual = random.vector::<bf16>(rows * columns);
        let factor = random.vector::<f32>(rows * columns);
        let mut c = vec![f32::NAN; rows * stride];
        for row in 0..rows {
            c[row * stride..][..columns].fill(row as f32);
        }
        let packed = PackedWeights::new(isa, Values::F32(&b), columns, depth);
        let finish = Finish::strided(ValuesMut::F32(&mut c), rows, columns, stride)
            .stage(Stage::Bias(&bias))
            .stage(Stage::ImageBias {
                values: Values::F16(&embedding),
                rows_per_image: 7,
            })
            .stage(Stage::Activation(Activation::Silu))
            .stage(Stage::Scale(0.5))
            .stage(Stage::Residual(Values::BF16(&residual)))
            .stage(Stage::Multiply(Values::F32(&factor)))
            .stage(Stage::Accumulate);
        multiply(
            &MatrixRows::new(Values::F32(&a), rows, depth),
            &packed,
            &finish,
        );
        let products = exact(&a, &b, rows, columns, depth);
        for row in 0..rows {
            for column in 0..columns {
                let at = row * columns + column;
                let x = products[at].0
                    + bias[column] as f64
                    + embedding[row / 7 * columns + column].to_f64();
                let silu = x / (1.0 + (-x).exp());
                let want = (silu * 0.5 + residual[at].to_f64()) * factor[at] as f64 + row as f64;
                let got = c[row * stride + column] as f64;
                assert!(
                    (got - want).abs() < 1e-4,
                    "{isa:?} ({row}, {column}): {got} and not {want}"
                );
            }
            assert!(
                c[row * stride + columns..(row + 1) * stride]
                    .iter()
                    .all(|value| value.is_nan())
            );
        }
    }
}

#[test]
fn residual_in_place_in_half_precision() {
    let (rows, columns, depth) = (19, 35, 20);
    let mut random = Random(11);
    let a = random.vector::<f16>(rows * depth);
    let b = random.vector::<f16>(columns * depth);
    let before = random.vector::<f16>(rows * columns);
    for isa in Isa::available() {
        let mut c = before.clone();
        let packed = PackedWeights::new(isa, Values::F16(&b), columns, depth);
        let finish = Finish::new(ValuesMut::F16(&mut c), rows, columns).stage(Stage::Accumulate);
        multiply(
            &MatrixRows::new(Values::F16(&a), rows, depth),
            &packed,
            &finish,
        );
        let mut want = exact(&a, &b, rows, columns, depth);
        want.iter_mut()
            .zip(&before)
            .for_each(|(want, before)| want.0 += before.to_f64());
        assert_close("in place", &c, &want, depth);
    }
}

#[test]
fn gated_products() {
    let mut random = Random(5);
    for isa in Isa::available() {
        for (rows, columns, depth) in [
            (1, 1, 1),
            (5, 16, 8),
            (9, 33, 70),
            (40, 100, 300),
            (3, 1500, 6),
        ] {
            let a = random.vector::<f32>(rows * depth);
            let b = random.vector::<f16>(2 * columns * depth);
            let bias = random.vector::<f32>(2 * columns);
            let mut c = vec![f32::NAN; rows * columns];
            let packed = PackedWeights::gated(isa, Values::F16(&b), columns, depth);
            let finish = Finish::new(ValuesMut::F32(&mut c), rows, columns).gate(Gate {
                bias: Some(&bias),
                activation: Activation::GeluTanh,
            });
            multiply(
                &MatrixRows::new(Values::F32(&a), rows, depth),
                &packed,
                &finish,
            );
            let products = exact(&a, &b, rows, 2 * columns, depth);
            for row in 0..rows {
                for column in 0..columns {
                    let value = products[row * 2 * columns + column].0 + bias[column] as f64;
                    let gate = products[row * 2 * columns + columns + column].0
                        + bias[columns + column] as f64;
                    let inner =
                        (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044715 * gate.powi(3));
                    let want = value * 0.5 * gate * (1.0 + inner.tanh());
                    let got = c[row * columns + column] as f64;
                    let label = format!("{isa:?} {rows}×{columns}×{depth} ({row}, {column})");
                    assert!(
                        (got - want).abs() < 1e-4 * (1.0 + want.abs()),
                        "{label}: {got} and not {want}"
                    );
                }
            }
        }
    }
}

/// The matrix that a convolution's rows stand for, tap by tap.
fn im2col(input: &[f32], g: &ConvGeometry) -> Vec<f32> {
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
                    let first = [frame, y * g.stride[0], x * g.stride[1]];
                    let size = [g.frames, g.height, g.width];
                    let at: Vec<isize> = (0..3)
                        .map(|axis| {
                            (first[axis] + taps[axis] * g.dilation[axis]) as isize
                                - g.padding_before[axis] as isize
                        })
                        .collect();
                    let inside = (0..3).all(|axis| at[axis] >= 0 && at[axis] < size[axis] as isize);
                    for channel in 0..g.channels {
                        let pixel = ((clip as isize * size[0] as isize + at[0]) * size[1] as isize
                            + at[1])
                            * size[2] as isize
                            + at[2];
                        let index = pixel * g.pixel_channels as isize
                            + (g.first_channel + channel) as isize;
                        matrix.push(if inside { input[index as usize] } else { 0.0 });
                    }
                }
            }
        }
    }
    matrix
}

#[test]
fn convolutions() {
    let plain = |images, height, width, channels, kernel| {
        ConvGeometry::new(images, height, width, channels, kernel)
    };
    let strided = ConvGeometry {
        stride: [2, 2],
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
        stride: [1, 2],
        dilation: [1, 1, 2],
        padding_before: [2, 1, 0],
        padding_after: [0, 0, 1],
        ..plain(8, 5, 6, 6, 1)
    };
    let group = ConvGeometry {
        first_channel: 6,
        channels: 3,
        ..plain(1, 5, 5, 12, 3).padded(1)
    };
    let cases = [
        plain(1, 1, 1, 1, 1),
        plain(3, 5, 4, 33, 1),
        plain(2, 9, 7, 4, 3).padded(1),
        plain(1, 6, 6, 100, 3).padded(1),
        ConvGeometry {
            dilation: [1, 2, 3],
            ..plain(1, 9, 11, 5, 3).padded(2)
        },
        ConvGeometry {
            dilation: [1, 4, 4],
            ..plain(1, 3, 3, 2, 3).padded(4)
        },
        plain(2, 2, 2, 3, 3),
        strided,
        temporal,
        causal,
        group,
    ];
    let mut random = Random(13);
    for isa in Isa::available() {
        for geometry in cases {
            let input = random.vector::<f32>(
                geometry.images * geometry.height * geometry.width * geometry.pixel_channels,
            );
            let rows = ConvRows::new(Values::F32(&input), geometry);
            let (count, depth, columns) = (rows.rows(), rows.depth(), 21);
            let matrix = im2col(&input, &geometry);
            assert_eq!(matrix.len(), count * depth);
            let weights = random.vector::<f32>(columns * depth);
            let mut output = vec![f32::NAN; count * columns];
            let packed = PackedWeights::new(isa, Values::F32(&weights), columns, depth);
            multiply(
                &rows,
                &packed,
                &Finish::new(ValuesMut::F32(&mut output), count, columns),
            );
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
    let mut random = Random(17);
    let (batch, rows, columns, depth) = (5, 19, 23, 270);
    for isa in Isa::available() {
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
            let outputs: Vec<_> = c
                .chunks_mut(rows * columns)
                .map(|output| std::sync::Mutex::new(Some(output)))
                .collect();
            let right = BatchedOperand {
                values: Values::F16(&lying),
                layout,
                columns,
                depth,
            };
            multiply_batched(isa, batch, rows, Values::F32(&a), right, |index| {
                let output = outputs[index]
                    .lock()
                    .expect("no test thread panics")
                    .take()
                    .expect("taken once");
                Finish::new(ValuesMut::F32(output), rows, columns)
            });
            for (index, c) in c.chunks(rows * columns).enumerate() {
                let (a, b) = (&a[index * rows * depth..], &b[index * columns * depth..]);
                assert_close(
                    &format!("{isa:?} {layout:?}"),
                    c,
                    &exact(a, b, rows, columns, depth),
                    depth,
                );
            }
        }
    }
}

#[test]
fn a_result_does_not_depend_on_the_number_of_threads() {
    let (rows, columns, depth) = (131, 333, 700);
    let mut random = Random(19);
    let a = random.vector::<f32>(rows * depth);
    let b = random.vector::<f32>(columns * depth);
    for isa in Isa::available() {
        let packed = PackedWeights::new(isa, Values::F32(&b), columns, depth);
        let run = |threads| {
            let mut c = vec![f32::NAN; rows * columns];
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("a thread pool");
            pool.install(|| {
                let finish = Finish::new(ValuesMut::F32(&mut c), rows, columns);
                multiply(
                    &MatrixRows::new(Values::F32(&a), rows, depth),
                    &packed,
                    &finish,
                );
            });
            c
        };
        let one = run(1);
        for threads in [2, 3, 7] {
            assert!(one == run(threads), "{isa:?} on {threads} threads");
        }
    }
}

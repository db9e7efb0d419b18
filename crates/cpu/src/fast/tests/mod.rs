//! Every memory-bound op against the reference: element types, instruction sets, edge cases, in place.

mod cases;
mod harness;

use kinora_graph::{
    DType, Op, Tensor,
    op::{Activation, Affine, Concat, Conv, Linear, MatMul, Norm, NormKind, SamplerStep, Slice},
};

use crate::testing::Random;
use kinora_runtime::RunError;

use crate::simd::Isa;
use cases::cases;
use harness::{check, fast};
use kinora_graph::TensorType;

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[test]
fn every_op_equals_the_reference() {
    for seed in 0..3 {
        let mut random = Random::new(seed);
        for dtype in FLOATS {
            for (op, inputs) in cases(&mut random, dtype) {
                check(&op, &inputs);
            }
        }
    }
}

#[test]
fn operands_of_other_element_types_equal_the_reference() {
    for seed in 0..3 {
        let mut random = Random::new(100 + seed);
        for dtype in FLOATS {
            for (op, mut inputs) in cases(&mut random, dtype) {
                // These take operands of one type.
                if matches!(op, Op::Concat(_)) {
                    continue;
                }
                let last = inputs.len() - 1;
                for (i, input) in inputs.iter_mut().enumerate().skip(1) {
                    let fixed = match &op {
                        Op::SamplerStep(step) => matches!(i, 2..=4) || step.blend && i == last,
                        Op::TemporalBlend(_) => i == 2,
                        _ => false,
                    };
                    if input.dtype().is_float() && !fixed {
                        *input = input.cast(FLOATS[random.below(3)]);
                    }
                }
                check(&op, &inputs);
            }
        }
    }
}

#[test]
fn norms_far_from_zero_keep_their_digits() {
    let mut random = Random::new(7);
    for (mean, deviation) in [(100.0, 1.0), (-1e4, 3.0), (1e4, 1e4), (0.0, 1e-3)] {
        for kind in [
            NormKind::Group { groups: 4, frames: 1 },
            NormKind::Group { groups: 24, frames: 2 },
            NormKind::Layer,
            NormKind::Rms,
        ] {
            let x = random.floats(DType::F32, &[2, 23, 31, 24], mean, deviation);
            let op = Norm {
                kind,
                epsilon: 1e-6,
                affine: Affine::None,
                activation: None,
                quantise: None,
                measured: false,
            };
            check(&Op::Norm(op), &[x]);
        }
    }
}

#[test]
fn a_first_guess_far_off_is_corrected() {
    // Group 1's sampled rows (an eighth, three eighths, … of the way) are far outside what the other rows hold.
    let (rows, channels) = (4096, 8);
    let mut random = Random::new(8);
    let x = random.floats(DType::F32, &[1, rows, channels], 3.0, 0.01);
    let mut values = x.to_f32();
    for row in [512, 1536, 2560, 3584] {
        values[row * channels + 4..(row + 1) * channels].fill(30.0);
    }
    let x = Tensor::from_f32(DType::F32, [1, rows, channels], &values).unwrap();
    let kind = NormKind::Group { groups: 2, frames: 1 };
    check(
        &Op::Norm(Norm {
            kind,
            epsilon: 1e-5,
            affine: Affine::None,
            activation: None,
            quantise: None,
            measured: false,
        }),
        &[x],
    );
}

#[test]
fn a_constant_input_normalises_to_zero() {
    for kind in [NormKind::Group { groups: 2, frames: 1 }, NormKind::Layer] {
        let x = Tensor::from_f32(DType::F32, [1, 50, 6], &[1e4 / 3.0; 300]).unwrap();
        let op = Op::Norm(Norm {
            kind,
            epsilon: 1e-5,
            affine: Affine::None,
            activation: None,
            quantise: None,
            measured: false,
        });
        for isa in Isa::available() {
            let y = fast(isa, &op, std::slice::from_ref(&x)).unwrap();
            assert!(y[0].to_f32().iter().all(|&y| y == 0.0), "{isa:?} {op}");
        }
    }
}

#[test]
fn infinities_and_nans_go_where_the_reference_sends_them() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let row = [nan, inf, -inf, 0.0, -0.0, 1e-30, 300.0, -300.0, 1.0];
    for dtype in FLOATS {
        for activation in Activation::ALL {
            // x · 0 of a negative infinite x is NaN in one form of these and zero in another.
            let finite = row.map(|x| if x == -inf { -1e4 } else { x });
            let values = if activation == Activation::Relu { row } else { finite };
            let x = Tensor::from_f32(dtype, [9], &values).unwrap();
            check(&Op::Activate(activation), &[x]);
        }
        for row in [[-inf; 9], [nan; 9], [-inf, -inf, -inf, -inf, -inf, -inf, -inf, -inf, nan], {
            let mut row = [-inf; 9];
            row[8] = 2.0;
            row
        }] {
            check(&Op::Softmax, &[Tensor::from_f32(dtype, [9], &row).unwrap()]);
        }
        for at in 0..4 {
            let mut window = [1.0, 5.0, -2.0, 3.0];
            window[at] = nan;
            let x = Tensor::from_f32(dtype, [1, 2, 2, 1], &window).unwrap();
            check(&cases::max_pool(2, 2, 0), &[x]);
        }
    }
}

#[test]
fn every_pair_of_element_types_casts() {
    let mut values = vec![0.5, 1.5, 2.5, -0.5, -3.7, 254.5, 255.5, 300.0, 1e9, -1e9, 3e9, -3e9];
    values.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 65504.0, 65520.0, 1e-8, 0.0, -0.0]);
    let mut random = Random::new(9);
    values.extend(random.floats(DType::F32, &[1013], 0.0, 200.0).to_f32());
    let floats = Tensor::from_f32(DType::F32, [values.len()], &values).unwrap();
    let ints: Vec<i32> = values.iter().map(|&x| x as i32).chain([16_777_217, i32::MIN, -1]).collect();
    let ints = Tensor::from_slice([ints.len()], &ints).unwrap();
    for from in [DType::F32, DType::F16, DType::BF16, DType::U8, DType::I32] {
        let x = if from == DType::I32 { ints.clone() } else { floats.cast(from) };
        for to in [DType::F32, DType::F16, DType::BF16, DType::U8, DType::I32] {
            for isa in Isa::available() {
                let y = fast(isa, &Op::Cast(to), std::slice::from_ref(&x)).unwrap();
                let want = x.cast(to);
                // NaNs may differ in their payloads.
                for (i, (a, b)) in y[0].to_f32().iter().zip(want.to_f32()).enumerate() {
                    assert!(
                        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
                        "{isa:?} {from} {to} {i}: {a} {b}"
                    );
                }
                if to == DType::I32 {
                    assert_eq!(y[0], want, "{isa:?} {from} {to}");
                }
            }
            check(&Op::Cast(to), std::slice::from_ref(&x));
        }
    }
}

#[test]
fn an_id_outside_the_table_is_an_error_and_writes_nothing() {
    let table = Random::new(1).floats(DType::F16, &[3, 5], 0.0, 1.0);
    for id in [-1, 3, i32::MIN, i32::MAX] {
        let ids = Tensor::from_slice([3], &[0, id, 1]).unwrap();
        let got = fast(Isa::detect(), &Op::Embedding, &[table.clone(), ids]);
        assert_eq!(got, Err(RunError::Token { layer: "layer".into(), id, rows: 3 }));
    }
}

#[test]
fn a_step_outside_the_table_is_an_error_and_writes_nothing() {
    let mut random = Random::new(2);
    for step in [-1, 4, i32::MIN] {
        let inputs = [
            random.floats(DType::F32, &[2, 3], 0.0, 1.0),
            random.floats(DType::F32, &[2, 3], 0.0, 1.0),
            random.floats(DType::F32, &[4, 8], 0.0, 1.0),
            Tensor::from_slice([1], &[step]).unwrap(),
        ];
        let got = fast(Isa::detect(), &Op::SamplerStep(SamplerStep::default()), &inputs);
        assert_eq!(got, Err(RunError::SamplerStep { layer: "layer".into(), step, steps: 4 }));
    }
}

/// What the pass that fuses them relies on, and what a stream relies on at a cut.
#[test]
fn a_blended_step_is_the_step_and_the_blend_to_the_bit() {
    let mut random = Random::new(11);
    let shape = [2, 5, 7, 4];
    let [sample, prediction, noise, previous] = [(); 4].map(|()| random.floats(DType::F32, &shape, 0.0, 1.0));
    let table = random.floats(DType::F32, &[4, 8], 0.0, 1.0);
    let inputs = [sample, prediction, table, Tensor::from_slice([1], &[2i32]).unwrap(), noise];
    let plain = SamplerStep { noise: true, ..SamplerStep::default() };
    let blended = Op::SamplerStep(SamplerStep { blend: true, ..plain });
    let separate = Op::TemporalBlend(kinora_graph::op::TemporalBlend::default());
    // A frame before that is not finite shows even if the strength is 0, as it does in the reference.
    let mut values = previous.to_f32();
    values[..3].copy_from_slice(&[f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    let broken = Tensor::from_f32(DType::F32, shape, &values).unwrap();
    for strength in [0.0, 0.3] {
        let blend = [broken.clone(), Tensor::from_slice([1], &[strength]).unwrap()];
        check(&blended, &[&inputs[..], &blend].concat());
    }
    for isa in Isa::available() {
        let next = fast(isa, &Op::SamplerStep(plain), &inputs).unwrap().remove(0);
        for strength in [0.0, 0.3, 1.0] {
            let strength_tensor = Tensor::from_slice([1], &[strength]).unwrap();
            let blend = [previous.clone(), strength_tensor];
            let one = fast(isa, &blended, &[&inputs[..], &blend].concat()).unwrap();
            let two = fast(isa, &separate, &[&[next.clone()][..], &blend].concat()).unwrap();
            assert_eq!(one, two, "{isa:?} {strength}");
            if strength == 0.0 {
                assert_eq!(one[0], next, "{isa:?}");
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mut random = Random::new(3);
    let large = random.floats(DType::F32, &[2, 64, 65, 96], 5.0, 1.0);
    let mut all = cases(&mut random, DType::F32);
    let kind = NormKind::Group { groups: 32, frames: 2 };
    all.push((
        Op::Norm(Norm {
            kind,
            epsilon: 1e-5,
            affine: Affine::None,
            activation: None,
            quantise: None,
            measured: false,
        }),
        vec![large.clone()],
    ));
    for axes in [vec![1, 2], vec![0, 1, 2, 3], vec![3], vec![0, 2]] {
        all.push((Op::Mean(kinora_graph::op::Mean { axes }), vec![large.clone()]));
    }
    for (op, inputs) in all {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| fast(Isa::detect(), &op, &inputs)).unwrap()
        };
        assert_eq!(run(1), run(5), "{op}");
    }
}

#[test]
fn rows_without_channels_are_products_of_nothing() {
    let mut random = Random::new(4);
    for dtype in FLOATS {
        for kind in [NormKind::Layer, NormKind::Rms] {
            let norm = Norm {
                kind,
                epsilon: 1e-5,
                affine: Affine::ScaleShift,
                activation: None,
                quantise: None,
                measured: false,
            };
            let op = Linear { bias: true, prologue: Some(norm), ..Linear::default() };
            let [x, weight, bias] =
                [&[3, 0][..], &[4, 0], &[4]].map(|shape| random.floats(dtype, shape, 0.0, 1.0));
            let empty = random.floats(dtype, &[0], 0.0, 1.0);
            check(&Op::Linear(op), &[x, weight, bias, empty.clone(), empty]);
        }
        for conv in [Conv::spatial([3, 3], 1, 1), Conv::spatial([1, 1], 1, 0), Conv::temporal(3, 1)] {
            let op = Conv { bias: true, ..conv };
            let [kt, kh, kw] = op.kernel;
            let x = random.floats(dtype, &[1, 4, 4, 0], 0.0, 1.0);
            let weight = random.floats(dtype, &[8, kt, kh, kw, 0], 0.0, 1.0);
            let bias = random.floats(dtype, &[8], 0.0, 1.0);
            check(&Op::Conv(op), &[x, weight, bias]);
        }
    }
}

#[test]
fn an_empty_result_needs_no_loops() {
    // Two of them are as much as a graph takes beside a zero, and more than anyone could loop over.
    let huge = 1 << 28;
    for (op, shapes) in [
        (Op::Activate(Activation::Silu), vec![vec![huge, huge, 0]]),
        (Op::Softmax, vec![vec![huge, huge, 0]]),
        (Op::Add, vec![vec![huge, huge, 0]; 2]),
        (Op::Linear(Linear::default()), vec![vec![huge, huge, 0, 4], vec![3, 4]]),
        (Op::Linear(Linear::default()), vec![vec![2, 4], vec![0, 4]]),
        (Op::MatMul(MatMul::default()), vec![vec![huge, huge, 0, 4], vec![4, 3]]),
        (Op::Concat(Concat { axis: 0 }), vec![vec![2, huge, huge, 0]; 2]),
        (Op::Slice(Slice { axis: 0, start: 1, len: 1 }), vec![vec![2, huge, huge, 0]]),
        (Op::Conv(Conv::spatial([3, 3], 1, 1)), vec![vec![0, huge, 4, 4], vec![8, 1, 3, 3, 4]]),
    ] {
        let zeros = |shape: Vec<usize>| Tensor::zeros(TensorType::new(DType::F32, shape));
        check(&op, &shapes.into_iter().map(zeros).collect::<Vec<_>>());
    }
}

#[test]
fn norms_of_values_whose_squares_overflow() {
    let mut random = Random::new(6);
    for dtype in [DType::F32, DType::BF16] {
        for size in [2e19, 1e30] {
            for kind in [
                NormKind::Group { groups: 2, frames: 1 },
                NormKind::Group { groups: 8, frames: 2 },
                NormKind::Layer,
                NormKind::Rms,
            ] {
                for shape in [[2, 3, 3, 8], [2, 40, 41, 40]] {
                    let x = random.floats(dtype, &shape, 0.0, size);
                    let signs: Vec<f32> = x.to_f32().iter().map(|x| x.signum() * size).collect();
                    let op = Op::Norm(Norm {
                        kind,
                        epsilon: 1e-5,
                        affine: Affine::None,
                        activation: None,
                        quantise: None,
                        measured: false,
                    });
                    check(&op, &[Tensor::from_f32(dtype, shape, &signs).unwrap()]);
                    check(&op, &[x]);
                }
            }
            let x = random.floats(dtype, &[2, 1500], size, 0.1 * size);
            check(&Op::Mean(kinora_graph::op::Mean { axes: vec![1] }), &[x]);
        }
    }
}

/// A result of one 16-bit type over an operand of the other; the harness compares with the same out of place.
#[test]
fn results_lie_over_operands_of_another_type_of_their_size() {
    use kinora_graph::Target;
    let mut random = Random::new(5);
    for (first, second) in [(DType::F16, DType::BF16), (DType::BF16, DType::F16)] {
        for shape in [&[7][..], &[3, 700], &[2, 40, 41, 9]] {
            let [a, b] = [first, second].map(|dtype| random.floats(dtype, shape, 0.0, 1.0));
            for op in [Op::Add, Op::Mul] {
                assert!(crate::CpuTarget::default().in_place(&op, 1));
                check(&op, &[a.clone(), b.clone()]);
            }
            let alpha = random.floats(first, &[1], 0.5, 0.1);
            check(&Op::Blend, &[a.clone(), b.clone(), alpha]);
            let strength = random.floats(DType::F32, &[1], 0.5, 0.1);
            for threshold in [None, Some(0.7)] {
                let op = Op::TemporalBlend(kinora_graph::op::TemporalBlend { threshold });
                check(&op, &[a.clone(), b.clone(), strength.clone()]);
            }
            let channels = shape[shape.len() - 1];
            let weight = random.floats(first, &[channels, channels], 0.0, 0.1);
            let epilogue =
                vec![kinora_graph::op::Stage::Activate(Activation::Silu), kinora_graph::op::Stage::Add];
            let op = Op::Linear(Linear { epilogue, ..Linear::default() });
            assert!(crate::CpuTarget::default().in_place(&op, 2));
            check(&op, &[a, weight, b]);
        }
    }
}

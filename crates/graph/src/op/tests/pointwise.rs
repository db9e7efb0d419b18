//! Norms, ops on single elements, and the sampler.

use super::*;

const MAX: usize = usize::MAX;

#[test]
fn norms() {
    let norm = |kind, epsilon, affine| {
        Op::Norm(Norm { kind, epsilon, affine, activation: None, quantise: None, measured: false })
    };
    let layer = |affine| norm(NormKind::Layer, 1e-5, affine);
    let group = |groups, frames| norm(NormKind::Group { groups, frames }, 1e-5, Affine::None);
    accept(&[
        (layer(Affine::None), "f16[4]", "f16[4]"),
        (norm(NormKind::Rms, 1e-6, Affine::Scale), "f32[2,4] f16[4]", "f32[2,4]"),
        (group(2, 3), "f32[6,5,4]", "f32[6,5,4]"),
        (group(2, 3), "f32[0,5,4]", "f32[0,5,4]"),
        (group(1, 1), "f32[2,0]", "f32[2,0]"),
    ]);
    refuse(&[
        (layer(Affine::Scale), "f32[2,4]", "takes 2 operands, got 1"),
        (layer(Affine::None), "u8[2,4]", "x must be a float type, got u8"),
        (layer(Affine::None), "f32[]", "x must have at least 1 axes, got []"),
        (norm(NormKind::Layer, 0.0, Affine::None), "f32[4]", "epsilon must be a positive number, got 0"),
        (norm(NormKind::Rms, f32::NAN, Affine::None), "f32[4]", "epsilon must be a positive number, got NaN"),
        (layer(Affine::Scale), "f32[2,4] i32[4]", "scale must be a float type, got i32"),
        (layer(Affine::Scale), "f32[2,4] f32[2]", "scale must be [4], got [2]"),
        (layer(Affine::ScaleShift), "f32[2,4] f32[4] u8[4]", "shift must be a float type, got u8"),
        (layer(Affine::ScaleShift), "f32[2,4] f32[4] f32[1,4]", "shift must be [4], got [1, 4]"),
        (group(1, 1), "f32[4]", "x must have at least 2 axes, got [4]"),
        (group(0, 1), "f32[2,4]", "groups must be at least 1"),
        (group(3, 1), "f32[2,4]", "channels (4) must be a multiple of 3"),
        (group(MAX, 1), "f32[2,0]", "18446744073709551615 groups are more than the 0 channels"),
        (group(2, 0), "f32[2,4]", "frames must be at least 1"),
        (group(2, 3), "f32[2,4]", "images (2) must be a multiple of 3"),
        (group(2, MAX), "f32[0,4]", "a clip of 18446744073709551615 frames is too large to address"),
    ]);
}

#[test]
fn batch_norms() {
    let norm = |epsilon| Op::BatchNorm(BatchNorm { epsilon });
    accept(&[(norm(1e-5), "f16[2,4] f32[4] f32[4] f32[4] f32[4]", "f16[2,4]")]);
    refuse(&rows(
        &norm(1e-5),
        &[
            ("f32[2,4] f32[4] f32[4] f32[4]", "takes 5 operands, got 4"),
            ("i32[2,4] f32[4] f32[4] f32[4] f32[4]", "x must be a float type, got i32"),
            ("f32[] f32[1] f32[1] f32[1] f32[1]", "x must have at least 1 axes, got []"),
            ("f32[2,4] u8[4] f32[4] f32[4] f32[4]", "mean must be a float type, got u8"),
            ("f32[2,4] f32[4] f32[2] f32[4] f32[4]", "variance must be [4], got [2]"),
            ("f32[2,4] f32[4] f32[4] f32[1] f32[4]", "scale must be [4], got [1]"),
            ("f32[2,4] f32[4] f32[4] f32[4] i32[4]", "shift must be a float type, got i32"),
        ],
    ));
    let operands = "f32[2,4] f32[4] f32[4] f32[4] f32[4]";
    refuse(&[(norm(-1.0), operands, "epsilon must be a positive number, got -1")]);
}

#[test]
fn functions_of_one_value() {
    let scale = |factor, offset| Op::Scale(Scale { factor, offset });
    let gate = Op::Gate(Gate { activation: Activation::Gelu });
    accept(&[
        (Op::Activate(Activation::Silu), "bf16[]", "bf16[]"),
        (Op::Softmax, "f32[2,3]", "f32[2,3]"),
        (scale(2.0, 1.0), "f16[3]", "f16[3]"),
        (gate.clone(), "f32[2,6]", "f32[2,3]"),
        (Op::Cast(DType::U8), "i32[3]", "u8[3]"),
    ]);
    refuse(&[
        (Op::Activate(Activation::Silu), "", "takes 1 operands, got 0"),
        (Op::Activate(Activation::Relu), "u8[3]", "x must be a float type, got u8"),
        (Op::Softmax, "f32[3] f32[3]", "takes 1 operands, got 2"),
        (Op::Softmax, "i32[3]", "x must be a float type, got i32"),
        (Op::Softmax, "f32[]", "x must have at least 1 axes, got []"),
        (scale(f32::NAN, 0.0), "f32[3]", "factor must be finite, got NaN"),
        (scale(1.0, f32::NEG_INFINITY), "f32[3]", "offset must be finite, got -inf"),
        (scale(1.0, 0.0), "i32[3]", "x must be a float type, got i32"),
        (scale(1.0, 0.0), "f32[3] f32[3]", "takes 1 operands, got 2"),
        (gate.clone(), "", "takes 1 operands, got 0"),
        (gate.clone(), "u8[4]", "x must be a float type, got u8"),
        (gate.clone(), "f32[]", "x must have at least 1 axes, got []"),
        (gate, "f32[2,5]", "channels (5) must be a multiple of 2"),
        (Op::Cast(DType::F32), "f32[1] f32[1]", "takes 1 operands, got 2"),
        (
            Op::Cast(DType::F32),
            "u8[4611686018427387904]",
            "the result [4611686018427387904] is too large to address",
        ),
        (
            Op::Cast(DType::F32),
            "u8[0,4611686018427387904]",
            "the result [0, 4611686018427387904] is too large to address",
        ),
    ]);
}

#[test]
fn sums_products_and_blends() {
    accept(&[
        (Op::Add, "f16[2,1,4] f32[3,1]", "f16[2,3,4]"),
        (Op::Mul, "f32[0,4] f32[1,4]", "f32[0,4]"),
        (Op::Blend, "f16[2,4] f32[2,4] f32[1]", "f16[2,4]"),
        (Op::Blend, "f32[2,4] f32[2,4] f32[2]", "f32[2,4]"),
    ]);
    for op in [Op::Add, Op::Mul] {
        refuse(&rows(
            &op,
            &[
                ("f32[2]", "takes 2 operands, got 1"),
                ("i32[2] f32[2]", "a must be a float type, got i32"),
                ("f32[2] u8[2]", "b must be a float type, got u8"),
                ("f32[2] f32[3]", "[2] and [3] do not broadcast to one shape"),
                (
                    "f32[2147483648,1] f32[1,2147483648]",
                    "the result [2147483648, 2147483648] is too large to address",
                ),
            ],
        ));
    }
    refuse(&rows(
        &Op::Blend,
        &[
            ("f32[2,4] f32[2,4]", "takes 3 operands, got 2"),
            ("u8[2,4] f32[2,4] f32[1]", "a must be a float type, got u8"),
            ("f32[2,4] i32[2,4] f32[1]", "b must be a float type, got i32"),
            ("f32[] f32[] f32[1]", "a must have at least 1 axes, got []"),
            ("f32[2,4] f32[1,4] f32[1]", "b must be [2, 4], got [1, 4]"),
            ("f32[2,4] f32[2,4] i32[1]", "alpha must be a float type, got i32"),
            ("f32[2,4] f32[2,4] f32[]", "alpha must have 1 axes, got []"),
            ("f32[2,4] f32[2,4] f32[3]", "alpha must be [2], got [3]"),
        ],
    ));
}

#[test]
fn sampler_steps() {
    let plain = SamplerStep::default();
    let guided = SamplerStep { guided: true, ..plain };
    accept(&[
        (Op::SamplerStep(plain), "f16[2,4] f32[2,4] f32[5,8] i32[1]", "f16[2,4]"),
        (
            Op::SamplerStep(SamplerStep { history: true, emit_scaled: true, emit_denoised: true, ..guided }),
            "f32[4,3] f32[8,3] f32[5,8] i32[1] f32[2] f32[4,3]",
            "f32[4,3] f32[4,3] f32[4,3]",
        ),
        (
            Op::SamplerStep(SamplerStep { noise: true, blend: true, ..guided }),
            "f16[4,3] f32[8,3] f32[5,8] i32[1] f32[2] f32[4,3] bf16[4,3] f32[1]",
            "f16[4,3]",
        ),
    ]);
    refuse(&rows(
        &Op::SamplerStep(plain),
        &[
            ("f32[2,4] f32[2,4] f32[5,8]", "takes 4 operands, got 3"),
            ("u8[2,4] f32[2,4] f32[5,8] i32[1]", "sample must be a float type, got u8"),
            ("f32[] f32[] f32[5,8] i32[1]", "sample must have at least 1 axes, got []"),
            ("f32[2,4] i32[2,4] f32[5,8] i32[1]", "prediction must be a float type, got i32"),
            ("f32[2,4] f32[4,4] f32[5,8] i32[1]", "prediction must be [2, 4], got [4, 4]"),
            ("f32[2,4] f32[2,4] f16[5,8] i32[1]", "table must be f32, got f16"),
            ("f32[2,4] f32[2,4] f32[8] i32[1]", "table must have 2 (steps, 8) axes, got [8]"),
            ("f32[2,4] f32[2,4] f32[5,7] i32[1]", "table must be [5, 8], got [5, 7]"),
            ("f32[2,4] f32[2,4] f32[5,8] f32[1]", "step must be i32, got f32"),
            ("f32[2,4] f32[2,4] f32[5,8] i32[2]", "step must be [1], got [2]"),
        ],
    ));
    refuse(&rows(
        &Op::SamplerStep(guided),
        &[
            ("f32[2,4] f32[2,4] f32[5,8] i32[1] f32[1]", "prediction must be [4, 4], got [2, 4]"),
            ("f32[2,4] f32[4,4] f32[5,8] i32[1] f16[1]", "guidance must be f32, got f16"),
            ("f32[2,4] f32[4,4] f32[5,8] i32[1] f32[]", "guidance must have 1 axes, got []"),
            ("f32[2,4] f32[4,4] f32[5,8] i32[1] f32[3]", "images (2) must be a multiple of 3"),
            (
                "f32[18446744073709551615] f32[4] f32[5,8] i32[1] f32[1]",
                "the result [18446744073709551615] is too large to address",
            ),
        ],
    ));
    let operands = "f32[2,4] f32[2,4] f32[5,8] i32[1]";
    let extra = |op, operand: &str, message: &str| {
        refuse(&[(Op::SamplerStep(op), &format!("{operands} {operand}"), message)]);
    };
    extra(SamplerStep { history: true, ..plain }, "u8[2,4]", "history must be a float type, got u8");
    extra(SamplerStep { history: true, ..plain }, "f32[4]", "history must be [2, 4], got [4]");
    extra(SamplerStep { noise: true, ..plain }, "i32[2,4]", "noise must be a float type, got i32");
    extra(SamplerStep { noise: true, ..plain }, "f32[1,4]", "noise must be [2, 4], got [1, 4]");
    let blended = SamplerStep { blend: true, ..plain };
    extra(blended, "f32[2,4]", "takes 6 operands, got 5");
    extra(blended, "u8[2,4] f32[1]", "previous must be a float type, got u8");
    extra(blended, "f32[1,4] f32[1]", "previous must be [2, 4], got [1, 4]");
    extra(blended, "f32[2,4] f16[1]", "strength must be f32, got f16");
    extra(blended, "f32[2,4] f32[2]", "strength must be [1], got [2]");
    extra(SamplerStep { clip: Some(0.0), ..plain }, "", "clip must be a positive number, got 0");
}

#[test]
fn temporal_blends() {
    let blend = |threshold| Op::TemporalBlend(TemporalBlend { threshold });
    accept(&[(blend(Some(0.1)), "f16[2,4,4,3] f32[2,4,4,3] f32[1]", "f16[2,4,4,3]")]);
    refuse(&rows(
        &blend(None),
        &[
            ("f32[2,3] f32[2,3]", "takes 3 operands, got 2"),
            ("u8[2,3] f32[2,3] f32[1]", "current must be a float type, got u8"),
            ("f32[] f32[] f32[1]", "current must have at least 1 axes, got []"),
            ("f32[2,3] i32[2,3] f32[1]", "previous must be a float type, got i32"),
            ("f32[2,3] f32[3] f32[1]", "previous must be [2, 3], got [3]"),
            ("f32[2,3] f32[2,3] f16[1]", "strength must be f32, got f16"),
            ("f32[2,3] f32[2,3] f32[2]", "strength must be [1], got [2]"),
        ],
    ));
    let operands = "f32[2,3] f32[2,3] f32[1]";
    refuse(&[(blend(Some(f32::INFINITY)), operands, "threshold must be a positive number, got inf")]);
}

//! Ops that arrange, resize and look up.

use super::*;

const MAX: usize = usize::MAX;

#[test]
fn joins_and_slices() {
    let concat = |axis| Op::Concat(Concat { axis });
    let slice = |axis, start, len| Op::Slice(Slice { axis, start, len });
    accept(&[
        (concat(1), "u8[2,3] u8[2,0] u8[2,4]", "u8[2,7]"),
        (concat(0), "i32[2]", "i32[2]"),
        (slice(1, 1, 2), "f16[2,3]", "f16[2,2]"),
        (slice(0, 2, 0), "f16[2,3]", "f16[0,3]"),
    ]);
    refuse(&[
        (concat(0), "", "takes 1 operands, got 0"),
        (concat(2), "f32[2,3]", "axis 2 is outside [2, 3]"),
        (concat(0), "f32[2] f16[2]", "every operand must be of the first one's type, got f16"),
        (concat(0), "f32[2,3] f32[2,4]", "every operand must be [2, 3], got [2, 4]"),
        (concat(0), "f32[2,3] f32[3]", "every operand must be [2, 3], got [3]"),
        (
            concat(0),
            "u8[18446744073709551615] u8[18446744073709551615]",
            "the result [18446744073709551615] is too large to address",
        ),
        (slice(0, 0, 1), "", "takes 1 operands, got 0"),
        (slice(MAX, 0, 1), "f32[2]", "axis 18446744073709551615 is outside [2]"),
        (slice(1, 2, 2), "f32[2,3]", "2 from 2 is outside axis 1 of [2, 3]"),
        (
            slice(0, MAX, MAX),
            "f32[2]",
            "18446744073709551615 from 18446744073709551615 is outside axis 0 of [2]",
        ),
    ]);
}

#[test]
fn reshapes() {
    let reshape = |shape: &[usize]| Op::Reshape(Reshape { shape: shape.into() });
    accept(&[
        (reshape(&[3, 2]), "u8[2,3]", "u8[3,2]"),
        (reshape(&[]), "f32[1,1]", "f32[]"),
        (reshape(&[5, 0]), "f32[0,2]", "f32[5,0]"),
    ]);
    refuse(&[
        (reshape(&[1]), "", "takes 1 operands, got 0"),
        (reshape(&[4]), "f32[2,3]", "[2, 3] has 6 elements and cannot become [4]"),
        (reshape(&[MAX, 2]), "f32[2]", "[2] has 2 elements and cannot become [18446744073709551615, 2]"),
        (
            reshape(&[0, MAX, 2]),
            "f32[0]",
            "[0] has 0 elements and cannot become [0, 18446744073709551615, 2]",
        ),
        (reshape(&[0, MAX]), "f32[0]", "the result [0, 18446744073709551615] is too large to address"),
    ]);
}

#[test]
fn resizing() {
    let to = |size| Op::Upsample(Upsample { interpolation: Interpolation::Bilinear, size });
    accept(&[(to([5, 6]), "f16[2,3,4,5]", "f16[2,5,6,5]"), (to([1, 1]), "f32[0,3,4,5]", "f32[0,1,1,5]")]);
    refuse(&[
        (to([5, 6]), "", "takes 1 operands, got 0"),
        (to([5, 6]), "u8[2,3,4,5]", "x must be a float type, got u8"),
        (to([5, 6]), "f32[3,4,5]", "x must have 4 (images, height, width, channels) axes, got [3, 4, 5]"),
        (to([0, 6]), "f32[2,3,4,5]", "height must be at least 1"),
        (to([5, 6]), "f32[2,0,4,5]", "height must be at least 1"),
        (to([5, 6]), "f32[2,3,0,5]", "width must be at least 1"),
        (to([MAX, 1]), "f32[0,3,4,5]", "the result [0, 18446744073709551615, 1, 5] is too large to address"),
    ]);
}

#[test]
fn filters_of_bytes() {
    let axis = |axis| Op::Resample(Resample { axis });
    accept(&[
        (axis(1), "u8[2,3,4,5] i32[7] i32[7,2]", "u8[2,7,4,5]"),
        (axis(2), "u8[2,3,4,5] i32[1] i32[1,9]", "u8[2,3,1,5]"),
        (axis(0), "u8[3] i32[2] i32[2,3]", "u8[2]"),
        (axis(1), "u8[0,3,4] i32[2] i32[2,3]", "u8[0,2,4]"),
    ]);
    refuse(&[
        (axis(1), "u8[2,3]", "takes 3 operands, got 1"),
        (axis(1), "f32[2,3] i32[2] i32[2,3]", "x must be u8, got f32"),
        (axis(1), "u8[2,3] f32[2] i32[2,3]", "first must be i32, got f32"),
        (axis(1), "u8[2,3] i32[2] u8[2,3]", "weights must be i32, got u8"),
        (axis(2), "u8[2,3] i32[2] i32[2,3]", "axis 2 is outside [2, 3]"),
        (axis(1), "u8[2,3] i32[2,1] i32[2,3]", "first must have 1 axes, got [2, 1]"),
        (axis(1), "u8[2,3] i32[2] i32[2]", "weights must have 2 (results, taps) axes, got [2]"),
        (axis(1), "u8[2,3] i32[2] i32[3,2]", "weights must be [2, 2], got [3, 2]"),
        (axis(1), "u8[2,0] i32[2] i32[2,3]", "the axis must be at least 1"),
        (axis(1), "u8[2,3] i32[0] i32[0,3]", "the number of results must be at least 1"),
        (axis(1), "u8[2,3] i32[2] i32[2,0]", "the number of taps must be at least 1"),
    ]);
}

#[test]
fn pools() {
    let pool = |kernel: usize, stride: usize, padding: usize| {
        let kind = PoolKind::Max;
        Op::Pool(Pool { kind, kernel: [kernel; 2], stride: [stride; 2], padding: [padding; 2] })
    };
    accept(&[
        (pool(2, 2, 0), "f16[2,5,6,3]", "f16[2,2,3,3]"),
        (pool(3, 1, 1), "f32[0,1,1,3]", "f32[0,1,1,3]"),
        (pool(3, 1, 2), "f32[1,1,1,3]", "f32[1,3,3,3]"),
    ]);
    let x = "f32[1,4,4,3]";
    refuse(&[
        (pool(2, 2, 0), "f32[1] f32[1]", "takes 1 operands, got 2"),
        (pool(2, 2, 0), "i32[1,4,4,3]", "x must be a float type, got i32"),
        (pool(2, 2, 0), "f32[4,4,3]", "x must have 4 (images, height, width, channels) axes, got [4, 4, 3]"),
        (pool(2, 1, 1), "f32[1,0,4,3]", "height must be at least 1"),
        (pool(2, 1, 1), "f32[1,4,0,3]", "width must be at least 1"),
        (pool(2, 1, 2), x, "the height padding must be less than the window"),
        (pool(0, 1, 0), x, "kernel must be at least 1"),
        (pool(2, 0, 0), x, "stride must be at least 1"),
        (pool(7, 1, 1), x, "the height window of 7 does not fit the padded extent of 6"),
        (pool(MAX, 1, 0), x, "the height window of 18446744073709551615 does not fit the padded extent of 4"),
        (pool(MAX, 1, MAX / 2), x, "the height padding is too large"),
        (
            pool(1 << 31, MAX, (1 << 31) - 1),
            x,
            "the padded operand [1, 4294967298, 4294967298, 3] is too large to address",
        ),
    ]);
}

#[test]
fn means() {
    let mean = |axes: &[usize]| Op::Mean(Mean { axes: axes.to_vec() });
    accept(&[(mean(&[0, 2]), "f16[2,3,4]", "f16[1,3,1]"), (mean(&[]), "f32[0]", "f32[0]")]);
    refuse(&[
        (mean(&[0]), "", "takes 1 operands, got 0"),
        (mean(&[0]), "u8[2]", "x must be a float type, got u8"),
        (mean(&[1, 1]), "f32[2,3]", "the mean's axes must ascend"),
        (mean(&[MAX]), "f32[2,3]", "axis 18446744073709551615 is outside [2, 3]"),
        (mean(&[1]), "f32[2,0]", "an averaged axis must be at least 1"),
    ]);
}

#[test]
fn embeddings() {
    let timestep = |width, frequency_shift, max_period, scale| {
        Op::TimestepEmbedding(TimestepEmbedding {
            width,
            cosine_first: true,
            frequency_shift,
            max_period,
            scale,
        })
    };
    accept(&[
        (timestep(5, 0.0, 1e4, 1.0), "f16[3]", "f32[3,5]"),
        (Op::Embedding, "f16[9,4] i32[2,3]", "f16[2,3,4]"),
    ]);
    refuse(&[
        (timestep(4, 0.0, 1e4, 1.0), "", "takes 1 operands, got 0"),
        (timestep(4, 0.0, 1e4, 1.0), "i32[3]", "t must be a float type, got i32"),
        (timestep(4, 0.0, 1e4, 1.0), "f32[3,1]", "t must have 1 axes, got [3, 1]"),
        (timestep(4, 0.0, 0.0, 1.0), "f32[3]", "max_period must be a positive number, got 0"),
        (timestep(4, 0.0, 1e4, f32::NAN), "f32[3]", "scale must be finite, got NaN"),
        (
            timestep(1, 0.0, 1e4, 1.0),
            "f32[3]",
            "a width of 1 with a frequency shift of 0 leaves no frequencies",
        ),
        (
            timestep(4, 2.0, 1e4, 1.0),
            "f32[3]",
            "a width of 4 with a frequency shift of 2 leaves no frequencies",
        ),
        (
            timestep(4, f32::NAN, 1e4, 1.0),
            "f32[3]",
            "a width of 4 with a frequency shift of NaN leaves no frequencies",
        ),
        (
            timestep(MAX, 0.0, 1e4, 1.0),
            "f32[0]",
            "the result [0, 18446744073709551615] is too large to address",
        ),
        (Op::Embedding, "f32[9,4]", "takes 2 operands, got 1"),
        (Op::Embedding, "u8[9,4] i32[2]", "table must be a float type, got u8"),
        (Op::Embedding, "f32[4] i32[2]", "table must have 2 (rows, channels) axes, got [4]"),
        (Op::Embedding, "f32[9,4] f32[2]", "ids must be i32, got f32"),
    ]);
}

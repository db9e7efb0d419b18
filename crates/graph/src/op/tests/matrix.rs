//! Convolutions, matrix products, attention, and what is fused into them.

use super::*;

const MAX: usize = usize::MAX;

fn conv(change: impl FnOnce(&mut Conv)) -> Op {
    let mut conv = Conv::spatial([3, 3], 1, 1);
    change(&mut conv);
    Op::Conv(conv)
}

#[test]
fn convolutions() {
    accept(&[
        (conv(|_| ()), "f16[2,8,8,4] f32[6,1,3,3,4]", "f16[2,8,8,6]"),
        (conv(|c| c.stride = [1, 2, 3]), "f32[2,8,8,4] f32[6,1,3,3,4]", "f32[2,4,3,6]"),
        (conv(|c| c.groups = 4), "f32[2,8,8,4] f32[8,1,3,3,1]", "f32[2,8,8,8]"),
        (Op::Conv(Conv::temporal(3, 4)), "f32[8,2,2,4] f32[6,3,1,1,4]", "f32[8,2,2,6]"),
        (Op::Conv(Conv::temporal(3, 4)), "f32[0,2,2,4] f32[6,3,1,1,4]", "f32[0,2,2,6]"),
        (Op::Conv(Conv::subpixel()), "f16[2,7,8,4] f16[24,1,2,2,4]", "f16[2,14,16,6]"),
        (Op::Conv(Conv::subpixel()), "f16[2,0,8,4] f16[24,1,2,2,4]", "f16[2,0,16,6]"),
        (
            Op::Conv(Conv { bias: true, epilogue: vec![Stage::AddChannels], ..Conv::subpixel() }),
            "f16[2,7,8,4] f16[24,1,2,2,4] f32[6] f32[2,1,1,6]",
            "f16[2,14,16,6]",
        ),
        // No channels are one group of none.
        (conv(|_| ()), "f32[1,8,8,0] f32[6,1,3,3,0]", "f32[1,8,8,6]"),
    ]);
    refuse(&rows(
        &conv(|_| ()),
        &[
            ("f32[1,8,8,4]", "takes 2 operands, got 1"),
            ("i32[1,8,8,4] f32[6,1,3,3,4]", "x must be a float type, got i32"),
            ("f32[1,8,8,4] u8[6,1,3,3,4]", "weight must be a float type, got u8"),
            (
                "f32[8,8,4] f32[6,1,3,3,4]",
                "x must have 4 (images, height, width, channels) axes, got [8, 8, 4]",
            ),
            (
                "f32[1,8,8,4] f32[6,3,3,4]",
                "weight must have 5 (out, frames, height, width, in / groups) axes, got [6, 3, 3, 4]",
            ),
            ("f32[1,8,8,5] f32[6,1,3,3,4]", "expected 4 input channels, got 5"),
            ("f32[1,8,8,4] f32[6,1,3,2,4]", "weight must be [6, 1, 3, 3, 4], got [6, 1, 3, 2, 4]"),
        ],
    ));
    let subpixel = |change: fn(&mut Conv)| {
        let mut conv = Conv::subpixel();
        change(&mut conv);
        Op::Conv(conv)
    };
    let fixed = "a sub-pixel convolution has windows of 2×2, a padding of 1, no steps and one group";
    refuse(&[
        (subpixel(|_| ()), "f32[2,7,8,4] f32[6,1,2,2,4]", "filters (6) must be a multiple of 4"),
        (subpixel(|c| c.kernel = [1, 3, 3]), "f32[2,7,8,4] f32[8,1,3,3,4]", fixed),
        (subpixel(|c| c.padding[1] = [1, 0]), "f32[2,7,8,4] f32[8,1,2,2,4]", fixed),
        (subpixel(|c| c.stride[2] = 2), "f32[2,7,8,4] f32[8,1,2,2,4]", fixed),
        (subpixel(|c| c.dilation[1] = 2), "f32[2,7,8,4] f32[8,1,2,2,4]", fixed),
        (subpixel(|c| c.groups = 2), "f32[2,7,8,4] f32[8,1,2,2,2]", fixed),
    ]);
    let [x, empty] = ["f32[1,8,8,4] f32[6,1,3,3,4]", "f32[0,8,8,4] f32[6,1,3,3,4]"];
    refuse(&[
        (conv(|c| c.groups = 0), x, "groups must be at least 1"),
        (
            conv(|c| c.groups = 4),
            "f32[1,8,8,4] f32[6,1,3,3,1]",
            "output channels (6) must be a multiple of 4",
        ),
        (conv(|c| c.groups = 5), "f32[1,8,8,0] f32[0,1,3,3,0]", "5 groups are more than the 0 channels"),
        (conv(|c| c.groups = MAX), x, "18446744073709551615 groups of 4 channels are too many"),
        (conv(|c| c.frames = 0), x, "frames must be at least 1"),
        (conv(|c| c.frames = 3), "f32[4,8,8,4] f32[6,1,3,3,4]", "images (4) must be a multiple of 3"),
        (conv(|c| c.frames = MAX), empty, "a clip of 18446744073709551615 frames is too large to address"),
        (conv(|c| c.kernel[1] = 0), "f32[1,8,8,4] f32[6,1,0,3,4]", "kernel must be at least 1"),
        (conv(|c| c.stride[2] = 0), x, "stride must be at least 1"),
        (conv(|c| c.dilation[0] = 0), x, "dilation must be at least 1"),
        (conv(|c| c.dilation[1] = MAX), x, "the height window is too large"),
        (conv(|c| c.padding[2] = [MAX, 0]), x, "the width padding is too large"),
        (conv(|c| c.padding[2] = [1, MAX]), x, "the width padding is too large"),
        (
            conv(|c| c.padding[1] = [0, 0]),
            "f32[1,2,8,4] f32[6,1,3,3,4]",
            "the height window of 3 does not fit the padded extent of 2",
        ),
        (
            // Few results, yet the padded operand cannot exist.
            conv(|c| (c.padding[1], c.stride[1]) = ([1 << 61; 2], 1 << 61)),
            x,
            "the padded operand [1, 4611686018427387912, 10, 4] is too large to address",
        ),
        (
            conv(|c| (c.padding[0], c.stride[0]) = ([1 << 62, 0], MAX)),
            empty,
            "the padded operand [4611686018427387905, 10, 10, 4] is too large to address",
        ),
        (
            conv(|c| (c.padding[0], c.stride[0]) = ([1 << 30, 0], MAX)),
            "f32[1099511627776,1,1,1] f32[1,1,3,3,1]",
            "1099511627776 clips of 1073741825 padded frames are too many",
        ),
        (
            Op::Conv(Conv::spatial([1, 1], 1, 0)),
            "f32[1,2147483648,268435456,1] f32[8,1,1,1,1]",
            "the result [1, 2147483648, 268435456, 8] is too large to address",
        ),
    ]);
}

#[test]
fn linear_products() {
    let plain = Op::Linear(Linear::default());
    let biased = Op::Linear(Linear { bias: true, ..Linear::default() });
    let gated = Op::Linear(Linear { gate: Some(Activation::Gelu), ..Linear::default() });
    accept(&[
        (plain.clone(), "bf16[2,3,4] f16[6,4]", "bf16[2,3,6]"),
        (biased.clone(), "f32[4] f32[6,4] f16[6]", "f32[6]"),
        (gated.clone(), "f32[2,4] f32[6,4]", "f32[2,3]"),
    ]);
    refuse(&rows(
        &plain,
        &[
            ("f32[2,4] f32[6,4] f32[6]", "takes 2 operands, got 3"),
            ("u8[2,4] f32[6,4]", "x must be a float type, got u8"),
            ("f32[2,4] i32[6,4]", "weight must be a float type, got i32"),
            ("f32[] f32[6,4]", "x must have at least 1 axes, got []"),
            ("f32[2,4] f32[6]", "weight must have 2 (out, in) axes, got [6]"),
            ("f32[2,5] f32[6,4]", "expected 4 input channels, got 5"),
            (
                "f32[2147483648,1] f32[2147483648,1]",
                "the result [2147483648, 2147483648] is too large to address",
            ),
            // An empty result of extents that no executor could multiply.
            (
                "f16[0,2147483648,0] f16[4294967296,0]",
                "the result [0, 2147483648, 4294967296] is too large to address",
            ),
        ],
    ));
    refuse(&[
        (biased.clone(), "f32[2,4] f32[6,4]", "takes 3 operands, got 2"),
        (biased.clone(), "f32[2,4] f32[6,4] i32[6]", "bias must be a float type, got i32"),
        (biased, "f32[2,4] f32[6,4] f32[5]", "bias must be [6], got [5]"),
        (gated, "f32[2,4] f32[5,4]", "gated output channels (5) must be a multiple of 2"),
    ]);
}

#[test]
fn products_of_activations() {
    let plain = MatMul::default();
    let transposed = MatMul { transpose_a: true, transpose_b: true };
    accept(&[
        (Op::MatMul(plain), "f16[2,3,4] f32[2,4,5]", "f16[2,3,5]"),
        (Op::MatMul(plain), "f32[2,3,4] f32[4,5]", "f32[2,3,5]"),
        (Op::MatMul(transposed), "f32[4,3] f32[5,4]", "f32[3,5]"),
    ]);
    refuse(&rows(
        &Op::MatMul(plain),
        &[
            ("f32[3,4]", "takes 2 operands, got 1"),
            ("u8[3,4] f32[4,5]", "a must be a float type, got u8"),
            ("f32[3,4] i32[4,5]", "b must be a float type, got i32"),
            ("f32[4] f32[4,5]", "a must have at least 2 axes, got [4]"),
            ("f32[3,4] f32[4]", "b must have at least 2 axes, got [4]"),
            ("f32[3,4] f32[5,4]", "expected 5 input channels, got 4"),
            ("f32[2,3,4] f32[3,4,5]", "[2, 3, 4] and [3, 4, 5] do not broadcast to one shape"),
        ],
    ));
}

#[test]
fn prologues_and_epilogues() {
    let norm = Norm {
        kind: NormKind::Layer,
        epsilon: 1e-5,
        affine: Affine::Scale,
        activation: None,
        quantise: None,
        measured: false,
    };
    let prologue = Op::Linear(Linear { prologue: Some(norm), ..Linear::default() });
    let stage = |stage| Op::Linear(Linear { epilogue: vec![stage], ..Linear::default() });
    let blend = stage(Stage::Blend { accumulator_first: true });
    accept(&[
        (prologue.clone(), "f32[2,4] f32[6,4] f32[4]", "f32[2,6]"),
        (stage(Stage::AddChannels), "f32[2,3,4] f32[6,4] f32[2,1,6]", "f32[2,3,6]"),
        (stage(Stage::AddChannels), "f32[2,3,4] f32[6,4] f32[6]", "f32[2,3,6]"),
        (blend.clone(), "f32[2,4] f32[6,4] f16[2,6] f16[1]", "f32[2,6]"),
    ]);
    refuse(&[
        (prologue.clone(), "f32[2,4] f32[6,4]", "takes 3 operands, got 2"),
        (prologue, "f32[2,4] f32[6,4] f32[6]", "scale must be [4], got [6]"),
        (stage(Stage::Scale(f32::NAN)), "f32[2,4] f32[6,4]", "scale must be finite, got NaN"),
        (
            stage(Stage::AddChannels),
            "f32[2,4] f32[6,4] u8[2,6]",
            "the channel operand must be a float type, got u8",
        ),
        (
            stage(Stage::AddChannels),
            "f32[2,3,4] f32[6,4] f32[3,1,6]",
            "the channel operand must be [2, 1, 6], got [3, 1, 6]",
        ),
        (
            stage(Stage::Add),
            "f32[2,4] f32[6,4] i32[2,6]",
            "the epilogue operand must be a float type, got i32",
        ),
        (stage(Stage::Add), "f32[2,4] f32[6,4] f32[1,6]", "the epilogue operand must be [2, 6], got [1, 6]"),
        (stage(Stage::Mul), "f32[2,4] f32[6,4] f32[6]", "the epilogue operand must be [2, 6], got [6]"),
        (blend.clone(), "f32[2,4] f32[6,4] f32[2,6]", "takes 4 operands, got 3"),
        (blend.clone(), "f32[2,4] f32[6,4] u8[2,6] f32[1]", "the blend operand must be a float type, got u8"),
        (blend.clone(), "f32[2,4] f32[6,4] f32[6] f32[1]", "the blend operand must be [2, 6], got [6]"),
        (blend.clone(), "f32[2,4] f32[6,4] f32[2,6] i32[1]", "alpha must be a float type, got i32"),
        (blend, "f32[2,4] f32[6,4] f32[2,6] f32[2]", "alpha must be [1], got [2]"),
    ]);
}

fn attention(change: impl FnOnce(&mut Attention)) -> Op {
    let mut attention = Attention::over_positions(2, 4);
    change(&mut attention);
    Op::Attention(attention)
}

#[test]
fn attention_over_positions() {
    accept(&[
        (attention(|_| ()), "f16[6,5,8] f32[2,3,8] f32[2,3,8]", "f16[6,5,8]"),
        (attention(|a| a.offsets = [1, 8, 16]), "f32[1,5,9] f32[1,3,24] f32[1,3,24]", "f32[1,5,8]"),
        (attention(|a| a.mask = Mask::Boolean), "f32[6,5,8] f32[2,3,8] f32[2,3,8] u8[6,1,5,3]", "f32[6,5,8]"),
        (attention(|_| ()), "f32[0,5,8] f32[0,3,8] f32[0,3,8]", "f32[0,5,8]"),
        (attention(|a| a.log_sum_exp = true), "f16[6,5,8] f16[2,3,8] f16[2,3,8]", "f16[6,5,8] f32[6,5,2]"),
    ]);
    let qkv = "f32[6,5,8] f32[2,3,8] f32[2,3,8]";
    refuse(&[
        (attention(|_| ()), "f32[6,5,8] f32[2,3,8]", "takes 3 operands, got 2"),
        (attention(|a| a.mask = Mask::Additive), qkv, "takes 4 operands, got 3"),
        (attention(|a| a.heads = 0), qkv, "heads must be at least 1"),
        (attention(|a| a.head_dim = 0), qkv, "head size must be at least 1"),
        (
            attention(|a| a.mask = Mask::SlidingWindow { diagonal: 0, window: 0 }),
            qkv,
            "window must be at least 1",
        ),
        (attention(|a| a.scale = f32::INFINITY), qkv, "scale must be finite, got inf"),
        (attention(|a| a.heads = MAX), qkv, "heads × head size is too large"),
        (attention(|_| ()), "i32[6,5,8] f32[2,3,8] f32[2,3,8]", "q must be a float type, got i32"),
        (
            attention(|_| ()),
            "f32[6,5,8] f32[2,1,3,8] f32[2,3,8]",
            "k must have 3 (batch, sequence, channels) axes, got [2, 1, 3, 8]",
        ),
        (
            attention(|_| ()),
            "f32[6,5,8] f32[2,3,8] f32[2,3,7]",
            "v has 7 channels; 2 heads of 4 from channel 0 need 8",
        ),
        (
            attention(|a| a.offsets[0] = MAX),
            qkv,
            "q has 8 channels; 2 heads of 4 from channel 18446744073709551615 need 18446744073709551615",
        ),
        (attention(|_| ()), "f32[6,5,8] f32[2,3,8] f32[2,4,8]", "v must be [2, 3, 8], got [2, 4, 8]"),
        (attention(|_| ()), "f32[6,5,8] f32[4,3,8] f32[4,3,8]", "query batch (6) must be a multiple of 4"),
        (attention(|_| ()), "f32[6,5,8] f32[0,3,8] f32[0,3,8]", "query batch (6) must be a multiple of 0"),
    ]);
    let masked = |mask, operand: &str, message: &str| {
        refuse(&[(attention(|a| a.mask = mask), &format!("{qkv} {operand}"), message)]);
    };
    masked(Mask::Boolean, "f32[6,2,5,3]", "mask must be u8, got f32");
    masked(Mask::Additive, "u8[6,2,5,3]", "mask must be a float type, got u8");
    masked(Mask::Boolean, "u8[5,3]", "mask must have 4 (batch, heads, queries, keys) axes, got [5, 3]");
    masked(Mask::Boolean, "u8[2,2,5,3]", "mask must be [6, 2, 5, 3], got [2, 2, 5, 3]");
    masked(Mask::Additive, "f16[1,1,5,4]", "mask must be [1, 1, 5, 3], got [1, 1, 5, 4]");
    let lengths = |operand: &str, message: &str| {
        refuse(&[(attention(|a| a.key_lengths = true), &format!("{qkv} {operand}"), message)]);
    };
    lengths("f32[2]", "key_lengths must be i32, got f32");
    lengths("i32[6]", "key_lengths must be [2], got [6]");
    accept(&[(attention(|a| a.boundaries = true), &format!("{qkv} i32[4] i32[4]"), "f32[6,5,8]")]);
    let boundaries = |operands: &str, message: &str| {
        refuse(&[(attention(|a| a.boundaries = true), &format!("{qkv} {operands}"), message)]);
    };
    boundaries("i32[2]", "takes 5 operands, got 4");
    boundaries("f32[2] i32[2]", "query boundaries must be i32, got f32");
    boundaries("i32[0] i32[0]", "number of query boundaries must be at least 1");
    boundaries("i32[2] i32[3]", "key boundaries must be [2], got [3]");
}

#[test]
fn gradients_of_attention() {
    let backward = |change: fn(&mut Attention)| {
        let mut forward = Attention { log_sum_exp: true, ..Attention::over_positions(2, 4) };
        change(&mut forward);
        Op::AttentionBackward(AttentionBackward { forward })
    };
    let qkv = "f16[6,5,8] f16[2,3,8] f16[2,3,8]";
    let results = "f16[6,5,8] f32[6,5,2] f16[6,5,8]";
    accept(&[
        (backward(|_| ()), &format!("{qkv} {results}"), "f16[6,5,8] f16[2,3,8] f16[2,3,8]"),
        (
            backward(|a| a.offsets = [1, 8, 16]),
            "f32[1,5,9] f16[1,3,24] bf16[1,3,25] f32[1,5,8] f32[1,5,2] f32[1,5,8]",
            "f32[1,5,8] f16[1,3,8] bf16[1,3,8]",
        ),
        (
            backward(|a| (a.mask, a.key_lengths, a.boundaries) = (Mask::Boolean, true, true)),
            &format!("{qkv} u8[6,1,5,3] i32[2] i32[4] i32[4] {results}"),
            "f16[6,5,8] f16[2,3,8] f16[2,3,8]",
        ),
    ]);
    refuse(&[
        (
            backward(|a| a.log_sum_exp = false),
            &format!("{qkv} {results}"),
            "gradients need the logarithms of the attention's sums",
        ),
        (backward(|_| ()), qkv, "takes 6 operands, got 3"),
        (backward(|a| a.key_lengths = true), &format!("{qkv} {results}"), "takes 7 operands, got 6"),
        (backward(|a| a.heads = 0), &format!("{qkv} {results}"), "heads must be at least 1"),
        (backward(|_| ()), &format!("{qkv} f32[6,5,8] f32[6,5,2] f16[6,5,8]"), "y must be q's type, got f32"),
        (
            backward(|_| ()),
            &format!("{qkv} f16[6,5,8] f16[6,5,2] f16[6,5,8]"),
            "log_sum_exp must be f32, got f16",
        ),
        (
            backward(|_| ()),
            &format!("{qkv} f16[6,5,8] f32[6,5,8] f16[6,5,8]"),
            "log_sum_exp must be [6, 5, 2], got [6, 5, 8]",
        ),
        (
            backward(|_| ()),
            &format!("{qkv} f16[6,5,8] f32[6,5,2] f16[6,3,8]"),
            "dy must be [6, 5, 8], got [6, 3, 8]",
        ),
    ]);
}

#[test]
fn attention_over_frames() {
    let frames = |boundaries| Op::Attention(Attention { boundaries, ..Attention::over_frames(2, 4, 3) });
    refuse(&[(
        frames(true),
        "f32[6,5,8] f32[6,5,8] f32[6,5,8] i32[2] i32[2]",
        "boundaries are those of sequences over positions",
    )]);
    let over = |frames| Op::Attention(Attention::over_frames(2, 4, frames));
    accept(&[
        (over(3), "f32[6,5,8] f32[6,5,8] f32[6,5,8]", "f32[6,5,8]"),
        (over(3), "f32[6,5,8] f32[2,5,8] f32[2,5,8]", "f32[6,5,8]"),
        (over(3), "f32[0,5,8] f32[0,5,8] f32[0,5,8]", "f32[0,5,8]"),
    ]);
    refuse(&[
        (over(0), "f32[6,5,8] f32[6,5,8] f32[6,5,8]", "frames must be at least 1"),
        (over(4), "f32[6,5,8] f32[6,5,8] f32[6,5,8]", "images (6) must be a multiple of 4"),
        (
            over(MAX),
            "f32[0,5,8] f32[0,5,8] f32[0,5,8]",
            "a clip of 18446744073709551615 frames is too large to address",
        ),
        (over(3), "f32[6,5,8] f32[5,5,8] f32[5,5,8]", "key images (5) must be a multiple of 2"),
        (over(3), "f32[0,5,8] f32[1,5,8] f32[1,5,8]", "key images (1) must be a multiple of 0"),
        (over(3), "f32[6,5,8] f32[6,4,8] f32[6,4,8]", "k must be [6, 5, 8], got [6, 4, 8]"),
    ]);
}

#[test]
fn quantised_products() {
    let linear = |change: fn(&mut Linear)| {
        let mut linear = Linear { quantised: Some(DType::F16), ..Linear::default() };
        change(&mut linear);
        Op::Linear(linear)
    };
    let convolution = Op::Conv(Conv {
        quantised: Some(DType::BF16),
        bias: true,
        epilogue: vec![Stage::Add],
        ..Conv::spatial([3, 3], 1, 1)
    });
    let subpixel = Op::Conv(Conv { quantised: Some(DType::F32), ..Conv::subpixel() });
    accept(&[
        (linear(|_| ()), "e4m3[3,4] e4m3[6,4] f32[6]", "f16[3,6]"),
        (linear(|l| l.bias = true), "e4m3[3,4] e4m3[6,4] f32[6] f16[6]", "f16[3,6]"),
        (linear(|l| l.quantised = Some(DType::F8E4M3)), "e4m3[3,4] e4m3[6,4] f32[6]", "e4m3[3,6]"),
        (linear(|l| l.gate = Some(Activation::Gelu)), "e4m3[3,4] e4m3[6,4] f32[6]", "f16[3,3]"),
        (convolution, "e4m3[2,8,8,4] e4m3[6,1,3,3,4] f32[6] f16[6] bf16[2,8,8,6]", "bf16[2,8,8,6]"),
        (subpixel, "e4m3[2,7,8,4] e4m3[24,1,2,2,4] f32[6]", "f32[2,14,16,6]"),
    ]);
    refuse(&[
        (linear(|_| ()), "e4m3[3,4] e4m3[6,4]", "takes 3 operands, got 2"),
        (linear(|_| ()), "f16[3,4] e4m3[6,4] f32[6]", "x must be e4m3, got f16"),
        (linear(|_| ()), "e4m3[3,4] f16[6,4] f32[6]", "weight must be e4m3, got f16"),
        (linear(|_| ()), "e4m3[3,4] e4m3[6,4] f16[6]", "scale must be f32, got f16"),
        (linear(|_| ()), "e4m3[3,4] e4m3[6,4] f32[3]", "scale must be [6], got [3]"),
        (Op::Linear(Linear::default()), "e4m3[3,4] e4m3[6,4]", "x must be a float type, got e4m3"),
        (
            linear(|l| l.quantised = Some(DType::U8)),
            "e4m3[3,4] e4m3[6,4] f32[6]",
            "a product cannot have a result of u8",
        ),
        (
            linear(|l| {
                l.prologue = Some(Norm {
                    kind: NormKind::Layer,
                    epsilon: 1.0,
                    affine: Affine::None,
                    activation: None,
                    quantise: None,
                    measured: false,
                });
            }),
            "e4m3[3,4] e4m3[6,4] f32[6]",
            "a quantised product has no prologue",
        ),
    ]);
}

#[test]
fn numbers_in_8_bits() {
    let tensor = |factor| Op::Quantise(Quantise::Tensor { factor });
    let filters = |blocks, activation| Op::Quantise(Quantise::Filters { blocks, activation });
    let norm = |quantise| {
        Op::Norm(Norm {
            kind: NormKind::Layer,
            epsilon: 1.0,
            affine: Affine::None,
            activation: None,
            quantise,
            measured: false,
        })
    };
    accept(&[
        (tensor(2.0), "f16[2,3]", "e4m3[2,3]"),
        (tensor(2.0), "f32[]", "e4m3[]"),
        (filters(1, 0.5), "f16[6,1,3,3,4]", "e4m3[6,1,3,3,4] f32[6]"),
        (filters(4, 0.5), "bf16[24,1,2,2,4]", "e4m3[24,1,2,2,4] f32[6]"),
        (filters(1, 0.5), "f32[0,4]", "e4m3[0,4] f32[0]"),
        (norm(Some(8.0)), "f16[2,3]", "e4m3[2,3]"),
        (norm(None), "f16[2,3]", "f16[2,3]"),
    ]);
    refuse(&[
        (tensor(0.0), "f16[2,3]", "factor must be a positive number, got 0"),
        (tensor(1.0), "e4m3[2,3]", "x must be a float type, got e4m3"),
        (tensor(1.0), "u8[2,3]", "x must be a float type, got u8"),
        (norm(Some(f32::INFINITY)), "f16[2,3]", "factor must be a positive number, got inf"),
        (filters(1, 0.5), "f16[]", "x must have at least 1 axes, got []"),
        (filters(0, 0.5), "f16[4,2]", "blocks must be at least 1"),
        (filters(4, 0.5), "f16[6,2]", "filters (6) must be a multiple of 4"),
        (filters(1, -1.0), "f16[6,2]", "the scale of the activation must be a positive number, got -1"),
    ]);
}

//! What the golden fixtures cover, and what they must.

use std::collections::BTreeSet;

use kinora_graph::{
    DType, Tensor,
    op::{
        Activation, Affine, AttentionBackward, Interpolation, Mask, MatMul, Norm, NormKind, Op, PoolKind,
        Prediction, Quantise, SequenceAxis, Stage,
    },
};

use crate::golden::{Case, Family, Levels};

/// Names the variants of an enum and lists them. The match has no wildcard: a new variant does not compile until it
/// is listed, and does not pass until the fixtures have it.
macro_rules! variants {
    ($name:ident, $all:ident, $type:ident: $($variant:ident),+ $(,)?) => {
        const $all: &[&str] = &[$(concat!(stringify!($type), "::", stringify!($variant))),+];
        fn $name(value: &$type) -> &'static str {
            match value {
                $($type::$variant { .. } => concat!(stringify!($type), "::", stringify!($variant)),)+
            }
        }
    };
}

variants!(
    op_name, OPS, Op: Conv, Linear, MatMul, Norm, BatchNorm, Activate, Softmax, Gate, Attention, AttentionBackward, Add, Mul, Scale, Blend,
    Concat, Slice, Upsample, Resample, Pool, Mean, TimestepEmbedding, Embedding, Cast, Quantise, Reshape, SamplerStep,
    TemporalBlend,
);
variants!(
    activation_name, ACTIVATIONS, Activation: Relu, Silu, Gelu, GeluTanh, QuickGelu, Sigmoid, Tanh,
);
variants!(stage_name, STAGES, Stage: Activate, Scale, AddChannels, Add, Mul, Blend);
variants!(mask_name, MASKS, Mask: None, Causal, SlidingWindow, Boolean, Additive);
variants!(axis_name, AXES, SequenceAxis: Positions, Frames);
variants!(norm_name, NORMS, NormKind: Group, Layer, Rms);
variants!(affine_name, AFFINES, Affine: None, Scale, ScaleShift);
variants!(interpolation_name, INTERPOLATIONS, Interpolation: Nearest, Bilinear);
variants!(pool_name, POOLS, PoolKind: Average, Max);
variants!(prediction_name, PREDICTIONS, Prediction: Epsilon, Velocity);
variants!(sampler_name, SAMPLERS, Levels: Euler, Ddim, DpmSolver2m, Lcm);
variants!(dtype_name, DTYPES, DType: F32, F16, BF16, F8E4M3, U8, I32);

/// Everything the fixtures must have.
pub fn required() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for op in OPS {
        // Arithmetic is the same in every storage; loading and storing are not.
        let storages: &[DType] =
            if *op == "Op::Resample" { &[DType::U8] } else { &[DType::F32, DType::F16, DType::BF16] };
        for dtype in storages {
            names.insert(format!("{op} of {}", dtype_name(dtype)));
        }
    }
    let parents: [(&str, &[&str]); 13] = [
        ("Op::Activate", ACTIVATIONS),
        ("Op::Gate", ACTIVATIONS),
        ("Op::Attention", MASKS),
        ("Op::Attention", AXES),
        ("Op::AttentionBackward", MASKS),
        ("Op::AttentionBackward", AXES),
        ("Op::Norm", NORMS),
        ("Op::Norm", AFFINES),
        ("Op::Conv", STAGES),
        ("Op::Linear", STAGES),
        ("Op::Upsample", INTERPOLATIONS),
        ("Op::Pool", POOLS),
        ("Op::Linear gate", ACTIVATIONS),
    ];
    for (parent, variants) in parents {
        names.extend(variants.iter().map(|variant| format!("{parent} {variant}")));
    }
    for sampler in SAMPLERS {
        names.extend(PREDICTIONS.iter().map(|prediction| format!("{sampler} {prediction}")));
    }
    for source in DTYPES {
        names.extend(DTYPES.iter().map(|target| format!("Op::Cast {source} {target}")));
    }
    for (parent, accumulator_first) in
        [("Op::Conv", true), ("Op::Conv", false), ("Op::Linear", true), ("Op::Linear", false)]
    {
        names.insert(format!("{parent} blend, accumulator first: {accumulator_first}"));
    }
    names.extend(["Op::Conv prologue", "Op::Linear prologue"].map(str::to_owned));
    names.extend(FORMS.map(str::to_owned));
    names
}

/// Forms of ops that no enum variant represents.
const FORMS: [&str; 42] = [
    "Op::Conv groups",
    "Op::Conv depthwise",
    "Op::Conv dilation",
    "Op::Conv 3-D",
    "Op::Conv temporal stride",
    "Op::Conv asymmetric padding",
    "Op::Conv sub-pixel",
    "Op::Attention key lengths",
    "Op::Attention boundaries",
    "Op::Attention log-sum-exp",
    "Op::Attention packed operands",
    "Op::Attention keys of fewer batch elements",
    "Op::AttentionBackward key lengths",
    "Op::AttentionBackward boundaries",
    "Op::AttentionBackward packed operands",
    "Op::AttentionBackward keys of fewer batch elements",
    "Op::MatMul plain",
    "Op::MatMul transposed a",
    "Op::MatMul transposed b",
    "Op::MatMul both transposed",
    "Op::MatMul shared b",
    "Op::SamplerStep guided",
    "Op::SamplerStep guided by frame",
    "Op::SamplerStep history",
    "Op::SamplerStep noise",
    "Op::SamplerStep blend",
    "Op::SamplerStep clip",
    "Op::SamplerStep denoised",
    "Op::SamplerStep scaled",
    "Op::TemporalBlend threshold",
    "Op::TemporalBlend plain",
    "Op::Norm activation",
    "Op::Norm quantised",
    "Op::Quantise tensor",
    "Op::Quantise filters",
    "Op::Quantise blocks of filters",
    "Op::Conv quantised",
    "Op::Conv quantised sub-pixel",
    "Op::Linear quantised",
    "Op::Linear quantised to e4m3",
    "Op::Blend one α",
    "Op::Blend α by image",
];

/// The forms that a case has, as [`FORMS`] names them after the op.
fn forms(op: &Op, inputs: &[Tensor], mut form: impl FnMut(&str)) {
    let mut given = |holds: bool, name: &str| {
        if holds {
            form(name);
        }
    };
    match op {
        Op::Conv(conv) => {
            let channels = inputs[0].shape().channels();
            given(conv.groups > 1, "groups");
            given(conv.groups > 1 && conv.groups == channels, "depthwise");
            given(conv.dilation != [1; 3], "dilation");
            given(conv.kernel.iter().all(|&taps| taps > 1), "3-D");
            given(conv.stride[0] > 1, "temporal stride");
            given(conv.padding.iter().any(|[before, after]| before != after), "asymmetric padding");
            given(conv.subpixel, "sub-pixel");
            given(conv.quantised.is_some(), "quantised");
            given(conv.quantised.is_some() && conv.subpixel, "quantised sub-pixel");
        }
        Op::Attention(attention) | Op::AttentionBackward(AttentionBackward { forward: attention }) => {
            given(attention.key_lengths, "key lengths");
            given(attention.boundaries, "boundaries");
            given(attention.log_sum_exp, "log-sum-exp");
            given(attention.offsets != [0; 3], "packed operands");
            let extents = attention.extents(inputs[0].ty(), inputs[1].ty());
            given(extents.key_batch < extents.batch, "keys of fewer batch elements");
        }
        Op::MatMul(MatMul { transpose_a, transpose_b }) => {
            let name = match (transpose_a, transpose_b) {
                (false, false) => "plain",
                (true, false) => "transposed a",
                (false, true) => "transposed b",
                (true, true) => "both transposed",
            };
            given(true, name);
            given(inputs[0].shape().len() > inputs[1].shape().len(), "shared b");
        }
        Op::SamplerStep(step) => {
            given(step.guided, "guided");
            given(step.guided && inputs[4].shape()[0] > 1, "guided by frame");
            given(step.history, "history");
            given(step.noise, "noise");
            given(step.blend, "blend");
            given(step.clip.is_some(), "clip");
            given(step.emit_denoised, "denoised");
            given(step.emit_scaled, "scaled");
        }
        Op::TemporalBlend(blend) => {
            given(true, if blend.threshold.is_some() { "threshold" } else { "plain" });
        }
        Op::Linear(linear) => {
            given(linear.quantised.is_some(), "quantised");
            given(linear.quantised == Some(DType::F8E4M3), "quantised to e4m3");
        }
        Op::Quantise(Quantise::Tensor { .. }) => given(true, "tensor"),
        Op::Quantise(Quantise::Filters { blocks, .. }) => {
            given(true, "filters");
            given(*blocks > 1, "blocks of filters");
        }
        Op::Norm(norm) => {
            given(norm.activation.is_some(), "activation");
            given(norm.quantise.is_some(), "quantised");
        }
        Op::Blend => given(true, if inputs[2].shape()[0] > 1 { "α by image" } else { "one α" }),
        _ => {}
    }
}

/// What a family has.
pub fn covered(family: &Family) -> BTreeSet<String> {
    family.cases.iter().flat_map(|case| covered_by(family, case)).collect()
}

fn covered_by(family: &Family, case: &Case) -> Vec<String> {
    let op = op_name(&case.op);
    let inputs = family.inputs(case);
    let mut names = vec![format!("{op} of {}", dtype_name(&inputs[0].dtype()))];
    forms(&case.op, &inputs, |form| names.push(format!("{op} {form}")));
    let mut variant = |name: &str| names.push(format!("{op} {name}"));
    match &case.op {
        Op::Conv(conv) => fused(conv.prologue.as_ref(), &conv.epilogue, variant),
        Op::Linear(linear) => {
            if let Some(gate) = &linear.gate {
                variant(&format!("gate {}", activation_name(gate)));
            }
            fused(linear.prologue.as_ref(), &linear.epilogue, variant);
        }
        Op::Norm(norm) => {
            variant(norm_name(&norm.kind));
            variant(affine_name(&norm.affine));
        }
        Op::Activate(activation) => variant(activation_name(activation)),
        Op::Gate(gate) => variant(activation_name(&gate.activation)),
        Op::Attention(attention) | Op::AttentionBackward(AttentionBackward { forward: attention }) => {
            variant(mask_name(&attention.mask));
            variant(axis_name(&attention.axis));
        }
        Op::Upsample(upsample) => variant(interpolation_name(&upsample.interpolation)),
        Op::Pool(pool) => variant(pool_name(&pool.kind)),
        Op::Cast(target) => variant(&format!("{} {}", dtype_name(&inputs[0].dtype()), dtype_name(target))),
        _ => {}
    }
    if let Some(levels) = &case.sampler {
        names.push(format!("{} {}", sampler_name(levels), prediction_name(&levels.prediction())));
    }
    names
}

fn fused(prologue: Option<&Norm>, epilogue: &[Stage], mut variant: impl FnMut(&str)) {
    if prologue.is_some() {
        variant("prologue");
    }
    for stage in epilogue {
        variant(stage_name(stage));
        if let Stage::Blend { accumulator_first } = stage {
            variant(&format!("blend, accumulator first: {accumulator_first}"));
        }
    }
}

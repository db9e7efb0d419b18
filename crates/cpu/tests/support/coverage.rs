//! What the golden fixtures cover, and what they must.

use std::collections::BTreeSet;

use kinora_graph::{
    DType,
    op::{
        Activation, Affine, Interpolation, Mask, Norm, NormKind, Op, PoolKind, Prediction, SequenceAxis,
        Stage,
    },
};

use super::golden::{Case, Family, Levels};

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
    op_name, OPS, Op: Conv, Linear, MatMul, Norm, BatchNorm, Activate, Softmax, Gate, Attention, Add, Mul, Scale, Blend,
    Concat, Slice, Upsample, Pool, Mean, TimestepEmbedding, Embedding, Cast, Reshape, SamplerStep, TemporalBlend,
);
variants!(
    activation_name, ACTIVATIONS, Activation: Relu, Silu, Gelu, GeluTanh, QuickGelu, Sigmoid, Tanh,
);
variants!(stage_name, STAGES, Stage: Activate, Scale, AddChannels, Add, Mul, Blend);
variants!(mask_name, MASKS, Mask: None, Causal, Boolean, Additive);
variants!(axis_name, AXES, SequenceAxis: Positions, Frames);
variants!(norm_name, NORMS, NormKind: Group, Layer, Rms);
variants!(affine_name, AFFINES, Affine: None, Scale, ScaleShift);
variants!(interpolation_name, INTERPOLATIONS, Interpolation: Nearest, Bilinear);
variants!(pool_name, POOLS, PoolKind: Average, Max);
variants!(prediction_name, PREDICTIONS, Prediction: Epsilon, Velocity);
variants!(sampler_name, SAMPLERS, Levels: Euler, Ddim, DpmSolver2m, Lcm);
variants!(dtype_name, DTYPES, DType: F32, F16, BF16, U8, I32);

/// Everything the fixtures must have.
pub fn required() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for op in OPS {
        // Arithmetic is the same in every storage; loading and storing are not.
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            names.insert(format!("{op} of {}", dtype_name(&dtype)));
        }
    }
    let parents: [(&str, &[&str]); 11] = [
        ("Op::Activate", ACTIVATIONS),
        ("Op::Gate", ACTIVATIONS),
        ("Op::Attention", MASKS),
        ("Op::Attention", AXES),
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
    names
}

/// What a family has.
pub fn covered(family: &Family) -> BTreeSet<String> {
    family.cases.iter().flat_map(|case| covered_by(family, case)).collect()
}

fn covered_by(family: &Family, case: &Case) -> Vec<String> {
    let op = op_name(&case.op);
    let inputs = family.inputs(case);
    let mut names = vec![format!("{op} of {}", dtype_name(&inputs[0].dtype()))];
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
        Op::Attention(attention) => {
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

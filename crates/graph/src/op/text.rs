//! Ops as a person reads them.

use std::fmt;

use super::{
    Affine, Attention, Conv, Linear, Mask, Norm, NormKind, Op, Quantise, SamplerStep, SequenceAxis, Stage,
    Statistics,
};
use crate::DType;

impl Op {
    /// The kind of op in a word, without its settings: `conv`, `attention`, `group_norm` …
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Conv(op) if op.kernel[0] > 1 && op.kernel[1] == 1 && op.kernel[2] == 1 => "temporal_conv",
            Op::Conv(_) => "conv",
            Op::Linear(op) if op.gate.is_some() => "gated_linear",
            Op::Linear(_) => "linear",
            Op::MatMul(_) => "matmul",
            Op::Norm(op) => match op.kind {
                NormKind::Group { .. } => "group_norm",
                NormKind::Layer => "layer_norm",
                NormKind::Rms => "rms_norm",
            },
            Op::BatchNorm(_) => "batch_norm",
            Op::Activate(_) => "activation",
            Op::Softmax => "softmax",
            Op::Gate(_) => "gate",
            Op::Attention(op) => match op.axis {
                SequenceAxis::Positions => "attention",
                SequenceAxis::Frames { .. } => "temporal_attention",
            },
            Op::AttentionBackward(op) => match op.forward.axis {
                SequenceAxis::Positions => "attention_backward",
                SequenceAxis::Frames { .. } => "temporal_attention_backward",
            },
            Op::Add => "add",
            Op::Mul => "mul",
            Op::Scale(_) => "scale",
            Op::Blend => "blend",
            Op::Concat(_) => "concat",
            Op::Slice(_) => "slice",
            Op::Upsample(_) => "upsample",
            Op::Resample(_) => "resample",
            Op::Pool(_) => "pool",
            Op::Mean(_) => "mean",
            Op::TimestepEmbedding(_) => "timestep_embedding",
            Op::Embedding => "embedding",
            Op::Cast(_) => "cast",
            Op::Quantise(_) => "quantise",
            Op::Reshape(_) => "reshape",
            Op::SamplerStep(_) => "sampler_step",
            Op::TemporalBlend(_) => "temporal_blend",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Conv(op) => op.fmt(f),
            Op::Linear(op) => op.fmt(f),
            Op::MatMul(op) => {
                let t = |flag| if flag { "ᵀ" } else { "" };
                write!(f, "matmul a{}·b{}", t(op.transpose_a), t(op.transpose_b))
            }
            Op::Norm(op) => op.fmt(f),
            Op::BatchNorm(_) => write!(f, "batch_norm"),
            Op::Activate(op) => write!(f, "{}", op.name()),
            Op::Softmax => write!(f, "softmax"),
            Op::Gate(op) => write!(f, "gate {}", op.activation.name()),
            Op::Attention(op) => op.fmt(f),
            Op::AttentionBackward(op) => write!(f, "gradients of {}", op.forward),
            Op::Add => write!(f, "add"),
            Op::Mul => write!(f, "mul"),
            Op::Scale(op) if op.offset == 0.0 => write!(f, "scale {}", op.factor),
            Op::Scale(op) => write!(f, "scale {} + {}", op.factor, op.offset),
            Op::Blend => write!(f, "blend"),
            Op::Concat(op) => write!(f, "concat axis {}", op.axis),
            Op::Slice(op) => {
                write!(f, "slice axis {} {}..{}", op.axis, op.start, op.start.saturating_add(op.len))
            }
            Op::Upsample(op) => {
                let how = match op.interpolation {
                    super::Interpolation::Nearest => "nearest",
                    super::Interpolation::Bilinear => "bilinear",
                };
                write!(f, "upsample {how} {}×{}", op.size[0], op.size[1])
            }
            Op::Resample(op) => write!(f, "resample axis {}", op.axis),
            Op::Pool(op) => {
                let kind = match op.kind {
                    super::PoolKind::Average => "average",
                    super::PoolKind::Max => "max",
                };
                write!(f, "{kind}_pool {}×{}", op.kernel[0], op.kernel[1])
            }
            Op::Mean(op) => write!(f, "mean axes {:?}", op.axes),
            Op::TimestepEmbedding(op) => write!(f, "timestep_embedding {}", op.width),
            Op::Embedding => write!(f, "embedding"),
            Op::Cast(dtype) => write!(f, "cast {dtype}"),
            Op::Quantise(Quantise::Tensor { factor }) => write!(f, "quantise ×{factor}"),
            Op::Quantise(Quantise::Filters { .. }) => write!(f, "quantise filters"),
            Op::Reshape(op) => write!(f, "reshape {}", op.shape),
            Op::SamplerStep(op) => op.fmt(f),
            Op::TemporalBlend(op) => match op.threshold {
                Some(t) => write!(f, "temporal_blend below {t}"),
                None => write!(f, "temporal_blend"),
            },
        }
    }
}

impl fmt::Display for Conv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(norm) = &self.prologue {
            write!(f, "{norm} → ")?;
        }
        let [kt, kh, kw] = self.kernel;
        write!(f, "{}conv {kt}×{kh}×{kw}", if self.subpixel { "sub-pixel " } else { "" })?;
        if self.stride != [1; 3] {
            write!(f, " stride {:?}", self.stride)?;
        }
        if self.padding != [[0; 2]; 3] {
            let sides: Vec<String> = self
                .padding
                .iter()
                .map(|&[a, b]| if a == b { a.to_string() } else { format!("{a}:{b}") })
                .collect();
            write!(f, " pad [{}]", sides.join(", "))?;
        }
        if self.dilation != [1; 3] {
            write!(f, " dilation {:?}", self.dilation)?;
        }
        if self.groups != 1 {
            write!(f, " groups {}", self.groups)?;
        }
        if self.frames != 1 {
            write!(f, " frames {}", self.frames)?;
        }
        write_quantised(f, self.quantised)?;
        write_epilogue(f, self.bias, &self.epilogue)?;
        write_statistics(f, self.statistics)
    }
}

impl fmt::Display for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(norm) = &self.prologue {
            write!(f, "{norm} → ")?;
        }
        write!(f, "linear")?;
        if let Some(gate) = self.gate {
            write!(f, " gated by {}", gate.name())?;
        }
        write_quantised(f, self.quantised)?;
        write_epilogue(f, self.bias, &self.epilogue)?;
        write_statistics(f, self.statistics)
    }
}

fn write_quantised(f: &mut fmt::Formatter<'_>, quantised: Option<DType>) -> fmt::Result {
    quantised.map_or(Ok(()), |result| write!(f, " e4m3 to {result}"))
}

fn write_epilogue(f: &mut fmt::Formatter<'_>, bias: bool, stages: &[Stage]) -> fmt::Result {
    if bias {
        write!(f, " +bias")?;
    }
    for stage in stages {
        match stage {
            Stage::Activate(activation) => write!(f, " {}", activation.name())?,
            Stage::Scale(factor) => write!(f, " ×{factor}")?,
            Stage::AddChannels => write!(f, " +channels")?,
            Stage::Add => write!(f, " +residual")?,
            Stage::Mul => write!(f, " ×tensor")?,
            Stage::Blend { .. } => write!(f, " blend")?,
        }
    }
    Ok(())
}

fn write_statistics(f: &mut fmt::Formatter<'_>, statistics: Option<Statistics>) -> fmt::Result {
    match statistics {
        None => Ok(()),
        Some(Statistics { groups, frames: 1 }) => write!(f, " with statistics {groups}"),
        Some(Statistics { groups, frames }) => write!(f, " with statistics {groups} over {frames} frames"),
    }
}

impl fmt::Display for Norm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            NormKind::Group { groups, frames: 1 } => write!(f, "group_norm {groups}")?,
            NormKind::Group { groups, frames } => write!(f, "group_norm {groups} over {frames} frames")?,
            NormKind::Layer => write!(f, "layer_norm")?,
            NormKind::Rms => write!(f, "rms_norm")?,
        }
        if self.affine == Affine::None {
            write!(f, " plain")?;
        }
        if self.measured {
            write!(f, " measured")?;
        }
        if let Some(activation) = self.activation {
            write!(f, " {}", activation.name())?;
        }
        self.quantise.map_or(Ok(()), |factor| write!(f, " to e4m3 ×{factor}"))
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention {}×{}", self.heads, self.head_dim)?;
        if let SequenceAxis::Frames { frames } = self.axis {
            write!(f, " over {frames} frames")?;
        }
        match self.mask {
            Mask::None => {}
            Mask::Causal { diagonal } => write!(f, " causal {diagonal:+}")?,
            Mask::SlidingWindow { diagonal, window } => write!(f, " causal {diagonal:+} window {window}")?,
            Mask::Boolean => write!(f, " masked")?,
            Mask::Additive => write!(f, " biased")?,
        }
        if self.key_lengths {
            write!(f, " key lengths")?;
        }
        if self.boundaries {
            write!(f, " boundaries")?;
        }
        if self.log_sum_exp {
            write!(f, " log-sum-exp")?;
        }
        if self.offsets != [0; 3] {
            write!(f, " packed at {:?}", self.offsets)?;
        }
        Ok(())
    }
}

impl fmt::Display for SamplerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sampler_step")?;
        for (flag, word) in [
            (self.guided, " guided"),
            (self.history, " history"),
            (self.noise, " noise"),
            (self.blend, " blend"),
        ] {
            if flag {
                f.write_str(word)?;
            }
        }
        Ok(())
    }
}

//! Attention.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{OpError, TensorType, check};
use crate::{DType, shape::saturating_product};

/// Which axis the sequence runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SequenceAxis {
    /// The positions of an image attend to each other (or to context tokens).
    Positions,
    /// The frames of a clip attend to each other, separately at each position. Nothing is permuted: the kernel walks
    /// the same memory with a stride.
    Frames {
        /// Query frames of a clip.
        frames: usize,
    },
}

/// Which keys a query may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mask {
    /// All of them.
    None,
    /// Query `i` sees key `j` if `j <= i + diagonal`.
    Causal {
        /// 0 aligns the two sequences' starts; `keys - queries` aligns their ends.
        diagonal: i64,
    },
    /// A causal mask that also hides what is far behind: query `i` sees key `j` if `i + diagonal - window < j <= i +
    /// diagonal`.
    SlidingWindow {
        /// As for [`Mask::Causal`].
        diagonal: i64,
        /// The most keys that a query sees, at least 1.
        window: usize,
    },
    /// A u8 operand `[batch or 1, heads or 1, queries, keys]`; zero hides the key.
    Boolean,
    /// A float operand of that shape, added to the scaled scores.
    Additive,
}

/// Softmax attention. The result for a query that sees no key is zeros.
///
/// Operands: `q [N, S, ..]`, `k [Nk, T, ..]`, `v [Nk, T, ..]`, the mask if there is one, and `key_lengths i32 [Nk]`
/// (over frames: `[batch]`) if set: only that many leading keys exist; then, if `boundaries` is set, those of the queries and those
/// of the keys, each `i32 [sequences + 1]`. Over positions each key/value element serves `N
/// / Nk` consecutive query elements, so that one context serves all frames of its clip. Over frames, `q [batch·frames,
/// P, ..]` and `k, v [batch·key frames, P, ..]`.
///
/// A head's query is `head_dim` channels from `offsets[0] + head · head_dim` of the operand's row, and so for keys
/// and values: the three may be one packed tensor. Result: `[N, S, heads · head_dim]`, and if `log_sum_exp` is set, `f32 [N, S,
/// heads]`: the natural logarithm of the sum of the exponentials of a query's scores, -∞ if it sees no key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Number of heads.
    pub heads: usize,
    /// Channels per head.
    pub head_dim: usize,
    /// Multiplies the scores before the mask and the softmax.
    pub scale: f32,
    /// Which axis the sequence runs along.
    pub axis: SequenceAxis,
    /// Which keys a query may see.
    pub mask: Mask,
    /// Whether a key-length operand is given.
    #[serde(default)]
    pub key_lengths: bool,
    /// Whether a batch element holds several sequences, one after the other (over positions alone). Sequence `s` has the queries
    /// from boundary `s` to before boundary `s + 1`, and sees the keys between the same boundaries of the keys. Causal masks and
    /// windows count from where a sequence begins; a mask operand has the queries and keys of the whole batch element. Queries outside
    /// boundaries see no key. Boundaries must begin at 0 or above, must not fall, and must lie within the operands; with others the result
    /// is not defined, but nothing outside the operands is read.
    #[serde(default)]
    pub boundaries: bool,
    /// Whether the logarithms of the sums are a second result.
    #[serde(default)]
    pub log_sum_exp: bool,
    /// Channel offsets of the first head in `q`, `k` and `v`.
    #[serde(default)]
    pub offsets: [usize; 3],
}

/// An attention's extents, the same for both axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionExtents {
    /// Independent sequences of queries, not counting heads and positions.
    pub batch: usize,
    /// Independent sequences of keys.
    pub key_batch: usize,
    /// Length of a query sequence.
    pub queries: usize,
    /// Length of a key sequence.
    pub keys: usize,
    /// Positions that each hold a sequence: 1 over positions, all of them over frames.
    pub positions: usize,
}

impl Mask {
    /// The keys, of so many, that a causal mask or a sliding window lets a query see. Other masks let it see them all, as far as
    /// its number goes.
    pub fn range(self, query: usize, keys: usize) -> Range<usize> {
        // The first key that is not seen after those of a diagonal. Three numbers of 64 bits do not overflow.
        let after = |diagonal: i128| (query as i128 + diagonal + 1).clamp(0, keys as i128) as usize;
        match self {
            Mask::Causal { diagonal } => 0..after(diagonal.into()),
            Mask::SlidingWindow { diagonal, window } => {
                after(i128::from(diagonal) - window as i128)..after(diagonal.into())
            }
            Mask::None | Mask::Boolean | Mask::Additive => 0..keys,
        }
    }
}

impl Attention {
    /// Plain attention over positions with the usual `1/√head_dim`.
    pub fn over_positions(heads: usize, head_dim: usize) -> Self {
        Attention {
            heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            axis: SequenceAxis::Positions,
            mask: Mask::None,
            key_lengths: false,
            boundaries: false,
            log_sum_exp: false,
            offsets: [0; 3],
        }
    }

    /// Plain attention over the frames of a clip.
    pub fn over_frames(heads: usize, head_dim: usize, frames: usize) -> Self {
        Attention { axis: SequenceAxis::Frames { frames }, ..Attention::over_positions(heads, head_dim) }
    }

    /// The extents, for operands that have been checked.
    pub fn extents(&self, q: &TensorType, k: &TensorType) -> AttentionExtents {
        match self.axis {
            SequenceAxis::Positions => AttentionExtents {
                batch: q.shape[0],
                key_batch: k.shape[0],
                queries: q.shape[1],
                keys: k.shape[1],
                positions: 1,
            },
            SequenceAxis::Frames { frames } => {
                let batch = q.shape[0] / frames;
                AttentionExtents {
                    batch,
                    key_batch: batch,
                    queries: frames,
                    keys: k.shape[0].checked_div(batch).unwrap_or(0),
                    positions: q.shape[1],
                }
            }
        }
    }

    /// The index of the mask operand, if there is one.
    pub fn mask_operand(&self) -> Option<usize> {
        matches!(self.mask, Mask::Boolean | Mask::Additive).then_some(3)
    }

    /// The index of the key-length operand, if there is one.
    pub fn key_lengths_operand(&self) -> Option<usize> {
        self.key_lengths.then(|| 3 + usize::from(self.mask_operand().is_some()))
    }

    /// The indices of the boundaries of the queries and of the keys, if they are given.
    pub fn boundary_operands(&self) -> Option<[usize; 2]> {
        let first = 3 + usize::from(self.mask_operand().is_some()) + usize::from(self.key_lengths);
        self.boundaries.then_some([first, first + 1])
    }

    /// How many operands there are.
    pub fn operands(&self) -> usize {
        let masks = usize::from(self.mask_operand().is_some()) + usize::from(self.key_lengths);
        3 + masks + 2 * usize::from(self.boundaries)
    }

    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        check::count(inputs, self.operands())?;
        let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
        check::at_least_one("heads", self.heads)?;
        check::at_least_one("head size", self.head_dim)?;
        check::finite("scale", self.scale)?;
        if let Mask::SlidingWindow { window, .. } = self.mask {
            check::at_least_one("window", window)?;
        }
        let width = self
            .heads
            .checked_mul(self.head_dim)
            .ok_or_else(|| OpError::Attribute("heads × head size is too large".into()))?;
        for (i, name) in ["q", "k", "v"].into_iter().enumerate() {
            check::float(name, inputs[i])?;
            check::rank(name, inputs[i], 3, "3 (batch, sequence, channels)")?;
            let channels = inputs[i].shape[2];
            if self.offsets[i].checked_add(width).is_none_or(|end| end > channels) {
                return Err(OpError::Attribute(format!(
                    "{name} has {channels} channels; {} heads of {} from channel {} need {}",
                    self.heads,
                    self.head_dim,
                    self.offsets[i],
                    self.offsets[i].saturating_add(width)
                )));
            }
        }
        if k.shape[..2] != v.shape[..2] {
            return Err(OpError::Shape {
                operand: "v",
                expected: [k.shape[0], k.shape[1], v.shape[2]].into(),
                got: v.shape.clone(),
            });
        }
        match self.axis {
            SequenceAxis::Positions => {
                if q.shape[0] != k.shape[0] {
                    check::multiple("query batch", q.shape[0], k.shape[0])?;
                }
            }
            SequenceAxis::Frames { frames } => {
                check::clips(q, frames)?;
                let batch = q.shape[0] / frames;
                if batch > 0 || k.shape[0] > 0 {
                    check::multiple("key images", k.shape[0], batch)?;
                }
                if k.shape[1] != q.shape[1] {
                    return Err(OpError::Shape {
                        operand: "k",
                        expected: [k.shape[0], q.shape[1], k.shape[2]].into(),
                        got: k.shape.clone(),
                    });
                }
            }
        }
        let extents = self.extents(q, k);
        if let Some(i) = self.mask_operand() {
            let mask = inputs[i];
            match self.mask {
                Mask::Boolean => check::dtype("mask", mask, DType::U8, "u8")?,
                _ => check::float("mask", mask)?,
            }
            check::rank("mask", mask, 4, "4 (batch, heads, queries, keys)")?;
            let pick = |axis: usize, full: usize| if mask.shape[axis] == 1 { 1 } else { full };
            check::shape(
                "mask",
                mask,
                &[pick(0, extents.batch), pick(1, self.heads), extents.queries, extents.keys],
            )?;
        }
        if let Some(i) = self.key_lengths_operand() {
            check::dtype("key_lengths", inputs[i], DType::I32, "i32")?;
            check::shape("key_lengths", inputs[i], &[extents.key_batch])?;
        }
        if let Some([queries, keys]) = self.boundary_operands() {
            if self.axis != SequenceAxis::Positions {
                return Err(OpError::Attribute("boundaries are those of sequences over positions".into()));
            }
            check::dtype("query boundaries", inputs[queries], DType::I32, "i32")?;
            check::rank("query boundaries", inputs[queries], 1, "1 (sequences + 1)")?;
            check::at_least_one("number of query boundaries", inputs[queries].shape[0])?;
            check::dtype("key boundaries", inputs[keys], DType::I32, "i32")?;
            check::shape("key boundaries", inputs[keys], &inputs[queries].shape)?;
        }
        let result =
            |dtype: DType, channels: usize| TensorType::new(dtype, [q.shape[0], q.shape[1], channels]);
        let mut results = vec![result(q.dtype, width)];
        results.extend(self.log_sum_exp.then(|| result(DType::F32, self.heads)));
        Ok(results)
    }

    pub(crate) fn flops(&self, inputs: &[&TensorType]) -> u64 {
        let e = self.extents(inputs[0], inputs[1]);
        // Scores and the weighted sum: two products, each of a multiply and an add.
        let extents = [e.batch, e.positions, self.heads, e.queries, e.keys, self.head_dim, 4];
        saturating_product(&extents) as u64
    }
}

/// The gradients of an [`Attention`]: what a small change of its queries, keys and values does to a sum of its results, each times a
/// factor that is given.
///
/// Operands: those of the attention, as it has them; then its two results, `y` and `log_sum_exp`, and the factors, `dy`, of the type of
/// `y`. With `P = exp(scores − log_sum_exp)` of the keys that a query sees, 0 of others, and a number for each query and head,
/// `D = Σ dy · y` over the channels:
///
/// - `dV = Pᵀ · dy`
/// - `dS = P ∘ (dy · Vᵀ − D)`
/// - `dQ = scale · dS · K`
/// - `dK = scale · dSᵀ · Q`
///
/// Results: `dQ [N, S, heads · head_dim]`, `dK` and `dV [Nk, T, heads · head_dim]`, of the types of q, k and v. Channels of packed
/// operands that are not the heads' have no part in them. A key that serves several batch elements has the sum of their gradients; a
/// query that sees no key, and a key that no query sees, has zeros. The gradient of a mask is not computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionBackward {
    /// The attention, which has its logarithms as a result.
    pub forward: Attention,
}

impl AttentionBackward {
    /// How many operands the attention has. The index of `y`; those of `log_sum_exp` and `dy` follow.
    pub fn forward_operands(&self) -> usize {
        self.forward.operands()
    }

    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        if !self.forward.log_sum_exp {
            return Err(OpError::Attribute("gradients need the logarithms of the attention's sums".into()));
        }
        let first = self.forward_operands();
        check::count(inputs, first + 3)?;
        let (of_forward, [y, log_sum_exp, dy]) = inputs.split_at(first) else {
            return Err(OpError::OperandCount { expected: first + 3, got: inputs.len() });
        };
        let results = self.forward.infer(of_forward)?;
        for (name, operand, result) in
            [("y", y, &results[0]), ("log_sum_exp", log_sum_exp, &results[1]), ("dy", dy, &results[0])]
        {
            check::dtype(
                name,
                operand,
                result.dtype,
                if name == "log_sum_exp" { "f32" } else { "q's type" },
            )?;
            check::shape(name, operand, &result.shape)?;
        }
        let width = self.forward.heads * self.forward.head_dim;
        let gradient = |x: &TensorType| TensorType::new(x.dtype, [x.shape[0], x.shape[1], width]);
        Ok(of_forward[..3].iter().map(|operand| gradient(operand)).collect())
    }

    pub(crate) fn flops(&self, inputs: &[&TensorType]) -> u64 {
        // Scores and the gradients of the weights, and then those of q, k and v: five products for the attention's two.
        (self.forward.flops(inputs) / 2).saturating_mul(5)
    }
}

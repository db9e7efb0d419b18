//! Several layers together: what networks repeat, and what the passes look for.

use kinora_graph::{
    DType, GraphError, Op, Phase, TensorType, ValueId,
    op::{
        Activation, Attention, Conv, Gate, Mask, MatMul, NormKind, STEP_COLUMNS, SamplerStep, SequenceAxis,
        TimestepEmbedding,
    },
};

use super::{Generator, SAMPLER_STEPS, TABLE_ROWS};

impl Generator<'_, '_> {
    /// norm → SiLU → conv → + embedding → activation → conv → + x, then an α-blend with x.
    pub(super) fn residual_block(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("residual_block");
        let shape = self.g.shape(x).clone();
        let channels = shape.channels();
        let conv =
            if self.choices.yes() { Conv::temporal(3, self.frames) } else { Conv::spatial([3, 3], 1, 1) };
        let scale = self.parameter(&format!("{name}.scale"), &[channels])?;
        let shift = self.parameter(&format!("{name}.shift"), &[channels])?;
        let kind = NormKind::Group { groups: 1, frames: self.frames };
        let h = self.g.norm(&format!("{name}.norm"), x, kind, 0.05, Some(scale), Some(shift))?;
        let h = self.g.activate(&format!("{name}.silu"), h, Activation::Silu)?;
        let h = self.conv_of(&format!("{name}.conv1"), h, channels, conv.clone())?;
        let rows = self.choices.of(&[1, shape[0]]);
        let e = self.parameter(&format!("{name}.embedding"), &[rows, 1, 1, channels])?;
        let h = self.g.add(&format!("{name}.embed"), h, e)?;
        let h = self.g.activate(&format!("{name}.silu2"), h, Activation::Silu)?;
        let h = self.conv_of(&format!("{name}.conv2"), h, channels, conv)?;
        let y = if self.choices.yes() {
            self.g.add(&format!("{name}.residual"), x, h)?
        } else {
            self.g.add(&format!("{name}.residual"), h, x)?
        };
        if self.choices.yes() {
            return Ok(y);
        }
        let factor = self.parameter(&format!("{name}.mix"), &[1])?;
        let alpha = self.g.activate(&format!("{name}.alpha"), factor, Activation::Sigmoid)?;
        if self.choices.yes() {
            self.g.blend(&format!("{name}.blend"), x, y, alpha)
        } else {
            self.g.blend(&format!("{name}.blend"), y, x, alpha)
        }
    }

    /// An image as rows of tokens.
    pub(super) fn tokens(&mut self, name: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let s = self.g.shape(x).clone();
        self.g.reshape(&format!("{name}.tokens"), x, [s[0], s[1] * s[2], s[3]])
    }

    pub(super) fn self_attention(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("self_attention");
        let shape = self.g.shape(x).clone();
        let width = shape.channels();
        let tokens = self.tokens(&name, x)?;
        let q = self.linear_of(&format!("{name}.to_q"), tokens, width)?;
        let k = self.linear_of(&format!("{name}.to_k"), tokens, width)?;
        let v = self.linear_of(&format!("{name}.to_v"), tokens, width)?;
        let heads = if width.is_multiple_of(4) { 4 } else { 1 };
        let mut op = if self.choices.yes() {
            Attention::over_frames(heads, width / heads, self.frames)
        } else {
            Attention::over_positions(heads, width / heads)
        };
        op.mask = self.choices.of(&[
            Mask::None,
            Mask::Causal { diagonal: 0 },
            Mask::Causal { diagonal: -1 },
            Mask::SlidingWindow { diagonal: 1, window: 2 },
            Mask::Boolean,
            Mask::Additive,
        ]);
        op.key_lengths = self.choices.below(4) == 3;
        op.boundaries = op.axis == SequenceAxis::Positions && self.choices.below(4) == 3;
        let extra = self.visibility(&name, [q, k], &op)?;
        op.log_sum_exp = self.choices.below(4) == 3;
        let inputs: Vec<ValueId> = [q, k, v].into_iter().chain(extra).collect();
        let results = self.g.node(&name, Op::Attention(op), &inputs)?;
        if let Some(&sums) = results.get(1) {
            self.kinds.push("log-sum-exp");
            self.g.output(&format!("{name}.sums"), sums)?;
        }
        let h = self.linear_of(&format!("{name}.to_out"), results[0], width)?;
        let y = self.g.add(&format!("{name}.residual"), h, tokens)?;
        self.g.reshape(&format!("{name}.image"), y, shape)
    }

    /// The operands that say which keys are seen: a mask, lengths, boundaries, all or none.
    fn visibility(
        &mut self,
        name: &str,
        [q, k]: [ValueId; 2],
        op: &Attention,
    ) -> Result<Vec<ValueId>, GraphError> {
        let extents = op.extents(self.g.ty(q), self.g.ty(k));
        let mut extra = Vec::new();
        if op.mask_operand().is_some() {
            let (batch, heads) = (self.choices.of(&[1, extents.batch]), self.choices.of(&[1, op.heads]));
            let shape = [batch, heads, extents.queries, extents.keys];
            let (dtype, kind) = match op.mask {
                Mask::Boolean => (DType::U8, "boolean mask"),
                _ => (self.dtype, "additive mask"),
            };
            self.kinds.push(kind);
            extra.push(self.g.input(&format!("{name}.mask"), TensorType::new(dtype, shape), Phase::Clip)?);
        }
        if op.key_lengths {
            self.kinds.push("key lengths");
            let ty = TensorType::new(DType::I32, [extents.key_batch]);
            extra.push(self.g.input(&format!("{name}.lengths"), ty, Phase::Step)?);
        }
        if op.boundaries {
            self.kinds.push("boundaries");
            for operand in ["query_boundaries", "key_boundaries"] {
                let ty = TensorType::new(DType::I32, [3]);
                extra.push(self.g.input(&format!("{name}.{operand}"), ty, Phase::Clip)?);
            }
        }
        Ok(extra)
    }

    /// Cross-attention to the context, which has one token or several and serves all frames.
    pub(super) fn cross_attention(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("cross_attention");
        let shape = self.g.shape(x).clone();
        let width = shape.channels();
        let tokens = self.tokens(&name, x)?;
        let n = self.g.norm(&format!("{name}.norm"), tokens, NormKind::Layer, 0.05, None, None)?;
        let q = self.linear_of(&format!("{name}.to_q"), n, width)?;
        let context = self.context;
        let k = self.linear_of(&format!("{name}.to_k"), context, width)?;
        let v = self.linear_of(&format!("{name}.to_v"), context, width)?;
        let heads = if width.is_multiple_of(2) { 2 } else { 1 };
        let mut op = Attention::over_positions(heads, width / heads);
        op.mask = self.choices.of(&[Mask::None, Mask::None, Mask::Boolean, Mask::Additive]);
        op.key_lengths = self.choices.below(4) == 3;
        let extra = self.visibility(&name, [q, k], &op)?;
        let h = self.g.attention(&name, [q, k, v], &extra, op)?;
        let h = self.linear_of(&format!("{name}.to_out"), h, width)?;
        let y = self.g.add(&format!("{name}.residual"), h, tokens)?;
        self.g.reshape(&format!("{name}.image"), y, shape)
    }

    pub(super) fn feed_forward(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("feed_forward");
        let width = self.g.shape(x).channels();
        let n = self.g.norm(&format!("{name}.norm"), x, NormKind::Layer, 0.05, None, None)?;
        let h = self.linear_of(&format!("{name}.in"), n, 4 * width)?;
        let activation = self.choices.of(&[Activation::Gelu, Activation::Silu, Activation::Sigmoid]);
        let h = self.g.node(&format!("{name}.gate"), Op::Gate(Gate { activation }), &[h])?[0];
        let h = self.linear_of(&format!("{name}.out"), h, width)?;
        self.g.add(&format!("{name}.residual"), x, h)
    }

    pub(super) fn batch_norm_after_conv(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("batch_norm");
        let h = if self.choices.yes() {
            self.conv_of(&format!("{name}.conv"), x, 8, Conv::spatial([3, 3], 1, 1))?
        } else {
            self.linear_of(&format!("{name}.linear"), x, 8)?
        };
        let mean = self.parameter(&format!("{name}.mean"), &[8])?;
        let variance = self.parameter(&format!("{name}.variance"), &[8])?;
        let scale = self.parameter(&format!("{name}.scale"), &[8])?;
        let shift = self.parameter(&format!("{name}.shift"), &[8])?;
        self.g.batch_norm(&name, h, [mean, variance, scale, shift], 0.05)
    }

    /// x·xᵀ·x or x·(xᵀ·x), which keep the shape, or x times a matrix that serves the whole batch. Softmax keeps it small.
    pub(super) fn matmul(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("matmul");
        let shape = self.g.shape(x).clone();
        let tokens = self.tokens(&name, x)?;
        let form = self.choices.below(4);
        let (transpose_a, transpose_b) = (form == 1, form == 0 || form == 3);
        let y = if form < 2 {
            let op = MatMul { transpose_a, transpose_b };
            let scores = self.g.matmul(&format!("{name}.scores"), tokens, tokens, op)?;
            let weights = self.g.softmax(&format!("{name}.softmax"), scores)?;
            let (a, b) = if transpose_a { (tokens, weights) } else { (weights, tokens) };
            self.kinds.push(if transpose_a { "transposed left operand" } else { "transposed right operand" });
            self.g.matmul(&name, a, b, MatMul::default())?
        } else {
            self.kinds.push("shared right operand");
            let channels = shape.channels();
            let matrix = self.parameter(&format!("{name}.weight"), &[channels, channels])?;
            self.g.matmul(&name, tokens, matrix, MatMul { transpose_a, transpose_b })?
        };
        self.g.reshape(&format!("{name}.image"), y, shape)
    }

    pub(super) fn time_embedding(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("time_embedding");
        let images = self.g.shape(x)[0];
        let t = self.parameter(&format!("{name}.t"), &[images])?;
        let op = TimestepEmbedding {
            width: 8,
            cosine_first: self.choices.yes(),
            frequency_shift: 0.0,
            max_period: 100.0,
            scale: 1.0,
        };
        let e = self.g.timestep_embedding(&name, t, op)?;
        let e = self.g.cast(&format!("{name}.cast"), e, self.dtype)?;
        let channels = self.g.shape(x).channels();
        let e = self.linear_of(&format!("{name}.linear"), e, channels)?;
        let e = self.g.reshape(&format!("{name}.image"), e, [images, 1, 1, channels])?;
        let h = self.conv_of(&format!("{name}.conv"), x, channels, Conv::spatial([3, 3], 1, 1))?;
        self.g.add(&format!("{name}.add"), h, e)
    }

    /// A strided convolution over the frames; the mean of what it leaves of a clip goes back to every frame.
    pub(super) fn temporal_stride(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("temporal_stride");
        let shape = self.g.shape(x).clone();
        let [_, height, width, channels] = [shape[0], shape[1], shape[2], shape[3]];
        let stride = self.choices.of(&[2, 3]);
        let conv = Conv { stride: [stride, 1, 1], ..Conv::temporal(3, self.frames) };
        let h = self.conv_of(&format!("{name}.conv"), x, channels, conv)?;
        let clips = shape[0] / self.frames;
        let left = self.frames.div_ceil(stride);
        let h = self.g.reshape(&format!("{name}.rows"), h, [clips, left * height, width, channels])?;
        let mean = self.g.mean(&format!("{name}.mean"), h, &[1])?;
        let rows = [clips, self.frames * height, width, channels];
        let x = self.g.reshape(&format!("{name}.clips"), x, rows)?;
        let y = self.g.add(&format!("{name}.add"), x, mean)?;
        self.g.reshape(&name, y, shape)
    }

    /// A row of a table for each image, added to it.
    pub(super) fn embedding_lookup(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("embedding");
        let (images, channels) = (self.g.shape(x)[0], self.g.shape(x).channels());
        let table = self.parameter(&format!("{name}.table"), &[TABLE_ROWS, channels])?;
        let phase = self.choices.of(&[Phase::Step, Phase::Clip]);
        let ids = self.g.input(&format!("{name}.ids"), TensorType::new(DType::I32, [images]), phase)?;
        let mut rows = self.g.embedding(&format!("{name}.rows"), table, ids)?;
        if self.choices.yes() {
            rows = self.g.activate(&format!("{name}.act"), rows, Activation::Silu)?;
        }
        if self.choices.yes() {
            rows = self.linear_of(&format!("{name}.linear"), rows, channels)?;
        }
        let rows = self.g.reshape(&format!("{name}.image"), rows, [images, 1, 1, channels])?;
        self.g.add(&name, x, rows)
    }

    /// A sum or product with a value of the other element type, on either side.
    pub(super) fn mixed_residual(&mut self, x: ValueId) -> Result<ValueId, GraphError> {
        let name = self.name("mixed_residual");
        let other = self.like(x);
        let other = self.g.cast(&format!("{name}.cast"), other, self.second_dtype)?;
        match self.choices.below(3) {
            0 => self.g.add(&name, x, other),
            1 => self.g.mul(&name, x, other),
            _ => {
                let y = self.g.add(&format!("{name}.other"), other, x)?;
                self.g.cast(&name, y, self.dtype)
            }
        }
    }

    /// A sampler step on the last value as its prediction; the next sample first, then what else it gives.
    pub(super) fn sampler_step(&mut self, prediction: ValueId) -> Result<Vec<ValueId>, GraphError> {
        let name = self.name("sampler_step");
        let images = self.g.shape(prediction)[0];
        // No blend, one in the step, or one behind it.
        let blend = self.choices.below(3);
        let op = SamplerStep {
            guided: self.choices.yes(),
            history: self.choices.yes(),
            noise: self.choices.yes(),
            blend: blend == 1,
            clip: self.choices.of(&[None, Some(0.8)]),
            emit_denoised: self.choices.yes(),
            emit_scaled: self.choices.yes(),
        };
        let sample = self.like(prediction);
        let prediction = if op.guided {
            let other = self.alike(prediction);
            self.g.concat(&format!("{name}.halves"), &[prediction, other], 0)?
        } else {
            prediction
        };
        let f32s = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let table = self.g.parameter(&format!("{name}.table"), f32s(&[SAMPLER_STEPS, STEP_COLUMNS]))?;
        let step = self.g.input(&format!("{name}.step"), TensorType::new(DType::I32, [1]), Phase::Step)?;
        let mut operands = vec![sample, prediction, table, step];
        if op.guided {
            let values = self.choices.of(&[1, images.max(1)]);
            operands.push(self.g.input(&format!("{name}.guidance"), f32s(&[values]), Phase::Clip)?);
        }
        for _ in 0..usize::from(op.history) + usize::from(op.noise) {
            operands.push(self.like(sample));
        }
        if op.blend {
            self.kinds.push("blended sampler_step");
            operands.push(self.like(sample));
            operands.push(self.g.parameter(&format!("{name}.strength"), f32s(&[1]))?);
        }
        let mut results = self.g.sampler_step(&name, &operands, op)?;
        if blend == 2 {
            results[0] = self.temporal_blend(results[0])?;
        }
        Ok(results)
    }
}

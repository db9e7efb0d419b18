"""UNetSpatioTemporalConditionModel.forward with the layers of fast_layers.py and fused/. Results equal those of
diffusers except for rounding.

Cross-attention over a single key is `to_out(to_v(context))`, whatever the queries are: nothing else is computed.
"""

import torch
import torch.nn.functional as F

from .fast_layers import convolved, mixed, normed, residual_block, temporal_part
from .fused import add_norm, frame_attention, gate


def queries_keys_values(attention, x):
    return F.linear(x, torch.cat([attention.to_q.weight, attention.to_k.weight, attention.to_v.weight]))


def from_context(attention, context):
    """Cross-attention, which is the same at every place of a clip."""
    return attention.to_out[0](attention.to_v(context))


def feed_forward(layer, x):
    """Without the last bias, which is added together with the result."""
    projected, last = layer.net[0].proj, layer.net[2]
    return F.linear(gate(F.linear(x, projected.weight), projected.bias), last.weight)


def transformer(model, x, context):
    """TransformerSpatioTemporalModel.forward; `context` is one vector per clip."""
    clips, frames, height, width, channels = x.shape
    places = height * width
    (block,), (temporal,) = model.transformer_blocks, model.temporal_transformer_blocks

    def normalised(norm, x, branch, vector, every):
        return add_norm(x, branch, vector, every, norm.weight, norm.bias, norm.eps)

    # Every row of all clips in one dimension.
    everything, clip = clips * frames * places, frames * places
    h = F.linear(normed(model.norm, x, 2, silu=False).reshape(everything, channels), model.proj_in.weight)
    h, y = normalised(block.norm1, h, None, model.proj_in.bias[None], everything)
    attention = block.attn1
    parts = (
        queries_keys_values(attention, y).reshape(clips * frames, places, 3, attention.heads, -1).permute(2, 0, 3, 1, 4)
    )
    # Unbound, not indexed: their gradients are then stacked in one pass.
    y = F.scaled_dot_product_attention(*parts.unbind(0)).transpose(1, 2).reshape(everything, channels)
    y = F.linear(y, attention.to_out[0].weight)
    h, y = normalised(block.norm3, h, y, attention.to_out[0].bias + from_context(block.attn2, context), clip)
    h = mixed(h, feed_forward(block.ff, y), block.ff.net[2].bias)

    # A frame's number, embedded, is added to all of its places.
    numbers = model.time_proj(torch.arange(frames, device=x.device)).to(x.dtype)
    t, y = normalised(temporal.norm_in, h, None, model.time_pos_embed(numbers), places)
    t, y = normalised(temporal.norm1, t, feed_forward(temporal.ff_in, y), temporal.ff_in.net[2].bias[None], everything)
    attention = temporal.attn1
    y = queries_keys_values(attention, y).reshape(clips, frames, places, 3 * channels)
    y = F.linear(frame_attention(y, attention.heads).reshape(everything, channels), attention.to_out[0].weight)
    t, y = normalised(temporal.norm3, t, y, attention.to_out[0].bias + from_context(temporal.attn2, context), clip)
    h = mixed(h, feed_forward(temporal.ff, y), temporal.ff.net[2].bias, temporal_part(model.time_mixer), t)
    return mixed(x, F.linear(h, model.proj_out.weight).reshape(x.shape), model.proj_out.bias)


def enlarged(x):
    """Doubles height and width by repetition."""
    clips, frames, height, width, channels = x.shape
    x = x.reshape(clips * frames, height, 1, width, 1, channels).expand(-1, -1, 2, -1, 2, -1)
    return x.reshape(clips, frames, 2 * height, 2 * width, channels)


def forward(unet, sample, timestep, context, ids):
    """The prediction for `sample[clips, frames, channels, height, width]`; `context[clips, channels]` embeds the
    picture."""
    dtype = sample.dtype
    time = unet.time_embedding(unet.time_proj(timestep).to(dtype))
    time = time + unet.add_embedding(unet.add_time_proj(ids.flatten()).reshape(len(ids), -1).to(dtype))
    time = F.silu(time)
    x = convolved(sample.permute(0, 1, 3, 4, 2).contiguous(), unet.conv_in.weight, unet.conv_in.bias)
    kept = [x]
    for block in unet.down_blocks:
        for residual, attention in zip(block.resnets, block.attentions, strict=True):
            x = transformer(attention, residual_block(residual, x, time), context)
            kept.append(x)
        for layer in block.downsamplers or ():
            x = convolved(x, layer.conv.weight, layer.conv.bias, stride=2)
            kept.append(x)
    middle = unet.mid_block
    x = residual_block(middle.resnets[0], x, time)
    for attention, residual in zip(middle.attentions, middle.resnets[1:], strict=True):
        x = residual_block(residual, transformer(attention, x, context), time)
    for block in unet.up_blocks:
        for residual, attention in zip(block.resnets, block.attentions, strict=True):
            x = residual_block(residual, torch.cat([x, kept.pop()], dim=-1), time)
            x = transformer(attention, x, context)
        for layer in block.upsamplers or ():
            x = convolved(enlarged(x), layer.conv.weight, layer.conv.bias)
    x = normed(unet.conv_norm_out, x, 2)
    return convolved(x, unet.conv_out.weight, unet.conv_out.bias).permute(0, 1, 4, 2, 3)

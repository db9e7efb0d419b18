"""The same networks, arranged so that a GPU trains them quickly. Results are those of diffusers, but for rounding.

- Temporal convolutions, kernel (3, 1, 1), become two-dimensional ones over frames and positions, which cuDNN is good at.
- Cross-attention over a single key is `to_out(to_v(context))`, whatever the queries are: nothing else is computed.
- The two halves of a gated layer are two products, so that what follows reads numbers that lie side by side.
- Norms over channels are compiled where there is a GPU: PyTorch's own reads narrow rows at a tenth of the memory's speed.
- torch.compile, where asked for, gets one kind of block at a time: equal blocks share their compiled code, which takes a third
  of the time that the whole network does.
"""

import functools
import types

import torch
import torch.nn.functional as F
from diffusers.models.activations import GEGLU
from diffusers.models.attention_processor import Attention
from diffusers.models.resnet import ResnetBlock2D, SpatioTemporalResBlock
from diffusers.models.transformers.transformer_temporal import TransformerSpatioTemporalModel


def temporal_convolution(convolution, x):
    """On `[clips, channels, frames, positions]`."""
    return F.conv2d(x, convolution.weight[..., 0], convolution.bias, padding=(1, 0))


def residual_block(self, hidden_states, temb=None, image_only_indicator=None):
    """SpatioTemporalResBlock.forward for clips. The temporal block's skip is the identity, so that a blend of
    `x` and `x + h` is `x` and a part of `h`."""
    frames = image_only_indicator.shape[-1]
    x = self.spatial_res_block(hidden_states, temb)
    if self.without_time:
        return x
    images, channels, height, width = x.shape
    clips = images // frames
    x = x.permute(0, 2, 3, 1).reshape(clips, frames, height * width, channels).permute(0, 3, 1, 2)
    block = self.temporal_res_block
    h = temporal_convolution(block.conv1, F.silu(block.norm1(x)))
    if temb is not None:
        time = block.time_emb_proj(F.silu(temb)).reshape(clips, frames, channels)
        h = h + time.permute(0, 2, 1)[..., None]
    h = temporal_convolution(block.conv2, F.silu(block.norm2(h)))
    temporal = torch.sigmoid(self.time_mixer.mix_factor)
    if not self.time_mixer.switch_spatial_to_temporal_mix:
        temporal = 1 - temporal
    x = x + temporal.to(x.dtype) * h
    return x.permute(0, 2, 3, 1).reshape(images, height, width, channels).permute(0, 3, 1, 2)


def single_key_attention(self, hidden_states, encoder_hidden_states=None, attention_mask=None, **_):
    return self.to_out[0](self.to_v(encoder_hidden_states))


def gated_linear(self, hidden_states, *_, **__):
    """GEGLU.forward."""
    weight, bias = self.proj.weight, self.proj.bias
    half = len(weight) // 2
    hidden = F.linear(hidden_states, weight[:half], bias[:half])
    return hidden * self.gelu(F.linear(hidden_states, weight[half:], bias[half:]))


@functools.cache
def compiled_layer_norm():
    return torch.compile(F.layer_norm, dynamic=False)


def layer_norm(self, x):
    """LayerNorm.forward. All rows in one dimension: there are as few shapes as can be, and each is compiled for."""
    if x.device.type != "cuda":
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
    rows = x.reshape(-1, x.shape[-1])
    return compiled_layer_norm()(rows, self.normalized_shape, self.weight, self.bias, self.eps).reshape(x.shape)


def frame_convolution(self, x):
    """Conv3d.forward for a kernel (3, 1, 1)."""
    return temporal_convolution(self, x.flatten(3)).unflatten(3, x.shape[3:])


def leave_out_time(network, left_out):
    """Whether blocks leave out what mixes frames, which is nothing for as long as its last layers are zero."""
    for module in network.modules():
        if isinstance(module, SpatioTemporalResBlock):
            module.without_time = left_out


def speed_up(network, compiled=False):
    """Changes a network's layers in place. Saving and loading are unaffected."""
    for name, module in network.named_modules():
        if isinstance(module, SpatioTemporalResBlock):
            module.forward = types.MethodType(residual_block, module)
            module.without_time = False
        elif isinstance(module, Attention) and name.endswith("attn2"):
            module.forward = types.MethodType(single_key_attention, module)
        elif isinstance(module, GEGLU):
            module.forward = types.MethodType(gated_linear, module)
        elif isinstance(module, torch.nn.LayerNorm):
            module.forward = types.MethodType(layer_norm, module)
        elif isinstance(module, torch.nn.Conv3d) and name.endswith("time_conv_out"):
            module.forward = types.MethodType(frame_convolution, module)
    if compiled:
        torch._dynamo.config.recompile_limit = 64
        for module in network.modules():
            if isinstance(module, (SpatioTemporalResBlock, TransformerSpatioTemporalModel)):
                module.compile(dynamic=False)
        # The autoencoder's encoder has blocks without time.
        encoder = getattr(network, "encoder", None)
        for module in encoder.modules() if encoder is not None else ():
            if isinstance(module, ResnetBlock2D):
                module.compile(dynamic=False)
    return network

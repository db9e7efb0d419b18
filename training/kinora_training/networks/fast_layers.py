"""Layers of both networks in the layout `[clips, frames, height, width, channels]`, and the autoencoder made of them.
Results equal those of diffusers except for rounding.

cuDNN's convolutions, matrix products and the norms of fused/ all read this layout directly. Temporal convolutions,
kernel (3, 1, 1), are two-dimensional ones over frames and places, which cuDNN is good at.
"""

import types

import torch
import torch.nn.functional as F
from diffusers.models.resnet import ResnetBlock2D, SpatioTemporalResBlock

from .fused import group_norm, mix


def convolved(x, weight, bias=None, stride=1):
    """A 3×3 convolution of every frame."""
    y = F.conv2d(x.flatten(0, 1).permute(0, 3, 1, 2), weight, bias, stride=stride, padding=1)
    return y.permute(0, 2, 3, 1).contiguous().unflatten(0, x.shape[:2])


def convolved_in_time(x, weight, bias=None):
    """A convolution (3, 1, 1)."""
    y = F.conv2d(x.flatten(2, 3).permute(0, 3, 1, 2), weight[..., 0], bias, padding=(1, 0))
    return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], -1)


def normed(norm, x, dims, vector=None, silu=True):
    """A group norm of `x + vector` over what comes after the first `dims` dimensions."""
    rows = x.flatten(0, dims - 1).flatten(1, -2)
    return group_norm(rows, vector, norm.weight, norm.bias, norm.num_groups, norm.eps, silu).reshape(x.shape)


def mixed(x, branch, bias, part=None, other=None):
    """fused.mix of any shape."""
    rows = [None if value is None else value.reshape(-1, x.shape[-1]) for value in (x, branch, other)]
    return mix(rows[0], rows[1], bias, part, rows[2]).reshape(x.shape)


def before_norm(block, time, times):
    """What is added before the norm between a block's convolutions: a bias and the time embedding, `times` per clip."""
    if block.time_emb_proj is None:
        return block.conv1.bias
    return (block.conv1.bias + block.time_emb_proj(time)).repeat_interleave(times, 0)


def spatial_block(block, x, time=None):
    """ResnetBlock2D.forward; `time` is the SiLU of the time embedding, one per clip."""
    clips, frames = x.shape[:2]
    h = convolved(normed(block.norm1, x, 2), block.conv1.weight)
    vector = before_norm(block, time, frames).expand(clips * frames, -1)
    h = convolved(normed(block.norm2, h, 2, vector), block.conv2.weight)
    bias = block.conv2.bias
    if block.conv_shortcut is not None:
        x = F.linear(x, block.conv_shortcut.weight.flatten(1))
        bias = bias + block.conv_shortcut.bias
    return mixed(x, h, bias)


def residual_block(block, x, time=None):
    """SpatioTemporalResBlock.forward."""
    x = spatial_block(block.spatial_res_block, x, time)
    if getattr(block, "without_time", False):
        return x
    temporal = block.temporal_res_block
    h = convolved_in_time(normed(temporal.norm1, x, 1), temporal.conv1.weight)
    vector = before_norm(temporal, time, 1).expand(len(x), -1)
    h = convolved_in_time(normed(temporal.norm2, h, 1, vector), temporal.conv2.weight)
    # The temporal block's skip is the identity: a blend of `x` and `x + h` is `x` and a part of `h`.
    return mixed(x, h, temporal.conv2.bias, temporal_part(block.time_mixer))


def temporal_part(mixer):
    part = torch.sigmoid(mixer.mix_factor.float()).reshape(())
    return part if mixer.switch_spatial_to_temporal_mix else 1 - part


def lay_out(network):
    """Puts the weights of convolutions into the layout that cuDNN expects with this one."""
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.to(memory_format=torch.channels_last)
    return network


# Replacements for the autoencoder's own layers: images `[n, channels, height, width]` in the same memory layout,
# in clips of `frames` each.


def as_clips(images, frames=1):
    return images.permute(0, 2, 3, 1).contiguous().unflatten(0, (-1, frames))


def as_images(clips):
    return clips.flatten(0, 1).permute(0, 3, 1, 2)


def image_block(self, images, temb=None):
    return as_images(spatial_block(self, as_clips(images)))


def clip_block(self, images, temb=None, image_only_indicator=None):
    return as_images(residual_block(self, as_clips(images, image_only_indicator.shape[-1])))


def image_norm(self, images):
    """GroupNorm.forward, of images or of `[n, channels, places]`."""
    places = images.flatten(2).transpose(1, 2)
    return (
        group_norm(places, None, self.weight, self.bias, self.num_groups, self.eps, False)
        .transpose(1, 2)
        .reshape(images.shape)
    )


def frame_convolution(self, x):
    """Conv3d.forward for a kernel (3, 1, 1)."""
    return convolved_in_time(x.permute(0, 2, 3, 4, 1), self.weight, self.bias).permute(0, 4, 1, 2, 3)


def leave_out_time(network, left_out):
    """Sets whether blocks skip what mixes frames; it has no effect as long as its last layers are zero."""
    for module in network.modules():
        if isinstance(module, SpatioTemporalResBlock):
            module.without_time = left_out


def speed_up(autoencoder):
    """Changes an autoencoder's layers in place. Saving and loading are unaffected."""
    for name, module in autoencoder.named_modules():
        if isinstance(module, SpatioTemporalResBlock):
            module.forward = types.MethodType(clip_block, module)
        elif isinstance(module, ResnetBlock2D):
            module.forward = types.MethodType(image_block, module)
        elif isinstance(module, torch.nn.GroupNorm):
            module.forward = types.MethodType(image_norm, module)
        elif isinstance(module, torch.nn.Conv3d) and name.endswith("time_conv_out"):
            module.forward = types.MethodType(frame_convolution, module)
    return lay_out(autoencoder)

"""The initialisation of the autoencoder: a linear one with correct colours, so that training only adds what is
nonlinear.

- The encoder starts as the principal components of 8×8 patches, computed from the data: pixels are moved into channels
  by its first two strided convolutions and projected by the third.
- The decoder starts as a smooth enlargement of every patch's mean colour, with the latents themselves beside it in
  other channels.
- Residual branches start at zero, so that all blocks are the identity.
- The last norms would forget how bright a picture is. A norm over a group of channels forgets its mean and its
  deviation; something of known size in the group, far larger than the picture, keeps both nearly constant, and what is
  left of the picture's mean can be read from it. The encoder's groups of three have two constant channels for that, the
  decoder's groups of two the upper edge, which zeros around a picture tell from the rest. SiLU in between is undone by
  pairs: silu(x) − silu(−x) = x.
"""

import torch

from ..networks import configurations as sizes

PATCH = sizes.PIXELS_PER_LATENT
# The logarithm of the variance of the latents' noise.
LOG_VARIANCE = -7.0
# How large colours and components are inside the networks. All weights are trained in steps of one size: what is
# large beside other features is changed little by each, and stays right while the rest is learnt.
LARGE = 8.0
# The size of the encoder's constant channels, and of the decoder's upper edge.
LEVEL, EDGE = 6.0 * LARGE, 40.0 * LARGE
# Of a convolution over an enlarged picture: with it, nearest neighbours become linear interpolation.
SMOOTH = (0.25, 0.5, 0.25)


def patches(images):
    """The 8×8 patches of `[n, 3, height, width]`, as rows in the order of `packed` channels."""
    for _ in range(3):
        images = packed(images)
    return images.movedim(1, -1).flatten(0, 2)


def packed(images):
    """Squares of 2×2 pixels as channels: first all channels of the upper left pixel, then of the upper right one, and
    so on."""
    parts = [images[..., row::2, column::2] for row in (0, 1) for column in (0, 1)]
    return torch.cat(parts, dim=1)


class Components:
    """The principal components of patches: `directions[i]` is of length 1, `deviations[i]` how much a patch has of
    it."""

    def __init__(self, images, count):
        rows = patches(images.double())
        self.mean = rows.mean(0)
        covariance = (rows - self.mean).T @ (rows - self.mean) / len(rows)
        values, vectors = torch.linalg.eigh(covariance)
        self.directions = vectors.flip(1)[:, :count].T
        self.deviations = values.flip(0)[:count].clamp(min=1e-6).sqrt()

    @property
    def sizes(self):
        """The deviation of each latent, of 1 in the mean of squares. What is coarse is far larger than detail, nearly
        as much as in pictures, and so comes out of noise before it: the UNet settles what goes where, then carries
        detail there. All of it would leave detail where bf16 rounds."""
        sizes = self.deviations**0.75
        return sizes / sizes.square().mean().sqrt()

    @property
    def colours(self):
        """What a latent of 1 adds to a patch's mean colour, `[3, count]`, and that colour without it."""
        scale = (self.deviations / self.sizes)[:, None]
        means = (scale * self.directions).reshape(len(scale), -1, 3).mean(1)
        return means.T, self.mean.reshape(-1, 3).mean(0)


@torch.no_grad()
def begin(vae, images):
    """Sets an autoencoder's weights, from images from −1 to 1."""
    components = Components(images.cpu(), vae.config.latent_channels)
    for module in vae.modules():
        if hasattr(module, "conv2"):
            clear(module.conv2)
            if getattr(module, "conv_shortcut", None) is not None:
                carry(module.conv_shortcut)
        elif hasattr(module, "to_out"):
            clear(module.to_out[0])
    begin_encoder(vae, components)
    begin_decoder(vae.decoder, components)


def clear(layer):
    layer.weight.zero_()
    layer.bias.zero_()


def carry(convolution):
    """Passes channels on unchanged. There may be fewer or more of them afterwards."""
    clear(convolution)
    middle = [size // 2 for size in convolution.weight.shape[2:]]
    for channel in range(min(convolution.weight.shape[:2])):
        convolution.weight[(channel, channel, *middle)] = 1


def begin_encoder(vae, components):
    encoder, latents = vae.encoder, vae.config.latent_channels
    if encoder.conv_norm_out.num_channels < 6 * latents or encoder.conv_norm_out.num_channels != 96:
        raise ValueError(f"{latents} latents need an encoder that ends in {6 * latents} channels, in groups of three")
    first = encoder.conv_in
    first.weight[:3].zero_()
    first.bias[:3].zero_()
    for colour in range(3):
        first.weight[colour, colour, 1, 1] = LARGE
    filled = 3
    for block in encoder.down_blocks[:2]:
        pack(block.downsamplers[0].conv, filled)
        filled *= 4
    project(encoder.down_blocks[2].downsamplers[0].conv, filled, components)
    # A latent, and the mean that its group has lost, which its constants tell.
    clear(encoder.conv_out)
    sigma = (2 / 3) ** 0.5 * LEVEL / LARGE
    for latent in range(latents):
        for group, sign in ((6 * latent, 1.0), (6 * latent + 3, -1.0)):
            encoder.conv_out.weight[latent, group, 1, 1] = sign * sigma
            encoder.conv_out.weight[latent, group + 1 : group + 3, 1, 1] = -0.5 * sign * sigma
    carry(vae.quant_conv)
    vae.quant_conv.bias[latents:] = LOG_VARIANCE


def pack(convolution, filled):
    """The first channels of 2×2 pixels side by side, as `packed` does; the rest stays random."""
    convolution.weight[: 4 * filled].zero_()
    convolution.bias[: 4 * filled].zero_()
    for part, (row, column) in enumerate((row, column) for row in (0, 1) for column in (0, 1)):
        for channel in range(filled):
            convolution.weight[part * filled + channel, channel, row, column] = 1


def project(convolution, filled, components):
    """Every component twice, with both signs, each followed by two constants."""
    clear(convolution)
    scale = components.sizes / components.deviations
    offset = -LARGE * (components.directions @ components.mean) * scale
    rows = (components.directions * scale[:, None]).reshape(len(scale), 2, 2, filled)
    for latent in range(len(scale)):
        for group, sign in ((6 * latent, 1.0), (6 * latent + 3, -1.0)):
            convolution.weight[group, :filled, :2, :2] = (sign * rows[latent].permute(2, 0, 1)).float()
            convolution.bias[group] = sign * offset[latent]
            convolution.bias[group + 1], convolution.bias[group + 2] = LEVEL, -LEVEL


def begin_decoder(decoder, components):
    latents = decoder.conv_in.in_channels
    colours, mean = components.colours
    # The first channels are the latents, the mean colour, and a constant; the rest are mixtures of latents.
    kept = latents + 4
    decoder.conv_in.weight[:kept].zero_()
    decoder.conv_in.bias[:kept].zero_()
    for latent in range(latents):
        decoder.conv_in.weight[latent, latent, 1, 1] = 1
    decoder.conv_in.weight[latents : latents + 3, :, 1, 1] = LARGE * colours.float()
    decoder.conv_in.bias[latents : latents + 3] = LARGE * mean.float()
    decoder.conv_in.bias[kept - 1] = 1
    smooth = torch.outer(torch.tensor(SMOOTH), torch.tensor(SMOOTH))
    ups = [block.upsamplers[0].conv for block in decoder.up_blocks[:3]]
    for convolution in ups[:2]:
        carry(convolution)
        for channel in range(latents, latents + 3):
            convolution.weight[channel, channel] = smooth
    place_colours(ups[2], latents, smooth)
    read_colours(decoder.conv_out)
    carry(decoder.time_conv_out)


def place_colours(convolution, latents, smooth):
    """Into the decoder's last level: each colour with both signs in groups of its own, beside the upper edge."""
    moved = 12
    convolution.weight.zero_()
    convolution.bias.zero_()
    for channel in range(moved, convolution.out_channels):
        source = channel - moved if channel - moved < latents else channel
        convolution.weight[channel, source, 1, 1] = 1
    for colour in range(3):
        for group, sign in ((4 * colour, 1.0), (4 * colour + 2, -1.0)):
            convolution.weight[group, latents + colour] = sign * smooth
            # On a constant channel this is zero everywhere but in the upper row, where the first of both is missing.
            convolution.weight[group + 1, latents + 3, 0, 1] = EDGE
            convolution.weight[group + 1, latents + 3, 1, 1] = -EDGE


def read_colours(convolution):
    """From the decoder's last norm: a colour, and the half of its mean that its group has lost, which the edge's
    channel tells."""
    clear(convolution)
    sigma = EDGE * (0.5 / sizes.SIDE) ** 0.5 / LARGE
    for colour in range(3):
        for group, sign in ((4 * colour, 1.0), (4 * colour + 2, -1.0)):
            convolution.weight[colour, group, 1, 1] = sign * sigma
            convolution.weight[colour, group + 1, 1, 1] = -sign * sigma

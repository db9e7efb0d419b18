"""The losses that make an autoencoder's frames correct, sharp and steady, without a discriminator.

Differences of brightness alone leave textures soft: if the exact place of a detail costs more bits than a latent has,
a blur is the best guess. So the losses also compare edges at several scales, and the amount of detail in a region
wherever exactly it lies.
"""

import torch
import torch.nn.functional as F


def slopes(image):
    return image[..., :, 1:] - image[..., :, :-1], image[..., 1:, :] - image[..., :-1, :]


def edges(ours, theirs, sizes=3):
    """The mean difference of slopes, at full, half and quarter size."""
    total = 0.0
    for size in range(sizes):
        if size:
            ours, theirs = F.avg_pool2d(ours, 2), F.avg_pool2d(theirs, 2)
        for mine, other in zip(slopes(ours), slopes(theirs), strict=True):
            total = total + (mine - other).abs().mean()
    return total / sizes


def bands(image):
    """Change across two pixels, and curvature from one pixel to the next, right and down, beside each other along the
    colours' axis. A pattern of every second pixel has nothing of the one and all of the other; an edge has both."""
    middle = image[..., 1:-1, 1:-1]
    left, right = image[..., 1:-1, :-2], image[..., 1:-1, 2:]
    up, down = image[..., :-2, 1:-1], image[..., 2:, 1:-1]
    parts = [(right - left) / 2, (down - up) / 2, (left + right) / 2 - middle, (up + down) / 2 - middle]
    return torch.cat(parts, dim=-3)


def detail(image):
    """How much detail of each kind there is around every fourth pixel."""
    return (F.avg_pool2d(bands(image).square(), 8, stride=4) + 1e-5).sqrt()


def reconstruction(decoded, frames):
    """Compares `[clips, frames, 3, height, width]` from −1 to 1. Returns the terms by name; their sum is the loss."""
    ours, theirs = decoded.flatten(0, 1), frames.flatten(0, 1)
    terms = dict(
        absolute=(ours - theirs).abs().mean(),
        squared=4.0 * (ours - theirs).square().mean(),
        edges=edges(ours, theirs),
        # Weighted so that the Laplacian of decoded frames comes to 0.99 of the data's, and patterns of every second
        # pixel to 0.7 of them. As an amount of fine detail whatever its kind, it brought the same Laplacian by hatching
        # what is too thin for a latent.
        detail=32.0 * (detail(ours) - detail(theirs)).abs().mean(),
    )
    if frames.shape[1] > 1:
        motion = (decoded[:, 1:] - decoded[:, :-1]) - (frames[:, 1:] - frames[:, :-1])
        terms["motion"] = 0.5 * motion.abs().mean()
    return terms


def divergence(mean, log_variance):
    """The KL divergence of the latents from the normal distribution, for each latent number."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()


def psnr(ours, theirs, dims=(-3, -2, -1), span=1.0):
    """The PSNR in decibels, for each picture."""
    error = (ours.float() - theirs.float()).square().mean(dims).clamp(min=1e-10)
    return 10 * torch.log10(span * span / error)

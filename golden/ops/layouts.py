"""Kinora's channels-last layouts and PyTorch's channels-first ones."""


def clips_first(x, frames):
    """`[batch·frames, H, W, C]` to `[batch, C, frames, H, W]`."""
    return x.unflatten(0, (-1, frames)).permute(0, 4, 1, 2, 3)


def clips_last(x):
    """`[batch, C, frames, H, W]` to `[batch·frames, H, W, C]`."""
    return x.permute(0, 2, 3, 4, 1).flatten(0, 1)


def images_first(x):
    """`[images, H, W, C]` to `[images, C, H, W]`."""
    return x.permute(0, 3, 1, 2)


def images_last(x):
    """`[images, C, H, W]` to `[images, H, W, C]`."""
    return x.permute(0, 2, 3, 1)

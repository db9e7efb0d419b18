"""Strips of frames as PNG, for people to look at."""

import numpy as np
import torch
from PIL import Image


def to_bytes(frames):
    """`[..., 3, height, width]` from 0 to 1, as bytes with colours last."""
    frames = (frames.detach().float().clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    return frames.movedim(-3, -1).numpy()


def write(path, rows, enlarge=1, gap=2, columns=None):
    """Rows of frames below each other, each row a tensor of `[frames, 3, height, width]`."""
    pictures = []
    for row in rows:
        frames = to_bytes(row if columns is None else row[columns])
        frames = np.pad(frames, ((0, 0), (gap, 0), (gap, 0), (0, 0)), constant_values=255)
        pictures.append(np.concatenate(list(frames), axis=1))
    picture = Image.fromarray(np.concatenate(pictures, axis=0))
    if enlarge != 1:
        picture = picture.resize((picture.width * enlarge, picture.height * enlarge), Image.NEAREST)
    picture.save(path)

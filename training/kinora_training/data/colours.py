"""Colours and palettes."""

import torch


def rgb(hue, saturation, value):
    """From hue, saturation and value, each 0 to 1 and of one shape, to `[..., 3]`."""
    offsets = torch.tensor([0.0, 2 / 3, 1 / 3], device=hue.device)
    ramp = ((hue[..., None] + offsets) % 1.0 * 6 - 3).abs() - 1
    return value[..., None] * (1 - saturation[..., None] * (1 - ramp.clamp(0, 1)))


def luminance(image, axis=-3):
    """Brightness of an image whose colours are along an axis."""
    weights = torch.tensor([0.299, 0.587, 0.114], device=image.device, dtype=image.dtype)
    shape = [1] * image.ndim
    shape[axis] = 3
    return (image * weights.reshape(shape)).sum(axis, keepdim=True)


def palette(draw, colours, saturation=(0.1, 0.45), value=(0.25, 0.9)):
    """Colours that go together, `[clips, colours, 3]`: neighbouring hues, sometimes one opposite, dark to bright."""
    hue = draw.uniform(0, 1, 1) + draw.uniform(-0.09, 0.09, colours)
    opposite = draw.chance(0.35, 1) & (torch.arange(colours, device=draw.device) == draw.integer(colours, 1))
    hue = hue + 0.5 * opposite.float()
    values = draw.uniform(*value, colours).sort(dim=1).values
    # Spread apart, so that no two look the same.
    even = torch.linspace(value[0], value[1], colours, device=draw.device)
    return rgb(hue % 1.0, draw.uniform(*saturation, colours), 0.5 * values + 0.5 * even)


def ramp(level, stops):
    """Colours for levels from 0 to 1 along a row of stops: `[n, h, w]` and `[n, stops, 3]` to `[n, 3, h, w]`."""
    count = stops.shape[1]
    place = level.clamp(0, 1) * (count - 1)
    result = 0.0
    for stop in range(count):
        weight = (1 - (place - stop).abs()).clamp(min=0)
        result = result + weight[:, None] * stops[:, stop, :, None, None]
    return result

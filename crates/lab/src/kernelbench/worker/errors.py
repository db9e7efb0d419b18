"""How far results are from the model's in f64, beside how far PyTorch's own in f32 are."""

import torch

PIECE = 1 << 26
# A number counts as missed if it is off by a thousandth of itself, and by a millionth of a typical number.
RELATIVE, ABSOLUTE = 1e-3, 1e-6


def pieces(*tensors):
    flat = [tensor.reshape(-1) for tensor in tensors]
    for at in range(0, max(1, flat[0].numel()), PIECE):
        yield [one[at : at + PIECE] for one in flat]


def error(result, exact, scale):
    """The root of the mean square, the largest difference, and how many numbers are missed."""
    squares, largest, missed, strange = 0.0, 0.0, 0, 0
    for got, wanted in pieces(result, exact):
        difference = got.double() - wanted
        # Where the model itself gives no number, the result must not either.
        finite = torch.isfinite(wanted)
        same = got.double() == wanted
        strange += int(
            (~torch.isfinite(difference) & ~same & (finite | ~(torch.isnan(wanted) & torch.isnan(got)))).sum()
        )
        difference = torch.where(torch.isfinite(difference), difference.abs(), torch.zeros_like(difference))
        squares += float(difference.square().sum())
        largest = max(largest, float(difference.max()) if difference.numel() else 0.0)
        missed += int((difference > RELATIVE * wanted.abs() + ABSOLUTE * scale).sum())
    return {"rms": (squares / max(1, exact.numel())) ** 0.5, "max": largest, "missed": missed, "strange": strange}


def scales(exact):
    """The root of the mean square, and the largest number."""
    squares, largest = 0.0, 0.0
    for (wanted,) in pieces(exact):
        finite = torch.where(torch.isfinite(wanted), wanted, torch.zeros_like(wanted))
        squares += float(finite.square().sum())
        largest = max(largest, float(finite.abs().max()) if finite.numel() else 0.0)
    return (squares / max(1, exact.numel())) ** 0.5, largest


def compared(result, baseline, exact):
    """What is known of one result."""
    if exact.dtype.is_floating_point:
        typical, largest = scales(exact)
        return {
            "kind": "float",
            "count": exact.numel(),
            "scale_rms": typical,
            "scale_max": largest,
            "error": error(result, exact, typical),
            "baseline": error(baseline, exact, typical),
        }
    differ = lambda one: sum(int((a != b).sum()) for a, b in pieces(one, exact))  # noqa: E731
    return {"kind": "whole", "count": exact.numel(), "differ": differ(result), "baseline_differ": differ(baseline)}

"""What all kernels share: tiles of rows and columns, and whether kernels can run at all."""

import os
import types

try:
    import triton
    import triton.language as tl
except ImportError:  # Triton does not exist for machines without a GPU; kernels are then defined but never run.
    triton, tl = None, types.SimpleNamespace(constexpr=None)

# Rows that a program sums, and rows that it holds at once.
CHUNK, TILE = 64, 16
INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"


def on_gpu(x):
    if x.is_cuda and triton is None:
        raise ImportError("training on a GPU needs Triton, which comes with PyTorch for GPUs: pip install triton")
    return x.is_cuda or INTERPRETED


def jit(function):
    return triton.jit(function) if triton is not None else function


def columns(channels):
    return triton.next_power_of_2(channels)


@jit
def tile_of(row, rows, columns: tl.constexpr, width: tl.constexpr):
    """The addresses of a tile's numbers, and the mask of those that exist."""
    column = tl.arange(0, columns)
    return row[:, None] * width + column[None, :], (row < rows)[:, None] & (column < width)[None, :]

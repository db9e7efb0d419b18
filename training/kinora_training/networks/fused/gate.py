"""The gate of a feed-forward layer."""

import torch
import torch.nn.functional as F

from .tiles import CHUNK, TILE, jit, on_gpu, tl, triton


def plain_gate(x, bias):
    value, gate = (x + bias).chunk(2, dim=-1)
    return value * F.gelu(gate)


def gate(x, bias):
    """`value · gelu(gate)` of `x[rows, 2·width] + bias`, values first; rows are a multiple of `CHUNK`."""
    return Gate.apply(x, bias) if on_gpu(x) else plain_gate(x, bias)


@jit
def normal_part(z):
    return 0.5 + 0.5 * tl.erf(z * 0.7071067811865476)


@jit
def gate_forward(x, bias, y, width, chunk: tl.constexpr, tile: tl.constexpr, columns: tl.constexpr):
    part, block = tl.program_id(0), tl.program_id(1)
    column = block * columns + tl.arange(0, columns)
    inside = column < width
    of_value = tl.load(bias + column, inside, 0.0).to(tl.float32)[None, :]
    of_gate = tl.load(bias + width + column, inside, 0.0).to(tl.float32)[None, :]
    for start in range(0, chunk, tile):
        row = (part * chunk + start + tl.arange(0, tile))[:, None]
        where = row * 2 * width + column[None, :]
        value = tl.load(x + where, inside[None, :], 0.0).to(tl.float32) + of_value
        z = tl.load(x + where + width, inside[None, :], 0.0).to(tl.float32) + of_gate
        out = value * z * normal_part(z)
        tl.store(y + row * width + column[None, :], out.to(y.dtype.element_ty), inside[None, :])


@jit
def gate_backward(x, bias, gradient, out, sums, width, chunk: tl.constexpr, tile: tl.constexpr, columns: tl.constexpr):
    part, block = tl.program_id(0), tl.program_id(1)
    column = block * columns + tl.arange(0, columns)
    inside = column < width
    of_value = tl.load(bias + column, inside, 0.0).to(tl.float32)[None, :]
    of_gate = tl.load(bias + width + column, inside, 0.0).to(tl.float32)[None, :]
    values = tl.zeros([tile, columns], tl.float32)
    gates = tl.zeros([tile, columns], tl.float32)
    for start in range(0, chunk, tile):
        row = (part * chunk + start + tl.arange(0, tile))[:, None]
        where = row * 2 * width + column[None, :]
        value = tl.load(x + where, inside[None, :], 0.0).to(tl.float32) + of_value
        z = tl.load(x + where + width, inside[None, :], 0.0).to(tl.float32) + of_gate
        g = tl.load(gradient + row * width + column[None, :], inside[None, :], 0.0).to(tl.float32)
        below = normal_part(z)
        first = g * z * below
        second = g * value * (below + z * 0.3989422804014327 * tl.exp(-0.5 * z * z))
        values += first
        gates += second
        tl.store(out + where, first.to(out.dtype.element_ty), inside[None, :])
        tl.store(out + where + width, second.to(out.dtype.element_ty), inside[None, :])
    place = sums + part * 2 * width + column
    tl.store(place, tl.sum(values, 0), inside)
    tl.store(place + width, tl.sum(gates, 0), inside)


class Gate(torch.autograd.Function):
    COLUMNS = 128

    @staticmethod
    def forward(context, x, bias):
        rows, width = x.shape[0], x.shape[1] // 2
        assert rows % CHUNK == 0 and x.is_contiguous()
        y = torch.empty(rows, width, device=x.device, dtype=x.dtype)
        gate_forward[(rows // CHUNK, triton.cdiv(width, Gate.COLUMNS))](x, bias, y, width, CHUNK, TILE, Gate.COLUMNS)
        context.save_for_backward(x, bias)
        return y

    @staticmethod
    def backward(context, gradient):
        x, bias = context.saved_tensors
        rows, width = x.shape[0], x.shape[1] // 2
        out = torch.empty_like(x)
        sums = torch.empty(rows // CHUNK, 2 * width, device=x.device, dtype=torch.float32)
        gate_backward[(rows // CHUNK, triton.cdiv(width, Gate.COLUMNS))](
            x, bias, gradient.contiguous(), out, sums, width, CHUNK, TILE, Gate.COLUMNS
        )
        return out, sums.sum(0).to(bias.dtype)

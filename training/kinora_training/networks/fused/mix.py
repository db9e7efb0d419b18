"""A part of a branch, added to what it branched from."""

import torch

from .tiles import CHUNK, TILE, columns, jit, on_gpu, tile_of, tl


def plain_mix(x, branch, bias, part=None, other=None):
    """`x + part · (branch + bias)`, or with another summand, which needs a part, `x + part · (branch + bias + other −
    x)`."""
    added = branch + bias
    if other is not None:
        added = added + other - x
    return x + (added if part is None else part.to(x.dtype) * added)


def mix(x, branch, bias, part=None, other=None):
    """What `plain_mix` says, of `[rows, channels]`, rows being a multiple of `CHUNK`. Without `part` it is 1."""
    if on_gpu(x):
        return Mix.apply(x, branch, bias, part, other)
    return plain_mix(x, branch, bias, part, other)


@jit
def mix_forward(
    x,
    branch,
    other,
    bias,
    part,
    y,
    width: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
    tile: tl.constexpr,
    has_part: tl.constexpr,
    has_other: tl.constexpr,
):
    program = tl.program_id(0)
    column = tl.arange(0, columns)
    constant = tl.load(bias + column, column < width, 0.0).to(tl.float32)[None, :]
    for start in range(0, chunk, tile):
        row = program * chunk + start + tl.arange(0, tile)
        where, mask = tile_of(row, (program + 1) * chunk, columns, width)
        base = tl.load(x + where, mask, 0.0).to(tl.float32)
        added = tl.load(branch + where, mask, 0.0).to(tl.float32) + constant
        if has_other:
            added += tl.load(other + where, mask, 0.0).to(tl.float32) - base
        if has_part:
            added *= tl.load(part).to(tl.float32)
        tl.store(y + where, (base + added).to(y.dtype.element_ty), mask)


@jit
def mix_backward(
    gradient,
    x,
    branch,
    other,
    bias,
    part,
    of_x,
    of_branch,
    sums,
    width: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
    tile: tl.constexpr,
    has_part: tl.constexpr,
    has_other: tl.constexpr,
):
    """Sums of the gradient's columns, and of its products with what was added; and gradients that are not the given one
    itself."""
    program = tl.program_id(0)
    column = tl.arange(0, columns)
    inside = column < width
    constant = tl.load(bias + column, inside, 0.0).to(tl.float32)[None, :]
    first = tl.zeros([tile, columns], tl.float32)
    second = tl.zeros([tile, columns], tl.float32)
    for start in range(0, chunk, tile):
        row = program * chunk + start + tl.arange(0, tile)
        where, mask = tile_of(row, (program + 1) * chunk, columns, width)
        g = tl.load(gradient + where, mask, 0.0).to(tl.float32)
        first += g
        if has_part:
            added = tl.load(branch + where, mask, 0.0).to(tl.float32) + constant
            if has_other:
                added += tl.load(other + where, mask, 0.0).to(tl.float32) - tl.load(x + where, mask, 0.0).to(tl.float32)
            second += g * added
            share = tl.load(part).to(tl.float32)
            tl.store(of_branch + where, (share * g).to(of_branch.dtype.element_ty), mask)
            if has_other:
                tl.store(of_x + where, ((1 - share) * g).to(of_x.dtype.element_ty), mask)
    tl.store(sums + program * 2 * width + column, tl.sum(first, 0), inside)
    tl.store(sums + (program * 2 + 1) * width + column, tl.sum(second, 0), inside)


class Mix(torch.autograd.Function):
    @staticmethod
    def forward(context, x, branch, bias, part, other):
        rows, width = x.shape
        assert rows % CHUNK == 0 and x.is_contiguous() and (other is None or part is not None)
        branch, other = branch.contiguous(), None if other is None else other.contiguous()
        y = torch.empty_like(x)
        flags = (part is not None, other is not None)
        mix_forward[(rows // CHUNK,)](
            x,
            branch,
            x if other is None else other,
            bias,
            bias if part is None else part,
            y,
            width,
            columns(width),
            CHUNK,
            TILE,
            *flags,
        )
        # Of a plain sum, only the gradient is needed.
        context.save_for_backward(*((None, None, None) if part is None else (x, branch, other)), bias, part)
        return y

    @staticmethod
    def backward(context, gradient):
        x, branch, other, bias, part = context.saved_tensors
        gradient = gradient.contiguous()
        rows, width = gradient.shape
        sums = torch.empty(rows // CHUNK, 2, width, device=gradient.device, dtype=torch.float32)
        of_x = of_branch = gradient
        if part is not None:
            of_branch = torch.empty_like(gradient)
            of_x = gradient if other is None else torch.empty_like(gradient)
        given = [gradient if value is None else value for value in (x, branch, other)]
        mix_backward[(rows // CHUNK,)](
            gradient,
            *given,
            bias,
            bias if part is None else part,
            of_x,
            of_branch,
            sums,
            width,
            columns(width),
            CHUNK,
            TILE,
            part is not None,
            other is not None,
        )
        first, second = sums.sum(0)
        of_bias = first if part is None else first * part
        of_part = None if part is None else second.sum().to(part.dtype)
        return of_x, of_branch, of_bias.to(bias.dtype), of_part, None if other is None else of_branch

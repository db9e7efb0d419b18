"""Group norm, with a vector added before it and an optional SiLU after it."""

import torch
import torch.nn.functional as F

from .tiles import TILE, columns, jit, on_gpu, tile_of, tl, triton


def plain_group_norm(x, vector, weight, bias, groups, eps, silu):
    y = x if vector is None else x + vector[:, None]
    y = F.group_norm(y.transpose(1, 2), groups, weight, bias, eps).transpose(1, 2)
    return F.silu(y) if silu else y


def group_norm(x, vector, weight, bias, groups, eps, silu):
    """Of `x[n, rows, channels] + vector[n, channels]`, the vector being optional, over rows and a group's channels."""
    if on_gpu(x):
        return GroupNorm.apply(x, vector, weight, bias, groups, eps, silu)
    return plain_group_norm(x, vector, weight, bias, groups, eps, silu)


@jit
def silu_slope(z):
    s = tl.sigmoid(z)
    return s * (1 + z * (1 - s))


@jit
def pair_of(values, n, columns: tl.constexpr, width: tl.constexpr):
    """Two numbers for each column, as rows of a tile."""
    column = tl.arange(0, columns)
    at, inside = values + 2 * n * width + column, column < width
    return tl.load(at, inside, 0.0)[None, :], tl.load(at + width, inside, 0.0)[None, :]


@jit
def group_norm_sums(
    x,
    gradient,
    factors,
    sums,
    rows,
    width: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
    tile: tl.constexpr,
    backward: tl.constexpr,
    silu: tl.constexpr,
):
    """Forward Σ x and Σ x²; backward Σ g and Σ g·x, where g is the gradient before the SiLU. Of each column of a chunk
    of rows."""
    n, part = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, columns)
    inside = column < width
    first = tl.zeros([tile, columns], tl.float32)
    second = tl.zeros([tile, columns], tl.float32)
    if backward:
        scale, shift = pair_of(factors, n, columns, width)
    for start in range(0, chunk, tile):
        row = part * chunk + start + tl.arange(0, tile)
        where, mask = tile_of(row, rows, columns, width)
        where += n * rows * width
        value = tl.load(x + where, mask, 0.0).to(tl.float32)
        if backward:
            g = tl.load(gradient + where, mask, 0.0).to(tl.float32)
            if silu:
                g *= silu_slope(value * scale + shift)
            first += g
            second += g * value
        else:
            first += value
            second += value * value
    out = sums + (n * tl.num_programs(1) + part) * 2 * width + column
    tl.store(out, tl.sum(first, 0), inside)
    tl.store(out + width, tl.sum(second, 0), inside)


@jit
def summed(sums, n, parts: tl.constexpr, which: tl.constexpr, width: tl.constexpr, column, inside):
    """The sums of all parts, sixteen at a time."""
    total = tl.zeros(column.shape, tl.float32)
    for start in range(0, parts, 16):
        part = (start + tl.arange(0, 16))[:, None, None]
        mask = (part < parts) & inside[None]
        total += tl.sum(tl.load(sums + ((n * parts + part) * 2 + which) * width + column[None], mask, 0.0), 0)
    return total


@jit
def group_norm_factors(
    sums,
    vector,
    weight,
    bias,
    factors,
    statistics,
    totals,
    rows,
    eps,
    parts: tl.constexpr,
    width: tl.constexpr,
    groups: tl.constexpr,
    each: tl.constexpr,
    padded: tl.constexpr,
    has_vector: tl.constexpr,
):
    """From sums to the scale and the shift of each channel."""
    n = tl.program_id(0)
    group, member = tl.arange(0, groups), tl.arange(0, padded)
    column, inside = group[:, None] * each + member[None, :], (member < each)[None, :]
    first = summed(sums, n, parts, 0, width, column, inside)
    second = summed(sums, n, parts, 1, width, column, inside)
    added = tl.zeros([groups, padded], tl.float32)
    if has_vector:
        added = tl.load(vector + n * width + column, inside, 0.0).to(tl.float32)
        second += 2 * added * first + rows * added * added
        first += rows * added
    count = rows * each
    mean = tl.sum(first, 1) / count
    variance = tl.sum(second, 1) / count - mean * mean
    inverse = tl.rsqrt(tl.maximum(variance, 0.0) + eps)
    scale = inverse[:, None] * tl.load(weight + column, inside, 0.0).to(tl.float32)
    shift = tl.load(bias + column, inside, 0.0).to(tl.float32) + (added - mean[:, None]) * scale
    tl.store(factors + 2 * n * width + column, scale, inside)
    tl.store(factors + (2 * n + 1) * width + column, shift, inside)
    tl.store(totals + n * width + column, first, inside)
    tl.store(statistics + 2 * n * groups + group, mean)
    tl.store(statistics + (2 * n + 1) * groups + group, inverse)


@jit
def group_norm_apply(
    x,
    factors,
    y,
    rows,
    width: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
    tile: tl.constexpr,
    silu: tl.constexpr,
):
    n, part = tl.program_id(0), tl.program_id(1)
    scale, shift = pair_of(factors, n, columns, width)
    for start in range(0, chunk, tile):
        row = part * chunk + start + tl.arange(0, tile)
        where, mask = tile_of(row, rows, columns, width)
        where += n * rows * width
        z = tl.load(x + where, mask, 0.0).to(tl.float32) * scale + shift
        if silu:
            z = z * tl.sigmoid(z)
        tl.store(y + where, z.to(y.dtype.element_ty), mask)


@jit
def group_norm_backward_factors(
    sums,
    vector,
    weight,
    factors,
    statistics,
    totals,
    slopes,
    gradients,
    rows,
    parts: tl.constexpr,
    width: tl.constexpr,
    groups: tl.constexpr,
    each: tl.constexpr,
    padded: tl.constexpr,
    has_vector: tl.constexpr,
):
    """The gradient is `scale·g + x·slope + constant`; also those of weight, bias and vector, from the sums."""
    n = tl.program_id(0)
    group, member = tl.arange(0, groups), tl.arange(0, padded)
    column, inside = group[:, None] * each + member[None, :], (member < each)[None, :]
    first = summed(sums, n, parts, 0, width, column, inside)
    second = summed(sums, n, parts, 1, width, column, inside)
    added = tl.zeros([groups, padded], tl.float32)
    if has_vector:
        added = tl.load(vector + n * width + column, inside, 0.0).to(tl.float32)
        second += added * first
    mean = tl.load(statistics + 2 * n * groups + group)[:, None]
    inverse = tl.load(statistics + (2 * n + 1) * groups + group)[:, None]
    scaled = tl.load(weight + column, inside, 0.0).to(tl.float32)
    of_weight = inverse * (second - mean * first)
    count = rows * each
    along_bias = tl.sum(scaled * first, 1)[:, None] / count
    along_weight = tl.sum(scaled * of_weight, 1)[:, None] / count
    slope = tl.zeros([groups, padded], tl.float32) - inverse * inverse * along_weight
    constant = -inverse * along_bias - mean * slope
    scale = tl.load(factors + 2 * n * width + column, inside, 0.0)
    total = tl.load(totals + n * width + column, inside, 0.0)
    tl.store(slopes + 2 * n * width + column, slope, inside)
    tl.store(slopes + (2 * n + 1) * width + column, constant + slope * added, inside)
    tl.store(gradients + 3 * n * width + column, of_weight, inside)
    tl.store(gradients + (3 * n + 1) * width + column, first, inside)
    tl.store(gradients + (3 * n + 2) * width + column, scale * first + slope * total + rows * constant, inside)


@jit
def group_norm_backward(
    x,
    gradient,
    factors,
    slopes,
    out,
    rows,
    width: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
    tile: tl.constexpr,
    silu: tl.constexpr,
):
    n, part = tl.program_id(0), tl.program_id(1)
    scale, shift = pair_of(factors, n, columns, width)
    slope, constant = pair_of(slopes, n, columns, width)
    for start in range(0, chunk, tile):
        row = part * chunk + start + tl.arange(0, tile)
        where, mask = tile_of(row, rows, columns, width)
        where += n * rows * width
        value = tl.load(x + where, mask, 0.0).to(tl.float32)
        g = tl.load(gradient + where, mask, 0.0).to(tl.float32)
        if silu:
            g *= silu_slope(value * scale + shift)
        tl.store(out + where, (g * scale + value * slope + constant).to(out.dtype.element_ty), mask)


def rows_at_once(rows):
    """Rows per program of a group norm: enough programs to fill the GPU, but few partial sums."""
    return 128 if rows <= 4096 else 512


class GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(context, x, vector, weight, bias, groups, eps, silu):
        x = x.contiguous()
        n, rows, width = x.shape
        chunk, each = rows_at_once(rows), width // groups
        parts = triton.cdiv(rows, chunk)
        new = lambda *shape: torch.empty(shape, device=x.device, dtype=torch.float32)  # noqa: E731
        sums, factors, statistics, totals = new(n, parts, 2, width), new(n, 2, width), new(n, 2, groups), new(n, width)
        shape = (width, columns(width), chunk, TILE)
        group_norm_sums[(n, parts)](x, x, factors, sums, rows, *shape, False, silu)
        group_shape = (parts, width, groups, each, columns(each), vector is not None)
        vector = None if vector is None else vector.contiguous()
        group_norm_factors[(n,)](
            sums,
            weight if vector is None else vector,
            weight,
            bias,
            factors,
            statistics,
            totals,
            rows,
            eps,
            *group_shape,
        )
        y = torch.empty_like(x)
        group_norm_apply[(n, parts)](x, factors, y, rows, *shape, silu)
        context.save_for_backward(x, vector, weight, factors, statistics, totals)
        context.rest = groups, silu
        return y

    @staticmethod
    def backward(context, gradient):
        x, vector, weight, factors, statistics, totals = context.saved_tensors
        groups, silu = context.rest
        gradient = gradient.contiguous()
        n, rows, width = x.shape
        chunk, each = rows_at_once(rows), width // groups
        parts = triton.cdiv(rows, chunk)
        new = lambda *shape: torch.empty(shape, device=x.device, dtype=torch.float32)  # noqa: E731
        sums, slopes, gradients = new(n, parts, 2, width), new(n, 2, width), new(n, 3, width)
        shape = (width, columns(width), chunk, TILE)
        group_norm_sums[(n, parts)](x, gradient, factors, sums, rows, *shape, True, silu)
        group_shape = (parts, width, groups, each, columns(each), vector is not None)
        group_norm_backward_factors[(n,)](
            sums,
            weight if vector is None else vector,
            weight,
            factors,
            statistics,
            totals,
            slopes,
            gradients,
            rows,
            *group_shape,
        )
        out = torch.empty_like(x)
        group_norm_backward[(n, parts)](x, gradient, factors, slopes, out, rows, *shape, silu)
        of_weight, of_bias = gradients[:, :2].sum(0).to(weight.dtype)
        of_vector = None if vector is None else gradients[:, 2].to(vector.dtype)
        return out, of_vector, of_weight, of_bias, None, None, None

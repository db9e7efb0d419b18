"""Layers on numbers that lie as `[..., channels]`, each as few passes over memory as can be, with their gradients.

A training step of so narrow networks is bound by memory: PyTorch spent a fifth of it in products and convolutions, the rest in
norms, sums of gradients, gates, short attention, and in moving numbers between layouts. Here a bias, a residual and a vector
per frame are added where the sum is read next, and their gradients are summed where the sum's gradient is made. On a GPU every
layer is Triton kernels; elsewhere it is the `plain_` function of PyTorch's operations that says what it computes, and that
check_fused.py compares the kernels with.
"""

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:  # There is none for machines that have no GPU of its makers' choice.
    triton = None

# Of rows that a program adds up, and of those that it holds at once.
CHUNK, TILE = 64, 16
INTERPRETED = triton is not None and triton.knobs.runtime.interpret


def on_gpu(x):
    return x.is_cuda or INTERPRETED


def jit(function):
    return triton.jit(function) if triton is not None else function


def columns(channels):
    return triton.next_power_of_2(channels)


# Group norm, with a vector added before it and an optional SiLU after it.


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
def tile_of(row, rows, columns: tl.constexpr, width: tl.constexpr):
    """Where a tile's numbers lie, and which of them there are."""
    column = tl.arange(0, columns)
    return row[:, None] * width + column[None, :], (row < rows)[:, None] & (column < width)[None, :]


@jit
def silu_slope(z):
    s = tl.sigmoid(z)
    return s * (1 + z * (1 - s))


@jit
def group_norm_sums(x, gradient, factors, sums, rows, width: tl.constexpr, columns: tl.constexpr, chunk: tl.constexpr,
                    tile: tl.constexpr, backward: tl.constexpr, silu: tl.constexpr):  # fmt: skip
    """Forward Σ x and Σ x²; backward Σ g and Σ g·x, where g is the gradient before the SiLU. Of each column of a chunk of rows."""
    n, part = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, columns)
    inside = column < width
    first = tl.zeros([tile, columns], tl.float32)
    second = tl.zeros([tile, columns], tl.float32)
    if backward:
        scale = tl.load(factors + 2 * n * width + column, inside, 0.0)[None, :]
        shift = tl.load(factors + (2 * n + 1) * width + column, inside, 0.0)[None, :]
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
def group_norm_factors(sums, vector, weight, bias, factors, statistics, totals, rows, eps, parts: tl.constexpr, width: tl.constexpr,
                       groups: tl.constexpr, each: tl.constexpr, padded: tl.constexpr, has_vector: tl.constexpr):  # fmt: skip
    """From sums to what a number is multiplied by and what is added to it."""
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
def group_norm_apply(x, factors, y, rows, width: tl.constexpr, columns: tl.constexpr, chunk: tl.constexpr, tile: tl.constexpr,
                     silu: tl.constexpr):  # fmt: skip
    n, part = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, columns)
    inside = column < width
    scale = tl.load(factors + 2 * n * width + column, inside, 0.0)[None, :]
    shift = tl.load(factors + (2 * n + 1) * width + column, inside, 0.0)[None, :]
    for start in range(0, chunk, tile):
        row = part * chunk + start + tl.arange(0, tile)
        where, mask = tile_of(row, rows, columns, width)
        where += n * rows * width
        z = tl.load(x + where, mask, 0.0).to(tl.float32) * scale + shift
        if silu:
            z = z * tl.sigmoid(z)
        tl.store(y + where, z.to(y.dtype.element_ty), mask)


@jit
def group_norm_backward_factors(sums, vector, weight, factors, statistics, totals, slopes, gradients, rows,
                                parts: tl.constexpr, width: tl.constexpr, groups: tl.constexpr, each: tl.constexpr, padded: tl.constexpr,
                                has_vector: tl.constexpr):  # fmt: skip
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
def group_norm_backward(x, gradient, factors, slopes, out, rows, width: tl.constexpr, columns: tl.constexpr, chunk: tl.constexpr,
                        tile: tl.constexpr, silu: tl.constexpr):  # fmt: skip
    n, part = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, columns)
    inside = column < width
    scale = tl.load(factors + 2 * n * width + column, inside, 0.0)[None, :]
    shift = tl.load(factors + (2 * n + 1) * width + column, inside, 0.0)[None, :]
    slope = tl.load(slopes + 2 * n * width + column, inside, 0.0)[None, :]
    constant = tl.load(slopes + (2 * n + 1) * width + column, inside, 0.0)[None, :]
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
    """So many for a program of a group norm that there are enough programs, and few sums."""
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
            sums, weight if vector is None else vector, weight, bias, factors, statistics, totals, rows, eps, *group_shape
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
            sums, weight if vector is None else vector, weight, factors, statistics, totals, slopes, gradients, rows,
            *group_shape,
        )  # fmt: skip
        out = torch.empty_like(x)
        group_norm_backward[(n, parts)](x, gradient, factors, slopes, out, rows, *shape, silu)
        of_weight, of_bias = gradients[:, :2].sum(0).to(weight.dtype)
        of_vector = None if vector is None else gradients[:, 2].to(vector.dtype)
        return out, of_vector, of_weight, of_bias, None, None, None


# Layer norm of a sum, which goes on beside it.


def plain_add_norm(x, branch, vector, every, weight, bias, eps):
    total = x + vector.repeat_interleave(every, 0).repeat(len(x) // (every * len(vector)), 1)
    if branch is not None:
        total = total + branch
    return total, F.layer_norm(total, weight.shape, weight, bias, eps)


def add_norm(x, branch, vector, every, weight, bias, eps=1e-5):
    """The sum `x + branch + vector` and its layer norm. Rows of `x[rows, channels]` and of the optional branch get the first vector for
    `every` rows, then the next, and after the last the first again; `every` is a multiple of `CHUNK`."""
    if on_gpu(x):
        return AddNorm.apply(x, branch, vector, every, weight, bias, eps)
    return plain_add_norm(x, branch, vector, every, weight, bias, eps)


@jit
def add_norm_forward(x, branch, vector, weight, bias, total, y, every, count, eps, width: tl.constexpr, columns: tl.constexpr,
                     chunk: tl.constexpr, tile: tl.constexpr, has_branch: tl.constexpr):  # fmt: skip
    part = tl.program_id(0)
    column = tl.arange(0, columns)
    inside = column < width
    which = (part * chunk // every) % count
    added = tl.load(vector + which * width + column, inside, 0.0).to(tl.float32)[None, :]
    scale = tl.load(weight + column, inside, 0.0).to(tl.float32)[None, :]
    shift = tl.load(bias + column, inside, 0.0).to(tl.float32)[None, :]
    for start in range(0, chunk, tile):
        row = part * chunk + start + tl.arange(0, tile)
        where, mask = tile_of(row, (part + 1) * chunk, columns, width)
        value = tl.load(x + where, mask, 0.0).to(tl.float32) + added
        if has_branch:
            value += tl.load(branch + where, mask, 0.0).to(tl.float32)
        value = value.to(total.dtype.element_ty)
        tl.store(total + where, value, mask)
        value = value.to(tl.float32)
        mean = tl.sum(value, 1) / width
        centred = tl.where(inside[None, :], value - mean[:, None], 0.0)
        inverse = tl.rsqrt(tl.sum(centred * centred, 1) / width + eps)
        tl.store(y + where, (centred * inverse[:, None] * scale + shift).to(y.dtype.element_ty), mask)


@jit
def add_norm_backward(total, of_total, of_y, weight, out, sums, eps, width: tl.constexpr, columns: tl.constexpr,
                      chunk: tl.constexpr, tile: tl.constexpr):  # fmt: skip
    part = tl.program_id(0)
    column = tl.arange(0, columns)
    inside = column < width
    scale = tl.load(weight + column, inside, 0.0).to(tl.float32)[None, :]
    of_weight = tl.zeros([tile, columns], tl.float32)
    of_bias = tl.zeros([tile, columns], tl.float32)
    of_vector = tl.zeros([tile, columns], tl.float32)
    for start in range(0, chunk, tile):
        row = part * chunk + start + tl.arange(0, tile)
        where, mask = tile_of(row, (part + 1) * chunk, columns, width)
        value = tl.load(total + where, mask, 0.0).to(tl.float32)
        mean = tl.sum(value, 1) / width
        centred = tl.where(inside[None, :], value - mean[:, None], 0.0)
        inverse = tl.rsqrt(tl.sum(centred * centred, 1) / width + eps)[:, None]
        normal = centred * inverse
        g = tl.load(of_y + where, mask, 0.0).to(tl.float32)
        of_weight += g * normal
        of_bias += g
        g *= scale
        along, across = tl.sum(g * normal, 1) / width, tl.sum(g, 1) / width
        g = inverse * (g - normal * along[:, None] - across[:, None])
        g += tl.load(of_total + where, mask, 0.0).to(tl.float32)
        g = tl.where(mask, g, 0.0)
        of_vector += g
        tl.store(out + where, g.to(out.dtype.element_ty), mask)
    place = sums + part * 3 * width + column
    tl.store(place, tl.sum(of_weight, 0), inside)
    tl.store(place + width, tl.sum(of_bias, 0), inside)
    tl.store(place + 2 * width, tl.sum(of_vector, 0), inside)


class AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(context, x, branch, vector, every, weight, bias, eps):
        rows, width = x.shape
        assert every % CHUNK == 0 and rows % (every * len(vector)) == 0 and x.is_contiguous()
        branch, vector = None if branch is None else branch.contiguous(), vector.contiguous()
        total, y = torch.empty_like(x), torch.empty_like(x)
        add_norm_forward[(rows // CHUNK,)](
            x, x if branch is None else branch, vector, weight, bias, total, y, every, len(vector), eps, width, columns(width),
            CHUNK, TILE, branch is not None,
        )  # fmt: skip
        context.save_for_backward(total, weight)
        context.rest = every, vector.shape, vector.dtype, eps, branch is not None
        return total, y

    @staticmethod
    def backward(context, of_total, of_y):
        total, weight = context.saved_tensors
        every, shape, dtype, eps, has_branch = context.rest
        rows, width = total.shape
        parts = rows // CHUNK
        out = torch.empty_like(total)
        sums = torch.empty(parts, 3, width, device=total.device, dtype=torch.float32)
        add_norm_backward[(parts,)](
            total, of_total.contiguous(), of_y.contiguous(), weight, out, sums, eps, width, columns(width), CHUNK, TILE
        )
        of_weight, of_bias = sums[:, :2].sum(0).to(weight.dtype)
        of_vector = sums[:, 2].reshape(-1, shape[0], every // CHUNK, width).sum((0, 2)).to(dtype)
        return out, out if has_branch else None, of_vector, None, of_weight, of_bias, None


# The gate of a feed-forward layer.


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


# A part of a branch, added to what it branched from.


def plain_mix(x, branch, other, bias, part):
    """`x + part · (branch + bias)`, or with another summand `x + part · (branch + bias + other − x)`."""
    added = branch + bias
    if other is not None:
        added = added + other - x
    return x + (added if part is None else part.to(x.dtype) * added)


def mix(x, branch, bias, part=None, other=None):
    """What `plain_mix` says, of `[rows, channels]`, rows being a multiple of `CHUNK`. Without `part` it is 1."""
    if on_gpu(x):
        return Mix.apply(x, branch, other, bias, part)
    return plain_mix(x, branch, other, bias, part)


@jit
def mix_forward(x, branch, other, bias, part, y, width: tl.constexpr, columns: tl.constexpr, chunk: tl.constexpr,
                tile: tl.constexpr, has_part: tl.constexpr, has_other: tl.constexpr):  # fmt: skip
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
def mix_backward(gradient, x, branch, other, bias, part, of_x, of_branch, sums, width: tl.constexpr, columns: tl.constexpr,
                 chunk: tl.constexpr, tile: tl.constexpr, has_part: tl.constexpr, has_other: tl.constexpr):  # fmt: skip
    """Sums of the gradient's columns, and of its products with what was added; and gradients that are not the given one itself."""
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
    def forward(context, x, branch, other, bias, part):
        rows, width = x.shape
        assert rows % CHUNK == 0 and x.is_contiguous() and (other is None or part is not None)
        branch, other = branch.contiguous(), None if other is None else other.contiguous()
        y = torch.empty_like(x)
        flags = (part is not None, other is not None)
        mix_forward[(rows // CHUNK,)](
            x, branch, x if other is None else other, bias, bias if part is None else part, y, width, columns(width), CHUNK, TILE,
            *flags,
        )  # fmt: skip
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
            gradient, *given, bias, bias if part is None else part, of_x, of_branch, sums, width, columns(width), CHUNK, TILE,
            part is not None, other is not None,
        )  # fmt: skip
        first, second = sums.sum(0)
        of_bias = first if part is None else first * part
        of_part = None if part is None else second.sum().to(part.dtype)
        return of_x, of_branch, None if other is None else of_branch, of_bias.to(bias.dtype), of_part


# Attention over the frames of a clip, at each place.


def plain_frame_attention(x, heads):
    clips, frames, places, width = x.shape
    parts = x.reshape(clips, frames, places, 3, heads, width // 3 // heads).permute(3, 0, 2, 4, 1, 5)
    return F.scaled_dot_product_attention(*parts).permute(0, 3, 1, 2, 4).reshape(clips, frames, places, width // 3)


def frame_attention(x, heads):
    """Of queries, keys and values in one, `x[clips, frames, places, 3·channels]`, at most 16 frames."""
    return FrameAttention.apply(x, heads) if on_gpu(x) else plain_frame_attention(x, heads)


@jit
def frame_rows(x, frames, places, stride, first, size: tl.constexpr, padded: tl.constexpr):
    """A head's rows of all frames at this program's place: where they are, and which there are."""
    place, head = tl.program_id(0), tl.program_id(1)
    frame = tl.arange(0, padded)
    row = place // places * frames * places + frame * places + place % places
    where = x + row[:, None] * stride + first + head * size + tl.arange(0, size)[None, :]
    return where, (frame < frames)[:, None]


@jit
def frame_weights(q, k, frames, scale, padded: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where((tl.arange(0, padded) < frames)[None, :], scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@jit
def frame_attention_forward(x, y, frames, places, width, scale, size: tl.constexpr, padded: tl.constexpr):
    q_at, mask = frame_rows(x, frames, places, 3 * width, 0, size, padded)
    q = tl.load(q_at, mask, 0.0)
    k = tl.load(q_at + width, mask, 0.0)
    v = tl.load(q_at + 2 * width, mask, 0.0)
    weights = frame_weights(q, k, frames, scale, padded)
    out, _ = frame_rows(y, frames, places, width, 0, size, padded)
    tl.store(out, tl.dot(weights.to(v.dtype), v, input_precision="ieee").to(y.dtype.element_ty), mask)


@jit
def frame_attention_backward(x, gradient, of_x, frames, places, width, scale, size: tl.constexpr, padded: tl.constexpr):
    q_at, mask = frame_rows(x, frames, places, 3 * width, 0, size, padded)
    q = tl.load(q_at, mask, 0.0)
    k = tl.load(q_at + width, mask, 0.0)
    v = tl.load(q_at + 2 * width, mask, 0.0)
    g_at, _ = frame_rows(gradient, frames, places, width, 0, size, padded)
    g = tl.load(g_at, mask, 0.0)
    weights = frame_weights(q, k, frames, scale, padded)
    of_weights = tl.dot(g, tl.trans(v), input_precision="ieee")
    of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale
    of_scores = of_scores.to(q.dtype)
    out, _ = frame_rows(of_x, frames, places, 3 * width, 0, size, padded)
    tl.store(out, tl.dot(of_scores, k, input_precision="ieee").to(of_x.dtype.element_ty), mask)
    tl.store(out + width, tl.dot(tl.trans(of_scores), q, input_precision="ieee").to(of_x.dtype.element_ty), mask)
    tl.store(out + 2 * width, tl.dot(tl.trans(weights.to(g.dtype)), g, input_precision="ieee").to(of_x.dtype.element_ty), mask)


class FrameAttention(torch.autograd.Function):
    PADDED = 16

    @staticmethod
    def forward(context, x, heads):
        clips, frames, places, width = x.shape
        width //= 3
        assert frames <= FrameAttention.PADDED and x.is_contiguous()
        size = width // heads
        y = torch.empty(clips, frames, places, width, device=x.device, dtype=x.dtype)
        frame_attention_forward[(clips * places, heads)](
            x, y, frames, places, width, size**-0.5, size, FrameAttention.PADDED, num_warps=1
        )
        context.save_for_backward(x)
        context.heads = heads
        return y

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        clips, frames, places, width = x.shape
        width //= 3
        size = width // context.heads
        of_x = torch.empty_like(x)
        frame_attention_backward[(clips * places, context.heads)](
            x, gradient.contiguous(), of_x, frames, places, width, size**-0.5, size, FrameAttention.PADDED, num_warps=1
        )
        return of_x, None

"""Layer norm of a sum, returned together with the sum."""

import torch
import torch.nn.functional as F

from .tiles import CHUNK, TILE, columns, jit, on_gpu, tile_of, tl


def plain_add_norm(x, branch, vector, every, weight, bias, eps):
    total = x + vector.repeat_interleave(every, 0).repeat(len(x) // (every * len(vector)), 1)
    if branch is not None:
        total = total + branch
    return total, F.layer_norm(total, weight.shape, weight, bias, eps)


def add_norm(x, branch, vector, every, weight, bias, eps=1e-5):
    """The sum `x + branch + vector` and its layer norm. Rows of `x[rows, channels]` and of the optional branch get the
    first vector for `every` rows, then the next, and after the last the first again; `every` is a multiple of
    `CHUNK`."""
    if on_gpu(x):
        return AddNorm.apply(x, branch, vector, every, weight, bias, eps)
    return plain_add_norm(x, branch, vector, every, weight, bias, eps)


@jit
def add_norm_forward(
    x,
    branch,
    vector,
    weight,
    bias,
    total,
    y,
    every,
    count,
    eps,
    width: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
    tile: tl.constexpr,
    has_branch: tl.constexpr,
):
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
def add_norm_backward(
    total,
    of_total,
    of_y,
    weight,
    out,
    sums,
    eps,
    width: tl.constexpr,
    columns: tl.constexpr,
    chunk: tl.constexpr,
    tile: tl.constexpr,
):
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
            x,
            x if branch is None else branch,
            vector,
            weight,
            bias,
            total,
            y,
            every,
            len(vector),
            eps,
            width,
            columns(width),
            CHUNK,
            TILE,
            branch is not None,
        )
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

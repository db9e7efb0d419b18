"""Attention over the frames of a clip, at each place."""

import torch
import torch.nn.functional as F

from .tiles import jit, on_gpu, tl


def plain_frame_attention(x, heads):
    clips, frames, places, width = x.shape
    parts = x.reshape(clips, frames, places, 3, heads, width // 3 // heads).permute(3, 0, 2, 4, 1, 5)
    return F.scaled_dot_product_attention(*parts).permute(0, 3, 1, 2, 4).reshape(clips, frames, places, width // 3)


def frame_attention(x, heads):
    """Of queries, keys and values in one, `x[clips, frames, places, 3·channels]`, at most 16 frames."""
    return FrameAttention.apply(x, heads) if on_gpu(x) else plain_frame_attention(x, heads)


@jit
def frame_rows(x, frames, places, stride, size: tl.constexpr, padded: tl.constexpr):
    """A head's rows of all frames at this program's place: where they are, and which there are."""
    place, head = tl.program_id(0), tl.program_id(1)
    frame = tl.arange(0, padded)
    row = place // places * frames * places + frame * places + place % places
    where = x + row[:, None] * stride + head * size + tl.arange(0, size)[None, :]
    return where, (frame < frames)[:, None]


@jit
def frame_weights(q, k, frames, scale, padded: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where((tl.arange(0, padded) < frames)[None, :], scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@jit
def frame_attention_forward(x, y, frames, places, width, scale, size: tl.constexpr, padded: tl.constexpr):
    q_at, mask = frame_rows(x, frames, places, 3 * width, size, padded)
    q = tl.load(q_at, mask, 0.0)
    k = tl.load(q_at + width, mask, 0.0)
    v = tl.load(q_at + 2 * width, mask, 0.0)
    weights = frame_weights(q, k, frames, scale, padded)
    out, _ = frame_rows(y, frames, places, width, size, padded)
    tl.store(out, tl.dot(weights.to(v.dtype), v, input_precision="ieee").to(y.dtype.element_ty), mask)


@jit
def frame_attention_backward(x, gradient, of_x, frames, places, width, scale, size: tl.constexpr, padded: tl.constexpr):
    q_at, mask = frame_rows(x, frames, places, 3 * width, size, padded)
    q = tl.load(q_at, mask, 0.0)
    k = tl.load(q_at + width, mask, 0.0)
    v = tl.load(q_at + 2 * width, mask, 0.0)
    g_at, _ = frame_rows(gradient, frames, places, width, size, padded)
    g = tl.load(g_at, mask, 0.0)
    weights = frame_weights(q, k, frames, scale, padded)
    of_weights = tl.dot(g, tl.trans(v), input_precision="ieee")
    of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale
    of_scores = of_scores.to(q.dtype)
    out, _ = frame_rows(of_x, frames, places, 3 * width, size, padded)
    tl.store(out, tl.dot(of_scores, k, input_precision="ieee").to(of_x.dtype.element_ty), mask)
    tl.store(out + width, tl.dot(tl.trans(of_scores), q, input_precision="ieee").to(of_x.dtype.element_ty), mask)
    tl.store(
        out + 2 * width,
        tl.dot(tl.trans(weights.to(g.dtype)), g, input_precision="ieee").to(of_x.dtype.element_ty),
        mask,
    )


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

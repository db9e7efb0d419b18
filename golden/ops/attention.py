"""Attention."""

import math

import torch
import torch.nn.functional as F

from .fixture import F32, STORAGES, Family, f32


def attention(
    family,
    name,
    q,
    k,
    heads,
    head_dim,
    mask=None,
    mask_tensor=None,
    key_lengths=None,
    frames=None,
    offsets=(0, 0, 0),
    channels=None,
    scale=None,
    boundaries=None,
    log_sum_exp=False,
    storages=F32,
    keep_f32=(),
):
    """`q` and `k` are `(batch, sequence)`, over frames `(images, positions)`; `channels` the widths of q, k and v."""
    width = heads * head_dim
    channels = channels or (width, width, width)
    scale = f32(scale if scale is not None else 1.0 / math.sqrt(head_dim))
    inputs = {"q": (*q, channels[0]), "k": (*k, channels[1]), "v": (*k, channels[2])}
    if mask_tensor is not None:
        inputs["mask"] = mask_tensor
    if key_lengths is not None:
        inputs["key_lengths"] = torch.tensor(key_lengths, dtype=torch.int32)
    if boundaries is not None:
        for operand, values in zip(("query_boundaries", "key_boundaries"), boundaries, strict=True):
            inputs[operand] = torch.tensor(values, dtype=torch.int32)

    def split(x, offset):
        """`[batch, sequence, ..]` to `[batch, heads, sequence, head_dim]`."""
        return x[..., offset : offset + width].unflatten(-1, (heads, head_dim)).transpose(1, 2)

    def sequences(x):
        """Over frames, every position of a clip is a sequence: `[clips·positions, frames, C]`."""
        clips = q[0] // frames
        return x.unflatten(0, (clips, -1)).transpose(1, 2).flatten(0, 1)

    def by_number(queries, keys):
        """Which keys a causal mask or a window shows to which queries."""
        seen = torch.ones(queries, keys, dtype=torch.bool)
        if not isinstance(mask, dict):
            return seen
        if "causal" in mask:
            return seen.tril(mask["causal"]["diagonal"])
        diagonal, window = mask["sliding_window"]["diagonal"], mask["sliding_window"]["window"]
        return seen.tril(diagonal) & ~seen.tril(diagonal - window)

    def compute(q, k, v, *rest):
        rest = list(rest)
        masking = rest.pop(0) if mask_tensor is not None else None
        lengths = rest.pop(0) if key_lengths is not None else None
        images, positions = q.shape[:2]
        if frames:
            clips = images // frames
            q, k, v = sequences(q), sequences(k), sequences(v)
            repeat_mask, repeat_lengths = positions, positions
        else:
            repeat_mask, repeat_lengths = 1, images // k.shape[0]
            k, v = (x.repeat_interleave(repeat_lengths, dim=0) for x in (k, v))
        batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
        bias = torch.zeros(batch, heads, queries, keys, dtype=torch.float64)
        if masking is not None:
            if masking.shape[0] > 1:
                masking = masking.repeat_interleave(repeat_mask, dim=0)
            added = masking.is_floating_point()
            bias = bias + masking if added else bias.masked_fill(masking == 0, -torch.inf)
        seen = torch.zeros(queries, keys, dtype=torch.bool)
        of_queries, of_keys = boundaries or ((0, queries), (0, keys))
        for first, end, first_key, end_key in zip(of_queries, of_queries[1:], of_keys, of_keys[1:], strict=False):
            seen[first:end, first_key:end_key] = by_number(end - first, end_key - first_key)
        bias = bias.masked_fill(~seen, -torch.inf)
        if lengths is not None:
            lengths = lengths.repeat_interleave(repeat_lengths).reshape(-1, 1, 1, 1)
            bias = bias.masked_fill(torch.arange(keys) >= lengths, -torch.inf)
        scores = split(q, offsets[0]) @ split(k, offsets[1]).mT * scale + bias
        sums = torch.logsumexp(scores, dim=-1, keepdim=True)
        y = F.scaled_dot_product_attention(
            split(q, offsets[0]), split(k, offsets[1]), split(v, offsets[2]), attn_mask=bias, scale=scale
        )
        # A query that sees no key: PyTorch's answer depends on its backend, ours is zeros.
        y = y.masked_fill((bias == -torch.inf).all(dim=-1, keepdim=True), 0.0)

        def rows(x):
            """The other way."""
            x = x.transpose(1, 2).flatten(2)
            return x.unflatten(0, (clips, positions)).transpose(1, 2).flatten(0, 1) if frames else x

        return (rows(y), rows(sums)) if log_sum_exp else rows(y)

    op = {
        "heads": heads,
        "head_dim": head_dim,
        "scale": scale,
        "axis": {"frames": {"frames": frames}} if frames else "positions",
        "mask": mask or "none",
        "key_lengths": key_lengths is not None,
        "offsets": offsets,
    }
    if boundaries is not None:
        op["boundaries"] = True
    if log_sum_exp:
        op["log_sum_exp"] = True
    family.case(name, {"attention": op}, inputs, compute, storages, keep_f32)


def causal(diagonal):
    return {"causal": {"diagonal": diagonal}}


def sliding_window(diagonal, window):
    return {"sliding_window": {"diagonal": diagonal, "window": window}}


def build():
    family = Family("attention")
    plain(family)
    masked(family)
    over_frames(family)
    with_sums(family)
    between_boundaries(family)
    return family


def plain(family):
    attention(family, "self", (2, 6), (2, 6), 2, 8, storages=STORAGES)
    attention(family, "cross", (2, 5), (2, 7), 3, 8, storages=STORAGES)
    for head_dim in (1, 40, 64, 80):
        attention(
            family,
            f"head_size_{head_dim}",
            (1, 5),
            (1, 7),
            2,
            head_dim,
            storages=STORAGES if head_dim == 64 else F32,
        )
    attention(family, "head_size_7", (1, 5), (1, 3), 3, 7)
    attention(family, "head_size_160", (1, 2), (1, 3), 1, 160)
    attention(family, "one_key", (1, 3), (1, 1), 2, 4)
    attention(family, "one_query", (2, 1), (2, 9), 2, 4)
    attention(family, "context_shared_by_frames", (6, 4), (2, 5), 2, 8, storages=STORAGES)
    attention(family, "context_shared_by_all", (3, 4), (1, 77), 1, 8)
    attention(family, "scale", (1, 4), (1, 5), 2, 4, scale=0.9)
    attention(family, "sharp", (1, 4), (1, 9), 1, 8, scale=8.0)
    attention(family, "packed", (2, 5), (2, 5), 2, 4, offsets=(0, 8, 16), channels=(24, 24, 24), storages=STORAGES)
    attention(family, "packed_key_value", (2, 4), (2, 6), 2, 4, offsets=(0, 3, 11), channels=(8, 20, 20))
    attention(family, "long", (1, 70), (1, 130), 1, 8)
    attention(family, "long_head_size_40", (1, 9), (1, 130), 1, 40, storages=("f32", "f16"))
    attention(family, "long_self", (1, 67), (1, 67), 2, 4)


def masked(family):
    attention(family, "causal", (2, 7), (2, 7), 2, 8, mask=causal(0), storages=STORAGES)
    attention(family, "causal_ends_aligned", (1, 3), (1, 8), 2, 4, mask=causal(5), storages=STORAGES)
    attention(family, "causal_positive", (1, 6), (1, 6), 1, 4, mask=causal(2))
    attention(family, "causal_negative", (1, 5), (1, 5), 1, 4, mask=causal(-1))
    attention(family, "causal_long", (1, 66), (1, 130), 1, 4, mask=causal(64))

    attention(family, "window", (2, 9), (2, 9), 2, 8, mask=sliding_window(0, 3), storages=STORAGES)
    attention(family, "window_around", (1, 7), (1, 9), 2, 4, mask=sliding_window(2, 5))
    attention(family, "window_behind", (1, 6), (1, 6), 1, 4, mask=sliding_window(-2, 2))
    attention(family, "window_long", (1, 66), (1, 150), 1, 4, mask=sliding_window(80, 9))

    def boolean(name, *shape):
        return (family.normal(name, "mask", shape=shape) > 0.0).to(torch.uint8)

    mask = boolean("boolean", 2, 1, 4, 6)
    mask[0, 0, 1] = 0
    mask[1, 0, 3] = 0
    attention(family, "boolean", (2, 4), (2, 6), 2, 8, mask="boolean", mask_tensor=mask, storages=STORAGES)
    attention(
        family,
        "boolean_shared",
        (2, 4),
        (2, 5),
        2,
        4,
        mask="boolean",
        mask_tensor=boolean("boolean_shared", 1, 1, 4, 5),
    )
    attention(
        family,
        "boolean_per_head",
        (2, 3),
        (2, 5),
        3,
        4,
        mask="boolean",
        mask_tensor=boolean("boolean_per_head", 2, 3, 3, 5),
    )
    attention(
        family,
        "boolean_heads_only",
        (2, 3),
        (1, 5),
        2,
        4,
        mask="boolean",
        mask_tensor=boolean("boolean_heads_only", 1, 2, 3, 5),
    )
    attention(
        family,
        "boolean_any_byte",
        (1, 3),
        (1, 4),
        1,
        4,
        mask="boolean",
        mask_tensor=boolean("any", 1, 1, 3, 4) * 255,
    )
    # Whole blocks of keys are hidden before the first one that is seen.
    late = torch.zeros(1, 1, 3, 130, dtype=torch.uint8)
    late[..., 128:] = 1
    late[0, 0, 2] = 0
    attention(family, "boolean_late_keys", (1, 3), (1, 130), 1, 4, mask="boolean", mask_tensor=late)

    def additive(name, *shape):
        return family.normal(name, "mask", shape=shape) * 2.0

    attention(
        family,
        "additive",
        (2, 4),
        (2, 6),
        2,
        8,
        mask="additive",
        mask_tensor=additive("additive", 2, 1, 4, 6),
        storages=STORAGES,
    )
    attention(
        family,
        "additive_per_head",
        (2, 3),
        (1, 5),
        2,
        4,
        mask="additive",
        mask_tensor=additive("additive_per_head", 1, 2, 3, 5),
    )
    attention(
        family,
        "additive_all",
        (2, 3),
        (2, 5),
        2,
        4,
        mask="additive",
        mask_tensor=additive("additive_all", 2, 2, 3, 5),
    )
    hidden = additive("additive_hidden", 1, 1, 4, 6)
    hidden[0, 0, 0, 2:] = -torch.inf
    hidden[0, 0, 1, 0] = -torch.inf
    hidden[0, 0, 3] = -torch.inf
    attention(family, "additive_hidden", (1, 4), (1, 6), 2, 4, mask="additive", mask_tensor=hidden)
    attention(
        family,
        "additive_f32",
        (1, 4),
        (1, 6),
        1,
        8,
        mask="additive",
        mask_tensor=additive("additive_f32", 1, 1, 4, 6),
        storages=("f16",),
        keep_f32=("mask",),
    )
    attention(
        family,
        "additive_long",
        (1, 3),
        (1, 130),
        1,
        4,
        mask="additive",
        mask_tensor=additive("additive_long", 1, 1, 3, 130),
    )

    attention(family, "key_lengths", (3, 4), (3, 6), 2, 8, key_lengths=[6, 1, 3], storages=STORAGES)
    attention(family, "key_lengths_zero", (2, 3), (2, 5), 2, 4, key_lengths=[0, 5])
    attention(family, "key_lengths_shared_context", (4, 3), (2, 7), 1, 4, key_lengths=[2, 5])
    attention(family, "key_lengths_long", (2, 2), (2, 130), 1, 4, key_lengths=[129, 65])
    attention(family, "key_lengths_causal", (2, 5), (2, 5), 1, 4, mask=causal(0), key_lengths=[5, 2])
    attention(family, "key_lengths_window", (2, 5), (2, 7), 1, 4, mask=sliding_window(2, 3), key_lengths=[7, 3])
    attention(
        family,
        "key_lengths_boolean",
        (2, 3),
        (2, 5),
        2,
        4,
        mask="boolean",
        mask_tensor=boolean("key_lengths_boolean", 1, 1, 3, 5),
        key_lengths=[4, 2],
    )
    attention(
        family,
        "key_lengths_additive",
        (2, 3),
        (2, 5),
        2,
        4,
        mask="additive",
        mask_tensor=additive("key_lengths_additive", 2, 2, 3, 5),
        key_lengths=[3, 5],
    )


def over_frames(family):
    attention(family, "frames", (6, 4), (6, 4), 2, 8, frames=3, storages=STORAGES)
    attention(family, "frames_head_size_40", (4, 3), (4, 3), 1, 40, frames=4)
    attention(family, "frames_one", (3, 4), (3, 4), 2, 4, frames=1)
    attention(family, "frames_more_keys", (4, 3), (10, 3), 2, 4, frames=2, storages=STORAGES)
    attention(family, "frames_fewer_keys", (6, 3), (2, 3), 2, 4, frames=3)
    attention(family, "frames_causal", (8, 3), (8, 3), 2, 4, mask=causal(0), frames=4)
    attention(family, "frames_window", (8, 3), (8, 3), 2, 4, mask=sliding_window(0, 2), frames=4)
    attention(family, "frames_packed", (6, 2), (6, 2), 2, 4, frames=3, offsets=(0, 8, 16), channels=(24, 24, 24))
    attention(family, "frames_key_lengths", (6, 2), (8, 2), 2, 4, frames=3, key_lengths=[4, 2])
    mask = (family.normal("frames_boolean", "mask", shape=(2, 1, 3, 4)) > 0.0).to(torch.uint8)
    mask[1, 0, 2] = 0
    attention(family, "frames_boolean", (6, 3), (8, 3), 2, 4, mask="boolean", mask_tensor=mask, frames=3)
    bias = family.normal("frames_additive", "mask", shape=(2, 2, 3, 3))
    attention(family, "frames_additive", (6, 3), (6, 3), 2, 4, mask="additive", mask_tensor=bias, frames=3)
    attention(family, "frames_long", (70, 1), (70, 1), 1, 4, frames=70)


def with_sums(family):
    """The logarithms of the sums of exponentials as a second result."""
    attention(family, "sums", (2, 6), (2, 9), 2, 8, log_sum_exp=True, storages=STORAGES)
    attention(family, "sums_sharp", (1, 4), (1, 70), 1, 16, scale=4.0, log_sum_exp=True)
    attention(family, "sums_causal", (2, 7), (2, 7), 2, 8, mask=causal(-1), log_sum_exp=True)
    attention(family, "sums_window", (1, 9), (1, 9), 2, 8, mask=sliding_window(1, 3), log_sum_exp=True)
    attention(family, "sums_key_lengths", (2, 3), (2, 5), 2, 4, key_lengths=[0, 4], log_sum_exp=True)
    attention(family, "sums_shared_context", (4, 3), (2, 7), 1, 4, key_lengths=[2, 5], log_sum_exp=True)
    mask = (family.normal("sums_boolean", "mask", shape=(2, 1, 4, 6)) > 0.0).to(torch.uint8)
    mask[1, 0, 2] = 0
    attention(family, "sums_boolean", (2, 4), (2, 6), 2, 8, mask="boolean", mask_tensor=mask, log_sum_exp=True)
    bias = family.normal("sums_additive", "mask", shape=(1, 2, 4, 6)) * 2.0
    bias[0, 0, 3] = -torch.inf
    attention(family, "sums_additive", (2, 4), (2, 6), 2, 8, mask="additive", mask_tensor=bias, log_sum_exp=True)
    attention(family, "sums_frames", (6, 4), (6, 4), 2, 8, frames=3, log_sum_exp=True)
    attention(family, "sums_frames_causal", (8, 3), (8, 3), 2, 4, mask=causal(-1), frames=4, log_sum_exp=True)


def between_boundaries(family):
    """Several sequences in a batch element, one after the other."""
    even = ((0, 3, 4, 9), (0, 3, 4, 9))
    # A sequence without keys, one without queries, and queries and keys that belong to none.
    uneven = ((1, 4, 5, 5, 8), (0, 2, 2, 6, 9))
    attention(family, "sequences", (1, 9), (1, 9), 2, 8, boundaries=even, log_sum_exp=True, storages=STORAGES)
    attention(family, "sequences_uneven", (2, 9), (2, 11), 2, 4, boundaries=uneven, log_sum_exp=True)
    attention(family, "sequences_causal", (1, 9), (1, 9), 1, 8, mask=causal(0), boundaries=even)
    attention(family, "sequences_window", (1, 9), (1, 11), 2, 4, mask=sliding_window(1, 2), boundaries=uneven)
    attention(
        family, "sequences_long", (1, 130), (1, 140), 1, 8, mask=causal(5), boundaries=((0, 60, 130), (3, 70, 140))
    )
    attention(family, "sequences_key_lengths", (2, 9), (2, 9), 1, 4, key_lengths=[6, 2], boundaries=even)
    bias = family.normal("sequences_additive", "mask", shape=(1, 2, 9, 9))
    attention(family, "sequences_additive", (1, 9), (1, 9), 2, 4, mask="additive", mask_tensor=bias, boundaries=even)

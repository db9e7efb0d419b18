"""PyTorch as the peer of a CPU benchmark.

Reads one request a line from standard input and answers each with one line on standard output:

    {"do": "prepare", "kind": …, "tensors": {name: {"file": …, "shape": […]}}, …attributes, "result": file}
        computes the op once, writes the result as f32 in the layout of the request, and keeps the op ready
    {"do": "time", "seconds": s}
        runs the prepared op for about s seconds; answers {"seconds": [one per run]}

Activations come channels last, [images, height, width, channels], and convolution weights as
[out, frames, height, width, in]; each peer is given the layout it likes best *before* the clock starts. Where eager
PyTorch has two natural layouts, both are timed and the better one counts.
"""

import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F


def load(entry):
    data = np.fromfile(entry["file"], dtype=np.float32).reshape(entry["shape"])
    return torch.from_numpy(data)


def conv2d(request, tensors):
    """A convolution as a ResNet block uses it: bias, time embedding, SiLU and residual where asked for."""
    weight = tensors["weight"].squeeze(1).permute(0, 3, 1, 2)
    embedding = tensors.get("embedding")
    if embedding is not None:
        embedding = embedding[:, 0, 0, :, None, None].contiguous()

    def variant(memory_format):
        x = tensors["x"].permute(0, 3, 1, 2).contiguous(memory_format=memory_format)
        w = weight.contiguous(memory_format=memory_format)
        residual = tensors.get("residual")
        if residual is not None:
            residual = residual.permute(0, 3, 1, 2).contiguous(memory_format=memory_format)

        def run():
            y = F.conv2d(x, w, tensors.get("bias"), request["stride"], request["padding"])
            if embedding is not None:
                y = y + embedding
            if request.get("silu"):
                y = F.silu(y)
            if residual is not None:
                y = y + residual
            return y

        return run

    runs = [variant(torch.channels_last), variant(torch.contiguous_format)]
    return runs, lambda y: y.permute(0, 2, 3, 1)


def conv_temporal(request, tensors):
    """A 3×1×1 Conv3d over the frames of one clip, as diffusers lays it out: [batch, channels, frames, h, w]."""
    frames = request["frames"]
    weight = tensors["weight"].permute(0, 4, 1, 2, 3)
    images, height, width, channels = tensors["x"].shape
    clip = tensors["x"].reshape(images // frames, frames, height, width, channels).permute(0, 4, 1, 2, 3)

    def variant(memory_format):
        x = clip.contiguous(memory_format=memory_format)
        w = weight.contiguous(memory_format=memory_format)
        return lambda: F.conv3d(x, w, tensors["bias"], 1, (1, 0, 0))

    runs = [variant(torch.channels_last_3d), variant(torch.contiguous_format)]
    return runs, lambda y: y.permute(0, 2, 3, 4, 1).reshape(images, height, width, -1)


def linear(request, tensors):
    """A linear layer, with GEGLU or a residual after it where asked for."""
    x, weight, bias, residual = (tensors.get(k) for k in ("x", "weight", "bias", "residual"))

    def run():
        y = F.linear(x, weight, bias)
        if request.get("geglu"):
            value, gate = y.chunk(2, dim=-1)
            y = value * F.gelu(gate)
        return y if residual is None else y + residual

    return [run], lambda y: y


def attention(request, tensors):
    """Attention between projections, as diffusers runs it: split heads, SDPA, merge heads."""
    heads = request["heads"]

    def run():
        q, k, v = (
            tensors[name].unflatten(-1, (heads, -1)).transpose(1, 2) for name in ("q", "k", "v")
        )
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    return [run], lambda y: y


def attention_frames(request, tensors):
    """Temporal attention: as diffusers runs it, with its permutations to [batch · positions, frames, channels], and on
    strided views of the memory as it lies, which eager PyTorch allows as well."""
    heads, frames = request["heads"], request["frames"]

    def to_frames(x):
        images, positions, channels = x.shape
        x = x.reshape(images // frames, frames, positions, channels).permute(0, 2, 1, 3)
        return x.reshape(-1, frames, channels)

    def run():
        q, k, v = (
            to_frames(tensors[name]).unflatten(-1, (heads, -1)).transpose(1, 2) for name in ("q", "k", "v")
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        images, positions, channels = tensors["q"].shape
        y = y.reshape(images // frames, positions, frames, channels).permute(0, 2, 1, 3)
        return y.reshape(images, positions, channels)

    def run_on_views():
        # [clips, frames, positions, heads, head size] seen as [clips, positions, heads, frames, head size].
        q, k, v = (
            tensors[name].unflatten(0, (-1, frames)).unflatten(-1, (heads, -1)).permute(0, 2, 3, 1, 4)
            for name in ("q", "k", "v")
        )
        y = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
        y = y.unflatten(0, (q.shape[0], q.shape[1])).permute(0, 3, 1, 2, 4)
        return y.reshape(tensors["q"].shape)

    return [run, run_on_views], lambda y: y


def group_norm(request, tensors):
    """Group norm per image or over the frames of a clip, and SiLU."""
    frames = request["frames"]
    images, height, width, channels = tensors["x"].shape
    clip = tensors["x"].reshape(images // frames, frames, height, width, channels).permute(0, 4, 1, 2, 3)
    if frames == 1:
        clip = clip.squeeze(2)
    last = torch.channels_last if frames == 1 else torch.channels_last_3d

    def variant(memory_format):
        x = clip.contiguous(memory_format=memory_format)
        return lambda: F.silu(
            F.group_norm(x, request["groups"], tensors["scale"], tensors["shift"], request["epsilon"])
        )

    def to_ours(y):
        y = y.unsqueeze(2) if frames == 1 else y
        return y.permute(0, 2, 3, 4, 1).reshape(images, height, width, channels)

    return [variant(last), variant(torch.contiguous_format)], to_ours


def layer_norm(request, tensors):
    """Layer norm over the channels."""
    x = tensors["x"]

    def run():
        return F.layer_norm(x, x.shape[-1:], tensors["scale"], tensors["shift"], request["epsilon"])

    return [run], lambda y: y


KINDS = {
    f.__name__: f
    for f in (conv2d, conv_temporal, linear, attention, attention_frames, group_norm, layer_norm)
}


def time_run(run, seconds):
    """Seconds of each call, for about `seconds` in all and at least three calls."""
    run()
    samples = []
    end = time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return samples


def main():
    torch.set_grad_enabled(False)
    runs = []
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "hello":
            torch.set_num_threads(request["threads"])
            answer = {"torch": torch.__version__, "threads": torch.get_num_threads()}
        elif request["do"] == "prepare":
            tensors = {name: load(entry) for name, entry in request["tensors"].items()}
            runs, to_ours = KINDS[request["kind"]](request, tensors)
            for run in runs:
                result = to_ours(run()).contiguous().numpy()
            result.astype(np.float32).tofile(request["result"])
            answer = {"variants": len(runs)}
        else:
            share = request["seconds"] / len(runs)
            timings = [time_run(run, share) for run in runs]
            answer = {"seconds": min(timings, key=lambda samples: sorted(samples)[len(samples) // 2])}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

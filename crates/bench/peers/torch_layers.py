"""PyTorch's layers, taking turns with a benchmark on a CPU or a GPU.

Speaks the protocol of turns.py. A request to prepare has the kind of the layer, its attributes and its tensors:

    {"do": "prepare", "kind": …, …attributes, "tensors": {name: {"file": …, "shape": […]}}, "copies": n, …}

A tensor's file holds a pattern that is repeated until the tensor is full, so that gigabytes need not be exchanged. Runs
cycle through `copies` of the operands, and on a GPU the L2 cache is flushed before each run.

Activations are channels last, [images, height, width, channels], and convolution weights are
[out, frames, height, width, in]. Each way to run a layer gets the layout that it prefers *before* the clock starts.
"""

import contextlib

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from turns import Peer, reason

BACKENDS = {
    "SDPA flash": SDPBackend.FLASH_ATTENTION,
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
    "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA math": SDPBackend.MATH,
}
# The plain formula keeps all scores in memory; with more than these it is not worth measuring.
MOST_SCORES = 1 << 28


def load(entry, device, dtype):
    """A tensor that repeats the pattern of a file."""
    pattern = torch.from_numpy(np.fromfile(entry["file"], dtype=np.float32)).to(device, dtype)
    count = int(np.prod(entry["shape"]))
    return pattern.repeat(-(-count // len(pattern)))[:count].clone().reshape(entry["shape"])


def attention_ways(q, k, v, device, causal, window):
    """SDPA by PyTorch's own choice, the plain formula as one op after the other, and on a GPU SDPA by each backend.
    Operands are [batch, heads, tokens, channels]. A window is a boolean mask, which flash attention does not take."""
    visible = {"is_causal": causal}
    if window:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=device)
        visible = {"attn_mask": seen.tril() & ~seen.tril(-window)}
    yield "eager", lambda: F.scaled_dot_product_attention(q, k, v, **visible)
    hidden = causal or window
    if not hidden and q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] <= MOST_SCORES:
        scale = q.shape[-1] ** -0.5
        yield "unfused", lambda: torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * scale, dim=-1) @ v
    if device.type != "cuda":
        return
    for name, backend in BACKENDS.items():
        if backend == SDPBackend.MATH and q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] > MOST_SCORES:
            continue
        if backend == SDPBackend.FLASH_ATTENTION and window:
            continue

        def run(backend=backend):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, **visible)

        yield name, run


def conv(request, tensors, device):
    """A convolution as in a ResNet block: with bias, and if the request has them group norm and SiLU before it, and
    batch norm, time embedding, SiLU and residual after it. Over the frames of a clip it is a Conv3d on
    [batch, channels, frames, height, width], as in diffusers."""
    frames, stride = request["frames"], request["stride"]
    weight = tensors["weight"].permute(0, 4, 1, 2, 3)
    over_frames = weight.shape[2] > 1
    library = "cuDNN" if device.type == "cuda" else "eager"

    def to_theirs(x):
        if not over_frames:
            return x.permute(0, 3, 1, 2)
        return x.unflatten(0, (-1, frames)).permute(0, 4, 1, 2, 3)

    def to_ours(y):
        return y.permute(0, 2, 3, 4, 1).flatten(0, 1) if over_frames else y.permute(0, 2, 3, 1)

    padding = [extent // 2 for extent in weight.shape[2:]]
    if over_frames:
        last, function, strides = torch.channels_last_3d, F.conv3d, (1, stride, stride)
    else:
        last, function, strides = torch.channels_last, F.conv2d, (stride, stride)
        weight, padding = weight.squeeze(2), padding[1:]
    for name, memory_format in (("channels last", last), ("channels first", torch.contiguous_format)):
        x = to_theirs(tensors["x"]).contiguous(memory_format=memory_format)
        w = weight.contiguous(memory_format=memory_format)
        embedding, residual = (tensors.get(name) for name in ("embedding", "residual"))
        if embedding is not None:
            embedding = to_theirs(embedding).contiguous()
        if residual is not None:
            residual = to_theirs(residual).contiguous(memory_format=memory_format)

        def run(x=x, w=w, embedding=embedding, residual=residual):
            if request["norm"]:
                x = F.group_norm(x, request["groups"], tensors["scale"], tensors["shift"], request["epsilon"])
                x = F.silu(x)
            y = function(x, w, tensors["bias"], strides, padding)
            if request["batch_norm"]:
                mean, variance, scale, shift = (tensors[k] for k in ("mean", "variance", "scale", "shift"))
                y = F.batch_norm(y, mean, variance, scale, shift, eps=request["epsilon"])
            if embedding is not None:
                y = y + embedding
            if request["silu"]:
                y = F.silu(y)
            return y if residual is None else y + residual

        yield f"{library} {name}", run, to_ours


def linear(request, tensors, device):
    """A linear layer, and if the request has them layer norm before it, and GEGLU or a residual after it."""
    x, weight, bias, residual = (tensors.get(k) for k in ("x", "weight", "bias", "residual"))

    def run():
        rows = x
        if request["norm"]:
            rows = F.layer_norm(x, x.shape[-1:], tensors["scale"], tensors["shift"], request["epsilon"])
        y = F.linear(rows, weight, bias)
        if request["geglu"]:
            value, gate = y.chunk(2, dim=-1)
            y = value * F.gelu(gate)
        return y if residual is None else y + residual

    yield "cuBLAS" if device.type == "cuda" else "eager", run, lambda y: y


def attention(request, tensors, device):
    """Attention between projections, as diffusers runs it: split heads, SDPA, merge heads; over frames it permutes to
    [batch · positions, frames, channels] first. Then SDPA alone, on operands that were laid out before."""
    heads, frames = request["heads"], request["frames"]
    operands = [tensors[name] for name in ("q", "k", "v")]

    def to_sequences(x):
        if frames > 1:
            x = x.unflatten(0, (-1, frames)).transpose(1, 2).flatten(0, 1)
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def to_ours(y):
        y = y.transpose(1, 2).flatten(2)
        if frames > 1:
            y = y.unflatten(0, (-1, operands[0].shape[1])).transpose(1, 2).flatten(0, 1)
        return y

    def as_in_diffusers():
        return to_ours(F.scaled_dot_product_attention(*(to_sequences(x) for x in operands)))

    if frames > 1:
        yield "eager, permuted", as_in_diffusers, lambda y: y
    # A projection leaves the heads of a token side by side; the copy is for the permuted frames.
    q, k, v = (to_sequences(x).transpose(1, 2).contiguous().transpose(1, 2) for x in operands)
    for name, run in attention_ways(q, k, v, device, request["causal"], request["sliding_window"]):
        yield name, run, to_ours


def attention_backward(request, tensors, device):
    """The gradients of attention, by PyTorch's own choice of kernels, and on a GPU by each of them. The attention ran
    before; autograd computes them again and again from what it kept. The result is the gradient of the queries."""
    heads = request["heads"]
    names = ("q", "k", "v", "dy")
    q, k, v, dy = (tensors[name].unflatten(-1, (heads, -1)).transpose(1, 2) for name in names)
    operands = [x.detach().requires_grad_() for x in (q, k, v)]
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    backends = {"eager": None} | (BACKENDS if device.type == "cuda" else {})
    for name, backend in backends.items():
        if backend == SDPBackend.MATH and scores > MOST_SCORES:
            continue
        kept = []

        def run(backend=backend, kept=kept):
            if not kept:
                chosen = sdpa_kernel(backend) if backend is not None else contextlib.nullcontext()
                with torch.enable_grad(), chosen:
                    kept.append(F.scaled_dot_product_attention(*operands, is_causal=request["causal"]))
            return torch.autograd.grad(kept[0], operands, dy, retain_graph=True)

        yield name, run, lambda gradients: gradients[0].transpose(1, 2).flatten(2)


def group_norm(request, tensors, device):
    """Group norm per image or over the frames of a clip, and SiLU if the request has it."""
    frames = request["frames"]
    clip = tensors["x"].unflatten(0, (-1, frames)).permute(0, 4, 1, 2, 3)
    last = torch.channels_last_3d
    if frames == 1:
        clip, last = clip.squeeze(2), torch.channels_last

    def to_ours(y):
        return y.permute(0, 2, 3, 1) if frames == 1 else y.permute(0, 2, 3, 4, 1).flatten(0, 1)

    for name, memory_format in (("channels last", last), ("channels first", torch.contiguous_format)):
        x = clip.contiguous(memory_format=memory_format)

        def run(x=x):
            y = F.group_norm(x, request["groups"], tensors["scale"], tensors["shift"], request["epsilon"])
            return F.silu(y) if request["silu"] else y

        yield f"eager {name}", run, to_ours


def layer_norm(request, tensors, device):
    """Layer norm over the channels."""
    x = tensors["x"]

    def run():
        return F.layer_norm(x, x.shape[-1:], tensors["scale"], tensors["shift"], request["epsilon"])

    yield "eager", run, lambda y: y


def add(request, tensors, device):
    yield "eager", lambda: tensors["x"] + tensors["residual"], lambda y: y


def silu(request, tensors, device):
    yield "eager", lambda: F.silu(tensors["x"]), lambda y: y


def geglu(request, tensors, device):
    def run():
        value, gate = tensors["x"].chunk(2, dim=-1)
        return value * F.gelu(gate)

    yield "eager", run, lambda y: y


def sampler_step(request, tensors, device):
    """Guidance, a step of Euler's method for a velocity, and the scaling of the next input, each as the ops that
    diffusers' pipeline and `EulerDiscreteScheduler` run. The step is in f32, and its result in the
    network's precision."""
    sample, prediction = tensors["sample"], tensors["prediction"]
    guidance = tensors["guidance"].reshape(-1, 1, 1, 1)
    sigma, following = request["sigma"], request["next"]

    def run():
        unconditional, conditional = prediction.chunk(2)
        guided = unconditional + guidance * (conditional - unconditional)
        x = sample.to(torch.float32)
        denoised = guided * (-sigma / (sigma**2 + 1) ** 0.5) + x / (sigma**2 + 1)
        derivative = (x - denoised) / sigma
        x = (x + derivative * (following - sigma)).to(guided.dtype)
        return x, x / (following**2 + 1) ** 0.5

    yield "eager", run, lambda results: results[0]


KINDS = {
    f.__name__: f
    for f in (
        conv,
        linear,
        attention,
        attention_backward,
        group_norm,
        layer_norm,
        add,
        silu,
        geglu,
        sampler_step,
    )
}


class Layers(Peer):
    """The layer that is prepared, in every way that PyTorch has."""

    def prepare(self, request):
        self.variants = []
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        answers = []
        for copy in range(request["copies"]):
            tensors = {name: load(entry, self.device, self.dtype) for name, entry in request["tensors"].items()}
            for number, (name, run, to_ours) in enumerate(self.ways(request, tensors)):
                if copy > 0:
                    self.variants[number].append(run)
                    continue
                self.variants.append([run])
                answers.append({"name": name})
                try:
                    self.write_result(request, number, to_ours(run()))
                except Exception as error:  # noqa: BLE001 - a kernel that refuses a shape must not end the run.
                    answers[-1]["failed"] = reason(error)
        return {"variants": answers}

    def ways(self, request, tensors):
        """Every way to run the layer: its name, the function, and a function that brings the result into our layout."""
        first = None
        for way in KINDS[request["kind"]](request, tensors, self.device):
            first = first or way
            yield way
        if self.compile:
            yield "torch.compile", torch.compile(first[1]), first[2]


if __name__ == "__main__":
    Layers.serve()

"""PyTorch's layers, taking turns with a benchmark on a CPU or a GPU.

Reads one request a line from standard input and answers each with one line on standard output:

    {"do": "hello", "threads": n, "device": "cpu" or "cuda:0", "precision": "f32", "compile": false}
        answers with PyTorch's version and what it runs on
    {"do": "prepare", "kind": …, …attributes, "tensors": {name: {"file": …, "shape": […]}}, "copies": n, "window": n, "result": path}
        makes the tensors, runs every way that PyTorch offers once, and keeps them ready; answers
        {"variants": [{"name": …} or {"name": …, "failed": why}]}, and the result of number i lies in `<path>.<i>` as f32
    {"do": "time", "variant": i, "seconds": s, "least": n}
        runs that variant for about s seconds and at least n times; answers {"seconds": [one per run]}

A tensor's file holds a pattern that is repeated until the tensor is full, so that gigabytes need not be handed over. A result is
given whole or, where it is longer than three windows, by its first, middle and last. Runs go round the copies of the operands, and on
a GPU the second-level cache is flushed before each, by the clock of the device.

Activations come channels last, [images, height, width, channels], and convolution weights as
[out, frames, height, width, in]; each way is given the layout it likes best *before* the clock starts.
"""

import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PRECISIONS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
BACKENDS = {
    "SDPA flash": SDPBackend.FLASH_ATTENTION,
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
    "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA math": SDPBackend.MATH,
}
# The plain formula keeps all scores; beyond so many it is no peer any more.
MOST_SCORES = 1 << 28
# More than any GPU's second-level cache.
FLUSHED_BYTES = 256 << 20


def load(entry, device, dtype):
    """A tensor that repeats the pattern of a file."""
    pattern = torch.from_numpy(np.fromfile(entry["file"], dtype=np.float32)).to(device, dtype)
    count = int(np.prod(entry["shape"]))
    return pattern.repeat(-(-count // len(pattern)))[:count].clone().reshape(entry["shape"])


def attention_ways(q, k, v, device):
    """SDPA by PyTorch's own choice, and on a GPU by each backend. Operands are [batch, heads, tokens, channels]."""
    yield "eager", lambda: F.scaled_dot_product_attention(q, k, v)
    if device.type != "cuda":
        return
    for name, backend in BACKENDS.items():
        if backend == SDPBackend.MATH and q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] > MOST_SCORES:
            continue

        def run(backend=backend):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v)

        yield name, run


def conv(request, tensors, device):
    """A convolution as a ResNet block uses it: bias, time embedding, SiLU and residual where asked for. Over the frames of a
    clip it is a Conv3d, as diffusers lays it out: [batch, channels, frames, height, width]."""
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
            y = function(x, w, tensors["bias"], strides, padding)
            if embedding is not None:
                y = y + embedding
            if request["silu"]:
                y = F.silu(y)
            return y if residual is None else y + residual

        yield f"{library} {name}", run, to_ours


def linear(request, tensors, device):
    """A linear layer, with GEGLU or a residual after it where asked for."""
    x, weight, bias, residual = (tensors.get(k) for k in ("x", "weight", "bias", "residual"))

    def run():
        y = F.linear(x, weight, bias)
        if request["geglu"]:
            value, gate = y.chunk(2, dim=-1)
            y = value * F.gelu(gate)
        return y if residual is None else y + residual

    yield "cuBLAS" if device.type == "cuda" else "eager", run, lambda y: y


def attention(request, tensors, device):
    """Attention between projections, as diffusers runs it: split heads, SDPA, merge heads; or over frames, where it permutes
    to [batch · positions, frames, channels] first. Then SDPA alone, on operands that were laid out before."""
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
    # A projection leaves the heads beside each other; the copy is for the permuted frames.
    q, k, v = (to_sequences(x).transpose(1, 2).contiguous().transpose(1, 2) for x in operands)
    for name, run in attention_ways(q, k, v, device):
        yield name, run, to_ours


def group_norm(request, tensors, device):
    """Group norm per image or over the frames of a clip, and SiLU where asked for."""
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


KINDS = {f.__name__: f for f in (conv, linear, attention, group_norm, layer_norm, add, silu, geglu)}


class Clock:
    """Seconds of calls: by the host's clock on a CPU, by the device's on a GPU."""

    def __init__(self, device):
        self.device = device
        self.flushed = None
        if device.type == "cuda":
            self.flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=device)

    def once(self, run):
        if self.flushed is None:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # This also keeps the device busy while the call is prepared, so that the time is not that of its launch.
        self.flushed.zero_()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize(self.device)
        return start.elapsed_time(end) / 1e3

    def times(self, runs, seconds, least):
        """Of calls that go round the runs; the first is not counted."""
        self.once(runs[-1])
        samples, end = [], time.perf_counter() + seconds
        while len(samples) < least or time.perf_counter() < end:
            samples.append(self.once(runs[len(samples) % len(runs)]))
        return samples


def windows(y, window):
    """The first, middle and last of a long tensor; a short one as it is."""
    y = y.flatten()
    if len(y) <= 3 * window:
        return y
    middle = len(y) // 2
    return torch.cat([y[:window], y[middle : middle + window], y[-window:]])


def reason(error):
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


class Peer:
    """Someone who answers requests: what layers and whole networks have in common."""

    def __init__(self, hello):
        torch.set_grad_enabled(False)
        self.device = torch.device(hello["device"])
        self.precision = hello["precision"]
        self.dtype = PRECISIONS[self.precision]
        self.compile = hello["compile"]
        # Of every variant, the functions that are gone round.
        self.ways = []
        if self.device.type == "cpu":
            torch.set_num_threads(hello["threads"])
        else:
            # f32 is f32; and cuDNN tries its algorithms, as anyone who measures it would let it.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.benchmark = True
        self.clock = Clock(self.device)

    def versions(self):
        answer = {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": str(self.device)}
        if self.device.type == "cuda":
            answer["device"] = torch.cuda.get_device_name(self.device)
            answer |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        return answer

    def prepare(self, request):
        raise NotImplementedError

    def time(self, request):
        runs = self.ways[request["variant"]]
        return {"seconds": self.clock.times(runs, request["seconds"], request["least"])}

    @classmethod
    def serve(cls):
        """Answers every line of standard input, the first of which says what to run on."""
        peer = None
        for line in sys.stdin:
            request = json.loads(line)
            if request["do"] == "hello":
                peer = cls(request)
                answer = peer.versions()
            elif request["do"] == "prepare":
                answer = peer.prepare(request)
            else:
                answer = peer.time(request)
            print(json.dumps(answer), flush=True)


class Layers(Peer):
    """The layer that is ready, in every way there is."""

    def prepare(self, request):
        self.ways = []
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        variants = []
        for copy in range(request["copies"]):
            tensors = {n: load(entry, self.device, self.dtype) for n, entry in request["tensors"].items()}
            for number, (name, run, to_ours) in enumerate(self.all_ways(request, tensors)):
                if copy > 0:
                    self.ways[number].append(run)
                    continue
                self.ways.append([run])
                variants.append({"name": name})
                try:
                    result = windows(to_ours(run()), request["window"]).float().cpu().contiguous()
                    result.numpy().tofile(f"{request['result']}.{number}")
                except Exception as error:  # noqa: BLE001 - a kernel that refuses a shape must not end a run.
                    variants[-1]["failed"] = reason(error)
        return {"variants": variants}

    def all_ways(self, request, tensors):
        first = None
        for way in KINDS[request["kind"]](request, tensors, self.device):
            first = first or way
            yield way
        if self.compile:
            yield "torch.compile", torch.compile(first[1]), first[2]


if __name__ == "__main__":
    Layers.serve()

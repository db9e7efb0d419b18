"""PyTorch's own kernels over a list of shapes: attention, convolutions, matrix products, norms and elementwise ops, each in every way it offers.

The list is JSON; see op_shapes.json. Before every run the second-level cache is flushed, which also hides the launch. Entries
of `<out>/ops.json` are `<precision>.<name>.<variant>`.
"""

import fnmatch
import json

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import measure
from svd_models import PRECISIONS

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# The plain formula keeps all scores; beyond so many it is no peer any more.
MOST_SCORES = 1 << 28
# Of the products that show what the device can reach.
CEILING_SIDE, CEILING_BYTES = 8192, 2 << 30


def attention(shape, random):
    """Every backend, with heads beside each other as a model's projections leave them, and with heads apart."""
    batch, heads, head = shape["batch"], shape["heads"], shape["head"]
    queries, keys = shape["queries"], shape.get("keys", shape["queries"])
    flops = 4 * batch * heads * queries * keys * head
    moved = 2 * batch * heads * (queries + keys) * head
    layouts = {
        "beside": [random(batch, tokens, heads, head).transpose(1, 2) for tokens in (queries, keys, keys)],
        "apart": [random(batch, heads, tokens, head) for tokens in (queries, keys, keys)],
    }
    for layout, (q, k, v) in layouts.items():
        for name, backend in BACKENDS.items():
            if name == "math" and batch * heads * queries * keys > MOST_SCORES:
                continue

            def run(q=q, k=k, v=v, backend=backend):
                with sdpa_kernel(backend):
                    F.scaled_dot_product_attention(q, k, v)

            yield f"{name}.heads_{layout}", run, flops, moved


def conv(shape, random):
    """cuDNN with channels last and with channels first; over frames too where the kernel has an extent there."""
    depth, height, width = shape["kernel"]
    images, frames = shape["images"], shape.get("frames", 1)
    stride, channels, out = shape.get("stride", 1), shape["in"], shape["out"]
    if depth > 1:
        x = random(images // frames, channels, frames, shape["height"], shape["width"])
        w, last, function = random(out, channels, depth, height, width), torch.channels_last_3d, F.conv3d
        padding, strides = (depth // 2, height // 2, width // 2), (1, stride, stride)
    else:
        x = random(images, channels, shape["height"], shape["width"])
        w, last, function = random(out, channels, height, width), torch.channels_last, F.conv2d
        padding, strides = (height // 2, width // 2), (stride, stride)
    bias = random(out)
    pixels = images * -(-shape["height"] // stride) * -(-shape["width"] // stride)
    flops = 2 * pixels * channels * out * depth * height * width
    moved = x.numel() + pixels * out + w.numel()
    embedding = random(images, out, 1, 1) if shape.get("embedding") else None
    residual = random(images, out, shape["height"], shape["width"]) if shape.get("residual") else None

    def run(a, b, after):
        y = function(a, b, bias, strides, padding)
        if embedding is not None:
            y = y + embedding
        if shape.get("silu"):
            y = F.silu(y)
        return y if after is None else y + after

    for name, memory_format in (("channels_last", last), ("channels_first", torch.contiguous_format)):
        a, b = x.contiguous(memory_format=memory_format), w.contiguous(memory_format=memory_format)
        after = None if residual is None else residual.contiguous(memory_format=memory_format)
        yield name, lambda a=a, b=b, after=after: run(a, b, after), flops, moved


def linear(shape, random):
    """cuBLAS with the bias in its epilogue; a gate or a residual follows where the shape has one."""
    x, w, bias = random(shape["rows"], shape["in"]), random(shape["out"], shape["in"]), random(shape["out"])
    residual = random(shape["rows"], shape["out"]) if shape.get("residual") else None
    flops = 2 * shape["rows"] * shape["in"] * shape["out"]

    def run():
        y = F.linear(x, w, bias)
        if shape.get("geglu"):
            value, gate = y.chunk(2, dim=-1)
            y = value * F.gelu(gate)
        return y if residual is None else y + residual

    yield "cublas", run, flops, x.numel() + shape["rows"] * shape["out"] + w.numel()


def group_norm(shape, random):
    """Group norm of 32 groups, over the frames of a clip where there are several, and SiLU where the shape has it."""
    images, frames, channels = shape["images"], shape.get("frames", 1), shape["channels"]
    x = random(images // frames, channels, frames * shape["height"], shape["width"])
    scale, shift = random(channels), random(channels)

    def run(x):
        y = F.group_norm(x, 32, scale, shift, 1e-5)
        return F.silu(y) if shape.get("silu") else y

    for name, memory_format in (("channels_last", torch.channels_last), ("channels_first", torch.contiguous_format)):
        yield name, lambda a=x.contiguous(memory_format=memory_format): run(a), 0, 2 * x.numel()


def layer_norm(shape, random):
    x, channels = random(shape["rows"], shape["channels"]), shape["channels"]
    scale, shift = random(channels), random(channels)
    yield "eager", lambda: F.layer_norm(x, (channels,), scale, shift, 1e-5), 0, 2 * x.numel()


def elementwise(shape, random):
    """A sum, SiLU, or GEGLU of a tensor of twice the channels."""
    rows, channels = shape["rows"], shape["channels"]
    if shape["op"] == "add":
        x, y = random(rows, channels), random(rows, channels)
        yield "eager", lambda: x + y, 0, 3 * x.numel()
    elif shape["op"] == "silu":
        x = random(rows, channels)
        yield "eager", lambda: F.silu(x), 0, 2 * x.numel()
    else:
        value, gate = random(rows, 2 * channels).chunk(2, dim=-1)
        yield "eager", lambda: value * F.gelu(gate), 0, 3 * value.numel()


OPS = {
    "attention": attention,
    "conv": conv,
    "linear": linear,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "add": elementwise,
    "silu": elementwise,
    "geglu": elementwise,
}


def ceilings(device):
    """What the device reaches at most: a large matrix product and a large copy."""
    small = device.type != "cuda"
    side, count = (256, 1 << 20) if small else (CEILING_SIDE, CEILING_BYTES)
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = measure.times(lambda: a @ b, device)
    x = torch.empty(count, device=device, dtype=torch.uint8)
    y = torch.empty_like(x)
    copy = measure.times(lambda: y.copy_(x), device)
    return {
        f"product_{side}_bf16": product | {"tflops": 2 * side**3 / product["median_ms"] / 1e9},
        "copy": copy | {"gigabytes_per_s": 2 * count / copy["median_ms"] / 1e6},
    }


def run(out, shapes, pattern, precision, device):
    """Measures every shape of the list whose name matches the pattern; what a kernel refuses is written as such."""
    dtype = PRECISIONS[precision]
    bytes_each = torch.empty((), dtype=dtype).element_size()
    # Lets cuDNN try its algorithms, as anyone who measures it would.
    torch.backends.cudnn.benchmark = True
    flush = measure.Flush(device)
    target = out / "ops.json"
    with torch.inference_mode():
        for name, entry in ceilings(device).items():
            measure.add(target, f"ceiling.{name}", entry)
        for shape in json.loads(shapes.read_text(encoding="utf-8")):
            if not fnmatch.fnmatch(shape["name"], pattern):
                continue
            torch.manual_seed(0)

            def random(*extents):
                return torch.randn(extents, device=device, dtype=dtype)

            for variant, function, flops, moved in OPS[shape["op"]](shape, random):
                entry = measure.attempt(lambda: measure.times(function, device, flush))
                if "failed" not in entry:
                    entry["tflops"] = flops / entry["median_ms"] / 1e9
                    entry["gigabytes_per_s"] = moved * bytes_each / entry["median_ms"] / 1e6
                measure.add(target, f"{precision}.{shape['name']}.{variant}", entry)
                said = entry.get("failed") or (
                    f"{entry['median_ms']:.4f} ms, {entry['tflops']:.1f} TFLOP/s, {entry['gigabytes_per_s']:.0f} GB/s"
                )
                print(f"{precision} {shape['name']} {variant}: {said}", flush=True)
            del function
            measure.release(device)

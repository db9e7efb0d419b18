"""Makes the golden tensors of numbers in 8 bits. It needs no packages: e4m3 is a table of the format's numbers,
conversions search it for the nearest one, and products are exact fractions until the end. See README.md."""

import json
import math
import random
import struct
import zlib
from bisect import bisect_left
from fractions import Fraction

import fixtures

NAMES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "e4m3": "F8_E4M3", "u8": "U8", "i32": "I32"}
STORAGES = ("f32", "f16", "bf16")

# Sign, four bits of exponent with a bias of 7, three of mantissa; all ones are a NaN (OCP 8-bit Floating Point, E4M3).
SIZES = [
    Fraction(code % 8, 8) * Fraction(2) ** -6
    if code < 8
    else (1 + Fraction(code % 8, 8)) * Fraction(2) ** (code // 8 - 7)
    for code in range(127)
]


def e4m3_code(value):
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    if math.isnan(value):
        return sign | 0x7F
    size = SIZES[-1] if math.isinf(value) else min(abs(Fraction(value)), SIZES[-1])
    above = bisect_left(SIZES, size)
    if SIZES[above] != size:
        below, rest = above - 1, (size - SIZES[above - 1]) - (SIZES[above] - size)
        above = above if rest > 0 or (rest == 0 and above % 2 == 0) else below
    return sign | above


def e4m3_value(code):
    size = math.nan if code & 0x7F == 0x7F else float(SIZES[code & 0x7F])
    return -size if code & 0x80 else size


def stored(dtype, value):
    """The bytes of a number, rounded to the nearest, ties to even."""
    match dtype:
        case "f32":
            return struct.pack("<f", value)
        case "f16":
            return struct.pack("<e", value)
        case "bf16":
            (bits,) = struct.unpack("<I", struct.pack("<f", value))
            return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
        case "e4m3":
            return bytes([e4m3_code(value)])
        case "u8":
            return struct.pack("<B", integer(value, 0, 255))
        case "i32":
            return struct.pack("<i", integer(value, -(2**31), 2**31 - 1))


def integer(value, least, most):
    """Python's `round` takes ties to even."""
    return 0 if math.isnan(value) else max(least, min(most, round(value)))


def loaded(dtype, data):
    match dtype:
        case "bf16":
            return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
        case "e4m3":
            return [e4m3_value(code) for code in data]
        case "u8":
            return list(data)
        case "i32":
            return [value for (value,) in struct.iter_unpack("<i", data)]
    return [value for (value,) in struct.iter_unpack({"f32": "<f", "f16": "<e"}[dtype], data)]


class Tensor:
    """Numbers of a type, row by row."""

    def __init__(self, dtype, shape, values):
        assert len(values) == math.prod(shape)
        self.dtype, self.shape = dtype, tuple(shape)
        self.data = b"".join(stored(dtype, value) for value in values)
        self.values = loaded(dtype, self.data)

    def exact(self):
        return [Fraction(value) for value in self.values]


class Family:
    def __init__(self):
        self.cases, self.tensors = [], {}

    def normal(self, name, dtype, shape, scale=1.0):
        numbers = random.Random(zlib.crc32(f"quantised/{name}".encode()))
        return Tensor(dtype, shape, [numbers.gauss(0.0, scale) for _ in range(math.prod(shape))])

    def case(self, name, op, inputs, outputs, exact=False):
        case = {"name": name, "op": op, "inputs": [], "outputs": []}
        for key, tensors in (("inputs", inputs), ("outputs", outputs)):
            for i, tensor in enumerate(tensors):
                self.tensors[f"{name}/{key}{i}"] = tensor
                case[key].append(f"{name}/{key}{i}")
        if exact:
            case["exact"] = True
        self.cases.append(case)

    def write(self, out):
        header, at = {}, 0
        for name, tensor in self.tensors.items():
            end = at + len(tensor.data)
            header[name] = {"dtype": NAMES[tensor.dtype], "shape": tensor.shape, "data_offsets": [at, end]}
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        data = b"".join(tensor.data for tensor in self.tensors.values())
        (out / "quantised.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        fixtures.write_cases(out / "quantised.json", self.cases)


def casts(family):
    numbers = [0.0, -0.0, 1.0, 1.0625, 1.1875, -17.0, 17.5, 250.0, 447.0, 0.001, 0.0029296875, 0.015, -0.4]
    for dtype in NAMES:
        odd = [] if dtype in ("u8", "i32") else [465.0, -1e4, math.inf, -math.inf, math.nan]
        whole = {"u8": [0, 1, 17, 19, 250, 255], "i32": [0, 17, -19, 449, -(10**9), 255]}
        x = Tensor(dtype, [len(whole.get(dtype, numbers + odd))], whole.get(dtype, numbers + odd))
        y = Tensor("e4m3", x.shape, x.values)
        family.case(f"cast_{dtype}_to_e4m3", {"cast": "f8e4m3"}, [x], [y], exact=True)
    x = Tensor("e4m3", [254], [e4m3_value(code) for code in range(256) if code & 0x7F != 0x7F])
    for dtype in NAMES:
        if dtype != "e4m3":
            y = Tensor(dtype, x.shape, x.values)
            family.case(f"cast_e4m3_to_{dtype}", {"cast": dtype}, [x], [y], exact=True)


def quantise(family):
    for storage in STORAGES:
        odd = [0.265625, 0.296875, -0.265625, 111.0, 112.5, -200.0, math.inf, 2.0**-12, 3 * 2.0**-12, 0.0]
        usual = family.normal(f"tensor_{storage}", storage, (21,)).values
        x = Tensor(storage, [31], odd + usual)
        y = Tensor("e4m3", x.shape, [4.0 * value for value in x.values])
        family.case(f"tensor_{storage}", {"quantise": {"tensor": {"factor": 4.0}}}, [x], [y], exact=True)
        for kind, shape, blocks in (
            ("filters", (6, 1, 3, 3, 4), 1),
            ("blocks", (8, 1, 2, 2, 3), 4),
            ("rows", (5, 7), 1),
        ):
            name = f"{kind}_{storage}"
            w = family.normal(name, storage, shape, 0.05)
            length, number = math.prod(shape[1:]), shape[0] // blocks
            if blocks == 1:
                # A filter of zeros has no factor.
                w = Tensor(storage, shape, [0.0] * length + w.values[length:])
            values = w.exact()
            largest = [
                max(abs(values[i]) for i in range(len(values)) if i // length % number == own) for own in range(number)
            ]
            factors = [448 / size if size else 0 for size in largest]
            weight = [float(value * factors[i // length % number]) for i, value in enumerate(values)]
            activation = 0.03125
            scales = Tensor("f32", [number], [float(size / 448 * Fraction(activation)) for size in largest])
            op = {"quantise": {"filters": {"blocks": blocks, "activation": activation}}}
            family.case(name, op, [w], [Tensor("f32", shape, rounded(weight)), scales])


def rounded(values):
    return [e4m3_value(e4m3_code(value)) for value in values]


def silu(x):
    return x / (1.0 + math.exp(-x))


def gelu(x):
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def norms(family):
    epsilon = struct.unpack("<f", struct.pack("<f", 1e-5))[0]
    for storage in STORAGES:
        for kind, shape, groups in (("layer", (3, 5, 33), None), ("group", (2, 4, 5, 24), 3)):
            name = f"norm_{kind}_{storage}"
            channels = shape[-1]
            x = family.normal(f"{name}/x", storage, shape)
            scale, shift = (family.normal(f"{name}/{part}", storage, (channels,)) for part in ("scale", "shift"))
            image = math.prod(shape[1:])

            def set_of(i, groups=groups, image=image, channels=channels):
                return i // channels if groups is None else (i // image, i % channels // (channels // groups))

            members = {}
            for i, value in enumerate(x.values):
                members.setdefault(set_of(i), []).append(value)
            means = {own: math.fsum(values) / len(values) for own, values in members.items()}
            deviations = {
                own: math.sqrt(math.fsum((value - means[own]) ** 2 for value in values) / len(values) + epsilon)
                for own, values in members.items()
            }
            y = []
            for i, value in enumerate(x.values):
                normal = (value - means[set_of(i)]) / deviations[set_of(i)]
                affine = normal * scale.values[i % channels] + shift.values[i % channels]
                y.append(32.0 * (affine if groups is None else silu(affine)))
            op = {
                "kind": "layer" if groups is None else {"group": {"groups": groups, "frames": 1}},
                "epsilon": epsilon,
                "affine": "scale_shift",
                "activation": None if groups is None else "silu",
                "quantise": 32.0,
            }
            family.case(name, {"norm": op}, [x, scale, shift], [Tensor("f32", shape, rounded(y))])


def operands(family, name, x, weight, columns, bias):
    """A quantised product's operands: of order 100, with scales that bring the result to order one."""
    made = [family.normal(f"{name}/x", "e4m3", x, 60.0), family.normal(f"{name}/weight", "e4m3", weight, 60.0)]
    size = 1.0 / (3600.0 * math.sqrt(math.prod(weight[1:])))
    numbers = random.Random(zlib.crc32(f"quantised/{name}/scale".encode()))
    made.append(Tensor("f32", [columns], [size * numbers.uniform(0.5, 2.0) for _ in range(columns)]))
    return made + ([family.normal(f"{name}/bias", bias, (columns,))] if bias else [])


def products(family):
    def linear(name, x, out, result, bias=None, gate=False, residual=False):
        given = operands(family, name, x, (out, x[-1]), out, bias)
        rows, weight, depth = given[0].exact(), given[1].exact(), x[-1]
        y = []
        for row in range(math.prod(x[:-1])):
            sums = []
            for column in range(out):
                total = sum(rows[row * depth + i] * weight[column * depth + i] for i in range(depth))
                total *= Fraction(given[2].values[column])
                sums.append(float(total + (Fraction(given[3].values[column]) if bias else 0)))
            half = out // 2
            y += [sums[i] * gelu(sums[half + i]) for i in range(half)] if gate else sums
        shape = (*x[:-1], out // 2 if gate else out)
        stages = []
        if residual:
            given.append(family.normal(f"{name}/residual", "f16", shape))
            y = [a + b for a, b in zip(y, given[-1].values, strict=True)]
            stages.append("add")
        if result == "e4m3":
            y = rounded([16.0 * value for value in y])
            stages.append({"scale": 16.0})
        op = {
            "quantised": "f8e4m3" if result == "e4m3" else result,
            "bias": bool(bias),
            "gate": "gelu" if gate else None,
            "epilogue": stages,
        }
        family.case(name, {"linear": op}, given, [Tensor("f32", shape, y)])

    linear("linear", (3, 5, 16), 24, "f16")
    linear("linear_f32", (2, 3, 33), 17, "f32", bias="f32")
    linear("linear_bf16", (7, 9), 5, "bf16", bias="bf16")
    linear("linear_residual", (2, 5, 48), 8, "f16", bias="f16", residual=True)
    linear("linear_gated", (2, 3, 32), 16, "f16", bias="f16", gate=True)
    linear("linear_to_e4m3", (3, 5, 16), 24, "e4m3", bias="f16")
    linear("linear_gated_to_e4m3", (2, 3, 16), 32, "e4m3", gate=True)

    def conv(name, x, out, kernel, result, frames=1, stride=1, subpixel=False, bias=None):
        images, height, width, channels = x
        pixels = 4 if subpixel else 1
        given = operands(family, name, x, (out * pixels, *kernel, channels), out, bias)
        pixel, weight = given[0].exact(), given[1].exact()
        pad = [0, 1, 1] if subpixel else [extent // 2 for extent in kernel]
        size = [2 * height, 2 * width] if subpixel else [(height - 1) // stride + 1, (width - 1) // stride + 1]
        y = []
        for image in range(images):
            for line in range(size[0]):
                for column in range(size[1]):
                    top, left = (
                        (line // 2 + line % 2, column // 2 + column % 2)
                        if subpixel
                        else (line * stride, column * stride)
                    )
                    block = 2 * (column % 2) + line % 2 if subpixel else 0
                    for o in range(out):
                        total = Fraction(0)
                        for t in range(kernel[0]):
                            frame = image % frames + t - pad[0]
                            for a in range(kernel[1]):
                                for b in range(kernel[2]):
                                    i, j = top + a - pad[1], left + b - pad[2]
                                    if not (0 <= frame < frames and 0 <= i < height and 0 <= j < width):
                                        continue
                                    at = (((image - image % frames + frame) * height + i) * width + j) * channels
                                    tap = (((block * out + o) * kernel[0] + t) * kernel[1] + a) * kernel[2] + b
                                    for c in range(channels):
                                        total += pixel[at + c] * weight[tap * channels + c]
                        total *= Fraction(given[2].values[o])
                        y.append(float(total + (Fraction(given[3].values[o]) if bias else 0)))
        padding = [[extent, extent] for extent in pad]
        op = {
            "kernel": kernel,
            "stride": [1, stride, stride],
            "padding": padding,
            "dilation": [1, 1, 1],
            "groups": 1,
            "frames": frames,
            "subpixel": subpixel,
            "quantised": result,
            "bias": bool(bias),
        }
        family.case(name, {"conv": op}, given, [Tensor("f32", (images, *size, out), y)])

    conv("conv", (2, 5, 4, 16), 8, (1, 3, 3), "f16", bias="f16")
    conv("conv_f32", (1, 4, 3, 5), 7, (1, 3, 3), "f32", bias="f32")
    conv("conv_stride_2", (1, 5, 4, 16), 8, (1, 3, 3), "bf16", stride=2)
    conv("conv_temporal", (6, 2, 3, 16), 8, (3, 1, 1), "f16", frames=3, bias="f16")
    conv("conv_subpixel", (1, 3, 4, 16), 8, (1, 2, 2), "f16", subpixel=True, bias="f16")


def main():
    out = fixtures.folder(__doc__, "testing/fixtures/ops")
    family = Family()
    for part in (casts, quantise, norms, products):
        part(family)
    family.write(out)
    print(f"quantised: {len(family.cases)} cases")


if __name__ == "__main__":
    main()

"""Cases and their files."""

import zlib

import torch
from safetensors.torch import save_file

import fixtures

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "u8": torch.uint8,
    "i32": torch.int32,
}
F32 = ("f32",)
STORAGES = ("f32", "f16", "bf16")


def f32(value):
    """An op's attribute, rounded to the f32 that the op holds."""
    return torch.tensor(value, dtype=torch.float32).item()


def storage_name(name, storage):
    return name if storage == "f32" else f"{name}_{storage}"


class Family:
    """The cases of one group of ops, and their tensors."""

    def __init__(self, name):
        self.name = name
        self.cases = []
        self.tensors = {}

    def normal(self, *key, shape):
        """Normal f64 values that depend on the key alone, not on the order of the cases."""
        seed = zlib.crc32("/".join((self.name, *key)).encode())
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def case(self, name, op, inputs, compute, storages=F32, keep_f32=(), exact=False):
        """Adds a case in every storage.

        `inputs` maps names to f64 tensors, integer tensors, or shapes to be filled with normal values. `compute` takes
        them widened to f64 and gives the result or a tuple of results. `keep_f32` names floats that stay f32.
        """
        values = {
            key: value if isinstance(value, torch.Tensor) else self.normal(name, key, shape=value)
            for key, value in inputs.items()
        }
        for storage in storages:
            stored = {
                key: value.to(DTYPES["f32" if key in keep_f32 else storage]) if value.is_floating_point() else value
                for key, value in values.items()
            }
            results = compute(*(x.double() if x.is_floating_point() else x for x in stored.values()))
            if isinstance(results, torch.Tensor):
                results = (results,)
            if exact:
                results = tuple(y.to(DTYPES[storage]) if y.is_floating_point() else y for y in results)
            self.add(storage_name(name, storage), op, stored, results, exact=exact)

    def add(self, name, op, inputs, outputs, exact=False, **extra):
        """Adds one case of finished tensors; an input may be a placeholder's name."""
        names = []
        for key, value in inputs.items():
            if isinstance(value, str):
                names.append(value)
            else:
                names.append(self.store(f"{name}/{key}", value))
        case = {"name": name, "op": op, "inputs": names}
        case["outputs"] = [
            self.store(f"{name}/out{i}", y if exact or not y.is_floating_point() else y.float())
            for i, y in enumerate(outputs)
        ]
        if exact:
            case["exact"] = True
        case.update(extra)
        self.cases.append(case)

    def store(self, name, tensor):
        assert name not in self.tensors, f"{self.name}: two tensors are called {name}"
        assert tensor.dtype in DTYPES.values(), f"{name} is {tensor.dtype}"
        self.tensors[name] = tensor.contiguous().clone()
        return name

    def write(self, out):
        """Writes both files and gives their size."""
        tensors, manifest = out / f"{self.name}.safetensors", out / f"{self.name}.json"
        save_file(self.tensors, tensors)
        fixtures.write_cases(manifest, self.cases)
        return tensors.stat().st_size + manifest.stat().st_size

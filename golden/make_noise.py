"""Makes the golden noise: what PyTorch's CPU generator gives for a seed. See README.md.

In f32 PyTorch's numbers differ in their last bits from one instruction set to another. The fixtures are its AVX2
numbers, so this must run on a processor whose best set is AVX2, or with ATEN_CPU_CAPABILITY=avx2, which it asks for.
"""

import os

# PyTorch reads the capability when it is loaded.
os.environ["ATEN_CPU_CAPABILITY"] = "avx2"

import torch
from safetensors.torch import save_file

import fixtures

LIMIT = 128 << 10
SEEDS = (0, 1, 42, 1234567, 2**32 - 1, 2**32 + 5, 2**64 - 1)
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# One after the other from one generator: both ways of drawing, and odd counts before and after.
CONTINUED = (3, 20, 1, 16, 5, 17, 2, 100, 15, 33)
LARGE, STRIDE = 100_000, 251


def draw(seed, counts, dtype):
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([torch.randn(count, generator=generator, dtype=dtype) for count in counts])


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/noise")
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        raise SystemExit("this processor has no AVX2: the numbers would differ in their last bits")
    tensors = {}
    for name, dtype in DTYPES.items():
        for seed in SEEDS:
            each = [draw(seed, [count], dtype) for count in (*range(1, 41), 64)]
            tensors[f"{name}/{seed}/each"] = torch.cat(each)
            tensors[f"{name}/{seed}/continued"] = draw(seed, CONTINUED, dtype)
            tensors[f"{name}/{seed}/thousand"] = draw(seed, [1000], dtype)[::3].clone()
            tensors[f"{name}/{seed}/large"] = draw(seed, [LARGE], dtype)[::STRIDE].clone()
    save_file(tensors, out / "noise.safetensors")
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()

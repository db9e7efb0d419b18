"""Makes the golden tensors of every op. See README.md."""

import argparse
import pathlib

import torch

from ops import arrange, attention, conv, embedding, linear, norm, pointwise, resample, sampler

FIXTURES = pathlib.Path(__file__).parent.parent / "crates/cpu/tests/fixtures/golden"
LIMIT = 2 << 20


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=pathlib.Path, default=FIXTURES, help="where the fixtures go")
    out = arguments.parse_args().out
    # Sums must not depend on how many cores share them.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out.mkdir(parents=True, exist_ok=True)
    total = 0
    for module in (conv, linear, norm, pointwise, attention, arrange, resample, embedding, sampler):
        family = module.build()
        size = family.write(out)
        total += size
        print(f"{family.name:12} {len(family.cases):4} cases {size / 1024:8.1f} KiB")
    print(f"{total / 1024:.1f} KiB in all")
    if total > LIMIT:
        raise SystemExit(f"the fixtures are over {LIMIT / 1024:.0f} KiB: make some tensors smaller")


if __name__ == "__main__":
    main()

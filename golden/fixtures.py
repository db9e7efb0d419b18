"""What the scripts share: where their fixtures go, how they are written, and how large they may be."""

import argparse
import json
import pathlib

ROOT = pathlib.Path(__file__).parent.parent


def folder(description, path):
    """The folder of a script's fixtures: `path` in this repository, or what `--out` says."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--out", type=pathlib.Path, default=ROOT / path, help="where the fixtures go")
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    return out


def reproducible():
    """Sums must not depend on how many cores share them."""
    # Here, since how PyTorch is loaded is a script's own choice.
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def write_cases(path, cases):
    """Writes a list of cases, one a line, so that a change of one shows as such."""
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def check_size(out, limit):
    """Says how large the fixtures are, and refuses more than `limit` bytes."""
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out.name}: {size / 1024:.1f} KiB in all")
    if size > limit:
        raise SystemExit(f"the fixtures are over {limit / 1024:.0f} KiB: make some tensors smaller")

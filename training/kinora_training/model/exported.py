"""The networks of an exported folder, to continue from, and the runs that it was trained in."""

import json
import pathlib
import subprocess

from safetensors.torch import load_file

HISTORY = "training.json"


def load(network, folder, name):
    """Loads a network's weights from a folder, in f32."""
    files = sorted((folder / name).glob("*.safetensors"))
    if len(files) != 1:
        raise SystemExit(
            f"{folder / name} has {len(files)} weight files, but should have one: "
            f"is {folder} a model that this training wrote?"
        )
    weights = {key: value.float() for key, value in load_file(files[0]).items()}
    missing, unexpected = network.load_state_dict(weights, strict=False)
    # Buffers are computed, not learnt, and need not be in the file.
    missing = set(missing) - {key for key, _ in network.named_buffers()}
    if missing or unexpected:
        raise SystemExit(
            f"{files[0]} belongs to another network: it lacks {sorted(missing)[:3]}, and has {unexpected[:3]}"
        )


def history(folder):
    """The runs that a model was trained in, first to last; empty if there is no model yet."""
    if folder is None:
        return []
    try:
        return json.loads((folder / HISTORY).read_text(encoding="utf-8"))["runs"]
    except (OSError, ValueError, KeyError) as error:
        raise SystemExit(
            f"{folder / HISTORY}, which should say how the model was trained, cannot be read: {error}"
        ) from error


def commit():
    """The commit of the running code, or `None` if git does not know it."""
    words = ["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def write_history(folder, runs):
    (folder / HISTORY).write_text(json.dumps(dict(runs=runs), indent=1) + "\n", encoding="utf-8")

"""The networks of a folder that was exported, to go on from."""

import json

from safetensors.torch import load_file

HISTORY = "training.json"


def load(network, folder, name):
    """Gives a network the weights that a folder has of it, in f32."""
    files = sorted((folder / name).glob("*.safetensors"))
    if len(files) != 1:
        raise SystemExit(f"{folder / name} has {len(files)} files of weights, and should have one: is {folder} a model of ours?")
    weights = {key: value.float() for key, value in load_file(files[0]).items()}
    missing, unexpected = network.load_state_dict(weights, strict=False)
    # Buffers are made, not learnt, and need not be in the file.
    missing = set(missing) - {key for key, _ in network.named_buffers()}
    if missing or unexpected:
        raise SystemExit(f"{files[0]} is of another network: it lacks {sorted(missing)[:3]}, and has {unexpected[:3]}")


def history(folder):
    """The runs that a model was trained in, first to last; none where there is no model yet."""
    return [] if folder is None else json.loads((folder / HISTORY).read_text(encoding="utf-8"))["runs"]


def write_history(folder, runs):
    (folder / HISTORY).write_text(json.dumps(dict(runs=runs), indent=1) + "\n", encoding="utf-8")

"""Models whose files are hostile."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from random import Random

from damage import VALUES, damaged, hostile_json
from room import SHORT, Room
from run import Run

from .clip import clip

CONFIGS = {
    "unet/config.json": (
        "in_channels", "out_channels", "down_block_types", "up_block_types", "block_out_channels",
        "addition_time_embed_dim", "projection_class_embeddings_input_dim", "layers_per_block", "cross_attention_dim",
        "transformer_layers_per_block", "num_attention_heads", "num_frames", "sample_size", "_class_name",
    ),
    "vae/config.json": (
        "in_channels", "out_channels", "latent_channels", "block_out_channels", "layers_per_block", "force_upcast",
        "scaling_factor", "sample_size", "_class_name",
    ),
    "image_encoder/config.json": (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size",
        "projection_dim", "num_channels", "hidden_act", "layer_norm_eps", "architectures",
    ),
    "scheduler/scheduler_config.json": (
        "num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "prediction_type", "timestep_spacing",
        "steps_offset", "use_karras_sigmas", "sigma_min", "sigma_max", "trained_betas", "timestep_type", "_class_name",
    ),
    "feature_extractor/preprocessor_config.json": ("image_mean", "image_std", "size", "crop_size", "do_normalize"),
    "model_index.json": ("_class_name", "unet", "vae", "scheduler", "image_encoder", "feature_extractor"),
}  # fmt: skip

DEFAULTS = (
    "frames", "steps", "height", "width", "fps", "motion_bucket", "noise_augmentation", "min_guidance", "max_guidance",
    "decode_chunk", "seed",
)  # fmt: skip

WEIGHTS = [
    "unet/diffusion_pytorch_model.safetensors",
    "vae/diffusion_pytorch_model.safetensors",
    "image_encoder/model.safetensors",
]

# What a hostile model may not take.
LIMIT = ["--memory-limit", "1GB"]


def used(room: Room, random: Random, model: Path, what: str) -> Run:
    """A command that reads a model."""
    photo = room.photo()
    if random.random() < 0.3:
        return Run(what, ["info", model.name, "--json"], json=True)
    if random.random() < 0.5:
        # The model's own settings, as far as a file that is about to be refused has them.
        words = ["generate", photo.name, "--model", model.name, "-o", "clip.y4m", "--json", "--device", "cpu"]
        small = ["--steps", "1", "--memory-limit", "60MB"]
        return Run(what, [*words, *small], outputs=["clip.y4m"], json=True)
    return clip(room, photo.name, what, model=model.name, words=LIMIT)


def config(room: Room, random: Random) -> Run:
    """A configuration with a hostile value, or a damaged one."""
    model = room.model()
    name = random.choice(list(CONFIGS))
    path = model / name
    good = path.read_bytes()
    hostile = random.random() < 0.75
    room.replace(path, hostile_json(good, random, CONFIGS[name]) if hostile else damaged(good, random))
    return used(room, random, model, f"{name} changed")


def defaults(room: Room, random: Random) -> Run:
    """Settings that a model names."""
    room.model()
    fields = {random.choice(DEFAULTS): random.choice(VALUES) for _ in range(random.choice([1, 1, 2, 3]))}
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
    room.write("model/defaults.json", text.encode() if random.random() < 0.9 else damaged(text.encode(), random))
    photo = room.photo()
    if random.random() < 0.4:
        return Run(f"defaults {text[:60]}", ["info", "model", "--json"], json=True)
    words = ["generate", photo.name, "--model", "model", "-o", "clip.gif", "--json", "--device", "cpu"]
    # The settings are the model's own, as far as they are not what makes a sound clip slow.
    if "steps" not in fields:
        words += ["--steps", "1"]
    small = ["--memory-limit", "60MB"]
    return Run(f"defaults {text[:60]}", [*words, *small], outputs=["clip.gif"], json=True)


def weights(room: Room, random: Random) -> Run:
    """Weights whose header, length or end is hostile."""
    model = room.model()
    name = random.choice(WEIGHTS)
    path = model / name
    content, what = hostile_weights(path.read_bytes(), random)
    room.replace(path, content)
    return used(room, random, model, f"{name}: {what}")


def hostile_weights(content: bytes, random: Random) -> tuple[bytes, str]:
    """A file of weights with another header, length or end, and which of them it is."""
    (length,) = struct.unpack("<Q", content[:8])
    header, numbers = content[8 : 8 + length], content[8 + length :]
    what = random.choice(["damaged header", "hostile header", "length", "cut off", "damaged numbers", "swapped"])
    match what:
        case "damaged header":
            header = damaged(header, random)
        case "hostile header":
            header = hostile_json(header, random)
        case "length":
            length = random.choice([0, 1, 7, 2**31, 2**32, 2**63, 2**64 - 1, 100_000_001, length + 1, length - 1])
        case "cut off":
            numbers = numbers[: random.randrange(len(numbers))]
        case "damaged numbers":
            numbers = damaged(numbers[:4096], random) + numbers[4096:]
        case _:
            header = swapped_tensor(header, random)
    if what in ("damaged header", "hostile header", "swapped"):
        length = len(header)
    return struct.pack("<Q", length) + header + numbers, what


def swapped_tensor(header: bytes, random: Random) -> bytes:
    """A header in which a tensor has another one's type, shape or place."""
    tensors = json.loads(header)
    names = [name for name in tensors if name != "__metadata__"]
    one, other = random.choice(names), random.choice(names)
    field = random.choice(["dtype", "shape", "data_offsets"])
    types = ["F16", "BF16", "I64", "BOOL", "F8_E4M3"]
    tensors[one][field] = random.choice(types) if field == "dtype" else tensors[other][field]
    return json.dumps(tensors).encode()


def special_file(room: Room, random: Random) -> Run:
    """A FIFO, a device, a folder, a link or a huge file where a small one belongs."""
    model = room.model()
    photo = room.photo()
    name = random.choice([*CONFIGS, "defaults.json", WEIGHTS[0], "photo"])
    path = photo if name == "photo" else model / name
    good = path.read_bytes() if path.exists() else b"{}"
    path.unlink(missing_ok=True)
    feeder = None
    kinds = ["fifo", "folder", "zero", "null", "full", "loop", "dangling", "sparse", "bytes"]
    kind = random.choice(kinds)
    match kind:
        case "fifo":
            os.mkfifo(path)
            # A photo may come through a pipe, if somebody writes one into it.
            feeder = (path, good) if name == "photo" else None
        case "folder":
            path.mkdir()
        case "zero" | "null" | "full":
            path.symlink_to(f"/dev/{kind}")
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("nothing")
        case "sparse":
            with path.open("wb") as file:
                file.truncate(3 << 30)
        case "bytes":
            deep = [b"[" * 100_000, b"0" * 100_000]
            path.write_bytes(random.choice([b"", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"\xff" * 100, *deep]))
    words = ["generate", photo.name, "--model", "model", "-o", "clip.y4m", "--json", *SHORT, *LIMIT]
    return Run(f"{name} is a {kind}", words, outputs=["clip.y4m"], json=True, feeder=feeder)

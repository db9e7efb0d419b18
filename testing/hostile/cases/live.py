"""Live video: hostile videos, prompts, options, changes while it runs, models and LoRAs."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random

from damage import damaged, hostile_json
from room import FORMATS, Room
from run import Run

from .models import LIMIT, hostile_weights
from .options import BYTES, NUMBERS, SIZES, WORDS

# The model draws 64×64: the others are fitted.
SIDES = [1, 48, 63, 64, 64, 130]
FRAMES = 3
ENDINGS = ["y4m", "gif", "mp4", "png", "rgb"]
SETTINGS = {
    "prompt": '"a harbour"', "negative_prompt": '"fog"', "width": "64", "height": "64", "strength": "0.7", "steps": "2",
    "timesteps": "[700, 300]", "guidance": '"full"', "guidance_scale": "1.5", "stream_batch": "true",
    "control_scale": "0.5", "seed": "3", "blend": "0.4", "memory_frames": "1", "glide": "2", "lora": '{"style": 0.5}',
}  # fmt: skip
PROMPTS = ["", " ", "word " * 10_000, "\U0001f469\u200d\U0001f680" * 500, "\x1b[2J", "<b>&amp;</b>", "\u202e", "a\nb",
           "\ufffd", "e" + "\u0301" * 300, "漢字" * 400, "-", "--json", "%s"]  # fmt: skip
OPTIONS = {
    "--prompt": PROMPTS, "--negative-prompt": PROMPTS, "--strength": NUMBERS, "--steps": NUMBERS,
    "--timesteps": [*NUMBERS, "700,300", "300,700", "999,", ",", "1000", "999,999", "-1,-2", "0"],
    "--guidance": [*WORDS, "full", "self", "initialize", "none"], "--guidance-scale": NUMBERS,
    "--control-scale": NUMBERS, "--seed": NUMBERS, "--size": SIZES, "--fit": WORDS, "--background": WORDS,
    "--blend": NUMBERS, "--memory-frames": NUMBERS, "--glide": NUMBERS, "--precision": WORDS, "--device": WORDS,
    "--memory-limit": BYTES, "--similar": NUMBERS, "--deadline": NUMBERS, "--input-size": SIZES,
    "--input-fps": NUMBERS, "--quality": NUMBERS, "--lora": [*WORDS, "video.y4m", "video.y4m:nan"],
    "--controlnet": WORDS, "--autoencoder": WORDS, "--changes": WORDS,
}  # fmt: skip
CONFIGS = [
    "unet/config.json", "vae/config.json", "tiny/config.json", "text_encoder/config.json", "model_index.json",
    "scheduler/scheduler_config.json", "tokenizer/vocab.json", "tokenizer/tokenizer_config.json",
]  # fmt: skip


def drawn(source: str, what: str, model: str | Path, output: str = "out.y4m", words: tuple = (), **more) -> Run:
    """Redraws a video by the small model, as JSON."""
    command = ["live", source, "-o", output, "--model", model, "--autoencoder", f"{model}/tiny", "--json"]
    command += ["--device", "cpu", "--prompt", "a harbour", "--seed", "7", *LIMIT, *words]
    return Run(what, command, outputs=written(output), json=True, **more)


def written(output: str) -> list[str]:
    """The files that a video of a few frames is."""
    if not output.endswith(".png"):
        return [output]
    stem = output.removesuffix(".png")
    # Damage can add frames, and a picture may stand for one.
    return [f"{stem}-{number:04}.png" for number in range(1, 200)] + [f".{output}.kinora"]


def y4m(random: Random, frames: int = FRAMES, usual: bool = False) -> bytes:
    """A small video of noise, of the model's size if that is asked for."""
    width, height = (64, 64) if usual else random.choices(SIDES, k=2)
    header = b"YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n" % (width, height)
    half = (width + 1) // 2 * ((height + 1) // 2)
    frame = width * height + 2 * half
    return header + b"".join(b"FRAME\n" + random.randbytes(frame) for _ in range(frames))


def video(room: Room, random: Random) -> Run:
    """A video that is damaged, or says of itself what cannot be."""
    kind = random.choice(["damaged", "damaged", "damaged", "header", "picture", "raw", "empty", "folder"])
    name, words = "video.y4m", []
    match kind:
        case "damaged":
            clips = {f"video.{ending}": room.supplies.clips[ending][0] for ending in FORMATS}
            kept = {path.name: path.read_bytes() for path in room.supplies.corpus["mp4"]}
            name, content = random.choice(list({**clips, **kept, "video.y4m": y4m(random)}.items()))
            content = damaged(content, random)
        case "header":
            content = y4m(random, usual=True).replace(*random.choice(HEADERS), 1)
        case "picture":
            source = random.choice(room.supplies.photos)
            name, content = source.name, source.read_bytes()
        case "raw":
            name, content = "video.rgb", random.randbytes(random.choice([0, 1, 64 * 64 * 3, 64 * 64 * 3 + 1, 40_000]))
            words = random.choice([[], ["--input-size", "64x64"], ["--input-size", "1x1"]])
            if words[1:] == ["1x1"]:
                content = content[:12]
        case "empty":
            name = random.choice(["video.mp4", "video.gif", "video.y4m", "video.rgb", "video"])
            content = random.choice([b"", b"\0", b"YUV4MPEG2", b"YUV4MPEG2 \n", b"\0\0\0\x18ftyp", b"GIF89a"])
        case _:
            name, content = "video/0001.png", damaged(room.supplies.photo.read_bytes(), random)
            room.write("video/0002.png", room.supplies.photo.read_bytes())
            # Another size.
            room.write("video/0003.png", random.choice(room.supplies.photos).read_bytes())
            room.write("video/notes.txt", b"mine")
    path = room.write(name, content)
    source = "video" if kind == "folder" else name
    words += random.choice([[], [], ["--original-size"], ["--fit", "pad"], ["--stream-batch", "--steps", "2"]])
    what = f"{name} ({kind})"
    if random.random() < 0.2 and kind != "folder":
        # What is no Y4M is refused.
        command = drawn("-", what, room.supplies.live, words=(*words,), stdin=path)
        return command
    return drawn(source, what, room.supplies.live, f"out.{random.choice(ENDINGS)}", (*words,))


# What a header says, and what it says instead.
HEADERS = [
    (b"W64", b"W0"), (b"W64", b"W1"), (b"W64", b"W-1"), (b"W64", b"W4294967296"), (b"W64", b"W7680"), (b"H64", b"H0"),
    (b"H64", b"H18446744073709551615"), (b"H64", b"H63"), (b"W64", b"W63"), (b" W64", b""), (b"F25:1", b"F0:0"),
    (b"F25:1", b"F1:0"), (b"F25:1", b"F4294967295:1"), (b"F25:1", b"F-1:1"), (b"C420jpeg", b"C444"),
    (b"C420jpeg", b"C444p16"), (b"C420jpeg", b"Cmono"), (b"C420jpeg", b"C444alpha"), (b"C420jpeg", b"\x1b[2J"),
    (b"Ip", b"It"), (b"FRAME\n", b"FRAME W128\n"), (b"FRAME\n", b"frame\n"), (b"FRAME\n", b"FRAME" + b"x" * 100_000),
    (b"A1:1", b"X" + b"y" * 100_000), (b"YUV4MPEG2", b"YUV4MPEG3"), (b"FRAME\n", b""),
]  # fmt: skip


def option(room: Room, random: Random) -> Run:
    """One to three options of live video or of a picture with absurd values."""
    words = []
    for _ in range(random.choice([1, 1, 2, 3])):
        name = random.choice(list(OPTIONS))
        words.append(f"{name}={random.choice(OPTIONS[name])}".replace("\0", ""))
    room.write("video.y4m", y4m(random))
    what = " ".join(words)[:80]
    if random.random() < 0.3:
        command = ["image", "--model", room.supplies.live, "-o", "out.png", "--json", "--device", "cpu", *LIMIT]
        return Run(what, [*command, *words], outputs=["out.png"], json=True)
    return drawn("video.y4m", what, room.supplies.live, words=(*words,))


def changes(room: Room, random: Random) -> Run:
    """A file of changes with hostile lines."""
    lines = []
    for frame in range(random.choice([1, 2, 5])):
        name = random.choice(list(SETTINGS))
        line = f'{{"frame": {frame}, "{name}": {SETTINGS[name]}}}'.encode()
        lines.append(random.choice([line, hostile_json(line, random), damaged(line, random)]))
    room.write("changes.jsonl", b"\n".join(lines))
    room.write("video.y4m", y4m(random))
    words = ["--changes", "changes.jsonl", *random.choice([[], ["--record", "log.jsonl"], ["--realtime"]])]
    run = drawn("video.y4m", "changes", room.supplies.live, words=(*words,))
    run.outputs.append("log.jsonl")
    return run


def model(room: Room, random: Random) -> Run:
    """A model for live video, a LoRA or a ControlNet that is damaged, or made for another model."""
    folder = room.model(room.supplies.live)
    room.write("video.y4m", y4m(random, frames=1))
    kind = random.choice(["config", "config", "weights", "merges", "lora", "lora", "controlnet", "other"])
    words = []
    match kind:
        case "config":
            name = random.choice(CONFIGS)
            good = (folder / name).read_bytes()
            room.replace(folder / name, hostile_json(good, random) if random.random() < 0.75 else damaged(good, random))
            kind = name
        case "weights":
            path = random.choice(sorted(folder.rglob("*.safetensors")))
            content, what = hostile_weights(path.read_bytes(), random)
            room.replace(path, content)
            kind = f"{path.parent.name}: {what}"
        case "merges":
            lines = random.choice([b"", b"#version", b"\xff\xfe", b"a b\n" * 5000, b"a\n", b"a b c\n", b"\0 \0\n"])
            room.replace(folder / "tokenizer/merges.txt", lines)
        case "lora":
            content = lora(folder, random)
            room.write("style.safetensors", content if random.random() < 0.4 else hostile_weights(content, random)[0])
            words = ["--lora", f"style.safetensors:{random.choice(['1', '0', '-1', '1e30', '0.5'])}"]
        case "controlnet":
            # Another network's folder.
            words = ["--controlnet", f"model/{random.choice(['unet', 'vae', 'tiny', 'text_encoder', '.'])}"]
        case _:
            words = ["--autoencoder", f"model/{random.choice(['unet', 'vae', 'text_encoder', '.'])}"]
    return drawn("video.y4m", kind, folder.name, words=(*words,))


def lora(folder: Path, random: Random) -> bytes:
    """A LoRA of rank 2 for a layer of the UNet, or for one that it does not have."""
    path = folder / "unet/diffusion_pytorch_model.safetensors"
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensors = json.loads(file.read(length))
    names = [name for name, tensor in tensors.items() if name.endswith("to_q.weight") and len(tensor["shape"]) == 2]
    name = random.choice(sorted(names))
    rows, columns = tensors[name]["shape"]
    layer = random.choice([name.removesuffix(".weight"), "down_blocks.9.attentions.7.to_q"])
    wrong = random.choice([0, 0, 0, 1])
    shapes = {f"unet.{layer}.lora_A.weight": [2, columns + wrong], f"unet.{layer}.lora_B.weight": [rows, 2]}
    if random.random() < 0.2:
        # Half of a pair.
        shapes.popitem()
    header, end = {}, 0
    for tensor, shape in shapes.items():
        size = 4 * shape[0] * shape[1]
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + random.randbytes(end)

"""The commands for kernels and for saved measurements."""

from __future__ import annotations

import json
from random import Random

from damage import damaged, hostile_json
from room import Room
from run import Run

ARGUMENTS = [
    "i32:5", "f32:0.5", "i32:", "f32[16]", "f32[0]", "f32[-1]", "f32[18446744073709551615]", "f32[4,4]=random",
    "f32[16]=@/dev/zero", "f32[16]=@missing", "bytes:00", "bytes:0", "tiles:16,64:f16[512,64]", "tiles:0,0:f16[1]", "x",
    "", "f16[1000000000000]", "u8[8]=1e999",
]  # fmt: skip
SHAPES = ["1", "2", "1,1,1", "0", "-1", "1,2,3,4", "4294967296", "2147483647,65535,65535", "x", "", "32", "1024"]


def sim(room: Room, random: Random) -> Run:
    """A kernel that is damaged, or a launch that makes no sense."""
    source = random.choice(room.supplies.corpus["ptx"])
    content = source.read_bytes()
    words = ["--grid", "1", "--block", "32", "--arg", "f32[256]=1", "--arg", "f32[256]"]
    if random.random() < 0.6:
        content = damaged(content, random)
    else:
        words = ["--grid", random.choice(SHAPES), "--block", random.choice(SHAPES)]
        for _ in range(random.randrange(4)):
            words += ["--arg", random.choice(ARGUMENTS)]
        name, values = random.choice([("--cluster", SHAPES), ("--shared", SHAPES), ("--chip", ["h200", "x"])])
        words += random.choice([[], [name, random.choice(values)]])
    room.write("kernel.ptx", content)
    # A grid of billions of blocks is legal, and runs for as long as it takes.
    return Run(f"{source.name} damaged", ["sim", "kernel.ptx", *words, "--steps", "20000", "--json"], json=True)


def saved(room: Room, random: Random) -> Run:
    """A profile, results of a benchmark or a calibration that is damaged."""
    if random.random() < 0.5:
        kept = random.choice(room.supplies.corpus["profile"]).read_bytes()
        content = random.choice([room.supplies.profile, kept, kept])
        words = random.choice([["profile", "show", "file.json"], ["profile", "compare", "file.json", "file.json"]])
        words += random.choice([[], ["--html", "out.html"], ["--trace", "out.html"] if words[1] == "show" else []])
    else:
        content = random.choice(room.supplies.corpus["results"]).read_bytes()
        more = random.choice([[], ["--plot", "out.html"], ["--compare", "file.json"]])
        words = ["bench", "--from", "file.json", *more]
    try:
        changed = hostile_json(content, random) if random.random() < 0.7 else damaged(content, random)
    except json.JSONDecodeError:
        changed = damaged(content, random)
    room.write("file.json", changed)
    return Run(" ".join(words), [*words, "--json"], outputs=["out.html"], json=True)

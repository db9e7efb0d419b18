"""Names and options that make no sense."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from random import Random

from room import SHORT, Room
from run import Run

from .clip import clip

NUMBERS = [
    "", " ", "0", "-0", "-1", "1", "2", "+1", "1.5", "1e3", "0x10", "1_000", "\u0661", "½", "NaN", "inf", "-inf",
    "1e400",
    "4294967296", "9223372036854775808", "18446744073709551615", "18446744073709551616", "9" * 400, "1 2", "1\n",
    "\x1b[2J", "--", "-", "%n%s", "1001", "1025",
]  # fmt: skip
SIZES = ["64x64", "0x0", "64", "x", "64x", "x64", "63x64", "-64x64", "64x64x64", "8192x64", "1e3x64", "64X64", "64×64",
         "18446744073709551616x64", "99999999999999999999x1", "64x18446744073709551552"]  # fmt: skip
BYTES = ["0", "1", "-1", "1kB", "1e30GB", "1.5.5GB", "GB", "9" * 60, "300MB", "NaNGB", "infGB", "0x10", "1 GB",
         "18446744073709551616"]  # fmt: skip
WORDS = ["", " ", "auto", "cpu", "CPU", "cuda:", "cuda:-1", "cuda:4294967296", "cuda:0;rm", "\x1b]0;t\x07", "é" * 1000,
         "../..", "a\nb"]  # fmt: skip

OPTIONS = {
    "--frames": NUMBERS, "--steps": NUMBERS, "--decode-chunk": NUMBERS, "--motion": NUMBERS, "--fps": NUMBERS,
    "--seed": NUMBERS, "--noise-aug": NUMBERS, "--min-guidance": NUMBERS, "--max-guidance": NUMBERS,
    "--output-fps": NUMBERS, "--size": SIZES, "--memory-limit": BYTES, "--device": WORDS, "--precision": WORDS,
    "--scheduler": WORDS, "--kernels": WORDS, "--tuning": WORDS, "--fit": WORDS, "--background": WORDS,
    "--quality": [*NUMBERS, *WORDS], "--unknown": WORDS,
}  # fmt: skip


def option(room: Room, random: Random) -> Run:
    """One to three options with absurd values."""
    photo = room.photo()
    words = []
    for _ in range(random.choice([1, 1, 2, 3])):
        name = random.choice(list(OPTIONS))
        value = random.choice(OPTIONS[name])
        words += random.choice([[name, value], [f"{name}={value}"]])
    words = [word.replace("\0", "") for word in words]
    if random.random() < 0.3:
        large = ["--frames", random.choice(NUMBERS), "--size", random.choice(SIZES), "--steps", random.choice(NUMBERS)]
        return Run("info with absurd settings", ["info", str(room.supplies.model), "--json", *large], json=True)
    # A clip that is small whatever the options say; what is given twice is refused or replaced.
    run = clip(room, photo.name, " ".join(words)[:80], words=["--memory-limit", "300MB", *words])
    if "1001" in " ".join(words):
        # So many frames, or steps, are allowed, and take their time.
        run.patience *= 10
    return run


NAMES = [
    b"-", b"--", b"-o", b"--json", b"-rf", b"a b", b"a\nb", b"a\tb", b"a\rb", b"\x1b[2J\x1b[31m",
    b"\x1b]0;title\x07", b"\xff\xfe", b"\xc3\x28",
    "\u202eexe.gnp".encode(), "\u009b2J".encode(), b"'", b'"', b"`id`", b"$(id)", b"%s%n",
    b"x" * 255, b"x" * 256, b"\\", b"*", b"?", b"~",
    b".", b"..", b"./.", b"con", b"a" * 60 + b"\x1b" + b"b" * 60, "ü".encode() * 120, b"\x7f",
    b"\x08\x08\x08", b"", b"/", b"//", b"a/../../b",
]  # fmt: skip


def name(room: Room, random: Random) -> Run:
    """A hostile name of a photo, a model, an output or a command."""
    hostile = random.choice(NAMES)
    place = random.choice(["photo", "missing photo", "model", "hub", "output", "command", "show", "completions"])
    photo = room.photo()
    what = f"{place} {hostile!r}"
    words = [*SHORT, "--json"]
    # After a bare `--`, all words that follow are photos.
    named = b"./--" if hostile == b"--" else hostile
    if place == "photo" and b"/" not in hostile and hostile not in (b"", b".", b"..") and len(hostile) < 256:
        room.write(hostile, photo.read_bytes())
        return clip(room, named, what)
    match place:
        case "photo" | "missing photo":
            return clip(room, named, what)
        case "model" | "hub":
            model = hostile if place == "model" else b"owner/" + hostile + b"@" + random.choice(NAMES)
            command = ["generate", photo.name, "--model", model, "-o", "clip.y4m", *words]
            return Run(what, command, outputs=["clip.y4m"], json=True)
        case "output":
            output = hostile + random.choice([b".y4m", b".png", b".gif", b"", b".avi"])
            if set(output) == {ord("/")}:
                # The video would be written there, and there is nobody to clear it away.
                output += b"missing/"
            # Without what leads nowhere: `./..png` is the file `..png`.
            path = PurePosixPath(os.fsdecode(output))
            stem = path.name.removesuffix(".png")
            beside = [f".{path.name}.kinora", *[f"{stem}-{number:04}.png" for number in (1, 2)]]
            # A folder gets a video of the photo's name.
            video_in_folder = [f"{photo.stem}.mp4"] if output in (b".", b"..", b"./.") else []
            names = [str(path), *video_in_folder, *[str(path.parent / name) for name in beside]]
            video = hostile == b"-" and output == b"-"
            command = ["generate", photo.name, "--model", room.supplies.model, "-o", output, *words]
            return Run(what, command, outputs=names, json=not video, video_on_stdout=video)
        case "show":
            # Before the name: after a bare `--`, it would be a name itself.
            return Run(what, ["profile", "show", "--json", hostile], json=True)
        case "completions":
            return Run(what, ["completions", hostile])
        case _:
            # Some of them are options that print the help.
            return Run(what, [hostile])

"""Places to write to that hold something, or nothing can be written to."""

from __future__ import annotations

import os
from random import Random

from room import FORMATS, SHORT, Room
from run import Run

from .clip import clip, frames


def output(room: Room, random: Random) -> Run:
    """An output that exists, is an input, a link, a folder or a device, or has numbered neighbours."""
    places = [existing, own_input, neighbours, link, folder, device, read_only, model_file, report]
    return random.choice(places)(room, random)


def forced(random: Random) -> list[str]:
    return random.choice([[], ["--force"]])


def existing(room: Room, random: Random) -> Run:
    ending = random.choice(FORMATS)
    photo = room.photo()
    names = frames("clip") if ending == "png" else [f"clip.{ending}"]
    for name in names[: random.choice([1, 2])]:
        room.write(name, b"mine")
    force = forced(random)
    # Without --force a file that is there stays.
    code = 0 if force else 1
    return clip(room, photo.name, f"an existing .{ending}", ending=ending, words=force, good=True, exit=code)


def own_input(room: Room, random: Random) -> Run:
    """The output is the photo, or one of the pictures is."""
    ending = random.choice(["gif", "png"])
    name = "clip-0001.png" if ending == "png" else "clip.gif"
    source = room.supplies.photo if ending == "png" else next(p for p in room.supplies.photos if p.suffix == ".gif")
    room.write(name, source.read_bytes())
    through = random.choice(["same", "link", "hard link", "dot"])
    photo = name
    if through == "link":
        (room.path / "other").symlink_to(name)
        photo = "other"
    elif through == "hard link":
        os.link(room.path / name, room.path / "other")
        photo = "other"
    elif through == "dot":
        photo = f"./{name}"
    run = clip(room, photo, f"the output is the photo ({through})", ending=ending, words=forced(random))
    if through != "hard link":
        # Never an input, whatever --force says.
        run.outputs = [other for other in run.outputs if other != name]
    return run


def neighbours(room: Room, random: Random) -> Run:
    """Numbered pictures of somebody else."""
    photo = room.photo()
    for number in random.sample(range(30), 6):
        room.write(f"clip-{number:04}.png", b"mine")
    for other in ("clip-1.png", "clip-00001.png", "clip-0001.jpg", "clip.png", ".clip-0003.png"):
        room.write(other, b"mine")
    return clip(room, photo.name, "numbered neighbours", ending="png", words=forced(random))


def link(room: Room, random: Random) -> Run:
    """The output is a link: to a file, to nothing, to itself or to another folder."""
    ending = random.choice(["gif", "y4m", "mp4"])
    photo = room.photo()
    target = random.choice(["mine.txt", "nothing", f"clip.{ending}", "/dev/null", "/dev/full", "photo.png"])
    room.write("mine.txt", b"mine")
    (room.path / f"clip.{ending}").symlink_to(target)
    run = clip(room, photo.name, f"a link to {target}", ending=ending, words=forced(random))
    if target in ("mine.txt", "nothing"):
        # Whether a link is replaced or followed, it was named with --force.
        run.outputs += [target]
    return run


def folder(room: Room, random: Random) -> Run:
    photo = room.photo()
    ending = random.choice(FORMATS)
    name = random.choice([f"clip.{ending}", "clip-0001.png"])
    (room.path / name).mkdir()
    room.write(f"{name}/mine", b"mine")
    run = clip(room, photo.name, f"a folder {name}", ending=ending, words=forced(random))
    run.outputs = [other for other in run.outputs if other != name]
    return run


def device(room: Room, random: Random) -> Run:
    photo = room.photo()
    target = random.choice(["/dev/full", "/dev/null", "/dev/stdout", "/proc/self/mem", "/dev/fd/9", "/nothing/clip"])
    words = ["generate", photo.name, "--model", room.supplies.model, "-o", target, "--json", *SHORT]
    return Run(f"to {target}", [*words, *forced(random)], video_on_stdout=target == "/dev/stdout")


def read_only(room: Room, random: Random) -> Run:
    """A folder or a file that must not be written to. Root may write there all the same."""
    photo = room.photo()
    (room.path / "locked").mkdir()
    room.write("locked/clip.y4m", b"mine")
    (room.path / "locked/clip.y4m").chmod(0o400)
    (room.path / "locked").chmod(0o500)
    return clip(room, photo.name, "a folder that is read-only", stem="locked/clip", words=forced(random))


def model_file(room: Room, random: Random) -> Run:
    """The output lies within the model's folder, or is one of its files under another name."""
    photo = room.photo()
    model = room.model()
    name = random.choice(["model/clip.y4m", "model/unet/clip.gif", "model/link.mp4"])
    if name == "model/link.mp4":
        (model / "link.mp4").symlink_to("unet/config.json")
    stem, ending = name.rsplit(".", 1)
    words = forced(random)
    return clip(room, photo.name, f"into the model: {name}", ending=ending, stem=stem, model="model", words=words)


def report(room: Room, random: Random) -> Run:
    """The files that other commands write."""
    saved = room.write("profile.json", room.supplies.profile)
    option = random.choice(["--html", "--trace"])
    target = random.choice(["out.html", "profile.json", "mine", "folder", "missing/out", "/dev/full"])
    room.write("mine", b"mine")
    (room.path / "folder").mkdir()
    words = ["profile", "show", saved.name, option, target, "--json", *forced(random)]
    # An input that is named as an output with --force is the user's own doing; all else stays.
    outputs = {"out.html": ["out.html"], "mine": ["mine"], "profile.json": ["profile.json"]}.get(target, [])
    return Run(f"{option} {target}", words, outputs=outputs, json=True)

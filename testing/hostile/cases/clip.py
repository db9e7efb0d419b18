"""The command that most cases give."""

from __future__ import annotations

from pathlib import Path

from room import Room, clip_words
from run import Run


def clip(room: Room, photo: str | bytes | Path, what: str, ending: str = "y4m", stem: str = "clip", **more) -> Run:
    """A short clip of a photo by the small model, as JSON. `model` and `words` change and add to the command line."""
    model = more.pop("model", None) or room.supplies.model
    words = more.pop("words", [])
    output = f"{stem}.{ending}"
    names = frames(stem) if ending == "png" else [output]
    good = more.pop("good", None)
    if good:
        more["good"] = dict(zip(names, room.supplies.clips[ending], strict=True))
    command = [*clip_words(photo, model, output), *words]
    # Numbered pictures have a hidden list of themselves.
    lists = [f".{output}.kinora"] if ending == "png" else []
    return Run(what, command, outputs=[*names, *lists], json=True, **more)


def frames(stem: str) -> list[str]:
    """The numbered pictures of the short clip."""
    return [f"{stem}-{number:04}.png" for number in (1, 2)]

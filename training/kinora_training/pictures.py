"""Makes the README's pictures of the model in the box from what `kinora generate` writes: a strip and a GIF.

Usage:

    python -m kinora_training.pictures --kinora ../target/release/kinora --stills ../crates/box/stills --out ../docs
"""

import argparse
import pathlib
import subprocess
import tempfile

from PIL import Image

# For each still, the seed of the clip that is shown.
SHOWN = {"flyer": 1, "creature": 1, "trio": 1, "night": 1, "walker": 1, "pair": 1}
STRIP_FRAMES = (0, 3, 6, 9, 13)
GAP = 4


def clip(kinora, still, seed):
    """The frames of a clip."""
    with tempfile.TemporaryDirectory() as folder:
        frames = pathlib.Path(folder) / "frame.png"
        subprocess.run([kinora, "generate", still, "-o", frames, "--seed", str(seed), "--quiet"], check=True)
        return [Image.open(path).copy() for path in sorted(frames.parent.glob("frame-*.png"))]


def sheet(rows):
    """Pictures in rows, with gaps between them, on white."""
    width, height = rows[0][0].size
    columns = max(len(row) for row in rows)
    result = Image.new("RGB", (columns * (width + GAP) - GAP, len(rows) * (height + GAP) - GAP), "white")
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            result.paste(picture, (x * (width + GAP), y * (height + GAP)))
    return result


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kinora", required=True, help="the program")
    arguments.add_argument("--stills", type=pathlib.Path, required=True)
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments = arguments.parse_args()
    clips = [clip(arguments.kinora, arguments.stills / f"{name}.png", seed) for name, seed in SHOWN.items()]
    strip = sheet([[frames[at] for at in STRIP_FRAMES] for frames in clips])
    strip.save(arguments.out / "box.png", optimize=True)
    across = len(clips) // 2
    moments = [
        sheet([[frames[at] for frames in clips[:across]], [frames[at] for frames in clips[across:]]])
        for at in range(len(clips[0]))
    ]
    # One palette for all: with one for each, colours would change from frame to frame.
    colours = sheet([[moment] for moment in moments]).quantize(256, kmeans=8)
    reduced = [moment.quantize(palette=colours, dither=Image.Dither.FLOYDSTEINBERG) for moment in moments]
    # Forwards and backwards, so that it loops.
    reduced += reduced[-2:0:-1]
    reduced[0].save(arguments.out / "box.gif", save_all=True, append_images=reduced[1:], duration=143, loop=0)


if __name__ == "__main__":
    main()

"""The model card: text with figures from evaluation and training, none typed by hand."""

import argparse
import json
import pathlib

from .. import flops
from ..networks import configurations as sizes
from . import exported

TEMPLATE = pathlib.Path(__file__).resolve().parent / "model_card.md"


def told(runs):
    """The runs of a training, as sentences."""
    sentences = []
    for run in runs:
        first, last = run["first_clip"], run["first_clip"] + run["clips"] - 1
        part = "the decoder of the autoencoder" if sentences else "the autoencoder"
        sentences.append(
            f"{'Then o' if sentences else 'O'}n one {run['device']}, on clips {first:,} to {last:,}: {part} for "
            f"{run['autoencoder_minutes']:g} minutes, and after it UNet and image encoder together for "
            f"{run['unet_minutes']:g} minutes" + (f", by the code of commit {run['commit']}." if run["commit"] else ".")
        )
    return "\n".join(sentences)


def fields(results, runs):
    rows = flops.table()
    promises = "\n".join(f"| {name} | {'yes' if kept else 'no'} |" for name, kept in results["passes"].items())
    motion = results["motion"]["pixels_per_frame"]
    parameters = sum(row[1] for row in rows)
    return dict(
        parameters=f"{parameters / 1e6:.1f}",
        mebibytes=f"{parameters / 2**19:.1f}",
        gigaflop=f"{sum(row[2] * row[3] for row in rows) / 1e9:.0f}",
        networks="\n".join(f"| {name} | {count:,} | {runs} | {flop / 1e9:.1f} |" for name, count, runs, flop in rows),
        frames=sizes.FRAMES,
        side=sizes.SIDE,
        steps=results["steps"],
        guidance="{} to {}".format(*results["guidance"]),
        measured_bucket=results["motion_bucket"],
        default_bucket=sizes.MOTION_BUCKET,
        training=told(runs),
        evaluated=results["clips"],
        of_each_kind=results["clips"] // 3,
        precision=results["precision"],
        reconstruction=f"{results['autoencoder']['first_frame_psnr']:.1f}",
        all_frames=f"{results['autoencoder']['all_frames_psnr']:.1f}",
        first_frame=f"{results['first_frame_psnr']:.1f}",
        slope=f"{results['sharpness']['slope']:.3f}",
        laplacian=f"{results['sharpness']['laplacian']:.3f}",
        flicker=f"{results['flicker']:.3f}",
        hatching=f"{results['hatching']:.2f}",
        colours=f"{100 * results['colours']['furthest']:.1f}",
        drift=f"{255 * results['colour_drift']['generated']:.1f}",
        data_drift=f"{255 * results['colour_drift']['data']:.1f}",
        kept=f"{100 * results['sprites']['kept']:.0f}",
        kept_in_data=f"{100 * results['sprites']['kept_in_data']:.0f}",
        motion="\n".join(
            f"| {bucket} | {results['motion']['expected'][bucket]:.2f} | {speed:.2f} |"
            for bucket, speed in motion.items()
        ),
        motion_range=f"{results['motion']['range']:.1f}",
        seeds=f"{255 * results['seeds']['mean_difference_of_last_frames']:.1f}",
        promises=promises,
    )


def write(path, results, runs):
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, value in fields(results, runs).items():
        text = text.replace("{{" + name + "}}", str(value))
    path.write_text(text, encoding="utf-8")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--evaluation", type=pathlib.Path, required=True, help="what evaluate.py wrote")
    arguments.add_argument(
        "--model", type=pathlib.Path, required=True, help="the folder that it is of, which gets the card"
    )
    arguments = arguments.parse_args()
    results = json.loads(arguments.evaluation.read_text(encoding="utf-8"))
    write(arguments.model / "README.md", results, exported.history(arguments.model))


if __name__ == "__main__":
    main()

"""Measures an exported model on clips that it was never trained on, and writes figures and picture strips.

    python -m kinora_training.evaluate --model FOLDER --out FOLDER

Everything goes through diffusers' own pipeline, loaded from the folder, with its defaults except for steps and
guidance.
"""

import argparse
import itertools
import json
import pathlib
import time

import torch
from PIL import Image

from .data import motion
from .data.clips import HELD_OUT, Clips
from .evaluation import metrics, strips
from .model import export
from .networks import configurations as sizes
from .stages import autoencoder
from .stages.losses import psnr

BUCKETS = (16, 32, 64, 127, 255)
SEEDS = 4


class Model:
    """The pipeline, called for many clips at a time."""

    def __init__(self, folder, device, dtype, steps, batch, guidance):
        self.pipeline = export.load(folder, device, dtype)
        self.steps, self.batch, self.guidance = steps, batch, guidance

    def clips(self, stills, seeds, bucket=sizes.MEASURED_BUCKET, fps=sizes.FPS):
        """Clips for stills `[n, 3, height, width]` from 0 to 1: `[n, frames, 3, height, width]`."""
        pictures = [Image.fromarray(picture) for picture in strips.to_bytes(stills)]
        made = []
        for start in range(0, len(pictures), self.batch):
            part = pictures[start : start + self.batch]
            generators = [torch.Generator().manual_seed(seed) for seed in seeds[start : start + self.batch]]
            made += [
                self.pipeline(
                    part,
                    height=sizes.SIDE,
                    width=sizes.SIDE,
                    num_inference_steps=self.steps,
                    generator=generators,
                    motion_bucket_id=bucket,
                    fps=fps,
                    min_guidance_scale=self.guidance[0],
                    max_guidance_scale=self.guidance[1],
                    output_type="pt",
                ).frames.float()
            ]
        return torch.cat(made)


def relative(ours, theirs):
    return (ours / theirs).item() if torch.is_tensor(ours) else ours / theirs


def held_out_clips(clips, count, scene, chunk=48):
    """Held-out clips of one kind of scene, in bytes as a file would have them."""
    offset = {"sprites": 1 << 20, "camera": 1 << 21, "landscape": 1 << 22}[scene]
    parts = [
        clips.make(range(HELD_OUT + offset + start, HELD_OUT + offset + min(start + chunk, count)), scene=scene)
        for start in range(0, count, chunk)
    ]
    frames = torch.cat([(part.frames * 255).round() / 255 for part in parts])
    return frames, *(torch.cat([getattr(part, name) for part in parts]) for name in ("colours", "radius", "bucket"))


def evaluate(folder, out, device, dtype, count=48, steps=sizes.STEPS, batch=32, buckets=BUCKETS, guidance=None):
    start = time.perf_counter()
    guidance = guidance or (sizes.MIN_GUIDANCE, sizes.MAX_GUIDANCE)
    clips = Clips(device)
    model = Model(folder, device, dtype, steps, batch, guidance)
    results = dict(
        clips=3 * count,
        motion_bucket=sizes.MEASURED_BUCKET,
        steps=steps,
        guidance=list(guidance),
        precision=str(dtype).removeprefix("torch."),
    )
    vae = model.pipeline.vae
    results["autoencoder"] = autoencoder.held_out(vae, clips, count)

    data, made, stills, details = [], [], [], {}
    for scene in ("sprites", "camera", "landscape"):
        frames, colours, radius, _ = held_out_clips(clips, count, scene)
        generated = model.clips(frames[:, 0], seeds=range(count))
        details[scene] = (frames, generated, colours, radius)
        data.append(frames)
        made.append(generated)
        stills.append(frames[:, 0])
    results["seconds_generating"] = time.perf_counter() - start
    real, ours, still = torch.cat(data), torch.cat(made), torch.cat(stills)
    results["first_frame_psnr"] = psnr(ours[:, 0], still).mean().item()
    results["last_frame_psnr_to_first"] = psnr(ours[:, -1], still).mean().item()

    slope, fine = metrics.sharpness(ours[:, 1:])
    real_slope, real_fine = metrics.sharpness(real[:, 1:])
    last_slope, last_fine = metrics.sharpness(ours[:, -3:])
    results["sharpness"] = dict(
        slope=relative(slope.mean(), real_slope.mean()),
        laplacian=relative(fine.mean(), real_fine.mean()),
        slope_of_last_three_frames=relative(last_slope.mean(), metrics.sharpness(real[:, -3:])[0].mean()),
        laplacian_of_last_three_frames=relative(last_fine.mean(), metrics.sharpness(real[:, -3:])[1].mean()),
    )
    results["flicker"] = relative(metrics.flicker(ours).mean(), metrics.flicker(real).mean())
    results["hatching"] = relative(metrics.hatching(ours).mean(), metrics.hatching(real).mean())
    own, theirs = metrics.colour_statistics(ours[:, 1:]), metrics.colour_statistics(real[:, 1:])
    results["colours"] = {name: relative(own[name], theirs[name]) for name in own}
    results["colours"]["furthest"] = max(abs(value - 1) for value in results["colours"].values())
    results["colour_drift"] = dict(
        generated=metrics.colour_drift(ours).mean().item(), data=metrics.colour_drift(real).mean().item()
    )

    frames, generated, colours, radius = details["sprites"]
    kept, judged = metrics.sprites_kept(generated, frames[:, 0], colours, radius)
    data_kept, _ = metrics.sprites_kept(frames, frames[:, 0], colours, radius)
    results["sprites"] = dict(
        clips=int(judged.sum()),
        kept=kept[judged].float().mean().item() if judged.any() else 0.0,
        kept_in_data=data_kept[judged].float().mean().item() if judged.any() else 0.0,
    )

    some = max(1, count // 4)
    chosen = torch.cat([details[scene][0][:some, 0] for scene in details])
    sweep, rows = {}, []
    for bucket in buckets:
        moved = model.clips(chosen, seeds=range(len(chosen)), bucket=bucket)
        sweep[bucket] = motion.displacement(moved).mean().item()
        rows.append(moved[[0, some, 2 * some]])
    speeds = list(sweep.values())
    results["motion"] = dict(
        pixels_per_frame={str(bucket): speed for bucket, speed in sweep.items()},
        expected={str(bucket): bucket / 127 * motion.PIXELS_AT_127 for bucket in buckets},
        monotonic=all(low < high for low, high in itertools.pairwise(speeds)),
        range=speeds[-1] / max(speeds[0], 1e-6),
    )
    several = [model.clips(chosen[:some], seeds=[1000 * seed + i for i in range(some)]) for seed in range(SEEDS)]
    last = torch.stack(several)[:, :, -1]
    pairs = [(last[a] - last[b]).abs().mean((1, 2, 3)) for a in range(SEEDS) for b in range(a)]
    results["seeds"] = dict(
        mean_difference_of_last_frames=torch.stack(pairs).mean().item(),
        least_difference_of_last_frames=torch.stack(pairs).min().item(),
        difference_from_first_frame=(last - chosen[None, :some]).abs().mean().item(),
    )
    results["passes"] = passes(results)
    results["seconds"] = time.perf_counter() - start
    pictures(out, details, rows, several, some)
    (out / "evaluation.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1), flush=True)
    return results


def passes(results):
    """Each of the model's promises, and whether the model keeps it."""
    sharp = results["sharpness"]
    return {
        "first frame of the autoencoder at 30 dB or more": results["autoencoder"]["first_frame_psnr"] >= 30,
        "first frame of the clip at 30 dB or more": results["first_frame_psnr"] >= 30,
        "sharpness within 10 % of the data's": abs(sharp["slope"] - 1) <= 0.1 and abs(sharp["laplacian"] - 1) <= 0.1,
        "no more hatching than 1.1 of the data's": results["hatching"] <= 1.1,
        "colours within 10 % of the data's": results["colours"]["furthest"] <= 0.1,
        "sprites kept in 90 % of clips or more": results["sprites"]["kept"] >= 0.9,
        "motion grows with the bucket, over 4 times or more": results["motion"]["monotonic"]
        and results["motion"]["range"] >= 4,
        "seeds differ by 3/255 or more": results["seeds"]["mean_difference_of_last_frames"] >= 3 / 255,
    }


def pictures(out, details, rows, several, some):
    """Strips: for each kind of scene a held-out clip above what is generated from its first frame; buckets; seeds."""
    columns = torch.tensor([0, 2, 4, 6, 8, 10, 12, 13])
    for scene, (frames, generated, *_) in details.items():
        shown = [clip for pair in zip(frames[:6], generated[:6], strict=True) for clip in pair]
        strips.write(out / f"generated-{scene}.png", shown, columns=columns)
    shown = [clip for which in range(len(rows[0])) for clip in (row[which] for row in rows)]
    shown += [several[seed][which] for which in range(min(2, some)) for seed in range(SEEDS)]
    strips.write(out / "generated-buckets-and-seeds.png", shown, columns=columns)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--model", type=pathlib.Path, required=True)
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--precision", choices=("f32", "f16"), help="f16 on a GPU, f32 elsewhere")
    arguments.add_argument("--clips", type=int, default=48, help="of each kind of scene")
    arguments.add_argument("--steps", type=int, default=sizes.STEPS)
    arguments.add_argument(
        "--guidance", type=float, nargs=2, metavar=("FIRST", "LAST"), help="of the first and last frame"
    )
    arguments = arguments.parse_args()
    if not (arguments.model / "model_index.json").is_file():
        raise SystemExit(f"{arguments.model} is no model's folder: it has no model_index.json")
    precision = arguments.precision or ("f16" if arguments.device.startswith("cuda") else "f32")
    arguments.out.mkdir(parents=True, exist_ok=True)
    dtype = {"f32": torch.float32, "f16": torch.float16}[precision]
    evaluate(
        arguments.model,
        arguments.out,
        arguments.device,
        dtype,
        arguments.clips,
        arguments.steps,
        guidance=tuple(arguments.guidance) if arguments.guidance else None,
    )


if __name__ == "__main__":
    main()

"""Trains the model in the box on painted clips alone, and writes it as a diffusers folder, with its evaluation.

    python -m kinora_training.train --out FOLDER

    python -m kinora_training.train --out FOLDER --from-model MODEL

continues from a model that it wrote earlier: the encoder stays frozen, so that latents mean the same, and the other
networks train further.

If a run is stopped, by --stop-after or otherwise, give the same command again to resume it: checkpoints are kept in
--work. --smoke runs every stage for a few steps on a CPU.
"""

import argparse
import dataclasses
import functools
import os
import pathlib
import time

from .host import add_packages

START = time.perf_counter()
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@dataclasses.dataclass
class Settings:
    """What the stages need to know."""

    dtype: object
    deadline: float
    autoencoder_seconds: float
    unet_seconds: float
    autoencoder_batch: int
    unet_batch: int
    unet_rate: float
    first_clip: int
    clips: int
    exported: pathlib.Path | None = None
    finish: bool = False
    painted_at_once: int = 512
    encode_batch: int = 64
    measured_clips: int = 64
    report_every: int = 200
    save_seconds: float = 60.0
    graph: bool = True
    smoke_steps: int | None = None


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The description as it stands, and every option with its default."""


def parsed():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=Help)
    arguments.add_argument(
        "--out", type=pathlib.Path, required=True, help="where the model, its evaluation and pictures go"
    )
    arguments.add_argument(
        "--work", type=pathlib.Path, help="where checkpoints are kept, gigabytes of them; OUT/work unless given"
    )
    arguments.add_argument(
        "--from-model", type=pathlib.Path, metavar="MODEL", help="a model of an earlier run, to continue from"
    )
    arguments.add_argument("--vae-minutes", type=float, default=3.2)
    arguments.add_argument("--unet-minutes", type=float, default=14.5)
    arguments.add_argument(
        "--stop-after", type=float, default=1e6, help="minutes of this run, after which training stops"
    )
    arguments.add_argument(
        "--finish",
        action="store_true",
        help="fit the rest of the UNet's training into this run, shorter or longer",
    )
    arguments.add_argument("--clips", type=int, default=38400, help="number of clips to paint and train on")
    arguments.add_argument("--first-clip", type=int, default=0, help="number of the first clip")
    arguments.add_argument("--vae-batch", type=int, default=42, help="frames; at least one clip's")
    arguments.add_argument("--unet-batch", type=int, default=32, help="clips")
    arguments.add_argument("--unet-rate", type=float, default=2e-3, help="peak learning rate of the UNet")
    arguments.add_argument("--device", default=None)
    arguments.add_argument("--no-graph", action="store_true", help="launch kernels one by one")
    arguments.add_argument("--no-evaluation", action="store_true")
    arguments.add_argument("--evaluated", type=int, default=48, help="held-out clips of each kind of scene")
    arguments.add_argument("--smoke", action="store_true", help="a few steps of everything")
    arguments.add_argument(
        "--packages", default=None, type=pathlib.Path, help="the folder of packages.tar.xz, where packages are missing"
    )
    parsed = arguments.parse_args()
    if parsed.finish and parsed.stop_after >= 1e6:
        arguments.error("--finish needs --stop-after")
    return parsed


def minutes(checkpoint):
    """The minutes that a stage has been trained for, in all runs."""
    from .optimisation.checkpoints import load

    return round(load(checkpoint, "cpu")["elapsed"] / 60, 1)


def main():
    arguments = parsed()
    add_packages(arguments.packages)
    import diffusers
    import torch
    import transformers

    # Neither prints anything that a reader of this run could act on.
    for library in (diffusers.utils, transformers.utils):
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()

    from . import evaluate
    from .data.clips import Clips
    from .data.pool import Pool
    from .model import export, exported, model_card
    from .optimisation.checkpoints import belong
    from .stages import autoencoder, diffusion, latents

    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.startswith("cuda")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    # Trying all algorithms of an operation takes longer than the last ones save.
    torch.backends.cudnn.benchmark_limit = 5
    settings = Settings(
        dtype=torch.bfloat16 if on_gpu else torch.float32,
        deadline=START + 60 * arguments.stop_after,
        autoencoder_seconds=60 * arguments.vae_minutes,
        unet_seconds=60 * arguments.unet_minutes,
        autoencoder_batch=arguments.vae_batch,
        unet_batch=arguments.unet_batch,
        unet_rate=arguments.unet_rate,
        first_clip=arguments.first_clip,
        clips=arguments.clips,
        exported=arguments.from_model,
        finish=arguments.finish,
        graph=not arguments.no_graph,
    )
    if arguments.smoke:
        settings = dataclasses.replace(
            settings,
            autoencoder_batch=2,
            unet_batch=2,
            clips=4,
            painted_at_once=4,
            encode_batch=2,
            measured_clips=2,
            report_every=1,
            smoke_steps=4,
        )
    out = arguments.out
    work = arguments.work or out / "work"
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    where = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"PyTorch {torch.__version__} on {where}, {time.perf_counter() - START:.1f} s after the start", flush=True)

    runs = exported.history(settings.exported)
    model = None if settings.exported is None else str(settings.exported.resolve())
    belong(work, dict(model=model, first_clip=settings.first_clip, clips=settings.clips))
    clips = Clips(device)
    # Painted on first use: a run that resumes with the UNet needs no clips.
    pool = functools.cache(lambda: Pool(clips, settings.first_clip, settings.clips, settings.painted_at_once, out))
    if not autoencoder.train(clips, pool, work, out, settings):
        return stopped("the autoencoder")
    data = latents.read(work, settings.first_clip, settings.clips, clips.device, out)
    if data is None:
        vae = autoencoder.trained(work, clips.device, torch.float16 if on_gpu else torch.float32)
        data = latents.make(vae, pool(), work, out, settings.encode_batch)
    pool.cache_clear()
    finished = diffusion.train(data, clips.device, work, out, settings)
    del data
    folder = out / "model"
    runs.append(
        dict(
            commit=exported.commit(),
            device=where,
            first_clip=settings.first_clip,
            clips=settings.clips,
            autoencoder_minutes=minutes(work / "autoencoder.pt"),
            unet_minutes=minutes(work / "unet.pt"),
        )
    )
    weights = export.write(work, folder)
    exported.write_history(folder, runs)
    print(f"{folder}: {weights / 2**20:.2f} MiB of weights", flush=True)
    if not finished:
        print("the UNet is not finished; what follows is its present state", flush=True)
    if not arguments.no_evaluation:
        torch.backends.cudnn.benchmark = False
        evaluated = arguments.evaluated if finished else max(1, arguments.evaluated // 4)
        count, steps, batch = (2, 2, 2) if arguments.smoke else (evaluated, evaluate.sizes.STEPS, 48)
        buckets = (32, 127) if arguments.smoke else evaluate.BUCKETS
        dtype = torch.float16 if on_gpu else torch.float32
        results = evaluate.evaluate(folder, out, device, dtype, count, steps, batch, buckets)
        model_card.write(folder / "README.md", results, runs)
    print(f"done after {time.perf_counter() - START:.0f} s", flush=True)
    return None if finished else stopped("the UNet")


def stopped(stage):
    print(f"stopped in {stage}; give the same command again to resume", flush=True)


if __name__ == "__main__":
    main()

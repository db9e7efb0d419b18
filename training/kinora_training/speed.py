"""Times training steps of both networks, and the painting of clips.

Usage:

    python -m kinora_training.speed
    python -m kinora_training.speed --profile      # also lists the kernels that a step spends its time in
"""

import argparse
import json
import os
import pathlib
import time

from .host import add_packages

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def timed(torch, step, inputs, repeats):
    """Seconds of preparation, and of one step after it."""
    start = time.perf_counter()
    for _ in range(6):
        step(**inputs)
    torch.cuda.synchronize()
    ready = time.perf_counter()
    for _ in range(repeats):
        step(**inputs)
    torch.cuda.synchronize()
    return ready - start, (time.perf_counter() - ready) / repeats


def profile(torch, step, inputs, longest=40):
    """Prints the kernels of a step, sorted by the total time of their launches."""
    for _ in range(3):
        step(**inputs)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        step(**inputs)
        torch.cuda.synchronize()
    rows = [(row.device_time_total / 1e3, row.count, row.key) for row in profiler.key_averages()]
    print(f"{sum(row[0] for row in rows):.1f} ms in {sum(row[1] for row in rows)} launches", flush=True)
    for milliseconds, count, name in sorted(rows, reverse=True)[:longest]:
        print(f"{milliseconds:8.2f} ms {count:5} {name[:150]}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--unet-batch", type=int, default=32)
    arguments.add_argument("--vae-batch", type=int, default=42, help="frames")
    arguments.add_argument("--profile", action="store_true", help="lists the kernels that a step spends its time in")
    arguments.add_argument("--only", default="", choices=("unet", "vae"), help="times the steps of one network")
    arguments.add_argument("--json", type=pathlib.Path)
    arguments.add_argument("--packages", type=pathlib.Path)
    arguments = arguments.parse_args()
    add_packages(arguments.packages)
    import torch

    from .data.clips import Clips
    from .networks import configurations as sizes
    from .networks import fast_layers
    from .optimisation.optimiser import Step, Weights
    from .stages import autoencoder, diffusion

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    results = {}

    def report(name, **values):
        results[name] = values
        print(name + ": " + ", ".join(f"{key} {value:.4g}" for key, value in values.items()), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    batch, side, frames = arguments.unet_batch, sizes.LATENT_SIDE, sizes.FRAMES
    latents = torch.randn(batch, frames, sizes.LATENT_CHANNELS, side, side, device="cuda").half()
    pictures = torch.randint(256, (batch, 3, sizes.SIDE, sizes.SIDE), device="cuda", dtype=torch.uint8)
    ids = torch.tensor([[6.0, 127.0, 0.02]], device="cuda").repeat(batch, 1)
    unet_inputs = dict(latents=latents, image=latents[:, 0].clone(), picture=pictures, ids=ids)

    def unet_step():
        unet, encoder = sizes.unet().cuda(), sizes.image_encoder().cuda()
        weights = Weights(
            dict(unet=unet, image_encoder=encoder), diffusion.WEIGHT_DECAY, diffusion.AVERAGED, diffusion.by_muon
        )
        weights.networks_to(torch.bfloat16)
        fast_layers.lay_out(unet)
        weights.schedule(1e-5)
        return weights, diffusion.train_step(unet, encoder, weights), unet_inputs, batch

    def vae_step(frames):
        vae = fast_layers.speed_up(sizes.autoencoder().cuda())
        fast_layers.leave_out_time(vae, frames == 1)
        pictures = torch.rand(arguments.vae_batch // frames, frames, 3, sizes.SIDE, sizes.SIDE, device="cuda") * 2 - 1
        weights = Weights(dict(vae=vae), autoencoder.WEIGHT_DECAY, autoencoder.AVERAGED)
        weights.networks_to(torch.bfloat16)
        weights.schedule(1e-5)
        return weights, autoencoder.train_step(vae, weights), dict(frames=pictures), pictures.shape[0] * frames

    steps = [
        ("unet", "clips_per_second", unet_step),
        ("vae, single frames", "images_per_second", lambda: vae_step(1)),
        ("vae, whole clips", "images_per_second", lambda: vae_step(sizes.FRAMES)),
    ]
    if not arguments.only:
        clips = Clips("cuda")
        for count in (96, 512):
            clips.make(range(count))
            torch.cuda.synchronize()
            start = time.perf_counter()
            clips.make(range(count, 2 * count))
            torch.cuda.synchronize()
            report(f"painting {count} clips", clips_per_second=count / (time.perf_counter() - start))
    for name, unit, make in (step for step in steps if arguments.only in step[0]):
        torch.manual_seed(0)
        weights, function, inputs, count = make()
        preparation, seconds = timed(torch, Step(function, weights), inputs, 10)
        memory = torch.cuda.max_memory_allocated() / 2**30
        report(name, **{unit: count / seconds}, step_ms=1e3 * seconds, preparation_s=preparation, peak_gib=memory)
        if arguments.profile:
            profile(torch, Step(function, weights, graph=False), inputs)
        weights = function = None
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()

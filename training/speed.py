"""Times training steps of both networks in every arrangement, and the painting of clips, to choose train.py's options by.

    python training/speed.py --minutes 2.5

What is slow to prepare, torch.compile, comes last; nothing new is begun once the minutes are over.
"""

import argparse
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench" / "peers"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def timed(torch, step, inputs, repeats):
    """Seconds of preparation, and of a step after it."""
    start = time.perf_counter()
    for _ in range(6):
        step(**inputs)
    torch.cuda.synchronize()
    ready = time.perf_counter()
    for _ in range(repeats):
        step(**inputs)
    torch.cuda.synchronize()
    return ready - start, (time.perf_counter() - ready) / repeats


def profile(torch, step, inputs, longest=60):
    """Prints the kernels of a step, by the time of all their launches."""
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
    arguments.add_argument("--minutes", type=float, default=2.5)
    arguments.add_argument("--unet-batch", type=int, default=32)
    arguments.add_argument("--vae-batch", type=int, default=42, help="frames")
    arguments.add_argument("--profile", action="store_true", help="lists the kernels that a step of the UNet spends its time in instead")
    arguments.add_argument("--json", type=pathlib.Path)
    arguments.add_argument("--packages", type=pathlib.Path)
    arguments = arguments.parse_args()
    deadline = time.perf_counter() + 60 * arguments.minutes
    if arguments.packages is not None:
        import host_packages

        host_packages.import_libraries(host_packages.make_importable("missing", arguments.packages))
    import torch

    import autoencoder
    import configurations as sizes
    import diffusion
    import fast_layers
    from clips import Clips
    from optimiser import Step, Weights

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

    def unet_step(graph, last, compiled):
        unet, encoder = sizes.unet().cuda(), sizes.image_encoder().cuda()
        fast_layers.speed_up(unet, compiled)
        weights = Weights(dict(unet=unet, image_encoder=encoder), 1e-2, 0.08)
        weights.networks_to(torch.bfloat16)
        if last:
            unet.to(memory_format=torch.channels_last)
        weights.schedule(1e-5)
        return Step(diffusion.train_step(unet, encoder, weights), weights, graph), unet_inputs, batch, "clips_per_second"

    def vae_step(graph, last, compiled, frames=1):
        vae = sizes.autoencoder().cuda()
        fast_layers.speed_up(vae, compiled)
        fast_layers.leave_out_time(vae, frames == 1)
        pictures = torch.rand(arguments.vae_batch // frames, frames, 3, sizes.SIDE, sizes.SIDE, device="cuda") * 2 - 1
        weights = Weights(dict(vae=vae), 1e-3, 0.06)
        weights.networks_to(torch.bfloat16)
        if last:
            vae.to(memory_format=torch.channels_last)
        weights.schedule(1e-5)
        step = Step(autoencoder.train_step(vae, weights), weights, graph)
        return step, dict(frames=pictures), pictures.shape[0] * frames, "images_per_second"

    if arguments.profile:
        step, inputs, _, _ = unet_step(False, False, False)
        profile(torch, step, inputs)
        return

    clips = Clips("cuda")
    for count in (96, 512):
        clips.make(range(count))
        torch.cuda.synchronize()
        start = time.perf_counter()
        clips.make(range(count, 2 * count))
        torch.cuda.synchronize()
        report(f"painting {count} clips", clips_per_second=count / (time.perf_counter() - start))

    arrangements = [
        ("unet, one by one", unet_step, (False, False, False)),
        ("unet, graph", unet_step, (True, False, False)),
        ("unet, graph, channels last", unet_step, (True, True, False)),
        ("vae, graph", vae_step, (True, False, False)),
        ("vae, graph, channels last", vae_step, (True, True, False)),
        ("vae, graph, whole clips", vae_step, (True, False, False, sizes.FRAMES)),
        ("unet, graph, compiled", unet_step, (True, False, True)),
        ("vae, graph, compiled", vae_step, (True, False, True)),
    ]
    for name, make, options in arrangements:
        if time.perf_counter() > deadline:
            print(f"{name}: no time left", flush=True)
            continue
        try:
            torch.manual_seed(0)
            step, inputs, count, unit = make(*options)
            preparation, seconds = timed(torch, step, inputs, 10)
            memory = torch.cuda.max_memory_allocated() / 2**30
            report(name, **{unit: count / seconds}, step_ms=1e3 * seconds, preparation_s=preparation, peak_gib=memory)
        except Exception as error:  # noqa: BLE001 - what does not work here is left out.
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
        step = None
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()

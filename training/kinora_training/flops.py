"""Prints what the networks weigh and compute, for a clip of the default size and steps.

Usage:

    python -m kinora_training.flops
"""

import torch
from torch.utils.flop_counter import FlopCounterMode

from .networks import configurations as sizes


def counted(run):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return counter.get_total_flops()


def table():
    """Rows of name, parameters, runs a clip, and FLOP of a run."""
    vae, unet, clip = (make().to("meta") for make in (sizes.autoencoder, sizes.unet, sizes.image_encoder))

    def empty(*shape):
        return torch.empty(*shape, device="meta")

    latents = (sizes.LATENT_CHANNELS, sizes.LATENT_SIDE, sizes.LATENT_SIDE)
    frames = sizes.FRAMES
    embedding, ids = empty(2, 1, sizes.EMBEDDING), empty(2, 3)
    step = counted(lambda: unet(empty(2, frames, 2 * latents[0], *latents[1:]), empty(2), embedding, ids))
    image = empty(1, 3, sizes.SIDE, sizes.SIDE)
    encode = counted(lambda: vae.encode(image))
    decode = counted(lambda: vae.decode(empty(frames, *latents), num_frames=frames))
    embed = counted(lambda: clip(empty(1, 3, sizes.CLIP_SIDE, sizes.CLIP_SIDE)))
    rest = sizes.parameter_count(vae) - sizes.parameter_count(vae.decoder)
    return [
        ("image encoder", sizes.parameter_count(clip), 1, embed),
        ("autoencoder's encoder", rest, 1, encode),
        ("UNet, guided", sizes.parameter_count(unet), sizes.STEPS, step),
        ("autoencoder's decoder", sizes.parameter_count(vae.decoder), 1, decode),
    ]


def main():
    rows = table()
    print(f"{'network':24}{'parameters':>12}{'MiB in f16':>12}{'runs':>6}{'GFLOP a run':>13}{'GFLOP in all':>14}")
    for name, parameters, runs, flop in rows:
        print(f"{name:24}{parameters:12,}{parameters / 2**19:12.2f}{runs:6}{flop / 1e9:13.1f}{runs * flop / 1e9:14.1f}")
    parameters, flop = sum(row[1] for row in rows), sum(row[2] * row[3] for row in rows)
    print(f"{'together':24}{parameters:12,}{parameters / 2**19:12.2f}{'':6}{'':13}{flop / 1e9:14.1f}")


if __name__ == "__main__":
    main()

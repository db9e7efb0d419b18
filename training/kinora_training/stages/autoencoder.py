"""Training the autoencoder: first on single frames, then on whole clips, as it will be used.

Its decoder sees all frames of a clip at once, in its temporal convolutions and in norms over all of them. These start
at zero, and are left out while training on single frames.

An autoencoder that continues from an exported model keeps its encoder, so that latents mean the same to the UNet, and
sees whole clips from the start.
"""

import math
import time

import torch
import torch.nn.functional as F

from ..data.clips import FRAMES, HELD_OUT
from ..evaluation import metrics, strips
from ..model import exported
from ..networks import configurations as sizes
from ..networks import fast_layers
from ..optimisation.checkpoints import Clock, Log, learning_rate, load, save
from ..optimisation.optimiser import Step, Weights
from . import beginning
from .losses import divergence, psnr, reconstruction

PEAK_RATE, WARM_UP, WEIGHT_DECAY = 3e-4, 300, 1e-3
# For a decoder that is already trained.
LATER_RATE = 1.5e-4
# Weight of the KL divergence of each latent number: keeps latents smooth enough for the UNet to predict.
DIVERGENCE_WEIGHT = 6e-4
# Weight of the scale-equivariance loss: latents at half size should decode to pictures at half size. Otherwise detail
# hides in differences between neighbouring latents, which the UNet would have to move along (Skorokhodov et al. 2025).
HALVED_WEIGHT = 0.25
# The part of the steps that the published weights are averaged over.
AVERAGED = 0.06
# The part of the time that is spent on single frames.
SINGLE_PART = 0.65
# Frames from which the autoencoder is initialised.
FIRST_SEEN = 512


def mosaic(pictures):
    """Four pictures of half the size as one of full size: the decoder's norms depend on the size."""
    upper_left, upper_right, lower_left, lower_right = F.avg_pool2d(pictures, 2).chunk(4)
    upper, lower = torch.cat([upper_left, upper_right], dim=-1), torch.cat([lower_left, lower_right], dim=-1)
    return torch.cat([upper, lower], dim=-2)


def halved(vae, latents, frames):
    """How much decoded mosaics of latents differ from mosaics of frames; both are `[clips, frames, …]`."""
    clips, count = frames.shape[:2]
    # As many groups of four as there are, or one group that repeats clips.
    repeats, used = math.ceil(4 / clips), max(4, clips // 4 * 4)
    parts, wholes = (mosaic(torch.cat([values] * repeats)[:used].flatten(0, 1)) for values in (latents, frames))
    shape = (used // 4, count)
    indicator = torch.zeros(shape, device=frames.device, dtype=vae.dtype)
    decoded = vae.decoder(parts.to(vae.dtype), image_only_indicator=indicator, num_frames=count)
    return sum(reconstruction(decoded.float().unflatten(0, shape), wholes.unflatten(0, shape)).values())


def train_step(vae, weights):
    def step(frames):
        clips, count = frames.shape[:2]
        # The pipeline adds noise to a still before it is encoded; half of the clips have some, to be left out of the
        # latents.
        strength = 0.05 * (torch.rand(clips, 1, 1, 1, 1, device=frames.device) * 2 - 1).clamp(min=0)
        images = (frames + strength * torch.randn_like(frames)).flatten(0, 1).to(vae.dtype)
        moments = vae.quant_conv(vae.encoder(images)).float()
        mean, log_variance = moments.chunk(2, dim=1)
        log_variance = log_variance.clamp(-12, 6)
        latents = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        indicator = torch.zeros(clips, count, device=frames.device, dtype=vae.dtype)
        decoded = vae.decoder(latents.to(vae.dtype), image_only_indicator=indicator, num_frames=count)
        decoded = decoded.float().unflatten(0, (clips, count))
        terms = reconstruction(decoded, frames)
        far = divergence(mean, log_variance)
        small = halved(vae, latents.unflatten(0, (clips, count)), frames)
        loss = sum(terms.values()) + DIVERGENCE_WEIGHT * far + HALVED_WEIGHT * small
        loss.backward()
        norm = weights.update()
        error = (decoded.detach().clamp(-1, 1) - frames).square().mean((1, 2, 3, 4)) / 4
        signal = -10 * torch.log10(error.clamp(min=1e-9)).mean()
        results = dict(loss=loss, psnr=signal, divergence=far, halved=small, norm=norm, **terms)
        return {name: value.detach() for name, value in results.items()}

    return step


@torch.no_grad()
def encode(vae, frames, chunk=896):
    """The most likely latents of images from −1 to 1, `[n, channels, height, width]`."""
    parts = [vae.encode(part.to(vae.dtype)).latent_dist.mode().float() for part in frames.split(chunk)]
    return torch.cat(parts)


@torch.no_grad()
def decode(vae, latents):
    """Frames from −1 to 1 of latents `[clips, frames, channels, height, width]`."""
    clips, count = latents.shape[:2]
    parts = latents.to(vae.dtype).split(8)
    decoded = torch.cat([vae.decode(part.flatten(0, 1), num_frames=count).sample.float() for part in parts])
    return decoded.unflatten(0, (clips, count))


@torch.no_grad()
def normalise(vae, images):
    """Divides the latents by their deviation, in the weights around them: those of the last layer of the encoder and of
    the first of the decoder. The autoencoder as a whole stays the same, and its scaling factor is 1. Channels keep
    their sizes relative to each other: coarse ones are larger, and emerge from noise first. Returns the deviation of
    each."""
    deviations = encode(vae, images).std((0, 2, 3))
    deviation, channels = deviations.square().mean().sqrt().item(), len(deviations)
    vae.quant_conv.weight[:channels] /= deviation
    vae.quant_conv.bias[:channels] /= deviation
    vae.quant_conv.bias[channels:] -= 2 * math.log(deviation)
    vae.decoder.conv_in.weight *= deviation
    return deviations / deviation


@torch.no_grad()
def held_out(vae, clips, count, path=None):
    """How well held-out clips are reconstructed: decibels of first frames and of all frames, sharpness relative to the
    data, and a strip to look at."""
    first, every, sharp, rows = [], [], [], []
    for start in range(0, count, 32):
        batch = clips.make(range(HELD_OUT + start, HELD_OUT + start + min(32, count - start)))
        frames = batch.frames
        latents = encode(vae, frames.flatten(0, 1) * 2 - 1).unflatten(0, frames.shape[:2])
        decoded = (decode(vae, latents) * 0.5 + 0.5).clamp(0, 1)
        first.append(psnr(decoded[:, 0], frames[:, 0]))
        every.append(psnr(decoded, frames).mean(1))
        sharp.append([[part.mean() for part in metrics.sharpness(clips)] for clips in (decoded, frames)])
        if len(rows) < 16:
            for clip in range(len(frames)):
                rows += [torch.cat([frames[clip, ::3], decoded[clip, ::3]])]
    if path is not None:
        strips.write(path, rows[:12])
    first, every = torch.cat(first), torch.cat(every)
    ours, theirs = torch.tensor(sharp).sum(0)
    slope, laplacian = (ours / theirs).tolist()
    return dict(
        first_frame_psnr=first.mean().item(),
        first_frame_psnr_worst_tenth=first.quantile(0.1).item(),
        all_frames_psnr=every.mean().item(),
        slope=slope,
        laplacian=laplacian,
    )


def train(clips, pool, work, out, settings):
    """Trains for the stage's time, or for as much of it as this run has. Returns whether the stage is done."""
    device, state_file = clips.device, work / "autoencoder.pt"
    saved = load(state_file, device)
    if saved is not None and saved["done"]:
        return True
    torch.manual_seed(1)
    vae = sizes.autoencoder()
    elapsed, generator = 0.0, torch.Generator(device).manual_seed(1)
    peak, single_part = PEAK_RATE, SINGLE_PART
    if settings.exported is not None:
        peak, single_part = LATER_RATE, 0.0
        exported.load(vae, settings.exported, "vae")
        for part in (vae.encoder, vae.quant_conv):
            part.requires_grad_(False)
    elif saved is None:
        beginning.begin(vae, pool().pieces(FIRST_SEEN, 1, generator)[:, 0])
    fast_layers.speed_up(vae.to(device))
    weights = Weights(dict(vae=vae), WEIGHT_DECAY, AVERAGED)
    log = Log(out / "log.jsonl", "autoencoder")
    if saved is not None:
        weights.restore(saved["weights"])
        elapsed = saved["elapsed"]
        torch.manual_seed(weights.steps)
        generator.manual_seed(weights.steps)
        log.write(event="resumed", at=elapsed, step=weights.steps)
    weights.networks_to(settings.dtype)
    # Painting does not count towards the stage's time.
    pool()
    clock = Clock(settings.autoencoder_seconds, elapsed, settings.deadline, settings.smoke_steps)

    def keep(done):
        state = dict(weights=weights.state(), elapsed=clock.elapsed, done=done)
        if done:
            state["vae"] = finish(weights, clips, settings, out, log)
        save(state_file, state)

    frames, step, reported, seen, last_save = None, None, time.perf_counter(), 0, time.perf_counter()
    while not clock.done and not clock.must_stop:
        wanted = 1 if clock.fraction < single_part else FRAMES
        if wanted != frames:
            frames = wanted
            fast_layers.leave_out_time(vae, frames == 1)
            step = Step(train_step(vae, weights), weights, settings.graph)
        count = max(1, settings.autoencoder_batch // frames)
        weights.schedule(learning_rate(peak, clock.fraction, weights.steps, WARM_UP))
        results = step(frames=pool().pieces(count, frames, generator))
        clock.steps += 1
        seen += count * frames
        if weights.steps % settings.report_every == 0:
            values = {name: value.item() for name, value in results.items()}
            now = time.perf_counter()
            log.write(
                step=weights.steps,
                fraction=clock.fraction,
                images_per_second=seen / (now - reported),
                frames=frames,
                **values,
            )
            reported, seen = now, 0
            if now - last_save > settings.save_seconds:
                keep(False)
                last_save = time.perf_counter()
    keep(clock.done)
    return clock.done


def finish(weights, clips, settings, out, log):
    """The averaged weights with normalised latents, measured on held-out clips."""
    vae = sizes.autoencoder().to(clips.device)
    vae.load_state_dict(weights.averaged_state("vae"))
    vae.eval()
    if settings.exported is None:
        frames = clips.make(range(HELD_OUT // 2, HELD_OUT // 2 + settings.measured_clips), frames=[0, 7]).frames
        deviation = normalise(vae, frames.flatten(0, 1) * 2 - 1)
        log.write(event="normalised", deviation=[round(value, 3) for value in deviation.tolist()])
    # The UNet trains on the weights that are published.
    state = {name: value.half().float() for name, value in vae.state_dict().items()}
    vae.load_state_dict(state)
    fast_layers.speed_up(vae)
    measured = held_out(vae, clips, settings.measured_clips, out / "autoencoder.png")
    log.write(event="done", **measured)
    return state


def trained(work, device, dtype):
    """The autoencoder of the finished stage."""
    vae = sizes.autoencoder()
    vae.load_state_dict(load(work / "autoencoder.pt", "cpu")["vae"])
    return fast_layers.speed_up(vae.to(device=device, dtype=dtype).eval().requires_grad_(False))

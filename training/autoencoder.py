"""Training the autoencoder: first on a few frames of many clips, then on whole clips, as it will be used.

Its decoder sees all frames of a clip at once, in its temporal convolutions and in norms over all of them.
"""

import time

import torch

import configurations as sizes
import fast_layers
import strips
from checkpoints import Clock, Log, learning_rate, load, save
from clips import FRAMES, HELD_OUT
from losses import divergence, psnr, reconstruction
from optimiser import Step, Weights

PEAK_RATE, WARM_UP = 1.2e-3, 200
# Of a latent number's divergence from the normal distribution: keeps latents smooth enough for the UNet to predict.
DIVERGENCE_WEIGHT = 6e-4
# The part of the steps that the published weights are averaged over.
AVERAGED = 0.06
# The part of the time that is spent on a few frames of each clip, and how many.
SHORT_PART, SHORT_FRAMES = 0.7, 4


class Source:
    """Clips that no step has seen before, made in larger numbers than a step takes: kernels are launched less often."""

    def __init__(self, clips, first, made_at_once):
        self.clips, self.next, self.made_at_once = clips, first, made_at_once
        self.frames, self.used = None, 0

    def take(self, count, frames):
        if self.frames is None or self.frames.shape[1] != frames or self.used + count > len(self.frames):
            made = max(count, self.made_at_once * SHORT_FRAMES // frames // count * count)
            numbers = range(self.next, self.next + made)
            self.next += made
            # Where a short piece begins does not matter; steps between its frames differ as speeds do.
            start = self.next // made % (FRAMES - frames + 1)
            batch = self.clips.make(numbers, frames=range(start, start + frames))
            self.frames, self.used = batch.frames * 2 - 1, 0
        taken = self.frames[self.used : self.used + count]
        self.used += count
        return taken


def mirrored(images, clips):
    """Changes of a quarter of the clips that a latent picture can follow: mirrored, upside down, and with its axes swapped.

    Latents that are changed so must decode to frames that are: what a place's latents mean then depends little on direction, and
    a moving thing's latents change less (compare Kouzelis et al. 2025, EQ-VAE). Images are `[clips, frames, …, height, width]`.
    """
    part = clips // 16
    if not part:
        return images
    pieces = [images[: 2 * part].flip(-1), images[2 * part : 3 * part].flip(-2)]
    pieces += [images[3 * part : 4 * part].transpose(-1, -2), images[4 * part :]]
    return torch.cat(pieces)


def train_step(vae, weights):
    def step(frames):
        clips, count = frames.shape[:2]
        # The pipeline adds noise to a still before it is encoded; half of the clips have some, to be left out of the latents.
        strength = 0.05 * (torch.rand(clips, 1, 1, 1, 1, device=frames.device) * 2 - 1).clamp(min=0)
        images = (frames + strength * torch.randn_like(frames)).flatten(0, 1).to(vae.dtype)
        moments = vae.quant_conv(vae.encoder(images)).float()
        mean, log_variance = moments.chunk(2, dim=1)
        log_variance = log_variance.clamp(-12, 6)
        latents = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        latents = mirrored(latents.unflatten(0, (clips, count)), clips).flatten(0, 1)
        target = mirrored(frames, clips)
        indicator = torch.zeros(clips, count, device=frames.device, dtype=vae.dtype)
        decoded = vae.decoder(latents.to(vae.dtype), image_only_indicator=indicator, num_frames=count)
        decoded = decoded.float().unflatten(0, (clips, count))
        terms = reconstruction(decoded, target)
        far = divergence(mean, log_variance)
        loss = sum(terms.values()) + DIVERGENCE_WEIGHT * far
        loss.backward()
        norm = weights.update()
        error = (decoded.detach().clamp(-1, 1) - target).square().mean((1, 2, 3, 4)) / 4
        signal = -10 * torch.log10(error.clamp(min=1e-9)).mean()
        results = dict(loss=loss, psnr=signal, divergence=far, norm=norm, **terms)
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
    """Divides every latent channel by its deviation, in the weights around the latents: those of the last layer of the encoder
    and of the first of the decoder. The autoencoder as a whole stays the same, and its scaling factor is 1."""
    latents = encode(vae, images)
    deviation = latents.std((0, 2, 3)).to(vae.quant_conv.weight.dtype)
    channels = len(deviation)
    vae.quant_conv.weight[:channels] /= deviation[:, None, None, None]
    vae.quant_conv.bias[:channels] /= deviation
    vae.quant_conv.bias[channels:] -= 2 * deviation.log()
    vae.decoder.conv_in.weight *= deviation[None, :, None, None]
    return deviation


@torch.no_grad()
def held_out(vae, clips, count, path=None):
    """How well held-out clips come back: decibels of first frames and of all, and a strip to look at."""
    first, every, rows = [], [], []
    for start in range(0, count, 8):
        batch = clips.make(range(HELD_OUT + start, HELD_OUT + start + min(8, count - start)))
        frames = batch.frames
        latents = encode(vae, frames.flatten(0, 1) * 2 - 1).unflatten(0, frames.shape[:2])
        decoded = (decode(vae, latents) * 0.5 + 0.5).clamp(0, 1)
        first.append(psnr(decoded[:, 0], frames[:, 0]))
        every.append(psnr(decoded, frames).mean(1))
        if len(rows) < 16:
            for clip in range(len(frames)):
                rows += [torch.cat([frames[clip, ::3], decoded[clip, ::3]])]
    if path is not None:
        strips.write(path, rows[:12])
    first, every = torch.cat(first), torch.cat(every)
    return dict(
        first_frame_psnr=first.mean().item(),
        first_frame_psnr_worst_tenth=first.quantile(0.1).item(),
        all_frames_psnr=every.mean().item(),
    )


def train(clips, work, out, settings):
    """Trains for the stage's time, or as much of it as this run has. Gives whether it is done."""
    device, state_file = clips.device, work / "autoencoder.pt"
    saved = load(state_file, device)
    if saved is not None and saved["done"]:
        return True
    torch.manual_seed(1)
    vae = sizes.autoencoder().to(device)
    fast_layers.speed_up(vae, settings.compile_autoencoder)
    weights = Weights(dict(vae=vae), weight_decay=1e-3, averaged=AVERAGED)
    first, elapsed = 0, 0.0
    if saved is not None:
        weights.restore(saved["weights"])
        first, elapsed = saved["next_clip"], saved["elapsed"]
        torch.manual_seed(first)
    weights.networks_to(settings.dtype)
    if settings.channels_last:
        vae.to(memory_format=torch.channels_last)
    source = Source(clips, first, settings.autoencoder_batch * 12)
    clock = Clock(settings.autoencoder_seconds, elapsed, settings.deadline, settings.smoke_steps)
    log = Log(out / "log.jsonl", "autoencoder")
    if saved is not None:
        log.write(event="resumed", at=elapsed, step=weights.steps)

    def keep(done):
        state = dict(weights=weights.state(), next_clip=source.next, elapsed=clock.elapsed, done=done)
        if done:
            state["vae"] = finish(weights, clips, settings, out, log)
        save(state_file, state)

    frames, step, reported, seen, last_save = None, None, time.perf_counter(), 0, time.perf_counter()
    while not clock.done and not clock.must_stop:
        wanted = SHORT_FRAMES if clock.fraction < SHORT_PART else FRAMES
        if wanted != frames:
            frames = wanted
            step = Step(train_step(vae, weights), weights, settings.graph)
        count = max(1, settings.autoencoder_batch * SHORT_FRAMES // frames)
        taken = source.take(count, frames)
        weights.schedule(learning_rate(PEAK_RATE, clock.fraction, weights.steps, WARM_UP))
        results = step(frames=taken)
        clock.steps += 1
        seen += count * frames
        if weights.steps % settings.report_every == 0:
            values = {name: value.item() for name, value in results.items()}
            now = time.perf_counter()
            log.write(
                step=weights.steps, fraction=clock.fraction, images_per_second=seen / (now - reported), frames=frames, **values
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
    frames = clips.make(range(HELD_OUT // 2, HELD_OUT // 2 + settings.measured_clips), frames=[0, 7]).frames
    deviation = normalise(vae, frames.flatten(0, 1) * 2 - 1)
    # What is trained on is what will be published.
    state = {name: value.half().float() for name, value in vae.state_dict().items()}
    vae.load_state_dict(state)
    fast_layers.speed_up(vae)
    measured = held_out(vae, clips, settings.measured_clips, out / "autoencoder.png")
    log.write(event="done", deviation=[round(value, 3) for value in deviation.tolist()], **measured)
    return state


def trained(work, device, dtype):
    """The autoencoder of the stage that is done."""
    vae = sizes.autoencoder()
    vae.load_state_dict(load(work / "autoencoder.pt", "cpu")["vae"])
    return fast_layers.speed_up(vae.to(device=device, dtype=dtype).eval().requires_grad_(False))

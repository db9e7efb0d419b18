"""Training the UNet, and the image encoder with it, as Stable Video Diffusion is conditioned and sampled.

Noise of any strength σ is added to a clip's latents, and the network predicts v = (noise − σ·latents) / √(σ² + 1) from
the sum over √(σ² + 1), with ¼ ln σ as its time (Karras et al. 2022, with v-prediction). Beside it are the first frame's
latents, the embedding of the first frame, and frame rate, motion bucket and the noise in that first frame.
"""

import time

import torch
import torch.nn.functional as F

from ..model import exported
from ..networks import configurations as sizes
from ..networks import fast_layers, fast_unet
from ..optimisation.checkpoints import Clock, Log, learning_rate, load, save
from ..optimisation.optimiser import Step, Weights

WARM_UP, WEIGHT_DECAY = 300, 1e-2
# The part of the steps that the published weights are averaged over.
AVERAGED = 0.08
# ln σ of the noise is normal. What moves where is decided by noise of about 1 to 30, detail by that of 0.1 to 1.
SIGMA_MEAN, SIGMA_DEVIATION = 0.2, 1.7
SIGMA_LEAST, SIGMA_MOST = 0.01, 120.0
# How often conditions are dropped, for classifier-free guidance: both, and only the embedding.
DROP_BOTH, DROP_EMBEDDING = 0.1, 0.05
MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)


def encoder_pixels(pictures):
    """What the pipeline shows the image encoder: the picture at 224 pixels, normalised. Enlarging
    does not need its antialiasing."""
    size = (sizes.CLIP_SIDE, sizes.CLIP_SIDE)
    pixels = F.interpolate(pictures.float() / 255, size=size, mode="bicubic", align_corners=True)
    mean, deviation = (_constants(values, pixels) for values in (MEAN, DEVIATION))
    return (pixels - mean) / deviation


def _constants(values, like):
    # Filled rather than copied from the host, which a CUDA graph cannot do.
    channels = [torch.full((1, 1, 1, 1), value, device=like.device, dtype=like.dtype) for value in values]
    return torch.cat(channels, dim=1)


def by_muon(name):
    """Whether a weight is a matrix between the first and the last layers; embeddings belong to AdamW."""
    return not any(part in name for part in ("conv_in", "conv_out", "embed", "projection"))


def train_step(unet, encoder, weights):
    dtype = unet.dtype

    def step(latents, image, picture, ids):
        clips, frames = latents.shape[:2]
        device = latents.device
        latents = latents.float()
        sigma = (SIGMA_MEAN + SIGMA_DEVIATION * torch.randn(clips, device=device)).exp().clamp(SIGMA_LEAST, SIGMA_MOST)
        spread = sigma[:, None, None, None, None]
        root = (spread.square() + 1).sqrt()
        noise = torch.randn_like(latents)
        noisy = (latents + spread * noise) / root
        target = (noise - spread * latents) / root

        dropped = torch.rand(clips, device=device)
        keep_image = (dropped >= DROP_BOTH).float()
        keep_embedding = (dropped >= DROP_BOTH + DROP_EMBEDDING).float()
        embedding = encoder(pixel_values=encoder_pixels(picture).to(dtype)).image_embeds
        embedding = embedding * keep_embedding[:, None].to(dtype)
        image = image.float() * keep_image[:, None, None, None]
        image = image[:, None].expand(-1, frames, -1, -1, -1)
        sample = torch.cat([noisy, image], dim=2).to(dtype)
        predicted = fast_unet.forward(unet, sample, 0.25 * sigma.log(), embedding, ids)
        errors = (predicted.float() - target).square().mean((1, 2, 3, 4))
        loss = errors.mean()
        loss.backward()
        norm = weights.update()
        # By the strength of the noise: fine detail, shapes, and motion.
        groups = {}
        for name, low, high in (("fine", 0.0, 0.3), ("shape", 0.3, 3.0), ("motion", 3.0, 1e9)):
            part = ((sigma >= low) & (sigma < high) & (keep_image > 0)).float()
            groups[name] = (errors.detach() * part).sum() / part.sum().clamp(min=1)
        return dict(loss=loss.detach(), norm=norm, **groups)

    return step


def train(latents, device, work, out, settings):
    """Trains for the stage's time, or for as much of it as this run has. Returns whether the stage is done."""
    state_file = work / "unet.pt"
    saved = load(state_file, device)
    if saved is not None and saved["done"]:
        return True
    torch.manual_seed(2)
    unet, encoder = sizes.unet().to(device), sizes.image_encoder().to(device)
    if settings.exported is None:
        begin(unet)
    else:
        for name, network in (("unet", unet), ("image_encoder", encoder)):
            exported.load(network, settings.exported, name)
    weights = Weights(dict(unet=unet, image_encoder=encoder), WEIGHT_DECAY, AVERAGED, by_muon)
    elapsed = 0.0
    if saved is not None:
        weights.restore(saved["weights"])
        elapsed = saved["elapsed"]
        torch.manual_seed(1000 + weights.steps)
    weights.networks_to(settings.dtype)
    fast_layers.lay_out(unet)
    clock = Clock(settings.unet_seconds, elapsed, settings.deadline, settings.smoke_steps, settings.finish)
    log = Log(out / "log.jsonl", "unet")
    if saved is not None:
        log.write(event="resumed", at=elapsed, step=weights.steps)
    step = Step(train_step(unet, encoder, weights), weights, settings.graph)
    generator = torch.Generator(device).manual_seed(3 + weights.steps)
    sums, counted, reported, last_save = {}, 0, time.perf_counter(), time.perf_counter()
    while not clock.done and not clock.must_stop:
        rows = torch.randint(latents.count, (settings.unet_batch,), generator=generator, device=device)
        version = weights.steps % latents.strengths.shape[1]
        weights.schedule(learning_rate(settings.unet_rate, clock.fraction, weights.steps, WARM_UP))
        results = step(**latents.batch(rows, version))
        clock.steps += 1
        counted += 1
        for name, value in results.items():
            sums[name] = sums.get(name, 0.0) + value.clone()
        if weights.steps % settings.report_every == 0:
            values = {name: (value / counted).item() for name, value in sums.items()}
            now = time.perf_counter()
            rate = counted * settings.unet_batch / (now - reported)
            log.write(step=weights.steps, fraction=clock.fraction, clips_per_second=rate, **values)
            sums, counted, reported = {}, 0, now
            if now - last_save > settings.save_seconds:
                keep(state_file, weights, clock, False)
                last_save = time.perf_counter()
    keep(state_file, weights, clock, clock.done)
    log.write(event="done" if clock.done else "stopped", step=weights.steps, seconds=clock.elapsed)
    return clock.done


def begin(unet):
    """Makes blocks start as the identity and the prediction at zero: they learn faster than random ones."""
    from diffusers.models.resnet import ResnetBlock2D, TemporalResnetBlock
    from diffusers.models.transformers.transformer_temporal import TransformerSpatioTemporalModel

    torch.nn.init.zeros_(unet.conv_out.weight)
    torch.nn.init.zeros_(unet.conv_out.bias)
    for module in unet.modules():
        if isinstance(module, (ResnetBlock2D, TemporalResnetBlock)):
            torch.nn.init.zeros_(module.conv2.weight)
            torch.nn.init.zeros_(module.conv2.bias)
        elif isinstance(module, TransformerSpatioTemporalModel):
            torch.nn.init.zeros_(module.proj_out.weight)
            torch.nn.init.zeros_(module.proj_out.bias)


def keep(path, weights, clock, done):
    state = dict(weights=weights.state(), elapsed=clock.elapsed, done=done)
    # So that the state so far can always be inspected.
    state["unet"], state["image_encoder"] = (weights.averaged_state(part) for part in ("unet", "image_encoder"))
    save(path, state)


def trained(work):
    """The UNet and the image encoder in their present state, on the CPU in f32."""
    state = load(work / "unet.pt", "cpu")
    unet, encoder = sizes.unet(), sizes.image_encoder()
    unet.load_state_dict(state["unet"])
    encoder.load_state_dict(state["image_encoder"], strict=False)
    return unet, encoder

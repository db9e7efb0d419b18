"""The networks of a frame of live video in diffusers, with the weights and inputs that Kinora's benchmarks have.

Both are made from their names (synthetic.py). A preset is one of `crates/models/presets` with a `tiny_vae`.
"""

import torch
from diffusers import AutoencoderTiny, UNet2DConditionModel

import synthetic

TOKENS = 77
PIXELS_PER_LATENT = 8


def numbers(name, shape, device):
    """The input of this name."""
    return synthetic.uniform(name, torch.Size(shape).numel(), device).float().reshape(shape)


def images(name, shape, device):
    """The same for images, which Kinora has channels last: `shape` is its."""
    return numbers(name, shape, device).permute(0, 3, 1, 2).contiguous()


def picture(name, height, width, device):
    """Bytes `[1, height, width, 3]`."""
    values = synthetic.uniform(name, height * width * 3, device)
    return (127.5 + 127.5 * values).to(torch.uint8).reshape(1, height, width, 3)


def signed(pixels, dtype):
    """Bytes, channels last, as what an autoencoder reads."""
    return pixels.permute(0, 3, 1, 2).to(dtype) / 127.5 - 1.0


def fill(network, prefix, device):
    """Gives every weight the value that Kinora has under its name, which begins with that of the network."""
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.dtype.is_floating_point:
                value.copy_(synthetic.tensor(prefix + name, value.shape, device))


def make_unet(preset, device):
    with torch.device(device):
        unet = UNet2DConditionModel.from_config(preset["unet"])
    fill(unet, "unet.", device)
    return unet.eval()


def make_vae(preset, prefix, device):
    with torch.device(device):
        vae = AutoencoderTiny.from_config(preset["tiny_vae"])
    fill(vae, prefix, device)
    return vae.eval()


class Frame(torch.nn.Module):
    """Everything that the graph of a frame does."""

    def __init__(self, preset, steps, dtype, device):
        super().__init__()
        self.unet, self.vae = make_unet(preset, device), make_vae(preset, "vae.", device)
        self.dtype = dtype
        self.to(device=device, dtype=dtype).eval()
        height, width = preset["frame"]["height"], preset["frame"]["width"]
        latents = (1, height // PIXELS_PER_LATENT, width // PIXELS_PER_LATENT, preset["unet"]["in_channels"])
        self.prompts = numbers("prompts", (1, TOKENS, preset["unet"]["cross_attention_dim"]), device).to(dtype)
        self.timesteps = numbers("timesteps", (steps,), device)
        self.noise, self.previous = (images(name, latents, device) for name in ("noise", "previous"))
        self.scales = numbers("input_scales", (steps,), device)
        self.mix = numbers("mix", (2,), device)
        self.table = numbers("table", (steps, 8), device)
        self.blend = numbers("blend", (1,), device)
        self.frame = picture("frame", height, width, device)

    def forward(self, frame):
        start = self.vae.encode(signed(frame, self.dtype)).latents.float()
        latents = start * self.mix[0] + self.noise * self.mix[1]
        for step, row in enumerate(self.table):
            sample = (latents * self.scales[step]).to(self.dtype)
            timestep = self.timesteps[step : step + 1]
            prediction = self.unet(sample, timestep, self.prompts, return_dict=False)[0].float()
            denoised = row[0] * latents + row[1] * prediction
            latents = row[2] * latents + row[3] * denoised + row[7] * prediction
        latents = latents + self.blend * (self.previous - latents)
        drawn = self.vae.decode(latents.to(self.dtype), return_dict=False)[0].float()
        shown = ((drawn + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
        return latents, shown.contiguous()

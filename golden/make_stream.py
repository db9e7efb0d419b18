"""Makes the golden frames of the stream batch (Kodaira et al. 2023), written here in plain PyTorch. See README.md.

n frames are in work at once, each at its own noise level: one pass of the UNet over the batch advances all of them by
one level, and the oldest comes out. The noise of every level is drawn once and used for every frame. With a = √ᾱ and
b = √(1−ᾱ) at level i, x = a·x₀ + b·stock defines the noise that is in a latent. The latent moves to the next level
as a'·D + b'·noise', where D is what the network takes for x₀, so that the noise in it is then
noise' + a'/b'·(D − x₀). Guidance away from that noise costs no pass of its own (`self`), or one for the newest frame
alone (`initialize`).

The network and the tiny autoencoder are diffusers', with weights made from their names, in f64.
"""

import json

import torch
from diffusers import AutoencoderTiny, LCMScheduler, UNet2DConditionModel
from diffusers.models import embeddings
from safetensors.torch import save_file

import fixtures
import networks
import synthetic
from make_frame import TINY
from make_schedulers import SD
from make_unet2d import CROSS_DOWN, CROSS_UP, DOWN, UP
from ops.double import in_double
from ops.layouts import images_first, images_last

LIMIT = 400 << 10
UNET = dict(
    down_block_types=[CROSS_DOWN, DOWN],
    up_block_types=[UP, CROSS_UP],
    block_out_channels=[32, 64],
    cross_attention_dim=24,
    attention_head_dim=[1, 2],
    layers_per_block=1,
    use_linear_projection=True,
)
FRAMES, SIDE, TOKENS = 8, 32, 5
# Of the steps 999 − 20·i of a latent consistency model.
TIMESTEPS = {2: [359, 99], 4: [999, 679, 359, 99]}


class Stream:
    """The state between frames, and a frame."""

    def __init__(self, unet, vae, timesteps, guidance, prompts, noise):
        scheduler = LCMScheduler(**SD)
        alphas = scheduler.alphas_cumprod.double()[timesteps]
        column = (-1, 1, 1, 1)
        self.a, self.b = alphas.sqrt().view(column), (1 - alphas).sqrt().view(column)
        skips = [scheduler.get_scalings_for_boundary_condition_discrete(t) for t in timesteps]
        skips = torch.tensor(skips, dtype=torch.float64)
        self.skip, self.out = skips[:, 0].view(column), skips[:, 1].view(column)
        self.unet, self.vae, self.guidance = unet, vae, guidance
        self.timesteps = torch.tensor(timesteps)
        self.negative, self.prompt = prompts[:1], prompts[1:]
        self.noise = noise
        self.buffer = torch.zeros_like(noise[1:])
        self.stock = torch.zeros_like(noise[1:])

    def denoised(self, x, prediction):
        return self.out * (x - self.b * prediction) / self.a + self.skip * x

    def predict(self, x, stock):
        """The guided prediction, and the noise that the newest latent is taken to have."""
        kind, n = self.guidance["kind"], len(x)
        prompt = self.prompt.expand(n, -1, -1)
        if kind in ("none", "self"):
            prediction = self.unet(x, self.timesteps, prompt).sample
        elif kind == "full":
            negative = self.unet(x, self.timesteps, self.negative.expand(n, -1, -1)).sample
            positive = self.unet(x, self.timesteps, prompt).sample
            return negative + self.guidance["scale"] * (positive - negative), stock
        elif kind == "initialize":
            newest = self.unet(x[:1], self.timesteps[:1], self.negative).sample
            stock = torch.cat([newest, stock[1:]])
            prediction = self.unet(x, self.timesteps, prompt).sample
        if kind != "none":
            away = self.guidance["delta"] * stock
            prediction = away + self.guidance["scale"] * (prediction - away)
        return prediction, stock

    def frame(self, picture):
        z = self.vae.encode(picture).latents * self.vae.config.scaling_factor
        x = torch.cat([self.a[:1] * z + self.b[:1] * self.noise[:1], self.buffer])
        prediction, stock = self.predict(x, torch.cat([self.noise[:1], self.stock]))
        denoised = self.denoised(x, prediction)
        a, b = self.a[1:], self.b[1:]
        self.buffer = a * denoised[:-1] + b * self.noise[1:]
        # Of a latent b·stock the clean part is 0.
        residual = self.denoised(self.b * stock, prediction)
        self.stock = self.noise[1:] + a / b * residual[:-1]
        decoded = self.vae.decode(denoised[-1:] / self.vae.config.scaling_factor).sample
        return denoised[-1:], (decoded / 2 + 0.5).clamp(0, 1)


def picture(case, i):
    """A frame that comes in, as bytes `[1, height, width, 3]`."""
    numbers = synthetic.uniform(f"{case}/frame {i}", SIDE * SIDE * 3)
    return torch.from_numpy(((numbers + 1) * 128).astype("uint8")).reshape(1, SIDE, SIDE, 3)


def run(case, unet, vae, results):
    name, n = case["name"], len(case["timesteps"])
    prompts = networks.given(name, "prompts", 2, TOKENS, UNET["cross_attention_dim"])
    latent = (4, SIDE // 8, SIDE // 8)
    generator = torch.Generator().manual_seed(case["seed"])
    # One row after the other, as a frame would draw them.
    noise = torch.cat([torch.randn(1, *latent, generator=generator) for _ in range(n)]).double()
    stream = Stream(unet, vae, case["timesteps"], case["guidance"], prompts, noise)
    frames, latents = [], []
    for i in range(FRAMES):
        x = images_first(picture(name, i).double() / 127.5 - 1)
        latent, frame = stream.frame(x)
        latents.append(images_last(latent).float())
        frames.append((images_last(frame) * 255).round().to(torch.uint8))
    results[f"{name}/frames"] = torch.cat(frames).contiguous()
    results[f"{name}/latents"] = torch.cat(latents).contiguous()
    saturated = ((results[f"{name}/frames"] == 0) | (results[f"{name}/frames"] == 255)).float().mean()
    print(f"{name:15} {saturated:.1%} of the bytes are 0 or 255")


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/stream")
    fixtures.reproducible()
    unet = networks.synthetic_model(UNet2DConditionModel(**UNET), "unet.")
    vae = networks.synthetic_model(AutoencoderTiny(**TINY), "vae.")
    kinds = {
        "none": {},
        "full": {"scale": 1.6},
        "initialize": {"scale": 1.3, "delta": 0.8},
        "self": {"scale": 1.4, "delta": 0.5},
    }
    configs = {name: json.loads(network.to_json_string()) for name, network in (("unet", unet), ("vae", vae))}
    cases, results = [], {}
    with torch.no_grad(), in_double(embeddings):
        for n, timesteps in TIMESTEPS.items():
            for seed, (kind, numbers) in enumerate(kinds.items()):
                case = dict(name=f"{kind}_{n}", timesteps=timesteps, guidance={"kind": kind} | numbers, seed=seed)
                run(case, unet, vae, results)
                cases.append(case | {"side": SIDE, "tokens": TOKENS} | configs)
    save_file(results, out / "stream.safetensors")
    fixtures.write_cases(out / "stream.json", cases)
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()

"""The stages of a clip as functions without arguments, with their inputs. References and times are both taken of them.

A stage is one call as the pipeline makes it, on inputs that are made from their names. Inputs are rounded to f16,
so that every precision gets the same numbers.
"""

import pathlib

import numpy as np
import torch
from PIL import Image

import svd_models
import synthetic
from turns import PRECISIONS

STAGES = ("clip", "vae_encode", "unet", "vae_decode", "pipeline")

SEED = 20
# Settings of the pipeline's clip; all others have the pipeline's defaults.
FPS, MOTION_BUCKET, NOISE_AUGMENTATION = 7, 127, 0.02
MIN_GUIDANCE, MAX_GUIDANCE = 1.0, 3.0
# A quarter of the logarithm of the noise level, as in the continuous schedule; here the level is about 55.
TIMESTEP = 1.0
LATENT_CHANNELS, COLOURS = 4, 3
PIXELS_PER_LATENT = 8


def images_first(x):
    """Kinora's `[images, height, width, channels]` in PyTorch's layout."""
    return x.permute(0, 3, 1, 2).contiguous()


def images_last(x):
    """PyTorch's `[images, channels, height, width]` in Kinora's layout."""
    return x.permute(0, 2, 3, 1).contiguous()


def given(name, *shape):
    """An input of unit variance, made from its name, whose numbers are exact in f16."""
    u = synthetic.uniform(name, torch.Size(shape).numel(), "cpu").mul_(3.0**0.5)
    return u.to(torch.float16).float().reshape(shape)


def noise(size):
    """The noise that the pipeline starts from, `[frames, height, width, channels]`, as a run in f16 draws it from
    the seed.

    The photo's own noise is drawn before it, in f32 in any precision.
    """
    generator = torch.Generator().manual_seed(SEED)
    torch.randn((1, COLOURS, size.height, size.width), generator=generator)
    height, width = size.height // PIXELS_PER_LATENT, size.width // PIXELS_PER_LATENT
    drawn = torch.randn((size.frames, LATENT_CHANNELS, height, width), generator=generator, dtype=torch.float16)
    return images_last(drawn.float())


def inputs(size):
    """Every stage's inputs in Kinora's layout, by `<stage>.<input>`."""
    height, width = size.height // PIXELS_PER_LATENT, size.width // PIXELS_PER_LATENT
    pixels = size.image_encoder["image_size"]
    ids = torch.tensor([[FPS - 1, MOTION_BUCKET, NOISE_AUGMENTATION]] * 2).to(torch.float16).float()
    return {
        "clip.pixels": given("clip/pixels", 1, pixels, pixels, COLOURS),
        "vae_encode.image": given("vae_encode/image", 1, size.height, size.width, COLOURS),
        "unet.sample": given("unet/sample", 2 * size.frames, height, width, 2 * LATENT_CHANNELS),
        "unet.context": given("unet/context", 2, 1, size.unet["cross_attention_dim"]),
        "unet.timesteps": torch.full((2,), TIMESTEP),
        "unet.added_time_ids": ids,
        "vae_decode.latents": given("vae_decode/latents", size.frames, height, width, LATENT_CHANNELS),
        "pipeline.photo": synthetic.photo(size.width, size.height),
        "pipeline.noise": noise(size),
    }


class Model:
    """A model's folder in a precision on a device. Networks are loaded when a stage needs them."""

    def __init__(self, folder: pathlib.Path, size, precision, device, decode_chunk=None):
        self.folder, self.size, self.precision, self.device = folder, size, precision, device
        self.decode_chunk = decode_chunk or size.frames
        self.given = inputs(size)
        self.loaded = {}

    def network(self, name):
        if name not in self.loaded:
            self.loaded[name] = self.load(name)
        return self.loaded[name]

    def load(self, name):
        if name == "pipeline":
            return svd_models.load_pipeline(self.folder, self.size, self.precision, self.device)
        load = {
            "unet": svd_models.load_unet,
            "vae": svd_models.load_vae,
            "image_encoder": svd_models.load_image_encoder,
        }[name]
        return load(self.folder, self.precision, self.device)

    def input(self, name):
        """An input on the device in the precision, images first."""
        x = self.given[name]
        x = images_first(x) if x.ndim == 4 else x
        return x.to(self.device, PRECISIONS[self.precision])

    def networks(self, stage):
        """The networks that a stage runs."""
        if stage == "pipeline":
            pipeline = self.network("pipeline")
            return [pipeline.unet, pipeline.vae, pipeline.image_encoder]
        return [self.network({"clip": "image_encoder", "unet": "unet"}.get(stage, "vae"))]

    def stage(self, name, wrap=lambda function: function):
        """A stage's function, which returns `{result: tensor}` with images in Kinora's layout.

        `wrap` is applied to the networks' functions; it may be `torch.compile`.
        """
        return getattr(self, name)(wrap)

    def clip(self, wrap):
        encoder, pixels = wrap(self.network("image_encoder")), self.input("clip.pixels")
        return lambda: {"embedding": encoder(pixels).image_embeds}

    def vae_encode(self, wrap):
        encode, image = wrap(self.network("vae").encode), self.input("vae_encode.image")
        return lambda: {"latents": images_last(encode(image).latent_dist.mode())}

    def vae_decode(self, wrap):
        decode, latents = wrap(self.network("vae").decode), self.input("vae_decode.latents")
        chunks = latents.split(self.decode_chunk)

        def run():
            frames = [decode(chunk, num_frames=len(chunk)).sample for chunk in chunks]
            return {"frames": images_last(torch.cat(frames))}

        return run

    def unet(self, wrap):
        unet = wrap(self.network("unet"))
        sample = self.input("unet.sample").unflatten(0, (2, self.size.frames))
        # One for both clips and not in the network's precision, as the pipeline gets it from the scheduler, so that the
        # compiled network serves there as well.
        timestep = self.given["unet.timesteps"][0].to(self.device)
        context, ids = self.input("unet.context"), self.input("unet.added_time_ids")

        def run():
            prediction = unet(sample, timestep, context, ids, return_dict=False)[0]
            return {"prediction": images_last(prediction.flatten(0, 1))}

        return run

    def noise(self):
        """What the pipeline starts from: the same noise in every precision."""
        return self.input("pipeline.noise").unsqueeze(0)

    def pipeline(self, wrap):
        pipeline = self.network("pipeline")
        pipeline.unet = wrap(pipeline.unet)
        pipeline.vae.decode = wrap(pipeline.vae.decode)
        picture = Image.fromarray(self.given["pipeline.photo"].numpy())
        noise = self.noise()

        def run():
            generator = torch.Generator().manual_seed(SEED)
            latents = pipeline(
                picture,
                height=self.size.height,
                width=self.size.width,
                num_frames=self.size.frames,
                num_inference_steps=self.size.steps,
                min_guidance_scale=MIN_GUIDANCE,
                max_guidance_scale=MAX_GUIDANCE,
                fps=FPS,
                motion_bucket_id=MOTION_BUCKET,
                noise_aug_strength=NOISE_AUGMENTATION,
                generator=generator,
                latents=noise,
                output_type="latent",
            ).frames
            # The pipeline does the same if it is not asked for latents. Its steps may have come out in f32.
            latents = latents.to(pipeline.vae.dtype)
            frames = pipeline.decode_latents(latents, self.size.frames, self.decode_chunk)
            frames = pipeline.video_processor.postprocess_video(video=frames, output_type="np")[0]
            frames = torch.from_numpy((frames * 255).round().astype(np.uint8))
            return {"latents": images_last(latents[0]), "frames": frames}

        return run

"""Makes the golden tensors of denoising steps: the UNet, guidance and the scheduler, with diffusers. See
networks.py."""

import json

import torch
from diffusers import EulerDiscreteScheduler
from diffusers.models import embeddings
from diffusers.schedulers import scheduling_euler_discrete

import make_unet
import networks
import svd
from networks import given
from ops.double import in_double
from ops.layouts import images_first, images_last

STEPS = 3
CASE = dict(name="guided", frames=2, height=4, width=4, added_time_ids=[6.0, 127.0, 0.0625], guidance=[1.0, 2.5])


def denoise(case, model, scheduler, begin_step=lambda step: None):
    """The results of every step, as the pipeline runs them: the unconditional half of the batch has no image."""
    name, frames, height, width = (case[key] for key in ("name", "frames", "height", "width"))
    channels = model.config.out_channels
    guidance = torch.tensor(case["guidance"], dtype=torch.float64)[None, :, None, None, None]
    ids = torch.tensor([case["added_time_ids"]] * 2, dtype=torch.float64)
    image = images_first(given(name, "image_latents", 1, height, width, model.config.in_channels - channels))
    image = image[:, None].repeat(1, frames, 1, 1, 1)
    image = torch.cat([torch.zeros_like(image), image])
    context = given(name, "image_embedding", 1, 1, make_unet.context_width(model))
    context = torch.cat([torch.zeros_like(context), context])
    noise = given(name, "latents", frames, height, width, channels)
    latents = images_first(noise * scheduler.sigmas[0].float().double())[None]
    results = {}
    for i, t in enumerate(scheduler.timesteps):
        begin_step(i)
        scaled = scheduler.scale_model_input(torch.cat([latents] * 2), t)
        prediction = model(torch.cat([scaled, image], dim=2), t, context, ids).sample
        unconditional, conditional = prediction.chunk(2)
        prediction = unconditional + guidance * (conditional - unconditional)
        step = scheduler.step(prediction, t, latents)
        latents = step.prev_sample
        results[f"{name}/next{i}"] = images_last(latents[0])
        results[f"{name}/denoised{i}"] = images_last(step.pred_original_sample[0])
    return results


def levels(scheduler):
    """The noise levels of a run. Kinora holds timesteps as f32, and so does diffusers' embedding."""
    return {"sigmas": scheduler.sigmas.tolist(), "timesteps": scheduler.timesteps.float().tolist()}


def build():
    scheduler = EulerDiscreteScheduler(**svd.SCHEDULER)
    with in_double(embeddings), in_double(scheduling_euler_discrete):
        scheduler.set_timesteps(STEPS)
        assert scheduler.sigmas.dtype == torch.float64
        model = make_unet.network(make_unet.SMALLEST)
        results = denoise(CASE, model, scheduler)
    return [CASE | {"config": json.loads(model.to_json_string())} | levels(scheduler)], results


if __name__ == "__main__":
    networks.main(__doc__, "denoise", build)

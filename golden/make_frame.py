"""Makes the golden frames: small models of Stable Diffusion's shapes, run by diffusers' pipelines from bytes to bytes.

Weights and prompts are made from their names (see synthetic.py), those of the UNet under `unet.`, those of the
autoencoder under `vae.`. The frame that comes in is a synthetic photo, the noise is PyTorch's for the case's seed.
Pipelines run in f32, as they do for everyone. An autoencoder's mean stands for what it encodes, not a sample of it:
live video is drawn from one noise, so that still scenes stay still.
"""

import json
from functools import partial
from unittest import mock

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderTiny,
    ControlNetModel,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    LatentConsistencyModelImg2ImgPipeline,
    LCMScheduler,
    StableDiffusionControlNetImg2ImgPipeline,
    StableDiffusionImg2ImgPipeline,
    StableDiffusionPipeline,
    StableDiffusionXLImg2ImgPipeline,
    UNet2DConditionModel,
)
from diffusers.pipelines.controlnet import pipeline_controlnet_img2img
from diffusers.pipelines.latent_consistency_models import pipeline_latent_consistency_img2img
from diffusers.pipelines.stable_diffusion import pipeline_stable_diffusion_img2img
from diffusers.pipelines.stable_diffusion_xl import pipeline_stable_diffusion_xl_img2img
from PIL import Image
from safetensors.torch import save_file

import fixtures
import make_unet2d
import networks
import synthetic
from make_schedulers import SD
from ops.layouts import images_last

LIMIT = 400 << 10
TRAILING = SD | {"timestep_spacing": "trailing", "steps_offset": 1}
LEADING = SD | {"timestep_spacing": "leading", "steps_offset": 1, "clip_sample": False, "set_alpha_to_one": False}
TINY = dict(
    encoder_block_out_channels=[32] * 4,
    decoder_block_out_channels=[32] * 4,
    num_encoder_blocks=[1, 2, 1, 1],
    num_decoder_blocks=[1, 1, 2, 1],
    scaling_factor=8.0,
)
FULL = dict(
    block_out_channels=[32, 32, 64, 64],
    down_block_types=["DownEncoderBlock2D"] * 4,
    up_block_types=["UpDecoderBlock2D"] * 4,
    layers_per_block=1,
)
MODULES = (
    pipeline_stable_diffusion_img2img,
    pipeline_stable_diffusion_xl_img2img,
    pipeline_latent_consistency_img2img,
    pipeline_controlnet_img2img,
)
SCHEDULERS = {
    "euler": EulerDiscreteScheduler,
    "ddim": DDIMScheduler,
    "dpm++": DPMSolverMultistepScheduler,
    "lcm": LCMScheduler,
}


def case(name, pipeline, unet, vae, scheduler, size, steps, strength, seed, **more):
    """A model, and how a frame `[height, width]` is drawn with it. Without a strength it begins with noise."""
    kind, config = scheduler
    return dict(
        name=name,
        pipeline=pipeline,
        unet=unet,
        vae=vae,
        scheduler=kind,
        scheduler_config=config,
        size=size,
        tokens=7,
        steps=steps,
        strength=strength,
        seed=seed,
        **{"guidance": None, "embedded_guidance": None, "control": None, "control_scale": None} | more,
    )


CASES = [
    case("turbo", "sd", make_unet2d.AS_SD21, TINY, ("euler", TRAILING), [64, 96], 2, 0.5, 1),
    case("turbo_from_noise", "sd", make_unet2d.AS_SD21, TINY, ("euler", TRAILING), [64, 64], 1, None, 2),
    case("sd15", "sd", make_unet2d.AS_SD15, FULL, ("ddim", LEADING), [64, 64], 4, 0.5, 3, guidance=3.5),
    case("lcm", "lcm", make_unet2d.AS_LCM, TINY, ("lcm", SD), [64, 64], 4, 0.8, 4, embedded_guidance=7.5),
    case(
        "control",
        "control",
        make_unet2d.AS_SD15,
        TINY,
        ("euler", TRAILING),
        [64, 64],
        4,
        0.5,
        6,
        guidance=1.8,
        control=dict(conditioning_embedding_out_channels=[8, 12, 24, 16]),
        control_scale=0.7,
    ),
    # Of its three steps the second is of second order.
    case("xl", "xl", make_unet2d.AS_SDXL, FULL, ("dpm++", TRAILING), [64, 64], 4, 0.75, 5, guidance=2.0),
]


def given(case, name, *shape):
    return networks.given(case["name"], name, *shape).float()


def conditions(case, unet):
    """The prompts, and what else the pipeline is told about them."""
    channels = unet.config.cross_attention_dim
    prompts = given(case, "prompts", 2 if case["guidance"] else 1, case["tokens"], channels)
    result = {"prompt_embeds": prompts[-1:]}
    if case["guidance"]:
        result["negative_prompt_embeds"] = prompts[:1]
    if case["pipeline"] == "xl":
        pooled = unet.config.projection_class_embeddings_input_dim - 6 * unet.config.addition_time_embed_dim
        pooled = given(case, "pooled", len(prompts), pooled)
        result["pooled_prompt_embeds"] = pooled[-1:]
        result["negative_pooled_prompt_embeds"] = pooled[:1]
    return result


def pipeline(case, unet, vae, scheduler, controlnet):
    parts = {"unet": unet, "vae": vae, "scheduler": scheduler, "text_encoder": None, "tokenizer": None}
    if case["pipeline"] == "xl":
        parts |= {"text_encoder_2": None, "tokenizer_2": None, "add_watermarker": False}
        return StableDiffusionXLImg2ImgPipeline(**parts)
    parts |= {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    if case["pipeline"] == "control":
        return StableDiffusionControlNetImg2ImgPipeline(**parts, controlnet=controlnet)
    if case["pipeline"] == "lcm":
        return LatentConsistencyModelImg2ImgPipeline(**parts)
    return (StableDiffusionImg2ImgPipeline if case["strength"] else StableDiffusionPipeline)(**parts)


def model(network, prefix):
    network = network.float().eval()
    synthetic.fill(network, prefix)
    return network


def run(case, results):
    height, width = case["size"]
    unet = model(UNet2DConditionModel(**case["unet"], sample_size=64), "unet.")
    tiny = case["vae"] is TINY
    vae = model(AutoencoderTiny(**TINY) if tiny else AutoencoderKL(**FULL), "vae.")
    scheduler = SCHEDULERS[case["scheduler"]](**case["scheduler_config"])
    controlnet = None
    if case["control"]:
        controlnet = model(ControlNetModel(**case["unet"], **case["control"]), "controlnet.")
    pipe = pipeline(case, unet, vae, scheduler, controlnet)
    pipe.set_progress_bar_config(disable=True)
    options = conditions(case, unet) | {
        "num_inference_steps": case["steps"],
        "guidance_scale": case["guidance"] or case["embedded_guidance"] or 0.0,
    }
    if case["strength"]:
        image = Image.fromarray(synthetic.photo(width, height))
        options |= {"image": image, "strength": case["strength"]}
    else:
        options |= {"height": height, "width": width}
    if controlnet:
        # The photo's negative.
        options |= {"control_image": Image.fromarray(255 - synthetic.photo(width, height))}
        options |= {"controlnet_conditioning_scale": case["control_scale"]}
        case["control"] = json.loads(controlnet.to_json_string())

    def drawn(output_type):
        generator = torch.Generator().manual_seed(case["seed"])
        return pipe(**options, generator=generator, output_type=output_type).images

    results[f"{case['name']}/latents"] = images_last(drawn("latent")).contiguous()
    frame = torch.from_numpy(drawn("np"))
    frame = (frame * 255).round().to(torch.uint8)
    saturated = ((frame == 0) | (frame == 255)).float().mean().item()
    print(f"{case['name']:20} {saturated:.1%} of the bytes are 0 or 255")
    assert saturated < 0.6
    results[f"{case['name']}/frame"] = frame.contiguous()
    case |= {"unet": json.loads(unet.to_json_string()), "vae": json.loads(vae.to_json_string())}
    return case


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/frame")
    fixtures.reproducible()
    results = {}
    mean = {module: partial(module.retrieve_latents, sample_mode="argmax") for module in MODULES}
    with torch.no_grad():
        for module, retrieve in mean.items():
            mock.patch.object(module, "retrieve_latents", retrieve).start()
        cases = [run(case, results) for case in CASES]
    save_file(results, out / "frame.safetensors")
    fixtures.write_cases(out / "frame.json", cases)
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()

"""Makes the golden clips of the whole pipeline, with diffusers' own StableVideoDiffusionPipeline in f32, once in f16.

Weights and photos are those of synthetic.py under their names, so that a fixture holds configurations and results
alone. Latents and frames are stored channels last.
"""

import json

import diffusers
import numpy as np
import torch
from diffusers import (
    AutoencoderKLTemporalDecoder,
    EulerDiscreteScheduler,
    StableVideoDiffusionPipeline,
    UNetSpatioTemporalConditionModel,
)
from PIL import Image
from safetensors.numpy import save_file
from transformers import CLIPImageProcessorPil, CLIPVisionConfig, CLIPVisionModelWithProjection

import fixtures
import svd
import synthetic
from svd import CROSS_DOWN, CROSS_UP, DOWN, UP

LIMIT = 384 << 10


def vae(widths, layers, **more):
    levels = ["DownEncoderBlock2D"] * len(widths)
    return dict(block_out_channels=widths, down_block_types=levels, layers_per_block=layers, **more)


def encoder(**config):
    return dict(image_size=224, **config)


MODELS = {
    # The shape of Stable Video Diffusion's.
    "as_svd": dict(
        unet=dict(
            block_out_channels=[32, 64, 96, 96],
            addition_time_embed_dim=32,
            projection_class_embeddings_input_dim=96,
            cross_attention_dim=56,
            num_attention_heads=[1, 2, 3, 6],
            num_frames=2,
            sample_size=8,
        ),
        vae=vae([32, 32, 64, 64], 2, force_upcast=True),
        image_encoder=encoder(
            hidden_size=64,
            intermediate_size=96,
            projection_dim=56,
            num_hidden_layers=2,
            num_attention_heads=4,
            patch_size=56,
            hidden_act="gelu",
        ),
        scheduler=svd.SCHEDULER,
        feature_extractor={},
    ),
    # Fewer levels, uneven ones, other activations, an epsilon prediction, another normalisation.
    "uneven": dict(
        unet=dict(
            down_block_types=[DOWN, CROSS_DOWN, CROSS_DOWN],
            up_block_types=[CROSS_UP, CROSS_UP, UP],
            block_out_channels=[32, 96, 64],
            addition_time_embed_dim=10,
            projection_class_embeddings_input_dim=30,
            layers_per_block=[2, 1, 1],
            cross_attention_dim=40,
            transformer_layers_per_block=[1, 2, 1],
            num_attention_heads=[8, 3, 16],
            num_frames=5,
            sample_size=[16, 16],
        ),
        vae=vae([32, 64, 32], 1, scaling_factor=0.75),
        image_encoder=encoder(
            hidden_size=40,
            intermediate_size=64,
            projection_dim=40,
            num_hidden_layers=3,
            num_attention_heads=5,
            patch_size=50,
        ),
        # Little noise: a prediction of it that is none would otherwise leave latents of hundreds.
        scheduler=dict(prediction_type="epsilon", timestep_spacing="trailing", beta_end=0.003),
        feature_extractor=dict(image_mean=[0.5, 0.4, 0.3], image_std=[0.25, 0.5, 0.75]),
    ),
    # One level; latents of two channels.
    "smallest": dict(
        unet=dict(
            in_channels=4,
            out_channels=2,
            down_block_types=[CROSS_DOWN],
            up_block_types=[CROSS_UP],
            block_out_channels=[32],
            addition_time_embed_dim=16,
            projection_class_embeddings_input_dim=48,
            layers_per_block=1,
            cross_attention_dim=24,
            num_attention_heads=2,
            num_frames=3,
        ),
        vae=vae([32, 32], 2, latent_channels=2, force_upcast=False),
        image_encoder=encoder(
            hidden_size=16,
            intermediate_size=16,
            projection_dim=24,
            num_hidden_layers=1,
            num_attention_heads=1,
            patch_size=112,
            hidden_act="gelu_new",
        ),
        scheduler=svd.SCHEDULER,
        feature_extractor={},
    ),
}

DEFAULTS = dict(
    fps=7,
    motion_bucket=127,
    noise_augmentation=0.02,
    min_guidance=1.0,
    max_guidance=3.0,
    scheduler=None,
    precision="f32",
)

# The runs. Of those that are not in FRAMES_KEPT only the latents are, since another run has checked the decoder.
RUNS = [
    dict(
        name="euler", model="as_svd", photo=[100, 70], frames=2, steps=4, width=128, height=64, decode_chunk=2, seed=7
    ),
    dict(name="ddim", scheduler="ddim", steps=5, seed=8),
    dict(name="lcm", scheduler="lcm", steps=4, seed=10),
    # Three chunks, the last one shorter; a photo that is reduced for both encoders.
    dict(
        name="chunks",
        model="uneven",
        photo=[300, 420],
        frames=5,
        steps=3,
        width=64,
        height=64,
        decode_chunk=2,
        fps=25,
        motion_bucket=180,
        noise_augmentation=0.5,
        min_guidance=1.25,
        max_guidance=2.5,
        seed=2**33 + 11,
    ),
    # Guidance that falls, and one frame.
    dict(name="falling", frames=3, min_guidance=2.0, max_guidance=1.5, seed=12),
    dict(name="one_frame", frames=1, decode_chunk=1, steps=1, seed=13),
    # Not on the published scheduler's configuration: its high noise levels share one timestep, by which diffusers'
    # DPM-Solver finds its place, and so runs off the end.
    dict(name="dpm", scheduler="dpm++", frames=2, steps=5, seed=9),
    # No guidance, no noise on the photo. In fewer steps the last one would fall from so much noise that f32 loses
    # digits.
    dict(
        name="unguided",
        model="smallest",
        photo=[64, 64],
        frames=3,
        steps=4,
        width=64,
        height=64,
        decode_chunk=3,
        fps=1,
        motion_bucket=0,
        noise_augmentation=0.0,
        max_guidance=1.0,
        seed=14,
    ),
    # Half precision has other noise for the same seed. It is last, since the model stays as it was converted.
    dict(
        name="half",
        model="as_svd",
        photo=[100, 70],
        frames=2,
        steps=2,
        width=64,
        height=64,
        decode_chunk=1,
        seed=7,
        precision="f16",
    ),
]
FRAMES_KEPT = {"euler", "chunks", "unguided", "half"}

SCHEDULERS = {"ddim": "DDIMScheduler", "dpm++": "DPMSolverMultistepScheduler", "lcm": "LCMScheduler"}


def config_of(part):
    """A part's configuration, as its library writes it."""
    return json.loads(part.to_json_string())


def build(model):
    parts = dict(
        unet=UNetSpatioTemporalConditionModel(**model["unet"]),
        vae=AutoencoderKLTemporalDecoder(**model["vae"]),
        image_encoder=CLIPVisionModelWithProjection(CLIPVisionConfig(**model["image_encoder"])),
        scheduler=EulerDiscreteScheduler(**model["scheduler"]),
        feature_extractor=CLIPImageProcessorPil(**model["feature_extractor"]),
    )
    for name in ("unet", "vae", "image_encoder"):
        synthetic.fill(parts[name].eval())
    pipeline = StableVideoDiffusionPipeline(**parts)
    pipeline.set_progress_bar_config(disable=True)
    configs = {name: config_of(parts[name]) for name in ("unet", "vae", "scheduler", "feature_extractor")}
    configs["image_encoder"] = config_of(parts["image_encoder"].config)
    return pipeline, configs


def clip(pipeline, run, output_type):
    # Schedulers draw from the global generator, since the pipeline gives them none of its own. So that there is one
    # stream of noise, everything else is drawn from it as well.
    torch.manual_seed(run["seed"])
    return pipeline(
        Image.fromarray(synthetic.photo(*run["photo"])),
        height=run["height"],
        width=run["width"],
        num_frames=run["frames"],
        num_inference_steps=run["steps"],
        min_guidance_scale=run["min_guidance"],
        max_guidance_scale=run["max_guidance"],
        fps=run["fps"],
        motion_bucket_id=run["motion_bucket"],
        noise_aug_strength=run["noise_augmentation"],
        decode_chunk_size=run["decode_chunk"],
        output_type=output_type,
    ).frames


def main():
    out = fixtures.folder(__doc__, "crates/kinora/tests/fixtures/pipeline")
    torch.manual_seed(0)
    built = {name: build(model) for name, model in MODELS.items()}
    schedulers = {name: pipeline.scheduler for name, (pipeline, _) in built.items()}
    tensors, runs, run = {}, [], {}
    for changes in RUNS:
        # A run that names no model continues the one before.
        run = {**(DEFAULTS if "model" in changes else run), **changes}
        pipeline, _ = built[run["model"]]
        scheduler = schedulers[run["model"]]
        if run["scheduler"]:
            scheduler = getattr(diffusers, SCHEDULERS[run["scheduler"]]).from_config(scheduler.config)
        pipeline.scheduler = scheduler
        if run["precision"] == "f16":
            pipeline.to(torch.float16)
        with torch.no_grad():
            latents = clip(pipeline, run, "latent")[0]
            tensors[f"{run['name']}.latents"] = np.ascontiguousarray(latents.float().numpy().transpose(0, 2, 3, 1))
            if run["name"] in FRAMES_KEPT:
                frames = np.stack([np.asarray(frame) for frame in clip(pipeline, run, "pil")[0]])
                tensors[f"{run['name']}.frames"] = frames
                inside = np.mean((frames > 0) & (frames < 255))
                print(f"{run['name']}: latents to {latents.abs().max():.3g}, {inside:.1%} of bytes inside the range")
        runs.append(dict(run))
    save_file(tensors, out / "clips.safetensors")
    models = {name: configs for name, (_, configs) in built.items()}
    text = json.dumps({"models": models, "runs": runs}, indent=1, sort_keys=True)
    (out / "clips.json").write_text(text + "\n", encoding="utf-8")
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()

"""Makes the golden tensors of the UNet, its parts and a denoising step, with diffusers in float64.

Weights and inputs are made from their names (see synthetic.py), so that the fixtures hold results alone. A network's
configuration is written as diffusers writes its own `config.json`.
"""

import argparse
import json
import pathlib

import torch
from diffusers import EulerDiscreteScheduler, UNetSpatioTemporalConditionModel
from diffusers.models import embeddings
from diffusers.models.resnet import SpatioTemporalResBlock
from diffusers.models.transformers.transformer_temporal import TransformerSpatioTemporalModel
from diffusers.models.unets import unet_3d_blocks as blocks
from diffusers.schedulers import scheduling_euler_discrete
from safetensors.torch import save_file

import synthetic
from ops.double import in_double
from ops.layouts import images_first, images_last

FIXTURES = pathlib.Path(__file__).parent.parent / "crates/models/tests/fixtures/unet"
LIMIT = 400 << 10

CROSS_DOWN, DOWN = "CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"
CROSS_UP, UP = "CrossAttnUpBlockSpatioTemporal", "UpBlockSpatioTemporal"

# Whole networks: what differs from diffusers' defaults, then the run. Sizes that halve to a fraction are among them.
NETWORKS = {
    "smallest": (
        dict(
            down_block_types=[CROSS_DOWN, DOWN],
            up_block_types=[UP, CROSS_UP],
            block_out_channels=[32, 64],
            addition_time_embed_dim=16,
            projection_class_embeddings_input_dim=48,
            layers_per_block=1,
            cross_attention_dim=24,
            num_attention_heads=2,
            num_frames=2,
        ),
        dict(batch=1, frames=2, height=4, width=4, timesteps=[1.625], added_time_ids=[[6.0, 127.0, 0.0625]]),
    ),
    "uneven": (
        dict(
            down_block_types=[DOWN, CROSS_DOWN, CROSS_DOWN],
            up_block_types=[CROSS_UP, CROSS_UP, UP],
            block_out_channels=[32, 96, 64],
            addition_time_embed_dim=10,
            projection_class_embeddings_input_dim=20,
            layers_per_block=[2, 1, 1],
            cross_attention_dim=[40, 40, 40],
            transformer_layers_per_block=[1, 2, [1, 2]],
            num_attention_heads=[8, 3, 16],
            in_channels=5,
            out_channels=3,
            num_frames=3,
        ),
        dict(
            batch=2,
            frames=3,
            height=7,
            width=10,
            timesteps=[-1.5, 0.75],
            added_time_ids=[[3.0, 0.5], [24.0, 0.0]],
        ),
    ),
    "as_svd": (
        dict(
            block_out_channels=[32, 64, 96, 96],
            addition_time_embed_dim=32,
            projection_class_embeddings_input_dim=96,
            cross_attention_dim=56,
            num_attention_heads=[1, 2, 3, 6],
            num_frames=5,
        ),
        dict(
            batch=2,
            frames=5,
            height=8,
            width=16,
            timesteps=[1.5, 1.5],
            added_time_ids=[[6.0, 127.0, 0.03125]] * 2,
        ),
    ),
}

# For the parts.
BATCH, FRAMES, HEIGHT, WIDTH = 2, 2, 3, 4
CHANNELS, TIME, CONTEXT = 32, 48, 24


def given(name, *shape):
    """An input in Kinora's layout: numbers made from its name."""
    values = synthetic.uniform(name, int(torch.Size(shape).numel()))
    return torch.from_numpy(values.astype("float32")).double().reshape(shape)


def network(name):
    model = UNetSpatioTemporalConditionModel(**NETWORKS[name][0]).double().eval()
    synthetic.fill(model)
    return model


def predict(name, model):
    """The network's prediction, and the time embedding as its blocks read it."""
    run = NETWORKS[name][1]
    batch, frames, height, width = (run[key] for key in ("batch", "frames", "height", "width"))
    sample = given(f"{name}.sample", batch * frames, height, width, model.config.in_channels)
    context_width = model.config.cross_attention_dim
    context_width = context_width[0] if isinstance(context_width, (list, tuple)) else context_width
    context = given(f"{name}.context", batch, 1, context_width)
    timesteps = torch.tensor(run["timesteps"], dtype=torch.float64)
    ids = torch.tensor(run["added_time_ids"], dtype=torch.float64)
    prediction = model(images_first(sample).unflatten(0, (batch, frames)), timesteps, context, ids).sample
    time = model.time_embedding(model.time_proj(timesteps))
    time = time + model.add_embedding(model.add_time_proj(ids.flatten()).reshape(batch, -1))
    return images_last(prediction.flatten(0, 1)), torch.nn.functional.silu(time)


def parts():
    """Each kind of block alone, under its own name."""
    indicator = torch.zeros(BATCH, FRAMES, dtype=torch.float64)
    time = given("part.time", BATCH, TIME).repeat_interleave(FRAMES, 0)
    context = given("part.context", BATCH, 1, CONTEXT).repeat_interleave(FRAMES, 0)

    def images(name, channels=CHANNELS):
        # Small, so that the first norms' epsilons, which the blocks do not share, show in the results.
        return images_first(given(name, BATCH * FRAMES, HEIGHT, WIDTH, channels) / 64)

    def made(name, module):
        module = module.double().eval()
        synthetic.fill(module, name + ".")
        return module

    results = {}

    block = made("resnet", SpatioTemporalResBlock(CHANNELS, 64, temb_channels=TIME, eps=1e-6))
    results["resnet"] = block(images("resnet.x"), time, indicator)

    block = made("transformer", TransformerSpatioTemporalModel(4, 8, CHANNELS, num_layers=2, cross_attention_dim=CONTEXT))
    results["transformer"] = block(images("transformer.x"), context, indicator, return_dict=False)[0]

    attends = dict(num_attention_heads=2, cross_attention_dim=CONTEXT)
    block = made(
        "cross_down",
        blocks.get_down_block(
            CROSS_DOWN, 1, CHANNELS, 64, TIME, True, 1e-5, "silu", transformer_layers_per_block=1, **attends
        ),
    )
    x, skips = block(images("cross_down.x"), time, context, indicator)
    results.update(zip(("cross_down", "cross_down.skip0", "cross_down.skip1"), (x, *skips)))

    block = made("down", blocks.get_down_block(DOWN, 2, CHANNELS, CHANNELS, TIME, False, 1e-5, "silu", **attends))
    x, skips = block(images("down.x"), time, indicator)
    results.update(zip(("down", "down.skip0", "down.skip1"), (x, *skips)))

    block = made("mid", blocks.UNetMidBlockSpatioTemporal(CHANNELS, TIME, **attends))
    results["mid"] = block(images("mid.x"), time, context, indicator)

    for name, kind in (("cross_up", CROSS_UP), ("up", UP)):
        module = blocks.get_up_block(
            kind, 2, CHANNELS, CHANNELS, 64, TIME, True, 1e-5, "silu", transformer_layers_per_block=1, **attends
        )
        block = made(name, module)
        skips = tuple(images(f"{name}.skip{i}") for i in range(2))
        x = images(f"{name}.x", channels=64)
        # What a skip of five rows was halved to.
        size = (2 * HEIGHT - 1, 2 * WIDTH)
        extra = dict(encoder_hidden_states=context) if kind == CROSS_UP else {}
        results[name] = block(x, skips, time, upsample_size=size, image_only_indicator=indicator, **extra)
    return {name: images_last(result) for name, result in results.items()}


def denoise(model):
    """Three guided Euler steps with SVD's scheduler, as the pipeline runs them."""
    frames, height, width = 2, 4, 4
    scheduler = EulerDiscreteScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="v_prediction",
        sigma_max=700.0,
        sigma_min=0.002,
        steps_offset=1,
        timestep_spacing="leading",
        timestep_type="continuous",
        use_karras_sigmas=True,
    )
    results, record = {}, {"frames": frames, "height": height, "width": width}
    with in_double(scheduling_euler_discrete):
        scheduler.set_timesteps(3)
        sigmas = scheduler.sigmas
        assert sigmas.dtype == torch.float64
        # Kinora holds timesteps as f32, and so does diffusers' embedding.
        record |= {"sigmas": sigmas.tolist(), "timesteps": scheduler.timesteps.float().tolist()}
        record |= {"added_time_ids": [6.0, 127.0, 0.0625], "guidance": [1.0, 2.5]}
        guidance = torch.tensor(record["guidance"], dtype=torch.float64)[None, :, None, None, None]
        ids = torch.tensor([record["added_time_ids"]] * 2, dtype=torch.float64)
        image = images_first(given("denoise.image_latents", 1, height, width, 4))[:, None].repeat(1, frames, 1, 1, 1)
        image = torch.cat([torch.zeros_like(image), image])
        context = given("denoise.image_embedding", 1, 1, model.config.cross_attention_dim)
        context = torch.cat([torch.zeros_like(context), context])
        latents = images_first(given("denoise.latents", frames, height, width, 4) * sigmas[0].float().double())[None]
        for i, t in enumerate(scheduler.timesteps):
            scaled = scheduler.scale_model_input(torch.cat([latents] * 2), t)
            prediction = model(torch.cat([scaled, image], dim=2), t, context, ids).sample
            unconditional, conditional = prediction.chunk(2)
            prediction = unconditional + guidance * (conditional - unconditional)
            step = scheduler.step(prediction, t, latents)
            latents = step.prev_sample
            assert latents.dtype == torch.float64
            results[f"denoise.next{i}"] = images_last(latents[0])
            results[f"denoise.denoised{i}"] = images_last(step.pred_original_sample[0])
    return results, record


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=pathlib.Path, default=FIXTURES, help="where the fixtures go")
    out = arguments.parse_args().out
    # Sums must not depend on how many cores share them.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out.mkdir(parents=True, exist_ok=True)

    results, runs = {}, {}
    with torch.no_grad(), in_double(embeddings):
        for name, (_, run) in NETWORKS.items():
            model = network(name)
            (out / f"{name}.config.json").write_text(model.to_json_string())
            results[name], results[f"{name}.time"] = predict(name, model)
            runs[name] = run | {"parameters": sum(p.numel() for p in model.parameters())}
        results |= parts()
        steps, record = denoise(network("smallest"))
        results |= steps
    for name, result in results.items():
        assert result.dtype == torch.float64, name
        print(f"{name:20} {str(list(result.shape)):20} rms {result.square().mean().sqrt():.3f}")
    save_file({name: result.float().contiguous() for name, result in results.items()}, out / "results.safetensors")
    (out / "runs.json").write_text(json.dumps({"networks": runs, "denoise": record}, indent=1) + "\n")
    total = sum(path.stat().st_size for path in out.iterdir())
    print(f"{total / 1024:.1f} KiB in all")
    if total > LIMIT:
        raise SystemExit(f"the fixtures are over {LIMIT / 1024:.0f} KiB: make some tensors smaller")


if __name__ == "__main__":
    main()

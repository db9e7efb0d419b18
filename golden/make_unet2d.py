"""Makes the golden tensors of the UNet of Stable Diffusion and its blocks, with diffusers. See networks.py.

A network's configuration is written as diffusers writes its own `config.json`.
"""

import json

import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from diffusers.models import embeddings

import networks
from networks import given
from ops.double import in_double
from ops.layouts import images_first, images_last

CROSS_DOWN, DOWN = "CrossAttnDownBlock2D", "DownBlock2D"
CROSS_UP, UP = "CrossAttnUpBlock2D", "UpBlock2D"

# Configurations: what differs from diffusers' defaults, which are those of Stable Diffusion 1.5 but for the prompt.
AS_SD15 = dict(block_out_channels=[32, 64, 96, 96], cross_attention_dim=24)
AS_SD21 = dict(
    block_out_channels=[32, 64, 96, 96],
    cross_attention_dim=40,
    attention_head_dim=[1, 2, 3, 3],
    use_linear_projection=True,
    upcast_attention=True,
)
AS_LCM = dict(
    down_block_types=[CROSS_DOWN, DOWN],
    up_block_types=[UP, CROSS_UP],
    block_out_channels=[32, 64],
    cross_attention_dim=24,
    attention_head_dim=4,
    layers_per_block=1,
    time_cond_proj_dim=16,
)
AS_SDXL = dict(
    down_block_types=[DOWN, CROSS_DOWN, CROSS_DOWN],
    up_block_types=[CROSS_UP, CROSS_UP, UP],
    block_out_channels=[32, 64, 96],
    cross_attention_dim=56,
    attention_head_dim=[1, 2, 6],
    layers_per_block=1,
    transformer_layers_per_block=[1, 2, 3],
    use_linear_projection=True,
    addition_embed_type="text_time",
    addition_time_embed_dim=8,
    projection_class_embeddings_input_dim=20 + 6 * 8,
)
UNEVEN = dict(
    down_block_types=[CROSS_DOWN, DOWN, CROSS_DOWN],
    up_block_types=[CROSS_UP, UP, CROSS_UP],
    block_out_channels=[32, 96, 64],
    cross_attention_dim=[24, 24, 24],
    attention_head_dim=[8, 3, 16],
    layers_per_block=[2, 1, 1],
    norm_eps=1e-3,
    flip_sin_to_cos=False,
    freq_shift=1,
    in_channels=5,
    out_channels=3,
)


def case(name, config, sample, tokens, timesteps, parts=(), guidance=None, time_ids=None):
    """A network with the size of its sample `[images, height, width]`, its tokens, and the conditions of each image."""
    return dict(
        name=name,
        config=config,
        sample=sample,
        tokens=tokens,
        timesteps=timesteps,
        guidance=guidance,
        time_ids=time_ids,
        parts=list(parts),
    )


CASES = [
    case(
        "sd15",
        AS_SD15,
        [1, 8, 16],
        7,
        [999.0],
        parts=[
            "down_blocks.0.resnets.0",
            "down_blocks.0.attentions.0",
            "down_blocks.0",
            "mid_block",
            "up_blocks.0",
            "up_blocks.1",
        ],
    ),
    case("sd21", AS_SD21, [2, 8, 16], 5, [679.0, 99.0]),
    case("lcm", AS_LCM, [2, 4, 6], 3, [259.0, 259.0], guidance=[7.5, 0.5]),
    case(
        "sdxl",
        AS_SDXL,
        [2, 4, 8],
        5,
        [999.0, 499.0],
        time_ids=[[512.0, 512.0, 0.0, 0.0, 512.0, 512.0], [768.0, 512.0, 64.0, 16.0, 256.0, 384.0]],
    ),
    # Sizes that halve to a fraction.
    case("uneven", UNEVEN, [1, 7, 10], 4, [12.5]),
]


def guidance_embedding(scales, channels):
    """By the pipeline's own method, which reads nothing of the pipeline, in f64."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    embed = StableDiffusionPipeline.get_guidance_scale_embedding
    result = embed(None, torch.tensor(scales), channels, dtype=torch.float64)
    torch.set_default_dtype(default)
    return result


def run(case, results):
    name, (images, height, width) = case["name"], case["sample"]
    model = networks.synthetic_model(UNet2DConditionModel(**case["config"]))
    networks.keep_parts(model, case, results)
    if case["parts"]:
        norms = (torch.nn.GroupNorm, torch.nn.LayerNorm)
        case["epsilons"] = {norm: m.eps for norm, m in model.named_modules() if isinstance(m, norms)}
    sample = images_first(given(name, "sample", images, height, width, model.config.in_channels))
    channels = model.config.cross_attention_dim
    channels = channels[0] if isinstance(channels, (list, tuple)) else channels
    context = given(name, "context", images, case["tokens"], channels)
    timesteps = torch.tensor(case["timesteps"], dtype=torch.float64)
    guidance, added = None, None
    if case["guidance"]:
        guidance = guidance_embedding(case["guidance"], model.config.time_cond_proj_dim)
    if case["time_ids"]:
        ids = torch.tensor(case["time_ids"], dtype=torch.float64)
        text = model.config.projection_class_embeddings_input_dim
        text -= ids.shape[1] * model.config.addition_time_embed_dim
        added = {"text_embeds": given(name, "text", images, text), "time_ids": ids}

    time = {}
    # What every residual block reads: activated.
    first = model.down_blocks[0].resnets[0]
    hook = first.time_emb_proj.register_forward_hook(lambda _module, inputs, _result: time.update(read=inputs[0]))
    prediction = model(sample, timesteps, context, timestep_cond=guidance, added_cond_kwargs=added).sample
    hook.remove()
    results[f"{name}/prediction"] = images_last(prediction)
    results[f"{name}/time"] = time["read"]
    case["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    case["config"] = json.loads(model.to_json_string())


def build():
    with in_double(embeddings):
        return networks.each(CASES, run)


if __name__ == "__main__":
    networks.main(__doc__, "unet2d", build)

"""Makes the golden tensors of the UNet and its blocks, with diffusers. See networks.py.

A network's configuration is written as diffusers writes its own `config.json`.
"""

import json

import torch
from diffusers import UNetSpatioTemporalConditionModel
from diffusers.models import embeddings
from diffusers.models.resnet import SpatioTemporalResBlock
from diffusers.models.transformers.transformer_temporal import TransformerSpatioTemporalModel
from diffusers.models.unets import unet_3d_blocks as blocks

import networks
from networks import given
from ops.double import in_double
from ops.layouts import images_first, images_last
from svd import CROSS_DOWN, CROSS_UP, DOWN, UP

# Configurations: what differs from diffusers' defaults.
SMALLEST = dict(
    down_block_types=[CROSS_DOWN, DOWN],
    up_block_types=[UP, CROSS_UP],
    block_out_channels=[32, 64],
    addition_time_embed_dim=16,
    projection_class_embeddings_input_dim=48,
    layers_per_block=1,
    cross_attention_dim=24,
    num_attention_heads=2,
    num_frames=2,
)
UNEVEN = dict(
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
)
AS_SVD = dict(
    block_out_channels=[32, 64, 96, 96],
    addition_time_embed_dim=32,
    projection_class_embeddings_input_dim=96,
    cross_attention_dim=56,
    num_attention_heads=[1, 2, 3, 6],
    num_frames=5,
)


def case(name, config, sample, timesteps, added_time_ids):
    """A network with the size of its sample `[batch, frames, height, width]`, and with the conditions of each clip."""
    return dict(name=name, config=config, sample=sample, timesteps=timesteps, added_time_ids=added_time_ids)


CASES = [
    case("smallest", SMALLEST, [1, 2, 4, 4], [1.625], [[6.0, 127.0, 0.0625]]),
    # Sizes that halve to a fraction.
    case("uneven", UNEVEN, [2, 3, 7, 10], [-1.5, 0.75], [[3.0, 0.5], [24.0, 0.0]]),
    case("as_svd", AS_SVD, [2, 5, 8, 16], [1.5, 1.5], [[6.0, 127.0, 0.03125]] * 2),
]

# For the blocks.
BATCH, FRAMES, HEIGHT, WIDTH = 2, 2, 3, 4
CHANNELS, TIME, CONTEXT = 32, 48, 24


def network(config):
    return networks.synthetic_model(UNetSpatioTemporalConditionModel(**config))


def context_width(model):
    """Channels of the image embedding."""
    width = model.config.cross_attention_dim
    return width[0] if isinstance(width, (list, tuple)) else width


def predict(case, model):
    """The network's prediction, and the time embedding as its blocks read it."""
    name, (batch, frames, height, width) = case["name"], case["sample"]
    sample = given(name, "sample", batch * frames, height, width, model.config.in_channels)
    context = given(name, "context", batch, 1, context_width(model))
    timesteps = torch.tensor(case["timesteps"], dtype=torch.float64)
    ids = torch.tensor(case["added_time_ids"], dtype=torch.float64)
    prediction = model(images_first(sample).unflatten(0, (batch, frames)), timesteps, context, ids).sample
    time = model.time_embedding(model.time_proj(timesteps))
    time = time + model.add_embedding(model.add_time_proj(ids.flatten()).reshape(batch, -1))
    return images_last(prediction.flatten(0, 1)), torch.nn.functional.silu(time)


class Block:
    """A block alone, whose name is a case's."""

    indicator = torch.zeros(BATCH, FRAMES, dtype=torch.float64)

    def __init__(self, name, module):
        self.name = name
        self.module = networks.synthetic_model(module, f"{name}.")
        self.time = given(name, "time", BATCH, TIME).repeat_interleave(FRAMES, 0)
        self.context = given(name, "context", BATCH, 1, CONTEXT).repeat_interleave(FRAMES, 0)

    def images(self, name, channels=CHANNELS):
        # Small, so that the first norms' epsilons, which the blocks do not share, show in the results.
        return images_first(given(self.name, name, BATCH * FRAMES, HEIGHT, WIDTH, channels) / 64)

    def results(self, y, skips=()):
        named = {"y": y} | {f"skip{i}": skip for i, skip in enumerate(skips)}
        return {f"{self.name}/{name}": images_last(result) for name, result in named.items()}


def each_block():
    """The results of each kind of block."""
    results = {}

    b = Block("resnet", SpatioTemporalResBlock(CHANNELS, 64, temb_channels=TIME, eps=1e-6))
    results |= b.results(b.module(b.images("x"), b.time, b.indicator))

    module = TransformerSpatioTemporalModel(4, 8, CHANNELS, num_layers=2, cross_attention_dim=CONTEXT)
    b = Block("transformer", module)
    results |= b.results(b.module(b.images("x"), b.context, b.indicator, return_dict=False)[0])

    attends = dict(num_attention_heads=2, cross_attention_dim=CONTEXT)
    one_deep = attends | dict(transformer_layers_per_block=1)
    module = blocks.get_down_block(CROSS_DOWN, 1, CHANNELS, 64, TIME, True, 1e-5, "silu", **one_deep)
    b = Block("cross_down", module)
    results |= b.results(*b.module(b.images("x"), b.time, b.context, b.indicator))

    module = blocks.get_down_block(DOWN, 2, CHANNELS, CHANNELS, TIME, False, 1e-5, "silu", **attends)
    b = Block("down", module)
    results |= b.results(*b.module(b.images("x"), b.time, b.indicator))

    b = Block("mid", blocks.UNetMidBlockSpatioTemporal(CHANNELS, TIME, **attends))
    results |= b.results(b.module(b.images("x"), b.time, b.context, b.indicator))

    for name, kind in (("cross_up", CROSS_UP), ("up", UP)):
        b = Block(name, blocks.get_up_block(kind, 2, CHANNELS, CHANNELS, 64, TIME, True, 1e-5, "silu", **one_deep))
        skips = (b.images("skip0"), b.images("skip1"))
        # What a skip of five rows was halved to.
        options = dict(upsample_size=(2 * HEIGHT - 1, 2 * WIDTH), image_only_indicator=b.indicator)
        if kind == CROSS_UP:
            options["encoder_hidden_states"] = b.context
        results |= b.results(b.module(b.images("x", channels=64), skips, b.time, **options))
    return results


def build():
    cases, results = [], {}
    with in_double(embeddings):
        for case in CASES:
            name, model = case["name"], network(case["config"])
            results[f"{name}/prediction"], results[f"{name}/time"] = predict(case, model)
            config = json.loads(model.to_json_string())
            parameters = sum(parameter.numel() for parameter in model.parameters())
            cases.append(case | {"config": config, "parameters": parameters})
        results |= each_block()
    return cases, results


if __name__ == "__main__":
    networks.main(__doc__, "unet", build)

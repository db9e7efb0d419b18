"""Makes the golden tensors of a UNet that remembers: its self-attention reads the keys and values of the frames before.

The network is diffusers', its self-attention is written here in plain PyTorch. See networks.py.
"""

import json

import torch
from diffusers import UNet2DConditionModel
from diffusers.models import embeddings

import networks
from make_unet2d import CROSS_DOWN, CROSS_UP, DOWN, UP
from networks import given
from ops.double import in_double
from ops.layouts import images_first, images_last

FRAMES = 4
SMALL = dict(
    down_block_types=[CROSS_DOWN, DOWN],
    up_block_types=[UP, CROSS_UP],
    block_out_channels=[32, 64],
    cross_attention_dim=24,
    attention_head_dim=4,
    layers_per_block=1,
)
DEEP = SMALL | dict(transformer_layers_per_block=[2, 1], use_linear_projection=True)


class Remembering:
    """Self-attention that also reads the keys and values of the `size` frames before, the newest first.

    The first frame has none before it and reads its own alone. From then on it stands for all that would have been.
    """

    def __init__(self, size):
        self.size = size
        self.before = []

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, **_):
        assert encoder_hidden_states is None and attention_mask is None
        images, tokens, channels = hidden_states.shape
        own = attn.to_k(hidden_states), attn.to_v(hidden_states)
        keys, values = (torch.cat(parts, 1) for parts in zip(own, *self.before, strict=True))
        self.before = [own, *self.before][: self.size] if self.before else [own] * self.size

        def heads(x):
            return x.view(images, -1, attn.heads, channels // attn.heads).transpose(1, 2)

        scores = heads(attn.to_q(hidden_states)) @ heads(keys).transpose(2, 3)
        found = (scores * (channels // attn.heads) ** -0.5).softmax(-1) @ heads(values)
        return attn.to_out[0](found.transpose(1, 2).reshape(images, tokens, channels))


def case(name, config, memory, sample):
    """A network that remembers so many frames, with the size of its sample `[images, height, width]`."""
    return dict(name=name, config=config, memory=memory, sample=sample, tokens=3, timestep=499.0, frames=FRAMES)


CASES = [case("one", SMALL, 1, [1, 4, 6]), case("two", DEEP, 2, [2, 4, 4])]


def run(case, results):
    name, (images, height, width) = case["name"], case["sample"]
    model = networks.synthetic_model(UNet2DConditionModel(**case["config"]))
    processors = {
        path: Remembering(case["memory"]) if path.endswith("attn1.processor") else processor
        for path, processor in model.attn_processors.items()
    }
    model.set_attn_processor(processors)
    context = given(name, "context", images, case["tokens"], model.config.cross_attention_dim)
    timestep = torch.tensor([case["timestep"]] * images, dtype=torch.float64)
    for i in range(FRAMES):
        sample = images_first(given(name, f"sample {i}", images, height, width, model.config.in_channels))
        results[f"{name}/prediction {i}"] = images_last(model(sample, timestep, context).sample)
    case["config"] = json.loads(model.to_json_string())


def build():
    with in_double(embeddings):
        return networks.each(CASES, run)


if __name__ == "__main__":
    networks.main(__doc__, "memory", build)
